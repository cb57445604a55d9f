"""Sources and targets of jobs as user arguments: a url, ``(url, path)``, an Array or a Group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from chunkmill.errors import NodeExists, NodeNotFound
from chunkmill.nodes.api import open as open_url
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.hierarchy import as_stored, open_node
from chunkmill.nodes.open_store import open_target_store
from chunkmill.stores.base import Store
from chunkmill.stores.open import is_store

__all__ = ["NodeLocation", "StoreLocation", "open_existing", "open_source", "open_target"]

StoreLocation: TypeAlias = str | os.PathLike[str] | Store
NodeLocation: TypeAlias = StoreLocation | tuple[StoreLocation, str] | Array | Group
N = TypeVar("N", Array, Group)


def open_source(source: NodeLocation, storage_options: Mapping[str, Any] | None = None) -> Node:
    """Return the node at a url or ``(url, path)``, or the node itself; by its documents, not consolidated metadata."""
    if isinstance(source, (Array, Group)):
        return as_stored(source)
    url, path = _url_and_path(source, "source")
    return as_stored(open_url(url, path, storage_options=storage_options))


def open_target(target: NodeLocation, storage_options: Mapping[str, Any] | None = None) -> tuple[Store, str]:
    """Return store and path of a url, ``(url, path)``, an Array or a Group."""
    if isinstance(target, (Array, Group)):
        return target.store, target.path
    url, path = _url_and_path(target, "target")
    if isinstance(url, (str, os.PathLike)) or is_store(url):
        return open_target_store(url, storage_options), path
    msg = f"a target is a url, (url, path), an Array or a Group, not {type(url).__name__}"
    raise TypeError(msg)


def open_existing(store: Store, path: str, mode: str, kind: type[N]) -> N | None:
    """Return the array or group to write into; ``None`` where `mode` creates a new one.

    Raises
    ------
    NodeExists
        There is a group where an array is to be written into, or the reverse.
    NodeNotFound
        There is no node, and `mode` is ``"r+"``.
    """
    if mode in {"w", "w-"}:
        return None
    if mode not in {"a", "r+"}:
        raise ValueError(f"mode={mode!r} does not write; the modes are 'w-', 'w', 'a' and 'r+'")
    try:
        node = open_node(store, path, read_only=False, consolidated=False)
    except NodeNotFound:
        if mode == "a":
            return None
        raise
    if not isinstance(node, kind):
        found = "array" if isinstance(node, Array) else "group"
        raise NodeExists(url=node.url, path=node.path, found=found, hint="give mode='w' to replace it")
    return node


def _url_and_path(place: Any, name: str) -> tuple[Any, str]:
    if not isinstance(place, tuple):
        return place, ""
    if len(place) != 2 or not isinstance(place[1], str):  # noqa: PLR2004
        msg = f"{name}={place!r}: expected a url, (url, path), an Array or a Group"
        raise TypeError(msg)
    return place
