"""Plans of petabytes: the client's memory does not grow with the grid, nor what a resumed job lists with its values."""

import itertools

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.memory import peak_below
from support.recording import FailingStore
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.errors import ChunkError
from chunkmill.runtime.stage import tasks_to_run
from chunkmill.stores.memory import MemoryStore

MIB = 1 << 20


def plans(source):
    yield cm.plan_convert(source, MemoryStore(), format="n5")
    yield cm.plan_convert(source, MemoryStore(), format="zarr3", shards=(8, MIB))
    yield cm.plan_rechunk(source, MemoryStore(), chunks=(2, MIB // 2))


@pytest.mark.parametrize("n", [10**9, 10**11, 10**15], ids=["1 PB", "100 PB", "1 ZB"])
def test_memory_of_a_plan(n):
    source = cm.create_array(MemoryStore(), "a", shape=(n, MIB), dtype="u1", chunks=(1, MIB))
    for _ in plans(source):
        pass  # imports, caches
    with peak_below(8 * MIB):
        for plan in plans(source):
            stages_of_plan = stages_of(plan, "run")
            for stage in stages_of_plan:
                assert sum(1 for _ in itertools.islice(tasks_to_run(stage), 1000)) in {0, 1000}
            assert 50_000 < plan.n_tasks <= 100_000 * len(stages_of_plan)


class Far(MemoryStore):
    """Counts the names that listings gave."""

    is_remote = True
    n_listed = 0

    def list_prefix(self, prefix):
        for key in super().list_prefix(prefix):
            self.n_listed += 1
            yield key

    def list_dir(self, prefix):
        names = super().list_dir(prefix)
        self.n_listed += len(names)
        return names


def test_resuming_on_an_object_store_lists_records_not_values():
    n = 6000
    source = filled(np.ones(n, "u1"), path="a", chunks=(1,), codecs="raw")
    store = Far()
    options = {"format": "zarr2", "codecs": "raw"}
    with dask.config.set(scheduler="sync"), pytest.raises(ChunkError):
        cm.convert(source, (FailingStore(store, every=4000, methods=["set", "set_if"]), "a"), **options)
    n_stored = len([*store.list_prefix("a/")])
    store.n_listed = 0
    with dask.config.set(scheduler="sync"):
        report = cm.convert(source, (store, "a"), **options)
    assert n_stored > 3000
    assert report.n_resumed > 10
    assert store.n_listed < 200
    assert cm.verify(source, (store, "a")).equal
