"""Writes of any region, by any door, in any order: what numpy would hold afterwards."""

from __future__ import annotations

import functools
from math import prod

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import lengths, regions

import chunkmill as cm
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

KINDS = ["zarr2", "zarr3", "sharded", "rectilinear", "zarr3-draft", "n5"]


@st.composite
def layouts(draw, kind, max_rank=3, max_size=9):
    """Keywords of `create_array`."""
    shape = tuple(draw(st.lists(st.integers(1, max_size), min_size=1, max_size=max_rank)))
    layout = {"shape": shape, "dtype": "i2", "format": "zarr3" if kind in {"rectilinear", "sharded"} else kind}
    layout["fill_value"] = 0 if kind == "n5" else draw(st.sampled_from([0, 3]))  # the only one that N5 has
    length = lengths if kind == "rectilinear" else lambda _: st.integers(1, max_size + 2)
    layout["chunks"] = tuple(draw(length(n)) for n in shape)
    if kind == "sharded":
        layout["shards"] = tuple(n * draw(st.integers(1, 3)) for n in layout["chunks"])
    return layout


@st.composite
def blocks(draw, shape):
    """Chunks of a dask array of `shape`."""
    return tuple(draw(lengths(n)) if n else (0,) for n in shape)


def extent(region):
    return tuple(cut.stop - cut.start for cut in region)


def values(shape, seed):
    """Whole blocks of fill value are among them."""
    return (np.arange(prod(shape)).reshape(shape) // 2 * seed % 4).astype("i2")


def n_partial(array, region):
    """Store keys that `region` covers, but not whole: counted one by one."""
    inside = np.zeros(array.shape, bool)
    inside[region] = True
    grid = array.write_layout.grid
    covers = [inside[grid.region(coords)] for coords in np.ndindex(*grid.grid_shape)]
    return sum(bool(c.any() and not c.all()) for c in covers)


def in_tasks_of_any_size(test):
    """Decorate a test of `data`: what is small is written by few tasks, or by many, with parts of blocks cut off before."""

    @functools.wraps(test)
    def run(data, **fixtures):
        with pytest.MonkeyPatch.context() as patch:
            if data.draw(st.booleans()):
                patch.setattr("chunkmill.dask_arrays.regroup._LEAST_BYTES", 1)
                patch.setattr("chunkmill.dask_arrays.regroup._WORTH_A_TASK", 0)
            test(data=data, **fixtures)

    return run


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@in_tasks_of_any_size
def test_one_write_after_the_other(kind, data):
    layout = data.draw(layouts(kind))
    array = cm.create_array(MemoryStore(), **layout)
    expected = np.full(layout["shape"], layout["fill_value"], "i2")
    for seed in range(data.draw(st.integers(1, 5))):
        region = data.draw(regions(layout["shape"]))
        part = values(extent(region), seed)
        expected[region] = part
        door = data.draw(st.sampled_from(["setitem", "to_store", "store"]))
        if door == "setitem":
            array[region] = part
            continue
        x = da.from_array(part, chunks=data.draw(blocks(part.shape)))
        if door == "to_store":
            report = cm.to_store(x, array.store, region=region)
        else:
            (report,) = cm.store(x, array, regions=region, write_empty_chunks=data.draw(st.booleans()))
        assert report.n_partial == n_partial(array, region)
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(cm.open_array(array.store)[...], expected)


@st.composite
def boxes(draw, region):
    """Cut a region into boxes that do not touch each other's elements."""
    sizes = extent(region)
    axes = [axis for axis, n in enumerate(sizes) if n > 1]
    if not axes or not draw(st.booleans()):
        return [region]
    axis = draw(st.sampled_from(axes))
    at = region[axis].start + draw(st.integers(1, sizes[axis] - 1))
    first = (*region[:axis], slice(region[axis].start, at), *region[axis + 1 :])
    second = (*region[:axis], slice(at, region[axis].stop), *region[axis + 1 :])
    return [*draw(boxes(first)), *draw(boxes(second))]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@in_tasks_of_any_size
def test_many_at_once(kind, data, tmp_path_factory):
    """Regions that share store keys, each a graph of its own, all computed together on threads."""
    layout = data.draw(layouts(kind))
    places = {
        "memory": MemoryStore,
        "files": lambda: LocalStore(tmp_path_factory.mktemp("x")),
        "memory-filesystem": lambda: f"memory://{id(data)}-{np.random.default_rng().integers(1 << 60)}",
    }
    store = places[data.draw(st.sampled_from(list(places)))]()
    array = cm.create_array(store, **layout)
    cuts = data.draw(boxes(tuple(slice(0, n) for n in layout["shape"])))
    expected = values(layout["shape"], 3) + np.int16(1)
    sources = [da.from_array(expected[cut], chunks=data.draw(blocks(extent(cut)))) for cut in cuts]
    jobs = [cm.store(x, array, regions=cut, compute=False) for x, cut in zip(sources, cuts, strict=True)]
    dask.compute(*jobs, scheduler="threads", num_workers=4)
    np.testing.assert_array_equal(array[...], expected)
