"""The list of label images below an image."""

import pytest

import chunkmill as cm
from chunkmill.nodes.documents import format_of_store
from chunkmill.pyramids.image import LevelTarget
from chunkmill.pyramids.labels import list_label
from chunkmill.stores.memory import MemoryStore


@pytest.mark.parametrize(("kind", "version"), [("zarr2", "0.4"), ("zarr3", "0.5")])
def test_a_name_is_added_once_and_others_stay(kind, version):
    store = MemoryStore()
    before = (
        {"labels": ["a"], "mine": 1} if version == "0.4" else {"ome": {"version": "0.5", "labels": ["a"]}, "mine": 1}
    )
    cm.create_group(store, "labels", format=kind, attributes=before)
    for name in ("b", "a", "b"):
        list_label(LevelTarget(store, f"labels/{name}", format_of_store(store, kind), version, ""))
    attributes = cm.open_group(store, "labels").attributes
    assert attributes["mine"] == 1
    assert attributes.get("ome", attributes)["labels"] == ["a", "b"]
