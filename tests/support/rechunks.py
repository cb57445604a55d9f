"""Arrays to rechunk, and checks of what comes of them: for the tests of rechunking."""

from math import prod

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.conversion.convert import plan_rechunk
from chunkmill.errors import JobError
from support.arrays import filled


def numbers(shape, dtype="i4"):
    values = np.arange(1, prod(shape) + 1).reshape(shape)
    if np.dtype(dtype).kind == "T":
        return np.array([f"number {n} " * (n % 3) for n in values.flat], dtype).reshape(shape)
    return values.astype(dtype)


def make(store, path="a", *, shape=(20, 30, 10), dtype="i4", chunks=(3, 30, 10), absent=(), **options):
    """An array of distinct numbers; store keys at the coords `absent` are not there."""
    values = numbers(shape, dtype)
    array = filled(values, store, path, chunks=chunks, **options)
    for coords in absent:
        array.store.delete(array.write_layout.locator.key(coords))
        values[array.write_layout.grid.region(coords)] = array.fill_value
    return array, values


def planned_tightly(*arguments, **options):
    """A plan with the least memory that will do, of an unfinished job as of a new one."""
    with pytest.raises(JobError, match=r"smallest that works|the unfinished job holds") as caught:
        plan_rechunk(*arguments, max_mem=1, **options)
    needed = int(str(caught.value).partition("give max_mem=")[2].split()[0])
    return plan_rechunk(*arguments, max_mem=needed, **options)


def smallest(planned, max_mem=1):
    """The `max_mem` that the error says would do, and the plan that it does for."""
    with pytest.raises(JobError, match="smallest that works") as caught:
        planned(max_mem)
    needed = int(str(caught.value).partition("max_mem=")[2].split(maxsplit=1)[0])
    with pytest.raises(JobError, match="smallest that works"):
        planned(needed - 1)
    return needed, planned(needed)


def check(target, values, path="b"):
    """The target is whole, and nothing else is left of the job."""
    array = cm.open_array(target, path)
    got = array[...]
    assert got.dtype.kind == values.dtype.kind
    np.testing.assert_array_equal(got, values)
    assert not [key for key in array.store.list_prefix("") if "chunkmill" in key]
    return array


def keys(array):
    """Coords of the store keys that are there."""
    there = set(array.store.list_prefix(array.stored.prefix))
    return {at for at in array.write_layout.grid.all_coords() if array.write_layout.locator.key(at) in there}
