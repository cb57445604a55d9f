"""What writing takes, and what it returns: places by any name, alignment, modes, and that no value is lost (P1)."""

from zipfile import ZipFile

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from dask.utils import SerializableLock
from support.arrays import filled
from support.cases import cases
from support.recording import FarStore

import chunkmill as cm
from chunkmill.errors import AlignmentError, JobError, NodeExists, NodeNotFound, StoreError, UnsupportedFeature
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]
VALUES = np.arange(12, dtype="i4").reshape(4, 3)


def make(store, kind="zarr3", path="g/a"):
    return filled(VALUES, store, path, chunks=(2, 3), format=kind)


@cases("kind", FORMATS)
def test_an_array_is_read_by_any_name(kind):
    store = MemoryStore()
    array = make(store, kind)
    group = cm.open_group(store)
    for place in (
        (store, "g/a"),
        ((store, "g/a"), ""),
        ((store, "g"), "a"),
        (array,),
        (group, "g/a"),
        (group["g"], "a"),
    ):
        np.testing.assert_array_equal(cm.from_store(*place), VALUES)
    assert cm.from_store(array, name="mine").name == "mine"
    assert cm.from_store(array, region=slice(1, 3)).shape == (2, 3)
    assert cm.from_store(array).name == cm.from_store(store, "g/a").name
    store.delete(next(array.stored.stored_keys()))
    with pytest.raises(cm.errors.ChunkError, match="absent"):
        cm.from_store(array, read_missing="error").compute()


def test_what_is_not_read():
    store = MemoryStore()
    array = make(store)
    with pytest.raises(NodeNotFound, match="its arrays are 'a'; give one as path"):
        cm.from_store(cm.open_group(store, "g"))
    with pytest.raises(TypeError, match="path='x': the array 'g/a' has no nodes below it"):
        cm.from_store(array, "x")
    with pytest.raises(TypeError, match="the Array is open already"):
        cm.from_store(array, format="zarr2")
    for place in ({5}, 5, None):
        with pytest.raises(
            TypeError, match=r"got .*, where a url, \(url, path\), a store, an Array or a Group is expected"
        ):
            cm.from_store(place)


@cases("kind", FORMATS)
def test_a_place_to_write_by_any_name(kind):
    store = MemoryStore()
    group = cm.create_group(store, format=kind)
    for n, place in enumerate(
        (((store, "g/0"), ""), ((store, "g"), "1"), (group, "g/2"), (group.create_group("h"), "3"))
    ):
        cm.to_store(VALUES, *place, attributes={"n": n})
    found = cm.open_group(store)
    assert [found[path].format for path in ("g/0", "g/1", "g/2", "h/3")] == [kind] * 4
    array = found["g/0"]
    with pytest.raises(StoreError, match=r"mode='r\+'"):
        cm.to_store(VALUES, array)
    array = cm.open_array(store, "g/0", mode="r+")
    assert cm.to_store(VALUES + 1, array).n_keys == 1
    assert cm.to_store(VALUES[:2], array, region=slice(1, 3)).n_partial == 1
    np.testing.assert_array_equal(array[...], np.concatenate([VALUES[:1] + 1, VALUES[:2], VALUES[3:] + 1]))
    cm.to_store(VALUES[:1], array, mode="w")
    assert cm.open_array(store, "g/0").shape == (1, 3)


@cases("compute", [True, False])
@cases("region", [None, slice(0, 2)])
def test_what_was_written_is_read_again(region, compute):
    array = make(MemoryStore())
    x = da.from_array(VALUES if region is None else VALUES[region], chunks=2) + 5
    (stored,) = cm.store(x, array, regions=region, compute=compute, return_stored=True)
    assert isinstance(stored, da.Array)
    np.testing.assert_array_equal(stored.compute(), x.compute())
    np.testing.assert_array_equal(array[: len(x)], x)


@cases("source", [{"a": VALUES}, None, {1, 2}, xr.Dataset({"a": ("x", [1])}), cm.create_group(MemoryStore())])
def test_sources_that_are_none(source):
    array = make(MemoryStore())
    for write in (cm.store, cm.to_store):
        with pytest.raises(TypeError, match="where values of one array are expected: of dask, NumPy, xarray"):
            write(source, array)


def test_targets_that_are_none():
    for target in (VALUES, {5}, 5):
        with pytest.raises(TypeError, match=r"where a url, \(url, path\), a store, an Array or a Group is expected"):
            cm.store(VALUES, target)
        with pytest.raises(TypeError, match=r"where a url, \(url, path\), a store, an Array or a Group is expected"):
            cm.to_store(VALUES, target)
    with pytest.raises(cm.errors.RegionError, match="only write_dataset knows coordinates"):
        cm.to_store(VALUES, make(MemoryStore()), region="auto")
    with pytest.raises(ValueError, match="1 sources, 2 targets and 2 regions do not match: give a list"):
        cm.store(VALUES, [make(MemoryStore()), make(MemoryStore())])


def test_a_deleted_target_is_an_error_when_it_is_read_again():
    store = MemoryStore()
    (stored,) = cm.store(VALUES, make(store, path="a"), return_stored=True)
    cm.delete(store, "a")
    with pytest.raises(StoreError, match="it has been deleted"):
        stored.compute()
    with pytest.raises(JobError, match="which the data are read from"):
        cm.to_store(cm.from_store(make(store)), store, "g/a", mode="w")


def test_a_place_of_another_kind_is_named():
    group = cm.create_group({})
    with pytest.raises(NodeExists, match="there is a group already; give mode='w' to replace it"):
        cm.to_store(VALUES, group, mode="r+")
    with pytest.raises(TypeError, match="path='b': the array 'a' has no nodes below it"):
        cm.to_store(VALUES, group.create_array("a", like=VALUES), "b")


def test_values_without_blocks_get_chunks_of_the_default_size():
    values = np.arange(3 << 20, dtype="f4").reshape(2048, 1536)
    for x in (values, xr.DataArray(values, dims=("y", "x"))):
        cm.to_store(x, store := MemoryStore())
        made = cm.open_array(store)
        assert made.chunks == cm.create_array(MemoryStore(), like=values).chunks == (1024, 768)
        np.testing.assert_array_equal(made[...], values)
    cm.to_store(values, store := MemoryStore(), chunks={"y": 16}, dimension_names=("y", "x"))
    assert cm.open_array(store).chunks == (16, 1536)
    cm.to_store(da.from_array(values, chunks=(2048, 768)), store := MemoryStore())
    assert cm.open_array(store).chunks == (2048, 768)


def values(shape, dtype="i4"):
    return (np.arange(np.prod(shape, dtype=int)) * 13 % 251 + 1).astype(dtype).reshape(shape)


def test_a_small_chunk_size_setting_never_cuts_a_shard():
    store = MemoryStore()
    with dask.config.set({"array.chunk-size": "1KiB"}):
        cm.to_store(da.from_array(values((64, 64)), chunks=(5, 64)), store, chunks=(8, 8), shards=(32, 32))
    np.testing.assert_array_equal(cm.open_array(store)[...], values((64, 64)))
    assert sorted(store.list_prefix("c/")) == [f"c/{i}/{j}" for i in (0, 1) for j in (0, 1)]


@pytest.mark.parametrize("lock", ["auto", None, False, SerializableLock()], ids=["auto", "none", "false", "given"])
def test_interleaved_partial_writes_lose_nothing(lock):
    """Each element is a job of its own, and all share one chunk."""
    array = cm.create_array(MemoryStore(), shape=(24,), dtype="i4", chunks=(24,))
    jobs = [
        cm.store(da.full(1, i + 1, dtype="i4"), array, regions=(slice(i, i + 1),), lock=lock, compute=False)
        for i in range(24)
    ]
    dask.compute(*jobs, scheduler="threads", num_workers=8)
    np.testing.assert_array_equal(array[...], np.arange(24) + 1)


def test_fill_is_not_stored_and_an_old_chunk_is_deleted():
    store = MemoryStore()
    x = da.from_array(np.array([5, 5, 0, 0]), chunks=2)
    report = cm.to_store(x, store)
    assert (report.n_keys, report.n_empty) == (2, 1)
    assert list(store.list_prefix("c/")) == ["c/0"]
    cm.to_store(da.zeros(4, dtype=x.dtype), store, mode="r+")
    assert list(store.list_prefix("c/")) == []
    cm.store([da.zeros(4, dtype=x.dtype)], [store], write_empty_chunks=True)
    assert sorted(store.list_prefix("c/")) == ["c/0", "c/1"]


@pytest.fixture
def store():
    return filled(np.ones(4), path="a").store


@cases(
    ("n", "path", "options", "refused"),
    [
        (4, "a", {}, pytest.raises(NodeExists, match="mode='w'")),
        (4, "missing", {"mode": "r+"}, pytest.raises(NodeNotFound, match="missing")),
        (4, "a", {"mode": "r"}, pytest.raises(ValueError, match="mode='r'")),
        (5, "a", {"mode": "r+"}, pytest.raises(AlignmentError, match=r"shape \(5,\)")),
        (5, "a", {"region": (slice(0, 5),)}, pytest.raises(AlignmentError, match=r"shape \(5,\)")),
    ],
)
def test_where_nothing_can_be_written(store, n, path, options, refused):
    with refused:
        cm.to_store(da.zeros(n), store, path, **options)
    np.testing.assert_array_equal(cm.open_array(store, "a"), np.ones(4))


@pytest.mark.parametrize(("mode", "path"), [("a", "a"), ("r+", "a"), ("a", "b")])
def test_into_what_is_there_or_not(store, mode, path):
    cm.to_store(da.full(4, 3.0), store, path, mode=mode)
    np.testing.assert_array_equal(cm.open_array(store, path), np.full(4, 3.0))


@cases("read", ["to_dask", "from_zarr", "rechunked"])
def test_what_is_read_is_not_replaced(tmp_path, read):
    if read == "from_zarr":
        pytest.importorskip("zarr")
    url = tmp_path / "a.zarr"
    (tmp_path / "link").symlink_to(url)
    array = cm.to_store(da.arange(8, chunks=4), url, "g/a") and cm.open_array(tmp_path / "link", "g/a")
    x = {
        "to_dask": array.to_dask,
        "from_zarr": lambda: da.from_zarr(str(url), "g/a"),
        "rechunked": lambda: cm.from_store(url, "g/a").rechunk(3)[1:].sum() + da.ones(2),
    }[read]()
    for path in ("g/a", "g", ""):
        with pytest.raises(JobError, match=r"mode='w' would delete .*a\.zarr/g/a, which"):
            cm.to_store(x + 1, url, path, mode="w")
    np.testing.assert_array_equal(array, np.arange(8))
    cm.to_store(x + 1, url, "g/ab", mode="w")
    cm.to_store(x.persist(), url, "g/a", mode="w")


def test_unknown_chunks_are_refused_before_anything_is_written():
    x = da.arange(10, chunks=5)
    store = MemoryStore()
    with pytest.raises(AlignmentError, match="compute_chunk_sizes"):
        cm.to_store(x[x > 3], store)
    with pytest.raises(AlignmentError, match="got 64, expected a dask array of at most 63 axes"):
        cm.to_store(da.ones((1,) * 64), store)
    assert not list(store.list_prefix(""))
    frames = pytest.importorskip("dask.dataframe")
    with pytest.raises(AlignmentError, match="compute_chunk_sizes"):
        cm.to_store(frames.from_pandas(pd.DataFrame([[1, 2], [3, 4]]), npartitions=1), store)


@pytest.mark.parametrize("store", [MemoryStore(), FarStore()], ids=["near", "far"])
def test_what_others_make_before_a_graph_is_computed_survives(store):
    """None of 64 elements of theirs survived, and the error said that they had."""
    theirs = np.arange(64.0).reshape(8, 8)
    for path, make in (
        ("x", lambda: cm.to_store(da.from_array(theirs, chunks=4), store, "x")),
        ("y", lambda: cm.create_group(store, "y")),
    ):
        later = cm.to_store(da.ones((8, 8), chunks=4), store, path, compute=False)
        make()
        before = {key: store.get(key) for key in store.list_prefix("")}
        with pytest.raises(NodeExists, match="it was made after this write was planned"):
            later.compute()
        assert {key: store.get(key) for key in store.list_prefix("")} == before
    np.testing.assert_array_equal(cm.open_array(store, "x")[...], theirs)


# --------------------------------------------------------------------------------------------------------------------
# Onto the array that is read


IN_PLACE = {
    "block by block": (lambda x: x + 1, np.s_[:], lambda v: v + 1),
    "larger blocks": (lambda x: x.rechunk((10, 20)) * 2, np.s_[:], lambda v: v * 2),
    "the same part": (lambda x: x[5:15, 3:] * 2, np.s_[5:15, 3:], lambda v: v[5:15, 3:] * 2),
    "another part": (lambda x: x[:5] + 1, np.s_[15:], lambda v: v[:5] + 1),
    "held in memory": (lambda x: x.T.persist(), np.s_[:], lambda v: v.T),
}


@cases("case", IN_PLACE)
def test_onto_what_is_read(case):
    make, region, expected = IN_PLACE[case]
    values = np.arange(400.0).reshape(20, 20)
    a = filled(values, chunks=(5, 5))
    cm.to_store(make(a.to_dask()), a, region=region)
    wanted = values.copy()
    wanted[region] = expected(values)
    np.testing.assert_array_equal(a[...], wanted)


def test_onto_what_is_read_shifted():
    values = np.arange(float(4 << 20)).reshape(64, -1)  # blocks of 8 MiB: of smaller ones a task would write several
    a = filled(values, chunks=(16, values.shape[1]))
    shifted = a.to_dask(region=np.s_[:56])
    with pytest.raises(JobError, match="of the same array"):
        cm.to_store(shifted, a, region=np.s_[8:])
    cm.to_store(shifted.persist(), a, region=np.s_[8:])
    np.testing.assert_array_equal(a[8:], values[:56])


def test_onto_what_is_read_costs_no_walk(monkeypatch):
    """Where the layers tell that each block is made from itself, no task is looked at."""
    a = filled(np.zeros(200), chunks=(1,))
    monkeypatch.setattr("chunkmill.dask_arrays.hazards.convert_legacy_graph", None)
    cm.store(da.where(a.to_dask() > 0, a.to_dask(), da.from_array(np.ones(200), chunks=1)), a)
    assert (a[...] == 1).all()


# --------------------------------------------------------------------------------------------------------------------
# What is given as values


class Lazy:
    """An array-like that can only be sliced."""

    shape, dtype, ndim = (3,), np.dtype("i8"), 1

    def __getitem__(self, index):
        return np.arange(3)[index]


GIVEN = {
    "list": ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
    "objects that are strings": (np.array(["a", "", "bcd"], dtype=object), np.array(["a", "", "bcd"])),
    "strings": (np.array(["a", "ü"], dtype=np.dtypes.StringDType()), np.array(["a", "ü"])),
    "dask's objects": (lambda: da.from_array(np.array(["a", "b"], dtype=object), chunks=1), np.array(["a", "b"])),
    "a series": (pd.Series([1.5, 2.5]), np.array([1.5, 2.5])),
    "categories": (pd.Series(["a", "b"], dtype="category"), np.array(["a", "b"])),
    "an index": (pd.Index([3, 4]), np.array([3, 4])),
    "nothing masked": (np.ma.masked_array([1, 2], [False, False]), np.array([1, 2])),
    "a variable": (xr.Variable("x", np.arange(3)), np.arange(3)),
    "a variable of dask": (xr.DataArray(da.arange(3, chunks=2)), np.arange(3)),
    "a frame": (pd.DataFrame([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]])),
    "what can only be sliced": (Lazy(), np.arange(3)),
    "a number": (5, np.array(5)),
}


@cases("case", GIVEN)
def test_values_of_many_kinds(case):
    values, expected = GIVEN[case]
    values = values() if callable(values) else values
    cm.to_store(values, store := MemoryStore())
    np.testing.assert_array_equal(cm.open_array(store)[...].astype(expected.dtype), expected)


NO_VALUES = {
    "masked": (np.ma.masked_array([1, 2], [False, True]), "masked values; give x.filled"),
    "masked, of dask": (lambda: da.ma.masked_array(da.arange(4), da.arange(4) > 1), "masked values; give x.filled"),
    "masked, of dask that does not tell": (
        lambda: da.zeros(4, chunks=2).map_blocks(lambda b: np.ma.masked_array(b, [True, False]), meta=np.empty(0)),
        "masked values",
    ),
    "None among strings": (np.array(["a", None], dtype=object), "NoneType among strings; fill"),
    "numbers among strings": (np.array(["a", 1], dtype=object), "int among strings"),
    "missing strings": (np.array(["a", None], dtype=np.dtypes.StringDType(na_object=None)), "NoneType among strings"),
    "the same, of dask": (
        lambda: da.from_array(np.array(["a", None], dtype=object), chunks=1),
        "NoneType among strings",
    ),
    "bytes": (np.array([b"a", b"bc"], dtype=object), "bytes among strings.*'vlen-bytes'"),
    "a generator": ((i for i in range(3)), "generator among strings"),
}


@cases("case", NO_VALUES)
def test_what_no_store_can_hold(case):
    values, message = NO_VALUES[case]
    if callable(values):
        values = values()
    store = MemoryStore()
    with pytest.raises(UnsupportedFeature, match=message):
        cm.to_store(values, store)
    with pytest.raises(NodeNotFound):
        cm.open(store)


def strange(change, shape=(8, 8)):
    """Return an array of (4, 4) blocks, of which one is not as declared."""

    def block(values, block_info=None):
        is_last = block_info[0]["chunk-location"] == tuple(n - 1 for n in block_info[0]["num-chunks"])
        return change(values) if is_last else values

    return da.ones(shape, chunks=(4, 4)).map_blocks(block, dtype="f8", meta=np.empty((0, 0)))


STRANGE_BLOCKS = {
    "shorter": (lambda b: b[:2], r"\(2, 4\)"),
    "one that would be broadcast": (lambda b: b[:1], r"\(1, 4\)"),
    "less axes": (lambda b: b[0], r"\(4,\)"),
    "more axes": (lambda b: b[None], r"\(1, 4, 4\)"),
    "a scalar": (lambda b: b.sum(), r"\(\)"),
    "a number of Python": (lambda b: 5.0, r"\(\)"),
}


def labelled(x, start=0):
    return xr.Dataset({"a": (("x", "y"), x)}, coords={"t": np.arange(start, start + 3)})


def append_dataset(x, dim, start):
    cm.write_dataset(labelled(np.ones((8, 8))), store := MemoryStore())
    cm.write_dataset(labelled(x, start), store, append_dim=dim)


WAYS = {
    "to_store": lambda x: cm.to_store(x, MemoryStore()),
    "finer": lambda x: cm.to_store(x, MemoryStore(), chunks=(3, 3)),
    "shards": lambda x: cm.to_store(x, MemoryStore(), chunks=(2, 2), shards=(4, 4)),
    "resumable": lambda x: cm.to_store(x, MemoryStore(), resume=True),
    "region": lambda x: cm.store(x, filled(np.zeros((20, 20)), chunks=4), regions=(slice(3, 11), slice(4, 12))),
    "write_dataset": lambda x: cm.write_dataset(labelled(x), MemoryStore()),
    "append of a dataset": lambda x: append_dataset(x, "x", 0),
    "comparison of a dataset": lambda x: append_dataset(x, "t", 3),
    "pyramid": lambda x: cm.pyramid(x, MemoryStore(), levels=2),
    "transform": lambda x: cm.transform(np.sin, x, MemoryStore()),
}


@cases("way", WAYS.values())
def test_every_writer_refuses_a_block_of_another_shape_than_declared(way):
    with pytest.raises(cm.ChunkmillError, match=r"block \(1, 1\) has shape \(8, 4\), the dask array declares \(4, 4\)"):
        way(strange(lambda block: np.vstack([block, block * 9])))


@cases(("change", "shape"), STRANGE_BLOCKS.values())
def test_a_block_of_another_shape_than_declared_is_refused(change, shape):
    for way in (WAYS["to_store"], WAYS["finer"]):  # as blocks are, and cut into others
        with pytest.raises(cm.ChunkmillError, match=rf"block \(1, 1\) has shape {shape}, the dask array declares"):
            way(strange(change))


def test_a_part_of_a_block_that_is_cut_off_is_checked_too():
    x = da.zeros((2000, 1000), chunks=1000)
    y = x.map_blocks(lambda b: b[:-1], dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(UnsupportedFeature, match=r"block \(., 0\) has shape"):
        cm.to_store(y, MemoryStore(), chunks=(300, 300))


STRANGE_VALUES = [  # what the blocks hold, and what they declare
    (np.array([1.0, 1.5]), "i4", r"1\.5 does not fit int32 \(the values are float64\)"),
    (np.array([1.0, 1e300]), "f4", r"1e\+300 does not fit float32"),
    (np.array(["2020-01-01T00:00:00.5"] * 2, "M8[ns]"), "M8[s]", r"does not fit datetime64\[s\]"),
    (np.array([1, 2]), "U3", "1 does not fit <U3"),
]


@cases(("held", "declared", "said"), STRANGE_VALUES)
def test_a_block_of_another_dtype_is_kept_exactly_or_refused(held, declared, said):
    def x(change):
        return da.zeros(4, chunks=2).map_blocks(lambda _: change, dtype=declared, meta=np.empty(0, declared))

    for chunks in (2, 3, 1):  # as blocks are, regrouped, finer
        with pytest.raises(UnsupportedFeature, match=rf"block \([01],\) of the dask array: .*{said}"):
            cm.to_store(x(held), MemoryStore(), chunks=chunks)
    array = cm.create_array(MemoryStore(), shape=(2,), dtype=declared, chunks=(1,))
    for write in (lambda: array.__setitem__(..., held), lambda: array.append(held)):
        with pytest.raises(UnsupportedFeature, match=said):
            write()
    assert array.shape == (2,)


@pytest.mark.parametrize("write", [cm.to_store, cm.store])
def test_what_is_written_is_in_a_zip_file_at_once(tmp_path, write):
    """While the array is open here."""
    cm.create_array(tmp_path / "x.zip", shape=VALUES.shape, dtype="i4", chunks=VALUES.shape)
    array = cm.open_array(tmp_path / "x.zip", mode="r+")
    write(VALUES, array)
    with ZipFile(tmp_path / "x.zip") as file:
        assert "c/0/0" in file.namelist()
