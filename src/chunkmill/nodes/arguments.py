"""Sources and targets of jobs as user arguments: a url, ``(url, path)``, an Array or a Group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from chunkmill.array.stored_array import ReadMissing
from chunkmill.errors import NodeExists, NodeNotFound
from chunkmill.nodes.api import open as open_url
from chunkmill.nodes.api import open_array
from chunkmill.nodes.array import Array
from chunkmill.nodes.folders import join_path
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.hierarchy import as_stored, open_node
from chunkmill.nodes.open_store import open_target_store
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import uncached
from chunkmill.stores.open import is_store

__all__ = [
    "NodeLocation",
    "StoreLocation",
    "open_array_at",
    "open_existing",
    "open_source",
    "open_target",
    "open_target_below",
]

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
    _check_url(url)
    return open_target_store(url, storage_options), path


def open_target_below(
    target: NodeLocation, path: str, storage_options: Mapping[str, Any] | None = None
) -> tuple[Store, str]:
    """Return store and path of the node at `path` below a target (see `open_target`)."""
    if path and isinstance(target, Array):
        raise TypeError(f"path={path!r}: the array {target.path!r} has no nodes below it")
    store, above = open_target(target, storage_options)
    return (uncached(store), join_path(above, path)) if path else (uncached(store), above)


def open_array_at(place: Any, path: str = "", *, read_missing: ReadMissing = "fill", **options: Any) -> Array:
    """Return the array at a url or ``(url, path)``, below a Group, or the array itself.

    Raises
    ------
    NodeNotFound
        There is no array.
    TypeError
        `place` is something else.
    """
    if isinstance(place, Array):
        if path:
            raise TypeError(f"path={path!r}: the array {place.path!r} has no nodes below it")
        return place if read_missing == "fill" else place.with_read_missing(read_missing)
    if isinstance(place, Group):
        if not path:
            hint = f"its arrays are {', '.join(map(repr, list(place.arrays())[:10])) or 'none'}; give one as path"
            raise NodeNotFound(url=place.url, path=place.path, found="group", wanted="array", hint=hint)
        return place.with_read_missing(read_missing).array(path)
    url, above = _url_and_path(place, "url")
    _check_url(url)
    return open_array(url, join_path(above, path), read_missing=read_missing, **options)


def _check_url(url: Any) -> None:
    if not isinstance(url, (str, os.PathLike)) and not is_store(url):
        kind = f"{type(url).__module__.partition('.')[0]}.{type(url).__name__}"
        msg = f"got {kind}, where a url, (url, path), a store, an Array or a Group is expected"
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
