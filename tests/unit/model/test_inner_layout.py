"""The chunks inside shards, from metadata alone."""

import numpy as np
from support.cases import cases

import chunkmill as cm
from chunkmill.model.metadata import NamedConfig, axis_order, inner_grid, inner_layout
from chunkmill.stores.memory import MemoryStore

BYTES = {"name": "bytes"}


def transpose(order):
    return {"name": "transpose", "configuration": {"order": order}}


def shards(chunk_shape):
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": list(chunk_shape), "codecs": [BYTES]}}


CASES = {
    "plain": ([BYTES], (6, 4), False),
    "shards": ([shards((3, 2))], (3, 2), True),
    "transposed": ([transpose([1, 0]), shards((2, 3))], (3, 2), True),
    "spelt F": ([transpose("F"), shards((2, 3))], (3, 2), True),
    "checksum after": ([shards((3, 2)), {"name": "crc32c"}], (3, 2), False),
}


@cases("case", CASES)
def test_the_layout_is_that_of_the_codecs_built(case):
    codecs, chunks, is_readable = CASES[case]
    array = cm.create_array(MemoryStore(), shape=(12, 8), chunks=(6, 4), dtype="u1", codecs=codecs)
    found = inner_layout(array.metadata)
    assert (found.sharding is not None) is is_readable
    assert inner_grid(array.metadata).chunk_shape == chunks == array.chunks
    assert found.chunks == array.read_layout.grid
    assert found.keys == array.write_layout.grid
    values = np.arange(96, dtype="u1").reshape(12, 8)
    array[...] = values
    np.testing.assert_array_equal(array[...], values)


def test_a_conversion_of_shards_behind_a_transpose_that_is_spelt_f():
    codecs, _, _ = CASES["spelt F"]
    array = cm.create_array(store := MemoryStore(), shape=(12, 8), chunks=(6, 4), dtype="u1", codecs=codecs)
    array[...] = 1
    cm.convert(store, target := MemoryStore(), format="zarr3", shards=None)
    assert (cm.open_array(target).chunks, int(cm.open_array(target)[...].sum())) == ((3, 2), 96)


def test_axis_order_composes():
    first, second = (NamedConfig("transpose", {"order": order}) for order in ([1, 2, 0], [2, 0, 1]))
    assert axis_order([first, second], 3) == (0, 1, 2)
    assert axis_order([NamedConfig("bytes")], 2) == (0, 1)
