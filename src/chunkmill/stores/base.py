"""The protocol `Store`: a mapping of keys to bytes, without JSON or arrays.

Synchronous on purpose: a task is one chunk, parallelism is the scheduler's; stores with latency fetch many spans at
once inside `Store.get_many`. A store pickles to what opens it again, never to a connection, and opens nothing before
its first use in a process (so that forks before and after use both work). Abilities that only some stores have are
listed in `chunkmill.stores.capabilities`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from chunkmill.config import setting
from chunkmill.errors import StoreError

__all__ = [
    "LISTS_NOTHING",
    "OTHER_MEMORY",
    "READ_ONLY",
    "REPLACED",
    "REQUESTS_AT_ONCE",
    "ByteRange",
    "ByteSpan",
    "Store",
]
__all__ += ["check_key", "check_prefix", "check_text", "max_requests", "range_bounds"]

REQUESTS_AT_ONCE = 16
"""Requests that one caller makes at the same time, in threads of its own, to a store where each request waits."""

OTHER_MEMORY = (
    "in the memory of another process, which does not see what is written here, nor this what was written there; use "
    "files or a store that every process reaches"
)
"""Why a store in memory is refused where it came by pickle."""

READ_ONLY = "web servers are read only: write to a folder or an object store"
LISTS_NOTHING = (
    "the web server lists nothing here (few do, and all are read only): open nodes by their path, or consolidate the "
    "metadata"
)

REPLACED = "all that was stored below {prefix!r} was deleted or replaced since"
"""Why a store that was pinned (`chunkmill.stores.capabilities.pinned`) refuses to write."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Range of an object: `length` bytes from `start`; the last ``-start`` bytes when `start` is negative.

    ``length=None`` means to the end.
    """

    start: int
    length: int | None = None


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes under one store key: all of them, or a range."""

    key: str
    byte_range: ByteRange | None = None


class Store(Protocol):
    """Keys are ``/``-separated, without a leading slash; values are bytes.

    ``None`` for a key means that the store says for certain that there is no such key. Permission errors, network
    errors, short reads, everything else raises (`OSError`, of which `StoreError` is one).
    """

    url: str
    """Canonical url of the root: what a lock is named from, what an error names."""

    is_remote: bool
    """True when a request costs latency, so that many at once are faster."""

    @property
    def replaces_atomically(self) -> bool:
        """True when a reader gets the old or the new value, whole, while `set` replaces it."""

    @property
    def compares_versions(self) -> bool:
        """True when `set_if` is atomic against other processes and machines, and against `set` and `delete`."""

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it.

        A range that starts past the end or runs past it raises; a suffix longer than the value gives all of it.
        """

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order (``None`` for ``None``); concurrently where requests cost latency."""

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value: whole, or nothing of it becomes visible, where the store `replaces_atomically`."""

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and the version that `set_if` compares; both ``None`` when the key is absent."""

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store `value` (delete, when ``None``) if the key still has `version` (``None``: is absent).

        Return whether it was stored.
        """

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes, without fetching it."""

    def delete(self, key: str) -> None:
        """Delete a key; nothing happens when there is none."""

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`, which is empty or ends with ``/``."""

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix` (empty, or ending with ``/``), in any order."""

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`: keys as they are, common prefixes ending with ``/``."""


def max_requests() -> int:
    """Return how many requests a process has under way at once, as users have set it."""
    return int(setting("remote-requests"))


_NO_SEGMENTS = frozenset({"", ".", ".."})


def check_key(key: str) -> str:
    """Return `key`, or raise `ValueError` when it could name something outside the store.

    Examples
    --------
    >>> check_key("a/c/0/1")
    'a/c/0/1'
    """
    if not key or "\0" in key or not _NO_SEGMENTS.isdisjoint(key.split("/")):
        msg = f"{key!r} is not a store key: it has empty, '.' or '..' segments"
        raise ValueError(msg)
    return key if key.isascii() else check_text(key)


def check_text(text: str) -> str:
    """Return a url, path or key, or raise `ValueError` where it has a lone surrogate, which is not a character.

    Those that stand for bytes in names of files which are not UTF-8 may be.
    """
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} has a lone surrogate, which is not a character: correct the url or path") from None
    return text


def check_prefix(prefix: str) -> str:
    """Return `prefix`, or raise `ValueError` unless it is empty or a key followed by ``/``.

    Examples
    --------
    >>> check_prefix(""), check_prefix("a/c/")
    ('', 'a/c/')
    """
    if prefix:
        if not prefix.endswith("/"):
            msg = f"{prefix!r} is not a prefix: it does not end with '/'"
            raise ValueError(msg)
        check_key(prefix[:-1])
    return prefix


def range_bounds(byte_range: ByteRange, size: int, *, url: str, key: str) -> tuple[int, int]:
    """Return where `byte_range` begins and ends in a value of `size` bytes; `StoreError` where it runs past it.

    Examples
    --------
    >>> range_bounds(ByteRange(-4), 10, url="memory://", key="a")
    (6, 10)
    """
    start = byte_range.start if byte_range.start >= 0 else max(0, size + byte_range.start)
    stop = size if byte_range.length is None else start + byte_range.length
    if start > size or stop > size:
        wanted = f"{'the rest' if byte_range.length is None else byte_range.length} bytes from {start}"
        reason = f"expected {wanted}, got a value of {size} bytes: the object is truncated, or its reference is wrong"
        raise StoreError(url=url, key=key, reason=reason)
    return start, stop
