"""All that a reader sees of a store: nodes, their metadata, attributes and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import chunkmill as cm
from chunkmill.errors import ChunkmillError, NodeNotFound
from chunkmill.nodes import hierarchy
from chunkmill.stores.base import Store

__all__ = ["Snapshot", "snapshot"]

Snapshot = Mapping[str, tuple[Any, tuple[Any, ...]]]
"""Path -> what its documents say, and its values; of each view."""


def snapshot(store: Store) -> dict[str, Snapshot]:
    """Return what is there, without and with consolidated metadata."""
    return {"nodes": _view(store, consolidated=False), "consolidated": _view(store, consolidated=None)}


def _view(store: Store, *, consolidated: bool | None) -> Snapshot:
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    try:
        for node in hierarchy.walk(cm.open(store, consolidated=consolidated)):
            found[node.path] = _shown(node)
    except NodeNotFound:
        pass
    except ChunkmillError as error:
        found["error"] = type(error).__name__, ()
    return found


def _shown(node: cm.Array | cm.Group) -> tuple[Any, tuple[Any, ...]]:
    attributes = repr(sorted(node.attributes.items()))
    if isinstance(node, cm.Group):
        return ("group", attributes), ()
    codecs = "+".join(codec.name for codec in node.codecs)
    about = "array", node.shape, str(node.dtype), node.chunks, codecs, node.metadata.dimension_names, attributes
    try:
        return about, tuple(node[...].ravel().tolist())
    except ChunkmillError as error:
        return (*about, type(error).__name__), ()
