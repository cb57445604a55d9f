"""Reductions of absent chunks are constants in dask-array: no task, no request for a chunk, and the values of NumPy."""

import dask
import numpy as np
import pytest
import xarray as xr
from dask.array import array_expr_enabled
from support.recording import FarStore

import chunkmill as cm
from benchmarks.patterns import n_run
from chunkmill.dask_arrays.sparse_reductions import blocks_present
from chunkmill.errors import ChunkError, StoreError
from chunkmill.stores.memory import MemoryStore

if array_expr_enabled():
    pytest.skip("a process has dask-array or query planning", allow_module_level=True)
pytest.importorskip("dask_array")

SHAPE, CHUNKS = (48, 40), (4, 4)


def sparse_array(store, **options):
    layout = {"chunks": CHUNKS, "fill_value": 2.0} | options
    a = cm.create_array(store, "v", shape=SHAPE, dtype="f8", **layout)
    a[8:12] = np.arange(160.0).reshape(4, 40)
    return a


@pytest.fixture
def far():
    store = FarStore()
    sparse_array(store.below)
    store.is_remote = False
    return store


def read(store, **options):
    return cm.from_store(store, "v", chunked_array_type="dask-array", **options)


REDUCTIONS = {
    "sum": (lambda a: a.sum(), 14, 10),
    "along the first axis": (lambda a: a.max(axis=0), 20, 10),
    "along the last axis": (lambda a: a.mean(axis=1), 11, 10),
    "one axis kept": (lambda a: a.min(axis=1, keepdims=True), 11, 10),
    "of absent chunks": (lambda a: a[12:].mean(), 0, 0),
    "of absent chunks by axis": (lambda a: a[12:].var(axis=0), 0, 0),
    "transposed": (lambda a: a.T.sum(axis=1), 20, 10),
    "steps": (lambda a: a[::5, 1::2].sum(axis=0), 20, 10),
    "an axis dropped": (lambda a: a[30].sum(), 0, 0),
    "a slice of the result": (lambda a: a.prod(axis=0)[3:9], 6, 3),
    "larger blocks": (lambda a: (a.rechunk((8, 8)) if hasattr(a, "rechunk") else a).sum(axis=0), 10, 20),
    "of a boolean": (lambda a: a[:, :8].any(axis=1), 3, 2),
}


@pytest.mark.parametrize("case", REDUCTIONS)
def test_absent_chunks_need_neither_tasks_nor_requests(far, case):
    reduce, n_tasks, n_keys = REDUCTIONS[case]
    wanted = reduce(cm.open_array(far, "v")[...])
    result = reduce(read(far))
    assert n_run(result) == n_tasks
    far.clear()
    found = result.compute(scheduler="sync")
    assert sum(far.chunks("get").values()) == len(far.chunks("get")) == n_keys
    np.testing.assert_allclose(found, wanted)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(reduce(read(far) + 0).compute(), found)  # as from tasks, to the last bit


@pytest.mark.parametrize("layout", [{"format": "zarr2"}, {"format": "n5", "fill_value": None}, {"shards": (8, 8)}])
def test_other_layouts(layout):
    store = MemoryStore()
    a = sparse_array(store, **layout)
    result = read(store).sum(axis=0)
    assert n_run(result) < 40
    np.testing.assert_allclose(result.compute(), a[...].sum(axis=0))


def test_what_is_written_later_is_read_the_next_time(far):
    top = read(far).max()
    assert top.compute() == 159
    cm.open_array(far, "v", mode="r+")[40, 30] = 1000
    assert top.compute() == top.persist().compute() == 1000


@pytest.mark.parametrize("is_new", [True, False])
def test_a_write_that_is_planned_reads_what_is_stored_when_it_is_computed(far, is_new):
    target = MemoryStore()
    x = read(far).max(axis=0)
    if not is_new:
        x = x + 1
    later = cm.to_store(x, target, compute=False)
    cm.open_array(far, "v", mode="r+")[40, 30] = 1000
    later.compute()
    assert cm.open_array(target)[30] == 1000 + (not is_new)


def test_blocks_that_others_need_are_read_once(far):
    x = read(far)
    values = cm.open_array(far, "v")[...]
    far.clear()
    np.testing.assert_allclose((x - x.mean()).compute(), values - values.mean())
    assert set(far.chunks("get").values()) == {1}
    far.clear()
    top, low = dask.compute(x.max(), x.min())
    assert (top, low) == (159, 0)
    assert set(far.chunks("get").values()) == {1}


def test_requests_are_under_way_together_for_what_is_stored():
    far = FarStore()
    a = cm.create_array(far.below, "v", shape=(80, 40), dtype="f8", chunks=(2, 2), fill_value=2.0)
    a[:20] = 1
    x = read(far)
    far.clear()
    far.seconds = 0.01
    with dask.config.set(scheduler="threads", num_workers=2):
        assert x.sum().compute() == 20 * 40 + 60 * 40 * 2
    assert far.most_at_once >= 16
    assert len(far.chunks("get")) == 200
    assert set(far.chunks("get").values()) == {1}


def test_absent_chunks_that_are_errors_are_not_left_out(far):
    with pytest.raises(ChunkError, match="absent"):
        read(far, read_missing="error").sum().compute()


@pytest.mark.parametrize("reduce", [lambda x: x.sum(), lambda x: x[12:].sum()], ids=["some", "all absent"])
def test_a_deleted_array_is_no_absent_one(far, reduce):
    result = reduce(read(far))
    assert result.compute() > 0
    cm.delete(far.below, "v")
    with pytest.raises(StoreError, match="deleted"):
        result.compute()


def test_a_variable_of_the_engine(far):
    from xarray.namedarray.parallelcompat import list_chunkmanagers

    managers = list_chunkmanagers()
    before = managers["dask"]
    pytest.importorskip("dask_array.xarray").register()
    try:
        packed = xr.Dataset({"v": (("y", "x"), np.full(SHAPE, np.nan), {}, {"chunks": CHUNKS})})
        packed.v[8:12] = 3
        store = FarStore()
        store.is_remote = False
        encoding = {"v": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "fill_value": -1}}
        cm.write_dataset(packed, store, encoding=encoding)
        ds = xr.open_dataset(store, engine="chunkmill", chunks={})
        store.clear()
        found = ds.v.max("x", skipna=False)
        np.testing.assert_array_equal(found, packed.v.max("x", skipna=False))
        assert len(store.chunks("get")) == 10
        assert n_run(found.data) == 11
    finally:
        managers["dask"] = before


def test_nothing_is_listed_for_a_small_part_or_a_dense_array(monkeypatch):
    store = MemoryStore()
    dense = cm.create_array(store, "d", shape=(60, 60), dtype="u1", chunks=(1, 1))
    dense[...] = 1
    monkeypatch.setattr(store, "list_prefix", lambda *_: pytest.fail("listed"))
    whole = tuple(tuple((i, i + 1) for i in range(60)) for _ in range(2))
    assert blocks_present(dense.stored, whole) is None
    assert blocks_present(dense.stored, (whole[0][:2], whole[1][:40])) is None


def test_blocks_that_share_a_stored_key_are_present():
    a = sparse_array(MemoryStore())
    present = blocks_present(a.stored, [[(0, 7), (7, 9), (9, 14), (14, 48)], [(5, 40)]])
    np.testing.assert_array_equal(present, [[False], [True], [True], [False]])
    assert blocks_present(a.stored, [[(0, 4), (4, 4)], [(0, 40)]]) is None
