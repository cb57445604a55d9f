"""Draw arrays and groups as text and HTML: the chunk grid of an array as Dask draws it, all below a group as a tree."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from math import prod
from typing import Any, TypeAlias

from chunkmill.array.stored_array import StoredArray
from chunkmill.display.report import (
    LEFT,
    TABLE,
    Text,
    cells_html,
    counted,
    facts_html,
    folded_html,
    format_bytes,
    html_text,
    printable,
    report_html,
    report_text,
    side_by_side,
    text_width,
)
from chunkmill.errors import ChunkmillError
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import NamedConfig

Group: TypeAlias = Any
"""A `chunkmill.nodes.stored_group.StoredGroup`, of the room above, or what has its names."""

_MAX_ATTRIBUTES = 200
_MAX_TEXT = 200  # letters of an attribute, or of a data type: a structure may have any number of members
_MAX_EDGES = 80  # letters
_MAX_NODES = 200  # of a group that are shown: each takes a request or two
_MAX_DRAWN = 20  # nodes of a group of which arrays are described in full


def node_text(node: StoredArray | Group) -> str:
    """Return format and location of a node in one line; of an array, also shape, dtype, chunks and shards."""
    where = f"{node.url}/{node.path}" if node.path else node.url
    if not isinstance(node, StoredArray):
        return printable(f"<chunkmill.Group {node.format} {where}>")
    return printable(f"<chunkmill.Array {node.format} {where} {_described(node)}>")


def _described(array: StoredArray) -> str:
    shards = f" shards={shape_text(array.shards)}" if array.shards else ""
    return f"shape={array.shape} {_shortened(str(array.dtype))} chunks={shape_text(array.chunks)}{shards}"


def node_html(node: StoredArray | Group) -> str:
    """Return an array as a table with its grid, a group as a tree."""
    return array_html(node) if isinstance(node, StoredArray) else group_html(node)


def array_info(array: StoredArray) -> Text:
    """Return the facts of an array, one a line."""
    sized = [("Shape", shape_text(array.shape)), ("Chunk shape", shape_text(array.chunks))]
    if array.shards:
        sized.append(("Shard shape", shape_text(array.shards)))
    sized.append(("Bytes", format_bytes(array.nbytes)))
    return Text(report_text("array", [*sized, *_array_facts(array)], width=text_width()))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


def array_html(array: StoredArray) -> str:
    """Return the array as a table like dask's, next to a drawing of its grid."""
    sized, size = [("Chunk", array.chunks, array.chunk_grid)], array.dtype.itemsize
    if array.shards:
        sized.append(("Shard", array.shards, array.write_layout.grid))
    lines = [
        ["Bytes", format_bytes(array.nbytes), *(format_bytes(prod(grid.chunk_shape) * size) for _, _, grid in sized)],
        ["Shape", shape_text(array.shape), *(shape_text(shape) for _, shape, _ in sized)],
        ["Count", counted(array.size, "element"), *(counted(grid.n_chunks, name.lower()) for name, _, grid in sized)],
    ]
    head = "".join(f"<th {LEFT}>{name}</th>" for name in ("", "Array", *(name for name, _, _ in sized)))
    body = [f"<tr><th {LEFT}>{name}</th>{cells_html(cells)}</tr>" for name, *cells in lines]
    span = f"colspan='{len(sized) + 1}' {LEFT}"
    body += [f"<tr><th {LEFT}>{html_text(k)}</th><td {span}>{html_text(v)}</td></tr>" for k, v in _array_facts(array)]
    table = f"{TABLE}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return side_by_side(f"{table}{attributes_html(array.attributes)}", grid_svg(array.chunk_grid))


def _array_facts(array: StoredArray) -> Iterator[tuple[str, str]]:
    yield "Data type", _shortened(str(array.dtype))
    yield "Fill value", "undefined" if array.fill_value is None else _attribute(str(array.fill_value)) or "''"
    yield "Codecs", codecs_text(array.codecs)
    if array.dimension_names:
        yield "Dimensions", ", ".join(name or "?" for name in array.dimension_names)
    yield "Format", array.format
    yield "Store", array.url
    if array.path:
        yield "Path", array.path


def codecs_text(codecs: Sequence[NamedConfig]) -> str:
    """Return the names of a codec chain in encode order, those inside shards in brackets.

    Examples
    --------
    >>> inner = {"chunk_shape": [2], "codecs": [{"name": "bytes"}, {"name": "zstd"}]}
    >>> codecs_text([NamedConfig("sharding_indexed", inner), NamedConfig("crc32c", {})])
    'sharding_indexed (bytes → zstd) → crc32c'
    """
    return " → ".join(map(_codec_text, codecs)) or "none"


def _codec_text(codec: NamedConfig) -> str:
    inner = codec.configuration.get("codecs")
    if not isinstance(inner, list):
        return codec.name
    chain = [NamedConfig(c["name"], c.get("configuration", {})) for c in inner if isinstance(c, dict)]
    return f"{codec.name} ({codecs_text(chain)})"


def shape_text(shape: tuple[Any, ...]) -> str:
    """Return a shape as text; the edges of a rectilinear grid are summarised where there are many.

    Examples
    --------
    >>> shape_text((2, 3)), shape_text(((1, 2),)), shape_text(((1, 2) * 50,))
    ('(2, 3)', '((1, 2),)', '(100 of 1 to 2)')
    """
    if all(isinstance(n, int) for n in shape) or len(str(shape)) <= _MAX_EDGES:
        return str(shape)
    edges = (str(n) if isinstance(n, int) else f"{len(n):,} of {min(n)} to {max(n)}" for n in shape)
    return f"({', '.join(edges)})"


def attributes_html(attributes: Mapping[str, Any]) -> str:
    """Return attributes as a table that unfolds; an empty text where there are none."""
    if not attributes:
        return ""
    shown = islice(attributes.items(), _MAX_ATTRIBUTES)
    facts = facts_html((_attribute(str(name)), _attribute(value)) for name, value in shown)
    return folded_html(f"Attributes ({len(attributes)})", facts, len(attributes) - _MAX_ATTRIBUTES, is_open=False)


def _attribute(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return _shortened(text)


_SIDE = 150  # pixels of the longest axis
_MAX_LINES = 32  # drawn along an axis: of finer grids every n-th border is shown


def grid_svg(grid: ChunkGrid) -> str:
    """Draw the chunks of a grid as Dask does; an empty text for arrays without axes or elements.

    Examples
    --------
    >>> from chunkmill.model.grid import ChunkGrid
    >>> grid_svg(ChunkGrid.regular((4, 6), (2, 3))).count("<line")
    6
    """
    if grid.ndim == 0 or not all(grid.shape):
        return ""
    from dask.array.svg import svg  # noqa: PLC0415 - text needs no Dask

    drawn: str = svg(tuple(_drawn_lengths(grid, axis) for axis in range(grid.ndim)), size=_SIDE)
    return drawn.replace("stroke:rgb(0,0,0)", "stroke:currentColor;fill:currentColor", 1)  # dark themes, too


def _drawn_lengths(grid: ChunkGrid, axis: int) -> tuple[int, ...]:
    """Return the lengths of the chunks along an axis; of several together where there are many."""
    one = grid.axes[axis]
    borders = [one.start(i) for i in range(0, one.n_chunks, -(-one.n_chunks // _MAX_LINES))] + [one.size]
    return tuple(stop - start for start, stop in pairwise(borders))


# --------------------------------------------------------------------------------------------------------------------
# Groups


def _members(group: Group) -> Mapping[str, Any]:
    """Return the children by name; the error of each that cannot be opened."""
    errors: dict[str, ChunkmillError] = {}
    found = group.members(on_error=lambda path, error: errors.update({path.rpartition("/")[2]: error}))
    return dict(sorted({**found, **errors}.items()))


def tree_text(group: Group) -> str:
    """Draw everything below a group."""
    return "\n".join([printable(f"/{group.path}"), *_branches(group)])


def _branches(group: Group) -> Iterator[str]:
    todo = [("", deque(_members(group).items()))]  # no recursion: a hierarchy may be deeper than Python's stack
    while todo:
        indent, children = todo[-1]
        if not children:
            todo.pop()
            continue
        name, node = children.popleft()
        last = not children
        what = f" {node.shape} {_shortened(str(node.dtype))}" if isinstance(node, StoredArray) else ""
        if isinstance(node, ChunkmillError):
            what = printable(f" ({node})")
        yield f"{indent}{'└── ' if last else '├── '}{printable(name)}{what}"
        if not isinstance(node, StoredArray | ChunkmillError):
            todo.append((indent + ("    " if last else "│   "), deque(_members(node).items())))


def image_html(image: Any) -> str:
    """Return the levels of an image as a table: shapes, and lengths of a voxel along each axis in its unit."""
    units = (f"{axis.name} ({axis.unit})" if axis.unit else axis.name for axis in image.axes)
    arrays = ((level.array, map("{:g}".format, level.scale)) for level in image)
    rows = ((each.path, str(each.shape), shape_text(each.chunks), *lengths) for each, lengths in arrays)
    finest = grid_svg(image[0].array.stored.chunk_grid) if image.levels else ""
    table = [("level", "shape", "chunks", *units), *rows]
    return report_html(f"image {image.name or ''}", [("described by", image.version)], [table], finest)


def group_html(group: Group) -> str:
    """Return the group as a tree that folds: groups open, arrays closed.

    Of many nodes, the first 200; arrays among the first 20 unfold to what `array_html` shows of them.
    """
    left = [_MAX_NODES]
    return f"<div><b>{html_text(node_text(group))}</b>{_branch_html(group, left)}</div>"


def _branch_html(group: Group, left: list[int]) -> str:
    """Return attributes and children of a group as an HTML list; at most `left` nodes are shown in all."""
    try:
        children = _members(group)
    except (ChunkmillError, OSError) as error:  # a drawing must not fail
        return f"<ul><li><i>{html_text(f'{type(error).__name__}: {error}')}</i></li></ul>"
    items = [f"<li>{attributes_html(group.attributes)}</li>"] if group.attributes else []
    for n_shown, (name, node) in enumerate(children.items()):
        if not left[0]:
            items.append(f"<li><i>… and {len(children) - n_shown:,} more</i></li>")
            break
        left[0] -= 1
        items.append(f"<li>{_leaf_html(name, node, left)}</li>")
    return f"<ul style='list-style:none;padding-left:1.2em;margin:0'>{''.join(items) or '<li><i>empty</i></li>'}</ul>"


def _leaf_html(name: str, node: StoredArray | Group | ChunkmillError, left: list[int]) -> str:
    if isinstance(node, ChunkmillError):
        return f"<b>{html_text(name)}</b> <i>{html_text(f'{type(node).__name__}: {node}')}</i>"
    if not isinstance(node, StoredArray):
        return f"<details open><summary><b>{html_text(name)}/</b></summary>{_branch_html(node, left)}</details>"
    names = f"({', '.join(name or '?' for name in node.dimension_names)}) " if node.dimension_names else ""
    line = f"<b>{html_text(name)}</b> {html_text(f'{names}{_described(node)}, {format_bytes(node.nbytes)}')}"
    if left[0] < _MAX_NODES - _MAX_DRAWN:
        return line
    return f"<details><summary>{line}</summary>{array_html(node)}</details>"
