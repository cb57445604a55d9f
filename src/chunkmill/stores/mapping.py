"""Store over a dictionary of the caller's: ``{store key: bytes}``, as zarr-python takes one.

Values are bytes, or zarr-python's buffers where the dictionary has such already.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, MutableMapping
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

from chunkmill.errors import StoreError
from chunkmill.stores.base import OTHER_MEMORY, ByteRange, ByteSpan, check_key, check_prefix, range_bounds

__all__ = ["MappingStore"]


class MappingStore:
    """Values of a dictionary; the dictionary is changed by what is written.

    It pickles by content: the other process gets a copy to read from, and refuses to write.

    Examples
    --------
    >>> values = {}
    >>> store = MappingStore(values)
    >>> store.set("a/zarr.json", b"{}")
    >>> values, store.list_dir("")
    ({'a/zarr.json': b'{}'}, ['a/'])
    """

    is_remote = False
    replaces_atomically = True
    compares_versions = True

    def __init__(self, values: MutableMapping[str, Any]) -> None:
        self.values = values
        self.url = f"dict://{id(values):x}"
        self._is_copy = False
        self._lock = _lock_of(values)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            values = {key: _as_bytes(value) for key, value in self.values.items()}
        return {"values": values, "url": self.url, "_is_copy": self._is_copy, "_home": os.getpid()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["_is_copy"] |= state.pop("_home") != os.getpid()
        self.__dict__.update(state)
        self._lock = _lock_of(self.values)

    def __repr__(self) -> str:
        return f"<MappingStore of {len(self.values)} keys>"

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        found = self.values.get(check_key(key))
        if found is None:
            return None
        value = _as_bytes(found)
        if byte_range is None:
            return value
        start, stop = range_bounds(byte_range, len(value), url=self.url, key=key)
        return value[start:stop]

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        for span in spans:
            yield None if span is None else self.get(span.key, span.byte_range)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and a digest of it."""
        value = self.get(key)
        return value, None if value is None else sha256(value).hexdigest()

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        value = self.get(key)
        return None if value is None else len(value)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a copy of a value."""
        self._check_home(key)
        with self._lock:
            self.values[key] = self._wrapped(bytes(value))

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store `value`, or delete, if the value there has the digest `version`."""
        self._check_home(key)
        with self._lock:
            if self.get_versioned(key)[1] != version:
                return False
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = self._wrapped(bytes(value))
            return True

    def delete(self, key: str) -> None:
        """Delete a key."""
        self._check_home(key)
        with self._lock:
            self.values.pop(key, None)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        with self._lock:
            for key in self._keys(prefix):
                self._check_home(key)
                del self.values[key]

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the keys that start with `prefix`, as they are at the first of them."""
        with self._lock:
            keys = self._keys(prefix)
        yield from keys

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        split = (key[len(prefix) :].partition("/") for key in self.list_prefix(prefix))
        return sorted({name + slash for name, slash, _ in split})

    def _keys(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        return [key for key in self.values if key.startswith(prefix)]

    def _check_home(self, key: str) -> None:
        check_key(key)
        if self._is_copy:
            raise StoreError(url=self.url, key=key, reason=OTHER_MEMORY)

    def _wrapped(self, value: bytes) -> Any:
        """Return a value in the form that the dictionary has: as a buffer of zarr-python, or as bytes."""
        kind = type(next(iter(self.values.values()), b""))
        return kind.from_bytes(value) if hasattr(kind, "from_bytes") and kind is not int else value


class _Lock:
    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


_LOCKS: WeakValueDictionary[int, _Lock] = WeakValueDictionary()  # id of a dictionary -> one lock for all its stores


def _lock_of(values: Any) -> _Lock:
    return _LOCKS.setdefault(id(values), _Lock())


def _as_bytes(value: Any) -> bytes:
    return bytes(value.to_bytes()) if hasattr(value, "to_bytes") else bytes(value)
