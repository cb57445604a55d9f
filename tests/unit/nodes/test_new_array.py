"""Lengths by dimension of arrays that are created."""

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import AlignmentError
from chunkmill.nodes.new_array import axis_names, unknown_dimensions
from chunkmill.stores.memory import MemoryStore

NAMES = ("time", "lat", "lon")


def _created(**options):
    return cm.create_array(MemoryStore(), shape=(100, 64, 48), dtype="f4", dimension_names=NAMES, **options)


def test_lengths_by_dimension_leave_the_other_axes_automatic():
    assert _created(chunks={"time": 10, "lat": -1}).chunks == (10, 64, 48)
    sharded = _created(chunks={"time": 10, "lat": 32, "lon": 16}, shards={"time": 50, "lat": -1})
    assert (sharded.chunks, sharded.shards) == ((10, 32, 16), (50, 64, 16))


def test_a_dask_array_keeps_its_blocks_along_the_other_axes():
    cm.to_store(
        da.zeros((100, 64), chunks=(20, 16)), store := MemoryStore(), chunks={"time": 5}, dimension_names=NAMES[:2]
    )
    assert cm.open_array(store).chunks == (5, 16)


@cases(
    ("options", "error", "text"),
    [
        (
            {"chunks": {"tme": 3}},
            ValueError,
            "names dimensions ['tme'], where those of the array are ['time', 'lat', 'lon']",
        ),
        ({"chunks": {"lat": 3}, "dimension_names": None}, ValueError, "have no names: give dimension_names="),
        ({"chunks": {"lat": 10}, "shards": {"lat": 25}}, AlignmentError, "multiples of chunks"),
    ],
)
def test_unknown_names_and_shards_that_do_not_fit_are_refused(options, error, text):
    with pytest.raises(error) as raised:
        cm.create_array(MemoryStore(), **({"shape": (100, 64, 48), "dtype": "f4", "dimension_names": NAMES} | options))
    assert text in str(raised.value)


@cases(("size", "most"), [("16MiB", 16 << 20), ("64 kB", 64_000), ("1.5KiB", 1536)])
def test_chunks_of_a_size_in_bytes(size, most):
    array = cm.create_array(MemoryStore(), shape=(3000, 4000), dtype="f4", chunks=size)
    n = array.chunks[0] * array.chunks[1] * 4
    assert most / 4 < n <= most


def test_chunks_of_a_size_divide_the_shards():
    array = cm.create_array(MemoryStore(), shape=(3000, 4000), dtype="f4", chunks="64KiB", shards=(1024, 1024))
    assert all(shard % chunk == 0 for shard, chunk in zip(array.shards, array.chunks, strict=True))
    assert array.chunks[0] * array.chunks[1] * 4 <= 64 << 10


@cases("size", ["16", "big", "0MiB", "-1MiB"])
def test_a_text_that_is_not_a_size_is_refused(size):
    with pytest.raises(cm.errors.RegionError, match="a size such as '16MiB'"):
        cm.create_array(MemoryStore(), shape=(8, 8), dtype="f4", chunks=size)


def test_to_store_and_rechunk_take_sizes_too():
    store = MemoryStore()
    cm.to_store(da.zeros((400, 400), chunks=(100, 400)), store, chunks="64KiB")
    assert cm.open_array(store).chunks[0] * cm.open_array(store).chunks[1] * 8 <= 64 << 10
    cm.rechunk(store, target := MemoryStore(), chunks="256KiB")
    assert 32 << 10 < cm.open_array(target).chunks[0] * cm.open_array(target).chunks[1] * 8 <= 256 << 10


def test_axes_without_names() -> None:
    named = cm.create_array(MemoryStore(), shape=(2, 3), dtype="u1", dimension_names=["t", None])
    assert axis_names(named) == ("t", None)
    assert axis_names(cm.create_array(MemoryStore(), shape=(2, 3), dtype="u1")) == (None, None)


def test_at_most_twenty_dimensions_are_shown() -> None:
    text = str(unknown_dimensions("region", ["x"], [f"d{i}" for i in range(99)], "the arrays", "give slices"))
    assert text.startswith("region= names dimensions ['x'], where those of the arrays are ['d0', ")
    assert "'d19']" in text
    assert "'d20'" not in text
    text = str(unknown_dimensions("region", ["x"], [], "the arrays", "give slices"))
    assert text.endswith("the arrays have no names: give slices")


LIKE = {
    "zarr3": {"dtype": ">i4", "shards": (4, 6), "codecs": "gzip", "fill_value": 7, "attributes": {"u": 1}},
    "zarr2": {"dtype": "f4", "codecs": "blosc", "chunk_key_encoding": "/"},
    "n5": {"dtype": "u2", "codecs": "gzip"},
}


@cases("format_", LIKE)
def test_an_array_like_another_has_its_description(format_):
    about = LIKE[format_] | {"dimension_names": ("y", "x")}
    like = cm.create_array(MemoryStore(), shape=(8, 6), chunks=(2, 3), format=format_, **about)
    made = cm.create_array(MemoryStore(), like=like)
    assert made.format == format_
    chunk_keys = made.metadata.chunk_keys  # those of the format: keys belong to the store
    assert made.metadata == replace(like.metadata, chunk_keys=chunk_keys)
    assert cm.create_group(MemoryStore(), format=format_).create_array("a", like=like).metadata == made.metadata


def test_what_is_given_wins_over_the_array_that_it_is_like():
    like = cm.create_array(MemoryStore(), shape=(8, 6), dtype="i4", chunks=(2, 3), shards=(4, 6), codecs="gzip")
    assert cm.create_array(MemoryStore(), like=like, chunks=(4, 2)).shards is None
    longer = cm.create_array(MemoryStore(), like=like, shape=(100, 6))
    assert (longer.chunks, longer.shards, longer.dtype) == ((100, 6), None, np.dtype("i4"))
    raw = cm.create_array(MemoryStore(), like=like, codecs=None)
    assert (raw.shards, "gzip" in repr(raw.metadata.codecs)) == ((4, 6), False)
    other = cm.create_array(MemoryStore(), like=like, format="n5", shards=None, chunks=(2, 3))
    assert (other.format, other.shape) == ("n5", (8, 6))
    made = cm.create_arrays(MemoryStore(), {"a": {"like": like}, "b": {"like": like, "dtype": "u1"}})
    assert (made["a"].metadata.codecs, made["b"].dtype) == (like.metadata.codecs, np.dtype("u1"))
    plain = cm.create_array(MemoryStore(), like=np.zeros((3, 4), "i2"))
    assert (plain.shape, plain.dtype) == ((3, 4), np.dtype("i2"))


@pytest.mark.parametrize(("options", "missing"), [({}, "shape="), ({"shape": 3}, "dtype=")])
def test_a_shape_and_a_dtype_are_needed(options, missing):
    with pytest.raises(TypeError, match=f"^{missing}.*like="):
        cm.create_array(MemoryStore(), **options)
