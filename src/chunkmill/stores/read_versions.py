# mypy: disable-error-code="type-abstract"
"""Versions of the values that a task reads: recorded as they come with the values, and looked up again later.

A store takes part by the abilities `ReadsVersioned`, `ReadsManyVersioned` and `ListsVersions`
(`chunkmill.stores.capabilities`). They are asked of the store itself, not of those below it: a store that wraps another
one without these methods has no versions. Not here: what is done about a change (`chunkmill.journal.inputs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.capabilities import (
    ListsVersions,
    ReadsManyVersioned,
    ReadsVersioned,
    RecordVersion,
    has_ability,
    may_have_versions,
)
from chunkmill.stores.wrapper import StoreWrapper

__all__ = ["ReadVersions", "digest_of", "has_versions", "list_versions", "noting", "version_now"]


class ReadVersions:
    """Versions of the values that were read from one store.

    Examples
    --------
    >>> read = ReadVersions()
    >>> read.record("a/0", "1"), read.record("a/0", "2"), read.digest() == digest_of({"a/0": "2"})
    (None, None, False)
    """

    def __init__(self) -> None:
        self._versions: dict[str, str] = {}

    def record(self, key: str, version: str) -> None:
        """Record a version; two of one key, which was replaced between, are a third that the value never had."""
        if self._versions.setdefault(key, version) != version:
            self._versions[key] = ""

    def digest(self) -> int:
        """Return the digest of all."""
        return digest_of(self._versions)


def digest_of(versions: Mapping[str, str]) -> int:
    """Return 64 bits that tell keys and versions from others: the sum of their hashes, so that parts add up.

    Examples
    --------
    >>> both = digest_of({"a/0": "1", "a/1": "1"})
    >>> both == (digest_of({"a/0": "1"}) + digest_of({"a/1": "1"})) % 2**64, both == digest_of({"a/0": "1", "a/1": "2"})
    (True, False)
    """
    texts = (f"{key} {version}".encode(errors="surrogatepass") for key, version in versions.items())
    return sum(int.from_bytes(blake2b(text, digest_size=8).digest(), "big") for text in texts) % 2**64


def has_versions(store: Store) -> bool:
    """Return whether values come with their versions.

    Not in a store of one's own that inherits ``get_noting`` and has a ``get`` of its own, which would not be called.
    """
    return may_have_versions(store) and has_ability(store, ReadsVersioned) and _reads_by_it(cast("Any", type(store)))


@lru_cache(maxsize=64)
def _reads_by_it(kind: type) -> bool:
    """Return whether no class overrides ``get`` below the one that has ``get_noting``, if one has."""
    readers = [vars(each).keys() & {"get", "get_noting"} for each in kind.__mro__]
    return not any("get_noting" in each for each in readers) or "get_noting" in next(filter(None, readers))


def noting(store: Store, record: RecordVersion) -> Store:
    """Return the store, of those that have versions, such that `record` is called for each value that is read."""
    return _Noting(store, record)


def version_now(store: Store, key: str) -> str | None:
    """Return the version of a value, without reading it; ``None`` when the key is absent."""
    return cast("ReadsVersioned", store).version(key)


def list_versions(store: Store, prefix: str) -> Iterator[tuple[str, str]] | None:
    """Yield every key that starts with `prefix`, and its version; ``None`` where listings do not tell versions."""
    return store.list_versions(prefix) if has_ability(store, ListsVersions) else None


class _Noting(StoreWrapper):
    def __init__(self, below: Store, record: RecordVersion) -> None:
        super().__init__(below)
        self._record = record

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        return cast("ReadsVersioned", self.below).get_noting(key, byte_range, self._record)

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        if has_ability(self.below, ReadsManyVersioned):
            return self.below.get_many_noting(spans, self._record)
        return (None if span is None else self.get(span.key, span.byte_range) for span in spans)
