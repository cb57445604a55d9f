"""Encoding of new variables, and the metadata of their arrays."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases

from chunkmill.errors import DatasetError
from chunkmill.formats.registry import get_format
from chunkmill.xarray.new_variable import describe_variable, json_attributes


def described(values, fmt="zarr3", *, strict=False, attributes=None, **encoding):
    variable = xr.Variable([f"d{i}" for i in range(np.ndim(values))], values, attributes or {}, encoding)
    return describe_variable(get_format(fmt), "v", variable, asked=encoding if strict else None)


def test_chunks_of_encoding_then_of_dask():
    x = da.ones((6, 4), chunks=((2, 3, 1), 4))
    assert described(x).metadata.chunk_grid.chunk_shape == (3, 4)
    assert described(x, chunks=(5, 2)).metadata.chunk_grid.chunk_shape == (5, 2)
    assert not described(x).is_encoded


PACKED = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "chunks": (4,), "shards": (8,)}


@cases(
    ("asked", "dtype", "chunks"),
    [
        ({"chunks": (2,)}, "i2", (2,)),  # the shards were of the other chunks
        ({"codecs": "gzip"}, "i2", (8,)),  # of shards
        ({"dtype": "f4"}, "f4", (8,)),
        ({"_FillValue": None}, "f8", (8,)),
        ({}, "i2", (8,)),
    ],
)
def test_what_is_not_asked_for_stays_as_it_was_read(asked, dtype, chunks):
    variable = xr.Variable(["t"], np.array([1.0, np.nan] * 8), {}, dict(PACKED))
    new = describe_variable(get_format("zarr3"), "v", variable, asked=asked)
    assert (new.metadata.dtype, new.metadata.chunk_grid.chunk_shape) == (np.dtype(dtype), chunks)


@cases(
    ("own", "asked", "chunks"),
    [
        ({"chunks": (4, 3)}, {"t": 12}, (12, 3)),
        ({}, {"t": 12}, (12, 5)),  # of dask
        ({"chunks": (4, 3)}, {"t": -1, "x": 2}, (24, 2)),
    ],
)
def test_chunks_by_dimension(own, asked, chunks):
    variable = xr.Variable(["t", "x"], da.ones((24, 10), chunks=(6, 5)), {}, own)
    new = describe_variable(get_format("zarr3"), "v", variable, asked={"chunks": asked})
    assert new.metadata.chunk_grid.chunk_shape == chunks
    sharded = {"chunks": {"t": 6, "x": 5}, "shards": {"t": 12}}
    new = describe_variable(get_format("zarr3"), "v", variable, asked=sharded)
    assert new.metadata.chunk_grid.chunk_shape == (12, 5)
    with pytest.raises(DatasetError, match=r"names dimensions \['y'\]"):
        describe_variable(get_format("zarr3"), "v", variable, asked={"chunks": {"y": 2}})


def test_attributes_as_json():
    given = {"a": np.float32(0.5), "b": np.arange(2), "c": {"d": [None, "e"]}, "missing_value": np.nan}
    assert json_attributes(given, "v", "") == {"a": 0.5, "b": [0, 1], "c": {"d": [None, "e"]}}
    around, deep = [1], []
    around.append({"again": around})
    for _ in range(5000):
        deep = [deep]
    for wrong in ({"a": np.inf}, {"a": object()}, {1: "a"}, {"a": {2: 3}}, {"a": around}, {"a": deep}):
        with pytest.raises(DatasetError, match="JSON"):
            json_attributes(wrong, "v", "")
