"""Sources and targets of jobs as user arguments: a url, ``(url, path)``, an Array or a Group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

from chunkmill.nodes.api import open as open_node
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.open_store import open_target_store
from chunkmill.stores.base import Store

__all__ = ["NodeLocation", "StoreLocation", "open_source", "open_target"]

StoreLocation: TypeAlias = str | os.PathLike[str] | Store
NodeLocation: TypeAlias = StoreLocation | tuple[StoreLocation, str] | Array | Group


def open_source(source: NodeLocation, storage_options: Mapping[str, Any] | None = None) -> Node:
    """Return the node at a url or ``(url, path)``; an Array or a Group as it is."""
    if isinstance(source, (Array, Group)):
        return source
    url, path = _url_and_path(source, "source")
    return open_node(url, path, storage_options=storage_options)


def open_target(target: NodeLocation, storage_options: Mapping[str, Any] | None = None) -> tuple[Store, str]:
    """Return store and path of a url, ``(url, path)``, an Array or a Group."""
    if isinstance(target, (Array, Group)):
        return target.store, target.path
    url, path = _url_and_path(target, "target")
    if isinstance(url, (str, os.PathLike)) or hasattr(url, "get_versioned"):
        return open_target_store(url, storage_options), path
    msg = f"a target is a url, (url, path), an Array or a Group, not {type(url).__name__}"
    raise TypeError(msg)


def _url_and_path(place: Any, name: str) -> tuple[Any, str]:
    if not isinstance(place, tuple):
        return place, ""
    if len(place) != 2 or not isinstance(place[1], str):  # noqa: PLR2004
        msg = f"{name}={place!r}: expected a url, (url, path), an Array or a Group"
        raise TypeError(msg)
    return place
