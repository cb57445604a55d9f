"""The list of label images below an image."""

import pytest

import chunkmill as cm
from chunkmill.pyramids.labels import LabelList
from chunkmill.stores.memory import MemoryStore


@pytest.mark.parametrize(("kind", "version"), [("zarr2", "0.4"), ("zarr3", "0.5")])
def test_a_name_is_added_once_and_others_stay(kind, version):
    store = MemoryStore()
    before = (
        {"labels": ["a"], "mine": 1} if version == "0.4" else {"ome": {"version": "0.5", "labels": ["a"]}, "mine": 1}
    )
    cm.create_group(store, "labels", format=kind, attributes=before)
    for name in ("b", "a", "b"):
        LabelList(store, "labels", name, version).add()
    attributes = cm.open_group(store, "labels").attributes
    assert attributes["mine"] == 1
    assert attributes.get("ome", attributes)["labels"] == ["a", "b"]
