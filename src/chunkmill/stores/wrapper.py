"""Base of the stores that wrap another one and change some of its methods, and two that know which keys are absent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.capabilities import uncached

__all__ = ["AbsencesNoted", "ListedStore", "StoreWrapper", "listed_keys"]


class StoreWrapper:
    """Store that passes every call on to the store `below`.

    Abilities beyond the protocol are found through `below` (`chunkmill.stores.capabilities`).

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = StoreWrapper(MemoryStore())
    >>> store.set("a", b"1"), store.get("a"), store.below.get("a")
    (None, b'1', b'1')
    """

    def __init__(self, below: Store) -> None:
        self.below = below
        self.url = below.url
        self.is_remote = below.is_remote

    @property
    def replaces_atomically(self) -> bool:
        """As the store below; True for a store of one's own that does not say."""
        return getattr(self.below, "replaces_atomically", True)

    @property
    def compares_versions(self) -> bool:
        """As the store below, which may find out by a request, and is therefore asked each time."""
        return self.below.compares_versions

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        return self.below.get(key, byte_range)

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        return self.below.get_many(spans)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version."""
        return self.below.get_versioned(key)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        return self.below.size(key)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value."""
        self.below.set(key, value)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store a value (delete, when ``None``) if the key still has `version`."""
        return self.below.set_if(key, value, version)

    def delete(self, key: str) -> None:
        """Delete a key."""
        self.below.delete(key)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        self.below.delete_prefix(prefix)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        return self.below.list_prefix(prefix)

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        return self.below.list_dir(prefix)


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


class AbsencesNoted(StoreWrapper):
    """Wrap `below` for reading; keys that were asked for and do not exist are in `absent`.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = AbsencesNoted(MemoryStore())
    >>> store.get("a"), store.absent
    (None, {'a'})
    """

    def __init__(self, below: Store) -> None:
        super().__init__(below)
        self.absent: set[str] = set()

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        value = self.below.get(key, byte_range)
        if value is None:
            self.absent.add(key)
        return value

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        asked = list(spans)
        values = self.below.get_many(asked)
        for span in asked:
            value = next(values)
            if value is None and span is not None:
                self.absent.add(span.key)
            yield value
            del value  # before the next one is fetched, so that it gets the same memory


def listed_keys(store: Store) -> AbstractSet[str] | None:
    """Return the keys that a `ListedStore` asks for; ``None`` of other stores, which ask for all."""
    return store.listed if isinstance(store, ListedStore) else None
