"""A directory of plain files as it is now: who writes through it reaches no other one that takes its name later.

By its descriptor, which stays with the directory when names are exchanged or deleted; a path below ``/proc/self/fd``
leads through it, so that everything else is done as with any path. Elsewhere than on Linux directories are not pinned.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from chunkmill.errors import StoreError
from chunkmill.stores.base import REPLACED, ByteRange, ByteSpan, Store
from chunkmill.stores.posix_file import DESCRIPTORS
from chunkmill.stores.wrapper import StoreWrapper

__all__ = ["PinsDirectories"]

_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
_CAN_PIN = bool(_DIRECTORY) and os.path.isdir(DESCRIPTORS)  # noqa: PTH112 - a chroot may have none


class PinsDirectories:
    """The method of a store of directories by which one of them is pinned."""

    url: str
    _fsync: bool
    _directory: Callable[[str], str]

    def pin(self, prefix: str) -> Store | Self:
        """Return a store that writes to the directory that is at `prefix` now, and to no other that takes its place."""
        path = self._directory(prefix)
        try:
            fd = os.open(path, os.O_RDONLY | _DIRECTORY) if _CAN_PIN else -1
        except OSError:  # there is none, or it cannot be listed: whoever writes there says so
            fd = -1
        if fd < 0:
            return self
        tree = type(self)(f"{DESCRIPTORS}/{fd}", fsync=self._fsync)  # type: ignore[call-arg]
        tree.url = f"{self.url}/{prefix}"
        return _PinnedStore(self, tree, prefix, path, fd)  # type: ignore[arg-type]


class _PinnedStore(StoreWrapper):
    """The store `below`, whose keys below `prefix` are those of `tree`; open until it is dropped."""

    def __init__(self, below: Store, tree: Store, prefix: str, path: str, fd: int) -> None:
        super().__init__(below)
        self._tree = tree
        self._prefix = prefix
        self._path = path
        self._fd = fd
        weakref.finalize(self, os.close, fd).atexit = False

    def _at(self, key: str) -> tuple[Store, str]:
        return (self._tree, key[len(self._prefix) :]) if key.startswith(self._prefix) else (self.below, key)

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        store, own = self._at(key)
        return store.get(own, byte_range)

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        for span in spans:
            yield None if span is None else self.get(span.key, span.byte_range)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version."""
        store, own = self._at(key)
        return store.get_versioned(own)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value."""
        store, own = self._at(key)
        store.set(own, value)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store a value (delete, when ``None``) if the key still has `version`."""
        store, own = self._at(key)
        if value is None:
            self._check_exists(key)
        return store.set_if(own, value, version)

    def delete(self, key: str) -> None:
        """Delete a key."""
        store, own = self._at(key)
        self._check_exists(key)
        store.delete(own)

    def delete_prefix(self, prefix: str) -> None:
        """Delete a directory; the one that is pinned only while it has its name."""
        if prefix == self._prefix and not self._has_its_name():
            return
        self.below.delete_prefix(prefix)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        store, own = self._at(prefix)
        above = prefix[: len(prefix) - len(own)]
        return (above + key for key in store.list_prefix(own))

    def _check_exists(self, key: str) -> None:
        """Raise where the directory is gone: creating a value fails there, deleting one would not."""
        if os.fstat(self._fd).st_nlink == 0:
            raise StoreError(url=self.url, key=key, reason=REPLACED.format(prefix=self._prefix))

    def _has_its_name(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))  # noqa: PTH116
        except FileNotFoundError:
            return False
