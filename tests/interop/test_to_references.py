"""Sets over every format: fsspec's reference filesystem with zarr-python, kerchunk's xarray engine and chunkmill read them."""

import json

import dask
import fsspec
import numpy as np
import pytest
from fsspec.implementations.reference import LazyReferenceMapper
from interop.peers import references

import chunkmill as cm
from chunkmill.errors import ChunkError
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.write import to_references

zarr = pytest.importorskip("zarr")

# fsspec warns of its own wrapper of synchronous filesystems, zarr of numcodecs' filters
pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE, CHUNKS, SHARDS = (11, 9), (3, 2), (6, 4)

TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}

NAN = "AAAAAAAA+H8="  # as xarray writes the attribute _FillValue

SOURCES = {
    "zarr2": {"format": "zarr2", "codecs": "zstd"},
    "zarr3": {"format": "zarr3", "codecs": "blosc"},
    "zarr3 crc32c": {"format": "zarr3", "codecs": [BYTES, GZIP, {"name": "crc32c", "configuration": {}}]},
    "zarr3 transposed": {"format": "zarr3", "codecs": [TRANSPOSE, BYTES, GZIP]},
    "sharded": {"format": "zarr3", "shards": SHARDS, "codecs": "gzip"},
    "sharded transposed": {"format": "zarr3", "shards": SHARDS, "codecs": [TRANSPOSE, BYTES, GZIP]},
    "sharded raw": {"format": "zarr3", "shards": SHARDS, "codecs": "raw"},
    "draft": {"format": "zarr3-draft", "codecs": "gzip"},
    "n5 raw": {"format": "n5", "codecs": "raw"},
    "n5 gzip": {"format": "n5", "codecs": "gzip"},
    "n5 zlib": {"format": "n5", "codecs": [{"name": "numcodecs.zlib", "configuration": {"level": 3}}]},
    "n5 bzip2": {"format": "n5", "codecs": [{"name": "numcodecs.bz2", "configuration": {"level": 9}}]},
    "n5 xz": {"format": "n5", "codecs": [{"name": "numcodecs.lzma", "configuration": {"preset": 6}}]},
    "n5 blosc": {"format": "n5", "codecs": "blosc"},
    "n5 zstd": {"format": "n5", "codecs": "zstd"},
}


@pytest.fixture(autouse=True)
def scheduler():
    with dask.config.set(scheduler="threads"):
        yield


def make(url, kind, path="g/a"):
    """Write an array with some absent chunks, and return its values."""
    options = {"chunks": CHUNKS, "dimension_names": ["y", "x"], "attributes": {"units": "K"}} | SOURCES[kind]
    cm.create_group(url, format=options["format"], attributes={"title": "t"})
    values = np.arange(1, 100, dtype="i2").reshape(SHAPE)
    values[:3, :2] = values[3:6, 6:] = 0
    cm.create_array(url, path, shape=SHAPE, dtype="i2", **options)[...] = values
    return values


def check_peer(url, values, zarr_format=2):
    store = references(url)
    array = zarr.open_group(store, path="g", mode="r", zarr_format=zarr_format, use_consolidated=False)["a"]
    np.testing.assert_array_equal(array[...], values, strict=False)
    assert array.attrs["units"] == "K"


def check_parquet(url):
    """Through fsspec, each key that is there has the bytes that we read."""
    mapper = LazyReferenceMapper(str(url), engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=mapper, remote_protocol="file")
    store = open_reference_store(url)
    for key in store.list_prefix("g/"):
        found, expected = fs.cat_file(key), store.get(key)
        assert found == expected or (key[-1].isalpha() and json.loads(found) == json.loads(expected))


def test_json_and_parquet(tmp_path, subtests):
    pytest.importorskip("pyarrow")
    for kind in SOURCES:
        with subtests.test(kind):
            folder = tmp_path / kind
            values = make(folder / "source", kind)
            report = to_references(folder / "source", folder / "refs.json")
            version = {"zarr2": 2, "zarr3": 3}[report.node_format]
            check_peer(folder / "refs.json", values, version)
            opened = cm.open_array(folder / "refs.json", "g/a")
            np.testing.assert_array_equal(opened[...], values)
            assert (opened.chunks, opened.shards) == (CHUNKS, None)
            assert cm.verify(folder / "source", folder / "refs.json").equal
            assert report.n_references + report.n_inline + report.n_absent == 4 * 5
            assert report.n_absent == 3
            inlined = kind.startswith("n5")
            assert report.n_inline == (8 - 1 if inlined else 0)  # the last row and column, one of which is absent
            document = json.loads((folder / "refs.json").read_text())
            refs = document["refs"]
            assert "g/a/0.0" not in refs
            assert all(v[0].startswith(f"file://{folder}/source/") for v in refs.values() if isinstance(v, list))
            assert to_references(folder / "source", folder / "refs", record_size=7).kind == "parquet"
            if version == 2:  # which alone fsspec knows in Parquet
                check_parquet(folder / "refs")
            assert cm.verify(folder / "source", folder / "refs").equal
            np.testing.assert_array_equal(cm.open_array(folder / "refs", "g/a")[...], values)


def test_kerchunk_s_xarray_engine(tmp_path, subtests):
    pytest.importorskip("kerchunk")
    xr = pytest.importorskip("xarray")
    options = {"storage_options": {"remote_protocol": "file"}, "open_dataset_options": {"chunks": None}}
    for kind in SOURCES:
        with subtests.test(kind):
            values = make(tmp_path / kind, kind, path="t")
            to_references(tmp_path / kind, refs := f"{tmp_path / kind}.json")
            with xr.open_dataset(refs, engine="kerchunk", **options) as dataset:
                assert dataset["t"].dims == ("y", "x")
                assert dataset.attrs["title"] == "t"
                if kind.startswith("zarr2"):  # where the fill value marks missing elements
                    values = np.where(values == 0, np.nan, values)
                np.testing.assert_array_equal(dataset["t"].values, values)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"fill_value": 0}, {"fill_value": float("nan")},
        {"fill_value": -9},  # absent chunks are stored: xarray would take -9 for missing
        {"fill_value": 0, "attributes": {"_FillValue": NAN}},
        {"fill_value": float("nan"), "attributes": {"_FillValue": NAN}},
        {"fill_value": -9, "attributes": {"_FillValue": "AAAAAAAAIsA="}}, {"fill_value": -9, "format": "zarr2"},
    ],
    ids=str,
)  # fmt: skip
def test_xarray_reads_the_same_through_the_set(options, complete, tmp_path):
    xr = pytest.importorskip("xarray")
    options = {"format": "zarr3", "chunks": (2,), "dtype": "f4", "dimension_names": ["x"], "codecs": "gzip"} | options
    cm.create_group(tmp_path / "source", format=options["format"])
    a = cm.create_array(tmp_path / "source", "t", shape=(6,), **options)
    a[:4] = [0, 1, -9, 5]
    if complete:
        a[4:] = [7, np.nan]
    assert to_references(tmp_path / "source", tmp_path / "refs.json").node_format == "zarr2"
    with (
        xr.open_dataset(tmp_path / "source", engine="zarr", consolidated=False) as direct,
        xr.open_zarr(references(tmp_path / "refs.json"), zarr_format=2, consolidated=False, chunks=None) as through,
    ):
        np.testing.assert_array_equal(through["t"].values, direct["t"].values)


def test_a_damaged_header_of_n5_is_named(tmp_path):
    make(tmp_path / "source", "n5 raw")
    (tmp_path / "source" / "g" / "a" / "1" / "1").write_bytes(b"\0\2\0\2" + bytes(20))
    with pytest.raises(ChunkError, match=r"g/a/1/1.*mode 2"):
        to_references(tmp_path / "source", tmp_path / "refs.json")
