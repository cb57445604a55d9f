"""What is found out about a store by a scratch key, what is unsafe about it, and that nothing stays there."""

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


def test_a_store_that_compares_no_versions_is_unsafe(store):
    report = doctor(UnfencedStore(store))
    assert not report.ok
    assert report.store.compares_versions is False
    (finding,) = report.findings
    assert finding.kind == "unsafe"
    assert "lock" in finding.what


def test_a_store_that_cannot_be_written_is_an_error_and_is_read(store):
    report = doctor(FailingStore(store, 1, ["set", "set_if"]))
    assert [each.kind for each in report.findings] == ["error"]
    assert report.store.writable is False
    assert report.store.read_seconds is not None


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
