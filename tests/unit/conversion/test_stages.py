"""Stages by listings: mostly empty arrays cost what is stored."""

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.recording import Meanwhile, RecordingStore, reads_a_chunk
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.array import present_keys
from chunkmill.conversion import stages
from chunkmill.errors import ChunkError, NodeNotFound
from chunkmill.nodes.array import Array
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


N = 11_000


def sparse(*, at=(5, N // 10, N - 1), **more):
    """Return an array of 11,000 chunks of two elements, of which those `at` some numbers are stored."""
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
    "spill": (cm.rechunk, {"chunks": (64,), "shards": None, "strategy": "spill", "max_mem": "1 MiB"}),
}


@cases("job", JOBS)
@cases("shards", [None, (20,)])
def test_only_what_is_stored_is_asked_for(job, shards):
    source, target = sparse(shards=shards), RecordingStore(MemoryStore())
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
    assert not [key for key in target.log if "intermediate" in str(key)]
    assert cm.verify(source, target, progress=False).equal


SHAPE = (7, 10)


def sparse_grid(**more):
    chance = np.random.default_rng(0)
    source = cm.create_array(MemoryStore(), "a", shape=SHAPE, dtype="u1", **{"chunks": (2, 3)} | more)
    for i, j in chance.integers(0, SHAPE[0], (3, 2)):
        source[int(i), int(j)] = i + 1
    return source


TARGETS = [
    {}, {"shards": (8, 9)}, {"chunks": (4, 5), "shards": None},
    {"chunks": (7, 1), "shards": None, "strategy": "spill"}, {"chunks": (5, 7), "shards": (15, 14)},
    {"chunks": (5, 2), "shards": None, "format": "n5"}, {"format": "n5"},
]  # fmt: skip


@cases("more", TARGETS)
@cases("shards", [None, (6, 12)])
def test_the_same_is_written_as_without_a_listing(monkeypatch, more, shards):
    source = sparse_grid(shards=shards)
    found = []
    for few, most_reads in ((1 << 62, 8), (0, 8), (0, 0)):
        monkeypatch.setattr(present_keys, "_FEW_KEYS", few)
        monkeypatch.setattr(stages, "_MOST_READS", most_reads)
        report = cm.rechunk(source, target := MemoryStore(), **{"chunks": "keep"} | more)
        values = {key: target.get(key) for key in target.list_prefix("")}
        found.append((values, report.n_keys, dict(report.actions)))
    assert found[0] == found[1] == found[2]
    np.testing.assert_array_equal(cm.open_array(target)[...], source[...])


@cases("chunks", [(2, 3), (4, 5), (7, 1)])
@cases("shards", [None, 2])
@cases("most_reads", [8, 0])
def test_what_the_target_had_is_deleted(monkeypatch, chunks, shards, most_reads):
    monkeypatch.setattr(present_keys, "_FEW_KEYS", 0)
    monkeypatch.setattr(stages, "_MOST_READS", most_reads)
    source = sparse_grid()
    sharded = shards and tuple(shards * n for n in chunks)
    target = cm.create_array(MemoryStore(), "b", shape=SHAPE, dtype="u1", chunks=chunks, shards=sharded)
    target[3:7, 5:9] = 9
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
