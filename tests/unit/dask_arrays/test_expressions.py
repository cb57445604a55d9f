"""A stored array is given as each kind of Dask array; expressions of dask-array are cut before they are read."""

import dask
import numpy as np
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases
from support.recording import FarStore

import chunkmill as cm
from chunkmill.dask_arrays.kinds import kind_of

VALUES = np.arange(24 * 20.0).reshape(24, 20)


@pytest.fixture
def array():
    return filled(VALUES, chunks=(8, 10))


def test_a_stored_array_is_given_as_each_kind(array, xp, kind):
    x = xp.from_array(VALUES, chunks=(8, 10)) + 1
    for y in (array.to_dask(chunked_array_type=kind), cm.from_store(array, chunked_array_type=kind)):
        assert kind_of(y) == kind
        assert (y.shape, y.dtype, y.chunks) == (array.shape, array.dtype, array.to_dask().chunks)
        np.testing.assert_array_equal((x + y).compute(), VALUES + 1 + VALUES)
    assert cm.from_store(array, chunked_array_type=kind, name="own").name == "own"


INDEXES = [np.s_[3:17, 4:9], np.s_[5], np.s_[5, 6], np.s_[:, -1], np.s_[1:23:7, ::2], np.s_[::-1], np.s_[20:2:-3, 3],
    np.s_[8:17:5, 7], np.s_[..., 4:4], np.s_[None, 3:9], np.s_[[5, 1, 20]], np.s_[2:20:3, 1]]  # fmt: skip


@cases("index", INDEXES)
def test_parts_are_those_of_numpy(array, kind, one_thread, index):
    y = array.to_dask(chunked_array_type=kind)
    np.testing.assert_array_equal(y[index].compute(), VALUES[index])
    np.testing.assert_array_equal((y + 1)[index].compute(), VALUES[index] + 1)
    if y[index].ndim and y[index].size:
        np.testing.assert_array_equal(y[index][1:].compute(), VALUES[index][1:])


@cases("chunks", [(16, 10), (7, 20), (5, 7), (24, 20), (8, 20)])
def test_other_blocks_hold_the_same(array, kind, one_thread, chunks):
    y = array.to_dask(chunked_array_type=kind)
    assert y.rechunk(chunks).chunks == array.to_dask(chunked_array_type="dask").rechunk(chunks).chunks
    np.testing.assert_array_equal(y.rechunk(chunks).compute(), VALUES)
    np.testing.assert_array_equal(y[3:21, 4].rechunk(chunks[:1]).compute(), VALUES[3:21, 4])
    np.testing.assert_array_equal(y[3:21, 4:].rechunk(chunks).compute(), VALUES[3:21, 4:])


@pytest.mark.parametrize("axes", [(2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_axes_in_another_order_are_those_that_are_left(kind, axes):
    far, values = far_array((8, 8, 2))
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
    of_xarray = labelled.transpose().isel(y=3).data, labelled.isel(x=slice(2, 9)).T.data
    for x in (y.T, y.T[2:9], *of_xarray, y.rechunk((16, 10))):
        found = x.expr.simplify()
        assert [type(node) for node in found.walk()] == [type(y.expr)]
        assert (found.shape, found.chunks, found.dtype) == (x.shape, x.chunks, x.dtype)


def far_array(chunks):
    far = FarStore()
    values = np.arange(24 * 32 * 4).reshape(24, 32, 4)
    filled(values, far.below, "v", chunks=chunks, dimension_names=list("zyx"))
    return far, values


@pytest.mark.parametrize("reader", ["from_store", "sliced", "engine", "chunked later"])
def test_many_requests_are_under_way_and_each_is_made_once(kind, registered, reader):
    far, values = far_array((4, 4, 2))
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
    far, values = far_array((8, 8, 2))
    lazy = xr.open_dataset(far.below, engine="chunkmill").v
    np.testing.assert_array_equal(lazy.isel(z=3, y=slice(2, None, 2)).chunk(y=4), values[3, 2::2])
    locked = lazy.chunk(z=4, lock=True)
    np.testing.assert_array_equal(locked, values)
    assert kind == "dask" or locked.data.expr.operand("lock")
