"""Count what a task reads from and writes to a stored array, guard its writes, and ask only for what is stored."""

from __future__ import annotations

from chunkmill.array.present_keys import Numbers
from chunkmill.array.stored_array import StoredArray
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import uncached
from chunkmill.stores.guarded import guarded
from chunkmill.stores.listed import ListedStore
from chunkmill.stores.metered import Meter, MeteredStore

__all__ = ["listed_only", "metered", "metered_source"]


def metered(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes, and asks the task's guard before it writes."""
    store = array.store if getattr(array.store, "listed", None) is None else uncached(array.store)
    return _listed(array, MeteredStore(guarded(store), meter))


def metered_source(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes, and notes the versions of what is read."""
    return _listed(array, MeteredStore(meter.read_from(uncached(array.store)), meter))


def _listed(array: StoredArray, store: Store) -> StoredArray:
    _ = array.write_layout  # built now, once, and shared
    listed = getattr(array.store, "listed", None)
    return array.with_store(store if listed is None else ListedStore(store, listed))  # not asked for: not counted


def listed_only(array: StoredArray, present: Numbers) -> StoredArray:
    """Return the array over a store that asks for no store key but those with the numbers `present`."""
    layout = array.write_layout
    keys = {layout.locator.key(layout.grid.coords_of(number)) for number in present.tolist()}
    return array.with_store(ListedStore(array.store, keys))
