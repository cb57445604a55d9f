"""Find the store keys of a target whose source has changed: by versions, or all of them, to be compared by values.

Not here: the versions (`chunkmill.conversion.lineage`), the tasks (`chunkmill.syncs.tasks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chunkmill.array.present_keys import Numbers, list_present, touch
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.lineage import NOT_GUARDED, KeyVersions, TracedArray, key_versions, layouts_of
from chunkmill.errors import JobError
from chunkmill.hints import Hint

__all__ = ["all_keys", "changed_keys", "check_grown", "check_unchanged_target", "with_shapes"]


def check_grown(job: str, source: StoredArray, stored: StoredArray, traced: TracedArray | None) -> None:
    """Raise `JobError` unless the target is as long as the source or shorter, and both have the layouts of then."""
    hint = Hint("make the target again with {}, or another one", ("overwrite", True))
    if source.ndim != stored.ndim or any(a < b for a, b in zip(source.shape, stored.shape, strict=True)):
        reason = f"the source of {stored.path!r} has shape {source.shape} now, and the target {stored.shape}"
        raise JobError(job=job, reason=f"{reason}: it can only grow", hint=hint)
    if source.dtype != stored.dtype or (traced and layouts_of(source, stored, traced.shape) != traced.layouts):
        reason = (
            f"chunks, codecs, data type or fill value of {stored.path!r}, or of its source, are others than they were"
        )
        raise JobError(job=job, reason=reason, hint=hint)


def with_shapes(traced: TracedArray, source: StoredArray, target: StoredArray) -> TracedArray:
    """Return a lineage in the shapes of now: there was no value where the arrays have grown."""
    return replace(
        traced,
        shape=target.shape,
        source=_padded(traced.source, source.write_layout.grid.grid_shape),
        target=_padded(traced.target, target.write_layout.grid.grid_shape),
    )


def _padded(versions: KeyVersions, shape: Sequence[int]) -> KeyVersions:
    return np.pad(versions, [(0, new - old) for old, new in zip(versions.shape, shape, strict=True)])


def changed_keys(
    traced: TracedArray, now: KeyVersions, source: StoredArray, target: StoredArray, stored: StoredArray
) -> tuple[Numbers, int]:
    """Return the store keys of the target to write, and how many of the source's were changed, came or went."""
    changed = np.flatnonzero(traced.source.reshape(-1) != now.reshape(-1))
    grid = target.write_layout.grid
    found = touch(changed, source.write_layout.grid, grid) if len(changed) else None
    # nothing has changed, or too much to tell what
    touched = np.arange(grid.n_chunks if len(changed) else 0) if found is None else found.numbers
    return np.union1d(touched, _at_old_ends(target, stored)), len(changed)


def _at_old_ends(target: StoredArray, stored: StoredArray) -> Numbers:
    """Return the store keys that the old ends of a target cut which grows: what they hold outside is not defined."""
    grid, found = target.write_layout.grid, [np.zeros(0, np.int64)]
    numbers = np.arange(grid.n_chunks).reshape(grid.grid_shape)
    for axis, (old, new) in enumerate(zip(stored.shape, target.shape, strict=True)):
        along = grid.axes[axis]
        if old < new and old and along.start(at := along.index(old)) < old:
            found.append(np.take(numbers, at, axis).reshape(-1))
    return np.unique(np.concatenate(found))


def all_keys(source: StoredArray, target: StoredArray) -> Numbers:
    """Return the store keys of the target of which it or the source has chunks; all, where that is not known."""
    grid, found = target.write_layout.grid, []
    for array in (source, target):
        present = list_present(array)
        touched = None if present is None else touch(present, array.write_layout.grid, grid)
        if touched is None:
            return np.arange(grid.n_chunks)
        found.append(touched.numbers)
    return np.union1d(*found)


def check_unchanged_target(job: str, traced: TracedArray, target: StoredArray, numbers: Numbers) -> None:
    """Raise `JobError` where others have changed store keys of the target that are to be written."""
    now = key_versions(target)
    if now is None:
        return
    was, there = traced.target.reshape(-1)[numbers], now.reshape(-1)[numbers]
    others = numbers[(was != NOT_GUARDED) & (was != there)]
    if not len(others):
        return
    layout = target.write_layout
    names = [layout.locator.key(layout.grid.coords_of(int(number))) for number in others[:5]]
    more = f" and {len(others) - len(names):,} more" if len(others) > len(names) else ""
    reason = f"others have changed {', '.join(map(repr, names))}{more} in {target.url} since it was made"
    raise JobError(job=job, reason=reason, hint=Hint("{} writes over it", ("overwrite", True)))
