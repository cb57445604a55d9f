"""Virtual chunks of a repository of Icechunk: byte ranges of what is stored elsewhere, written as a reference set is.

By `chunkmill.stores.icechunk_store`.
"""

import json

import numpy as np
import pytest
from support.datasets import repository_of_virtual_chunks

import chunkmill as cm
from chunkmill.errors import NodeExists, StoreError

pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")

X = np.arange(70, dtype="i4").reshape(7, 10)


@pytest.fixture
def repository(tmp_path):
    return repository_of_virtual_chunks(tmp_path)


def values(repository, path):
    return zarr.open_array(repository.readonly_session("main").store, path=path, mode="r")[...]


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("zarr3", {}), ("zarr3", {"shards": (6, 8), "chunks": (3, 4)}), ("zarr3", {"chunk_key_encoding": "."}),
        ("zarr2", {}), ("n5", {"codecs": "gzip"}),
    ],
)  # fmt: skip
def test_chunks_are_read_where_they_are(repository, tmp_path, monkeypatch, format, options):  # noqa: A002
    monkeypatch.setattr("chunkmill.references.files._AT_ONCE", 2)
    source = tmp_path / "data" / "x"
    cm.to_store(X, source, "g/a", **{"chunks": (3, 4), "format": format, "attributes": {"units": "K"}, **options})
    report = cm.to_references(source, repository)
    assert report.kind == "icechunk"
    assert report.n_references + report.n_inline == 9
    assert np.array_equal(values(repository, "g/a"), X)
    assert np.array_equal(cm.open_array(repository, "g/a")[...], X)
    assert cm.open_array(repository, "g/a").attributes["units"] == "K"
    messages = [each.message for each in repository.ancestry(branch="main")]
    assert messages == ["virtual chunks of ''", "Repository initialized"]
    if not report.n_inline:
        locations = repository.readonly_session("main").all_virtual_chunk_locations()
        assert locations
        assert all(each.startswith(f"file://{source}/") for each in locations)


def test_reference_sets_become_virtual_chunks(repository, tmp_path):
    cm.to_store(X, tmp_path / "data" / "x.zarr", "a", chunks=(3, 4))
    cm.to_references(tmp_path / "data" / "x.zarr", tmp_path / "set.json")
    cm.to_references((tmp_path / "set.json", "a"), (repository, "below/b"))
    assert np.array_equal(values(repository, "below/b"), X)
    assert sorted(cm.open_group(repository)) == ["below"]


def test_objects_without_a_length_become_virtual_chunks(repository, tmp_path):
    cm.to_store(X, tmp_path / "data" / "x.zarr", "a", chunks=(3, 4))
    cm.to_references(tmp_path / "data" / "x.zarr", tmp_path / "set.json")
    document = json.loads((tmp_path / "set.json").read_text())
    refs = {key: ref[:1] if isinstance(ref, list) else ref for key, ref in document["refs"].items()}
    (tmp_path / "set.json").write_text(json.dumps({**document, "refs": refs}))
    cm.to_references(tmp_path / "set.json", repository)
    assert np.array_equal(values(repository, "a"), X)


def test_arrays_with_equal_documents_stay(repository, tmp_path):
    for name, written in (("x", X), ("y", X + 1)):
        cm.to_store(written, tmp_path / "data" / f"{name}.zarr", "a", chunks=(3, 4))
    cm.to_references(tmp_path / "data" / "x.zarr", repository)
    with pytest.raises(NodeExists, match="overwrite=True"):
        cm.to_references(tmp_path / "data" / "y.zarr", repository)
    assert np.array_equal(values(repository, "a"), X)
    cm.to_references((tmp_path / "data" / "y.zarr", "a"), (repository, "a"), overwrite=True)
    assert np.array_equal(values(repository, "a"), X + 1)


def test_attributes_of_groups_are_not_lost(repository, tmp_path):
    for name in ("x", "y"):
        source = tmp_path / "data" / f"{name}.zarr"
        cm.create_group(source, attributes={"title": name})
        cm.to_store(X, source, name, chunks=(3, 4))
    cm.to_references(tmp_path / "data" / "x.zarr", repository)
    with pytest.raises(NodeExists):
        cm.to_references(tmp_path / "data" / "y.zarr", repository)
    cm.to_references((tmp_path / "data" / "y.zarr", "y"), (repository, "y"))  # adds an array to the group
    assert cm.open_group(repository).attributes == {"title": "x"}
    assert sorted(cm.open_group(repository)) == ["x", "y"]


def test_places_without_a_container_are_refused(repository, tmp_path):
    cm.to_store(X, tmp_path / "elsewhere.zarr", "a", chunks=(3, 4))
    with pytest.raises(StoreError, match="no virtual chunk container of the repository has file:///"):
        cm.to_references(tmp_path / "elsewhere.zarr", repository)
    assert [each.message for each in repository.ancestry(branch="main")] == ["Repository initialized"]


def test_virtual_chunks_become_chunks(repository, tmp_path):
    cm.to_store(X, tmp_path / "data" / "x.zarr", "a", chunks=(3, 4))
    cm.to_references(tmp_path / "data" / "x.zarr", repository)
    array = cm.open_array(repository, "a", mode="r+")
    array[0, 0] = 9
    assert cm.open_array(repository, "a")[0, 0] == 9
    assert cm.open_array(tmp_path / "data" / "x.zarr", "a")[0, 0] == 0
    cm.convert(repository, tmp_path / "copy.n5", format="n5")
    assert cm.verify(repository, tmp_path / "copy.n5").equal
