"""What people look at: HTML of arrays and groups, and the drawing of a grid.

Not here: plans and reports, which draw themselves in `chunkmill.graph.plan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from math import prod

from dask.utils import format_bytes

from chunkmill.array import Array
from chunkmill.hierarchy import Group, Node
from chunkmill.model.grid import ChunkGrid

__all__ = ["array_html", "grid_svg", "group_html"]

_SIDE = 140  # pixels of the drawing's longer side
_MAX_LINES = 40  # lines drawn along an axis; finer grids are drawn shaded


def array_html(array: Array) -> str:
    """Return the array as a table beside a drawing of its grid."""
    rows = [
        ("Shape", array.shape),
        ("Data type", array.dtype),
        ("Chunk shape", array.chunks),
        ("Shard shape", array.shards or "none"),
        ("Chunks", f"{array.nchunks:,} ({_chunk_bytes(array)} each)"),
        ("Bytes", format_bytes(array.nbytes)),
        ("Fill value", array.fill_value),
        ("Codecs", " → ".join(codec.name for codec in array.codecs)),
        ("Dimensions", ", ".join(map(str, array.dimension_names)) if array.dimension_names else "not named"),
        ("Where", f"{array.url}/{array.path} ({array.format})"),
    ]
    picture = grid_svg(array.reading.grid, array.writing.grid if array.shards else None)
    return f"<table><tr><td>{_table(rows)}</td><td>{picture}</td></tr></table>"


def group_html(group: Group) -> str:
    """Return the group as a tree that folds."""
    return f"<div><b>{escape(repr(group))}</b>{_branch_html(group)}</div>"


def _branch_html(group: Group) -> str:
    return f"<ul>{''.join(f'<li>{_leaf_html(name, node)}</li>' for name, node in group.children().items())}</ul>"


def _leaf_html(name: str, node: Node) -> str:
    if isinstance(node, Group):
        return f"<details open><summary><b>{escape(name)}/</b></summary>{_branch_html(node)}</details>"
    summary = f"<b>{escape(name)}</b> {node.shape} {escape(str(node.dtype))} chunks {node.chunks}"
    return f"<details><summary>{summary}</summary>{array_html(node)}</details>"


def _chunk_bytes(array: Array) -> str:
    return format_bytes(prod(array.reading.grid.chunk_shape) * array.dtype.itemsize)


def _table(rows: Iterable[tuple[str, object]]) -> str:
    cells = (f"<tr><th style='text-align:left'>{k}</th><td>{escape(str(v))}</td></tr>" for k, v in rows)
    return f"<table>{''.join(cells)}</table>"


def grid_svg(grid: ChunkGrid, shards: ChunkGrid | None = None) -> str:
    """Return a drawing of the last two axes: thin lines between chunks, thick ones between shards.

    Examples
    --------
    >>> from chunkmill.model.grid import ChunkGrid
    >>> grid_svg(ChunkGrid.regular((4, 6), (2, 3))).count("<line")
    6
    """
    if grid.ndim == 0 or not all(grid.shape):
        return ""
    plane = ChunkGrid(grid.axes[-2:])
    height, width = (1, *plane.shape)[-2:]
    scale = _SIDE / max(height, width)
    h, w = max(height * scale, 12.0), max(width * scale, 12.0)
    parts = [f'<rect width="{w:.0f}" height="{h:.0f}" fill="#ecb172" fill-opacity="0.6"/>']
    for drawn, stroke in ((plane, 0.5), (ChunkGrid(shards.axes[-2:]) if shards else None, 2.0)):
        if drawn is None:
            continue
        borders = [_borders(axis_chunks) for axis_chunks in _drawable(drawn)]
        rows, columns = ([0.0, 1.0], *borders)[-2:]
        parts += [_line(0, y * h, w, y * h, stroke) for y in rows]
        parts += [_line(x * w, 0, x * w, h, stroke) for x in columns]
    body = "".join(parts)
    return f'<svg width="{w + 4:.0f}" height="{h + 4:.0f}"><g transform="translate(2 2)">{body}</g></svg>'


def _drawable(grid: ChunkGrid) -> list[tuple[int, ...]]:
    """Return the extents along each axis; of a few chunks where there are more than lines can tell apart."""
    return [
        ChunkGrid((axis,)).dask_chunks[0] if axis.n_chunks <= _MAX_LINES else (1,) * _MAX_LINES for axis in grid.axes
    ]


def _borders(lengths: tuple[int, ...]) -> list[float]:
    total, at, borders = sum(lengths), 0, [0.0]
    for length in lengths:
        at += length
        borders.append(at / total)
    return borders


def _line(x1: float, y1: float, x2: float, y2: float, stroke: float) -> str:
    at = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {at} stroke="#6b4a1f" stroke-width="{stroke}"/>'
