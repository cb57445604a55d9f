"""What others make while an operation runs, and what was there before it, is not lost: documents, journals, old values.

A death, or a lost answer, comes at one store operation: `tests/interleavings` explores what others do in between.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.recording import contents, deaths

import chunkmill as cm
from chunkmill.errors import NodeExists
from chunkmill.stores.memory import MemoryStore

VALUES = np.arange(8, dtype="i4").reshape(2, 4) + 1


pytestmark = pytest.mark.usefixtures("one_thread")


def write(store, path, **more):
    return cm.to_store(da.from_array(VALUES, chunks=2), store, path, **more)


@cache
def dataset():
    return xr.Dataset({"t": ("x", da.arange(4, chunks=4))}, coords={"x": np.arange(4)})


WRITES = {
    "to_store": lambda store, name: write(store, "g/a", format=name),
    "resumable to_store": lambda store, name: write(store, "g/a", format=name, resume=True),
    "write_dataset": lambda store, name: cm.write_dataset(dataset(), store, "g", format=name),
    "convert": lambda store, name: cm.convert(source(), (store, "g/a"), format=name),
    "rechunk": lambda store, name: cm.rechunk(source(), (store, "g/a"), chunks=(2, 3), format=name),
}


@cache
def source():
    store = MemoryStore()
    write(store, "")
    return store


# --------------------------------------------------------------------------------------------------------------------
# Deaths while publishing


TO_A_TREE = WRITES | {
    "computed later": lambda store, name: cm.write_dataset(dataset(), store, "g", format=name, compute=False),
    "variables added": lambda store, _: cm.write_dataset(dataset(), store, mode="a"),
}


# each write once, each format at least once: `tests/interleavings` explores every pair in every format
@cases(("write_to", "name"), [*zip(TO_A_TREE, ["zarr2", "n5", "zarr3", "zarr2", "n5", "zarr2", "zarr3"], strict=True)])
def test_a_new_node_that_dies_anywhere_is_whole_or_can_be_written_again(name, write_to, all_died):
    """Attributes of Zarr v2 alone were refused for ever, and consolidated metadata did not name what was published."""
    n = 0
    for store in deaths(lambda: MemoryStore(contents(_tree(name))), lambda dying: TO_A_TREE[write_to](dying, name)):
        n += 1
        with suppress(NodeExists):  # it was published
            TO_A_TREE[write_to](store, name)
        assert cm.verify(store, _whole(write_to, name)).equal
        assert "stale" not in {problem.kind for problem in cm.check(store).problems}
    assert n > 8


@cache
def _tree(name):
    store = MemoryStore()
    root = cm.create_group(store, format=name)
    if root.stored.documents.consolidated_key("") is not None:
        cm.consolidate(store)
    return store


@cache
def _whole(write_to, name):
    store = MemoryStore(contents(_tree(name)))
    TO_A_TREE[write_to](store, name)
    return store


# --------------------------------------------------------------------------------------------------------------------
# Answers that are lost, and graphs that are old


class LosesAnswer(MemoryStore):
    """Stores what the first conditional write of a key that ends with `name` says, and then says that it did not."""

    def __init__(self, name):
        super().__init__()
        self.name, self.lost = name, []

    def set_if(self, key, value, version):
        stored = super().set_if(key, value, version)
        if stored and not self.lost and key.endswith(self.name):
            self.lost.append(key)
            return False
        return stored


@cases(
    ("write_to", "name", "fmt"),
    [
        ("resumable to_store", "plan.json", "zarr3"), ("convert", "plan.json", "zarr3"),
        ("to_store", "a/.zarray", "zarr2"), ("write_dataset", "t/zarr.json", "zarr3"),
        ("convert", "a/attributes.json", "n5"), ("rechunk", "a/zarr.json", "zarr3"),
        ("to_store", ".zgroup", "zarr2"), ("write_dataset", "attributes.json", "n5"), ("convert", "zarr.json", "zarr3"),
    ],
)  # fmt: skip
def test_a_lost_answer_is_no_other_writer(write_to, name, fmt):
    """To the beginning of a job, to the document of a new node, and to that of a group above."""
    store = LosesAnswer(name)
    store.is_remote = "/" in name or name == "plan.json"  # a client asks again for the answer that it lost
    WRITES[write_to](store, fmt)
    assert store.lost
    assert cm.check(store).ok
    if write_to == "to_store":
        with pytest.raises(NodeExists):
            WRITES[write_to](store, fmt)
