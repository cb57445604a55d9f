"""What the logger says of jobs, and what it leaves out."""

import logging
import re

import dask
import pytest
from support.small_jobs import make_job, put

import chunkmill as cm
from chunkmill.jobs.job import run_job
from chunkmill.log import LOG, without_secrets
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import GuardedStore


def test_a_job_tells_of_its_beginning_its_stages_its_resuming_and_its_end(caplog):
    caplog.set_level(logging.INFO, "chunkmill")
    store, seen = MemoryStore(), []

    def fail_once(store, number):
        seen.append(number)
        if len(seen) == 3:
            raise OSError("disk")
        return put(store, number)

    job = make_job(store, n=3, function=fail_once)
    with dask.config.set(scheduler="sync"):
        with pytest.raises(OSError, match="disk"):
            run_job(job)
        run_job(job)
    said = [f"{record.levelname} {re.sub('[0-9.]+ s', 'x s', record.getMessage())}" for record in caplog.records]
    assert said == [
        "INFO put it: begins",
        "INFO put it: stage put-0 begins: 3 tasks",
        "WARNING put it: ends with an error: disk",
        "INFO put it: resumes an interrupted run",
        "INFO put it: stage put-0 begins: 3 tasks",
        "INFO put it: stage put-0 ends after x s: 2 of 3 tasks were done by an earlier run",
        "INFO put it: done in x s",
    ]


def test_secrets_of_urls_are_left_out(caplog):
    caplog.set_level(logging.INFO, "chunkmill")
    LOG.info("from %s to %s", "https://me:word@host/x.zarr?sig=abc&t=1", "s3://bucket/a b")
    assert caplog.messages == ["from https://***@host/x.zarr?*** to s3://bucket/a b"]
    assert without_secrets("file:///a@b/c: 3 of 4?") == "file:///a@b/c: 3 of 4?"


def test_a_store_that_guards_by_a_lock_alone_is_told(caplog):
    store = MemoryStore()
    store.compares_versions = False
    with dask.config.set(scheduler="sync"):
        run_job(make_job(store, n=1))
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert "cannot compare versions" in warning.getMessage()


def test_contention_is_told(caplog):
    caplog.set_level(logging.INFO, "chunkmill")
    store = MemoryStore()
    array = cm.create_array(store, shape=(4,), dtype="i4", chunks=(4,))
    array[:] = [1, 2, 3, 4]

    class Contended(type(store)):
        def set_if(self, key, value, version, **more):
            if not caplog.messages:
                self.set(key, self.get(key))  # another version
            return super().set_if(key, value, version, **more)

    store.__class__ = Contended
    array[1] = 7
    assert caplog.messages == [f"{store.url}/c/0 was changed by another writer; it is read again"]
    assert array[...].tolist() == [1, 7, 3, 4]


def test_a_write_that_is_tried_again_is_told(caplog):
    """A client of a service asks again where a response is lost, and meets what it has written."""
    caplog.set_level(logging.INFO, "chunkmill")

    class Lossy(MemoryStore):
        is_remote = True

        def set_if(self, key, value, version):
            super().set_if(key, value, version)
            return False

    GuardedStore(store := Lossy(), lambda *, now=False: None).set("a", b"1")
    assert caplog.messages == [f"{store.url}/a is stored already: by a try whose response was lost"]
    assert store.get("a") == b"1"
