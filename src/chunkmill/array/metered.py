"""Count what a task reads from and writes to a stored array, guard its writes, and ask only for what is stored."""

from __future__ import annotations

from chunkmill.array.present_keys import Numbers
from chunkmill.array.stored_array import StoredArray
from chunkmill.stores.capabilities import uncached
from chunkmill.stores.guarded import guarded
from chunkmill.stores.listed import ListedStore
from chunkmill.stores.metered import Meter, MeteredStore

__all__ = ["listed_only", "metered"]


def metered(array: StoredArray, meter: Meter) -> StoredArray:
    """Return the array over a store that counts requests and bytes, and asks the task's guard before it writes."""
    _ = array.write_layout  # built now, once, and shared
    listed = getattr(array.store, "listed", None)
    if listed is not None:  # outermost: what is not asked for is not counted
        return array.with_store(ListedStore(MeteredStore(guarded(uncached(array.store)), meter), listed))
    return array.with_store(MeteredStore(guarded(array.store), meter))


def listed_only(array: StoredArray, present: Numbers) -> StoredArray:
    """Return the array over a store that asks for no store key but those with the numbers `present`."""
    layout = array.write_layout
    keys = {layout.locator.key(layout.grid.coords_of(number)) for number in present.tolist()}
    return array.with_store(ListedStore(array.store, keys))
