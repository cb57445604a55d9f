"""Store that counts requests and bytes, and records size and checksum of what is written under each key.

The counts are used by `chunkmill.runtime.job`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.capabilities import set_parts
from chunkmill.stores.read_versions import ReadVersions, has_versions, noting
from chunkmill.stores.wrapper import StoreWrapper

__all__ = ["Meter", "MeteredStore", "Written"]

Written = int | None


@dataclass(slots=True)
class Meter:
    """Counts of the requests that one task makes to its stores.

    Attributes
    ----------
    writes
        Store key -> size in bytes of the value that was set last; ``None`` for a key that was deleted.
    reads
        Versions of the values that were read; ``None`` where a store that was read has none.
    """

    n_requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    writes: dict[str, Written] = field(default_factory=dict)
    reads: ReadVersions | None = field(default_factory=ReadVersions)

    def read_from(self, store: Store) -> Store:
        """Return the store, such that the versions of what is read are noted."""
        if self.reads is None or not has_versions(store):
            self.reads = None
            return store
        return noting(store, self.reads.record)

    def digest(self) -> int | None:
        """Return the digest of the versions of what was read."""
        return None if self.reads is None else self.reads.digest()

    def counts(self) -> dict[str, int]:
        """Return the numbers by the names that reports use."""
        return {"n_requests": self.n_requests, "bytes_read": self.bytes_read, "bytes_written": self.bytes_written}


class MeteredStore(StoreWrapper):
    """Wrap `store`, counting in `meter`.

    For one task, and the threads that store values for it while it makes the next ones.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> meter = Meter()
    >>> MeteredStore(MemoryStore(), meter).set("a", b"123456789")
    >>> meter.n_requests, meter.bytes_written, meter.writes
    (1, 9, {'a': (9, 3808858755)})
    """

    def __init__(self, store: Store, meter: Meter) -> None:
        super().__init__(store)
        self.meter = meter
        self._lock = threading.Lock()

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        self._asked()
        data = self.below.get(key, byte_range)
        self.meter.bytes_read += 0 if data is None else len(data)
        return data

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        asked = list(spans)
        self._asked(sum(span is not None for span in asked))
        for data in self.below.get_many(asked):
            self.meter.bytes_read += 0 if data is None else len(data)
            yield data
            del data  # before the next one is fetched, so that it gets the same memory

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version."""
        self._asked()
        data, version = self.below.get_versioned(key)
        self.meter.bytes_read += 0 if data is None else len(data)
        return data, version

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value."""
        self.below.set(key, value)
        self._wrote(key, value)

    def set_parts(self, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Store the joined parts, each written as it comes where the store can."""
        size = 0

        def counted() -> Iterator[bytes | bytearray | memoryview]:
            nonlocal size
            for part in parts:
                size += memoryview(part).nbytes
                yield part
                del part  # before the next one is made, so that it gets the same memory

        set_parts(self.below, key, counted())
        self._record(key, size)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store a value (delete, when ``None``) if the key still has `version`."""
        stored = self.below.set_if(key, value, version)
        if stored:
            self._wrote(key, value)
        return stored

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        self._asked()
        return self.below.size(key)

    def delete(self, key: str) -> None:
        """Delete a key."""
        self.below.delete(key)
        self._wrote(key, None)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        self._asked()
        self.below.delete_prefix(prefix)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        self._asked()
        return self.below.list_prefix(prefix)

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        self._asked()
        return self.below.list_dir(prefix)

    def _wrote(self, key: str, value: bytes | bytearray | memoryview | None) -> None:
        self._record(key, None if value is None else memoryview(value).nbytes)

    def _record(self, key: str, written: Written) -> None:
        with self._lock:
            self.meter.n_requests += 1
            self.meter.bytes_written += written or 0
            self.meter.writes[key] = written

    def _asked(self, n_requests: int = 1) -> None:
        with self._lock:
            self.meter.n_requests += n_requests
