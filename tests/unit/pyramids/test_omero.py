"""Channels of an image: windows of the values of a level."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.multiscales import Axis, Multiscale
from chunkmill.pyramids.omero import channel_axis, with_windows
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


@pytest.mark.parametrize("omero", [3, {}, {"channels": "x"}, {"channels": [{"window": {"start": 1}}]}])
def test_what_needs_no_window_is_left(omero):
    group = GroupMetadata({"omero": omero})
    assert with_windows(group, IMAGE, level(np.ones((2, 2, 2))).stored) is group


def test_values_that_are_not_finite_have_no_window():
    group = with_windows(
        GroupMetadata({"ome": {"omero": {"channels": [{}]}}}), IMAGE, level(np.full((1, 2, 2), np.nan)).stored
    )
    assert group.attributes["ome"]["omero"]["channels"] == [{}]


def test_the_axis_of_channels():
    assert channel_axis(IMAGE) == 0
    assert channel_axis(Multiscale(IMAGE.axes[1:], (), "0.5")) is None
