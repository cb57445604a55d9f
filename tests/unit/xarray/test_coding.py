"""Encoding and attributes of stored arrays."""

import numcodecs
import pytest

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.coding import array_encoding, decoded_attributes


def array(fmt="zarr3", **kwargs):
    arguments = {"shape": (8, 6), "dtype": "f4", "chunks": (2, 3), "dimension_names": ["y", "x"]} | kwargs
    return cm.create_array(MemoryStore(), "a", format=fmt, **arguments)


def test_blocks_of_shards_are_preferred():
    encoding = array_encoding(array(shards=(4, 6)), ["y", "x"], masked=False)
    assert (encoding["chunks"], encoding["shards"]) == ((2, 3), (4, 6))
    assert encoding["preferred_chunks"] == {"y": 4, "x": 6}
    assert array_encoding(array(), ["y", "x"], masked=False)["shards"] is None


def test_irregular_axes_list_their_lengths():
    encoding = array_encoding(array(chunks=((3, 1, 4), (3, 3))), ["y", "x"], masked=False)
    assert encoding["chunks"] == ((3, 1, 4), 3)


def test_codecs_by_the_keys_of_the_format():
    two = array_encoding(array("zarr2", codecs=[{"name": "shuffle"}, "gzip"]), ["y", "x"], masked=True)
    assert [type(each) for each in (*two["filters"], *two["compressors"])] == [numcodecs.Shuffle, numcodecs.GZip]
    three = array_encoding(array(codecs="gzip", shards=(4, 6)), ["y", "x"], masked=False)
    assert [each["name"] for each in three["compressors"]] == ["gzip"]
    assert three["serializer"]["name"] == "bytes"


@pytest.mark.parametrize(("fmt", "masked"), [("zarr2", True), ("zarr3", False)])
def test_the_marker_of_missing_elements(fmt, masked):
    a = array(fmt, fill_value=-1.0)
    assert ("fill_value" in array_encoding(a, ["y", "x"], masked=masked)) is not masked
    assert decoded_attributes(a, masked=masked).get("_FillValue") == (-1.0 if masked else None)


def test_an_encoded_marker_is_decoded():
    a = array(attributes={"_FillValue": "AAAAAAAAJEA=", "units": "K"})
    attributes = decoded_attributes(a, masked=False)
    assert attributes["_FillValue"] == 10.0
    assert attributes["units"] == "K"


def test_axes_of_n5_are_not_an_attribute():
    assert "axes" not in decoded_attributes(array("n5"), masked=False)
