"""A write or an append that dies before any write: readers see the old or the new, and the same call again succeeds."""

import copy
from contextlib import suppress

import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.datasets import LATER, is_alive, read, series
from support.recording import CHANGES, DyingStore, RecordingStore, deaths

import chunkmill as cm
from chunkmill.errors import NodeExists
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.publication import ATTRIBUTE

FINE = {"v": {"chunks": (1, 4)}, "time": {"chunks": (1,)}}


@pytest.mark.parametrize("name", ["zarr2", "zarr3", "n5"])
def test_append(name):
    """Dead at the n-th write of the append, for every n: repeated at once, or after a repair that leaves nothing of it."""
    before, repairs = MemoryStore(), name != "zarr2"
    cm.write_dataset(series(), before, format=name, encoding=FINE if repairs else None)

    counting = RecordingStore(copy.copy(before))
    cm.write_dataset(LATER, counting, append_dim="time")
    keys = counting.keys(*CHANGES)
    n_writes = max(n for n, key in enumerate(keys, 1) if not key.startswith(".chunkmill"))  # then it is only released
    assert n_writes >= 6
    seen = set()
    for n in range(len(keys)):
        store = copy.copy(before)
        with suppress(Exception) if n >= n_writes else pytest.raises(Exception, match="injected"):
            cm.write_dataset(LATER, DyingStore(store, n), append_dim="time")
        is_old = is_alive(store, 5, 8)
        problems = cm.check(store, repair=repairs).problems
        assert len(problems) <= 1, problems
        seen.update((problem.kind, "past their ends" in problem.reason) for problem in problems)
        if repairs:
            assert cm.check(store).problems == ()
            is_old = cm.open_array(store, "time").shape == (5,)  # it may have been completed
            assert not is_old or set(store.list_prefix("")) == set(before.list_prefix(""))
        if is_old:
            cm.write_dataset(LATER, store, append_dim="time")
        is_alive(store, 8)
        assert ATTRIBUTE not in cm.open_group(store).metadata.attributes
    cm.write_dataset(series(2, "2000-01-09"), store, append_dim="time")
    is_alive(store, 10)
    assert seen >= {("leftover", True), ("unfinished", False)}


@cases(("name", "path"), [("zarr2", "g"), ("zarr3", ""), ("n5", "g")])
def test_what_was_published_is_not_in_the_way_of_another(name, path, all_died):
    ds = xr.Dataset({"t": ("x", np.arange(4))}, {"x": np.arange(4)})
    other = ds + 100
    n = 0
    for left in deaths(MemoryStore, lambda dying: cm.write_dataset(ds, dying, path, format=name), first=1):
        n += 1
        assert {problem.kind for problem in cm.check(left).problems} & {"unfinished", "leftover"}
        expected = other
        try:
            cm.write_dataset(other, left, path, format=name)
        except NodeExists:  # all was there but for the consolidated metadata
            expected = ds
        else:
            assert unfinished_jobs(left) == []
        xr.testing.assert_identical(read(left, group=path or None).load(), expected)
    assert n >= 8
