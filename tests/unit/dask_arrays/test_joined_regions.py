import dask
import dask.array as da
import numpy as np
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.array.selection import as_region
from chunkmill.dask_arrays.joined_regions import join_regions
from chunkmill.stores.memory import MemoryStore

SHAPE, CHUNKS = (12, 14), (4, 4)
ROWS, COLUMNS = [slice(2, 6), slice(6, 11)], [slice(1, 5), slice(5, 6), slice(6, 13)]
REGIONS = [(row, column) for row in ROWS for column in COLUMNS]


@pytest.fixture
def array():
    array = cm.create_array(MemoryStore(), "a", shape=SHAPE, dtype="i4", chunks=CHUNKS)
    array[...] = -1
    return array


def values(region, chunks=(3, 2)):
    whole = np.arange(np.prod(SHAPE), dtype="i4").reshape(SHAPE)
    return da.from_array(whole[region], chunks=chunks)


def expected(regions):
    result = np.full(SHAPE, -1, "i4")
    for region in regions:
        result[region] = values(region)
    return result


@pytest.mark.parametrize("compute", [True, False])
def test_each_key_is_written_once(array, compute):
    shuffled = [REGIONS[i] for i in (4, 0, 5, 2, 1, 3)]
    reports = cm.store([values(r) for r in shuffled], [array] * 6, regions=shuffled, compute=compute)
    if not compute:
        (reports,) = dask.compute(reports)
    np.testing.assert_array_equal(array[...], expected(REGIONS))
    assert sum(r.n_keys for r in reports) == 12  # one by one, 24 are written
    assert sum(r.n_partial for r in reports) == 10
    assert [r.n_regrouped for r in reports] == [values(r).npartitions for r in shuffled]


def test_each_key_is_read_once_at_most():
    store = RecordingStore(MemoryStore())
    array = cm.create_array(store, "a", shape=SHAPE, dtype="i4", chunks=CHUNKS)
    array[...] = -1
    store.clear()
    cm.store([values(r) for r in REGIONS], [array] * 6, regions=REGIONS)
    np.testing.assert_array_equal(array[...], expected(REGIONS))
    written, changed = store.keys("set", "set_if"), store.keys("set_if")
    assert len(set(written)) == len(written) == 12
    assert len(changed) == 10
    assert sorted(key for key in store.keys("get_versioned") if "/c/" in key) == sorted(changed)


def test_a_failing_block_loses_nothing(array):
    def fail(block):
        raise ValueError("no block")

    sources = [values(r) for r in REGIONS]
    sources[4] = sources[4].map_blocks(fail, dtype="i4", meta=np.empty((0, 0), "i4"))
    with pytest.raises(ValueError, match="no block"):
        cm.store(sources, [array] * 6, regions=REGIONS)
    found, whole = array[...], expected(REGIONS)
    assert ((found == whole) | (found == -1)).all()
    cm.store([values(r) for r in REGIONS], [array] * 6, regions=REGIONS)
    np.testing.assert_array_equal(array[...], whole)


def test_counts_belong_to_the_region_of_the_first_element():
    array = cm.create_array(MemoryStore(), "a", shape=(1024, 1024), dtype="f8", chunks=(512, 512))
    regions = [np.s_[0:700, :], np.s_[700:1024, :]]
    reports = cm.store([da.ones((700, 1024)), da.ones((324, 1024))], [array] * 2, regions=regions)
    assert [r.n_keys for r in reports] == [4, 0]
    assert array[...].all()


def test_an_array_that_is_named_for_each_region(tmp_path):
    cm.create_array(tmp_path, shape=SHAPE, dtype="i4", chunks=CHUNKS, fill_value=-1)
    reports = cm.store([values(r) for r in REGIONS], [(tmp_path, "")] * 6, regions=REGIONS)
    np.testing.assert_array_equal(cm.open_array(tmp_path)[...], expected(REGIONS))
    assert sum(r.n_keys for r in reports) == 12


@pytest.mark.parametrize(
    "regions",
    [
        REGIONS[:5],  # a corner is missing
        [*REGIONS[:5], REGIONS[4]],
        [np.s_[0:4, 0:8], np.s_[4:8, 0:8]],  # no key is shared
        [np.s_[0:5, 0:8], np.s_[6:8, 0:8]],
        [np.s_[0:5, 0:8], np.s_[4:8, 0:8]],
        [np.s_[0:5, 0:8], np.s_[5:5, 0:8]],
        REGIONS[:1],
    ],
    ids=["gap in a grid", "twice", "aligned", "gap", "overlap", "empty", "one"],
)
def test_others_are_written_one_by_one(array, regions):
    assert join_regions([values(r) for r in regions], array.stored, [as_region(r, SHAPE) for r in regions]) is None
    cm.store([values(r) for r in regions], [array] * len(regions), regions=regions)
    np.testing.assert_array_equal(array[...], expected(regions))


def test_blocks_that_do_not_fit_each_other(array):
    chunks = [(3, 2), (3, 3), (2, 2), (3, 2), (3, 2), (3, 2)]
    cm.store([values(r, c) for r, c in zip(REGIONS, chunks, strict=True)], [array] * 6, regions=REGIONS)
    np.testing.assert_array_equal(array[...], expected(REGIONS))


def test_values_read_from_the_array_itself():
    array = cm.create_array(MemoryStore(), "a", shape=(1024, 1024), dtype="f8", chunks=(512, 512))
    regions = [np.s_[0:700, :], np.s_[700:1024, :]]
    cm.store([array.to_dask(region=r, chunks=(1024, 1024)) + 1 for r in regions], [array] * 2, regions=regions)
    assert (array[...] == 1).all()


def test_values_of_other_types(array):
    sources = [values(r).astype("i2" if i % 2 else "i4") for i, r in enumerate(REGIONS)]
    cm.store(sources, [array] * 6, regions=REGIONS)
    np.testing.assert_array_equal(array[...], expected(REGIONS))


def test_blocks_without_elements(array):
    sources = [da.concatenate([x[:0], x, x[:0]]) for x in map(values, REGIONS)]
    cm.store(sources, [array] * 6, regions=REGIONS)
    np.testing.assert_array_equal(array[...], expected(REGIONS))
