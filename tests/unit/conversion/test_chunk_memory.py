"""Sizes of chunks as they are stored, and the buffers that codecs need, against what codecs make of noise."""

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.conversion.estimate import (
    chunk_bytes,
    index_size,
    itemsize,
    most_encoded,
    n_decoding,
    n_encoding,
    stored_bytes,
)
from chunkmill.stores.memory import MemoryStore

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
CASES = {
    "raw": {"codecs": "raw"},
    "gzip": {"codecs": "gzip"},
    "zstd": {"codecs": "zstd"},
    "blosc": {"codecs": "blosc"},
    "checksum": {"codecs": [LITTLE, {"name": "crc32c"}]},
    "shards": {"codecs": "zstd", "shards": (8, 8)},
    "n5": {"format": "n5", "codecs": "gzip"},
}


def noise(**options):
    array = cm.create_array(MemoryStore(), shape=(16, 16), dtype="f8", chunks=(4, 8), **options)
    array[...] = np.random.default_rng(0).random((16, 16))
    return array


@cases("case", CASES)
def test_no_chunk_is_larger_than_the_bound(case):
    array = noise(**CASES[case])
    layout = array.write_layout
    sizes = [array.store.size(layout.locator.key(coords)) for coords in layout.grid.all_coords()]
    assert max(sizes) <= most_encoded(array.stored, layout) <= 2 * max(sizes) + 1024
    assert chunk_bytes(array.stored, array.read_layout) == 4 * 8 * 8


@pytest.mark.parametrize("case", ["raw", "checksum"])
def test_stored_bytes_are_exact_where_codecs_tell_sizes(case):
    array = noise(**CASES[case])
    keys = list(array.store.list_prefix("c/"))
    assert stored_bytes(array.stored, array.write_layout, 8, array.nbytes) == sum(array.store.size(key) for key in keys)


def test_the_index_of_a_shard():
    array = noise(**CASES["shards"])
    assert index_size(array.write_layout) == 2 * 16 + 4  # two chunks, offset and size each, and a checksum
    assert index_size(noise().write_layout) == 0


@cases(
    ("codecs", "decoding", "encoding"),
    [([LITTLE], 0, 1), ([BIG], 1, 2), ([LITTLE, "gzip"], 1, 3), ([LITTLE, "gzip", {"name": "crc32c"}], 2, 4)],
)
def test_buffers_alive_at_once(codecs, decoding, encoding):
    layout = noise(codecs=codecs).write_layout
    assert (n_decoding(layout.codecs), n_encoding(layout.codecs)) == (decoding, encoding)


def test_values_of_variable_length_are_assumed():
    array = cm.create_array(MemoryStore(), shape=(4,), dtype=str, chunks=(2,))
    assert itemsize(array.stored) == 64
    assert chunk_bytes(array.stored, array.read_layout) == 128
