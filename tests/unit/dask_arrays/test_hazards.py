"""Stored arrays that a graph reads."""

import dask.array as da
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.array.local_locks import local_lock
from chunkmill.dask_arrays.hazards import canonical_location, check_not_read, locations_read
from chunkmill.dask_arrays.write import write_graph
from chunkmill.errors import JobError


@pytest.fixture
def array(tmp_path):
    return cm.create_array(tmp_path / "s", "g/a", shape=(8, 8), dtype="i4", chunks=(4, 4))


def test_locations_are_canonical(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "s")
    plain = canonical_location(f"file://{tmp_path}/s", "a/b")
    assert (
        plain == canonical_location(f"file://{tmp_path}/link/", "/a/b/") == canonical_location(f"{plain[:-5]}", "a/b")
    )
    assert plain.endswith("/s/a/b/")
    assert canonical_location("s3://b", "") == "s3://b/"


@pytest.mark.parametrize(
    "graph",
    [
        lambda a: a.to_dask() + 1,
        da.from_array,
        lambda a: da.from_array(a, inline_array=True).sum(),
        lambda a: da.concatenate([da.zeros((8, 8)), a.to_dask()[::2]]),
    ],
    ids=["to_dask", "from_array", "inlined", "among others"],
)
def test_what_is_read(array, graph):
    assert locations_read(graph(array)) == {canonical_location(array.url, "g/a")}


def test_numpy_and_other_objects_read_nothing():
    assert locations_read(np.ones(3)) == locations_read(da.ones(3)) == locations_read(None) == set()


@pytest.mark.parametrize("path", ["g/a", "g", ""])
def test_deleting_what_is_read_is_refused(array, path):
    with pytest.raises(JobError, match=r"would delete .*g/a, .* load or persist"):
        check_not_read([array.to_dask()], array.store, path)
    check_not_read([array.to_dask()], array.store, "g/ab")
    check_not_read([np.ones(3)], array.store, path)


def overwrite(array, x, region=(slice(0, 8), slice(0, 8))):
    return write_graph(x, array.stored, region, lock=local_lock)


def test_block_by_block_in_place(array):
    overwrite(array, array.to_dask() * 2 + array.to_dask())
    overwrite(array, array.to_dask()[:4], (slice(0, 4), slice(0, 8)))
    overwrite(array, array.to_dask()[4:], (slice(0, 4), slice(0, 8)))  # read where nobody writes
    other = slice(4, 8), slice(0, 8)
    overwrite(array, array.to_dask(region=other), (slice(0, 4), slice(0, 8)))  # with no step between


@pytest.mark.parametrize(
    "x",
    [
        lambda a: a.to_dask().T,
        lambda a: a.to_dask()[::-1],
        lambda a: a.to_dask() + a.to_dask().sum(),
        lambda a: da.from_array(a, chunks=4).T,
    ],
    ids=["transposed", "reversed", "sum", "from_array"],
)
def test_reading_what_another_task_overwrites_is_refused(array, x):
    with pytest.raises(JobError, match=r"\[0:4, .*which other tasks overwrite.*load or persist"):
        overwrite(array, x(array))
