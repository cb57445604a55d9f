"""Processes that fork or spawn, before and after chunkmill was used: nothing hangs, and what they write is there."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading

import dask
import dask.array as da
import numpy as np
import pytest
from support.servers import WARNINGS

import chunkmill as cm
from chunkmill.checks.doctor import doctor
from chunkmill.errors import ChunkError, ChunkmillError, JobError
from chunkmill.stores.memory import MemoryStore

pytestmark = [*WARNINGS, pytest.mark.slow]

N, PART = 2, 5
SHAPE = (N * PART, 300, 300)  # large enough that reading it takes threads


def work(url, options, i):
    """Read everything, write a part that cuts chunks, and both by dask."""
    array = cm.open_array(url, "a", mode="r+", storage_options=options)
    assert int(array[...].max()) <= N
    array[i * PART : (i + 1) * PART, 0, 0] = i + 1
    with dask.config.set(scheduler="threads", num_workers=2):
        part = da.full((PART, 1, 1), i + 1, dtype="i2", chunks=2)
        cm.store(part, array, regions=(slice(i * PART, (i + 1) * PART), slice(1, 2), slice(1, 2)))
        assert int(array.to_dask().max().compute()) >= i + 1
    os._exit(0) if multiprocessing.parent_process() is None else None


def make(url, options):
    array = cm.create_array(
        url, "a", shape=SHAPE, dtype="i2", chunks=(3, 300, 300), codecs="zstd", storage_options=options
    )
    array[...] = 0
    array[0] = 0


@pytest.mark.parametrize(("place", "method"), [("local", "fork"), ("local", "forkserver"), ("s3", "spawn")])
def test_processes_that_begin_after_chunkmill_was_used(request, tmp_path, place, method):
    context = multiprocessing.get_context(method)
    url, options = str(tmp_path / "x"), None
    if place == "s3":
        server = request.getfixturevalue("s3_server")
        url, options = server.new_bucket() + "/x.zarr", server.storage_options
    make(url, options)
    with dask.config.set(scheduler="threads", num_workers=2):
        assert int(cm.from_store(url, "a", storage_options=options).sum().compute()) == 0
    assert not cm.open_array(url, "a", storage_options=options)[...].any()
    processes = [context.Process(target=work, args=(url, options, i)) for i in range(N)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        process.kill()
    assert [process.exitcode for process in processes] == [0] * N  # and not killed: one hangs
    found = cm.open_array(url, "a", storage_options=options)[...]
    expected = np.repeat(np.arange(N) + 1, PART)
    np.testing.assert_array_equal(found[:, 0, 0], expected)
    np.testing.assert_array_equal(found[:, 1, 1], expected)


def test_importing_and_opening_start_no_thread(tmp_path):
    """So that whoever forks later has nothing to lose."""
    make(str(tmp_path), None)
    code = f"""
        import threading, chunkmill as cm
        a = cm.open_array({str(tmp_path)!r}, "a")
        a.to_dask(), a[0, 0, 0]
        assert threading.active_count() == 1, threading.enumerate()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)


# --------------------------------------------------------------------------------------------------------------------
# What other processes cannot reach: nothing is begun


ELSEWHERE = "in the memory of another process"


@pytest.mark.usefixtures("other_process")
def test_memory_is_not_shared(tmp_path):
    store = MemoryStore()
    with pytest.raises(JobError, match=rf"write to 'a'.* {ELSEWHERE}"):
        cm.to_store(da.ones((4, 2)), store, "a")
    cm.create_array(tmp_path / "x", shape=(4, 2), dtype="f8")
    with pytest.raises(JobError, match=ELSEWHERE):
        cm.convert(tmp_path / "x", store, format="zarr3")
    assert not list(store.list_prefix(""))
    array = cm.create_array("memory://of-one-process", "b", shape=(4, 2), dtype="f8", chunks=(2, 2), fill_value=3)
    with pytest.raises(JobError, match=rf"write to 'b' and 1 more.* {ELSEWHERE}"):
        cm.store([da.ones((4, 2))] * 2, [array] * 2)
    with dask.config.set(scheduler="sync"):
        later = cm.store(da.ones((4, 2), chunks=2), array, compute=False)
    with pytest.raises(ChunkmillError, match=ELSEWHERE):
        later.compute()
    array[...] = 1
    with pytest.raises(ChunkError, match=ELSEWHERE):  # and not the fill value
        array.to_dask().compute()


@pytest.mark.usefixtures("other_process")
def test_files_are_written_and_a_lock_that_cannot_travel_is_named(tmp_path):
    cm.to_store(da.ones((4, 2), chunks=(2, 2)), tmp_path / "x", "a", resume=True)
    assert cm.open_array(tmp_path / "x", "a")[...].all()
    assert cm.convert(tmp_path / "x", tmp_path / "y", format="zarr2").n_keys == 2
    assert cm.verify(tmp_path / "x", tmp_path / "y").equal
    assert not [p for p in tmp_path.rglob("*") if "chunkmill" in p.name]
    array = cm.open_array(tmp_path / "x", "a", mode="r+")
    with pytest.raises(TypeError, match=r"cannot be sent to workers .* give lock='auto'"):
        cm.store(da.ones((4, 2)), array, lock=threading.Lock())


@pytest.mark.usefixtures("client")
def test_the_doctor_asks_every_worker(tmp_path):
    report = doctor(tmp_path / "x.zarr")
    assert report.ok, report
    versions = [worker["packages"]["chunkmill"] for worker in report.workers.values()]
    assert versions == [report.environment["packages"]["chunkmill"]] * 2
