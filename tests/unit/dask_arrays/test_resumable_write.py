"""`to_store(resume=True)`: what a run has written is not computed again by the next."""

import threading

import dask
import dask.array as da
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.small_jobs import dead_heartbeat

import chunkmill as cm
from chunkmill.errors import JobError, NodeNotFound
from chunkmill.journal.plans import journal_prefix
from chunkmill.journal.records import Record
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

VALUES = np.random.default_rng(0).integers(1, 99, (12, 10)).astype("i4")


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """Blocks that are regrouped are written by many tasks, too."""
    monkeypatch.setattr("chunkmill.dask_arrays.regroup._LEAST_BYTES", 1)


class Source:
    """A dask array of 20 blocks that counts which of them are computed, and fails at some."""

    def __init__(self, fails=(), name="values", values=VALUES):
        self.computed: list[tuple[int, int]] = []
        self.fails = set(fails)
        self.lock = threading.Lock()
        self.values = values
        self.x = da.map_blocks(
            self._block, chunks=((3,) * 4, (2,) * 5), dtype="i4", meta=np.empty((0, 0), "i4"), name=name
        )

    def __dask_tokenize__(self):
        return "a source"

    def _block(self, block_info=None):
        i, j = block_info[None]["chunk-location"]
        with self.lock:
            if (i, j) in self.fails:
                raise RuntimeError("no such luck")
            self.computed.append((i, j))
        return self.values[3 * i : 3 * i + 3, 2 * j : 2 * j + 2]


def write(source, store, **kwargs):
    return cm.to_store(source.x, store, "a", **{"resume": True} | kwargs)


def fail_half_way(store, n=1, **kwargs):
    source = Source([(i, 4) for i in range(n)], **{k: kwargs.pop(k) for k in ("name", "values") if k in kwargs})
    with dask.config.set(scheduler="sync"), pytest.raises(RuntimeError, match="no such luck"):
        write(source, store, **kwargs)
    return source


def traces(store):
    return [key for key in store.list_prefix("") if key.startswith(".chunkmill")]


@cases("layout", [{}, {"shards": (6, 4), "chunks": (3, 2)}, {"chunks": (5, 4)}])
def test_only_what_was_not_written_is_computed(tmp_path, capsys, layout):
    store = LocalStore(tmp_path)
    fail_half_way(store, **layout)
    with pytest.raises(NodeNotFound):
        cm.open_array(store, "a")
    (job,) = unfinished_jobs(store)
    assert job.path == "a"
    n_done = len([key for key in traces(store) if not key.endswith("plan.json")])
    second = Source()
    report = write(second, store, **layout)
    assert report.n_resumed == n_done > 0
    assert capsys.readouterr() == ("", "")  # no bars
    assert str(report).startswith(f"write: done\n  store keys                {report.n_keys}, of which 0 hold only ")
    assert str(report).endswith(f"\n  blocks of an earlier run  {n_done}")
    if "chunks" not in layout:  # blocks are store keys
        assert len(second.computed) == report.n_keys == 20 - n_done
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], VALUES)
    assert traces(store) == []
    assert cm.check(store).problems == ()


@cases("lost", ["emptied", "deleted", "record"])
def test_what_a_crash_of_the_machine_has_lost_is_written_again(tmp_path, lost):
    """A file's name may outlive its bytes."""
    store = LocalStore(tmp_path)
    fail_half_way(store)
    records = [key for key in traces(store) if not key.endswith("plan.json")]
    if lost == "record":
        store.set(records[0], b"")
    else:
        (key,) = Record.unpack(store.get(records[0])).written
        (tmp_path / key).write_bytes(b"") if lost == "emptied" else store.delete(key)
    report = write(Source(), store)
    assert (report.n_resumed, report.n_keys) == (len(records) - 1, 21 - len(records))
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], VALUES)
    assert traces(store) == []


def test_blocks_of_fill_are_done_too():
    """Nothing is stored for them, and they are not computed again: the record says so."""
    store = MemoryStore()
    zeros = np.zeros_like(VALUES)
    fail_half_way(store, values=zeros)
    last = Source(values=zeros)
    report = write(last, store)
    assert report.n_resumed > 0
    assert len(last.computed) == 20 - report.n_resumed
    assert list(store.list_prefix("a/c/")) == []


def test_a_client_that_is_silent_is_watched_before_its_write_is_discarded(store, monkeypatch):
    old = filled(VALUES - 1, store, "a")
    fail_half_way(store, mode="w")
    beat = dead_heartbeat().replace(b'"host": "', b'"host": "elsewhere-')
    store.set(f"{journal_prefix('a')}running-x", beat)
    monkeypatch.setattr("chunkmill.journal.heartbeat.HEARTBEAT_SECONDS", 0.1)
    cm.to_store(VALUES, old)
    assert traces(store) == []
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], VALUES)


def test_another_source_is_refused():
    store = MemoryStore()
    fail_half_way(store)
    before = {key: store.get(key) for key in store.list_prefix("")}
    with pytest.raises(JobError, match=r"another plan.*resume=False.*identified by its name.*'other'"):
        write(Source(name="other"), store)
    for other in ({"codecs": "gzip"}, {"chunks": (4, 2)}, {"format": "zarr2"}, {"fill_value": 3}):
        with pytest.raises(JobError, match="another plan"):
            write(Source(), store, **other)
    assert {key: store.get(key) for key in store.list_prefix("")} == before


def test_nothing_is_written_once_it_has_failed(tmp_path):
    """Dask raises while others are at work: they are waited for, and none that computes longer may write."""
    computing, failed = threading.Event(), threading.Event()

    def block(block_info=None):
        if block_info[None]["chunk-location"] == (0,):
            computing.wait(5)
            raise RuntimeError("no such luck")
        computing.set()
        failed.wait(5)
        return np.ones(2)

    x = da.map_blocks(block, chunks=((2, 2),), dtype="f8", meta=np.empty(0))
    for resume in (False, True):
        computing.clear()
        failed.clear()
        with dask.config.set(scheduler="threads", num_workers=2), pytest.raises(RuntimeError, match="no such luck"):
            cm.to_store(x, tmp_path, "a", mode="w", resume=resume)
        failed.set()
        threading.Event().wait(0.3)
        assert not list((tmp_path / "a").rglob("*") if (tmp_path / "a").exists() else [])
        if resume:
            cm.to_store(da.ones(4, chunks=2), tmp_path, "a", mode="w")
            assert traces(LocalStore(tmp_path)) == []


def test_only_whole_arrays_and_now(tmp_path):
    cm.create_array(tmp_path, "a", shape=(4,), dtype="i4", chunks=(2,))
    x = da.ones(2, dtype="i4")
    with pytest.raises(ValueError, match="whole arrays and now"):
        cm.to_store(x, tmp_path, "a", region=(slice(0, 2),), resume=True)
    with pytest.raises(ValueError, match="whole arrays and now"):
        cm.to_store(x, tmp_path, "b", compute=False, resume=True)
