"""Lineage of a target: the versions of the values that it was made of, and its own, kept when its job has ended.

Source and target are listed before and after the job. A value of the source that has one version in both was read as
that; of others it is not known what was read, so that a sync takes them for changed. Eight bytes a store key, below
one line of JSON that says how the target was made. Not here: what is done about changes (`chunkmill.syncs`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import prod
from operator import index
from typing import Any, TypeAlias

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import StoreError
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import uncached
from chunkmill.stores.open import open_plain_store
from chunkmill.stores.read_versions import digest_of, has_versions, list_versions, version_now

__all__ = [
    "NOT_GUARDED",
    "REWRITING",
    "ArrayPair",
    "KeyVersions",
    "Lineage",
    "TracedArray",
    "key_versions",
    "layouts_of",
    "rewriting",
]

KeyVersions = NDArray[np.uint64]
"""A digest of the version of each store key of an array, in the shape of its grid; 0: there is no such value."""

NOT_GUARDED = np.uint64(2**64 - 1)
"""In place of the version of a value of a target whose listings tell none: whatever is there may be replaced."""

REWRITING = np.uint64(2**64 - 2)
"""In place of the version of a target's value that a sync was about to write: the next one writes it again, also where
the source has become again what it was."""

ArrayPair: TypeAlias = tuple[StoredArray, StoredArray]
"""A source, and a target that is made of it."""

_UNKNOWN = np.uint64(0)
_VERSION = 2
_MOST_HEADER = 1 << 20  # bytes of the first line


def key_versions(array: StoredArray) -> KeyVersions | None:
    """Return the versions of all store keys of an array, by one listing; ``None`` where listings tell none."""
    store, grid = uncached(array.store), array.write_layout.grid
    found: Iterable[tuple[str, str | None]] | None = list_versions(store, array.prefix)
    if found is None and not store.is_remote and has_versions(store):
        found = ((key, version_now(store, key)) for key in store.list_prefix(array.prefix))
    if found is None:
        return None
    versions = np.zeros(grid.grid_shape, np.uint64)
    for key, version in found:
        if version is None:  # deleted since it was listed
            continue
        coords = array.coords_of_key(key)
        if coords is not None and all(0 <= i < n for i, n in zip(coords, grid.grid_shape, strict=True)):
            versions[coords] = digest_of({key: version})
    return versions


def _place(array: StoredArray) -> str:
    return f"{array.url}/{array.path}"


@dataclass(frozen=True, eq=False)
class TracedArray:
    """One array of a target, and one that it was made of.

    Attributes
    ----------
    path
        Of the target's array.
    of
        Url and path of the source's array: for the levels of a pyramid, the level above.
    shape, source_shape
        Of both arrays.
    layouts
        A fingerprint of chunks, codecs, data types and fill values of both (see `layouts_of`).
    source, target
        Versions of their store keys.
    """

    path: str
    of: str
    shape: tuple[int, ...]
    source_shape: tuple[int, ...]
    layouts: str
    source: KeyVersions
    target: KeyVersions


def layouts_of(source: StoredArray, target: StoredArray, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> str:
    """Return a fingerprint of what else than their shapes the store keys of two arrays depend on, at those shapes."""

    def identity(array: StoredArray, shape: tuple[int, ...]) -> str:
        if array.shape == shape:
            return array.metadata.identity
        return replace(array.metadata, chunk_grid=array.metadata.chunk_grid.resized(shape)).identity

    both = " ".join(map(identity, (source, target), shapes))
    return sha256(both.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Lineage:
    """The place of a target's lineage.

    Attributes
    ----------
    store, key
        Where it is kept.
    """

    store: Store
    key: str

    @classmethod
    def of(
        cls, place: bool | str, target: Store, path: str, options: Mapping[str, Any] | None = None
    ) -> Lineage | None:
        """Return the place of the lineage of the node at `path` of a target's store.

        Parameters
        ----------
        place
            Url of a folder; ``True``: the url of the target's store with ``.lineage`` at its end; ``False``: none.
        options
            Of the filesystem of that folder.
        """
        if not place:
            return None
        where = f"{target.url.rstrip('/')}.lineage" if place is True else place
        name = sha256(f"{target.url} {path}".encode()).hexdigest()[:16]
        return cls(open_plain_store(where, options), f"{name}.lineage")

    def seen(self, pairs: Sequence[ArrayPair]) -> list[KeyVersions | None]:
        """Return the versions of the sources as they are now; ``None`` for those that the job itself writes.

        Raises
        ------
        StoreError
            Listings of a source tell no versions.
        """
        own, found = {_place(target) for _, target in pairs}, dict[str, KeyVersions]()
        for array in (source for source, _ in pairs):
            place = _place(array)
            if place in own or place in found:
                continue
            versions = key_versions(array)
            if versions is None:
                reason = "listings of this store tell no versions, which lineage is made of"
                raise StoreError(url=array.url, key=array.path, reason=reason)
            found[place] = versions
        return [found.get(_place(source)) for source, _ in pairs]

    def traced(self, before: Sequence[KeyVersions | None], pairs: Sequence[ArrayPair]) -> list[TracedArray]:
        """Return the lineage of targets, of sources as they were `before` a job that has ended."""
        there = {_place(target): key_versions(target) for _, target in pairs}
        traced = []
        for (source, target), was, now in zip(pairs, before, self.seen(pairs), strict=True):
            shapes = (source.shape, target.shape)
            own = there[_place(target)]
            # nothing is known of a value that was written while the job ran; a level is as the job has written it
            read = there[_place(source)] if now is None else now if was is None else np.where(was == now, was, _UNKNOWN)
            traced.append(
                TracedArray(
                    target.path,
                    _place(source),
                    target.shape,
                    source.shape,
                    layouts_of(source, target, shapes),
                    np.zeros(source.write_layout.grid.grid_shape, np.uint64) if read is None else read,
                    np.full(target.write_layout.grid.grid_shape, NOT_GUARDED) if own is None else own,
                )
            )
        return traced

    def write(self, made: Mapping[str, Any], arrays: Sequence[TracedArray]) -> None:
        """Store the lineage of all arrays of a target, and what its plan says of how it was `made`."""
        values = [np.ascontiguousarray(each, "<u8").tobytes() for a in arrays for each in (a.source, a.target)]
        checksum = 0
        for value in values:
            checksum = google_crc32c.extend(checksum, value)
        head = {
            "version": _VERSION,
            "made": made,
            "arrays": [
                [a.path, a.of, a.shape, a.source_shape, a.layouts, a.source.shape, a.target.shape] for a in arrays
            ],
            "crc32c": checksum,
        }
        line = json.dumps(head, separators=(",", ":")).encode()
        if len(line) >= _MOST_HEADER:
            reason = f"the lineage of {len(arrays):,} arrays is more than a file of it holds"
            raise StoreError(url=self.store.url, key=self.key, reason=reason)
        self.store.set(self.key, b"".join([line, b"\n", *values]))

    def read(self) -> tuple[Mapping[str, Any], list[TracedArray]] | None:
        """Return what `write` has stored; ``None`` where there is nothing.

        Raises
        ------
        StoreError
            It is damaged.
        """
        value = self.store.get(self.key)
        if value is None:
            return None
        line, _, rest = value.partition(b"\n")
        try:
            head = json.loads(line)
            is_whole = head["version"] == _VERSION and head["crc32c"] == google_crc32c.value(rest)
            arrays, start = [], 0
            for path, of, shape, source_shape, layouts, *grids in head["arrays"] if is_whole else ():
                pair = []
                for grid in grids:
                    n_keys = prod(map(index, grid))
                    pair.append(np.frombuffer(rest, "<u8", n_keys, start).astype(np.uint64).reshape(grid))
                    start += 8 * n_keys
                own, above = (tuple(map(index, each)) for each in (shape, source_shape))
                arrays.append(TracedArray(str(path), str(of), own, above, str(layouts), *pair))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
            raise StoreError(url=self.store.url, key=self.key, reason="the lineage is damaged") from error
        if not is_whole or not isinstance(head.get("made"), dict):
            raise StoreError(url=self.store.url, key=self.key, reason="the lineage is damaged, or of another version")
        return head["made"], arrays


def rewriting(arrays: Sequence[TracedArray], numbers: Sequence[NDArray[np.int64]]) -> list[TracedArray]:
    """Return the lineage of a target of which some store keys are about to be written again."""
    marked = []
    for array, own in zip(arrays, numbers, strict=True):
        target = array.target.copy()
        target.reshape(-1)[own] = REWRITING
        marked.append(replace(array, target=target))
    return marked
