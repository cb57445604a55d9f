"""Whoever reads while a node is replaced by copies gets the old one, the new one, or an error that says so."""

import itertools
import pickle
from contextlib import contextmanager
from functools import partial

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.errors import NodeBeingReplaced, NodeNotFound, StoreError
from chunkmill.journal import heartbeat
from chunkmill.stores import conflicts
from chunkmill.stores.memory import MemoryStore

FORMATS = ["zarr2", "zarr3", "n5", "zarr3-draft"]
OLD, NEW = np.arange(8), np.arange(8) + 100


class Watched(MemoryStore):
    """Cannot rename; looks before each change."""

    stage = swap_in = can_replace = replace_prefix = pin = None

    def set(self, key, value):
        LOOKS[-1]()
        super().set(key, value)

    def set_if(self, key, value, version):
        LOOKS[-1]()
        return super().set_if(key, value, version)

    def delete(self, key):
        LOOKS[-1]()
        super().delete(key)

    def delete_prefix(self, prefix):
        LOOKS[-1]()
        super().delete_prefix(prefix)


LOOKS = [lambda: None]  # not of the store, which is pickled


@contextmanager
def looking(look):
    LOOKS.append(look)
    try:
        yield
    finally:
        LOOKS.pop()


def stored(store, path, values, name, **options):
    options |= {"format": name, "attributes": {"first": int(values[0])}}
    cm.to_store(values, store, path, mode="w", **options)


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch):
    monkeypatch.setattr(conflicts, "pause", lambda _: None)


@pytest.mark.parametrize("name", FORMATS)
def test_at_every_step(name):
    store = Watched()
    cm.create_group(store, "g", format=name)
    stored(store, "g/a", OLD, name, chunks=4)
    stored(store, "g/b", OLD, name, chunks=4)
    group = cm.open_group(store, "g", consolidated=False)
    seen = []

    def by_name():
        return cm.open_array(store, "g/a")

    def by_group():
        return group["a"]

    def by_listing():
        found = group.children()
        assert set(found) == {"a", "b"}
        return found["a"]

    def look():
        if not any("/intent-" in key for key in store.list_prefix("")):
            return
        for read in (by_name, by_group, by_listing):
            try:
                array = read()
            except NodeBeingReplaced:
                seen.append("being replaced")
            else:
                which = OLD if array.attributes["first"] == 0 else NEW
                np.testing.assert_array_equal(array[...], which)
                seen.append("old" if which is OLD else "new")

    with looking(look):
        stored(store, "g/a", NEW, name, chunks=8)
    assert set(seen) == {"old", "being replaced", "new"}
    assert seen == sorted(seen, key=["old", "being replaced", "new"].index)
    assert not [key for key in store.list_prefix("") if ".chunkmill" in key]
    assert cm.check(store).ok


@pytest.mark.parametrize("path", ["", "g"], ids=["root", "below"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_listing_at_every_step_shows_all_variables(name, path):
    """At the root of the draft, the group's document is beside those of its children, and was written before them."""
    store = Watched()
    cm.create_group(store, "", format=name)

    def dataset(value):
        return xr.Dataset({key: ("x", np.full(4, value)) for key in "az"}).chunk()

    cm.write_dataset(dataset(1), store, path, mode="w", format=name)
    group = cm.open_group(store, path, consolidated=False)
    seen = []

    def look():
        if not any("/intent-" in key for key in store.list_prefix("")):
            return
        try:
            found = group.children()
        except NodeBeingReplaced:
            seen.append("being replaced")
        else:
            assert set(found) == {"a", "z"}
            seen.append("all")

    with looking(look):
        cm.write_dataset(dataset(2), store, path, mode="w", format=name)
    assert set(seen) == {"all", "being replaced"}


@pytest.mark.parametrize("name", FORMATS)
def test_one_that_died_is_named_until_it_is_repaired(name, monkeypatch):
    store = Watched()
    cm.create_group(store, "g", format=name)
    stored(store, "g/a", OLD, name)

    steps = itertools.count()

    def die():
        if any("-applied" in key for key in store.list_prefix("")) and next(steps) > 2:  # documents are gone
            raise KeyboardInterrupt

    with looking(die), pytest.raises(KeyboardInterrupt):
        stored(store, "g/a", NEW, name)
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    with pytest.raises(NodeBeingReplaced, match="check the store with repair=True") as refused:
        cm.open_array(store, "g/a")
    error = refused.value
    assert error.path == "g/a"
    assert isinstance(error, NodeNotFound)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(NodeBeingReplaced):
        "a" in cm.open_group(store, "g")  # noqa: B015
    assert {problem.kind for problem in cm.check(store).problems} == {"unfinished"}
    cm.check(store, repair=True)
    np.testing.assert_array_equal(cm.open_array(store, "g/a")[...], NEW)


@pytest.mark.parametrize("name", FORMATS)
def test_who_finishes_it_does_not_write_into_it_by_what_was_opened_before(name, monkeypatch):
    store = Watched()
    stored(store, "", OLD, name, chunks=4)

    def die():
        if any("/intent-" in key for key in store.list_prefix("")):
            raise KeyboardInterrupt

    with looking(die), pytest.raises(KeyboardInterrupt):
        stored(store, "", NEW, name, chunks=8)
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    with pytest.raises(StoreError, match="it has been replaced"):
        cm.to_store(da.zeros(4, dtype="i8"), store, region=slice(0, 4), mode="r+")
    np.testing.assert_array_equal(cm.open_array(store)[...], NEW)


class Stepping(Watched):
    """Calls what is next for a key once that was read, and counts."""

    def __init__(self):
        super().__init__()
        self.todo = {}
        self.n_read = 0

    def get(self, key, byte_range=None):
        self.n_read += 1
        value = super().get(key, byte_range)
        for step in self.todo.get(key, ())[:1]:
            self.todo[key] = self.todo[key][1:]
            step()
        return value


WAYS = {
    "by name": lambda store: cm.open(store, "g/a", consolidated=False),
    "by group": lambda store: cm.open_group(store, "g", consolidated=False)["a"],
    "by listing": lambda store: cm.open_group(store, "g", consolidated=False).children()["a"],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("entry", "is_begun"), [(".zgroup", True), (".zarray", False)])
def test_attributes_that_are_missed_are_those_of_the_node(way, entry, is_begun):
    store = Stepping()
    cm.create_group(store, "g", format="zarr2")
    make = cm.create_group if entry == ".zgroup" else partial(cm.create_array, shape=(4,), dtype="i4", chunks=(2,))
    make(store, "g/a", format="zarr2", attributes={"mark": 1})
    kept = {key: store.get(key) for key in ("g/a/.zattrs", f"g/a/{entry}")}
    sign = "g/a/.chunkmill-new-1-comes"

    def delete():
        store.set(sign, b"")
        for key in kept:
            store.delete(key)

    def write():
        for key, value in kept.items():
            store.set(key, value)
        store.delete(sign)

    if is_begun:  # the exchange ends between the requests for its attributes and for itself
        delete()
        store.todo = {"g/a/.zattrs": [write]}
    else:  # it begins between the other way round, and ends after the second look at the node
        store.todo = {f"g/a/{entry}": [delete, write]}
    assert WAYS[way](store).attributes == {"mark": 1}
    assert not any(store.todo.values())


@pytest.mark.parametrize("way", WAYS)
def test_only_nodes_without_attributes_are_looked_at_twice(way, monkeypatch):
    store = Stepping()
    cm.create_group(store, "g", format="zarr2")
    cm.create_array(store, "g/a", shape=(4,), dtype="i4", chunks=(2,), format="zarr2")

    def n_requests():
        before = store.n_read
        WAYS[way](store)
        return store.n_read - before

    usual = n_requests()
    store.delete("g/a/.zattrs")
    assert n_requests() == usual + 2
    for name in ("stage", "swap_in", "can_replace", "replace_prefix"):
        monkeypatch.setattr(Watched, name, getattr(MemoryStore, name))
    assert n_requests() == usual
