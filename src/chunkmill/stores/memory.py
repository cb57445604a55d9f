"""Stores in the memory of one process: `MemoryStore`, and `MappingStore` over a dictionary of the caller's.

Both pickle by content: the other process gets a copy, to read from. Its changes would not come back, so that writing to
it raises `StoreError`. Use files to share values among processes, and ``memory://`` to share by url within a process.
"""

from __future__ import annotations

import os
import threading
import uuid
from abc import abstractmethod
from collections.abc import Iterator, MutableMapping
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

from chunkmill.errors import StoreError
from chunkmill.stores.base import OTHER_MEMORY, ByteRange, Store, check_key, check_prefix

__all__ = ["MappingStore", "MemoryStore"]


class _InMemory(Store):
    """A dictionary by store key, of entries that hold values."""

    is_remote = False
    compares_versions = True

    def __init__(self, values: MutableMapping[str, Any], url: str) -> None:
        self._values = values
        self.url = url
        self._is_copy = False
        self._n_writes = 0
        self._lock = _lock_of(values)

    @abstractmethod
    def _bytes_of(self, entry: Any) -> bytes: ...

    @abstractmethod
    def _version_of(self, entry: Any) -> str: ...

    @abstractmethod
    def _entry_of(self, value: bytes) -> Any: ...

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = self.__dict__ | {"_values": dict(self._values), "_home": os.getpid()}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state["_is_copy"] |= state.pop("_home") != os.getpid()
        self.__dict__.update(state)
        self._lock = _lock_of(self._values)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._values)} keys>"

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        entry = self._values.get(check_key(key))
        return None if entry is None else self.cut(key, self._bytes_of(entry), byte_range)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version."""
        entry = self._values.get(check_key(key))
        return (None, None) if entry is None else (self._bytes_of(entry), self._version_of(entry))

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        value = self.get(key)
        return None if value is None else len(value)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a copy of a value."""
        self._check_home(key)
        value = bytes(value)
        with self._lock:
            self._put(key, value)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store `value`, or delete, if the key still has `version`."""
        self._check_home(key)
        value = None if value is None else bytes(value)
        with self._lock:
            entry = self._values.get(key)
            if (None if entry is None else self._version_of(entry)) != version:
                return False
            self._put(key, value)
            return True

    def delete(self, key: str) -> None:
        """Delete a key."""
        self._check_home(key)
        with self._lock:
            self._put(key, None)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        with self._lock:
            for key in self._keys(prefix):
                self._check_home(key)
                self._put(key, None)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the keys that start with `prefix`, as they are at the first of them."""
        with self._lock:
            keys = self._keys(prefix)
        yield from keys

    def _put(self, key: str, value: bytes | None) -> None:
        self._n_writes += 1
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = self._entry_of(value)

    def _check_home(self, key: str) -> None:
        """Refuse to change what another process will never see."""
        check_key(key)
        if self._is_copy:
            raise StoreError(url=self.url, key=key, reason=OTHER_MEMORY)

    def _keys(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        return [key for key in self._values if key.startswith(prefix)]


class MemoryStore(_InMemory):
    """Values in memory, private to this instance, safe among threads.

    Examples
    --------
    >>> store = MemoryStore()
    >>> store.set("a/zarr.json", b"{}")
    >>> store.list_dir("a/")
    ['zarr.json']
    >>> value, version = store.get_versioned("a/zarr.json")
    >>> store.set_if("a/zarr.json", b"{ }", version), store.set_if("a/zarr.json", b"", version)
    (True, False)
    """

    has_versions = True  # numbers of writes

    def __init__(self) -> None:
        super().__init__({}, f"memory-store://{uuid.uuid4().hex}")

    def __dask_tokenize__(self) -> tuple[str, str, int]:
        return "chunkmill.MemoryStore", self.url, self._n_writes

    def _bytes_of(self, entry: tuple[bytes, int]) -> bytes:
        return entry[0]

    def _version_of(self, entry: tuple[bytes, int]) -> str:
        return str(entry[1])

    def _entry_of(self, value: bytes) -> tuple[bytes, int]:
        return value, self._n_writes

    def stage(self, prefix: str) -> MemoryStore:  # noqa: ARG002
        """Return a store for what is to replace all below `prefix` (see `swap_in`)."""
        return MemoryStore()

    def swap_in(self, prefix: str, staged: MemoryStore) -> None:
        """Replace all below `prefix` by what `staged` holds, at once."""
        with self._lock:
            self._move(prefix, {key: value for key, (value, _) in staged._values.items()})

    def can_rename(self, prefix: str) -> bool:  # noqa: ARG002
        """Return true."""
        return True

    def can_replace(self, prefix: str) -> bool:
        """Return whether there is something below `prefix` that `replace_prefix` can replace."""
        return bool(self._keys(prefix))

    def replace_prefix(self, prefix: str, staged: str, proof: str) -> None:
        """Replace all below `prefix` by what is below `staged`, the key `proof` included; once."""
        self._check_home(prefix + proof)
        with self._lock:
            new = {key[len(staged) :]: self._values[key][0] for key in self._keys(staged)}
            is_done = prefix + proof in self._values
            if not is_done and not new.get(proof):
                reason = "there is nothing to put in place: others have ended this"
                raise StoreError(url=self.url, key=staged, reason=reason)
            for name in new:
                self._put(staged + name, None)
            if not is_done:
                self._move(prefix, new)

    def _move(self, prefix: str, new: dict[str, bytes]) -> None:
        for key in self._keys(prefix):
            self._put(key, None)
        for name, value in new.items():
            self._put(prefix + name, value)


class MappingStore(_InMemory):
    """Values of a dictionary, ``{store key: bytes}`` as zarr-python takes one, which is changed by what is written.

    Examples
    --------
    >>> values = {}
    >>> store = MappingStore(values)
    >>> store.set("a/zarr.json", b"{}")
    >>> values, store.list_dir("")
    ({'a/zarr.json': b'{}'}, ['a/'])
    """

    def __init__(self, values: MutableMapping[str, Any]) -> None:
        super().__init__(values, f"dict://{id(values):x}")

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return state | {"_values": {key: self._bytes_of(entry) for key, entry in state["_values"].items()}}

    def _bytes_of(self, entry: Any) -> bytes:
        return bytes(entry.to_bytes()) if hasattr(entry, "to_bytes") else bytes(entry)

    def _version_of(self, entry: Any) -> str:
        return sha256(self._bytes_of(entry)).hexdigest()

    def _entry_of(self, value: bytes) -> Any:
        """Return a value in the form that the dictionary has: as a buffer of zarr-python, or as bytes."""
        kind = type(next(iter(self._values.values()), b""))
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
