"""Channels of an image: windows of the values of a level."""

import numpy as np
from support.cases import cases

import chunkmill as cm
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.multiscales import Axis, Multiscale
from chunkmill.pyramids.labels import with_windows
from chunkmill.stores.memory import MemoryStore

IMAGE = Multiscale((Axis("c", "channel"), Axis("y", "space"), Axis("x", "space")), (), "0.5")


def level(values):
    array = cm.create_array(MemoryStore(), "0", shape=values.shape, dtype=values.dtype, chunks=values.shape)
    array[...] = values
    return array


def test_each_channel_has_the_window_of_its_values():
    values = np.stack([np.full((4, 4), 7.5), np.arange(16.0).reshape(4, 4)])
    group = with_windows(GroupMetadata({"omero": {"channels": [{}, {"label": "b"}]}}), IMAGE, level(values).stored)
    first, second = group.attributes["omero"]["channels"]
    assert first == {"window": {"min": 7.5, "max": 7.5, "start": 7.5, "end": 7.5}}
    assert second["label"] == "b"
    assert (second["window"]["min"], second["window"]["max"]) == (0, 15)


@cases("omero", [3, {}, {"channels": "x"}, {"channels": [{"window": {"start": 1}}]}])
def test_what_needs_no_window_is_left(omero):
    group = GroupMetadata({"omero": omero})
    assert with_windows(group, IMAGE, level(np.ones((2, 2, 2))).stored) is group


def test_values_that_are_not_finite_have_no_window():
    group = with_windows(
        GroupMetadata({"ome": {"omero": {"channels": [{}]}}}), IMAGE, level(np.full((1, 2, 2), np.nan)).stored
    )
    assert group.attributes["ome"]["omero"]["channels"] == [{}]


def test_of_a_large_level_some_chunks_are_read(monkeypatch):
    monkeypatch.setattr("chunkmill.pyramids.labels._MOST_VALUES", 200)
    values = np.arange(2 * 40 * 10, dtype="u2").reshape(2, 40, 10)
    store = MemoryStore()
    cm.to_store(values, store, chunks=(1, 10, 10))
    for key in ("c/0/1/0", "c/0/3/0", "c/1/1/0", "c/1/3/0"):
        store.set(key, b"never read")
    shown = with_windows(GroupMetadata({"omero": {"channels": [{}, {}]}}), IMAGE, cm.open_array(store))
    first, second = (each["window"] for each in shown.attributes["omero"]["channels"])
    assert (first["min"], first["max"]) == (0, 299)
    assert (second["min"], second["max"]) == (400, 699)
