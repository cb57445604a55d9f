"""Every kind of Dask array is taken and given: of dask.array, and of dask-array, whose expressions are cut."""

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
from support.cases import cases
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
    return xp.from_array(VALUES, chunks=(6, 5)) + 1


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
    with pytest.raises(
        ModuleNotFoundError, match=r"needs the package dask-array: pip install 'chunkmill\[dask-array\]'"
    ):
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


def test_a_dataset_and_a_tree_of_each_kind_are_written(x, registered, tmp_path):
    ds = dataset(x)
    # xarray's coders of packed values need functions that dask.array has no expressions of
    packed = {"b": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    cm.write_dataset(ds, tmp_path / "ds.zarr", encoding=packed)
    cm.write_dataset(ds.assign_coords(t=ds.t + np.timedelta64(1, "D")), tmp_path / "ds.zarr", append_dim="t")
    found = xr.open_dataset(tmp_path / "ds.zarr", engine="chunkmill", chunks={})
    assert kind_of(found.a) == kind_of(x)
    np.testing.assert_array_equal(found.a.to_numpy(), np.concatenate([VALUES + 1, VALUES + 1]))
    np.testing.assert_array_equal(found.b.to_numpy(), 2 * np.concatenate([VALUES + 1, VALUES + 1]))
    cm.write_dataset(
        xr.DataTree.from_dict({"/high": ds, "/low": ds.isel(x=slice(None, None, 2))}), tmp_path / "dt.zarr"
    )
    np.testing.assert_array_equal(cm.open_array(tmp_path / "dt.zarr", "low/a")[...], (VALUES + 1)[:, ::2])
    cm.write_dataset(ds.isel(t=slice(3, 9)), tmp_path / "ds.zarr", region={"t": slice(3, 9)})


@pytest.mark.parametrize("writer", ["store", "dataset", "tree"])
def test_what_several_arrays_share_is_read_once(kind, registered, writer):
    source = FarStore()
    filled(VALUES, source.below, "a", chunks=(6, 5))
    x = cm.from_store(source, "a", chunked_array_type=kind)
    arrays = {"u": x + 1, "v": x * 2}
    target = MemoryStore()
    source.clear()
    if writer == "store":
        targets = [cm.create_array(target, name, shape=(24, 20), dtype="f8", chunks=(6, 5)) for name in arrays]
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


@pytest.mark.parametrize("chunks", [(6, 5), (7, 8), (24, 20)])
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
    for source in (*sources, x.map_overlap(lambda block: block, depth=1)):
        with pytest.raises(
            JobError, match=r"is computed from \[.* of the same array, which other tasks overw.*persist\(\)"
        ):
            cm.to_store(source, a)
    np.testing.assert_array_equal(a[...], values)


def large(xp):
    return xp.ones((64 * 128, 1024), chunks=(128, 1024)) * 2  # 64 blocks of a MiB


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


@pytest.fixture
def array(tmp_path):
    return filled(VALUES, tmp_path / "source.zarr", chunks=(6, 5))


def test_a_stored_array_is_given_as_each_kind(array, xp, kind):
    x = xp.from_array(VALUES, chunks=(6, 5)) + 1
    for y in (array.to_dask(chunked_array_type=kind), cm.from_store(array, chunked_array_type=kind)):
        assert kind_of(y) == kind
        assert (y.shape, y.dtype, y.chunks) == (array.shape, array.dtype, array.to_dask().chunks)
        np.testing.assert_array_equal((x + y).compute(), VALUES + 1 + VALUES)
    assert cm.from_store(array, chunked_array_type=kind, name="own").name == "own"


INDEXES = [np.s_[3:17, 4:9], np.s_[5], np.s_[5, 6], np.s_[:, -1], np.s_[1:23:7, ::2], np.s_[::-1], np.s_[20:2:-3, 3],
    np.s_[8:17:5, 7], np.s_[..., 4:4], np.s_[None, 3:9], np.s_[[5, 1, 20]], np.s_[2:20:3, 1]]  # fmt: skip


@cases("index", INDEXES)
def test_parts_are_those_of_numpy(array, kind, index):
    y = array.to_dask(chunked_array_type=kind)
    np.testing.assert_array_equal(y[index].compute(), VALUES[index])
    np.testing.assert_array_equal((y + 1)[index].compute(), VALUES[index] + 1)
    if y[index].ndim and y[index].size:
        np.testing.assert_array_equal(y[index][1:].compute(), VALUES[index][1:])


@cases("chunks", [(12, 10), (7, 20), (5, 3), (24, 20), (6, 20)])
def test_other_blocks_hold_the_same(array, kind, chunks):
    y = array.to_dask(chunked_array_type=kind)
    assert y.rechunk(chunks).chunks == array.to_dask(chunked_array_type="dask").rechunk(chunks).chunks
    np.testing.assert_array_equal(y.rechunk(chunks).compute(), VALUES)
    np.testing.assert_array_equal(y[3:21, 4].rechunk(chunks[:1]).compute(), VALUES[3:21, 4])
    np.testing.assert_array_equal(y[3:21, 4:].rechunk(chunks).compute(), VALUES[3:21, 4:])


@pytest.mark.parametrize("axes", [(2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_axes_in_another_order_are_those_that_are_left(kind, axes):
    far, values = far_array()
    y = cm.from_store(far, "v", chunked_array_type=kind)
    wanted = values.transpose(axes)
    for part in (np.s_[:], np.s_[1:30:2, 1:3], np.s_[:, 2], np.s_[-1, 1:], np.s_[2, 1, 0]):
        far.clear()
        np.testing.assert_array_equal(y.transpose(axes)[part].compute(), wanted[part])
        assert set(far.chunks("get").values()) == {1}
    np.testing.assert_array_equal(y[:, 3].transpose((1, 0)).rechunk((4, 5)).compute(), values[:, 3].T)


def test_transposes_parts_and_larger_blocks_go_below_the_store(array, kind):
    y = array.to_dask(chunked_array_type=kind)
    if kind == "dask":
        pytest.skip("no expression")
    labelled = xr.DataArray(y, dims=("y", "x"))
    for x in (
        y.T,
        y.T[2:9],
        labelled.transpose().isel(y=3).data,
        labelled.isel(x=slice(2, 9)).T.data,
        y.rechunk((12, 10)),
    ):
        found = x.expr.simplify()
        assert [type(node) for node in found.walk()] == [type(y.expr)]
        assert (found.shape, found.chunks, found.dtype) == (x.shape, x.chunks, x.dtype)


def far_array():
    far = FarStore()
    values = np.arange(24 * 40 * 4).reshape(24, 40, 4)
    filled(values, far.below, "v", chunks=(4, 4, 2), dimension_names=list("zyx"))
    return far, values


@pytest.mark.parametrize("reader", ["from_store", "sliced", "engine", "chunked later"])
def test_many_requests_are_under_way_and_each_is_made_once(kind, registered, reader):
    far, values = far_array()
    part = np.s_[8:, :, :2] if reader == "sliced" else np.s_[:]
    if reader in {"from_store", "sliced"}:
        x = cm.from_store(far, "v", chunked_array_type=kind)[part]
    elif reader == "engine":
        x = xr.open_dataset(far, engine="chunkmill", chunks={}).v.data
    else:
        x = xr.open_dataset(far, engine="chunkmill").v.chunk(z=4, y=4, x=2).data
    assert kind_of(x) == kind
    if kind == "dask-array":
        assert [(node._meta.shape, node._meta.dtype) for node in x.expr.lower_completely().walk()][-1] == ((), "i1")
    far.clear()
    far.seconds = 0.01
    with dask.config.set(scheduler="threads", num_workers=2):
        np.testing.assert_array_equal((x + 1).compute(), values[part] + 1)
    assert far.most_at_once >= 16
    assert len(far.chunks("get")) == values[part].size // 32
    assert set(far.chunks("get").values()) == {1}


def test_what_is_read_by_steps_or_with_a_lock_is_chunked_as_xarray_does(kind, registered):
    far, values = far_array()
    lazy = xr.open_dataset(far.below, engine="chunkmill").v
    np.testing.assert_array_equal(lazy.isel(z=3, y=slice(2, None, 2)).chunk(y=4), values[3, 2::2])
    locked = lazy.chunk(z=4, lock=True)
    np.testing.assert_array_equal(locked, values)
    assert kind == "dask" or locked.data.expr.operand("lock")
