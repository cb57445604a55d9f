"""A job that began on large workers resumes on small ones: its tasks, in parts."""

from collections import Counter

import dask
import numpy as np
import pytest
from support.rechunks import check, make
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion.rechunking import intermediate_files, target_chunks
from chunkmill.errors import JobError
from chunkmill.runtime import task
from chunkmill.stores.memory import MemoryStore

MIB = 1 << 20
SHAPE, CHUNKS = (64, 192, 128), (2, 192, 128)
SERIES = (64, 8, 8)


def begin(plan, monkeypatch, n_tasks):
    """Run a plan in one thread until that many tasks are done."""
    run, done = task.run_task, []

    def failing(*args, **more):
        if len(done) == n_tasks:
            raise InterruptedError
        done.append(run(*args, **more))
        return done[-1]

    with monkeypatch.context() as patched, dask.config.set(scheduler="threads", num_workers=1):
        patched.setattr("chunkmill.runtime.stage_runner.run_task", failing)
        with pytest.raises(InterruptedError):
            plan.run()


def rechunked(source, target, max_mem, **options):
    with dask.config.set(scheduler="threads", num_workers=1):
        return cm.plan_rechunk(source, target, chunks=SERIES, max_mem=max_mem, **options)


@pytest.mark.parametrize("absent", [[], [(0, 0, 0), (5, 0, 0), (6, 0, 0), (7, 0, 0)]], ids=["whole", "absent chunks"])
@pytest.mark.parametrize(
    ("options", "n_done"),
    [
        ({"strategy": "direct"}, 2),
        ({"strategy": "spill"}, 1),
        ({"strategy": "spill"}, -1),
        ({"strategy": "spill", "temp_codec": "lz4"}, 1),
        ({"strategy": "spill", "temp_codec": "lz4"}, -1),
    ],
    ids=["direct", "files", "blocks", "coded files", "coded blocks"],
)
def test_tasks_that_small_workers_do_not_hold_are_done_in_parts(options, n_done, absent, monkeypatch):
    """Nothing that is on record is written or read again, on workers with less memory than a task was planned with."""
    stores = MemoryStore(), RecordingStore(MemoryStore())
    source, values = make(stores[0], shape=SHAPE, dtype="f8", chunks=CHUNKS, absent=absent, fill_value=-1)
    target = (stores[1], "b")
    plan = rechunked(source, target, "8 MiB", **options)
    first, *last = plan.job.stages("run")
    n_done = n_done if n_done > 0 else len(first.tasks) + 1
    assert n_done < len(first.tasks) or last
    begin(plan, monkeypatch, n_done)
    written = {key for key in stores[1].keys("set", "set_if") if "/c/" in f"/{key}" or "/intermediate/" in key}
    stores[1].clear()
    small = rechunked(source, target, "2.5 MiB", **options)
    assert small.at_target() == "an unfinished job of this plan, which will be resumed"
    report = small.run()
    assert (report.n_resumed, report.n_tasks) == (n_done, plan.n_tasks)
    counts = Counter(stores[1].keys("set", "set_if"))
    assert not written & counts.keys()
    assert max(n for key, n in counts.items() if key.startswith("b/c/")) == 1
    check(stores[1], values)


def test_parts_keep_within_memory(monkeypatch):
    """The largest arrays that a task allocates become smaller with the memory that it may have."""
    sizes = []

    class Watched:
        def __getattr__(self, name):
            return getattr(np, name)

        def empty(self, shape, dtype):
            sizes.append(np.empty(shape, dtype).nbytes)
            return np.empty(shape, dtype)

    largest = {}
    for max_mem in ("8 MiB", "2 MiB"):
        source, values = make(MemoryStore(), shape=SHAPE, dtype="f8", chunks=CHUNKS)
        target = (MemoryStore(), "b")
        begin(rechunked(source, target, "8 MiB", strategy="spill"), monkeypatch, 1)
        plan = rechunked(source, target, max_mem, strategy="spill")
        with monkeypatch.context() as patched:
            for module in (intermediate_files, target_chunks):
                patched.setattr(module, "np", Watched())
            sizes.clear()
            plan.run()
        check(target[0], values)
        largest[max_mem] = max(sizes)
    assert largest["8 MiB"] > 2 * MIB > largest["2 MiB"]


def test_a_run_in_parts_that_is_interrupted_resumes_on_any_workers(monkeypatch):
    """Files written whole and in parts are read by the same blocks."""
    source, values = make(MemoryStore(), shape=SHAPE, dtype="f8", chunks=CHUNKS)
    target = (MemoryStore(), "b")
    plan = rechunked(source, target, "8 MiB", strategy="spill")
    n_files = len(plan.job.stages("run")[0].tasks)
    begin(plan, monkeypatch, 1)
    begin(rechunked(source, target, "2 MiB", strategy="spill"), monkeypatch, 1)
    begin(rechunked(source, target, "3 MiB", strategy="spill"), monkeypatch, n_files - 1)
    report = rechunked(source, target, "8 MiB", strategy="spill").run()
    assert report.n_resumed == n_files + 1
    check(target[0], values)


def test_a_conversion_moves_fewer_keys_at_a_time_on_small_workers(monkeypatch):
    source, values = make(MemoryStore(), shape=(16_000,), dtype="i4", chunks=(2,), format="zarr2")

    def plan_of(max_mem):
        with dask.config.set(scheduler="threads", num_workers=1):
            return cm.plan_convert(source, (target, "b"), format="zarr3", max_mem=max_mem)

    target = RecordingStore(MemoryStore())
    plan = plan_of("64 MiB")
    begin(plan, monkeypatch, 2)
    target.clear()
    report = plan_of(60_000).run()
    assert (report.n_resumed, report.n_tasks) == (2, plan.n_tasks)
    written = [key for key in target.keys("set", "set_if") if key.startswith("b/c/")]
    assert len(written) == len(set(written)) < source.nchunks
    check(target, values)


def test_what_no_part_fits_into_is_an_error_with_both_values(monkeypatch):
    source, _ = make(MemoryStore(), shape=SHAPE, dtype="f8", chunks=CHUNKS)
    target = (MemoryStore(), "b")
    begin(rechunked(source, target, "8 MiB"), monkeypatch, 1)
    words = r"holds [\d,]+ bytes, planned with max_mem 8,388,608, and max_mem is 100,000 now; in parts, .*give max_mem="
    with pytest.raises(JobError, match=words):
        rechunked(source, target, 100_000)
