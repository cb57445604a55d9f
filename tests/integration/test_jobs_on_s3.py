"""Jobs whose target, journal included, is an object store."""

import numpy as np
import pytest
from support.recording import FailingStore
from support.servers import WARNINGS, s3_server  # noqa: F401

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, StoreError
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.stores.wrapper import GuardedStore, ReadVersions, digest_of, noting

pytestmark = WARNINGS


@pytest.fixture
def store(s3_server):  # noqa: F811
    return open_store(s3_server.new_bucket() + "/some/root", s3_server.storage_options)


def make_source(length=20):
    source = MemoryStore()
    values = np.random.default_rng(0).integers(0, 99, (length, 6)).astype("i4")
    for path in ("a", "deep/b"):
        cm.create_array(source, path, shape=values.shape, chunks=(3, 4), dtype="i4", format="n5", codecs="gzip")
        cm.open_array(source, path, mode="r+")[...] = values
    return source


def test_convert(store):
    source = make_source()
    cm.convert(source, store, format="zarr3")
    assert cm.verify(source, store).equal
    assert not [key for key in store.list_prefix("") if "chunkmill" in key]
    cm.convert(store, back := MemoryStore(), format="n5")
    assert cm.verify(source, back).equal


def test_a_task_that_slept_replaces_nothing(store):
    """Its job has been done without it, and a user has written."""
    is_over = False

    def guard(*, now=False):
        if is_over and now:
            raise JobError(job="put it", reason="over")

    guarded = GuardedStore(store, guard)
    guarded.set("a/0", b"the task's")
    guarded.set("a/0", b"the task's again")
    assert store.get("a/0") == b"the task's again"
    is_over = True  # between question and write
    store.set("a/1", b"the user's")
    fresh = GuardedStore(store, guard)
    with pytest.raises(JobError):
        fresh.set("a/1", b"the task's")
    assert store.get("a/1") == b"the user's"


def test_resume(store):
    source = make_source(200)  # 134 chunks an array, of which a task owns 32
    with pytest.raises((ChunkError, StoreError)):
        cm.convert(source, FailingStore(store, every=120, methods=["set", "set_if"]), format="zarr3")
    assert [job.path for job in unfinished_jobs(store)] == [""]
    report = cm.convert(source, store, format="zarr3")
    assert report.n_resumed > 0
    assert cm.verify(source, store).equal
    assert not unfinished_jobs(store)
    assert not [key for key in store.list_prefix("") if "chunkmill" in key]


def test_etags_of_values_are_those_of_listings(store):
    for key in ("a/0", "a/1"):
        store.set(key, b"0123456789")
    read = ReadVersions()
    assert list(noting(store, read.record).get_many([ByteSpan("a/0"), ByteSpan("a/1", ByteRange(2, 3))]))[1] == b"234"
    assert read.digest() == digest_of(dict(store.list_versions("a/")))
    assert read.digest() == digest_of({key: store.version(key) for key in ("a/0", "a/1")})
