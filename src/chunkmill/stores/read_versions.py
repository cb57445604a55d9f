"""Versions of the values that a task reads: noted as they come with the values, and asked for again later.

A store takes part by methods of its own: ``get_noting(key, byte_range, note)``, with or without
``get_many_noting(spans, note)``, which call ``note(key, version)`` for each value that they find; ``version(key)``; and
where a listing tells versions, ``list_versions(prefix)``. They are asked of the store itself, not of those below it: a
store that wraps another one without these methods has no versions. Not here: what is done about a change
(`chunkmill.journal.inputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.wrapper import StoreWrapper

__all__ = ["Note", "ReadVersions", "has_versions", "list_versions", "mark_of", "noting", "version_now"]

Note = Callable[[str, str], None]
"""Called with the key of a value that was read, and its version."""


class ReadVersions:
    """Versions of the values that were read from one store.

    Examples
    --------
    >>> read = ReadVersions()
    >>> read.note("a/0", "1"), read.note("a/0", "2"), read.mark() == mark_of({"a/0": "2"})
    (None, None, False)
    """

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def note(self, key: str, version: str) -> None:
        """Note a version; two of one key, which was replaced meanwhile, are a third that the value never had."""
        if self._versions.setdefault(key, version) != version:
            self._versions[key] = ""

    def mark(self) -> int:
        """Return the mark of all."""
        return mark_of(self._versions)


def mark_of(versions: Mapping[str, str]) -> int:
    """Return 64 bits that tell keys and versions from others: the sum of their hashes, so that parts add up.

    Examples
    --------
    >>> both = mark_of({"a/0": "1", "a/1": "1"})
    >>> both == (mark_of({"a/0": "1"}) + mark_of({"a/1": "1"})) % 2**64, both == mark_of({"a/0": "1", "a/1": "2"})
    (True, False)
    """
    texts = (f"{key} {version}".encode(errors="surrogatepass") for key, version in versions.items())
    return sum(int.from_bytes(blake2b(text, digest_size=8).digest(), "big") for text in texts) % 2**64


def has_versions(store: Store) -> bool:
    """Return whether values come with their versions.

    Not in a store of one's own that inherits ``get_noting`` and has a ``get`` of its own, which would not be called.
    """
    own = getattr(store, "has_versions", True)  # what else a store depends on: a process that was forked, a protocol
    return bool(own) and hasattr(store, "get_noting") and _reads_by_it(type(store))


@lru_cache(maxsize=64)
def _reads_by_it(kind: type) -> bool:
    """Return whether no class overrides ``get`` below the one that has ``get_noting``, if one has."""
    readers = [vars(each).keys() & {"get", "get_noting"} for each in kind.__mro__]
    return not any("get_noting" in each for each in readers) or "get_noting" in next(filter(None, readers))


def noting(store: Store, note: Note) -> Store:
    """Return the store, of those that have versions, such that `note` is called for each value that is read."""
    return _Noting(store, note)


def version_now(store: Store, key: str) -> str | None:
    """Return the version of a value, without reading it; ``None`` when the key is absent."""
    version: str | None = cast("Any", store).version(key)
    return version


def list_versions(store: Store, prefix: str) -> Iterator[tuple[str, str]] | None:
    """Yield every key that starts with `prefix`, and its version; ``None`` where listings do not tell versions."""
    own = getattr(store, "list_versions", None)
    return None if own is None else own(prefix)


class _Noting(StoreWrapper):
    def __init__(self, below: Store, note: Note) -> None:
        super().__init__(below)
        self._note = note

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        value: bytes | None = cast("Any", self.below).get_noting(key, byte_range, self._note)
        return value

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        own = getattr(self.below, "get_many_noting", None)
        if own is not None:
            return cast("Iterator[bytes | None]", own(spans, self._note))
        return (None if span is None else self.get(span.key, span.byte_range) for span in spans)
