"""What `read_region` hands out: writable, in C order, and nothing kept alive beside it."""

import sys
import time
from contextlib import AbstractContextManager

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.memory import peak_below
from support.recording import FarStore, RecordingStore, UnfencedStore
from support.systems import NEEDS_READS_INTO_ARRAYS

import chunkmill as cm
from chunkmill.array import chunk_io, threads
from chunkmill.array.chunk_io import read_region
from chunkmill.errors import ChunkError
from chunkmill.runtime.locks import no_lock
from chunkmill.stores.memory import MemoryStore

CODECS = ["raw", "zstd", "blosc", "gzip"]
ZARR_ONLY = [["numcodecs.lz4"], ["numcodecs.zlib"]]
CASES = [(f, c) for f in ("zarr2", "zarr3", "n5") for c in CODECS + ZARR_ONLY * (f != "n5")]


@cases(("form", "codecs"), CASES)
@cases("region", [(slice(0, 4), slice(0, 5)), (slice(1, 3), slice(5, 9)), (slice(0, 8), slice(0, 10))])
def test_a_block_owns_all_it_keeps(form, codecs, region):
    values = np.arange(80, dtype="i4").reshape(8, 10)
    a = filled(values, chunks=(4, 5), format=form, codecs=codecs)
    block = read_region(a.stored, region)
    np.testing.assert_array_equal(block, values[region])
    assert block.flags.writeable
    assert block.flags.c_contiguous
    owner = block
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    assert owner.base is None
    assert owner.nbytes == block.nbytes
    block += 1
    np.testing.assert_array_equal(read_region(a.stored, region), values[region])


@cases(("n", "whole"), [(1 << 14, True), (1 << 15, False)])
def test_a_small_shard_far_away_is_read_at_once(n, whole):
    """Its index would be another request; of a large one, the index and a chunk are."""
    far = FarStore()
    filled(np.arange(n, dtype="i4"), far.below, chunks=(n // 4,), shards=(n,), codecs="raw")
    array = cm.open_array(far)
    far.clear()
    assert array[:3].tolist() == [0, 1, 2]
    assert [byte_range is None for _, key, byte_range in far.log if key == "c/0"] == ([True] if whole else [False] * 2)


def test_a_compressed_chunk_is_decoded_where_it_stays(tmp_path):
    """One block and its compressed bytes, not two blocks."""
    a = filled(np.random.default_rng(0).integers(0, 16, 1 << 20, "u1"), tmp_path, chunks=(1 << 20,), codecs="zstd")
    a[...]
    with peak_below(1.7 * (1 << 20)):
        a[...]


@NEEDS_READS_INTO_ARRAYS
def test_a_chunk_without_codecs_is_read_where_it_stays(tmp_path):
    a = filled(np.arange(1 << 19), tmp_path, chunks=(1 << 18,), codecs="raw")
    a[:2]
    with peak_below(1.25 * 8 * (1 << 18)):
        block = read_region(a.stored, (slice(1 << 18, 1 << 19),))
    assert block.flags.writeable
    np.testing.assert_array_equal(block, np.arange(1 << 18, 1 << 19))


def test_a_streamed_sum_holds_few_blocks(tmp_path):
    a = filled(np.random.default_rng(0).integers(0, 16, 64 << 18, "u1"), tmp_path, chunks=(1 << 18,), codecs="zstd")
    with dask.config.set(scheduler="threads", num_workers=2):
        a.to_dask().sum().compute()
        with peak_below(4 * 2 * (1 << 18) + 500_000):  # four blocks a thread, and dask's graph
            a.to_dask().sum().compute()


@cases(("codecs", "most"), [("raw", 37), ("blosc", 53), ("zstd", 42)])
def test_a_chunk_takes_few_function_calls(tmp_path, codecs, most):
    """Of a small chunk they take as long as the system calls."""
    values = np.arange(64**3, dtype="i4").reshape(64, 64, 64)
    a = filled(values, tmp_path / "a", chunks=(32, 32, 32), codecs=codecs)
    region = (slice(32, 64), slice(0, 32), slice(0, 32))
    read_region(a.stored, region)
    called = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        read_region(a.stored, region)
    finally:
        sys.setprofile(None)
    assert len(called) <= most, called


# --------------------------------------------------------------------------------------------------------------------
# The loop of partial writes: whoever is overtaken reads again, and `set_if` decides (P3)


class Interfering(RecordingStore):
    """Another writer changes `key` before each of the first `n` conditional writes."""

    def __init__(self, below, n, change):
        super().__init__(below)
        self.n, self.change = n, change

    def set_if(self, key, value, version):
        if self.n > 0:
            self.n -= 1
            self.change()
        return super().set_if(key, value, version)


def without_lock(array, region, values):
    """Write as another process does: it does not know of this one's locks."""
    chunk_io.write_region(array.stored, region, np.asarray(values, array.dtype), lock=no_lock)


def an_array(store, **kwargs):
    return cm.create_array(store, shape=(8,), dtype="i4", chunks=(8,), **kwargs)


class SlowLock(AbstractContextManager):
    def __enter__(self):
        time.sleep(0.01)

    def __exit__(self, *_): ...


def test_a_report_says_how_often_others_were_met_and_how_long_locks_were_waited_for():
    below = MemoryStore()
    other = an_array(below)
    store = Interfering(below, 2, lambda: without_lock(other, (slice(7, 8),), [len(store.log)]))
    array = cm.open_array(store, mode="r+")
    report = cm.to_store(np.ones(3, "i4"), array, region=slice(0, 3), lock=SlowLock())
    assert (report.n_partial, report.n_retried) == (1, 2)
    assert report.seconds_waited >= 3 * 0.01
    assert "versions compared; 2 retried, " in " ".join(str(report).split())


@cases("n", [1, 2, 150])
def test_whoever_is_overtaken_reads_again(n):
    """However often: what is changed by others is no reason to give up."""
    below = MemoryStore()
    other = an_array(below)
    numbers = iter(range(1, 1000))

    def change():
        without_lock(other, (slice(7, 8),), [next(numbers)])

    store = Interfering(below, n, change)
    cm.open_array(store, mode="r+")[0] = 5
    assert list(other[...]) == [5, 0, 0, 0, 0, 0, 0, n]
    assert len(store.keys("get_versioned")) == n + 1


def test_a_chunk_that_others_empty_meanwhile():
    below = MemoryStore()
    other = an_array(below)
    other[...] = 3

    def change():
        without_lock(other, (slice(0, 8),), np.zeros(8))

    cm.open_array(Interfering(below, 1, change), mode="r+")[0] = 5
    assert list(other[...]) == [5] + [0] * 7


def test_a_store_that_never_agrees_is_an_error():
    """Not an endless loop: the version that it gives out is not the one that it compares."""

    class Stubborn(RecordingStore):
        def set_if(self, key, value, version):
            super().set_if("another", value, "no such version")
            return False

    store = Stubborn(MemoryStore())
    an_array(store.below)
    with pytest.raises(ChunkError, match="refused 100 times"):
        cm.open_array(store, mode="r+")[0] = 5


def test_the_lock_is_asked_for_firmly_once_others_are_met():
    """And at once where the store cannot compare."""
    asked = []

    def lock(name, contended):
        asked.append((name, contended))
        return threads.local_lock(name)

    below = MemoryStore()
    other = an_array(below)
    store = Interfering(below, 1, lambda: without_lock(other, (slice(7, 8),), [1]))
    array = cm.open_array(store, mode="r+")
    (overlap,) = array.write_layout.grid.overlaps((slice(0, 1),))
    chunk_io.update_chunk(array.stored, overlap, np.ones(1, "i4"), lock=lock)
    assert asked == [(f"{below.url}/c/0", False), (f"{below.url}/c/0", True)]
    asked.clear()
    unfenced = cm.open_array(UnfencedStore(below), mode="r+")
    chunk_io.update_chunk(unfenced.stored, overlap, np.ones(1, "i4"), lock=lock)
    assert asked == [(f"{below.url}/c/0", True)]
