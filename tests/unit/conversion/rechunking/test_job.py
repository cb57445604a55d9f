"""Arrays, stores and intermediate files as the planner of a rechunk sees them, its reasons, and tasks of small arrays."""

import dask
import pytest
from support.rechunks import make
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion import stages
from chunkmill.conversion.convert_job import Settings
from chunkmill.conversion.rechunking.job import read_side, store_costs, write_side
from chunkmill.conversion.rechunking.strategies import UnitCosts
from chunkmill.conversion.rechunking.target_chunks import writes_at_once
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.zip import ZipStore

WORKER = Worker(1 << 30, 2, 1)


def far(array):
    store = RecordingStore(array.store)
    store.is_remote = True
    return array.stored.with_store(store)


def test_stores_with_latency_fetch_ahead():
    array, _ = make(MemoryStore(), shape=(8, 8), chunks=(2, 4))
    assert read_side(array.stored, WORKER).ahead_bytes == 0
    assert read_side(far(array), WORKER).ahead_bytes == WORKER.ahead_bytes
    assert write_side(far(array), WORKER).working_bytes > write_side(array.stored, WORKER).working_bytes


def test_as_many_values_are_stored_at_once_as_memory_was_fetched_ahead():
    array, _ = make(MemoryStore(), shape=(64, 64), chunks=(32, 32))
    one = write_side(far(array), Worker(1, 1, 1)).working_bytes
    assert writes_at_once(array.stored, 1 << 30) == 0  # no latency
    assert [writes_at_once(far(array), n * one) for n in (0, 1, 2, 5, 99)] == [0, 0, 2, 5, 32]
    assert write_side(far(array), Worker(8 * 5 * one, 1, 1)).working_bytes == 5 * one


def test_requests_to_stores_with_latency_cost_more():
    array, _ = make(MemoryStore())
    local, remote = array.store, far(array).store
    assert store_costs(local, local, local) == UnitCosts()
    costs = store_costs(remote, local, local)
    assert costs.source_request > UnitCosts().source_request
    assert costs.target_request == UnitCosts().target_request
    assert store_costs(local, local, remote).task > 10 * UnitCosts().task
    assert store_costs(local, remote, remote).intermediate_request > UnitCosts().intermediate_request


def test_the_reason_compares():
    array, _ = make(MemoryStore(), codecs="raw")
    direct, either = (
        cm.plan_rechunk(array, MemoryStore(), chunks=(20, 7, 4), strategy=strategy).reason
        for strategy in ("direct", None)
    )
    assert direct.startswith("each task owns (")
    assert "once the source in all" in direct
    assert "would take" in either


def test_intermediate_files_are_kept_out_of_zip_files(tmp_path):
    settings = Settings(Worker(1, 1, 1))
    assert settings.separate_store(MemoryStore()) is None
    with ZipStore(str(tmp_path / "x.zip")) as store:
        assert settings.separate_store(store).url == f"file://{tmp_path}"
    own = MemoryStore()
    assert Settings(Worker(1, 1, 1), intermediate=own).separate_store(MemoryStore()) is own


@pytest.mark.parametrize("strategy", ["direct", "spill"])
def test_small_arrays_share_tasks_where_there_are_many(strategy, monkeypatch):
    monkeypatch.setattr(stages, "_MANY_TASKS", 8)
    store, target, about = MemoryStore(), MemoryStore(), {"shape": (4, 4), "dtype": "u1", "chunks": (1, 4)}
    cm.create_group(store)
    for i, array in enumerate(cm.create_arrays(store, dict.fromkeys(map("a{}".format, range(40)), about)).values()):
        array[...] = i
    plan = cm.plan_rechunk(store, target, chunks=(4, 1), strategy=strategy, max_mem="64 MiB")
    assert all(8 <= stage.n_tasks <= 16 for stage in plan.stages)
    with dask.config.set(scheduler="sync"):
        report = plan.run(progress=False)
    assert report.n_tasks == plan.n_tasks
    assert cm.verify(store, target).equal
