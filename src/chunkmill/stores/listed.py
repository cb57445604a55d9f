"""Store that asks for the keys that a listing named, and knows that others are absent.

Not here: the listing (`chunkmill.array.present_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.capabilities import uncached
from chunkmill.stores.wrapper import StoreWrapper

__all__ = ["ListedStore"]


class ListedStore(StoreWrapper):
    """Wrap `below` for reading values: of keys that are not `listed`, none is asked for.

    Documents are read from the store that `uncached` returns.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> store.set("a", b"1"), store.set("b", b"2")
    (None, None)
    >>> ListedStore(store, {"a", "c"}).get("a"), ListedStore(store, {"a", "c"}).get("b")
    (b'1', None)
    """

    def __init__(self, below: Store, listed: AbstractSet[str]) -> None:
        super().__init__(below)
        self.listed = listed

    @property
    def uncached(self) -> Store:
        """The store below, without documents held in memory: it asks for every key."""
        return uncached(self.below)

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        return self.below.get(key, byte_range) if key in self.listed else None

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        return self.below.get_many(None if span is None or span.key not in self.listed else span for span in spans)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version."""
        return self.below.get_versioned(key) if key in self.listed else (None, None)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        return self.below.size(key) if key in self.listed else None
