"""Count what a stored array reads."""

from __future__ import annotations

from chunkmill.array.stored_array import StoredArray
from chunkmill.stores.metered import Meter, MeteredStore

__all__ = ["metered"]


def metered(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes."""
    _ = array.write_layout  # built now, once, and shared
    return array.with_store(MeteredStore(array.store, meter))
