"""What is given to write as values: of many kinds, what no store can hold, blocks that are not as they are declared."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import NodeNotFound, UnsupportedFeature
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


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
