"""What a conversion is estimated to take: stores that are counted, and the buffers that codecs need for noise."""

from dataclasses import replace

import numpy as np
from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion.actions import choose_action
from chunkmill.conversion.estimate import (
    TransferEstimate,
    chunk_bytes,
    estimate_transfers,
    fit_memory,
    most_encoded,
    n_decoding,
    n_encoding,
    task_memory,
)
from chunkmill.stores.memory import MemoryStore


def pair(target=None, **source):
    options = {"shape": (16, 16), "dtype": "i4", "chunks": (4, 4), "codecs": "raw"}
    old = cm.create_array(MemoryStore(), **options | source)
    old[...] = np.arange(256).reshape(16, 16) + 1
    new = cm.create_array(MemoryStore(), **options | source | (target or {}))
    action = choose_action(old.metadata, new.metadata, max_bytes=1 << 20, max_keys=16)
    return old, new, action


def test_a_copy_reads_and_writes_what_is_stored():
    assert estimate_transfers([pair()]) == [TransferEstimate(1024, 1024, 32)]


def test_indexes_of_shards_are_read_and_written():
    into = estimate_transfers([pair({"shards": (8, 8)})])[0]
    assert into.bytes_written == 1024 + 4 * (4 * 16 + 4)
    out = estimate_transfers([pair({"shards": None}, shards=(8, 8))])[0]
    assert (out.bytes_read, out.bytes_written) == (1024 + 4 * 68, 1024)


def test_few_sizes_are_asked_for():
    old = cm.create_array(store := RecordingStore(MemoryStore()), shape=(10**6,), chunks=(1,), dtype="u1")
    new = cm.create_array(MemoryStore(), shape=(10**6,), chunks=(1,), dtype="u1")
    action = choose_action(old.metadata, new.metadata, max_bytes=1 << 20, max_keys=1024)
    store.clear()
    estimate_transfers([(old, new, action)])
    assert len(store.keys("size")) == 1024


@cases("target", [{}, {"codecs": "zstd"}, {"shards": (8, 8)}])
def test_smaller_groups_need_less_memory(target):
    old, new, action = pair(target)
    whole = task_memory(old.stored, new.stored, action).n_bytes
    smallest = task_memory(old.stored, new.stored, replace(action, group=(1, 1))).n_bytes
    assert smallest <= whole
    fitted, memory = fit_memory(old.stored, new.stored, action, smallest)
    assert memory.n_bytes <= smallest
    assert task_memory(old.stored, new.stored, fitted, smallest).n_bytes <= smallest
    assert fit_memory(old.stored, new.stored, action, 1 << 40)[0] == action


def test_stores_with_latency_fetch_ahead_as_far_as_the_budget_allows():
    old, new, action = pair()
    remote = RecordingStore(old.store)
    remote.is_remote = True
    far = old.stored.with_store(remote)
    assert task_memory(old.stored, new.stored, action).n_ahead == 0
    least = task_memory(far, new.stored, action, 1)
    assert (least.n_ahead, task_memory(far, new.stored, action, least.n_bytes + 3 * 64).n_ahead) == (1, 4)


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


@cases(
    ("codecs", "decoding", "encoding"),
    [([LITTLE], 0, 1), ([BIG], 1, 2), ([LITTLE, "gzip"], 1, 3), ([LITTLE, "gzip", {"name": "crc32c"}], 2, 4)],
)
def test_buffers_alive_at_once(codecs, decoding, encoding):
    layout = noise(codecs=codecs).write_layout
    assert (n_decoding(layout.codecs), n_encoding(layout.codecs)) == (decoding, encoding)
