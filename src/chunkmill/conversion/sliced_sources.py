"""Compare the chunks of sources that are read by slices with what they were when the run began.

Several tasks read slices of one chunk: where it is replaced in between, the target would hold rows of both. Versions
are asked for file by file, or listed where requests cost latency; stores without versions are believed. Not here: other
changes of a source (`chunkmill.conversion.source_guard`), tasks on record (`chunkmill.journal.inputs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import ArrayPlan
from chunkmill.errors import JobError
from chunkmill.journal.inputs import Listings, StoreKeys, mark_now
from chunkmill.stores.capabilities import uncached
from chunkmill.stores.read_versions import has_versions

__all__ = ["check_slices", "see_slices"]


def see_slices(plans: Sequence[ArrayPlan]) -> dict[int, int]:
    """Return the mark of all store keys of each source that is read by slices, by number of the array."""
    listings, marks = Listings(), {}
    for which, plan in enumerate(plans):
        if plan.rechunk is not None and plan.rechunk.source.sliced is not None:
            mark = _mark(plan.source, listings)
            if mark is not None:
                marks[which] = mark
    return marks


def check_slices(job: str, plans: Sequence[ArrayPlan], seen: Mapping[int, int]) -> None:
    """Raise `JobError` where chunks of such a source were written since."""
    listings = Listings()
    for which, mark in seen.items():
        array = plans[which].source
        if _mark(array, listings) != mark:
            reason = f"chunks of the source {array.path!r} in {array.url} were written while tasks read slices of them"
            hint = "run the plan again when the source is at rest: what has changed is read again"
            raise JobError(job=job, reason=reason, hint=hint)


def _mark(array: StoredArray, listings: Listings) -> int | None:
    """Return the mark of all store keys; ``None`` where versions are not told, or not by listing."""
    store = uncached(array.store)
    if not has_versions(store):
        return None
    if not store.is_remote:
        return mark_now(lambda _, keys: iter((keys,)), None, _batches(array))
    marks = [listings.mark(keys) for keys in _batches(array)]
    return None if None in marks else sum(mark for mark in marks if mark is not None) % 2**64


_BATCH = 1 << 14  # keys that are held at once


def _batches(array: StoredArray) -> Iterator[StoreKeys]:
    layout, store = array.write_layout, uncached(array.store)
    coords = layout.grid.all_coords()
    while keys := [layout.locator.key(each) for each in islice(coords, _BATCH)]:
        yield StoreKeys(store, array.prefix, keys)
