"""Documents of source arrays when a job was planned: a source that changes is an error, before publishing (P9).

And the place of a node, by whatever name it is opened.
Not here: chunks that are listed, or read in slices (`chunkmill.conversion.stages`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from chunkmill.array.layout import ChunkLayout
from chunkmill.array.present_keys import MOST_KEYS, Numbers, list_present, warn_of_nested_chunks
from chunkmill.array.staleness import by_consolidated_metadata
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import cut_evenly, in_threads
from chunkmill.errors import ChunkError, JobError, MetadataError
from chunkmill.formats.base import Format
from chunkmill.hints import Hint
from chunkmill.model.grid import ChunkCoords, Region
from chunkmill.nodes.documents import fetch, format_of_store, present
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store
from chunkmill.stores.wrapper import listed_keys

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class SeenSource:
    """Documents of a source array when its job was planned.

    Attributes
    ----------
    format
        Parses them.
    documents
        Store key -> the document. None for an array of a reference set, which is in memory and does not change, nor
        for one whose document is in consolidated metadata only.
    versions
        Store key -> the version of the document, in stores that compare versions.
    """

    format: Format
    documents: Mapping[str, bytes]
    versions: Mapping[str, str | None]

    def change(self, array: StoredArray) -> str | None:
        """Return "deleted", "replaced" or "changed", if the array is; attributes may change."""
        store = array.store.uncached
        found = {key: store.get_versioned(key) for key in self.documents}
        entry, *_ = found.values() or [(b"", None)]
        if entry[0] is None:
            return "deleted"
        now = {key: value for key, (value, _) in found.items() if value is not None}
        if now != self.documents:
            return None if self._same_chunks(array.path, now) else "changed"
        replaced = store.compares_versions and any(found[key][1] != version for key, version in self.versions.items())
        return "replaced" if replaced else None

    def has_chunks_of(self, array: StoredArray) -> bool:
        """Return whether the documents describe the chunks as `array` does, which was opened before."""
        documents, key = self.documents, self.format.array_keys(array.path)[0]
        if not documents and not array.last_seen.was_found:
            documents = by_consolidated_metadata(array.store, self.format, array.path, key)
        known = self.format.parse_array(array.path, documents)
        names = ("chunk_grid", "chunk_keys", "codecs")
        return known is not None and all(getattr(known, n) == getattr(array.stored_metadata, n) for n in names)

    def _same_chunks(self, path: str, documents: Mapping[str, bytes]) -> bool:
        try:
            before, after = (self.format.parse_array(path, each) for each in (self.documents, documents))
        except MetadataError:
            return False
        return before is not None and after is not None and before.identity == after.identity


class Source(NamedTuple):
    """An array that tasks read, and its documents when the job was planned."""

    array: StoredArray
    seen: SeenSource


def see_sources(arrays: Sequence[StoredArray]) -> list[Source]:
    """Read the documents of source arrays, and their versions."""
    formats: dict[tuple[int, str], Format] = {}
    for array in arrays:
        store = array.store.uncached
        if (id(store), array.format) not in formats:
            formats[id(store), array.format] = format_of_store(store, array.format)

    def see(array: StoredArray) -> Source:
        store = array.store.uncached
        documents_format = formats[id(store), array.format]
        if store.references is not None:
            return Source(array, SeenSource(documents_format, {}, {}))
        warn_of_nested_chunks(array)
        keys = documents_format.array_keys(array.path)
        found = {key: store.get_versioned(key) for key in keys}
        documents = {key: value for key, (value, _) in found.items() if value is not None}
        if keys[0] not in documents or not _can_be_parsed(documents_format, array.path, documents):
            documents = {}
        versions = {key: found[key][1] for key in documents if store.compares_versions}
        seen = SeenSource(documents_format, documents, versions)
        if not seen.has_chunks_of(array):
            reason = f"the source {array.path!r} in {array.url} was replaced after it was opened"
            raise JobError(job=f"read {array.path!r}", reason=reason, hint="open it again")
        return Source(array, seen)

    return _for_each(see, arrays, arrays)


def _can_be_parsed(documents_format: Format, path: str, documents: Mapping[str, bytes]) -> bool:
    try:
        return documents_format.parse_array(path, documents) is not None
    except MetadataError:
        return False


def check_groups(groups: Sequence[StoredGroup]) -> None:
    """Raise `JobError` where one of some groups, in which nothing was found, is not there any more.

    It may have been deleted between reading its document and listing what is in it. Folders without a document have no
    attributes to lose, and groups that only consolidated metadata know are taken as those tell.
    """
    groups = [each for each in groups if not each.is_implicit]
    keys = {each.path: each.documents.group_keys(each.path) for each in groups}
    found = present(fetch(groups[0].store.uncached, chain.from_iterable(keys.values()))) if groups else {}
    for each in groups:
        is_there = any(key in found for key in keys[each.path])
        if not is_there and each.store.uncached is not each.store:
            is_there = bool(by_consolidated_metadata(each.store, each.documents, each.path, keys[each.path][0]))
        if not is_there:
            reason = f"the source group {each.path!r} in {each.store.url} was deleted while it was read"
            raise JobError(job=f"read {each.path!r}", reason=reason, hint="open it again")


def check_sources(job: str, sources: Sequence[Source]) -> None:
    """Raise `JobError` where a source array is not what was seen any more."""
    _for_each(lambda each: check_still_there(each.array, each.seen, job=job), sources, [each.array for each in sources])


def check_still_there(array: StoredArray, seen: SeenSource, *, job: str = "") -> None:
    """Raise `JobError` where a source array was deleted, or is another one than was seen."""
    change = seen.change(array)
    if change is None:
        return
    reason = f"the source {array.path!r} in {array.url} was {change} after this job was planned; nothing is published"
    hint = Hint("when the source is as it should be, plan the job again and run it with {}", ("resume", False))
    raise JobError(job=job or f"read {array.path!r}", reason=reason, hint=hint)


def check_absent(array: StoredArray, layout: ChunkLayout, coords: Sequence[ChunkCoords]) -> None:
    """Raise `ChunkError` where chunks that were absent when they were read are there after all.

    A file system answered wrongly (network file systems do, now and then), or somebody writes to the source. Absent
    store keys are compared with a listing, where the store lists cheaply; those that it names are asked for again.
    Files are asked for again without that, since asking costs no latency.
    """
    store = array.store.uncached
    if not coords or store.references is not None:
        return
    present = _recently_listed(array)
    named = None if present is None else _under(array, layout, coords, present)
    suspected = coords if named is None or not store.is_remote else named
    listed = listed_keys(array.store)
    if listed is not None:  # the others are listed again before the result is published
        suspected = [each for each in coords if layout.locator.key(each) in listed]
    elif named is None and store.is_remote:
        return
    if found := _present(store, array, layout, suspected):
        reason = "it was absent when it was read, and is present now: the source is being written, or its file system "
        raise _misread(array, layout, found, f"{reason}fails now and then; run the job again when it is at rest")
    if named and (found := _without_value(store, array, layout, named)):
        reason = "the store lists it, and twice said that there is no such key: its file system or service fails now "
        reason += "and then, or the value is lost; run the job again, or delete the key"
        raise _misread(array, layout, found, reason)


def check_absences(array: StoredArray, seen: SeenSource, region: Region, keys: Collection[str]) -> None:
    """Raise where store keys in a region were absent because the array is gone, or is being written."""
    if keys:
        check_still_there(array, seen)
        coords = (overlap.coords for overlap in array.write_layout.grid.overlaps(region))
        absent = [each for each in coords if array.write_layout.locator.key(each) in keys]
        check_absent(array, array.write_layout, absent)


def _recently_listed(array: StoredArray, *, again: bool = False) -> Numbers | None:
    """Return the numbers of the store keys that a listing of this process names, recent enough to cost little.

    A listing is used for twenty times as long as it took. ``None`` where the store does not list, or not cheaply:
    one request names a thousand keys.

    Parameters
    ----------
    again
        List now.
    """
    store, n_keys = array.store.uncached, array.write_layout.grid.n_chunks
    if not store.can_list or n_keys > (_MOST_REMOTE if store.is_remote else MOST_KEYS):
        return None
    place, began = (store.url, array.prefix), time.monotonic()
    until, shape, present = _LISTED.get(place, (0.0, (), None))
    if again or began > until or shape != array.write_layout.grid.grid_shape:
        try:
            present = list_present(array.with_store(store))
        except OSError:  # listing may be forbidden where reading is not
            present = None
        ended = time.monotonic()
        while len(_LISTED) >= _MOST_LISTED:
            _LISTED.pop(next(iter(_LISTED), place), None)
        _LISTED[place] = ended + 20 * (ended - began), array.write_layout.grid.grid_shape, present
    return present


_MOST_REMOTE = 1 << 17  # keys of a grid that a task lists where requests cost latency
_MOST_LISTED = 16  # listings that are held
_LISTED: dict[tuple[str, str], tuple[float, tuple[int, ...], Numbers | None]] = {}


def _under(
    array: StoredArray, layout: ChunkLayout, coords: Sequence[ChunkCoords], present: Numbers
) -> list[ChunkCoords]:
    """Return the chunks below store keys with the numbers `present`."""
    grid = array.write_layout.grid
    numbers = [grid.number_of(grid.first_touched(layout.grid.region(each))) for each in coords]
    return [each for each, is_in in zip(coords, np.isin(numbers, present), strict=True) if is_in]


def _present(store: Store, array: StoredArray, layout: ChunkLayout, coords: Sequence[ChunkCoords]) -> list[ChunkCoords]:
    """Return those of some chunks that there are."""
    if layout is array.write_layout:
        return [each for each in coords if store.size(layout.locator.key(each)) is not None]
    spans = layout.locator.locate(store, coords)  # the index of each shard says
    return [each for each, span in zip(coords, spans, strict=True) if span is not None]


def _without_value(
    store: Store, array: StoredArray, layout: ChunkLayout, coords: Sequence[ChunkCoords]
) -> list[ChunkCoords]:
    """Return the chunks whose store keys are still listed, and have no value."""
    keys = {layout.locator.key(each): each for each in coords}  # one chunk of each shard
    missing = [each for key, each in keys.items() if store.size(key) is None]
    present = _recently_listed(array, again=True) if missing else None
    return [] if present is None else _under(array, layout, missing, present)


def _misread(array: StoredArray, layout: ChunkLayout, coords: Sequence[ChunkCoords], reason: str) -> ChunkError:
    keys = list(dict.fromkeys(layout.locator.key(each) for each in coords))
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    others = f"; the same holds for {', '.join(keys[1:_MOST_NAMED])}{more}" if len(keys) > 1 else ""
    return ChunkError(url=array.url, key=keys[0], coords=coords[0], step="get", reason=f"{reason}{others}")


_MOST_NAMED = 8  # keys in an error


def _for_each(function: Callable[[T], R], items: Sequence[T], arrays: Sequence[StoredArray]) -> list[R]:
    """Call `function` for each item: in threads, where the stores' requests cost latency."""
    n_threads = REQUESTS_AT_ONCE if any(array.store.is_remote for array in arrays) else 1
    slices = cut_evenly(len(items), n_threads)
    return list(chain.from_iterable(in_threads(lambda s: [function(each) for each in items[s]], slices, n_threads)))


def canonical_location(url: str, path: str) -> str:
    """Return url and path of a node as one string that ends with ``/``, with symbolic links resolved."""
    location = f"{url.rstrip('/')}/{path.strip('/')}".rstrip("/")
    if location.startswith("file://"):
        location = f"file://{os.path.realpath(location.removeprefix('file://'))}"
    return f"{location}/"
