"""Files and folders of reference sets: named, refused, written."""

import copy
import gzip
import json

import pytest
from support.cases import cases
from support.hostile import v2
from support.recording import deaths

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.formats.references.parquet import ParquetReferences
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.files import SetFile, in_memory
from chunkmill.stores.memory import MemoryStore

ARRAY = v2(shape=[4], chunks=[2])[".zarray"].decode()
SET = {"version": 1, "refs": {".zgroup": '{"zarr_format": 2}', "x/.zarray": ARRAY}}


def file_at(url, *, kind=None, record_size=10):
    return SetFile.at(url, None, kind=kind, record_size=record_size)


def references(url="s3://b/f"):
    return parse_reference_json(json.dumps({**SET, "refs": {**SET["refs"], "x/0": [url, 1, 2]}}).encode())


def test_the_name_says_the_kind(tmp_path):
    assert (file_at("memory://x/a.json").kind, file_at("memory://x/a.json").key) == ("json", "a.json")
    assert (file_at("memory://x/a.parq").kind, file_at("memory://x/a.parq").key) == ("parquet", "")
    assert file_at("memory://x/a.parq", kind="json").key == "a.parq"
    assert file_at(tmp_path / "a.json").url.endswith("/a.json")


@pytest.mark.parametrize(("name", "value"), [("kind", "csv"), ("record_size", 0)])
def test_arguments_that_are_wrong(name, value, tmp_path):
    with pytest.raises(ValueError, match=f"={value!r}: expected"):
        file_at(tmp_path / "a.json", **{name: value})
    with pytest.raises(TypeError, match="written to a url"):
        file_at({"refs": {}})
    with pytest.raises(StoreError, match="without adapters"):
        file_at("memory://x.zip|zip:a.json")


@cases("name", ["a.json", "a.json.gz", "a.json.zst", "a.parq"])
def test_written_and_read_back(name, tmp_path):
    pytest.importorskip("pyarrow")
    file = file_at(tmp_path / name, record_size=1)
    file.write(references(), replaces=file.check_free(overwrite=False))
    found = in_memory(open_reference_store(tmp_path / name).references)
    assert found.locate(".zgroup").data == b'{"zarr_format": 2}'
    assert (found.locate("x/0").url, found.locate("x/0").offset, found.locate("x/1")) == ("s3://b/f", 1, None)
    if name.endswith(".gz"):
        assert json.loads(gzip.decompress((tmp_path / name).read_bytes()))["version"] == 1


@pytest.mark.parametrize("name", ["a.json", "a.parq"])
def test_what_must_not_be_replaced(name, tmp_path):
    pytest.importorskip("pyarrow")
    file = file_at(tmp_path / name)
    file.write(references(), replaces=None)
    with pytest.raises(StoreError, match="overwrite=True"):
        file.check_free(overwrite=False)
    file.check_free(overwrite=True)
    with pytest.raises(StoreError, match="the target is the source"):
        file.check_free(overwrite=True, source=file.url)
    other = tmp_path / ("other.json" if name == "a.json" else "other")
    if name == "a.json":
        other.write_text("[1, 2]")
    else:
        other.mkdir()
        (other / "file").write_text("x")
    with pytest.raises(StoreError, match="not a reference set"):
        file_at(other).check_free(overwrite=True)


def _shown(url):
    return in_memory(open_reference_store(url).references).locate("x/0").url


@cases("replaces", [False, True])
@cases("name", ["a.json", "a.parq"])
def test_what_others_wrote_meanwhile_stays(name, replaces, tmp_path):
    """The later of two replaced the finished one."""
    pytest.importorskip("pyarrow")
    file = file_at(tmp_path / name)
    if replaces:
        file.write(references(), replaces=None)
    seen = file.check_free(overwrite=replaces)
    file.write(references("s3://b/other"), replaces=seen)
    with pytest.raises(StoreError, match="others have written there since"):
        file.write(references(), replaces=seen)
    assert _shown(tmp_path / name) == "s3://b/other"


def test_what_others_write_at_the_last_moment_stays(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    file = SetFile(MemoryStore(), "", "parquet", 10)
    file.write(references(), replaces=None)
    monkeypatch.setattr(MemoryStore, "can_replace", lambda *_: False)
    monkeypatch.setattr("chunkmill.references.files.swap", lambda *_: False)
    with pytest.raises(StoreError, match="others have written there since"):
        file.write(references("s3://b/other"), replaces=file.check_free(overwrite=True))
    assert ParquetReferences(file.store.get).locate("x/0").url == "s3://b/f"


def test_a_store_that_was_made_meanwhile_stays(tmp_path):
    """Its consolidated metadata were replaced by those of the set."""
    file = file_at(tmp_path / "a.parq")
    cm.create_array(tmp_path / "a.parq", "a", shape=(4,), dtype="i4", format="zarr2")
    cm.consolidate(tmp_path / "a.parq")
    with pytest.raises(StoreError, match="others have written there since"):
        file.write(references(), replaces=None)
    assert list(cm.open_group(tmp_path / "a.parq")) == ["a"]


@cases("stages", [True, False])
def test_what_cannot_be_written_to_its_end_is_removed(stages, monkeypatch):
    pytest.importorskip("pyarrow")
    file = SetFile(MemoryStore(), "", "parquet", 10)
    file.write(references(), replaces=None)
    before = list(file.store.list_prefix(""))
    monkeypatch.setattr(MemoryStore, "can_replace", lambda *_: stages)
    monkeypatch.setattr(SetFile, "_put", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        file.write(references(), replaces=file.check_free(overwrite=True))
    assert list(file.store.list_prefix("")) == (before if stages else [])


def test_what_killed_writers_left_next_to_a_file_is_removed(monkeypatch):
    swept = []
    monkeypatch.setattr(MemoryStore, "sweep", lambda _, prefix, **options: swept.append((prefix, options)))
    SetFile(MemoryStore(), "a/b.json", "json", 10).write(references(), replaces=None)
    assert swept == [("a/", {"recursive": False})]


@cases("old", [False, True])
@cases("stages", [True, False])
def test_a_writer_that_dies_anywhere(stages, old, all_died, monkeypatch):
    """Nothing was left of the old set, and what was half written was refused ever after."""
    pytest.importorskip("pyarrow")
    if not stages:
        monkeypatch.setattr(MemoryStore, "can_replace", lambda *_: False)

    def write(store, given, *, overwrite):
        file = SetFile(store, "", "parquet", 10)
        file.write(given, replaces=file.check_free(overwrite=overwrite))

    def shown(store):
        return ParquetReferences(store.get).locate("x/0").url

    n, before = 0, MemoryStore()
    if old:
        write(before, references("s3://b/other"), overwrite=False)
    for store in deaths(lambda: copy.copy(before), lambda dying: write(dying, references(), overwrite=old)):
        is_there = store.get(".zmetadata") is not None
        assert is_there or not (old and stages)
        assert not is_there or shown(store) in ({"s3://b/other", "s3://b/f"} if old else {"s3://b/f"})
        write(store, references(), overwrite=is_there)
        assert shown(store) == "s3://b/f"
        n += 1
    assert n > 2  # heartbeat, plan, set
