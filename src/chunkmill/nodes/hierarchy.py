"""Open and walk the arrays and groups of a store: groups are the public ones.

Not here: how nodes are found (`chunkmill.nodes.opening`), the arguments that users give (`chunkmill.nodes.api`).
"""

from __future__ import annotations

from chunkmill.formats.base import Format
from chunkmill.nodes.consolidated import refresh_consolidated
from chunkmill.nodes.documents import format_of_store, publish
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.opening import array_at, as_stored, consolidate, open_as, walk
from chunkmill.stores.base import Store

__all__ = [
    "array_at",
    "as_stored",
    "consolidate",
    "format_of_store",
    "open_node",
    "publish",
    "refresh_consolidated",
    "walk",
]


def open_node(
    store: Store,
    path: str = "",
    *,
    format: str | Format | None = None,  # noqa: A002
    consolidated: bool | None = None,
    read_only: bool = True,
) -> Node:
    """Open the node at `path`, in the first format that has one there (see `chunkmill.nodes.opening.open_as`)."""
    return open_as(Group, store, path, format=format, consolidated=consolidated, read_only=read_only)
