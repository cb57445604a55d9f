"""Store that remembers the values and listings it has returned, so that who needs them twice asks once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan, Store, range_bounds
from chunkmill.stores.wrapper import StoreWrapper

__all__ = ["RememberedReads"]


class RememberedReads(StoreWrapper):
    """Wrap `store` for reading: values, absences and listings are kept until `forget`.

    A range of a value that was returned whole is cut from it. For the reads of one thread.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> store.set("a", b"123456")
    >>> reads = RememberedReads(store)
    >>> reads.get("a"), store.delete("a"), reads.get("a", ByteRange(2, 3)), reads.any_present
    (b'123456', None, b'345', True)
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._values: dict[ByteSpan, bytes | None] = {}
        self._listed: dict[str, list[str]] = {}

    @property
    def any_present(self) -> bool:
        """True if any value that was asked for exists."""
        return any(value is not None for value in self._values.values())

    @property
    def absent(self) -> frozenset[str]:
        """Keys that were asked for and do not exist."""
        return frozenset(span.key for span, value in self._values.items() if value is None)

    def forget(self) -> None:
        """Forget all values and listings."""
        self._values.clear()
        self._listed.clear()

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        (value,) = self.get_many([ByteSpan(key, byte_range)])
        return value

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        asked = list(spans)
        missing = list(dict.fromkeys(span for span in asked if span is not None and not self._knows(span)))
        pending, found = iter(missing), self.below.get_many(missing)
        for span in asked:
            while span is not None and not self._knows(span):
                self._values[next(pending)] = next(found)
            yield None if span is None else self._known(span)

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        if prefix not in self._listed:
            self._listed[prefix] = self.below.list_dir(prefix)
        return list(self._listed[prefix])

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:  # noqa: ARG002
        """Refuse to store a value."""
        raise self._read_only(key)

    def set_if(
        self,
        key: str,
        value: bytes | bytearray | memoryview | None,  # noqa: ARG002
        version: str | None,  # noqa: ARG002
    ) -> bool:
        """Refuse to store a value."""
        raise self._read_only(key)

    def delete(self, key: str) -> None:
        """Refuse to delete a key."""
        raise self._read_only(key)

    def delete_prefix(self, prefix: str) -> None:
        """Refuse to delete keys."""
        raise self._read_only(prefix)

    def _read_only(self, key: str) -> StoreError:
        return StoreError(url=self.url, key=key, reason="this store remembers what it has read, and is not written to")

    def _knows(self, span: ByteSpan) -> bool:
        return span in self._values or ByteSpan(span.key) in self._values

    def _known(self, span: ByteSpan) -> bytes | None:
        if span in self._values:
            return self._values[span]
        value = self._values[ByteSpan(span.key)]
        if value is None or span.byte_range is None:
            return value
        start, stop = range_bounds(span.byte_range, len(value), url=self.url, key=span.key)
        return value[start:stop]
