"""Stages: which specs one task does, in the process that runs it, with which memory; specs of many arrays."""

import pickle
import sys
import threading
from unittest.mock import Mock

import dask
import numpy as np
import pytest
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT
from support.cases import cases
from support.scripts import run_script

from chunkmill.array.present_keys import NO_BLOCKS
from chunkmill.runtime import stage as stages
from chunkmill.runtime import task, worker_memory
from chunkmill.runtime.stage import Stage, TaskSpecs, count_tasks, grouped
from chunkmill.runtime.task import LocalStage, PackedStage
from chunkmill.runtime.worker_memory import current_worker, parse_memory, peak_memory


@cases(
    ("shares", "sizes"),
    [([], []), ([1, 1], [1, 1]), ([0.5] * 5, [2, 2, 1]), ([0.2, 3, 0.2, 0.2], [1, 1, 2]), ([0] * 9, [9])],
)
def test_neighbours_share_a_task_up_to_its_budget(shares, sizes):
    stage = Stage("x", print, shares, range(len(shares)), share=lambda shares, spec: shares[spec])
    groups = grouped(stage)
    assert [len(group) for group in groups] == sizes
    assert [spec for group in groups for spec in group] == list(range(len(shares)))


@cases("n", [4, 5, 8, 9])
def test_no_more_tasks_than_a_scheduler_bears(monkeypatch, n):
    """Whatever the shares say."""
    monkeypatch.setattr(stages, "MAX_TASKS", 4)
    groups = grouped(Stage("x", print, None, range(n), share=lambda *_: 1.0))
    assert len(groups) <= 4
    assert [spec for group in groups for spec in group] == list(range(n))


def test_groups_of_arrays_are_not_listed():
    """Small arrays share a task with what comes before them."""
    specs = TaskSpecs.counted([3, 10**15, 2, 1, 1])
    shares = [0.25, 0.5, 0.1, 0.3, 1.0]
    stage = Stage("x", print, shares, specs, share=lambda shares, spec: shares[spec[0]])
    assert count_tasks(stage) == len(grouped(stage)) <= 100_000
    small = Stage("x", print, shares, TaskSpecs.counted([3, 5, 2, 1, 1]), share=stage.share)
    groups = grouped(small)
    sizes = [len(group) for group in groups]
    listed = grouped(Stage("x", print, shares, list(small.tasks), share=stage.share))
    assert sizes == [len(group) for group in listed] == [3, 2, 2, 4, 1]
    assert [spec for group in groups for spec in group] == list(small.tasks)


@cases("n", [0, 1, 2, 7])
def test_tasks_of_which_something_is_left(n):
    groups = grouped(Stage("x", print, None, TaskSpecs.counted([n])))
    some = NO_BLOCKS.with_blocks(np.arange(0, n, 3))
    assert list(groups.left_by({0: some})) == [*range(0, n, 3)]
    assert list(groups.left_by({0: NO_BLOCKS})) == []
    assert list(groups.left_by({})) == [*range(n)]


def test_specs_are_counted_array_by_array():
    specs = TaskSpecs.counted([2, 0, 3])
    expected = [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    assert list(specs) == expected
    assert [specs[i] for i in range(len(specs))] == expected
    assert specs[-1] == (2, 2)
    assert list(specs.runs()) == [range(2), range(2, 5)]
    for start in range(6):
        for stop in range(6):
            assert list(specs[start:stop]) == expected[start:stop]
    with pytest.raises(IndexError):
        specs[5]
    with pytest.raises(ValueError, match="step of 1"):
        specs[::2]
    assert list(TaskSpecs.counted([])) == []


def test_specs_are_never_listed():
    specs = TaskSpecs.counted([10**12, 10**12])
    assert len(specs) == 2 * 10**12
    assert specs[10**12] == (1, 0)
    assert next(iter(specs)) == (0, 0)
    some = specs[10**12 - 5 : 10**12 + 10**9]
    assert (len(some), some[5]) == (10**9 + 5, (1, 0))
    assert len(pickle.dumps(some)) < 400


def test_a_slice_pickles_to_what_it_names():
    specs = TaskSpecs(enumerate([range(10), [(7, np.arange(3)), (9, np.arange(10**6))], range(10**6)]))
    some = pickle.loads(pickle.dumps(specs[9:11]))
    assert [spec[:2] for spec in some] == [(0, 9), (1, 7)]
    assert len(pickle.dumps(specs[9:11])) < 1000


def test_a_packed_stage_is_opened_once(monkeypatch):
    packed = PackedStage.of(LocalStage(len, "abc", None, 7), None, "a job")
    there = pickle.loads(pickle.dumps(packed))
    assert there.open() is there.open()
    assert (there.open().number, there.open().common) == (7, "abc")
    opened = there.open()
    assert opened.open() is opened
    monkeypatch.setattr(task, "_MAX_OPENED", 1)
    PackedStage.of(opened, None, "another").open()
    assert there.open() is not opened  # no more are kept


def test_what_a_script_defines_is_packed_by_value(monkeypatch):
    """Workers have another ``__main__``: a store or a codec of a notebook was not found there."""

    class Codec:
        level = 7

    Codec.__module__, Codec.__qualname__ = "__main__", "CodecOfScript"
    monkeypatch.setattr(sys.modules["__main__"], "CodecOfScript", Codec, raising=False)
    packed = PackedStage.of(LocalStage(len, Codec(), None, 0), None, "a job")
    monkeypatch.delattr(sys.modules["__main__"], "CodecOfScript")
    assert packed.open().common.level == 7


def test_a_function_that_cannot_be_sent_is_an_error_of_its_job():
    """As of a parser, or a reduction, that closes over a lock."""
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"scan: a function, what it closes over.*_thread\.lock.*scheduler='threads'"):
        PackedStage.of(LocalStage(len, lambda url: lock, None, 0), None, "scan")


@cases(("max_mem", "n_bytes"), [(1000, 1000), ("2 MiB", 2 << 20), ("1e3", 1000), ("1.5kB", 1500)])
def test_memory_is_parsed(max_mem, n_bytes):
    assert parse_memory(max_mem) == n_bytes


@cases("max_mem", [0, -1, "much", "-2 GiB"])
def test_what_is_no_memory(max_mem):
    with pytest.raises(ValueError, match=r"expected a number of bytes above 0"):
        parse_memory(max_mem)


def test_local_schedulers():
    with dask.config.set(scheduler="threads", num_workers=3):
        worker = current_worker()
        assert (worker.n_threads, worker.n_workers) == (3, 1)
        assert 0 < worker.max_mem < MEMORY_LIMIT / 2
    with dask.config.set(scheduler="processes"):
        each = current_worker()
        assert (each.n_threads, each.n_workers) == (1, CPU_COUNT)
        assert each.max_mem == pytest.approx(worker.max_mem / CPU_COUNT, rel=0.01)


def test_memory_as_configured_or_given():
    with dask.config.set({"scheduler": "sync", "chunkmill.max-mem": "1 MiB"}):
        assert current_worker().max_mem == 1 << 20
        assert current_worker("2 MiB").max_mem == 2 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system may not tell")
def test_it_is_this_process_alone():
    """Not the parent's, which a process that is spawned is told by getrusage."""
    peak_memory()  # what is found once may grow
    held = np.ones(64 << 20, np.uint8)
    child = int(run_script("from chunkmill.runtime.worker_memory import peak_memory as p; print(p())"))
    assert child > 1 << 20
    before = peak_memory()
    assert before > held.nbytes
    assert child < before


def test_systems_that_do_not_tell(monkeypatch):
    monkeypatch.setattr(worker_memory, "open", Mock(side_effect=FileNotFoundError), raising=False)
    monkeypatch.setattr(worker_memory, "resource", None)
    assert peak_memory() == 0
