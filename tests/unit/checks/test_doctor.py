"""What is found out about a store by a scratch key, what is unsafe about it, and that nothing stays there."""

import re
import shutil

import pytest
from support.recording import FailingStore, UnfencedStore

import chunkmill as cm
from chunkmill.checks import doctor as module
from chunkmill.checks.doctor import doctor
from chunkmill.stores.memory import MemoryStore


def test_a_safe_store_has_no_findings_and_nothing_stays(store):
    report = doctor(store)
    assert list(store.list_prefix("")) == []
    assert report.ok
    assert report.store.compares_versions
    assert report.store.writable
    assert report.store.read_seconds >= 0
    assert re.search(r"partial writes +versions are compared\n +small request +\S+ \S*s$", str(report))


def test_a_store_that_compares_no_versions_is_unsafe(store):
    report = doctor(UnfencedStore(store))
    assert not report.ok
    assert report.store.compares_versions is False
    (finding,) = report.findings
    assert finding.kind == "unsafe"
    assert "lock" in finding.what
    assert "guarded by a lock only" in str(report)


@pytest.mark.parametrize(("methods", "said"), [(["set", "set_if"], "written"), (["get"], "read")])
def test_a_store_that_cannot_be_written_or_read_is_an_error(store, methods, said):
    report = doctor(FailingStore(store, 1, methods))
    (finding,) = report.findings
    assert finding.kind == "error"
    assert finding.what.startswith(f"the store cannot be {said}: ")
    assert report.store.writable is (False if said == "written" else None)
    assert (report.store.read_seconds is None) is (said == "read")
    assert "partial writes" not in str(report)


def test_a_store_whose_values_are_seen_half_written_is_unsafe(store):
    store.replaces_atomically = False
    (finding,) = doctor(store).findings
    assert (finding.kind, finding.what) == ("unsafe", "a reader may see a value that is partly written")


def test_slow_requests_are_said(monkeypatch):
    monkeypatch.setattr(module, "_SLOW_SECONDS", -1.0)
    (finding,) = doctor(MemoryStore()).findings
    assert finding.kind == "slow"


def test_a_folder_that_does_not_exist_is_not_made(tmp_path):
    assert doctor(tmp_path / "new" / "x.zarr").store.writable
    assert not (tmp_path / "new").exists()


def test_a_folder_that_exists_stays_as_it_is(tmp_path):
    cm.create_array(tmp_path / "x.zarr", shape=(2,), dtype="u1", chunks=(2,))
    before = sorted((tmp_path / "x.zarr").rglob("*"))
    assert doctor(tmp_path / "x.zarr").store.compares_versions
    assert sorted((tmp_path / "x.zarr").rglob("*")) == before


def test_reference_sets_and_zip_files_are_not_written(tmp_path):
    cm.create_array(tmp_path / "x.zarr", shape=(2,), dtype="u1", chunks=(2,))[...] = 1
    shutil.make_archive(tmp_path / "x", "zip", tmp_path / "x.zarr")
    before = (tmp_path / "x.zip").read_bytes()
    assert doctor(tmp_path / "x.zip").store.kind == "ZipStore"
    assert (tmp_path / "x.zip").read_bytes() == before
    cm.to_references(tmp_path / "x.zarr", tmp_path / "x.json")
    assert doctor(tmp_path / "x.json").store.kind == "reference set"


@pytest.mark.parametrize(
    ("packages", "kind", "said"),
    [({"numcodecs": "0.1"}, "unsafe", "numcodecs 0.1 instead of"), ({"obstore": None}, "error", "lacks obstore")],
    ids=["another version", "a package that is missing"],
)
def test_a_worker_that_differs_is_named(packages, kind, said):
    here = {"packages": {"numcodecs": "0.16", "obstore": "0.11"}}
    theirs = {"packages": here["packages"] | packages}
    (finding,) = module._worker_findings("tcp://a:1", theirs, here)
    assert finding.kind == kind
    assert "tcp://a:1" in finding.what
    assert said in finding.what


class _Cluster:
    """Answers as a client of workers that are as this process, but for one that fails."""

    def __init__(self, n):
        self.n = n

    def scheduler_info(self, n_workers):
        return {"workers": {f"tcp://a:{i}": {} for i in range(min(self.n, n_workers))}}

    def run(self, function, on_error):
        assert on_error == "return"
        return {f"tcp://a:{i}": OSError("no room") if i else function() for i in range(self.n)}


def test_workers_are_asked_one_by_one(monkeypatch):
    monkeypatch.setattr(module, "default_client", lambda: _Cluster(0))
    report = doctor(client=_Cluster(2))
    assert [*report.workers] == ["tcp://a:0"]
    assert re.search(r"\n +workers +1\n", str(report))
    assert [(each.kind, each.what) for each in report.findings] == [("error", "worker tcp://a:1: OSError: no room")]
    assert "the cluster has no workers" in doctor().findings[0].what
