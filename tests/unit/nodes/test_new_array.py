"""Lengths by dimension, and sizes in bytes, of arrays that are created."""

from dataclasses import replace
from math import prod

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import example, given
from hypothesis import strategies as st
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import AlignmentError
from chunkmill.nodes.new_array import axis_names, check_shards, make_grids, unknown_dimensions
from chunkmill.stores.memory import MemoryStore

NAMES = ("time", "lat", "lon")


def _created(**options):
    return cm.create_array(MemoryStore(), shape=(100, 64, 48), dtype="f4", dimension_names=NAMES, **options)


def test_lengths_by_dimension_leave_the_other_axes_automatic():
    assert _created(chunks={"time": 10, "lat": -1}).chunks == (10, 64, 48)
    sharded = _created(chunks={"time": 10, "lat": 32, "lon": 16}, shards={"time": 50, "lat": -1})
    assert (sharded.chunks, sharded.shards) == ((10, 32, 16), (50, 64, 16))


def test_a_dask_array_keeps_its_blocks_along_the_other_axes(store):
    cm.to_store(da.zeros((100, 64), chunks=(20, 16)), store, chunks={"time": 5}, dimension_names=NAMES[:2])
    assert cm.open_array(store).chunks == (5, 16)


@cases(
    ("options", "error", "text"),
    [
        ({"chunks": {"tme": 3}}, ValueError,
         "names dimensions ['tme'], where those of the array are ['time', 'lat', 'lon']"),
        ({"chunks": {"lat": 3}, "dimension_names": None}, ValueError, "have no names: give dimension_names="),
        ({"chunks": {"lat": 10}, "shards": {"lat": 25}}, AlignmentError, "multiples of chunks"),
    ],
)  # fmt: skip
def test_unknown_names_and_shards_that_do_not_fit_are_refused(options, error, text):
    with pytest.raises(error) as raised:
        cm.create_array(MemoryStore(), **({"shape": (100, 64, 48), "dtype": "f4", "dimension_names": NAMES} | options))
    assert text in str(raised.value)


SIZES = [("16MiB", 16 << 20), ("64 kB", 64_000), ("1.5KiB", 1536), ("auto", None)]
SHAPES = st.lists(st.integers(1, 3000), min_size=1, max_size=5).map(tuple)
DTYPES = st.sampled_from(["u1", "f4", "c16", "S7"]).map(np.dtype)


def _is_of_size(grid, dtype, most):
    """Return whether blocks have at most these bytes, and more than half of them where the array has."""
    n_bytes = prod(grid.chunk_shape) * dtype.itemsize
    return n_bytes <= most and (2 * n_bytes > most or set(grid.grid_shape) == {1})


@given(SHAPES, DTYPES, st.sampled_from(SIZES), st.sampled_from(SIZES))
@example((3000, 4000), np.dtype("f4"), ("64KiB", 64 << 10), ("8MiB", 8 << 20))
def test_chunks_and_shards_are_of_the_size_that_is_asked_for(shape, dtype, chunks, shards):
    (size, most), (size_of_shard, most_of_shard) = chunks, shards
    most_of_shard = most_of_shard or 64 << 20
    most = most or min(4 << 20, most_of_shard // 4)
    if most <= most_of_shard:
        grid, outer = make_grids(shape, size, size_of_shard, dtype)
        assert _is_of_size(grid, dtype, most)
        assert _is_of_size(outer, dtype, most_of_shard)
        check_shards(grid, outer)
    assert _is_of_size(make_grids(shape, size, None, dtype)[0], dtype, most if size != "auto" else 4 << 20)


@given(SHAPES, DTYPES, st.sampled_from(SIZES), st.data())
def test_either_may_have_lengths_and_the_other_a_size(shape, dtype, asked, data):
    lengths = tuple(data.draw(st.tuples(*(st.integers(1, n) for n in shape))))
    size, most = asked
    n_bytes = prod(lengths) * dtype.itemsize
    if size == "auto" or n_bytes <= most:
        grid, outer = make_grids(shape, lengths, size, dtype)
        assert grid.chunk_shape == lengths
        assert _is_of_size(outer, dtype, most or max(64 << 20, n_bytes)) or outer == grid
        check_shards(grid, outer)
    grid, outer = make_grids(shape, size, lengths, dtype)
    assert outer.chunk_shape == lengths
    assert prod(grid.chunk_shape) * dtype.itemsize <= (most or 4 << 20)
    check_shards(grid, outer)
    powers = tuple(1 << (n.bit_length() - 1) for n in lengths)
    grid, outer = make_grids(powers, size, powers, dtype)
    assert _is_of_size(grid, dtype, most or 4 << 20)


def test_shards_are_several_chunks_by_default():
    made = _created(chunks=(10, 16, 16), shards="auto")
    assert (made.chunks, made.shards) == ((10, 16, 16), (100, 64, 48))
    large = cm.create_array(MemoryStore(), shape=(10_000, 10_000), dtype="f4", shards="auto")
    assert 8 <= prod(large.shards) / prod(large.chunks) <= 32
    within = cm.create_array(MemoryStore(), shape=(900, 900), dtype="u1", chunks="1kB", shards=(225, 225))
    assert within.chunks == (25, 25)  # 225 is odd
    mixed = _created(chunks={"time": 10}, shards={"time": 50, "lon": "auto"})
    assert (mixed.chunks, mixed.shards) == ((10, 64, 48), (50, 64, 48))


def test_a_chunk_larger_than_its_shard_is_refused():
    for chunks in ((100, 64, 48), "128KiB"):
        with pytest.raises(AlignmentError, match="expected chunks of 64KiB at most; give larger shards="):
            _created(chunks=chunks, shards="64KiB")


def _stored(x):
    cm.to_store(x, store := MemoryStore())
    return cm.open(store)


WRITERS = {
    "create_array": lambda store, x, **layout: cm.create_array(store, shape=x.shape, dtype=x.dtype, **layout),
    "create_arrays": lambda store, x, **layout: cm.create_arrays(store, {"": {"like": x, **layout}}),
    "Group.create_array": lambda store, x, **layout: cm.create_group(store).create_array("a", like=x, **layout),
    "to_store": lambda store, x, **layout: cm.to_store(x, store, **layout),
    "convert": lambda store, x, **layout: cm.convert(_stored(x), store, **layout),
    "rechunk": lambda store, x, **layout: cm.rechunk(_stored(x), store, **layout),
    "pyramid": lambda store, x, **layout: cm.pyramid(x, store, levels=1, **layout),
    "transform": lambda store, x, **layout: cm.transform(np.negative, x, store, dtype="f4", **layout),
    "write_dataset": lambda store, x, **layout: cm.write_dataset(
        xr.Dataset({"a": (("y", "x"), x)}), store, encoding={"a": layout}
    ),
}


@cases("writer", WRITERS)
def test_all_functions_take_sizes_of_chunks_and_shards(writer):
    for chunks, shards in (("4KiB", "64KiB"), ((32, 32), "64KiB"), ((32, 32), "auto")):
        store = MemoryStore()
        WRITERS[writer](store, da.ones((400, 400), chunks=(100, 400), dtype="f4"), chunks=chunks, shards=shards)
        node = cm.open(store)
        made = next(iter(node.arrays().values())) if isinstance(node, cm.Group) else node
        assert 2 << 10 < prod(made.chunks) * 4 <= 4 << 10
        assert 32 << 10 < prod(made.shards) * 4 <= (64 << 10) or shards == "auto"
        assert all(shard % chunk == 0 for shard, chunk in zip(made.shards, made.chunks, strict=True))


def test_axes_without_names() -> None:
    named = cm.create_array(MemoryStore(), shape=(2, 3), dtype="u1", dimension_names=["t", None])
    assert axis_names(named) == ("t", None)
    assert axis_names(cm.create_array(MemoryStore(), shape=(2, 3), dtype="u1")) == (None, None)


def test_at_most_twenty_dimensions_are_shown() -> None:
    text = str(unknown_dimensions("region", ["x"], [f"d{i}" for i in range(99)], "the arrays", "give slices"))
    assert text.startswith("region= names dimensions ['x'], where those of the arrays are ['d0', ")
    assert "'d19']" in text
    assert "'d20'" not in text


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


@pytest.mark.parametrize(
    ("options", "missing"), [({}, "shape="), ({"shape": 3}, "dtype="), ({"like": [1]}, "like= is list")]
)
def test_a_shape_and_a_dtype_are_needed(options, missing):
    with pytest.raises(TypeError, match=f"^{missing}.*(like=|give an array)"):
        cm.create_array(MemoryStore(), **options)
