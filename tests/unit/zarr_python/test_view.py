"""Nodes of every format, read and written by zarr-python and xarray through `zarr_store`."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from contracts.codec_contract import codec
from support.arrays import filled
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.zarr_python.zarr_store import zarr_store

zarr = pytest.importorskip("zarr")
from zarr.abc.store import RangeByteRequest, SuffixByteRequest  # noqa: E402
from zarr.core.buffer import default_buffer_prototype  # noqa: E402
from zarr.core.sync import sync  # noqa: E402

from chunkmill.zarr_python.view import ShownArray  # noqa: E402

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


CASES = {*product(["n5", "zarr2", "zarr3-draft"], ["raw", "gzip", "zstd", "blosc"]), ("zarr3", "zstd")}


@pytest.mark.parametrize(("format_", "codecs"), sorted(CASES - {("zarr3-draft", "zstd")}), ids="-".join)
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
    assert value(store, "c/0") is value(store, "below/zarr.json") is None
    assert zarr.open_array(store, mode="r")[:].tolist() == [0, 0, 5, 5, 0, 0, 0, 0]
    assert zarr.open_array(store, mode="r").nchunks_initialized == 1


CATEGORIES = {"labels": ["a", "bc", "ü"], "dtype": "|O", "astype": "|u1"}  # of a codec that Zarr v3 has not


@pytest.mark.parametrize("codecs", ["zstd", [codec("numcodecs.categorize", **CATEGORIES)]])
def test_strings(tmp_path, codecs):
    texts = np.array(["a", "bc", "ü"], dtype=np.dtypes.StringDType())
    cm.to_store(texts, tmp_path / "x", format="zarr2", chunks=(2,), codecs=codecs)
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
    assert value(store, "g/a/c/0/0", RangeByteRequest(3, 10**6)) == value(store, "g/a/c/0/0")[3:]


def test_stores_are_equal_that_show_one_node_in_one_mode(tmp_path):
    store = stored(tmp_path / "x", "n5")
    assert (store, hash(store)) == (zarr_store(tmp_path / "x"), hash(zarr_store(tmp_path / "x")))
    for other in (zarr_store(tmp_path / "x", mode="r+"), zarr_store((tmp_path / "x", "g")), str(store)):
        assert store != other


@cases("shards", [None, (4,)])
@cases(
    ("encoding", "key"),
    [
        (codec("default", separator="/"), "c/1"),
        (codec("default", separator="."), "c.1"),
        (codec("v2", separator="/"), "1"),
        (codec("v2", separator="."), "1"),
    ],
)
def test_chunks_are_shown_by_the_keys_that_the_document_says(store, encoding, key, shards):
    cm.create_array(store, "a", shape=(8,), chunks=(2,), shards=shards, dtype="i4")
    document = json.loads(bytes(store.get("a/zarr.json")))
    store.set("a/zarr.json", json.dumps({**document, "chunk_key_encoding": encoding}).encode())
    array = cm.open_array(store, "a", mode="r+")
    array[...] = np.arange(1, 9)
    shown = ShownArray(array.stored, "a")
    assert store.get(f"a/{key}") is not None
    assert json.loads(shown.document())["chunk_key_encoding"] == codec("default", separator="/")
    assert list(shown.chunk_keys())[:2] == ["c/0", "c/1"]
    assert shown.value((1,), None) == bytes(store.get(f"a/{key}"))


# --- mode="r+"


def own(key):
    """Return a key that is no other's object, as each operation of zarr-python has it."""
    return "".join(list(key))


WRITTEN = [
    *[("n5", options) for options in ({}, {"codecs": "raw"}, {"codecs": "blosc"})],
    *[("zarr3", options) for options in ({}, {"shards": (6, 8)})],
    *[("zarr2", {"fill_value": 5}), ("zarr2", {"codecs": "gzip"}), ("zarr3-draft", {})],
]


@cases("format_, options", WRITTEN)
def test_zarr_python_writes_to_the_format_of_the_node(tmp_path, format_, options):
    stored(tmp_path / "x", format_, **options)
    array = zarr.open_array(zarr_store(tmp_path / "x", mode="r+"), path="g/a", mode="r+")
    wanted = X.copy()
    for index, values in [
        ((slice(2, 6), slice(3, 9)), 700),  # parts of chunks
        ((slice(0, 3), slice(0, 8)), np.arange(24).reshape(3, 8)),  # whole ones
        ((slice(3, 7), slice(4, 10)), 0),  # which become empty
        ((slice(6, 7), slice(9, 10)), 3),
    ]:
        array[index] = wanted[index] = values
        assert np.array_equal(cm.open_array(tmp_path / "x", "g/a")[...], wanted)
        assert np.array_equal(array[...], wanted)
    assert cm.check(tmp_path / "x").ok


def test_shards_that_are_decoded_are_written_too(tmp_path, monkeypatch):
    stored(tmp_path / "x", "zarr3", shards=(6, 8))
    store = zarr_store(tmp_path / "x", mode="r+")
    action = SimpleNamespace(name="recode", materialize=False)
    monkeypatch.setattr("chunkmill.zarr_python.view.choose_action", lambda *_, **__: action)
    array = zarr.open_array(store, path="g/a", mode="r+")
    assert (array.shards, array.chunks) == (None, (6, 8))
    assert value(store, "g/a/c/0/0", RangeByteRequest(3, 9)) == value(store, "g/a/c/0/0")[3:9] != b""
    array[2:7, 3:9] = 9
    array[0:6, 0:8] = 0
    wanted = X.copy()
    wanted[2:7, 3:9] = 9
    wanted[0:6, 0:8] = 0
    assert np.array_equal(cm.open_array(tmp_path / "x", "g/a")[...], wanted)
    assert np.array_equal(array[...], wanted)


@cases(
    "before, after",
    [
        ([0.0, 1.0, np.nan, -0.0], [0.0, np.nan, np.nan, 0.0]),
        (np.array([(1, 2.0), (3, 4.0)], "i4,f8"), np.array([(1, 7.0), (8, 4.0)], "i4,f8")),
        (np.array(["a", "b", ""], np.dtypes.StringDType()), np.array(["a", "cc", "d"], np.dtypes.StringDType())),
    ],
)
def test_only_changed_elements_and_fields_are_written(before, after):
    before, after, place = np.asarray(before), np.asarray(after), {}
    array = filled(before, place, chunks=before.shape)
    store = zarr_store(place, mode="r+")
    encoded = [value(zarr_store(place), "c/0")]
    array[...] = after
    encoded.append(value(zarr_store(place), "c/0"))
    array[...] = before
    key = own("c/0")
    assert value(store, key) == encoded[0]
    others = array[...]
    fields = [(field, before[field], after[field]) for field in others.dtype.names or (...,)]
    unchanged = {field: np.array([*map(repr, old)]) == np.array([*map(repr, new)]) for field, old, new in fields}
    for field, same in unchanged.items():  # what did not change is another writer's
        others[field][same] = others[field][~same][0]
    array[...] = others
    sync(store.set(key, PROTOTYPE.buffer.from_bytes(encoded[1])))
    found = array[...]
    for field, same in unchanged.items():
        assert [*map(repr, found[field][same])] == [*map(repr, others[field][same])]
        assert [*map(repr, found[field][~same])] == [*map(repr, after[field][~same])]


def test_the_operation_that_sets_a_chunk_is_compared_with_what_itself_has_read():
    place = {}
    ours = cm.create_array(place, shape=(4,), dtype="i4", chunks=(4,), codecs="raw")
    store = zarr_store(place, mode="r+")
    theirs = zarr.open_array(store, mode="r+")
    assert not theirs[:].any()
    ours[...] = 5
    theirs[:] = 0  # whole, without reading it: equal to what was read long ago
    assert not ours[...].any()
    ours[1] = 1
    theirs[1] = 0
    assert not ours[...].any()
    ours[3] = 7
    first, second = (own("c/0") for _ in range(2))  # of two threads, between which another process writes
    read = [np.frombuffer(value(store, first), "<i4").copy()]
    ours[3] = 9
    read.append(np.frombuffer(value(store, second), "<i4").copy())
    read[0][0], read[1][1] = 1, 2
    ours[3] = 8
    for key, values in zip((first, second), read, strict=True):
        sync(store.set(key, PROTOTYPE.buffer.from_bytes(values.tobytes())))
    assert ours[...].tolist() == [1, 2, 0, 8]


def test_a_chunk_whose_read_is_forgotten_is_not_written(monkeypatch):
    monkeypatch.setattr("chunkmill.zarr_python.view._REMEMBERED", 1)
    monkeypatch.setattr("chunkmill.zarr_python.view._FEW", 2)
    place = {}
    array = filled(np.ones(40, "i4"), place, chunks=(4,), codecs="raw")
    store = zarr_store(place, mode="r+")
    key = own("c/0")
    before = value(store, key)
    for i in range(1, 10):
        value(store, f"c/{i}")
    with pytest.raises(StoreError, match="do it again"):
        sync(store.set(key, PROTOTYPE.buffer.from_bytes(before)))
    zarr.open_array(store, mode="r+")[1:7] = 2
    zarr.open_array(store, mode="r+")[4:8] = 3  # whole, without reading it
    assert array[0:9].tolist() == [1, 2, 2, 2, 3, 3, 3, 3, 1]


def test_threads_that_write_parts_of_shards_lose_nothing(tmp_path):
    cm.create_array(tmp_path / "x", shape=(60,), dtype="i4", chunks=(5,), shards=(60,))
    array = zarr.open_array(zarr_store(tmp_path / "x", mode="r+"), mode="r+")

    def write(first):
        for i in range(first, 60, 4):
            array[i] = i + 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert array[:].tolist() == [*range(1, 61)]


@cases("format_", ["n5", "zarr2", "zarr3"])
def test_attributes_are_changed_and_other_documents_refused(tmp_path, format_):
    stored(tmp_path / "x", format_)
    store = zarr_store(tmp_path / "x", mode="r+")
    array = zarr.open_array(store, path="g/a", mode="r+")
    cm.open_array(tmp_path / "x", "g/a", mode="r+").update_attributes({"theirs": 1})
    array.attrs["ours"] = {"a": [1]}
    del array.attrs["units"]
    zarr.open_group(store, mode="r+")["g"].attrs["title"] = "t"
    assert cm.open(tmp_path / "x", "g/a").attributes == {"theirs": 1, "ours": {"a": [1]}}
    assert cm.open(tmp_path / "x", "g").attributes == {"title": "t"}

    array.resize((4, 10))
    assert np.array_equal(cm.open_array(tmp_path / "x", "g/a")[...], X[:4])

    refused = [
        lambda: array.append(X[:2]), lambda: array.resize((1, 11)),
        lambda: zarr.create_array(store, name="b", shape=3, dtype="i4"),
        lambda: zarr.create_array(store, name="g/a", shape=3, dtype="i4", overwrite=True),
        lambda: zarr.open_group(store, mode="w"), lambda: sync(store.delete("g/a/zarr.json")),
        lambda: sync(store.set("g/a/zarr.json", PROTOTYPE.buffer.from_bytes(value(store, "g/zarr.json")))),
        lambda: sync(store.set("g/a/c/9/9", PROTOTYPE.buffer.from_bytes(b""))),
    ]  # fmt: skip
    for each in refused:
        with pytest.raises(StoreError, match="create_array, delete"):
            each()
    with pytest.raises(TypeError, match="expected a Buffer of zarr-python, got bytes"):
        sync(store.set("g/a/c/0/0", b""))
    assert cm.open_array(tmp_path / "x", "g/a").shape == (4, 10)


def test_what_was_opened_for_reading_is_not_written_to(tmp_path):
    stored(tmp_path / "x", "n5")
    with pytest.raises(ValueError, match=r"mode='r\+'"):
        zarr_store(cm.open(tmp_path / "x"), mode="r+")
    with pytest.raises(ValueError, match="mode='w'"):
        zarr_store(tmp_path / "x", mode="w")
    store = pickle.loads(pickle.dumps(zarr_store(cm.open(tmp_path / "x", mode="r+"), mode="r+")))
    assert not store.read_only
    assert zarr.open_array(store, path="g/a", mode="r").read_only


def test_xarray_writes_regions(tmp_path):
    ds = xr.Dataset({"v": (("y", "x"), X), "y": np.arange(7.0)}, attrs={"title": "t"})
    cm.write_dataset(ds.chunk({"y": 3}), tmp_path / "x", format="n5")
    store = zarr_store(tmp_path / "x", mode="r+")
    (ds[["v"]].isel(y=slice(2, 5)).drop_vars("y") * 2).to_zarr(store, region={"y": slice(2, 5)}, consolidated=False)
    wanted = ds.copy(deep=True)
    wanted.v[2:5] *= 2
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "x", engine="chunkmill"), wanted)
    with pytest.raises(StoreError, match="write_dataset"):
        ds.assign_coords(y=ds.y + 7).to_zarr(store, append_dim="y", consolidated=False)
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "x", engine="chunkmill"), wanted)
