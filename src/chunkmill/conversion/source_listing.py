"""List the sources of a job once when a run begins: what is absent, and the versions of what is read by slices (P9).

A source array that is mostly empty is listed: groups of store keys without any that is listed are not run, the others
ask only for listed keys, and before the result is published the source is listed again. Several tasks read slices of
one chunk: where it is replaced in between, the target would hold rows of both, so versions are compared. They are asked
for file by file, or listed where requests cost latency; stores without versions are believed. Not here: listing
(`chunkmill.array.present_keys`), other changes of a source (`chunkmill.conversion.array_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from chunkmill.array.present_keys import Numbers, TouchedBlocks, count_touched, list_present, list_present_if_sparse
from chunkmill.array.present_keys import touch as blocks_touched
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import ArrayPlan
from chunkmill.errors import ChunkError, JobError
from chunkmill.jobs.sources import SeenSource, check_absent, check_still_there
from chunkmill.journal.records import Listings, StoreKeys, digest_now
from chunkmill.model.grid import ChunkGrid, Region
from chunkmill.runtime.stage import TaskSpecs

Listed = Mapping[int, tuple[Numbers, Numbers]]
"""By number of the array: numbers of the store keys of source and target that a listing named."""


def list_sources(plans: Sequence[ArrayPlan], *, fresh: bool) -> dict[int, tuple[Numbers, Numbers]]:
    """List the store keys of each mostly empty source, and of its target where something is there already.

    Not of arrays whose absent chunks are written out, nor of those that raise for absent chunks.
    """
    listed = {}
    for which, plan in enumerate(plans):
        if plan.action.materialize or plan.source.read_missing == "error":
            continue
        if (present := list_present_if_sparse(plan.source)) is None:
            continue
        there = np.zeros(0, np.int64) if fresh else list_present(plan.target)
        if there is not None:
            listed[which] = present, there
    return listed


def check_still_absent(plans: Sequence[ArrayPlan], listed: Listed) -> None:
    """Raise `ChunkError` where a chunk of a source that was absent when the run began is present now."""
    for which, (present, _) in listed.items():
        array = plans[which].source
        now = list_present(array)
        appeared = np.zeros(1, np.int64) if now is None else np.setdiff1d(now, present, assume_unique=True)
        if len(appeared):
            coords = array.write_layout.grid.coords_of(int(appeared[0]))
            reason = "it was absent when the run began, and is present now: the source is being written, or its file "
            reason += "system fails now and then; call `plan.run(resume=False)` when it is at rest"
            key = array.write_layout.locator.key(coords)
            raise ChunkError(url=array.url, key=key, coords=coords, step="get", reason=reason)


def check_absences(array: StoredArray, seen: SeenSource, region: Region, keys: Collection[str]) -> None:
    """Raise where store keys in a region were absent because the array is gone, or is being written."""
    if keys:
        check_still_there(array, seen)
        layout = array.write_layout
        coords = [overlap.coords for overlap in layout.grid.overlaps(region)]
        check_absent(array, layout, [each for each in coords if layout.locator.key(each) in keys])


def touched_blocks(
    plans: Sequence[ArrayPlan], listed: Listed, blocks: Mapping[int, ChunkGrid], *, of_target: bool = True
) -> dict[int, TouchedBlocks]:
    """Return the blocks of each listed array that have anything to do.

    Parameters
    ----------
    blocks
        Grid of the blocks, by number of the array.
    of_target
        Whether blocks with keys of the target have: absent chunks are deleted there.
    """
    found = {}
    for which, grid in blocks.items():
        if which not in listed:
            continue
        (present, there), plan = listed[which], plans[which]
        touched = blocks_touched(present, plan.source.write_layout.grid, grid)
        others = blocks_touched(there if of_target else there[:0], plan.target.write_layout.grid, grid)
        if touched is not None and others is not None:
            found[which] = touched.with_blocks(others.numbers)
    return found


def reads_little_twice(plan: ArrayPlan, listed: tuple[Numbers, Numbers]) -> bool:
    """Return whether the target's store keys may be read from the source one by one, by what is listed of both."""
    source, target = plan.source.write_layout.grid, plan.target.write_layout.grid
    return count_touched(listed[0], source, target) <= _MOST_READS * len(listed[0])


_MOST_READS = 8  # of a store key of a mostly empty source, on average


def narrowed(touched: Mapping[int, TouchedBlocks]) -> Callable[[Sequence[object]], Sequence[object]] | None:
    """Return the function that leaves those of some specs that have anything to do; ``None`` where all have."""
    if not touched:
        return None

    def narrow(specs: Sequence[object]) -> Sequence[object]:
        return specs.narrowed(touched) if isinstance(specs, TaskSpecs) else specs

    return narrow


def n_left_out(touched: TouchedBlocks, blocks: ChunkGrid, counted: ChunkGrid) -> int:
    """Return how many chunks of the grid `counted` the blocks have that are not touched."""
    return counted.n_chunks - count_touched(touched.numbers, blocks, counted)


def see_slices(plans: Sequence[ArrayPlan]) -> dict[int, int]:
    """Return the fingerprint of all store keys of each source that is read by slices, by number of the array."""
    listings, seen = Listings(), {}
    for which, plan in enumerate(plans):
        if plan.rechunk is not None and plan.rechunk.source.sliced is not None:
            found = _fingerprint(plan.source, listings)
            if found is not None:
                seen[which] = found
    return seen


def check_slices(job: str, plans: Sequence[ArrayPlan], seen: Mapping[int, int]) -> None:
    """Raise `JobError` where chunks of such a source were written since."""
    listings = Listings()
    for which, before in seen.items():
        array = plans[which].source
        if _fingerprint(array, listings) != before:
            reason = f"chunks of the source {array.path!r} in {array.url} were written while tasks read slices of them"
            hint = "run the plan again when the source is at rest: what has changed is read again"
            raise JobError(job=job, reason=reason, hint=hint)


def _fingerprint(array: StoredArray, listings: Listings) -> int | None:
    """Return the fingerprint of all store keys; ``None`` where versions are not known, or not by listing."""
    store = array.store.uncached
    if not store.has_versions:
        return None
    if not store.is_remote:
        return digest_now(lambda _, keys: iter((keys,)), None, _batches(array))
    digests = [listings.digest(keys) for keys in _batches(array)]
    return None if None in digests else sum(each for each in digests if each is not None) % 2**64


_BATCH = 1 << 14  # keys that are held at once


def _batches(array: StoredArray) -> Iterator[StoreKeys]:
    layout, store = array.write_layout, array.store.uncached
    coords = layout.grid.all_coords()
    while keys := [layout.locator.key(each) for each in islice(coords, _BATCH)]:
        yield StoreKeys(store, array.prefix, keys)
