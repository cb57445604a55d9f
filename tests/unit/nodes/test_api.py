"""The public functions: what arguments mean, and what is said of those that mean nothing."""

import dask.array as da
import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import AlignmentError, ChunkmillError, NodeNotFound, RegionError, StoreError, UnsupportedFeature
from chunkmill.stores.memory import MemoryStore


def make(url, path="", **more):
    return cm.create_array(url, path, **{"shape": (7, 5), "dtype": "i4", "chunks": (3, 2)} | more)


def values(shape=(7, 5), dtype="i4"):
    return (np.arange(np.prod(shape, dtype=int)) * 7 % 101 + 1).astype(dtype).reshape(shape)


# ----------------------------------------------------------------------------------------------------------------------
# Urls


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "x.nc").write_bytes(b"CDF")
    with pytest.raises(NodeNotFound, match="that is a file, and neither a zip file"):
        cm.open(tmp_path / "x.nc")
    with pytest.raises(ChunkmillError):
        make(tmp_path / "x.nc")
    assert (tmp_path / "x.nc").read_bytes() == b"CDF"


# ----------------------------------------------------------------------------------------------------------------------
# open


def test_modes(store):
    make(store, "a")
    array = cm.open_array(store, "a")
    with pytest.raises(StoreError, match=r"mode='r\+'"):
        array[...] = 1
    cm.open_array(store, "a", mode="r+")[...] = 1
    cm.open_group(store, mode="r+")["a"][0, 0] = 2
    with pytest.raises(StoreError):
        cm.open_group(store)["a"][0, 0] = 3
    with pytest.raises(StoreError):
        cm.open_group(store).arrays()["a"][0, 0] = 3
    assert array[0, 0] == 2
    for mode in ("w", "a", "x"):
        with pytest.raises(ValueError, match="'r' or 'r\\+'"):
            cm.open(store, "a", mode=mode)


# ----------------------------------------------------------------------------------------------------------------------
# create_array


def test_what_an_array_says():
    array = make(MemoryStore(), "g/a", shards=(6, 4), fill_value=-1, dimension_names=("y", "x"), attributes={"n": 1})
    assert (array.shape, array.ndim, array.size, array.nbytes, len(array)) == ((7, 5), 2, 35, 140, 7)
    assert (array.chunks, array.shards, array.nchunks) == ((3, 2), (6, 4), 9)
    assert (array.fill_value, array.dimension_names, array.attributes) == (-1, ("y", "x"), {"n": 1})
    assert [codec.name for codec in array.codecs] == ["sharding_indexed"]
    assert (array.read_layout.grid.grid_shape, array.write_layout.grid.grid_shape) == ((3, 3), (2, 2))
    np.testing.assert_array_equal(np.array(array, "f4"), np.full((7, 5), -1.0, "f4"), strict=True)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(array, copy=False)


REFUSED = {
    "chunks of another rank": ({"chunks": (3, 2, 1)}, RegionError, "3 chunk lengths for 2 axes"),
    "chunks of 0": ({"chunks": (0, 2)}, RegionError, "positive"),
    "a size that is none": ({"chunks": "big"}, RegionError, "a size such as '16MiB'"),
    "a size of nothing": ({"chunks": "0MiB"}, RegionError, "a size such as '16MiB'"),
    "chunks of floats": ({"chunks": (3.0, 2)}, RegionError, "3.0"),
    "edges that do not add up": ({"chunks": ((3, 3), 2)}, RegionError, "7"),
    "shards of another rank": ({"shards": (6,)}, RegionError, "1 shard lengths"),
    "negative shape": ({"shape": (-1, 5)}, RegionError, "negative"),
    "shape of floats": ({"shape": (7.5, 5)}, RegionError, "integers"),
    "names of another rank": ({"dimension_names": ("x",)}, RegionError, "1 dimension names for 2 axes"),
    "fill that does not fit": ({"dtype": "u1", "fill_value": 300}, UnsupportedFeature, "300"),
    "fill that is a text": ({"fill_value": "nope"}, UnsupportedFeature, "fill value 'nope' is none of dtype int32"),
    "no dtype": ({"dtype": "nope"}, TypeError, "dtype='nope': data type 'nope' not understood"),
    "fill with axes": ({"fill_value": [1, 2]}, UnsupportedFeature, r"\[1, 2\]"),
    "dtype without a size": ({"dtype": "S"}, UnsupportedFeature, "length"),
    "n5 with shards": ({"format": "n5", "shards": (6, 4)}, UnsupportedFeature, "sharding"),
    "v2 with unequal chunks": ({"format": "zarr2", "chunks": ((3, 1, 3), 2)}, UnsupportedFeature, "unequal"),
}


@cases("name", REFUSED)
def test_what_cannot_be_made_is_refused_before_anything_is_written(name):
    options, error, text = REFUSED[name]
    store = MemoryStore()
    with pytest.raises(error, match=text):
        make(store, "g/a", **options)
    assert list(store.list_prefix("")) == []


@cases(
    ("chunks", "expected"),
    [
        (3, (3, 3)), ((3, 2), (3, 2)), ([3, 2], (3, 2)), ((-1, 2), (7, 2)), (np.int64(2), (2, 2)), ("auto", (7, 5)),
        (((3, 3, 1), 5), (3, 5)), (((3, 3, 1), (5,)), (3, 5)),
    ],
)  # fmt: skip
def test_chunks(chunks, expected):
    assert make(MemoryStore(), chunks=chunks).chunks == expected


def test_chunks_of_an_axis_without_elements():
    assert make(MemoryStore(), shape=(0, 5), chunks=(0, 2)).chunks == (1, 2)
    with pytest.raises(RegionError, match="chunk length -2 for an axis of 0 elements"):
        make(MemoryStore(), shape=(0, 5), chunks=(-2, 2))


# ----------------------------------------------------------------------------------------------------------------------
# from_store, to_store, store


def test_texts_without_axes(store):
    text = make(store, "b", shape=(), chunks=(), dtype=str)
    text[...] = "né"
    assert text[()] == "né"
    cm.to_store(da.from_array(np.array("né", np.dtypes.StringDType())), store, "c")
    assert cm.open_array(store, "c")[()] == "né"


@cases("region", [np.s_[::2], np.s_[0], np.s_[[1, 2]], np.s_[9:12], "auto"])
def test_what_is_no_region(store, region):
    make(store)
    with pytest.raises((RegionError, AlignmentError)):
        cm.to_store(values()[:2], store, region=region)
    assert not cm.open_array(store)[...].any()


def test_what_a_format_cannot_hold_is_told_of_the_array_that_was_asked_for():
    with pytest.raises(UnsupportedFeature, match=r"meta/a/b\.array\.json"):
        cm.create_array(MemoryStore(), "a/b", shape=(4,), dtype="u1", format="zarr3-draft", codecs="zstd")
