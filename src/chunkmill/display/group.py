"""Draw groups as text and HTML: everything below, as a tree."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from chunkmill.array.stored_array import StoredArray
from chunkmill.display.array import array_html, attributes_html, dtype_text, location, shape_text
from chunkmill.display.report import format_bytes, html_text, printable
from chunkmill.errors import ChunkmillError, MetadataError

__all__ = ["GroupLike", "group_html", "group_text", "tree_text"]

_MAX_NODES = 200  # of a group that are shown: each takes a request or two
_MAX_DRAWN = 20  # nodes of a group of which arrays are described in full


class GroupLike(Protocol):
    """A group as it is drawn; `StoredGroup` is one."""

    path: str

    @property
    def url(self) -> str:
        """Canonical url of the store."""

    @property
    def format(self) -> str:
        """Name of the format."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The user's attributes."""

    def members(self, *, on_error: Callable[[str, ChunkmillError], None] | None = None) -> Mapping[str, Any]:
        """Return every direct child by name, array or group, and folders that contain nodes."""


def _members(group: GroupLike) -> Mapping[str, Any]:
    """Return the children by name; the error of each that cannot be opened."""
    try:
        return group.members()
    except MetadataError:
        errors: dict[str, ChunkmillError] = {}
        found = group.members(on_error=lambda path, error: errors.update({path.rpartition("/")[2]: error}))
        return dict(sorted({**found, **errors}.items()))


def group_text(group: GroupLike) -> str:
    """Return a description of the group in one line."""
    return printable(f"<chunkmill.Group {group.format} {location(group.url, group.path)}>")


def tree_text(group: GroupLike) -> str:
    """Draw everything below a group."""
    return "\n".join([printable(f"/{group.path}"), *_branches(group)])


def _branches(group: GroupLike) -> Iterator[str]:
    todo = [("", deque(_members(group).items()))]  # no recursion: a hierarchy may be deeper than Python's stack
    while todo:
        indent, children = todo[-1]
        if not children:
            todo.pop()
            continue
        name, node = children.popleft()
        last = not children
        what = f" {node.shape} {dtype_text(node)}" if isinstance(node, StoredArray) else ""
        if isinstance(node, ChunkmillError):
            what = printable(f" ({node})")
        yield f"{indent}{'└── ' if last else '├── '}{printable(name)}{what}"
        if not isinstance(node, StoredArray | ChunkmillError):
            todo.append((indent + ("    " if last else "│   "), deque(_members(node).items())))


def group_html(group: GroupLike) -> str:
    """Return the group as a tree that folds: groups open, arrays closed.

    Of many nodes, the first 200; arrays among the first 20 unfold to what `array_html` shows of them.
    """
    left = [_MAX_NODES]
    return f"<div><b>{html_text(group_text(group))}</b>{_below_html(group, left)}</div>"


def _below_html(group: GroupLike, left: list[int]) -> str:
    """Return attributes and children of a group, both indented below its name."""
    attributes = attributes_html(group.attributes)
    indented = f"<div style='padding-left:1.2em'>{attributes}</div>" if attributes else ""
    return indented + _branch_html(group, left)


def _branch_html(group: GroupLike, left: list[int]) -> str:
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


def _leaf_html(name: str, node: StoredArray | GroupLike | ChunkmillError, left: list[int]) -> str:
    if isinstance(node, ChunkmillError):
        return f"<b>{html_text(name)}</b> <i>{html_text(f'{type(node).__name__}: {node}')}</i>"
    if not isinstance(node, StoredArray):
        return f"<details open><summary><b>{html_text(name)}/</b></summary>{_below_html(node, left)}</details>"
    names = f"({', '.join(name or '?' for name in node.dimension_names)}) " if node.dimension_names else ""
    shards = f", shards {shape_text(node.shards)}" if node.shards else ""
    grid = f"chunks {shape_text(node.chunks)}{shards}"
    what = f"{names}{shape_text(node.shape)} {dtype_text(node)}, {grid}, {format_bytes(node.nbytes)}"
    line = f"<b>{html_text(name)}</b> {html_text(what)}"
    if left[0] < _MAX_NODES - _MAX_DRAWN:
        return line
    return f"<details><summary>{line}</summary>{array_html(node)}</details>"
