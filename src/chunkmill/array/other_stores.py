"""The same stored array over another store: metered, limited to what is stored, without references, read ahead.

Not here: the stores (`chunkmill.stores`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from chunkmill.array.pending_writes import BegunReads
from chunkmill.array.present_keys import Numbers
from chunkmill.array.stored_array import StoredArray
from chunkmill.model.grid import Region
from chunkmill.model.references import ReferenceSet
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import HoldsReferences, uncached
from chunkmill.stores.wrapper import ListedStore, Meter, MeteredStore, guarded, listed_keys

__all__ = [
    "begun_bytes",
    "begun_reads",
    "held_references",
    "listed_only",
    "metered",
    "metered_source",
    "without_references",
]


def metered(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes, and asks the task's guard before it writes."""
    store = array.store if listed_keys(array.store) is None else uncached(array.store)
    return _listed(array, MeteredStore(guarded(store), meter))


def metered_source(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes, and records the versions of what is read."""
    return _listed(array, MeteredStore(meter.read_from(uncached(array.store)), meter))


def _listed(array: StoredArray, store: Store) -> StoredArray:
    _ = array.write_layout  # built now, once, and shared
    listed = listed_keys(array.store)
    return array.with_store(store if listed is None else ListedStore(store, listed))  # not asked for: not counted


def listed_only(array: StoredArray, present: Numbers) -> StoredArray:
    """Return the array over a store that asks for no store key but those with the numbers `present`."""
    layout = array.write_layout
    keys = {layout.locator.key(layout.grid.coords_of(number)) for number in present.tolist()}
    return array.with_store(ListedStore(array.store, keys))


def begun_reads(array: StoredArray, regions: Iterable[Region]) -> BegunReads:
    """Return the reads of all store keys of `regions`, under way."""
    keys = [key for region in regions for key in array.keys(region)]
    return BegunReads(array.store, keys, value_bytes=begun_bytes(array))


def begun_bytes(array: StoredArray) -> int:
    """Return the size to expect of a value: that of its elements, since the codecs tell no other."""
    return array.dtype.itemsize * prod(array.write_layout.grid.chunk_shape)


def held_references(array: StoredArray) -> HoldsReferences | None:
    """Return the store of the reference set that `array` reads from, where the set is held in memory."""
    store = uncached(array.store)
    return store if isinstance(store, HoldsReferences) and isinstance(store.references, ReferenceSet) else None


def without_references(array: StoredArray) -> StoredArray:
    """Return the array with no references in its store, where the set is held in memory: what may travel."""
    store = held_references(array)
    return array if store is None else array.with_store(store.subset(()))
