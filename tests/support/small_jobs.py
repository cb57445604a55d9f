"""A job of tiny tasks, each of which stores one key."""

from __future__ import annotations

import json

from chunkmill.jobs.job import Job
from chunkmill.journal.names import JOB_PREFIX
from chunkmill.runtime.stage import Stage, TaskResult
from chunkmill.stores.posix_file import origin
from chunkmill.stores.wrapper import Meter, MeteredStore

__all__ = ["dead_heartbeat", "journal_keys", "make_job", "put"]


def put(store, number):
    """A task: one key of `number` bytes."""
    meter = Meter()
    MeteredStore(store, meter).set(f"data/{number}", bytes(number))
    return TaskResult.of(meter, n_keys=1, peak_x=number)


def make_job(store, *, n=5, mark="plan", prepare=lambda *_: {"zarr.json": b"there"}, n_stages=1, function=put):
    def publish(documents):
        for key, value in documents.items():
            store.set(key, value)

    stages = [Stage(f"put-{i}", function, store, range(n)) for i in range(n_stages)]
    return Job("put it", store, "a/b", mark, (), (), prepare, lambda _: stages, publish)


def dead_heartbeat(**said):
    """A heartbeat of a process of this machine that has ended."""
    where = dict(zip(("host", "boot", "namespace"), origin(), strict=True))
    return json.dumps({"seen": "2020-01-01T00:00:00+00:00", **where, "pid": 999_999_999, **said}).encode()


def journal_keys(store):
    return [key for key in store.list_prefix("") if key.startswith(JOB_PREFIX)]
