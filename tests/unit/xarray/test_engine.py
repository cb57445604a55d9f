"""The xarray engine compared with xarray's own zarr engine, and on formats that the latter cannot open."""

import pickle
import warnings
from pathlib import Path

import dask
import numpy as np
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases
from support.datasets import needs_xarray, read, read_by_xarray, tree, write_temperatures
from support.recording import RecordingStore
from support.servers import serve_files

import chunkmill as cm
from chunkmill.errors import ChunkError, DatasetError, MetadataError, NodeNotFound
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.xarray.backend import ChunkmillBackendEntrypoint
from chunkmill.xarray.write import write_dataset

pytest.importorskip("zarr")

GOLDEN = Path(__file__).parents[2] / "golden"

# xarray, of stores without consolidated metadata
pytestmark = pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated metadata")


def plain(value):
    """Codecs of zarr-python and numcodecs as data, so that they compare."""
    if isinstance(value, (tuple, list)):
        return tuple(map(plain, value))
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if hasattr(value, "get_config"):
        return plain(value.get_config())
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k != "typesize" and v != {}}
    return value


IS_OLDER = tuple(map(int, xr.__version__.split(".")[:2])) < (2026, 9)
UNKNOWN_TO_OLDER = {"fill_value"} if IS_OLDER else set()  # which tells no fill values


def comparable(ds):
    """Return the names of variables that every xarray reads alike: older ones make objects of some text."""
    return [name for name, each in ds.variables.items() if not IS_OLDER or each.dtype.kind not in "OT"]


def assert_same_encoding(ours, theirs, *, but=()):
    but = {*but, *UNKNOWN_TO_OLDER}
    assert ours.keys() - set(but) == theirs.keys() - set(but)
    for key in theirs.keys() - set(but):
        a, b = plain(ours[key]), plain(theirs[key])
        assert a == b or (a != a and b != b) or repr(a) == repr(b), key  # noqa: PLR0124 - NaN


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def written_by_xarray(request, tmp_path_factory):
    return write_temperatures(str(tmp_path_factory.mktemp("zarr") / "t.zarr"), request.param)


# --------------------------------------------------------------------------------------------------------------------
# The same as engine="zarr"


def test_values_attributes_and_encoding_are_those_of_xarrays_engine(written_by_xarray):
    ours, theirs = read(written_by_xarray), read_by_xarray(written_by_xarray)
    xr.testing.assert_identical(ours.load(), theirs.load())
    assert ours.encoding == theirs.encoding
    for name in comparable(theirs):
        assert ours[name].dtype == theirs[name].dtype
        assert_same_encoding(ours[name].encoding, theirs[name].encoding)


OPTIONS = {
    "undecoded": {"decode_cf": False},
    "unmasked": {"mask_and_scale": False},
    "numbers": {"decode_times": False},
    "seconds": {"decode_times": xr.coders.CFDatetimeCoder(time_unit="s")},
    "all_coordinates": {"decode_coords": "all"},
    "no_coordinates": {"decode_coords": False},
    "characters": {"concat_characters": False},
    "drop_one": {"drop_variables": "temperature"},
    "drop_some": {"drop_variables": ["count", "height"]},
    "no_indexes": {"create_default_indexes": False},
    "not_consolidated": {"consolidated": False},
    "consolidated": {"consolidated": True},
    "no_cache": {"cache": False},
}


@cases("options", OPTIONS.values())
def test_xarrays_own_options(written_by_xarray, options):
    xr.testing.assert_identical(
        read(written_by_xarray, **options).load(), read_by_xarray(written_by_xarray, **options).load()
    )


@cases(
    "store",
    ["zarr_v2/xarray-2025.1.2/xarray.zarr", "zarr_v3/xarray-2026.9.0/xarray-v3.zarr", "zarr_v2/hand/nczarr-old.zarr"],
)
def test_golden_stores(store):
    ours, theirs = read(str(GOLDEN / store)), read_by_xarray(str(GOLDEN / store))
    assert theirs.variables
    xr.testing.assert_identical(ours.load(), theirs.load())
    for name in comparable(theirs):  # byte order of storage: ours are native, as are the values of both
        assert_same_encoding(ours[name].encoding, theirs[name].encoding, but=["dtype"])


FILLS = [("f4", np.nan), ("f8", -9999.0), ("i2", -1), ("i4", 0), ("u1", 255), ("i4", None)]
FILLS += [("c8", complex(1, -2)), ("?", True), ("S3", b"xy"), ("U3", "xy")]


@cases(("dtype", "value"), FILLS)
def test_the_fill_value_of_v2_marks_what_is_missing(url, dtype, value):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(url, mode="w", zarr_format=2)
    array = group.create_array("a", shape=(4,), chunks=(2,), dtype=np.dtype(dtype), fill_value=value)
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    array[:2] = np.array([1, 2]).astype(dtype)
    ours, theirs = read(url, consolidated=False), read_by_xarray(url, consolidated=False)
    xr.testing.assert_identical(ours.load(), theirs.load())
    assert_same_encoding(ours.a.encoding, theirs.a.encoding, but=["compressors", "dtype"])


@cases(("dtype", "value"), FILLS)
def test_the_attribute_of_v3_marks_what_is_missing(url, dtype, value):
    if dtype in {"?", "c8"}:
        needs_xarray("2026.9", f"its writer and reader disagree about a fill value of {dtype}")
    encoding = {} if value is None else {"_FillValue": value}
    ds = xr.Dataset({"a": ("x", np.array([1, 2, 3]).astype(dtype), {}, encoding)})
    ds.to_zarr(url, zarr_format=3)
    ours = read(url)
    if dtype in {"S3", "U3"}:  # xarray cannot read what it wrote there
        assert ours.a.encoding["_FillValue"] == value
        return
    theirs = read_by_xarray(url)
    xr.testing.assert_identical(ours.load(), theirs.load())
    assert_same_encoding(ours.a.encoding, theirs.a.encoding, but=["dtype"])


def test_fill_values_as_others_write_them_are_understood():
    values = [(-9.5, "f4", -9.5), ([-9.5], "f8", -9.5), ("NaN", "f4", np.nan), (7, "f4", 7.0), ([3], "i2", 3)]
    store = MemoryStore()
    for value, dtype, expected in values:
        options = {"dtype": dtype, "attributes": {"_FillValue": value}, "overwrite": True}
        cm.create_array(store, "a", shape=(2,), chunks=(2,), **options)
        np.testing.assert_equal(read(store).a.encoding["_FillValue"], expected)
    cm.create_array(store, "a", shape=(2,), dtype="i1", attributes={"_FillValue": 300}, overwrite=True)
    assert read(store, decode_cf=False).a.attrs == {}  # no element has it
    cm.create_array(store, "deep/a", shape=(2,), dtype="f4", chunks=(2,), attributes={"_FillValue": "no number"})
    with pytest.raises(MetadataError, match=r"deep/a.*_FillValue.*no number"):
        read(store, group="deep")


@pytest.mark.parametrize("masks", [True, False])
def test_users_may_say_whether_the_fill_value_masks(url, masks):
    for number, name in enumerate(["zarr2", "zarr3"]):
        a = cm.create_array(f"{url}{number}", "a", shape=(3,), dtype="i4", chunks=(3,), fill_value=7, format=name)
        a[:1] = 1
        ds = read(f"{url}{number}", use_zarr_fill_value_as_mask=masks)
        np.testing.assert_array_equal(ds.a, [1, np.nan, np.nan] if masks else [1, 7, 7])


def test_xarray_writes_what_the_engine_opened(written_by_xarray, tmp_path):
    """Encodings are such that ``to_zarr`` takes them, between stores of one version."""
    ours = read(written_by_xarray)
    zarr_format = 2 if (Path(written_by_xarray) / ".zgroup").exists() else 3
    if (
        zarr_format == 2
    ):  # xarray turns text of any length into text of fixed width, and keeps the filter for the former
        ours = ours.drop_vars("text")
    ours.to_zarr(tmp_path / "again.zarr", zarr_format=zarr_format)
    again = read_by_xarray(tmp_path / "again.zarr")
    xr.testing.assert_identical(again.load(), ours.load())
    assert_same_encoding(ours.temperature.encoding, again.temperature.encoding)


def test_sharded(url):
    options = {"chunks": (2, 3), "shards": (4, 6), "dimension_names": ["y", "x"], "codecs": "gzip"}
    filled(np.arange(48, dtype="f4").reshape(8, 6), url, "a", **options)
    ours, theirs = read(url), read_by_xarray(url, consolidated=False)
    xr.testing.assert_identical(ours.load(), theirs.load())
    assert_same_encoding(ours.a.encoding, theirs.a.encoding, but=["preferred_chunks", "dtype"])
    assert ours.a.encoding["preferred_chunks"] == {"y": 4, "x": 6}  # of shards; zarr's engine says 2 and 3


# --------------------------------------------------------------------------------------------------------------------
# Formats


@cases("layout", [{"format": "zarr2"}, {"shards": (4, 4)}, {"chunks": ((3, 1, 3), (2, 3))}, {"format": "n5"}])
def test_one_task_reads_one_store_key_of_any_layout(store, layout):
    layout = {"chunks": (2, 2)} | layout
    values = np.arange(1, 36, dtype="i4").reshape(7, 5)  # 0, the fill value, would mark what is missing in v2
    cm.create_array(store, "a", shape=(7, 5), dtype="i4", dimension_names=["y", "x"], **layout)[...] = values
    recording = RecordingStore(store)
    ds = read(recording, chunks={})
    array = cm.open_array(store, "a")
    assert ds.a.chunks == array.to_dask().chunks
    assert set(ds.a.encoding) >= {"chunks", "preferred_chunks", "shards", "compressors", "filters", "dtype"}
    recording.clear()
    with dask.config.set(scheduler="sync"):
        np.testing.assert_array_equal(ds.a, values)
    keys = recording.keys("get")
    assert len(keys) == len(set(keys)) == array.write_layout.grid.n_chunks
    for chunks in (None, "auto", -1, {"y": 3}, {"x": 1, "y": -1}):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The specified chunks separate the stored chunks")
            ds = read(store, chunks=chunks)
        np.testing.assert_array_equal(ds.a, values)


def test_axes_without_names(store):
    cm.create_array(store, "plain", shape=(4, 4), dtype="i4", chunks=(2, 2), format="n5")
    cm.create_array(store, "named", shape=(4,), dtype="i4", chunks=(2,), dimension_names=["x"], format="n5")
    ds = read(store)
    assert ds.plain.dims == ("plain_dim_0", "plain_dim_1")
    assert ds.named.dims == ("x",)
    cm.create_array(store := MemoryStore(), "a", shape=(4, 3), dtype="i4", chunks=(2, 2), dimension_names=[None, "x"])
    assert read(store).a.dims == ("a_dim_0", "x")


def test_dimensions_that_disagree_say_which(store):
    for name, n in (("s0", 8), ("s1", 4)):
        cm.create_array(store, name, shape=(n,), dtype="u1", chunks=(4,), dimension_names=["z"], format="n5")
    with pytest.raises(DatasetError, match=r"'s1'.*'z' has length 4, but 8 in 's0'.*drop_variables=\['s1'\]"):
        read(store)
    assert read(store, drop_variables=["s1"]).sizes == {"z": 8}
    assert read(store, group="s1").sizes == {"z": 4}


def test_an_array_opens_as_a_dataset_of_one(store):
    cm.create_array(store, shape=(3,), dtype="i4", chunks=(3,), dimension_names=["x"], attributes={"units": "m"})
    assert read(store).data.attrs == {"units": "m"}
    assert xr.open_dataarray(store, engine="chunkmill").sizes == {"x": 3}


# --------------------------------------------------------------------------------------------------------------------
# Opening


def test_opening_reads_nothing_but_metadata_and_index_coordinates(written_by_xarray):
    needs_xarray("2026.9", "text of variable length is loaded when a dataset is opened")
    recording = RecordingStore(open_store(written_by_xarray))
    ds = read(recording)
    keys = {key for key in recording.keys("get") if not key.rpartition("/")[2].startswith((".z", "zarr.json"))}
    # of a time, decoding looks at its first and last value: whether they fit into datetime64
    assert {key.partition("/")[0] for key in keys if "/" in key} == {"time", "y", "reference_time"}
    assert set(ds.indexes) == {"time", "y"}


def test_index_coordinates_are_read_in_one_wait(tmp_path):
    times = np.arange("2000-01-01", "2000-01-05", dtype="M8[D]").astype("M8[ns]")
    ds = xr.Dataset({"v": (("t", "y", "x"), np.zeros((4, 3, 2)))}, {"t": times, "y": np.arange(3.0), "x": np.arange(2)})
    write_dataset(ds, tmp_path / "a", encoding={"t": {"chunks": (2,)}})
    with serve_files(tmp_path / "a", latency=0.1) as server:
        opened = xr.open_dataset(server.url, engine="chunkmill", decode_times=True)
        asked = [path for _, path, _ in server.log if "/c/" in path]
        assert sorted(asked) == sorted(set(asked))
        assert len(asked) == 4
        assert server.most_at_once >= 3
        lazy = xr.open_dataset(server.url, engine="chunkmill", create_default_indexes=False, decode_times=False)
        assert len([path for _, path, _ in server.log if "/c/" in path]) == 4  # nothing before it is asked for
        again = pickle.loads(pickle.dumps(lazy))
        np.testing.assert_array_equal(again.y.values, ds.y)
        xr.testing.assert_identical(opened.load(), ds)


def test_an_index_coordinate_that_cannot_be_read_fails_alone(store):
    write_dataset(xr.Dataset({}, {"x": [1, 2], "y": [3, 4]}), store)
    store.set("x/c/0", b"damaged")
    store.is_remote = True  # where they are read together
    lazy = xr.open_dataset(store, engine="chunkmill", create_default_indexes=False)
    assert lazy.y.values.tolist() == [3, 4]
    with pytest.raises(ChunkError, match="x/c/0"):
        lazy.x.load()


def test_consolidated_metadata_are_all_that_is_asked_for(written_by_xarray):
    needs_xarray("2026.9", "text of variable length is loaded when a dataset is opened")
    recording = RecordingStore(open_store(written_by_xarray))
    recording.is_remote = True  # of what is near, names are listed
    read(recording, create_default_indexes=False, decode_times=False)
    assert not recording.keys("list_dir")
    assert all("/" not in key for key in recording.keys("get"))


def test_a_broken_variable_can_be_left_out(url):
    cm.create_array(url, "good", shape=(2,), dtype="i4", chunks=(2,))
    Path(url, "bad").mkdir()
    Path(url, "bad", "zarr.json").write_text('{"zarr_format": 3, "node_type": "array"}')
    with pytest.raises(MetadataError, match=r"bad/zarr\.json"):
        read(url)
    assert list(read(url, drop_variables="bad")) == ["good"]


def test_what_is_not_there(url):
    with pytest.raises(NodeNotFound, match="is the url right"):
        read(url)
    cm.create_array(url, "g/a", shape=(2,), dtype="i4", chunks=(2,))
    with pytest.raises(NodeNotFound, match="no array or group at path 'h'"):
        read(url, group="h")
    with pytest.raises(TypeError, match="unexpected keyword"):
        read(url, gruop="g")
    with pytest.raises(TypeError, match="unexpected keyword"):
        xr.open_datatree(url, engine="chunkmill", gruop="g")


def test_guessing(tmp_path):
    """What xarray's own engine for Zarr opens is left to it."""
    guess = ChunkmillBackendEntrypoint().guess_can_open
    for name, fmt in {"n5": "n5", "draft": "zarr3-draft", "v2": "zarr2", "v3": "zarr3", "v2.zip": "zarr2"}.items():
        cm.create_array(tmp_path / name, "a", shape=(2,), dtype="i4", chunks=(2,), format=fmt, dimension_names=["x"])
    (tmp_path / "x.nc").write_bytes(b"CDF")
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "folder").mkdir()
    references = str(GOLDEN / "references/kerchunk.json")
    parquet = GOLDEN / "references/kerchunk-4.parquet"
    zarrs = ["s3://b/x.zarr", "x.zarr/", Path("x.zarr.zip"), tmp_path / "v2", tmp_path / "v3", str(tmp_path / "v2.zip")]
    others = ["x.n5/", "s3://b/x.n5", tmp_path / "n5", tmp_path / "draft", references, parquet, MemoryStore()]
    none = [tmp_path / "x.nc", tmp_path / "x.json", tmp_path / "folder", tmp_path / "none", "https://h/x", b"CDF", 3]
    for setting, takes_zarr in (("auto", False), (True, True), (False, False)):
        with dask.config.set({"chunkmill.guess-zarr": setting}):
            assert [guess(each) for each in zarrs] == [takes_zarr] * len(zarrs), setting
            assert all(guess(each) for each in others)
            assert not any(guess(each) for each in none)
    assert set(xr.open_dataset(tmp_path / "n5")) == {"a"}
    assert set(xr.open_dataset(references)) >= {"air"}


def test_guessing_without_an_engine_for_zarr(tmp_path, monkeypatch):
    cm.create_array(tmp_path / "x.zarr", "a", shape=(2,), dtype="i4", chunks=(2,), dimension_names=["x"])
    guess = ChunkmillBackendEntrypoint().guess_can_open
    assert not guess(tmp_path / "x.zarr")
    monkeypatch.setattr("chunkmill.xarray.backend.list_engines", lambda: {"scipy": None, "chunkmill": None})
    assert guess(tmp_path / "x.zarr")


# --------------------------------------------------------------------------------------------------------------------
# Trees


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_trees_are_those_of_xarrays_engine(url, zarr_format):
    tree().to_zarr(url, zarr_format=zarr_format)
    for options in ({}, {"group": "a"}):
        ours, theirs = (xr.open_datatree(url, engine=engine, **options) for engine in ("chunkmill", "zarr"))
        xr.testing.assert_identical(ours.load(), theirs.load())
        ours, theirs = (xr.open_groups(url, engine=engine, **options) for engine in ("chunkmill", "zarr"))
        assert list(ours) == list(theirs)
        for path, dataset in theirs.items():
            xr.testing.assert_identical(ours[path].load(), dataset.load())
    chunked = xr.open_datatree(url, engine="chunkmill", chunks={})
    assert chunked["a/v"].chunks is not None
    xr.testing.assert_identical(chunked.load(), tree())


def test_an_array_is_no_tree(store):
    cm.create_array(store, shape=(2,), dtype="i4", chunks=(2,))
    with pytest.raises(DatasetError, match="expected a group, got an array"):
        xr.open_datatree(store, engine="chunkmill")
