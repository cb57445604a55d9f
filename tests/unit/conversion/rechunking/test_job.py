"""Stages, estimates and reasons of a rechunk."""

import dask
import pytest
from support.rechunks import make

import chunkmill as cm
from chunkmill.conversion import stages
from chunkmill.conversion.convert_job import Settings
from chunkmill.conversion.rechunking.job import estimate_rechunk, explain_strategy, plan_array_rechunk
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.zip import ZipStore


@pytest.fixture
def arrays():
    source, _ = make(MemoryStore(), "g/x", codecs="raw")
    target = cm.create_array(MemoryStore(), shape=source.shape, dtype="i4", chunks=(20, 7, 4), codecs="raw")
    return source, target


def planned(arrays, strategy, max_mem=1 << 30):
    return plan_array_rechunk(*arrays, Worker(max_mem, 1, 1), arrays[1].store, strategy=strategy)


def test_estimates_of_stages_add_up_to_that_of_the_plan(arrays):
    for strategy in ("direct", "spill"):
        plan = planned(arrays, strategy)
        stages = estimate_rechunk(*arrays, plan)
        assert list(stages) == (["rechunk-write"] if strategy == "direct" else ["rechunk-spill", "rechunk-write"])
        assert sum(stage.n_requests for stage in stages.values()) == plan.estimate.n_requests
    spill, write = stages.values()
    assert spill.bytes_written == write.bytes_read == plan.estimate.intermediate_bytes


def test_the_reason_compares(arrays):
    text = explain_strategy(planned(arrays, "direct"))
    assert text.startswith("each task owns (")
    assert "once the source in all" in text
    text = explain_strategy(planned(arrays, None))
    assert "would take" in text


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
    store, target = MemoryStore(), MemoryStore()
    cm.create_group(store)
    for i, array in enumerate(cm.create_arrays(store, dict.fromkeys(map("a{}".format, range(40)), ABOUT)).values()):
        array[...] = i
    plan = cm.plan_rechunk(store, target, chunks=(4, 1), strategy=strategy, max_mem="64 MiB")
    assert all(8 <= stage.n_tasks <= 16 for stage in plan.stages)
    with dask.config.set(scheduler="sync"):
        report = plan.run(progress=False)
    assert report.n_tasks == plan.n_tasks
    assert cm.verify(store, target).equal


ABOUT = {"shape": (4, 4), "dtype": "u1", "chunks": (1, 4)}
