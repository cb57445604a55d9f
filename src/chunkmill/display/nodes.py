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
    counted,
    facts_html,
    format_bytes,
    html_text,
    printable,
    report_text,
    side_by_side,
    text_width,
)
from chunkmill.errors import ChunkmillError, MetadataError
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import NamedConfig

Group: TypeAlias = Any
"""A `chunkmill.nodes.stored_group.StoredGroup`, of the room above, or what has its names."""

_MAX_ATTRIBUTES = 200
_MAX_TEXT = 200  # letters of an attribute, or of a data type: a structure may have any number of members
_MAX_EDGES = 80  # letters
_MAX_NODES = 200  # of a group that are shown: each takes a request or two
_MAX_DRAWN = 20  # nodes of a group of which arrays are described in full


def array_text(array: StoredArray) -> str:
    """Return format, location, shape, dtype, chunks and shards of an array in one line."""
    shards = f" shards={shape_text(array.shards)}" if array.shards else ""
    what = f"shape={array.shape} {_dtype_text(array)} chunks={shape_text(array.chunks)}{shards}"
    return printable(f"<chunkmill.Array {array.format} {_location(array)} {what}>")


def array_info(array: StoredArray) -> Text:
    """Return the facts of an array, one a line."""
    sized = [("Shape", shape_text(array.shape)), ("Chunk shape", shape_text(array.chunks))]
    if array.shards:
        sized.append(("Shard shape", shape_text(array.shards)))
    sized.append(("Bytes", format_bytes(array.nbytes)))
    return Text(report_text("array", [*sized, *_array_facts(array)], width=text_width()))


def _location(node: StoredArray | Group) -> str:
    return f"{node.url}/{node.path}" if node.path else node.url


def _dtype_text(array: StoredArray) -> str:
    return _shortened(str(array.dtype))


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
    cells = ("".join(f"<td {LEFT}>{html_text(cell)}</td>" for cell in line[1:]) for line in lines)
    body = [f"<tr><th {LEFT}>{line[0]}</th>{row}</tr>" for line, row in zip(lines, cells, strict=True)]
    span = f"colspan='{len(sized) + 1}' {LEFT}"
    body += [f"<tr><th {LEFT}>{html_text(k)}</th><td {span}>{html_text(v)}</td></tr>" for k, v in _array_facts(array)]
    table = f"{TABLE}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    return side_by_side(f"{table}{attributes_html(array.attributes)}", grid_svg(array.chunk_grid))


def _array_facts(array: StoredArray) -> Iterator[tuple[str, str]]:
    yield "Data type", _dtype_text(array)
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
    n_more = len(attributes) - _MAX_ATTRIBUTES
    more = f"<i>… and {n_more:,} more</i>" if n_more > 0 else ""
    return f"<details><summary>Attributes ({len(attributes)})</summary>{facts}{more}</details>"


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
    return drawn


def _drawn_lengths(grid: ChunkGrid, axis: int) -> tuple[int, ...]:
    """Return the lengths of the chunks along an axis; of several together where there are many."""
    one = grid.axes[axis]
    borders = [one.start(i) for i in range(0, one.n_chunks, -(-one.n_chunks // _MAX_LINES))] + [one.size]
    return tuple(stop - start for start, stop in pairwise(borders))


# --------------------------------------------------------------------------------------------------------------------
# Groups


def _members(group: Group) -> Any:
    """Return a mapping of the children by name; the error of each that cannot be opened."""
    try:
        return group.members()
    except MetadataError:
        errors: dict[str, ChunkmillError] = {}
        found = group.members(on_error=lambda path, error: errors.update({path.rpartition("/")[2]: error}))
        return dict(sorted({**found, **errors}.items()))


def group_text(group: Group) -> str:
    """Return a description of the group in one line."""
    return printable(f"<chunkmill.Group {group.format} {_location(group)}>")


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
        what = f" {node.shape} {_dtype_text(node)}" if isinstance(node, StoredArray) else ""
        if isinstance(node, ChunkmillError):
            what = printable(f" ({node})")
        yield f"{indent}{'└── ' if last else '├── '}{printable(name)}{what}"
        if not isinstance(node, StoredArray | ChunkmillError):
            todo.append((indent + ("    " if last else "│   "), deque(_members(node).items())))


def group_html(group: Group) -> str:
    """Return the group as a tree that folds: groups open, arrays closed.

    Of many nodes, the first 200; arrays among the first 20 unfold to what `array_html` shows of them.
    """
    left = [_MAX_NODES]
    return f"<div><b>{html_text(group_text(group))}</b>{_below_html(group, left)}</div>"


def _below_html(group: Group, left: list[int]) -> str:
    """Return attributes and children of a group, both indented below its name."""
    attributes = attributes_html(group.attributes)
    indented = f"<div style='padding-left:1.2em'>{attributes}</div>" if attributes else ""
    return indented + _branch_html(group, left)


def _branch_html(group: Group, left: list[int]) -> str:
    """Return the children of a group as an HTML list; at most `left` nodes are shown in all."""
    try:
        children = _members(group)
    except (ChunkmillError, OSError) as error:  # a drawing must not fail
        return f"<ul><li><i>{html_text(f'{type(error).__name__}: {error}')}</i></li></ul>"
    items = []
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
        return f"<details open><summary><b>{html_text(name)}/</b></summary>{_below_html(node, left)}</details>"
    names = f"({', '.join(name or '?' for name in node.dimension_names)}) " if node.dimension_names else ""
    shards = f", shards {shape_text(node.shards)}" if node.shards else ""
    grid = f"chunks {shape_text(node.chunks)}{shards}"
    what = f"{names}{shape_text(node.shape)} {_dtype_text(node)}, {grid}, {format_bytes(node.nbytes)}"
    line = f"<b>{html_text(name)}</b> {html_text(what)}"
    if left[0] < _MAX_NODES - _MAX_DRAWN:
        return line
    return f"<details><summary>{line}</summary>{array_html(node)}</details>"
