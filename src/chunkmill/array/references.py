"""Find the reference set that an array reads from, where it is held in memory."""

from __future__ import annotations

from chunkmill.array.stored_array import StoredArray
from chunkmill.model.references import ReferenceSet
from chunkmill.stores.capabilities import HoldsReferences, uncached

__all__ = ["held_references", "without_references"]


def held_references(array: StoredArray) -> HoldsReferences | None:
    """Return the store of the reference set that `array` reads from, where the set is held in memory."""
    store = uncached(array.store)
    return store if isinstance(store, HoldsReferences) and isinstance(store.references, ReferenceSet) else None


def without_references(array: StoredArray) -> StoredArray:
    """Return the array with no references in its store, where the set is held in memory: what may travel."""
    store = held_references(array)
    return array if store is None else array.with_store(store.subset(()))
