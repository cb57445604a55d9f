"""Sets over plain stores, other sets and zip files: where their ranges point, and what the report counts."""

import json
import zipfile

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import StoreError, UnsupportedFeature
from chunkmill.references.write import ReferencesReport, describe_referenced, nodes_in_set, strip_containers
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.zip import ZipStore


def make(url, path="a", **more):
    array = cm.create_array(url, path, **{"shape": (8,), "dtype": "i4", "chunks": (2,), "codecs": "raw"} | more)
    array[:6] = np.arange(1, 7)
    return array


def refs(path):
    return json.loads(path.read_text())["refs"]


@pytest.fixture
def source(tmp_path):
    make(tmp_path / "source", shards=(4,))
    return tmp_path / "source"


def test_ranges_of_shards(source, tmp_path):
    report = cm.to_references(source, tmp_path / "set.json", progress=False)
    assert (report.n_references, report.n_inline, report.n_absent, report.n_arrays) == (3, 0, 1, 1)
    assert report.bytes_referenced == 3 * 8
    found = refs(tmp_path / "set.json")
    assert sorted(entry[1:] for key, entry in found.items() if key.startswith("a/") and "." not in key) == [
        [0, 8], [0, 8], [8, 8],
    ]  # fmt: skip
    np.testing.assert_array_equal(cm.open_array(tmp_path / "set.json", "a")[...], [1, 2, 3, 4, 5, 6, 0, 0])


def test_ranges_through_a_set_point_into_its_source(source, tmp_path):
    cm.to_references(source, tmp_path / "one.json", progress=False)
    report = cm.to_references(tmp_path / "one.json", tmp_path / "two.json", progress=False)
    assert report.n_references == 3
    assert refs(tmp_path / "one.json")["a/2"] == refs(tmp_path / "two.json")["a/2"]


def test_chunks_that_a_set_holds_stay_in_it(tmp_path):
    make(tmp_path / "x.n5", shape=(7,), format="n5")
    cm.open_array(tmp_path / "x.n5", "a", mode="r+")[6:] = 9
    one = cm.to_references(tmp_path / "x.n5", tmp_path / "one.json", progress=False)
    two = cm.to_references(tmp_path / "one.json", tmp_path / "two.json", progress=False)
    for report in (one, two):
        assert (report.n_references, report.n_inline, report.bytes_inline) == (3, 1, 8)
    np.testing.assert_array_equal(cm.open_array(tmp_path / "two.json", "a")[...], [1, 2, 3, 4, 5, 6, 9])


def test_members_of_a_zip_file(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_STORED) as archive:
        make(tmp_path / "x")
        for file in sorted((tmp_path / "x").rglob("*")):
            if file.is_file():
                info = zipfile.ZipInfo(str(file.relative_to(tmp_path / "x")))
                info.extra = b"\x99\x99\x04\x00abcd"  # a member's header has more than its name
                archive.writestr(info, file.read_bytes())
    cm.to_references(tmp_path / "x.zip", tmp_path / "set.json", progress=False)
    url, offset, length = refs(tmp_path / "set.json")["a/1"]
    assert url.endswith("x.zip")
    assert length == 8
    np.testing.assert_array_equal(np.frombuffer((tmp_path / "x.zip").read_bytes()[offset : offset + 8], "<i4"), [3, 4])
    monkeypatch.setattr(ZipStore, "locate", lambda *_: None)
    with pytest.raises(StoreError, match=r"'a/c/0'.*it was deleted while it was read"):
        cm.to_references(tmp_path / "x.zip", tmp_path / "gone.json", progress=False)


def test_at_a_path_of_the_set(source, tmp_path):
    cm.to_references((source, "a"), (tmp_path / "set.json", "in/b"), progress=False)
    group = cm.open_group(tmp_path / "set.json")
    assert group["in/b"].shape == (8,)


def test_nothing_is_looked_up_before_arguments_are_right(source, tmp_path):
    with pytest.raises(ValueError, match="zarr_format"):
        cm.to_references(source, tmp_path / "set.json", zarr_format=4)
    (tmp_path / "set.json").write_text("{")
    with pytest.raises(StoreError, match="not a reference set"):
        cm.to_references(source, tmp_path / "set.json")


def test_a_report(source, tmp_path):
    pytest.importorskip("pyarrow")
    report = cm.to_references((source, "a"), tmp_path / "set.parq", progress=False)
    assert isinstance(report, ReferencesReport)
    assert {**report.to_dict(), "seconds": 0} == {
        "source": f"file://{source}/a", "target": f"file://{tmp_path}/set.parq", "kind": "parquet",
        "node_format": "zarr2", "n_arrays": 1, "n_references": 3, "n_inline": 0, "n_absent": 1, "bytes_referenced": 24,
        "bytes_inline": 0, "n_tasks": 2, "n_requests": 4, "bytes_read": 72, "seconds": 0,
    }  # fmt: skip
    assert "3 chunks, 24 B" in str(report)


def test_arrays_below_folders_without_a_document_are_in_the_set(tmp_path):
    make(tmp_path / "x", "g/h/a")
    for folder in ("g", "g/h"):
        (tmp_path / "x" / folder / "zarr.json").unlink()
    assert cm.to_references(tmp_path / "x", tmp_path / "set.json", progress=False).n_arrays == 1
    assert list(cm.open_group(tmp_path / "set.json", "g/h")) == ["a"]


def make_described(path="a", **more):
    url = f"memory://describe/{np.random.default_rng().integers(2**60)}"
    return cm.create_array(url, path, **{"shape": (5, 4), "dtype": "f4", "chunks": (2, 2)} | more)


def described(array, *, complete=()):
    stripped = strip_containers({"a": array})
    documents_format, metadata = describe_referenced(stripped, None, complete)
    return documents_format.name, metadata["a"], stripped["a"].container


def test_v3_where_v2_cannot_hold_it():
    name, _, _ = described(make_described(dtype="f4", codecs="zstd", dimension_names=["y", None]))
    assert name == "zarr3"


def test_few_absent_chunks_are_stored_where_the_fill_value_is_none_for_missing_elements(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("chunkmill.references.write._MAX_ABSENT_BYTES", 80)  # of five chunks
    source = tmp_path / "x.zarr"
    for path, shape in (("g/few", (5, 4)), ("g/many", (6, 4)), ("g/scalar", ())):
        made = cm.create_array(
            source, path, shape=shape, dtype="i4", chunks=(2, 2)[: len(shape)], fill_value=5, codecs="gzip"
        )
        if path == "g/few":
            made[:2, :2] = 7
    report = cm.to_references((source, "g/few"), tmp_path / "few.parquet")
    assert (report.node_format, report.n_references, report.n_inline, report.n_absent) == ("zarr2", 1, 5, 0)
    assert np.array_equal(cm.open_array(tmp_path / "few.parquet")[...], cm.open_array(source, "g/few")[...])
    assert cm.open_array(tmp_path / "few.parquet").fill_value is None
    assert cm.to_references((source, "g/scalar"), tmp_path / "scalar.json").n_inline == 1
    assert cm.open_array(tmp_path / "scalar.json")[...] == 5
    assert cm.to_references((source, "g/many"), tmp_path / "many.json").node_format == "zarr3"
    with pytest.raises(UnsupportedFeature, match=r"absent chunks of .*5.*JSON"):
        cm.to_references((source, "g/many"), tmp_path / "many.parquet")
    assert not (tmp_path / "many.parquet").exists()
    assert cm.to_references((source, "g/many"), tmp_path / "many.parquet", zarr_format=3).node_format == "zarr3"


def test_a_codec_that_zarr_has_not():
    with pytest.raises(UnsupportedFeature, match="lz4"):
        described(make_described(format="n5", codecs=[{"name": "n5_lz4", "configuration": {}}]))


@cases(
    ("fill", "marker", "complete", "expected"),
    [
        (0, None, False, ("zarr2", "None")), (-0.0, None, False, ("zarr3", "-0.0")), (5, None, False, ("zarr3", "5.0")),
        (5, 5, False, ("zarr2", "5.0")), (5, 6, False, ("zarr3", "5.0")), (5, "NaN", False, ("zarr3", "5.0")),
        ("NaN", None, False, ("zarr2", "nan")), ("NaN", "NaN", False, ("zarr2", "nan")),
        ("NaN", 5, False, ("zarr3", "nan")),
        (5, None, True, ("zarr2", "None")), (5, 6, True, ("zarr2", "6.0")), (0, 6, False, ("zarr3", "0.0")),
    ],
)  # fmt: skip
def test_what_stands_for_missing_elements(fill, marker, complete, expected):
    """The fill value of Zarr v2 does for xarray; in other formats the attribute alone."""
    attributes = {} if marker is None else {"_FillValue": marker}
    array = make_described(fill_value=float(fill), attributes=attributes)
    name, metadata, _ = described(array, complete={"a"} if complete else ())
    shown = metadata.fill_value if metadata.fill_value is None else float(metadata.fill_value)
    assert (name, repr(shown)) == expected
    stripped = strip_containers({"a": array})
    assert describe_referenced(stripped, 2, {"a"} if complete else ())[0].name == "zarr2"  # as it was asked for


@cases("kind", ["memory", "dict", "zarr-python", "pipeline"])
def test_stores_whose_urls_are_no_fsspec_urls_are_refused(tmp_path, kind):
    where = {} if kind == "dict" else MemoryStore()
    if kind == "zarr-python":
        where = pytest.importorskip("zarr").storage.MemoryStore()
    array = cm.create_array(where, "a", shape=(4,), dtype="i4", chunks=(2,))
    if kind == "pipeline":
        array.store.url = "file:///repo|icechunk://branch.main/"
    with pytest.raises(UnsupportedFeature, match=r"references into .*://.* (write it|convert the array) to"):
        cm.to_references(array, (tmp_path / "a.json", "a"))
    assert not list(tmp_path.iterdir())


def test_of_chunks_of_unequal_length_parquet_recommends_json_alone(tmp_path):
    cm.create_array(tmp_path / "x.zarr", "a", shape=(4,), dtype="i4", chunks=((1, 3),))[...] = np.arange(4)
    with pytest.raises(UnsupportedFeature, match=r"chunks of unequal length.*write JSON, which holds Zarr v3$"):
        cm.to_references(tmp_path / "x.zarr", tmp_path / "a.parquet")
    cm.to_references(tmp_path / "x.zarr", tmp_path / "a.json")
    assert cm.open_array(tmp_path / "a.json", "a")[...].tolist() == [0, 1, 2, 3]
    with pytest.raises(UnsupportedFeature, match="zarr2 does not support chunks of unequal length"):
        cm.to_references(tmp_path / "x.zarr", tmp_path / "b.json", zarr_format=2)


def test_nodes_of_a_set(store):
    cm.create_group(store, "g", attributes={"x": 1})
    cm.create_array(store, "g/a", shape=(5,), dtype="i4", chunks=(2,))
    groups, arrays = nodes_in_set(cm.open_group(store, "g").stored, "/top/in/")
    assert (list(groups), groups["top/in"].attributes) == (["", "top", "top/in"], {"x": 1})
    assert list(arrays) == ["top/in/a"]
    assert list(nodes_in_set(cm.open_array(store, "g/a").stored, "b")[1]) == ["b"]
