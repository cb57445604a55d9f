"""Stores whose requests cost latency: values are stored while the task that makes them goes on."""

import threading
import time

import dask.array as da
import numpy as np
import pytest
from support.arrays import filled
from support.recording import FarStore

import chunkmill as cm
from chunkmill.array.threads import BackgroundCalls
from chunkmill.conversion.estimate import MOST_STORING
from chunkmill.errors import ChunkError, NodeNotFound, StoreError
from chunkmill.stores.memory import MemoryStore

VALUES = np.random.default_rng(0).integers(0, 99, (64, 40)).astype("i4")


class Refusing(FarStore):
    """A remote store that is slow, and fails to store `bad`."""

    bad = None

    def _before(self, method, key, byte_range=None):
        if key == self.bad and method in {"set", "set_if"}:
            raise StoreError(url=self.url, key=key, reason="refused")
        super()._before(method, key, byte_range)


def far_store():
    return Refusing(seconds=0.003)


@pytest.fixture
def source():
    return filled(VALUES, chunks=(1, 40), format="zarr2", codecs="zstd").store


CONVERSIONS = {
    "copy": {}, "recode": {"codecs": ["gzip"]}, "recode to raw": {"codecs": []}, "shards": {"shards": (4, 40)},
}  # fmt: skip


@pytest.mark.parametrize("case", CONVERSIONS)
def test_many_values_at_once(source, case):
    """Bytes and requests are those of a store without latency."""
    near, far = MemoryStore(), far_store()
    expected = cm.convert(source, near, format="zarr3", **CONVERSIONS[case])
    report = cm.convert(source, far, format="zarr3", **CONVERSIONS[case])
    assert report.actions == expected.actions
    assert report.bytes_written == pytest.approx(expected.bytes_written, abs=4)  # igzip's differ by a byte now and then
    assert 1 < far.most_at_once <= 2 * MOST_STORING + 1  # two threads, and a heartbeat
    np.testing.assert_array_equal(cm.open_array(far)[...], VALUES)


def test_little_memory_is_kept_to(source):
    """One value of a shard in the memory of a thread, and none behind it."""
    far = far_store()
    with pytest.raises(cm.errors.JobError) as error:
        cm.plan_convert(source, far, format="zarr3", shards=(64, 40), max_mem=1)
    least = int(str(error.value).split("smallest that works is ")[1].split()[0])
    cm.convert(source, far, format="zarr3", shards=(64, 40), max_mem=least)
    np.testing.assert_array_equal(cm.open_array(far)[...], VALUES)


@pytest.mark.parametrize("case", ["copy", "shards"])
def test_one_that_fails(source, case):
    far = far_store()
    far.bad = "c/9/0"
    with pytest.raises(ChunkError, match=r"chunk \(9, 0\).*'set'.*refused"):
        cm.convert(source, far, format="zarr3", **CONVERSIONS[case])
    assert far.n_now == 0  # nothing is written behind the caller's back
    with pytest.raises(NodeNotFound):
        cm.open_array(far)
    far.bad = None
    cm.convert(source, far, format="zarr3", **CONVERSIONS[case])
    np.testing.assert_array_equal(cm.open_array(far)[...], VALUES)


def test_blocks_of_many_keys():
    far = far_store()
    a = filled(VALUES, far, chunks=(1, 40))
    assert 1 < far.most_at_once <= 16
    np.testing.assert_array_equal(a[...], VALUES)
    far.most_at_once = 0
    cm.store(da.from_array(VALUES + 1, chunks=(32, 40)), a)
    assert 2 < far.most_at_once <= 2 * 16
    np.testing.assert_array_equal(a[...], VALUES + 1)
    a[1:, 3:] = 0  # parts of chunks
    np.testing.assert_array_equal(a[1:, 3:], np.zeros((63, 37)))


def test_behind_ends_with_what_it_began():
    begun, n_threads = [], threading.active_count()

    def slow(i):
        begun.append(i)
        time.sleep(0.01)
        return 1 // (i - 1)

    def call():
        with BackgroundCalls(2) as behind:
            for i in range(100):
                behind.call(slow, i)

    with pytest.raises(ZeroDivisionError):
        call()
    assert len(begun) < 10
    assert threading.active_count() == n_threads
