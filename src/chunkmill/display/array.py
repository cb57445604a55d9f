"""What people look at: text and HTML of arrays and groups.

Not here: the drawing of a grid (`chunkmill.display.grid_svg`), plans and reports (`chunkmill.display.report`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from html import escape
from itertools import islice
from math import prod
from typing import Any

from dask.utils import format_bytes

from chunkmill.array.chunk_io import Array
from chunkmill.display.grid_svg import grid_svg
from chunkmill.display.report import LEFT, TABLE, facts_html, printable
from chunkmill.errors import ChunkmillError
from chunkmill.model.metadata import NamedConfig
from chunkmill.nodes.hierarchy import Group, Node

__all__ = [
    "array_grid_svg",
    "array_html",
    "array_text",
    "codecs_text",
    "grid_svg",
    "group_html",
    "group_text",
    "shape_text",
    "tree_text",
]

_MAX_NODES = 200  # of a group that are shown: each takes a request or two
_MAX_ATTRIBUTE = 200  # letters
_MAX_ATTRIBUTES = 200
_MAX_DTYPE = 200  # letters: a structure may have any number of members
_MAX_EDGES = 80  # letters
_MAX_DRAWN = 20  # nodes of a group of which arrays are described in full


def array_text(array: Array) -> str:
    """Return what an array is, in one line."""
    shards = f" shards={shape_text(array.shards)}" if array.shards else ""
    what = f"shape={array.shape} {_dtype(array)} chunks={shape_text(array.chunks)}{shards}"
    return printable(f"<chunkmill.Array {array.format} {_where(array)} {what}>")


def group_text(group: Group) -> str:
    """Return what a group is, in one line."""
    return printable(f"<chunkmill.Group {group.format} {_where(group)}>")


def _where(node: Node) -> str:
    return f"{node.url}/{node.path}" if node.path else node.url


def tree_text(group: Group) -> str:
    """Draw everything below a group."""
    return "\n".join([printable(f"/{group.path}"), *_branches(group)])


def _branches(group: Group) -> Iterator[str]:
    todo = [("", deque(group.children().items()))]  # no recursion: a hierarchy may be deeper than Python's stack
    while todo:
        indent, children = todo[-1]
        if not children:
            todo.pop()
            continue
        name, node = children.popleft()
        last = not children
        what = f" {node.shape} {_dtype(node)}" if isinstance(node, Array) else ""
        yield f"{indent}{'└── ' if last else '├── '}{printable(name)}{what}"
        if isinstance(node, Group):
            todo.append((indent + ("    " if last else "│   "), deque(node.children().items())))


def _dtype(array: Array) -> str:
    return _shortened(str(array.dtype), _MAX_DTYPE)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def array_grid_svg(array: Array) -> str:
    """Draw the array's chunks, and its shards."""
    return grid_svg(array.chunk_grid, array.writing.grid if array.shards else None, array.dimension_names)


def array_html(array: Array) -> str:
    """Return the array as a table in dask's manner beside a drawing of its grid."""
    sized = [("Chunk", array.chunks, array.chunk_grid)]
    if array.shards:
        sized.append(("Shard", array.shards, array.writing.grid))
    lines = [
        ["Bytes", format_bytes(array.nbytes), *(_grid_bytes(array, grid.chunk_shape) for _, _, grid in sized)],
        ["Shape", shape_text(array.shape), *(shape_text(shape) for _, shape, _ in sized)],
        ["Count", _count(array.size, "element"), *(_count(grid.n_chunks, name.lower()) for name, _, grid in sized)],
    ]
    head = "".join(f"<th {LEFT}>{name}</th>" for name in ("", "Array", *(name for name, _, _ in sized)))
    cells = ("".join(f"<td {LEFT}>{escape(cell)}</td>" for cell in line[1:]) for line in lines)
    body = [f"<tr><th {LEFT}>{line[0]}</th>{row}</tr>" for line, row in zip(lines, cells, strict=True)]
    span = f"colspan='{len(sized) + 1}' {LEFT}"
    body += [f"<tr><th {LEFT}>{escape(k)}</th><td {span}>{escape(v)}</td></tr>" for k, v in _array_facts(array)]
    table = f"{TABLE}<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    picture = array_grid_svg(array)
    return f"<table><tr><td>{table}{_attributes_html(array)}</td><td>{picture}</td></tr></table>"


def _array_facts(array: Array) -> Iterator[tuple[str, str]]:
    yield "Data type", _dtype(array)
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
    """Return a shape as text; that of a rectilinear grid without all of its edges, where they are many.

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


def _grid_bytes(array: Array, shape: tuple[int, ...]) -> str:
    return format_bytes(prod(shape) * array.dtype.itemsize)


def _attributes_html(node: Node) -> str:
    if not node.attributes:
        return ""
    shown = islice(node.attributes.items(), _MAX_ATTRIBUTES)
    facts = facts_html((_attribute(str(name)), _attribute(value)) for name, value in shown)
    n_more = len(node.attributes) - _MAX_ATTRIBUTES
    more = f"<i>… and {n_more:,} more</i>" if n_more > 0 else ""
    return f"<details><summary>Attributes ({len(node.attributes)})</summary>{facts}{more}</details>"


def _attribute(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return _shortened(text, _MAX_ATTRIBUTE)


def group_html(group: Group) -> str:
    """Return the group as a tree that folds: groups open, arrays closed.

    Of many nodes, the first 200; arrays among the first 20 unfold to what `array_html` shows of them.
    """
    left = [_MAX_NODES]
    return f"<div><b>{escape(repr(group))}</b>{_attributes_html(group)}{_branch_html(group, left)}</div>"


def _branch_html(group: Group, left: list[int]) -> str:
    """Return what lies below a group, as a list; `left` nodes may still be shown in all."""
    try:
        children = group.children()
    except (ChunkmillError, OSError) as error:  # a drawing is no place to fail
        return f"<ul><li><i>{escape(f'{type(error).__name__}: {error}')}</i></li></ul>"
    items = []
    for n_shown, (name, node) in enumerate(children.items()):
        if not left[0]:
            items.append(f"<li><i>… and {len(children) - n_shown:,} more</i></li>")
            break
        left[0] -= 1
        items.append(f"<li>{_leaf_html(name, node, left)}</li>")
    return f"<ul style='list-style:none;padding-left:1.2em;margin:0'>{''.join(items) or '<li><i>empty</i></li>'}</ul>"


def _leaf_html(name: str, node: Node, left: list[int]) -> str:
    if isinstance(node, Group):
        below = _attributes_html(node) + _branch_html(node, left)
        return f"<details open><summary><b>{escape(name)}/</b></summary>{below}</details>"
    names = f"({', '.join(name or '?' for name in node.dimension_names)}) " if node.dimension_names else ""
    shards = f", shards {shape_text(node.shards)}" if node.shards else ""
    grid = f"chunks {shape_text(node.chunks)}{shards}"
    what = f"{names}{shape_text(node.shape)} {_dtype(node)}, {grid}, {format_bytes(node.nbytes)}"
    line = f"<b>{escape(name)}</b> {escape(what)}"
    if left[0] < _MAX_NODES - _MAX_DRAWN:
        return line
    return f"<details><summary>{line}</summary>{array_html(node)}</details>"
