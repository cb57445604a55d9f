import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import filled
from support.cases import cases

import chunkmill as cm
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import (
    ArrayMetadata,
    ChunkKeyEncoding,
    NamedConfig,
    axis_order,
    inner_grid,
    inner_layout,
    same_json,
)
from chunkmill.stores.memory import MemoryStore

CASES = [
    (ChunkKeyEncoding("", ".", "0"), (1, 0, 2), "1.0.2"),  # Zarr v2
    (ChunkKeyEncoding("", "/", "0"), (10,), "10"), (ChunkKeyEncoding("", "/", "0"), (), "0"),
    (ChunkKeyEncoding("c/", "/", "c"), (1, 0), "c/1/0"),  # Zarr v3
    (ChunkKeyEncoding("c.", ".", "c"), (1, 0), "c.1.0"), (ChunkKeyEncoding("c/", "/", "c"), (), "c"),
    (ChunkKeyEncoding("c", "/", "c"), (1, 0), "c1/0"),  # the draft of 2022
    (ChunkKeyEncoding("", "/", "0", reverse=True), (1, 0, 2), "2/0/1"),  # N5
]  # fmt: skip


@cases(("encoding", "coords", "key"), CASES)
def test_keys(encoding, coords, key):
    assert encoding.encode(coords) == key
    assert encoding.decode(key, len(coords)) == coords


@cases(
    "key",
    [
        "", "1", "1.2.3", "01.2", "+1.2", " 1.2", "1_0.2", "-1.2", "1..2", "1.", "a.b", "1/2", ".zarray", "\u0661.2",
        "1.2\n",
    ],
)  # fmt: skip
def test_what_is_no_key(key):
    assert ChunkKeyEncoding("", ".", "0").decode(key, 2) is None
    assert ChunkKeyEncoding("c/", "/", "c").decode(key, 2) is None
    assert ChunkKeyEncoding("c/", "/", "c").decode("0", 0) is None


COORDS = st.lists(st.integers(0, 10**20), max_size=4)


@given(st.sampled_from(["", "c", "c/", "c."]), st.sampled_from("./"), st.booleans(), COORDS)
def test_keys_round_trip(prefix, separator, reverse, coords):
    encoding = ChunkKeyEncoding(prefix, separator, "0", reverse=reverse)
    assert encoding.decode(encoding.encode(tuple(coords)), len(coords)) == tuple(coords)


# --------------------------------------------------------------------------------------------------------------------
# The chunks inside shards, from metadata alone


BYTES = {"name": "bytes"}


def transpose(order):
    return {"name": "transpose", "configuration": {"order": order}}


def shards(chunk_shape):
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": list(chunk_shape), "codecs": [BYTES]}}


SHARDED = {
    "plain": ([BYTES], (6, 4), False),
    "shards": ([shards((3, 2))], (3, 2), True),
    "transposed": ([transpose([1, 0]), shards((2, 3))], (3, 2), True),
    "spelt F": ([transpose("F"), shards((2, 3))], (3, 2), True),
    "checksum after": ([shards((3, 2)), {"name": "crc32c"}], (3, 2), False),
}


@cases("case", SHARDED)
def test_the_layout_is_that_of_the_codecs_built(case):
    codecs, chunks, is_readable = SHARDED[case]
    values = np.arange(96, dtype="u1").reshape(12, 8)
    array = filled(values, chunks=(6, 4), codecs=codecs)
    found = inner_layout(array.metadata)
    assert (found.sharding is not None) is is_readable
    assert inner_grid(array.metadata).chunk_shape == chunks == array.chunks
    assert found.chunks == array.read_layout.grid
    assert found.keys == array.write_layout.grid
    np.testing.assert_array_equal(array[...], values)


def test_a_conversion_of_shards_behind_a_transpose_that_is_spelt_f():
    codecs, _, _ = SHARDED["spelt F"]
    array = filled(np.ones((12, 8), "u1"), chunks=(6, 4), codecs=codecs)
    cm.convert(array, target := MemoryStore(), format="zarr3", shards=None)
    assert (cm.open_array(target).chunks, int(cm.open_array(target)[...].sum())) == ((3, 2), 96)


def test_inner_chunks_of_shards_of_several_lengths():
    sharding = NamedConfig("sharding_indexed", {"chunk_shape": [2, 3], "codecs": []})
    grid = ChunkGrid((RegularAxis(10, 6), RunsAxis(14, ((4, 2), (6, 1)))))
    codecs = NamedConfig("transpose", {"order": [1, 0]}), sharding
    metadata = ArrayMetadata(np.dtype("u1"), grid, ChunkKeyEncoding("", ".", "0"), codecs, 0)
    assert inner_grid(metadata) == ChunkGrid((RegularAxis(10, 3), RunsAxis(14, ((2, 4), (2, 3)))))
    assert inner_grid(replace(metadata, codecs=(NamedConfig("bytes"),))) is grid


SAME = [
    (math.inf, "Infinity"), (-math.inf, "-Infinity"), (math.nan, math.nan), ("NaN", math.nan), ((1, "a"), [1.0, "a"]),
    ({"a": [math.nan]}, {"a": ["NaN"]}), (None, None), (True, True),
]  # fmt: skip
OTHERS = [
    (math.inf, "-Infinity"), (-math.inf, "Infinity"), (math.nan, math.inf), ([1], [1, 2]), ([1, 2], [1, 3]),
    ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 2}), (True, 1), (0, False), (None, 0), ("nan", math.nan), ({}, []),
]  # fmt: skip


@cases(("a", "b", "same"), [*((*pair, True) for pair in SAME), *((*pair, False) for pair in OTHERS)])
def test_attributes_are_compared_as_json(a, b, same):
    assert same_json(a, b) is same_json(b, a) is same


def test_axis_order_composes():
    first, second = (NamedConfig("transpose", {"order": order}) for order in ([1, 2, 0], [2, 0, 1]))
    assert axis_order([first, second], 3) == (0, 1, 2)
    assert axis_order([NamedConfig("bytes")], 2) == (0, 1)
