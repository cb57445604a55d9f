"""Store in the memory of one process."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator, MutableMapping
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

from chunkmill.errors import StoreError
from chunkmill.stores.base import (
    OTHER_MEMORY,
    ByteRange,
    Store,
    check_key,
    check_prefix,
)

__all__ = [
    "MappingStore",
    "MemoryStore",
]


class MemoryStore(Store):
    """Values in memory, private to this instance, safe among threads.

    It pickles by content: the other process gets a copy, to read from; its changes would not come back, so that writing
    to it raises `StoreError`. Use files to share values among processes, and ``memory://`` to
    share by url within a process.

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

    is_remote = False
    compares_versions = True
    has_versions = True

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        self.url = f"memory-store://{self._name}"
        self._values: dict[str, tuple[bytes, int]] = {}
        self._n_writes = 0
        self._lock = threading.Lock()
        self._is_copy = False

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            state = self.__dict__ | {"_values": dict(self._values), "_home": os.getpid()}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        moved = state.pop("_home") != os.getpid()
        self.__dict__.update(state)
        self._is_copy |= moved
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<MemoryStore {self._name[:8]}, {len(self._values)} keys>"

    def __dask_tokenize__(self) -> tuple[str, str, int]:
        return "chunkmill.MemoryStore", self._name, self._n_writes

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        value, _ = self._values.get(check_key(key), (None, 0))
        return None if value is None else self.cut(key, value, byte_range)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a copy of a value."""
        self._check_home(key)
        value = bytes(value)
        with self._lock:
            self._n_writes += 1
            self._values[key] = value, self._n_writes

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and the number of the write that stored it."""
        if (entry := self._values.get(check_key(key))) is None:
            return None, None
        return entry[0], str(entry[1])

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store `value`, or delete, if the key still has `version`."""
        self._check_home(key)
        value = None if value is None else bytes(value)
        with self._lock:
            entry = self._values.get(key)
            if (None if entry is None else str(entry[1])) != version:
                return False
            self._n_writes += 1
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value, self._n_writes
            return True

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        entry = self._values.get(check_key(key))
        return None if entry is None else len(entry[0])

    def delete(self, key: str) -> None:
        """Delete a key."""
        self._check_home(key)
        with self._lock:
            self._n_writes += 1
            self._values.pop(key, None)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        with self._lock:
            self._n_writes += 1
            for key in self._keys(prefix):
                del self._values[key]

    def stage(self, prefix: str) -> MemoryStore:  # noqa: ARG002 - the signature of the capability
        """Return a store for what is to replace all below `prefix` (see `swap_in`)."""
        return MemoryStore()

    def swap_in(self, prefix: str, staged: MemoryStore) -> None:
        """Replace all below `prefix` by what `staged` holds, at once."""
        with self._lock:
            for key in self._keys(prefix):
                del self._values[key]
            for key, (value, _) in staged._values.items():
                self._n_writes += 1
                self._values[prefix + key] = value, self._n_writes

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
            new = {key[len(staged) :]: self._values[key] for key in self._keys(staged)}
            is_done = prefix + proof in self._values
            if not is_done and (proof not in new or not new[proof][0]):
                reason = "there is nothing to put in place: others have ended this"
                raise StoreError(url=self.url, key=staged, reason=reason)
            for key in self._keys(staged) if is_done else {*self._keys(staged), *self._keys(prefix)}:
                del self._values[key]
            if is_done:
                return
            for key, (value, _) in new.items():
                self._n_writes += 1
                self._values[prefix + key] = value, self._n_writes

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the keys that start with `prefix` as they are at the first of them."""
        with self._lock:
            keys = self._keys(prefix)
        yield from keys

    def _check_home(self, key: str) -> None:
        """Refuse to change what another process will never see."""
        check_key(key)
        if self._is_copy:
            raise StoreError(url=self.url, key=key, reason=OTHER_MEMORY)

    def _keys(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        return [key for key in self._values if key.startswith(prefix)]


# --- Store over a dictionary of the caller's: ``{store key: bytes}``, as zarr-python takes one


class MappingStore(Store):
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
        return None if found is None else self.cut(key, _as_bytes(found), byte_range)

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
