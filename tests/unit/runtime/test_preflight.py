"""Checks of workers before a job: what is needed, and who lacks it."""

import pickle
from contextlib import nullcontext
from dataclasses import replace

import dask
import pytest
from support.clusters import FakeClient

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.runtime import preflight
from chunkmill.runtime.preflight import check_client_workers, check_process, check_scheduler, describe_needs
from chunkmill.stores.conflicts import PROBE_PREFIX
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def array(tmp_path):
    return cm.create_array(tmp_path / "x", "a", shape=(4,), dtype="i4", chunks=(2,), format="zarr2")


@pytest.fixture(autouse=True)
def nothing_checked_yet(monkeypatch):
    monkeypatch.setattr(preflight, "_process", preflight._Process())


def test_one_array_speaks_for_those_of_its_kind(array, tmp_path):
    store, like = array.store, {"shape": (9,), "dtype": "i4", "chunks": (2,), "format": "zarr2"}
    same = cm.create_array(store, "b", **like)
    other = cm.create_array(store, "c", **like, codecs="gzip")
    needs = describe_needs("put it", sources=[array, same, other], targets=[array], writes=[LocalStore(tmp_path / "y")])
    assert len(needs.arrays) == 2
    assert [key for _, key, _ in needs.reads] == ["a/.zarray"]
    assert [store.url.rpartition("/")[2] for store in needs.writes] == ["x", "y"]
    assert set(needs.versions) == {"chunkmill", "numcodecs"}


def test_a_fit_process_leaves_no_probe(array, tmp_path):
    needs = describe_needs("put it", sources=[array], targets=[array])
    check_process(pickle.dumps(needs))
    check_scheduler(dask.get, needs)
    assert [key for key in LocalStore(tmp_path / "x").list_prefix("") if key.startswith(PROBE_PREFIX)] == []


def lacks(needs):
    with pytest.raises(JobError) as caught:
        check_process(pickle.dumps(needs))
    assert "give every worker the client's packages" in str(caught.value)
    return caught.value.reason


def test_what_is_lacking_is_named(array, tmp_path):
    needs = describe_needs("put it", sources=[array])
    assert "has numcodecs" in lacks(replace(needs, versions={"numcodecs": "0.0"}))
    assert "instead of 0.0" in lacks(replace(needs, versions={"numcodecs": "0.0"}))
    (tmp_path / "file").touch()
    assert "cannot use a store" in lacks(replace(needs, writes=(LocalStore(tmp_path / "file"),)))
    (tmp_path / "x" / "a" / ".zarray").write_bytes(b"{}")
    assert "finds something else under 'a/.zarray'" in lacks(needs)
    (tmp_path / "x" / "a" / ".zarray").unlink()
    assert "finds nothing under 'a/.zarray'" in lacks(needs)


def test_a_store_of_one_process_is_found_out_from_here():
    """It takes the probe, which is not seen from where the client looks."""
    needs = describe_needs("put it", writes=[MemoryStore()])

    def elsewhere(graph, key):
        return "a-worker", None

    with pytest.raises(JobError, match=r"worker a-worker writes to a memory-store://.* of its own"):
        check_scheduler(elsewhere, needs)


def test_workers_that_lack_the_same_have_one_line(monkeypatch):
    """Each worker had its own, of 900 characters where a codec was missing."""
    monkeypatch.setattr(preflight, "_MAX_SHOWN", 2)
    needs = describe_needs("put it")
    lacking = {f"w{i}": "lacks it" for i in range(7)} | {"x": "fails: " + 900 * "y", "z": "is old"}
    told = r"put it: \n  worker w0 lacks it \(so do 6 more\)\n  worker x fails: y{293}…\n  and 1 more kinds of .*; give"
    with pytest.raises(JobError, match=told):
        preflight._raise_lacking(needs, {name: (name, text) for name, text in lacking.items()}, "probe/")


@pytest.mark.parametrize("dies", [True, False])
def test_a_worker_that_died_is_left_out(dies):
    """The scheduler still knew it when the workers were asked; to connect to it timed out."""

    asked = []

    def identity(n_workers):
        asked.append(n_workers)
        return {"id": "s", "workers": ["b"] if dies and asked[1:] else ["a", "b"]}

    client = FakeClient(identity)
    client.run = lambda *_, **__: {"a": OSError("Timed out trying to connect"), "b": ("b", None)}
    with nullcontext() if dies else pytest.raises(JobError, match="Timed out trying"):
        check_client_workers(client, describe_needs("put it"))


def test_writes_in_this_process_are_not_checked(array, monkeypatch):
    monkeypatch.setattr(preflight, "describe_needs", None)
    with dask.config.set(scheduler="threads"):
        preflight.check_writers([array])


def test_what_a_worker_cannot_unpickle_is_named():
    with pytest.raises(JobError, match="cannot run the tasks: UnpicklingError"):
        check_process(b"no pickle")
