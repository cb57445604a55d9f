"""A transform to several targets that dies at any write: repeated, or over what is there, each target is whole."""

import copy

import numpy as np
import pytest
from support.arrays import filled
from support.recording import deaths

import chunkmill as cm
from chunkmill.errors import NodeExists
from chunkmill.stores.memory import MemoryStore

VALUES = np.arange(240, dtype="i4").reshape(24, 10)


pytestmark = pytest.mark.usefixtures("all_died", "one_thread")


def read(store, path):
    return cm.open_array(store, path, consolidated=False)[...]


def left_over(store):
    return [key for key in store.list_prefix("") if "chunkmill" in key]


def test_several_targets_are_resumed_together():
    array = filled(VALUES, path="a", chunks=(4, 5))

    def run(store):
        options = {"chunks": [(4, 10), (8, 5)], "dtype": ["i4", "u1"], "block": (8, 10)}
        cm.transform(lambda b: (b + 1, (b % 2).astype("u1")), array, [(store, "x"), (store, "y")], **options)

    run(whole := MemoryStore())
    n = 0
    for n, store in enumerate([whole, *deaths(MemoryStore, run, first=1)]):
        if n:
            run(store)
        np.testing.assert_array_equal(read(store, "x"), VALUES + 1)
        np.testing.assert_array_equal(read(store, "y"), VALUES % 2)
        assert not left_over(store)
    assert 5 < n < 200


def test_targets_of_one_store_replace_what_is_there_each_whole():
    array = filled(VALUES, path="a", chunks=(4, 5))

    def run(function, target, **options):
        cm.transform(function, array, [(target, "x"), (target, "y")], dtype="i4", block=(24, 10), **options)

    def others(target, **options):
        run(lambda block: (block + 1, -block - 1), target, **options)

    run(lambda block: (block, -block), before := MemoryStore())
    with pytest.raises(NodeExists):
        others(before)
    found = set()
    for store in deaths(lambda: copy.copy(before), lambda dying: others(dying, overwrite=True), first=1):
        cm.check(store, repair=True)
        (x,) = (i for i in (0, 1) if np.array_equal(read(store, "x"), VALUES + i))
        (y,) = (i for i in (0, 1) if np.array_equal(read(store, "y"), -VALUES - i))
        found.add((x, y))
        if (x, y) != (1, 1):
            others(store, overwrite=True)
            np.testing.assert_array_equal(read(store, "y"), -VALUES - 1)
            assert not left_over(store)
    assert found == {(0, 0), (0, 1), (1, 1)}  # the first, which the journal is named after, comes last
