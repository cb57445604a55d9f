"""Work that is fitted to workers: the plan that is stored is the one that runs (P7)."""

from dataclasses import dataclass, replace

import dask
import pytest
from support.cases import cases
from support.rechunks import check, make
from support.recording import FailingStore
from support.small_jobs import SmallTasks, SmallWork, make_job, put

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, StoreError
from chunkmill.jobs.job import Job, run_job
from chunkmill.runtime.stage import Stage
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore


@dataclass(frozen=True, kw_only=True)
class Fitted(SmallWork):
    """A task for each thread of a worker, which holds a part of its memory."""

    def fit(self, worker, choices=None):
        n = worker.n_threads if choices is None else choices["n"]
        stages = [Stage("put", put, self.target.store, range(n))]
        return SmallTasks(numbered=n, task_bytes=worker.max_mem // n, choices={"n": n}, given=stages)


def fitted(store, worker):
    known = make_job(store).work
    work = Fitted(operation="put", name="put it", sources=(), target=known.target, mark="plan", tasks=known.tasks)
    return Job.fitted(work, worker)


@pytest.fixture
def store():
    """A store with an unfinished job of eight tasks, each of which holds 100 bytes."""
    store = MemoryStore()
    with dask.config.set(scheduler="sync"), pytest.raises(StoreError):
        run_job(fitted(FailingStore(store, every=4, methods=["set"], times=1), Worker(800, 8, 1)))
    return store


@pytest.mark.parametrize(
    ("worker", "most"), [(Worker(300, 4, 1), 3), (Worker(5000, 2, 7), None), (Worker(60, 1, 1), None)]
)
def test_a_job_resumes_as_it_was_fitted_when_it_began(store, worker, most):
    job = fitted(store, worker)
    begun = job.unfinished()
    assert (begun.tasks.numbered, begun.worker, begun.at_once) == (8, Worker(800, 8, 1), most)
    result = run_job(job)
    assert result.stages[0].n_tasks == 8
    assert result.n_resumed > 0


@pytest.mark.parametrize("worker", [Worker(40, 1, 1), Worker(99, 1, 1, is_asked=True)])
def test_workers_that_hold_no_task_are_told_how_much_one_needs(store, worker):
    with pytest.raises(
        JobError, match=r"holds 100 bytes, planned with max_mem 800, and max_mem is \d+ now.*max_mem=100"
    ):
        run_job(fitted(store, worker))


@pytest.mark.parametrize("choices", [{}, {"n": 8}, {"worker": "ab", "n": 8}, {"worker": [1, 2], "n": 0}])
def test_a_plan_whose_choices_are_damaged_is_another_one(store, choices):
    job = fitted(store, Worker(5000, 2, 1))
    journal = job.journal()
    journal.has_this_plan()
    plan = replace(journal.other, choices=choices)
    store.set(journal.plan_key, plan.packed())
    assert job.unfinished() is False
    with pytest.raises(JobError, match="another plan"):
        run_job(job)


@cases(
    ("again", "says"),
    [
        ({"strategy": None}, "strategy spill where this call has None"),
        ({"strategy": "direct"}, "strategy spill where this call has direct"),
        ({"overwrite": True}, "overwrite False where this call has True"),
        ({"temp": "memory://elsewhere"}, "temp None where this call has memory://elsewhere"),
    ],
)
def test_another_option_is_another_plan_and_named(again, says):
    """Where both options led to the same tasks, a resumed job took the first one without a word."""
    array, values = make(MemoryStore(), shape=(40, 40), chunks=(1, 40))
    store, options = MemoryStore(), {"chunks": (40, 1), "strategy": "spill"}
    with pytest.raises((StoreError, ChunkError)):
        cm.rechunk(array, FailingStore(store, every=9, methods=["set", "set_if"], times=1), **options)
    with pytest.raises(JobError, match=rf"{says}; give resume=False .* or finish it with its own arguments"):
        cm.rechunk(array, store, **options | again)
    cm.rechunk(array, store, **options)
    check(store, values, "")
