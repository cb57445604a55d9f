"""Draw an array as text and HTML, and its chunk grid as SVG: an edge, a plane, a cube, or several for more axes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from math import e, log, prod
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.display.report import (
    LEFT,
    TABLE,
    Text,
    facts_html,
    format_bytes,
    html_text,
    printable,
    report_text,
    side_by_side,
    text_width,
)
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import NamedConfig

__all__ = [
    "array_grid_svg",
    "array_html",
    "array_info",
    "array_text",
    "attributes_html",
    "codecs_text",
    "dtype_text",
    "grid_svg",
    "location",
]

__all__ += ["shape_text"]

_MAX_ATTRIBUTE = 200  # letters
_MAX_ATTRIBUTES = 200
_MAX_DTYPE = 200  # letters: a structure may have any number of members
_MAX_EDGES = 80  # letters


def array_text(array: StoredArray) -> str:
    """Return format, location, shape, dtype, chunks and shards of an array in one line."""
    shards = f" shards={shape_text(array.shards)}" if array.shards else ""
    what = f"shape={array.shape} {dtype_text(array)} chunks={shape_text(array.chunks)}{shards}"
    return printable(f"<chunkmill.Array {array.format} {location(array.url, array.path)} {what}>")


def array_info(array: StoredArray) -> Text:
    """Return the facts of an array, one a line."""
    sized = [("Shape", shape_text(array.shape)), ("Chunk shape", shape_text(array.chunks))]
    if array.shards:
        sized.append(("Shard shape", shape_text(array.shards)))
    sized.append(("Bytes", format_bytes(array.nbytes)))
    return Text(report_text("array", [*sized, *_array_facts(array)], width=text_width()))


def location(url: str, path: str) -> str:
    """Return the location of a node: the store's url and the path in it."""
    return f"{url}/{path}" if path else url


def dtype_text(array: StoredArray) -> str:
    """Return the data type as text, shortened where a structure has many members."""
    return _shortened(str(array.dtype), _MAX_DTYPE)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def array_grid_svg(array: StoredArray) -> str:
    """Draw the array's chunks, and its shards."""
    return grid_svg(array.chunk_grid, array.write_layout.grid if array.shards else None, array.dimension_names)


def array_html(array: StoredArray) -> str:
    """Return the array as a table like dask's, next to a drawing of its grid."""
    sized = [("Chunk", array.chunks, array.chunk_grid)]
    if array.shards:
        sized.append(("Shard", array.shards, array.write_layout.grid))
    lines = [
        ["Bytes", format_bytes(array.nbytes), *(_grid_bytes(array, grid.chunk_shape) for _, _, grid in sized)],
        ["Shape", shape_text(array.shape), *(shape_text(shape) for _, shape, _ in sized)],
        ["Count", _count(array.size, "element"), *(_count(grid.n_chunks, name.lower()) for name, _, grid in sized)],
    ]
    head = "".join(f"<th {LEFT}>{name}</th>" for name in ("", "Array", *(name for name, _, _ in sized)))
    cells = ("".join(f"<td {LEFT}>{html_text(cell)}</td>" for cell in line[1:]) for line in lines)
    body = [f"<tr><th {LEFT}>{line[0]}</th>{row}</tr>" for line, row in zip(lines, cells, strict=True)]
    span = f"colspan='{len(sized) + 1}' {LEFT}"
    body += [f"<tr><th {LEFT}>{html_text(k)}</th><td {span}>{html_text(v)}</td></tr>" for k, v in _array_facts(array)]
    table = f"{TABLE}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    picture = array_grid_svg(array)
    return side_by_side(f"{table}{attributes_html(array.attributes)}", picture)


def _array_facts(array: StoredArray) -> Iterator[tuple[str, str]]:
    yield "Data type", dtype_text(array)
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


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def shape_text(shape: tuple[Any, ...]) -> str:
    """Return a shape as text; the edges of a rectilinear grid are summarised where there are many.

    Examples
    --------
    >>> shape_text((2, 3)), shape_text(((1, 2),)), shape_text(((1, 2) * 50,))
    ('(2, 3)', '((1, 2),)', '(100 of 1 to 2)')
    """
    if all(isinstance(n, int) for n in shape) or len(str(shape)) <= _MAX_EDGES:
        return str(shape)
    return f"({', '.join(map(_edges_text, shape))})"


def _edges_text(axis: int | tuple[int, ...]) -> str:
    return str(axis) if isinstance(axis, int) else f"{len(axis):,} of {min(axis)} to {max(axis)}"


def _grid_bytes(array: StoredArray, shape: tuple[int, ...]) -> str:
    return format_bytes(prod(shape) * array.dtype.itemsize)


def attributes_html(attributes: Mapping[str, Any]) -> str:
    """Return attributes as a table that unfolds; an empty text where there are none."""
    if not attributes:
        return ""
    shown = islice(attributes.items(), _MAX_ATTRIBUTES)
    facts = facts_html((_attribute(str(name)), _attribute(value)) for name, value in shown)
    n_more = len(attributes) - _MAX_ATTRIBUTES
    more = f"<i>… and {n_more:,} more</i>" if n_more > 0 else ""
    return f"<details><summary>Attributes ({len(attributes)})</summary>{facts}{more}</details>"


def _attribute(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return _shortened(text, _MAX_ATTRIBUTE)


_SIDE = 150  # pixels of the longest axis
_MAX_LINES = 32  # drawn along an axis: of finer grids every n-th border is shown, on a darker ground
_DEPTH = 1 / 1.7  # foreshortening of the axis that leads away from the viewer
_MARGIN = 10
_LABEL = 24  # pixels that a label takes next to the drawing
_COARSE, _FINE = "#ecb172", "#b5772f"

Point = tuple[float, float]


def grid_svg(grid: ChunkGrid, shards: ChunkGrid | None = None, names: Sequence[str | None] | None = None) -> str:
    """Draw the chunks of a grid with thin lines, and the shards of a sharded array with thick ones.

    Parameters
    ----------
    grid
        Grid of the chunks: the inner ones, when sharded.
    shards
        Grid of the shards, when sharded.
    names
        Names of the axes, to show next to their lengths.

    Returns
    -------
    str
        An ``<svg>`` element; empty for arrays without axes or elements.

    Examples
    --------
    >>> from chunkmill.model.grid import ChunkGrid
    >>> grid_svg(ChunkGrid.regular((4, 6), (2, 3))).count("<line")
    6
    """
    if grid.ndim == 0 or not all(grid.shape):
        return ""
    labels = [_label(n, name) for n, name in zip(grid.shape, names or [None] * grid.ndim, strict=True)]
    sizes = _pixels(grid.shape)
    axes = [
        _Axis(
            sizes[i], labels[i], (_borders(grid, i), _borders(shards, i) if shards else ()), is_fine=_is_fine(grid, i)
        )
        for i in range(grid.ndim)
    ]
    body, left, height = [], 0.0, 0.0
    for group in _groups(axes):
        drawing = _draw(group)
        body.append(f'<g transform="translate({left:.0f} 0)">{"".join(drawing.parts)}</g>')
        left, height = left + drawing.width, max(height, drawing.height)
    style = "vertical-align:middle;stroke:currentColor;color:inherit"
    what = escape(f"grid of {' x '.join(f'{n:,}' for n in grid.grid_shape)} chunks", quote=True)
    head = f'<svg width="{left:.0f}" height="{height:.0f}" style="{style}" role="img" aria-label="{what}">'
    return f"{head}{''.join(body)}</svg>"


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis to draw: positions of the borders of chunks and of shards (0 to 1), and whether some are left out."""

    pixels: float
    label: str
    borders: tuple[tuple[float, ...], tuple[float, ...]]
    is_fine: bool


_POINT = _Axis(14.0, "", ((0.0, 1.0), ()), is_fine=False)  # takes the place of the second axis in a drawing of one axis


@dataclass(frozen=True, slots=True)
class _Drawing:
    parts: list[str]
    width: float
    height: float


def _groups(axes: Sequence[_Axis]) -> Iterator[Sequence[_Axis]]:
    """Yield the axes in groups of three, counted from the last one; a smaller group comes first."""
    first = len(axes) % 3
    if first:
        yield axes[:first]
    for start in range(first, len(axes), 3):
        yield axes[start : start + 3]


def _draw(axes: Sequence[_Axis]) -> _Drawing:
    depth = axes[-3] if len(axes) > 2 else None  # noqa: PLR2004 - a cube
    rows = axes[-2] if len(axes) > 1 else _POINT
    columns = axes[-1]
    far = 0.0 if depth is None else depth.pixels * _DEPTH
    right, down = (columns.pixels, 0.0), (0.0, rows.pixels)
    front = (_MARGIN + far, _MARGIN + far)
    parts: list[str] = []
    if depth is not None:
        back = (float(_MARGIN), float(_MARGIN))
        away = (far, far)
        parts += _face(back, (depth, away), (columns, right))
        parts += _face(back, (rows, down), (depth, away))
        parts.append(_text(_MARGIN + far / 2 - 8, _MARGIN + rows.pixels + far / 2 + 14, depth.label, 45))
    parts += _face(front, (rows, down), (columns, right))
    bottom, end = front[1] + rows.pixels, front[0] + columns.pixels
    parts.append(_text(front[0] + columns.pixels / 2, bottom + 17, columns.label, 0))
    parts.append(_text(end + 14, front[1] + rows.pixels / 2, rows.label, -90))
    n_letters = max(len(columns.label) - columns.pixels / 7, 0)  # a label wider than its axis
    return _Drawing(parts, end + _LABEL + 4 * n_letters, bottom + _LABEL + (12 if depth is not None else 0))


def _face(at: Point, first: tuple[_Axis, Point], second: tuple[_Axis, Point]) -> Iterator[str]:
    """Yield a parallelogram, and its lines across `first` and `second`, each an axis and its direction."""
    (rows, v), (columns, u) = first, second
    corners = [at, _plus(at, u), _plus(at, u, v), _plus(at, v)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    fill = _FINE if rows.is_fine or columns.is_fine else _COARSE
    yield f'<polygon points="{points}" fill="{fill}" fill-opacity="0.65" stroke="none"/>'
    for kind, width in ((0, 0.7), (1, 2.2)):
        for axis, along, across in ((rows, v, u), (columns, u, v)):
            for border in axis.borders[kind]:
                start = _plus(at, (along[0] * border, along[1] * border))
                yield _line(start, _plus(start, across), width)


def _plus(*points: Point) -> Point:
    return sum(p[0] for p in points), sum(p[1] for p in points)


def _line(start: Point, end: Point, width: float) -> str:
    at = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"'
    return f'<line {at} stroke-width="{width}"/>'


def _text(x: float, y: float, text: str, angle: int) -> str:
    if not text:
        return ""
    turned = f' transform="rotate({angle} {x:.1f} {y:.1f})"' if angle else ""
    style = 'font-size="12" text-anchor="middle" fill="currentColor" stroke="none"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}{turned}>{html_text(text)}</text>'


def _label(length: int, name: str | None) -> str:
    return f"{name} {length:,}" if name else f"{length:,}"


def _is_fine(grid: ChunkGrid, axis: int) -> bool:
    return grid.axes[axis].n_chunks > _MAX_LINES


def _borders(grid: ChunkGrid, axis: int) -> tuple[float, ...]:
    """Return where the chunks of one axis begin, as fractions, and 1; at most as many as can be distinguished."""
    one = grid.axes[axis]
    n = one.n_chunks
    step = -(-n // _MAX_LINES)
    return (*(one.start(i) / one.size for i in range(0, n, step)), 1.0)


def _pixels(shape: Sequence[int]) -> list[float]:
    """Return the drawn lengths of the axes: true to scale up to a ratio of e, compressed beyond, as in dask."""
    return [_SIDE / _softened(max(shape) / length) for length in shape]


def _softened(ratio: float) -> float:
    return ratio if ratio < e else log(min(ratio, 100) + 12.4)  # 12.4: so that both agree at e
