"""Draw an array as text and HTML, and its chunk grid as SVG, as Dask draws it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from math import prod
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
    """Draw the array's chunks."""
    return grid_svg(array.chunk_grid)


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
    return drawn


def _drawn_lengths(grid: ChunkGrid, axis: int) -> tuple[int, ...]:
    """Return the lengths of the chunks along an axis; of several together where there are many."""
    one = grid.axes[axis]
    borders = [one.start(i) for i in range(0, one.n_chunks, -(-one.n_chunks // _MAX_LINES))] + [one.size]
    return tuple(stop - start for start, stop in pairwise(borders))
