"""A reference set: store key -> inline bytes, a url, or a byte range of a url. Held in columns.

Ten million references cost tens of bytes each here, against hundreds as a dict of lists. Keys that end in chunk
coords are grouped into tables, one for each prefix, and the coords become one sorted integer column (none at all when
the table has no gaps); every other key sits in a small dict. No metadata is needed for that: which part of a key is
coords is a matter of spelling alone, and undone exactly.

Not here: JSON and parquet (`chunkmill.formats`), fetching (`chunkmill.stores.reference`), building
(`chunkmill.model.reference_builder`).
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError

KeyForm = tuple[str, str, int]
"""Prefix (empty, or ending with ``/``), separator and number of coords: what the keys of one table share."""

INLINE = -1
"""In a column of url ids: the bytes are in the set, offset and length say where in its blob."""
WHOLE = -1
"""In a column of lengths: the whole object, whatever its size."""
_BLOCK = 1 << 16  # rows turned into Python objects at a time


@dataclass(frozen=True, slots=True)
class Reference:
    """Location of the bytes of one key.

    Attributes
    ----------
    url
        The target as the set spells it; ``None``: the default target that the opener names.
    offset, length
        The range in bytes; ``length=None``: the whole object.
    data
        The bytes themselves, when the set holds them; then the other members say nothing.
    """

    url: str | None
    offset: int = 0
    length: int | None = None
    data: bytes | None = None


class References(Protocol):
    """Source of a reference store: a set in memory, or one whose files are read when needed."""

    @property
    def fingerprint(self) -> str:
        """Digest of what the set says: equal for equal sets, in every process."""

    def locate(self, key: str) -> Reference | None:
        """Return where the bytes of `key` are; ``None`` when the set has no such key."""

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield every key that starts with `prefix`."""

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`; those with more below them end with ``/``."""


def split_key(key: str) -> tuple[str, str, str] | None:
    """Split off the chunk coords that `key` ends in: prefix, separator, coords as text; ``None`` when it has none.

    Spelling decides: the longest tail of digits joined by dots, else by slashes, that starts a path segment.

    Examples
    --------
    >>> split_key("a/b2/0.1")
    ('a/b2/', '.', '0.1')
    >>> split_key("a/c/0/1")
    ('a/c/', '/', '0/1')
    >>> split_key("a/.zarray") is None
    True
    """
    stem = len(key.rstrip("0123456789./"))
    if stem == len(key):
        return None
    start = key.find("/", stem) + 1 if stem else 0
    if stem and not start:
        return None
    if "." in key[start:]:
        start = key.rfind("/") + 1
        return key[:start], ".", key[start:]
    return key[:start], "/", key[start:]


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceTable:
    """The references of all keys of one form, in the order of their coords.

    Attributes
    ----------
    form
        What the keys share.
    extents
        For each coordinate one more than its greatest value: the radices of `ranks`.
    ranks
        The coords of each row as one number in C order, ascending; ``None`` when row i has rank i.
    url_ids, offsets, lengths
        Columns, in the smallest signed dtype that holds them; see `INLINE` and `WHOLE`.
    """

    form: KeyForm
    extents: tuple[int, ...]
    ranks: NDArray[Any] | None
    url_ids: NDArray[Any]
    offsets: NDArray[Any]
    lengths: NDArray[Any]

    def __len__(self) -> int:
        return len(self.offsets)

    def row(self, text: str) -> int | None:
        """Return the row of the coords spelt `text`, or ``None``."""
        parts = text.split(self.form[1])
        if not all(p == "0" or p[:1] not in {"", "0"} for p in parts):  # of digits alone, by `split_key`
            return None
        rank = 0
        for part, extent in zip(parts, self.extents, strict=True):
            if len(part) > len(str(extent)) or (index := int(part)) >= extent:
                return None
            rank = rank * extent + index
        if self.ranks is None:
            return rank
        found = int(np.searchsorted(self.ranks, rank))
        return found if found < len(self.ranks) and int(self.ranks[found]) == rank else None

    def coords(self, start: int = 0, stop: int | None = None) -> NDArray[np.int64]:
        """Return the coords of some rows: shape (rows, coords of a key)."""
        stop = len(self) if stop is None else min(stop, len(self))
        ranks = np.arange(start, stop) if self.ranks is None else self.ranks[start:stop].astype(np.int64)
        return np.stack(np.unravel_index(ranks, self.extents), axis=-1)

    def keys(self, start: int = 0) -> Iterator[str]:
        """Yield the keys from row `start` on, in the order of the rows."""
        prefix, separator, n_coords = self.form
        pattern = prefix.replace("%", "%%") + separator.join(["%d"] * n_coords)
        for first in range(start, len(self), _BLOCK):
            for coords in self.coords(first, first + _BLOCK).tolist():
                yield pattern % tuple(coords)

    def keys_below(self, prefix: str) -> Iterator[str]:
        """Yield the keys that start with `prefix`."""
        if self.form[0].startswith(prefix):
            yield from self.keys()
        elif prefix.startswith(self.form[0]):
            yield from (key for key in self.keys() if key.startswith(prefix))


def names_below(keys: Iterable[str], prefix: str) -> set[str]:
    """Return the names that keys have directly below `prefix`; those with more below them end with ``/``."""
    parts = (key[len(prefix) :].partition("/") for key in keys if key.startswith(prefix))
    return {head + slash for head, slash, _ in parts}


@dataclass(eq=False)
class ReferenceSet:
    """References held in columns; immutable once built (by `ReferenceBuilder`).

    Attributes
    ----------
    urls
        Every target once; ``None`` stands for the default target.
    tables
        The keys that end in chunk coords, where enough of them share a form.
    named
        Every other key: (url id, offset, length).
    blob
        All inline bytes, one after the other.
    file
        Url of the file that the set was read from, and what reads it again: these pickle instead of the set. ``None``:
        it is in memory alone.

    Examples
    --------
    >>> from chunkmill.model.reference_builder import ReferenceBuilder
    >>> builder = ReferenceBuilder()
    >>> builder.add("x/0.0", "s3://bucket/a.nc", 4096, 100)
    >>> references = builder.build()
    >>> references.locate("x/0.0")
    Reference(url='s3://bucket/a.nc', offset=4096, length=100, data=None)
    """

    urls: Sequence[str | None]
    tables: Mapping[KeyForm, ReferenceTable]
    named: Mapping[str, tuple[int, int, int]]
    blob: bytes
    _fingerprint: str | None = field(default=None, repr=False)
    file: tuple[str, Callable[[], ReferenceSet | None]] | None = field(default=None, repr=False)
    _sorted_names: list[str] | None = field(default=None, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        own = partial(ReferenceSet, self.urls, dict(self.tables), dict(self.named), self.blob, self.fingerprint)
        return one_in_process, (self.fingerprint, *(self.file or ("", own)))

    def __len__(self) -> int:
        return len(self.named) + sum(map(len, self.tables.values()))

    def __contains__(self, key: str) -> bool:
        return self._entry(key) is not None

    @property
    def fingerprint(self) -> str:
        """Digest of what the set says."""
        if self._fingerprint is None:
            digest = hashlib.blake2b(repr((tuple(self.urls), sorted(self.named.items()))).encode(), digest_size=16)
            digest.update(self.blob)
            for form in sorted(self.tables):
                table = self.tables[form]
                digest.update(repr((form, table.extents)).encode())
                for column in (table.ranks, table.url_ids, table.offsets, table.lengths):
                    if column is not None:
                        digest.update(column.dtype.str.encode())
                        digest.update(column.data)
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def locate(self, key: str) -> Reference | None:
        """Return where the bytes of `key` are; ``None`` when the set has no such key."""
        entry = self._entry(key)
        return None if entry is None else self.reference(*entry)

    def reference(self, url_id: int, offset: int, length: int) -> Reference:
        """Return what one row of the columns means."""
        if url_id == INLINE:
            return Reference(None, data=self.blob[offset : offset + length])
        return Reference(self.urls[url_id], offset, None if length == WHOLE else length)

    def _entry(self, key: str) -> tuple[int, int, int] | None:
        entry = self.named.get(key)
        if entry is not None or (split := split_key(key)) is None:
            return entry
        prefix, separator, text = split
        table = self.tables.get((prefix, separator, text.count(separator) + 1))
        row = None if table is None else table.row(text)
        if table is None or row is None:
            return None
        return int(table.url_ids[row]), int(table.offsets[row]), int(table.lengths[row])

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield every key that starts with `prefix`: first those outside the tables, sorted."""
        yield from self._names(prefix)
        for table in self.tables.values():
            yield from table.keys_below(prefix)

    def items(self) -> Iterator[tuple[str, Reference]]:
        """Yield every key with its reference."""
        for name in self._names(""):
            yield name, self.reference(*self.named[name])
        for table in self.tables.values():
            keys = table.keys()
            for start in range(0, len(table), _BLOCK):
                part = slice(start, start + _BLOCK)
                columns = (c[part].tolist() for c in (table.url_ids, table.offsets, table.lengths))
                # the columns first: zip would take a key too many
                for url_id, offset, length, key in zip(*columns, keys, strict=False):
                    yield key, self.reference(url_id, offset, length)

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`; those with more below them end with ``/``."""
        found = names_below(self._names(prefix), prefix)
        for table in self.tables.values():
            own = table.form[0]
            is_below = own.startswith(prefix) and own != prefix
            found |= names_below([own] if is_below else table.keys_below(prefix), prefix)
        return sorted(found)

    def _names(self, prefix: str) -> list[str]:
        """Return the sorted keys outside the tables that start with `prefix`."""
        if self._sorted_names is None:
            self._sorted_names = sorted(self.named)
        names = self._sorted_names
        return names[bisect_left(names, prefix) : bisect_left(names, f"{prefix}\U0010ffff")]

    def subset(self, keys: Iterable[str]) -> ReferenceSet:
        """Return a set of only those of `keys` that there are.

        Examples
        --------
        >>> from chunkmill.model.reference_builder import ReferenceBuilder
        >>> builder = ReferenceBuilder()
        >>> for i in range(1000):
        ...     builder.add(f"x/{i}", "s3://bucket/a.nc", 100 * i, 100)
        >>> len(builder.build().subset(["x/7", "x/8"]))
        2
        """
        named = {key: entry for key in keys if (entry := self._entry(key)) is not None}
        return ReferenceSet(self.urls, {}, named, self.blob)


_MAX_SETS = 8

_sets: OrderedDict[tuple[str, str], References] = OrderedDict()
_sets_lock = threading.Lock()


def one_in_process(fingerprint: str, source: str, read: Callable[[], References | None]) -> References:
    """Return the set that was pickled: the one of this process, where there is one, else what `read` returns (P9)."""
    with _sets_lock:
        if (found := _sets.pop((source, fingerprint), None)) is None:
            found = read()
        if found is None or found.fingerprint != fingerprint:
            got = "nothing" if found is None else "another set"
            raise MetadataError(key=source, field="document", got=got, expected="no change since it was opened")
        _sets[source, fingerprint] = found
        while len(_sets) > _MAX_SETS:
            _sets.popitem(last=False)
    return found
