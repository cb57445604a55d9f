"""Variables that bypass CF decoding."""

from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import ChunkError, DatasetError
from chunkmill.formats.cf_fill_value import encode_fill_value
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.decode import _is_plain, array_encoding


@cases("fmt", ["zarr2", "zarr3"])
@cases("decode_coords", [True, "all"])
def test_structured_values_are_not_decoded(fmt, decode_coords):
    dtype = np.dtype([("a", "i2"), ("b", "f4")])
    url = f"memory://structured-{fmt}-{decode_coords}"
    values = np.array([(1, 2.5), (3, 4.5), (0, 0)], dtype)
    attributes = {"scale_factor": 2.0, "long_name": "pairs"}
    both = {"shape": (3,), "chunks": (2,), "dimension_names": ("x",), "attributes": attributes, "overwrite": True}
    cm.create_array(url, "s", dtype=dtype, fill_value=values[2], format=fmt, **both)[...] = values
    cm.create_array(url, "t", dtype="i4", format=fmt, **both)[...] = np.array([1, 2, 3])
    with pytest.warns(UserWarning, match=r"variable 's' of .* is not decoded: CF has no .*scale_factor"):
        dataset = xr.open_dataset(url, engine="chunkmill", decode_coords=decode_coords)
    assert dataset.s.values.tolist() == values.tolist()
    assert dataset.s.attrs == attributes
    np.testing.assert_array_equal(dataset.t, [2, 4, 6])  # the others are


@cases(("dtype", "attributes", "masks", "plain"), [
    ("f4", {"units": "K"}, True, True), ("f4", {"_FillValue": np.nan}, True, True), ("U3", {}, True, False),
    ("f4", {"_FillValue": np.nan}, False, False), ("f4", {"_FillValue": 0.5}, True, False),
    ("f4", {"_FillValue": np.nan, "scale_factor": 2.0}, True, False), ("f4", {"units": "days"}, True, False),
    ("i4", {"_FillValue": np.nan}, True, False), ("f4", {"units": "hours since 2000-01-01"}, True, False),
])  # fmt: skip
def test_variables_that_decoding_leaves_as_they_are(dtype, attributes, masks, plain):
    assert _is_plain(xr.Variable(("x",), np.zeros(2, dtype), attributes), masks=masks) is plain


def test_codecs_of_packages_that_are_not_installed_are_shown_as_stored():
    cm.create_array(store := MemoryStore(), "v", shape=(4,), dtype="i4", chunks=(2,), format="zarr2", codecs="gzip")
    store.set("v/.zarray", store.get("v/.zarray").replace(b"gzip", b"nosuch"))
    encoding = xr.open_dataset(store, engine="chunkmill").v.encoding
    assert (encoding["compressors"], encoding["filters"]) == (({"id": "nosuch", "level": 1},), ())


def test_irregular_axes_list_their_lengths():
    array = cm.create_array(MemoryStore(), "a", shape=(8, 6), dtype="f4", chunks=((3, 1, 4), (3, 3)))
    encoding = array_encoding(array.stored, ["y", "x"], masked=False)
    assert encoding["chunks"] == ((3, 1, 4), 3)


WRONG = {
    "units": ({"units": "furlongs since 2000-01-01"}, "i4"),
    "date": ({"units": "days since yesterday"}, "i4"),
    "calendar": ({"units": "days since 2000-01-01", "calendar": 5}, "i4"),
    "far": ({"units": "days since 2000-01-01", "calendar": "noleap", "scale_factor": 1e18}, "i4"),
    "duration": ({"units": "days", "dtype": "timedelta64[zz]"}, "i4"),
    "text as factor": ({"scale_factor": "two"}, "i4"),
    "list as factor": ({"scale_factor": [2.0, 3.0]}, "i4"),
    "dict as offset": ({"add_offset": {"a": 1}}, "i4"),
    "dict as marker": ({"missing_value": {"a": 1}}, "i4"),
    "number as coordinates": ({"coordinates": 5}, "i4"),
    "list as bounds": ({"bounds": ["b"], "units": "days since 2000-01-01"}, "i4"),
    "characters": ({"_Encoding": "nonsense"}, "S2"),
}


@cases("chunks", [None, {}])
@cases("name", WRONG)
def test_wrong_attributes_are_one_error_that_names_the_variable(name, chunks):
    attributes, dtype = WRONG[name]
    url = f"memory://wrong-{name}-{chunks is None}"
    wrong = {"shape": (4,), "dtype": dtype, "chunks": (2,), "dimension_names": ["x"], "attributes": attributes}
    cm.create_array(url, "v", **wrong)[...] = np.arange(4).astype(dtype)
    cm.create_array(url, "good", shape=(4,), dtype="i4", chunks=(2,), dimension_names=["x"])
    with pytest.raises(DatasetError, match=r"variable 'v' in memory://wrong.* by .*drop_variables=\['v'\]"):
        xr.open_dataset(url, engine="chunkmill", chunks=chunks).load(scheduler="sync" if chunks is not None else None)
    with pytest.raises(DatasetError, match="variable 'v'"):
        xr.open_datatree(url, engine="chunkmill").load()
    assert "v" in xr.open_dataset(url, engine="chunkmill", decode_cf=False).load()
    assert "v" not in xr.open_dataset(url, engine="chunkmill", drop_variables=["v"]).load()


def test_a_chunk_that_fails_is_not_an_error_of_decoding(store):
    one = {"shape": (4,), "dtype": "i4", "chunks": (2,), "codecs": "gzip", "dimension_names": ["x"]}
    cm.create_array(store, "v", **one, attributes={"scale_factor": 2.0, "units": "days since 2000-01-01"})[...] = 1
    store.set("v/c/0", b"not gzip")
    with pytest.raises(ChunkError):
        xr.open_dataset(store, engine="chunkmill").load()


def test_an_argument_that_xarray_does_not_have_is_no_error_of_a_variable(store):
    cm.create_array(store, "v", shape=(4,), dtype="i4", chunks=(2,), attributes={"scale_factor": 2.0})
    with pytest.raises(TypeError, match="gruop"):
        xr.open_dataset(store, engine="chunkmill", gruop="a")


def test_variables_that_xarray_cannot_decode_together_are_an_error_of_ours(store, monkeypatch):
    cm.create_array(store, "v", shape=(4,), dtype="i4", attributes={"scale_factor": 2.0})
    fails_at_first = Mock(side_effect=[ValueError("clash"), None])
    monkeypatch.setattr("xarray.conventions.decode_cf_variables", fails_at_first)
    with pytest.raises(DatasetError, match=r"memory-store://.* its variables together: clash; decode_cf=False"):
        xr.open_dataset(store, engine="chunkmill")


def test_joined_characters(store):
    """Their array has one axis more than the variable."""
    cm.to_store(np.full((40, 3), b"x"), store, "c", chunks=(4, 3), dimension_names=["n", "string3"])
    opened = xr.open_dataset(store, engine="chunkmill", chunks={}).c
    assert opened.shape == (40,)
    assert set(opened.to_numpy()) == {b"xxx"}


def test_the_greatest_integer_may_be_the_marker():
    assert encode_fill_value(2**64 - 1, np.dtype("u8")) == 2**64 - 1
