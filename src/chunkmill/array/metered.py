"""Count what a task reads from and writes to a stored array, and guard its writes."""

from __future__ import annotations

from chunkmill.array.stored_array import StoredArray
from chunkmill.stores.guarded import guarded
from chunkmill.stores.metered import Meter, MeteredStore

__all__ = ["metered"]


def metered(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes, and asks the task's guard before it writes."""
    _ = array.write_layout  # built now, once, and shared
    return array.with_store(MeteredStore(guarded(array.store), meter))
