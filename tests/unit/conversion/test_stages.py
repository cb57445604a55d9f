"""Stages by listings: mostly empty arrays cost what is stored; sources may not change unseen, between two runs either."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.rechunks import check, make, planned_tightly
from support.recording import FailingStore, FarStore, Meanwhile, RecordingStore, reads_a_chunk
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.array import present_keys
from chunkmill.conversion import stages
from chunkmill.errors import ChunkError, JobError, NodeNotFound, StoreError
from chunkmill.nodes.array import Array
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


N = 10**5


def sparse(*, at=(5, N // 10, N - 1), **more):
    """Return an array of 10**5 chunks of two elements, of which those `at` some numbers are stored."""
    store = RecordingStore(MemoryStore())
    array = cm.create_array(store, "a", shape=(2 * N,), dtype="u1", **{"chunks": (2,)} | more)
    for i in at:
        array[2 * i : 2 * i + 2] = 7
    store.clear()
    return array


@cases(("plan", "keys"), [
    (lambda a, b: cm.plan_convert(a, b, format="zarr3", codecs="raw"), ["c/3"]),
    (lambda a, b: cm.plan_rechunk(a, b, chunks=(3,), shards=None, strategy="spill"), ["a/c/0", "c/0"]),
    (lambda a, b: cm.plan_transform(abs, a, b, block=(2,)), ["c/3"]),
])  # fmt: skip
def test_a_task_is_shown_by_its_first_store_key(plan, keys):
    array = filled(np.ones(8, "i4"), path="a", chunks=(2,))
    shown = [stage.show((0, [list(stage.tasks)[-1]])) for stage in stages_of(plan(array, MemoryStore()))]
    assert shown == keys


def convert(source, target, **more):
    return cm.convert(source, target, format="zarr3", **more)


JOBS = {
    "copy": (convert, {}),
    "shard": (convert, {"shards": (20,)}),
    "recode": (convert, {"codecs": "raw"}),
    "direct": (cm.rechunk, {"chunks": (3,), "shards": None, "strategy": "direct", "max_mem": "1 MiB"}),
    "spill": (cm.rechunk, {"chunks": (3,), "shards": None, "strategy": "spill", "max_mem": "1 MiB"}),
}


@cases("job", JOBS)
@cases("shards", [None, (20,)])
def test_only_what_is_stored_is_asked_for(job, shards):
    source, target = sparse(shards=shards), MemoryStore()
    run, more = JOBS[job]
    if shards and job == "copy":
        more = {"shards": None}
    report = run(source, target, **more)
    assert len(source.store.log) < 1300  # of which the plan samples 1,024 sizes
    written = cm.open_array(target)
    assert report.n_keys == written.write_layout.grid.n_chunks
    counted = written.write_layout if "copy" in report.actions else written.read_layout
    assert sum(report.actions.values()) == counted.grid.n_chunks
    assert len(list(written.stored.stored_keys())) in {3, 4}
    assert report.n_tasks <= 8
    assert cm.verify(source, target, progress=False).equal


def sparse_grid(seed, **more):
    chance = np.random.default_rng(seed)
    source = cm.create_array(MemoryStore(), "a", shape=(37, 41), dtype="u1", **{"chunks": (2, 3)} | more)
    for i, j in chance.integers(0, 37, (6, 2)):
        source[int(i), int(j)] = i + 1
    return source


@pytest.fixture
def always_listed(monkeypatch):
    monkeypatch.setattr(present_keys, "_FEW_KEYS", 0)


TARGETS = [
    {}, {"shards": (8, 9)}, {"chunks": (4, 5), "shards": None},
    {"chunks": (37, 1), "shards": None, "strategy": "spill"}, {"chunks": (5, 7), "shards": (15, 14)},
    {"chunks": (5, 2), "shards": None, "format": "n5"}, {"format": "n5"},
]  # fmt: skip


@pytest.mark.usefixtures("always_listed")
class TestSame:
    @cases("more", TARGETS)
    @cases("shards", [None, (6, 12)])
    @cases("seed, most_reads", [(0, 8), (1, 0)])
    def test_as_without_a_listing(self, monkeypatch, more, shards, seed, most_reads):
        monkeypatch.setattr(stages, "_MOST_READS", most_reads)
        source = sparse_grid(seed, shards=shards)
        found = []
        for few in (0, 1 << 62):
            monkeypatch.setattr(present_keys, "_FEW_KEYS", few)
            report = cm.rechunk(source, target := MemoryStore(), **{"chunks": "keep"} | more)
            values = {key: target.get(key) for key in target.list_prefix("")}
            found.append((values, report.n_keys, dict(report.actions)))
        assert found[0] == found[1]
        np.testing.assert_array_equal(cm.open_array(target)[...], source[...])

    @cases("chunks", [(2, 3), (4, 5), (37, 1)])
    @cases("shards", [None, 2])
    @cases("most_reads", [8, 0])
    def test_what_the_target_had_is_deleted(self, monkeypatch, chunks, shards, most_reads):
        monkeypatch.setattr(stages, "_MOST_READS", most_reads)
        source = sparse_grid(1)
        sharded = shards and tuple(shards * n for n in chunks)
        target = cm.create_array(MemoryStore(), "b", shape=(37, 41), dtype="u1", chunks=chunks, shards=sharded)
        target[3:20, 5:9] = 9
        cm.rechunk(source, target, chunks=None)
        np.testing.assert_array_equal(target[...], source[...])


@cases("job", JOBS)
@cases("shards", [None, (20,)])
def test_a_chunk_that_appears_meanwhile_is_not_lost(job, shards):
    source, target = sparse(shards=shards), MemoryStore()
    watched = Meanwhile(source.store, reads_a_chunk, lambda store: store.set("a/c/77", b"\1\1"))
    run, more = JOBS[job]
    with pytest.raises(ChunkError, match=r"a/c/77.*absent when the run began, and is present now"):
        run(Array(source.stored.with_store(watched)), target, **more)
    with pytest.raises(NodeNotFound):
        cm.open_array(target)


class Listing(FarStore):
    """A store whose requests cost latency, and whose listings tell versions."""

    def list_versions(self, prefix):
        self._before("list_versions", prefix)
        return ((key, self.below.version(key)) for key in self.below.list_prefix(prefix))


@cases("kind", [MemoryStore, Listing])
def test_a_chunk_that_is_written_again_while_slices_are_read_is_named(kind, monkeypatch):
    monkeypatch.setattr(stages, "_BATCH", 2)
    array, _ = make(kind(), shape=(10,), chunks=(2,), absent=[(3,)])
    plans = [SimpleNamespace(source=array.stored, rechunk=SimpleNamespace(source=SimpleNamespace(sliced=0)))]
    seen = stages.see_slices(plans)
    stages.check_slices("rechunk", plans, seen)
    array[9:] = 4
    with pytest.raises(JobError, match=r"chunks of the source 'a' .* while tasks read slices of them"):
        stages.check_slices("rechunk", plans, seen)
    plans[0].source, _ = make(MemoryStore({}), shape=(10,), chunks=(2,))  # without versions nothing is known
    assert stages.see_slices(plans) == {}


PLANS = {
    "copy": lambda a, b: cm.plan_convert(a, (b, "b"), format="zarr3"),
    "repack": lambda a, b: cm.plan_convert(a, (b, "b"), format="zarr3", shards=(2, 40)),
    "direct": lambda a, b: planned_tightly(a, (b, "b"), chunks=(2, 20), strategy="direct"),
    "spill": lambda a, b: planned_tightly(a, (b, "b"), chunks=(40, 1), strategy="spill"),
}


def interrupted(plan, target, *, after):
    """Run until as many values were written."""
    with pytest.raises((ChunkError, StoreError)):
        plan(FailingStore(target, after, ["set", "set_if"], times=1)).run()


def written_in_place(array, values):
    """One chunk has other values than before, one is gone, one has come."""
    for row in (0, 7):
        cm.open_array(array.store, "a", mode="r+")[row, 2:4] = values[row, 2:4] = -1
    array.store.delete(array.write_layout.locator.key((1, 0)))
    values[1] = 0


@pytest.mark.parametrize(("job", "n_left"), [("copy", 12), ("repack", 1), ("direct", 12), ("spill", 1), ("files", 12)])
def test_what_was_read_before_is_read_again(tmp_path, job, n_left):
    source, plan = LocalStore(tmp_path) if job == "files" else MemoryStore(), PLANS.get(job, PLANS["spill"])
    array, values = make(source, shape=(40, 40), chunks=(1, 40), absent=[(7, 0)])
    whole = FailingStore(MemoryStore(), 10**9, ["set", "set_if"])
    n_tasks = plan(array, whole).run().n_tasks
    target = MemoryStore()
    interrupted(lambda b: plan(array, b), target, after=whole.n_requests - n_left - 4)
    written_in_place(array, values)
    report = plan(array, target).run()
    check(target, values)
    assert 0 < report.n_resumed < n_tasks


@pytest.mark.parametrize("is_far", [True, False])
def test_of_many_records_too(is_far):
    """The client compares them, by one listing where each request costs latency."""
    source = Listing() if is_far else MemoryStore()
    array, values = make(source, shape=(200, 2), chunks=(1, 2), absent=[(7, 0)])
    target = MemoryStore()
    interrupted(lambda b: PLANS["copy"](array, b), target, after=180)
    written_in_place(array, values)
    source = RecordingStore(source) if not is_far else source
    source.log.clear()
    report = PLANS["copy"](cm.open_array(source, "a"), target).run()
    check(target, values)
    assert report.n_resumed > 1
    assert report.n_keys < 100
    assert source.keys("list_versions") == (["a/"] if is_far else [])
    assert ("version" in {method for method, *_ in source.log}) != is_far
