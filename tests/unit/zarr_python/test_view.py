"""Nodes of every format, read by zarr-python and xarray through `zarr_store`."""

import numpy as np
import pytest
import xarray as xr
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.zarr_python.zarr_store import zarr_store

zarr = pytest.importorskip("zarr")
from zarr.abc.store import RangeByteRequest, SuffixByteRequest  # noqa: E402
from zarr.core.buffer import default_buffer_prototype  # noqa: E402
from zarr.core.sync import sync  # noqa: E402

X = np.arange(7 * 10, dtype="u2").reshape(7, 10)
PROTOTYPE = default_buffer_prototype()


def stored(place, format_, **options):
    cm.to_store(X, place, "g/a", chunks=(3, 4), format=format_, attributes={"units": "m"}, **options)
    return zarr_store(place)


def value(store, key, part=None):
    found = sync(store.get(key, PROTOTYPE, part))
    return None if found is None else found.to_bytes()


def names(store, prefix):
    async def listed():
        return sorted([name async for name in store.list_dir(prefix)])

    return sync(listed())


CASES = [
    *[("n5", codecs) for codecs in ("raw", "gzip", "zstd", "blosc")],
    *[("zarr2", codecs) for codecs in ("raw", "gzip", "zstd", "blosc")],
    *[("zarr3-draft", codecs) for codecs in ("raw", "gzip", "blosc")],
    ("zarr3", "zstd"),
]


@pytest.mark.parametrize(("format_", "codecs"), CASES, ids="-".join)
def test_zarr_python_reads_equal_values(tmp_path, format_, codecs):
    group = zarr.open_group(stored(tmp_path / "x", format_, codecs=codecs), mode="r")
    assert list(group.group_keys()) == ["g"]
    array = group["g/a"]
    assert (array.shape, array.dtype, array.chunks) == (X.shape, X.dtype, (3, 4))
    assert array.attrs["units"] == "m"
    assert np.array_equal(array[:], X)
    assert np.array_equal(array[2:5, 3], X[2:5, 3])


def test_shards_are_passed_on(tmp_path):
    store = stored(tmp_path / "x", "zarr3", shards=(6, 8))
    array = zarr.open_array(store, path="g/a", mode="r")
    assert array.shards == (6, 8)
    assert np.array_equal(array[:], X)
    assert value(store, "g/a/c/0/0") == (tmp_path / "x/g/a/c/0/0").read_bytes()


def test_blocks_of_n5_are_passed_on_without_their_header(tmp_path):
    store = stored(tmp_path / "x", "n5", codecs="gzip")
    encoded = (tmp_path / "x/g/a/0/1").read_bytes()  # N5's first axis is the last one here
    assert value(store, "g/a/c/1/0") == encoded[12:]


@cases("key", ["", "zarr", "g/a/c", "g/a/c/0", "g/a/c/9/0", "g/a/c/0/0/0", "g/zarr", "c/0", "x/zarr.json"])
def test_what_is_not_there_is_absent(tmp_path, key):
    store = stored(tmp_path / "x", "n5")
    assert value(store, key) is None
    assert not sync(store.exists(key))


def test_absent_chunks_are_absent(tmp_path):
    a = cm.create_array(tmp_path / "x", shape=(8,), dtype="i4", chunks=(2,), format="n5", fill_value=0)
    a[2:4] = 5
    store = zarr_store(tmp_path / "x")
    assert value(store, "c/0") is None
    assert zarr.open_array(store, mode="r")[:].tolist() == [0, 0, 5, 5, 0, 0, 0, 0]
    assert zarr.open_array(store, mode="r").nchunks_initialized == 1


def test_scalars(tmp_path):
    cm.to_store(np.array(7.5), tmp_path / "x", format="zarr2")
    assert zarr.open_array(zarr_store(tmp_path / "x"), mode="r")[()] == 7.5


def test_strings(tmp_path):
    texts = np.array(["a", "bc", "ü"], dtype=np.dtypes.StringDType())
    cm.to_store(texts, tmp_path / "x", format="zarr2", chunks=(2,))
    assert zarr.open_array(zarr_store(tmp_path / "x"), mode="r")[:].tolist() == ["a", "bc", "ü"]


@pytest.mark.parametrize("format_", ["zarr2", "zarr3"])
def test_structured_types_have_the_name_that_zarr_python_3_1_reads(tmp_path, format_):
    values = np.zeros(5, [("a", "<i2"), ("b", "<f4"), ("c", [("d", "?")])])
    values["a"], values["b"], values["c"]["d"] = range(5), 0.5, [True, False, True, False, True]
    cm.to_store(values, tmp_path / "x", format=format_, chunks=(2,), fill_value=values[2])
    array = zarr.open_array(zarr_store(tmp_path / "x"), mode="r")
    assert array[:].tolist() == values.tolist()
    assert array.fill_value == values[2]


def test_xarray_reads_through_its_own_engine(tmp_path):
    ds = xr.Dataset({"v": (("y", "x"), X), "t": ("y", np.arange(7.0))}, attrs={"title": "t"})
    cm.write_dataset(ds, tmp_path / "x", format="n5")
    found = xr.open_zarr(zarr_store(tmp_path / "x"), consolidated=False).load()
    xr.testing.assert_equal(found, ds)
    assert found.attrs == ds.attrs


def test_a_damaged_chunk_names_its_key(tmp_path):
    store = stored(tmp_path / "x", "n5")
    (tmp_path / "x/g/a/0/0").write_bytes(b"no block")
    with pytest.raises(cm.ChunkmillError, match="g/a/0/0"):
        zarr.open_array(store, path="g/a", mode="r")[:]


def test_folders_without_a_document_are_groups(tmp_path):
    cm.to_store(X, tmp_path / "x", "g/a", chunks=(3, 4), format="zarr2")
    (tmp_path / "x/g/.zgroup").unlink()
    group = zarr.open_group(zarr_store(tmp_path / "x"), mode="r")
    assert [*group.group_keys()] == ["g"]
    assert np.array_equal(group["g/a"][:], X)


def test_reference_sets(tmp_path):
    cm.to_store(X, tmp_path / "x", "g/a", chunks=(3, 4), format="n5", codecs="gzip")
    cm.to_references(tmp_path / "x", tmp_path / "refs.json")
    store = zarr_store(tmp_path / "refs.json")
    assert np.array_equal(zarr.open_array(store, path="g/a", mode="r")[:], X)


def test_an_archive_by_a_url_pipeline(tmp_path):
    cm.to_store(X, tmp_path / "x.zip", "g/a", chunks=(3, 4), format="n5")
    assert np.array_equal(zarr.open_array(zarr_store(f"{tmp_path}/x.zip|zip:|n5:g"), path="a", mode="r")[:], X)


def test_a_node_that_cannot_be_opened_hides_no_other(tmp_path):
    stored(tmp_path / "x", "n5")
    cm.to_store(X, tmp_path / "x", "g/b", format="n5")
    (tmp_path / "x/g/b/attributes.json").write_text('{"dimensions": [4], "dataType": "u0"}')
    store = zarr_store(tmp_path / "x")
    assert "zarr.json" in names(store, "g")
    assert np.array_equal(zarr.open_array(store, path="g/a", mode="r")[:], X)
    with pytest.raises(cm.ChunkmillError, match=r"u0|blockSize|dataType"):
        value(store, "g/b/zarr.json")


def test_it_is_a_source_and_no_target(tmp_path):
    store = stored(tmp_path / "x", "n5")
    cm.convert(store, tmp_path / "y", format="zarr2")
    assert cm.verify(tmp_path / "x", tmp_path / "y").equal
    with pytest.raises(StoreError, match="for reading only"):
        cm.to_store(X, store, "b")


def test_an_empty_range_is_empty(tmp_path):
    store = stored(tmp_path / "x", "zarr3")
    for part in (SuffixByteRequest(0), RangeByteRequest(3, 3)):
        assert value(store, "g/a/c/0/0", part) == b""
