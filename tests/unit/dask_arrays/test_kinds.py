"""Every kind of Dask array is taken and told apart: of dask.array, and of dask-array, whose expressions are lowered."""

import pickle
import sys
from runpy import run_path

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask.array import core
from support.arrays import filled
from support.memory import peak_below
from support.recording import FarStore

import chunkmill as cm
from chunkmill.dask_arrays import kinds
from chunkmill.dask_arrays.kinds import as_kind, check_kind, is_dask_array, kind_of, lowered_together
from chunkmill.errors import JobError
from chunkmill.nodes.opening import walk
from chunkmill.stores.memory import MemoryStore

VALUES = np.arange(24 * 20.0).reshape(24, 20)


@pytest.fixture
def x(xp):
    return xp.from_array(VALUES, chunks=(8, 10)) + 1


def test_kinds_are_told_apart(x, kind):
    assert is_dask_array(x)
    assert kind_of(x) == kind_of(xr.DataArray(x)) == kind
    assert kind_of(VALUES) is None
    assert check_kind(kind) == kind
    with pytest.raises(ValueError, match="expected 'dask' or 'dask-array'"):
        check_kind("cubed")


def test_a_kind_whose_package_is_not_installed_says_which(monkeypatch):
    array = cm.create_array(MemoryStore(), shape=(4,), dtype="i4")
    monkeypatch.setitem(sys.modules, "dask_array", None)
    told = r"needs the package dask-array: pip install 'chunkmill\[dask-array\]'"
    with pytest.raises(ModuleNotFoundError, match=told):
        array.to_dask(chunked_array_type="dask-array")
    assert kind_of(array.to_dask()) == "dask"


def test_lowered_is_of_the_same_values_and_blocks_and_computes_nothing(x, kind):
    with dask.config.set(scheduler=lambda *_, **__: pytest.fail("computed")):
        (y,) = lowered_together([x])
    assert isinstance(y, core.Array)
    assert (y.chunks, y.dtype, y.shape) == (x.chunks, x.dtype, x.shape)
    for each in (y, pickle.loads(pickle.dumps(y))):
        np.testing.assert_array_equal(dask.compute(each)[0], VALUES + 1)
    np.testing.assert_array_equal(as_kind(y, kind).compute(), VALUES + 1)
    assert kind_of(as_kind(y, kind)) == kind
    assert lowered_together([VALUES])[0] is VALUES


# --------------------------------------------------------------------------------------------------------------------
# In


def dataset(x):
    times = np.datetime64("2000-01-01", "ns") + np.arange(x.shape[0]) * np.timedelta64(1, "h")
    return xr.Dataset({"a": (("t", "x"), x), "b": (("t", "x"), x * 2)}, {"t": times})


def test_a_dataset_and_a_tree_of_each_kind_are_written(x, registered, one_thread):
    ds, store, tree = dataset(x), MemoryStore(), MemoryStore()
    # xarray's coders of packed values need functions that dask.array has no expressions of
    packed = {"b": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    cm.write_dataset(ds, store, encoding=packed)
    cm.write_dataset(ds.assign_coords(t=ds.t + np.timedelta64(1, "D")), store, append_dim="t")
    found = xr.open_dataset(store, engine="chunkmill", chunks={})
    assert kind_of(found.a) == kind_of(x)
    np.testing.assert_array_equal(found.a.to_numpy(), np.concatenate([VALUES + 1, VALUES + 1]))
    np.testing.assert_array_equal(found.b.to_numpy(), 2 * np.concatenate([VALUES + 1, VALUES + 1]))
    cm.write_dataset(xr.DataTree.from_dict({"/high": ds, "/low": ds.isel(x=slice(None, None, 2))}), tree)
    np.testing.assert_array_equal(cm.open_array(tree, "low/a")[...], (VALUES + 1)[:, ::2])
    cm.write_dataset(ds.isel(t=slice(3, 9)), store, region={"t": slice(3, 9)})


@pytest.mark.parametrize("writer", ["store", "dataset", "tree"])
def test_what_several_arrays_share_is_read_once(kind, registered, writer):
    source = FarStore()
    filled(VALUES, source.below, "a", chunks=(8, 10))
    x = cm.from_store(source, "a", chunked_array_type=kind)
    arrays = {"u": x + 1, "v": x * 2}
    target = MemoryStore()
    source.clear()
    if writer == "store":
        targets = [cm.create_array(target, name, shape=(24, 20), dtype="f8", chunks=(8, 10)) for name in arrays]
        cm.store([xr.DataArray(arrays["u"]), arrays["v"]], targets)
    elif writer == "dataset":
        cm.write_dataset(xr.Dataset({name: (("y", "x"), y) for name, y in arrays.items()}), target)
    else:
        parts = {f"/{name}": xr.Dataset({name: (("y", "x"), y)}) for name, y in arrays.items()}
        cm.write_dataset(xr.DataTree.from_dict(parts), target)
    assert set(source.chunks("get").values()) == {1}
    found = {name: cm.open_array(target, f"{name}/{name}" if writer == "tree" else name)[...] for name in arrays}
    np.testing.assert_array_equal(found["u"], VALUES + 1)
    np.testing.assert_array_equal(found["v"], VALUES * 2)


@pytest.mark.parametrize("chunks", [(8, 10), (9, 13), (24, 20)])
def test_each_kind_is_compared_with_what_is_stored(x, chunks):
    store = MemoryStore()
    cm.to_store(x, store, chunks=chunks, fill_value=1, attributes={"units": "K"}, dimension_names=("y", "x"))
    a = cm.open_array(store, mode="r+")
    for pair in ((x, a), (a, x), (xr.DataArray(x, dims=("y", "x")), a), (VALUES + 1, a)):
        assert cm.verify(*pair).equal
    assert cm.verify(a, x[6:12], region=np.s_[6:12, :]).equal
    a[23, 19] = -1
    (difference,) = cm.verify(x, a).differences
    assert (difference.kind, difference.n_elements) == ("values", 1)
    assert "first at (23, 19): 480.0 and -1.0" in str(difference)


def test_what_is_read_is_found_in_each_kind(xp, kind, tmp_path):
    a = filled(VALUES, tmp_path / "a.zarr", chunks=(6, 5))
    for source in (xp.from_array(a, chunks=(6, 5)), a.to_dask(chunked_array_type=kind)):
        with pytest.raises(JobError, match="would delete"):
            cm.to_store(source + 1, a.url, mode="w")
        with pytest.raises(JobError, match="of the same array, which other tasks overwrite"):
            cm.to_store(source[::-1] + 1, a)
    cm.to_store(source + 1, a)
    cm.to_store(xp.from_array(a, chunks=(6, 5))[6:] + 1, a, region=np.s_[6:])
    np.testing.assert_array_equal(a[...], np.concatenate([VALUES[:6] + 1, VALUES[6:] + 2]))


def test_what_parts_and_reductions_read_is_found(kind, tmp_path):
    values = np.arange(24 * 24.0).reshape(24, 24)
    a = filled(values, tmp_path / "a.zarr", chunks=(6, 6))
    x = a.to_dask(chunked_array_type=kind)
    sources = [x.T, x[8][None] + x * 0, x[:, 8][:, None] + x * 0, x - x.mean(), x.sum(axis=0) + x * 0]
    told = r"is computed from \[.* of the same array, which other tasks overw.*persist\(\)"
    for source in (*sources, x.map_overlap(lambda block: block, depth=1)):
        with pytest.raises(JobError, match=told):
            cm.to_store(source, a)
    np.testing.assert_array_equal(a[...], values)


def large(xp):
    return xp.ones((32 * 128, 1024), chunks=(128, 1024)) * 2  # 32 blocks of a MiB


GATHERED_BY_NONE = {
    "to_store": lambda x, where: cm.to_store(x, where, codecs="raw"),
    "misaligned": lambda x, where: cm.to_store(x, where, codecs="raw", chunks=(100, 1024)),
    "later": lambda x, where: cm.to_store(x, where, codecs="raw", compute=False).compute(),
    "resume": lambda x, where: cm.to_store(x, where, codecs="raw", resume=True),
    "store": lambda x, where: cm.store(x, empty(where, x.shape[0] + 5), regions=np.s_[5:]),
    "append": lambda x, where: empty(where, 0).append(x),
    "write_dataset": lambda x, where: cm.write_dataset(xr.Dataset({"v": (("y", "x"), x)}), where, encoding=RAW),
    "tree": lambda x, where: cm.write_dataset(
        xr.DataTree.from_dict({"/a": xr.Dataset({"v": (("y", "x"), x)})}), where, encoding={"/a": RAW}
    ),
    "returned": lambda x, where: cm.store([x], [empty(where, x.shape[0])], return_stored=True),
    "appended dataset": lambda x, where: (
        cm.write_dataset(labelled(x[:0]), where, encoding=RAW | {"y": {"chunks": (128,)}}),
        cm.write_dataset(labelled(x), where, append_dim="y"),
    ),
    "accessor": lambda x, where: labelled(x).chunkmill.write(where, encoding=RAW),
    "pyramid": lambda x, where: cm.pyramid(x, where, levels=2, chunks=(128, 1024), codecs="raw"),
}
RAW = {"v": {"codecs": "raw", "chunks": (128, 1024)}}


def labelled(x):
    return xr.Dataset({"v": (("y", "x"), x)}, {"y": np.arange(x.shape[0])})


def empty(where, n):
    return cm.create_array(where, shape=(n, 1024), dtype="f8", chunks=(128, 1024), codecs="raw")


@pytest.mark.parametrize(
    ("kind", "name"),  # both are of one kind once they are lowered
    [*(("dask-array", name) for name in GATHERED_BY_NONE), ("dask.array", "to_store"), ("dask.array", "write_dataset")],
    indirect=["kind"],
)
def test_no_whole_variable_is_in_the_client(xp, registered, name, tmp_path):
    x, write = large(xp), GATHERED_BY_NONE[name]
    with dask.config.set(scheduler="threads", num_workers=2), peak_below(20 << 20):
        write(x, tmp_path / "a.zarr")
    stored = [each for each in walk(cm.open(tmp_path / "a.zarr").stored) if getattr(each, "ndim", 0) == 2]
    assert stored
    assert all((cm.open_array(tmp_path / "a.zarr", each.path)[-100:] == 2).all() for each in stored)


def test_query_planning_of_dask_array_is_refused(monkeypatch):
    """A constant of dask.array's, by its configuration when it is imported."""
    monkeypatch.setattr(da, "array_expr_enabled", lambda: True)
    with pytest.raises(ImportError, match=r"chunkmill reads and writes with dask\.array as it is"):
        run_path(kinds.__file__)
