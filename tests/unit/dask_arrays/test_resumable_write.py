"""Writes that resume: which blocks are computed again."""

import dask
import dask.array as da
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.array.threads import local_lock
from chunkmill.dask_arrays.resumable_write import resumable_write
from chunkmill.formats.registry import get_format
from chunkmill.nodes.target import Target
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def array():
    return cm.create_array(MemoryStore(), "a", shape=(8,), dtype="i4", chunks=(2,))


def write(x, array, calls):
    class Noted(Target):
        def prepared(self, journal, check=lambda: None):
            calls.append("prepare")
            return super().prepared(journal, check)

        def publish(self):
            calls.append("publish")
            return super().publish()

    target = Noted(array.store, array.path, get_format(array.format), [array.stored], overwrite=None)
    with dask.config.set(scheduler="sync"):
        return resumable_write(x, target, lock=local_lock)


def source(fails_at, computed):
    def block(x):
        computed.append(int(x[0]))
        if x[0] == fails_at[0]:
            raise RuntimeError("interrupted")
        return x

    return da.map_blocks(block, da.arange(8, chunks=2), dtype="i4", name="source", meta=np.empty(0, "i4"))


def test_blocks_on_record_are_not_computed_again(array):
    fails_at, computed, calls = [4], [], []
    with pytest.raises(RuntimeError, match="interrupted"):
        write(source(fails_at, computed), array, calls)
    done, fails_at[0] = set(computed) - {4}, None
    assert calls == ["prepare"]
    computed.clear()
    report = write(source(fails_at, computed), array, calls)
    assert set(computed) == {0, 2, 4, 6} - done
    assert report.n_resumed == len(done)
    assert report.n_keys == 4 - len(done)
    assert calls == ["prepare", "publish"]
    np.testing.assert_array_equal(array[...], np.arange(8))


def test_an_array_without_elements():
    array = cm.create_array(MemoryStore(), "a", shape=(0,), dtype="i4", chunks=(2,))
    calls = []
    assert write(da.zeros(0, dtype="i4"), array, calls).n_keys == 0
    assert calls == ["prepare", "publish"]
