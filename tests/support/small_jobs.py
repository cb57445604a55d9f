"""A job of tiny tasks, each of which stores one key; and tasks of any job, of which one fails."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace

import dask
import pytest

from chunkmill.formats.registry import get_format
from chunkmill.jobs.job import Job
from chunkmill.jobs.work import Tasks, Work
from chunkmill.journal.plans import JOB_PREFIX
from chunkmill.nodes.target import Target
from chunkmill.runtime import task
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.posix_file import origin
from chunkmill.stores.wrapper import Meter, MeteredStore


def put(store, number):
    """A task: one key of `number` bytes."""
    meter = Meter()
    MeteredStore(store, meter).set(f"data/{number}", bytes(number))
    return TaskResult.of(meter, n_keys=1, peak_x=number)


class SmallTarget(Target):
    """A target of one document, for which `room` is made."""

    room = staticmethod(lambda: None)

    def make_room(self, *, of_job=False, again=False):
        if not self.run:  # before it begins
            self.room()

    def publish(self):
        self.store.set("zarr.json", b"there")
        return ["zarr.json"]


@dataclass(frozen=True, kw_only=True)
class SmallTasks(Tasks):
    given: list
    publishing: object = SmallTarget.publish

    def stages(self, target, *, fresh):
        return self.given

    def publish(self, target):
        return self.publishing(target)


@dataclass(frozen=True, kw_only=True)
class SmallWork(Work):
    mark: str
    tasks: SmallTasks

    def fit(self, worker, choices=None):
        return self.tasks

    def identity(self):
        return (self.mark,)


def make_job(store, *, n=5, mark="plan", room=None, n_stages=1, function=put, put_in=None, **tasks):
    kind = SmallTarget if room is None else type("Roomy", (SmallTarget,), {"room": staticmethod(room)})
    target = kind(store, "a/b", get_format("zarr3"), [])
    stages = [Stage(f"put-{i}", function, put_in or store, range(n)) for i in range(n_stages)]
    tasks = SmallTasks(numbered=n, given=stages, **tasks)
    work = SmallWork(operation="put", name="put it", sources=(), target=target, mark=mark, tasks=tasks)
    return Job.fitted(work, Worker(1 << 30, 2, 1))


def stages_of(plan, run="1"):
    """The stages of a run of a plan."""
    return plan.job.stages(replace(plan.job.target, run=run))


@contextmanager
def dying_after(n_tasks, monkeypatch):
    """Run the tasks of a job on one thread, of which the next one fails after so many."""
    run, done = task.run_task, []

    def failing(*args, **more):
        if len(done) == n_tasks:
            raise InterruptedError
        done.append(run(*args, **more))
        return done[-1]

    with monkeypatch.context() as patched, dask.config.set(scheduler="threads", num_workers=1):
        patched.setattr("chunkmill.runtime.stage_runner.run_task", failing)
        with pytest.raises(InterruptedError):
            yield


def dead_heartbeat(**said):
    """A heartbeat of a process of this machine that has ended."""
    where = dict(zip(("host", "boot", "namespace"), origin(), strict=True))
    return json.dumps({"seen": "2020-01-01T00:00:00+00:00", **where, "pid": 999_999_999, **said}).encode()


def journal_keys(store):
    return [key for key in store.list_prefix("") if key.startswith(JOB_PREFIX)]
