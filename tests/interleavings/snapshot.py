"""All that a reader sees of a store: nodes, their metadata, attributes and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import chunkmill as cm
from chunkmill.errors import ChunkmillError, NodeNotFound
from chunkmill.nodes import opening
from chunkmill.nodes.group import as_node
from chunkmill.stores.base import Store

Snapshot = Mapping[str, tuple[Any, tuple[Any, ...]]]
"""Path -> what its documents say, and its values; of each view."""


UNREADABLE = ("unreadable",)
"""Stands for the values of an array with chunks that do not fit its metadata: an error, nothing false."""


def snapshot(store: Store, *, raises: bool = False) -> dict[str, Snapshot]:
    """Return what is there, without and with consolidated metadata; raise, if asked to, where it cannot be read."""
    return {
        "nodes": _view(store, consolidated=False, raises=raises),
        "consolidated": _view(store, consolidated=None, raises=raises),
    }


def _view(store: Store, *, consolidated: bool | None, raises: bool) -> Snapshot:
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {}

    try:
        for node in opening.walk(cm.open(store, consolidated=consolidated).stored):
            found[node.path] = _shown(as_node(node), raises=raises)
    except NodeNotFound:
        pass
    except ChunkmillError as error:
        if raises:
            raise
        found["error"] = type(error).__name__, ()
    return found


def _shown(node: cm.Array | cm.Group, *, raises: bool) -> tuple[Any, tuple[Any, ...]]:
    # what an append that is being published notes there is no attribute of the user's
    attributes = repr(sorted(item for item in node.attributes.items() if not item[0].startswith("_chunkmill")))
    if isinstance(node, cm.Group):
        return ("group", attributes), ()
    codecs = "+".join(codec.name for codec in node.codecs)
    about = "array", node.shape, str(node.dtype), node.chunks, codecs, node.metadata.dimension_names, attributes
    try:
        return about, tuple(node[...].ravel().tolist())
    except ChunkmillError:
        if raises:
            raise
        return about, UNREADABLE
