"""Find the store keys of a target whose source has changed: by versions, or all of them, to be compared by values.

Not here: the versions (`chunkmill.conversion.lineage`), the tasks (`chunkmill.syncs.tasks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chunkmill.array.present_keys import Numbers, list_present, touch
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.lineage import NOT_GUARDED, REWRITING, KeyVersions, TracedArray, key_versions, layouts_of
from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis

__all__ = [
    "all_keys",
    "at_old_ends",
    "changed_keys",
    "check_layouts",
    "check_longer",
    "check_unchanged_target",
    "left_by_a_sync",
    "touched_keys",
    "with_shapes",
]


def check_longer(job: str, source: StoredArray, stored: StoredArray, shape: Sequence[int]) -> None:
    """Raise `JobError` unless a target has the `shape` that its source asks for, or is shorter."""
    if stored.ndim != len(shape) or any(a < b for a, b in zip(shape, stored.shape, strict=True)):
        wanted = "" if tuple(shape) == source.shape else f", which makes {tuple(shape)}"
        reason = f"the source of {stored.path!r} has shape {source.shape} now{wanted}, and the target {stored.shape}"
        raise JobError(job=job, reason=f"{reason}: it can only grow", hint=_AGAIN)


def check_layouts(job: str, source: StoredArray, stored: StoredArray, traced: TracedArray | None) -> None:
    """Raise `JobError` unless source and target have the layouts of then; without lineage, one data type."""
    if traced is None:
        is_same = source.dtype == stored.dtype
    else:
        is_same = source.ndim == len(traced.source_shape) and stored.ndim == len(traced.shape)
        is_same = is_same and layouts_of(source, stored, (traced.source_shape, traced.shape)) == traced.layouts
    if not is_same:
        reason = (
            f"chunks, codecs, data type or fill value of {stored.path!r}, or of its source, are others than they were"
        )
        raise JobError(job=job, reason=reason, hint=_AGAIN)


_AGAIN = Hint("make the target again with {}, or another one", ("overwrite", True))


def with_shapes(traced: TracedArray, source: StoredArray, target: StoredArray) -> TracedArray:
    """Return a lineage in the shapes of now: there was no value where the arrays have grown."""
    return replace(
        traced,
        shape=target.shape,
        source_shape=source.shape,
        layouts=layouts_of(source, target, (source.shape, target.shape)),
        source=_padded(traced.source, source.write_layout.grid.grid_shape),
        target=_padded(traced.target, target.write_layout.grid.grid_shape),
    )


def _padded(versions: KeyVersions, shape: Sequence[int]) -> KeyVersions:
    return np.pad(versions, [(0, max(0, new - old)) for old, new in zip(versions.shape, shape, strict=True)])


def left_by_a_sync(was: KeyVersions) -> Numbers:
    """Return the numbers of the store keys of a target that a sync may have written, and has not reported."""
    return np.flatnonzero(was.reshape(-1) == REWRITING)


def changed_keys(was: KeyVersions, now: KeyVersions | None) -> Numbers:
    """Return the numbers of the store keys of a source that were changed, came or went; of a level (``None``) none."""
    return np.zeros(0, np.int64) if now is None else np.flatnonzero(was.reshape(-1) != now.reshape(-1))


def touched_keys(changed: Numbers, source: StoredArray, target: StoredArray, factors: Sequence[int] = ()) -> Numbers:
    """Return the store keys of a target that are made from some store keys of its source.

    Parameters
    ----------
    factors
        Elements of the source along each axis that one of the target is made of; empty: 1.
    """
    grid = target.write_layout.grid
    if not len(changed):
        return np.zeros(0, np.int64)
    blocks = grid if not factors else _widened(grid, factors, source.shape)
    found = touch(changed, source.write_layout.grid, blocks)
    # too much has changed to tell what
    return np.arange(grid.n_chunks) if found is None else found.numbers


def _widened(grid: ChunkGrid, factors: Sequence[int], shape: Sequence[int]) -> ChunkGrid:
    """Return the grid of the elements that the chunks of a reduced array are made of."""
    axes: list[RegularAxis | RunsAxis] = []
    for axis, factor, n in zip(grid.axes, factors, shape, strict=True):
        if isinstance(axis, RegularAxis):
            axes.append(RegularAxis(n, axis.chunk * factor))
        else:
            axes.append(RunsAxis(n, tuple((length * factor, count) for length, count in axis.runs)))
    return ChunkGrid(tuple(axes))


def at_old_ends(target: StoredArray, stored: StoredArray, *, reduced: bool = False) -> Numbers:
    """Return the store keys at the old ends of a target that grows, of which others hold a part, or made one.

    What a store key that such an end cuts holds outside is not defined; and the last element of an array that is
    `reduced` from another may have been made of fewer elements than it would be now.
    """
    grid, found = target.write_layout.grid, [np.zeros(0, np.int64)]
    numbers = np.arange(grid.n_chunks).reshape(grid.grid_shape)
    for axis, (old, new) in enumerate(zip(stored.shape, target.shape, strict=True)):
        along = grid.axes[axis]
        if old < new and old and (reduced or along.start(along.index(old)) < old):
            found.append(np.take(numbers, along.index(old - 1), axis).reshape(-1))
    return np.unique(np.concatenate(found))


def all_keys(source: StoredArray, target: StoredArray, factors: Sequence[int] = ()) -> Numbers:
    """Return the store keys of the target of which it or the source has chunks; all, where that is not known."""
    grid = target.write_layout.grid
    above, own = list_present(source), list_present(target)
    if above is None or own is None:
        return np.arange(grid.n_chunks)
    return np.union1d(touched_keys(above, source, target, factors), own)


def check_unchanged_target(job: str, was: KeyVersions, target: StoredArray, numbers: Numbers) -> None:
    """Raise `JobError` where others have changed store keys of the target that are to be written."""
    now = key_versions(target) if len(numbers) else None
    if now is None:
        return
    before, there = was.reshape(-1)[numbers], now.reshape(-1)[numbers]
    others = numbers[(before != NOT_GUARDED) & (before != REWRITING) & (before != there)]
    if not len(others):
        return
    layout = target.write_layout
    names = [layout.locator.key(layout.grid.coords_of(int(number))) for number in others[:5]]
    more = f" and {len(others) - len(names):,} more" if len(others) > len(names) else ""
    reason = f"others have changed {', '.join(map(repr, names))}{more} in {target.url} since it was made"
    raise JobError(job=job, reason=reason, hint=Hint("{} writes over it", ("overwrite", True)))
