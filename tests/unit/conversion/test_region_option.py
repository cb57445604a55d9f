"""Regions: what can be cropped, chunks that are copied, and groups by dimension."""

from itertools import pairwise

import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.conversions import KINDS, make

import chunkmill as cm
from chunkmill.array.chunk_io import read_chunk
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.region_option import cropping
from chunkmill.errors import RegionError
from chunkmill.nodes.opening import walk
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def group():
    group = cm.create_group("memory://region-option", overwrite=True)
    group.create_array("t2m", shape=(8, 6), dtype="f4", dimension_names=("time", "lat"))
    group.create_array("lat", shape=(6,), dtype="f4", dimension_names=("lat",))
    group.create_array("level/lat", shape=(3,), dtype="f4", dimension_names=("lat",))
    return group


def _shapes(group, region, paths=("t2m", "lat")):
    arrays = [each for each in walk(group.stored) if isinstance(each, StoredArray) and each.path in paths]
    crop = cropping(region, group.stored, arrays)
    return {array.path: crop(array).shape for array in arrays}


@cases(
    ("region", "error", "text"),
    [
        ({"lon": (0, 1)}, ValueError, "names dimensions ['lon'], where those of the arrays are ['lat', 'time']"),
        ({"time": slice(0, 4, 2)}, ValueError, "a step of 2"),
        ({"time": 3}, ValueError, "an integer would drop the axis: give (3, 4)"),
        ({"time": (0, 9)}, RegionError, "'t2m': region=[0:9, :]"),
        ({"time": (4, 4)}, RegionError, "axis 0 of length 8 has no elements 4:4"),
        ((slice(0, 2),), TypeError, "give ranges by dimension"),
    ],
)
def test_what_cannot_be_cropped_is_refused(group, region, error, text):
    with pytest.raises(error) as raised:
        _shapes(group, region)
    assert text in str(raised.value)


def test_a_dimension_of_two_lengths_is_refused(group):
    with pytest.raises(ValueError, match="6 in 'lat', 3 in 'level/lat'"):
        _shapes(group, {"lat": (0, 2)}, ("lat", "level/lat"))


def test_a_number_means_an_axis_where_all_arrays_have_as_many(group):
    group.create_array("t2m_max", shape=(8, 6), dtype="f4")
    assert _shapes(group, {0: (1, 4)}, ("t2m", "t2m_max")) == {"t2m": (3, 6), "t2m_max": (3, 6)}
    with pytest.raises(ValueError, match=r"names dimensions \[0\]"):
        _shapes(group, {0: (1, 4)}, ("t2m", "lat"))


WHOLE = {  # of 24 x 20 elements in chunks of 5 x 4: the actions without shards, and with those of 10 x 8
    "at chunks": (np.s_[10:20, 8:16], {"copy": 4}, {"copy": 1}),
    "to the end": (np.s_[10:24, 8:20], {"copy": 9}, {"copy": 4}),
    "ends inside": (np.s_[10:23, 8:19], {"copy": 4, "recode": 5}, {"repack": 4, "recode": 5}),
    "begins inside a shard": (np.s_[5:20, 8:16], {"copy": 6}, {"repack": 6}),
    "begins inside a chunk": (np.s_[3:20, 8:16], {"rechunk": 8}, {"rechunk": 2}),
}


@cases("case", WHOLE)
@cases("kind", ["zarr2", "zarr3 sharded"])
def test_chunks_are_copied_where_the_region_begins_at_one(case, kind):
    region, *actions = WHOLE[case]
    values = np.arange(1, 24 * 20 + 1, dtype="i4").reshape(24, 20)
    shards = {"shards": (10, 8)} if kind == "zarr3 sharded" else {}
    source = filled(values, path="a", chunks=(5, 4), codecs="gzip", **KINDS[kind] | shards)
    plan = cm.plan_convert(source, MemoryStore(), format="zarr3", region=region)
    report = plan.run()
    target = cm.open_array(plan.job.target.store)
    np.testing.assert_array_equal(target[...], values[region])
    assert dict(report.actions) == dict(plan.actions) == actions[kind == "zarr3 sharded"]
    assert (target.chunks, target.shards) == (source.chunks, source.shards)
    _check_nothing_outside(target)


def _check_nothing_outside(array):
    layout = array.read_layout
    for coords in layout.grid.all_coords():
        shape = layout.spec(coords).shape
        outside = np.ones(shape, bool)
        outside[layout.grid.extent(coords)] = False
        chunk = read_chunk(array.stored, layout, coords, tuple(slice(0, n) for n in shape))
        assert not chunk[outside].any()


@cases(("old", "new"), [*pairwise([*KINDS, "zarr2"])])
def test_each_format_to_the_next(old, new):
    source, values = make(old)
    region = (slice(1, values.shape[0] - 1), slice(0, values.shape[1] - 2))
    options = {"shards": None} | KINDS[new]
    report = cm.convert((source, "g/a"), target := MemoryStore(), region=region, **options)
    array = cm.open_array(target)
    np.testing.assert_array_equal(array[...], values[region])
    assert dict(array.attributes) == {"units": "K"}
    assert report.n_keys == array.write_layout.grid.n_chunks
    assert cm.verify((source, "g/a"), target, region=region).equal
    assert not cm.verify((source, "g/a"), target, region=(slice(0, values.shape[0] - 2), region[1])).equal


def test_only_what_the_region_touches_is_read_of_a_sparse_array():
    store = MemoryStore()
    source = cm.create_array(store, shape=(10**9, 4), dtype="u1", chunks=(10, 4))
    source[123_456_789], source[5] = 7, 1
    report = cm.convert(source, target := MemoryStore(), format="n5", region=(slice(100_000_000, 900_000_000),))
    array = cm.open_array(target)
    assert array[23_456_789].tolist() == [7] * 4
    assert len(list(array.stored.stored_keys())) == 1
    assert report.actions["absent"] == 8 * 10**7 - 1
    assert report.n_requests < 100


def test_groups_are_cropped_by_dimension_and_rechunked():
    group = cm.create_group(source := MemoryStore())
    for name, shape in {"t2m": (12, 6, 8), "time": (12,), "k": ()}.items():
        names = ("time", "lat", "lon")[: len(shape)]
        values = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
        filled(values, source, name, chunks=tuple(min(n, 4) for n in shape), dimension_names=names)
    region = {"time": slice(-9, -1), "lat": (2, None)}
    report = cm.rechunk(source, target := MemoryStore(), chunks={"time": -1}, region=region, include=["t2m", "time"])
    result = cm.open_group(target)
    np.testing.assert_array_equal(result["t2m"][...], group["t2m"][3:11, 2:])
    np.testing.assert_array_equal(result["time"][...], range(3, 11))
    assert (sorted(result), result["t2m"].chunks) == (["t2m", "time"], (8, 4, 4))
    assert "region time=-9:-1, lat=2:" in report.source
    existing = cm.create_array(place := MemoryStore(), shape=(8, 4, 8), dtype="i4", chunks=(8, 2, 2))
    cm.rechunk((source, "t2m"), existing, chunks=None, region=region)
    np.testing.assert_array_equal(cm.open_array(place)[...], group["t2m"][3:11, 2:])
