"""Sets over every format: fsspec's reference filesystem with zarr-python, kerchunk's xarray engine and chunkmill read them."""

import json

import dask
import fsspec
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import ChunkError
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
    "zarr2 nested": {"format": "zarr2", "codecs": "blosc"},
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


def make(url, kind="zarr2", path="g/a", dtype="int16", **kwargs):
    """Write an array with some absent chunks, and return its values."""
    options = {"shape": SHAPE, "chunks": CHUNKS, "dtype": dtype, "dimension_names": ["y", "x"]} | SOURCES[kind] | kwargs
    cm.create_group(url, format=options["format"], attributes={"title": "t"}, overwrite=True)
    array = cm.create_array(url, path, attributes={"units": "K"}, **options)
    values = np.arange(np.prod(array.shape), dtype=dtype).reshape(array.shape) + 1
    if array.ndim > 1:
        values[:3, :2] = values[3:6, 6:] = array.fill_value
    array[...] = values
    return values


def peer_group(url, group="", zarr_format=2):
    """Open a set as kerchunk's readers do."""
    fo = str(url)
    if not fo.endswith(".json"):
        from fsspec.implementations.reference import LazyReferenceMapper

        fo = LazyReferenceMapper(fo, engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=fo, remote_protocol="file", asynchronous=True)
    store = zarr.storage.FsspecStore(fs, path="", read_only=True)
    return zarr.open_group(store, path=group, mode="r", zarr_format=zarr_format, use_consolidated=False)


def check_peer(url, values, zarr_format=2):
    array = peer_group(url, "g", zarr_format)["a"]
    np.testing.assert_array_equal(array[...], values, strict=False)
    assert array.attrs["units"] == "K"
    return array


def test_json_and_parquet(tmp_path, subtests):
    pytest.importorskip("pyarrow")
    for kind in SOURCES:
        with subtests.test(kind):
            folder = tmp_path / kind
            values = make(folder / "source", kind)
            report = to_references(folder / "source", folder / "refs.json")
            check_peer(folder / "refs.json", values, {"zarr2": 2, "zarr3": 3}[report.node_format])
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
            assert cm.verify(folder / "source", folder / "refs").equal
            np.testing.assert_array_equal(cm.open_array(folder / "refs", "g/a")[...], values)


@pytest.mark.parametrize("as_what", ["v1", "parquet"])
def test_kerchunk_s_xarray_engine(as_what, tmp_path, subtests):
    pytest.importorskip("kerchunk")
    xr = pytest.importorskip("xarray")
    for kind in SOURCES:
        with subtests.test(kind):
            folder = tmp_path / kind
            values = make(folder / "source", kind, path="t", **({"shape": (6, 8)} if as_what == "parquet" else {}))
            if as_what == "parquet":
                pytest.importorskip("pyarrow")
                from fsspec.implementations.reference import LazyReferenceMapper

                values += 1 - values.min()  # no chunk absent: see above
                cm.open_array(folder / "source", "t", mode="r+")[...] = values
                to_references(folder / "source", folder / "refs", record_size=4)
                refs = LazyReferenceMapper(str(folder / "refs"), engine="pyarrow")
            else:
                to_references(folder / "source", folder / "refs.json")
                refs = str(folder / "refs.json")
            options = {"storage_options": {"remote_protocol": "file"}, "open_dataset_options": {"chunks": None}}
            with xr.open_dataset(refs, engine="kerchunk", **options) as dataset:
                assert dataset["t"].dims == ("y", "x")
                assert dataset.attrs["title"] == "t"
                if kind.startswith("zarr2"):  # where the fill value marks missing elements
                    values = np.where(values == 0, np.nan, values)
                np.testing.assert_array_equal(dataset["t"].values, values)
                assert dataset["t"].dtype == values.dtype or kind.startswith("zarr2")


@pytest.mark.parametrize(
    ("options", "complete", "expected"),
    [
        ({"fill_value": 0}, False, (2, None)),
        ({"fill_value": 0}, True, (2, None)),
        ({"fill_value": float("nan")}, False, (2, "NaN")),
        ({"fill_value": -9}, True, (2, None)),
        ({"fill_value": -9}, False, (2, None)),  # absent chunks are stored: xarray would take -9 for missing
        ({"fill_value": 0, "attributes": {"_FillValue": NAN}}, True, (2, "NaN")),
        ({"fill_value": 0, "attributes": {"_FillValue": NAN}}, False, (2, "NaN")),
        ({"fill_value": float("nan"), "attributes": {"_FillValue": NAN}}, False, (2, "NaN")),
        ({"fill_value": -9, "attributes": {"_FillValue": "AAAAAAAAIsA="}}, False, (2, -9.0)),
        ({"fill_value": -9, "format": "zarr2"}, False, (2, -9.0)),
    ],
    ids=str,
)
def test_xarray_reads_the_same_through_the_set(options, complete, expected, tmp_path):
    xr = pytest.importorskip("xarray")
    options = {"format": "zarr3"} | options
    cm.create_group(tmp_path / "source", format=options["format"])
    a = cm.create_array(
        tmp_path / "source", "t", shape=(6,), chunks=(2,), dtype="f4", dimension_names=["x"], codecs="gzip", **options
    )
    a[:4] = [0, 1, -9, 5]
    if complete:
        a[4:] = [7, np.nan]
    to_references(tmp_path / "source", tmp_path / "refs.json")
    refs = json.loads((tmp_path / "refs.json").read_text())["refs"]
    version, fill = expected
    document = json.loads(refs["t/.zarray" if version == 2 else "t/zarr.json"])
    assert document["fill_value"] == fill
    assert cm.verify(tmp_path / "source", tmp_path / "refs.json").equal
    fs = fsspec.filesystem("reference", fo=str(tmp_path / "refs.json"), remote_protocol="file", asynchronous=True)
    store = zarr.storage.FsspecStore(fs, path="", read_only=True)
    with (
        xr.open_dataset(tmp_path / "source", engine="zarr", consolidated=False) as direct,
        xr.open_zarr(store, zarr_format=version, consolidated=False, chunks=None) as through,
    ):
        np.testing.assert_array_equal(through["t"].values, direct["t"].values)


@pytest.mark.parametrize("codecs", ["gzip", "zstd"])
def test_nested_shards_are_opened_one_level(codecs, tmp_path):
    inner = {"chunk_shape": [1, 2], "codecs": [BYTES, GZIP], "index_codecs": [BYTES], "index_location": "start"}
    outer = {
        "chunk_shape": [3, 2],
        "codecs": [{"name": "sharding_indexed", "configuration": inner}],
        "index_codecs": [BYTES, {"name": "crc32c", "configuration": {}}],
    }
    cm.create_group(tmp_path / "source")
    chain = [{"name": "sharding_indexed", "configuration": outer}]
    a = cm.create_array(tmp_path / "source", "a", shape=(7, 5), chunks=(6, 4), dtype="i4", codecs=chain)
    a[...] = np.arange(35).reshape(7, 5)
    report = to_references(tmp_path / "source", tmp_path / "refs.json")
    assert report.node_format == "zarr3"
    assert cm.open_array(tmp_path / "refs.json", "a").shards == (3, 2)
    assert cm.verify(tmp_path / "source", tmp_path / "refs.json").equal
    np.testing.assert_array_equal(peer_group(tmp_path / "refs.json", zarr_format=3)["a"][...], a[...])


def test_a_compressed_shard_stays_one_reference(tmp_path):
    cm.create_group(tmp_path / "source")
    sharding = {"chunk_shape": [2], "codecs": [BYTES], "index_codecs": [BYTES], "index_location": "end"}
    chain = [{"name": "sharding_indexed", "configuration": sharding}, GZIP]
    a = cm.create_array(tmp_path / "source", "a", shape=(8,), chunks=(4,), dtype="i4", codecs=chain)
    a[...] = np.arange(8)
    assert to_references(tmp_path / "source", tmp_path / "refs.json").n_references == 2
    assert cm.verify(tmp_path / "source", tmp_path / "refs.json").equal


class TestN5:
    def test_padded_end_blocks_are_referenced(self, tmp_path):
        """As zarr-python 2 and tensorstore write them: the header says which."""
        values = make(tmp_path / "source", "n5 raw", shape=(5,), chunks=(3,), path="a", dimension_names=None)
        block = b"\0\0" + b"\0\1" + (3).to_bytes(4, "big") + np.array([*values[3:], 0], ">i2").tobytes()
        (tmp_path / "source" / "a" / "1").write_bytes(block)
        report = to_references(tmp_path / "source", tmp_path / "refs.json")
        assert (report.n_references, report.n_inline) == (2 - report.n_absent, 0)
        assert cm.verify(tmp_path / "source", tmp_path / "refs.json").equal

    def test_mode_1_has_a_longer_header(self, tmp_path):
        make(tmp_path / "source", "n5 raw", shape=(3,), chunks=(3,), path="a", dimension_names=None)
        header = b"\0\1" + b"\0\1" + (3).to_bytes(4, "big") + (3).to_bytes(4, "big")
        (tmp_path / "source" / "a" / "0").write_bytes(header + np.array([7, 8, 9], ">i2").tobytes())
        to_references(tmp_path / "source", tmp_path / "refs.json")
        np.testing.assert_array_equal(cm.open_array(tmp_path / "refs.json", "a")[...], [7, 8, 9])

    def test_a_damaged_header_is_named(self, tmp_path):
        make(tmp_path / "source", "n5 raw")
        (tmp_path / "source" / "g" / "a" / "1" / "1").write_bytes(b"\0\2\0\2" + bytes(20))
        with pytest.raises(ChunkError, match=r"g/a/1/1.*mode 2"):
            to_references(tmp_path / "source", tmp_path / "refs.json")
