"""Write dask arrays onto arrays that exist: the public function `store`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, overload

import dask.array as da
from dask.delayed import Delayed

from chunkmill.array.staleness import check_after_writing
from chunkmill.dask_arrays.as_dask import as_dask
from chunkmill.dask_arrays.write import WriteReport, report, run, write_graph
from chunkmill.nodes.arguments import NodeLocation, open_array_at
from chunkmill.nodes.array import Array
from chunkmill.nodes.stored_values import checked_values, stored_values, write_region_of
from chunkmill.runtime.cluster_locks import lock_factory
from chunkmill.runtime.preflight import check_writers
from chunkmill.runtime.unfinished_jobs import check_no_job

__all__ = ["store"]


@overload
def store(
    sources: Any,
    targets: NodeLocation | Sequence[NodeLocation],
    *,
    regions: Any = None,
    lock: Any = "auto",
    compute: Literal[True] = True,
    return_stored: Literal[False] = False,
    write_empty_chunks: bool = False,
) -> list[WriteReport]: ...


@overload
def store(
    sources: Any,
    targets: NodeLocation | Sequence[NodeLocation],
    *,
    regions: Any = None,
    lock: Any = "auto",
    compute: Literal[False],
    return_stored: Literal[False] = False,
    write_empty_chunks: bool = False,
) -> Delayed: ...


@overload
def store(
    sources: Any,
    targets: NodeLocation | Sequence[NodeLocation],
    *,
    regions: Any = None,
    lock: Any = "auto",
    compute: bool = True,
    return_stored: Literal[True],
    write_empty_chunks: bool = False,
) -> list[da.Array]: ...


@overload
def store(
    sources: Any,
    targets: NodeLocation | Sequence[NodeLocation],
    *,
    regions: Any = None,
    lock: Any = "auto",
    compute: bool,
    return_stored: bool = False,
    write_empty_chunks: bool = False,
) -> list[WriteReport] | Delayed | list[da.Array]: ...


def store(
    sources: Any,
    targets: NodeLocation | Sequence[NodeLocation],
    *,
    regions: Any = None,
    lock: Any = "auto",
    compute: bool = True,
    return_stored: bool = False,
    write_empty_chunks: bool = False,
) -> list[WriteReport] | Delayed | list[da.Array]:
    """Write dask arrays onto arrays that exist; like ``da.store``.

    Parameters
    ----------
    sources
        Values as in `to_store`, or a list of those.
    targets
        An `Array`, a url, or ``(url, path)`` of an array that exists; or a list of those, one for each source.
    regions
        A tuple of slices for each target (one for all, or a list); the whole target where ``None``.
    lock, compute, return_stored, write_empty_chunks
        As in `to_store`.

    Returns
    -------
    list of WriteReport
        One for each target; with ``compute=False`` a `dask.delayed.Delayed` of them; with ``return_stored=True`` a list
        of dask arrays.

    Raises
    ------
    AlignmentError
        A source has another shape than its region, or chunks of unknown size.
    StoreError
        A target was opened for reading, or was replaced or resized in the store since; or partial writes would be
        unguarded (see `to_store`).
    ChunkError
        A chunk cannot be read, changed or written.

    Examples
    --------
    >>> import chunkmill as cm, dask.array as da
    >>> a = cm.create_array("memory://doc-store", shape=(10,), dtype="i4", chunks=(4,))
    >>> [r.n_partial for r in cm.store(da.ones(6, dtype="i4"), a, regions=(slice(2, 8),))]
    [1]
    """
    listed = list(sources) if isinstance(sources, (list, tuple)) else [sources]
    arrays = [_target(each) for each in _listed(targets)]
    places = list(regions) if isinstance(regions, list) else [regions] * len(arrays)
    if not len(listed) == len(arrays) == len(places):
        counts = f"{len(listed)} sources, {len(arrays)} targets and {len(places)} regions"
        raise ValueError(f"{counts} do not match: give a list of as many of each, or one region for all")
    factory = lock_factory(lock)
    planned, wheres = [], []
    for x, array, region in zip(listed, arrays, places, strict=True):
        check_no_job(array.store, array.path)
        wheres.append(where := write_region_of(array, region))
        values = as_dask(checked_values(x))
        planned.append(write_graph(values, array, where, lock=factory, write_empty=write_empty_chunks, stored=array))
    check_writers(arrays if compute else [])
    finish = partial(_reports, n_regrouped=[n for _, n in planned], arrays=arrays)
    result = run([counts for counts, _ in planned], finish, compute=compute, arrays=arrays)
    if not return_stored:
        return result
    return [stored_values(array, where, result) for array, where in zip(arrays, wheres, strict=True)]


def _listed(targets: Any) -> list[Any]:
    """Return several targets as a list, or one: a tuple of a url and a path is one."""
    is_place = isinstance(targets, tuple) and len(targets) == 2 and isinstance(targets[1], str)  # noqa: PLR2004
    return list(targets) if isinstance(targets, (list, tuple)) and not is_place else [targets]


def _target(place: Any) -> Array:
    array = open_array_at(place, mode="r+")
    array.check_writable()
    return array


def _reports(*counts: Any, n_regrouped: Sequence[int], arrays: Sequence[Array]) -> list[WriteReport]:
    for array in arrays:
        check_after_writing(array)
    return [report(array, c, n) for array, c, n in zip(arrays, counts, n_regrouped, strict=True)]
