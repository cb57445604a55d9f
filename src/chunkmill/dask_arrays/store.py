"""Write dask arrays onto arrays that exist: the public function `store`; check values and regions given to writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from dask.array import core as da
from dask.delayed import Delayed
from dask.graph_manipulation import bind

from chunkmill.array.selection import as_region
from chunkmill.array.staleness import check_after_writing
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.as_dask import together_as_dask
from chunkmill.dask_arrays.expressions import read_array
from chunkmill.dask_arrays.kinds import ArrayKind, as_kind, check_kind, kind_of
from chunkmill.dask_arrays.read import open_array_at, read_graph
from chunkmill.dask_arrays.write import WriteReport, report, returning, run, write_graph
from chunkmill.errors import NodeExists, NodeNotFound, RegionError
from chunkmill.journal.lease import check_no_job
from chunkmill.model.grid import DaskChunks, Region
from chunkmill.nodes.api import NodeLocation
from chunkmill.nodes.group import Group
from chunkmill.nodes.new_array import lengths_by_name
from chunkmill.nodes.opening import check_adapter, open_stored
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.runtime.locks import lock_factory
from chunkmill.runtime.preflight import check_writers
from chunkmill.stores.base import Store

N = TypeVar("N", StoredArray, StoredGroup)


@returning(list[WriteReport], list[da.Array])
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
        A tuple of slices for each target (one for all, or a list); the whole target where ``None``. A store key that
        several regions share is changed by each under the lock: regions of whole store keys are written faster.
    lock, compute
        As in `to_store`.
    return_stored
        Return what was written as dask arrays that read it; with ``compute=False`` computing one of them writes first.
    write_empty_chunks
        Write chunks that are the fill value bit for bit, too; else they are left absent, and deleted where they were.

    Returns
    -------
    list of WriteReport
        One for each target. With ``compute=False`` a `dask.delayed.Delayed` of them; with ``return_stored=True`` a list
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
    arrays = _of_one_transaction([_target(each) for each in _listed(targets)])
    places = list(regions) if isinstance(regions, list) else [regions] * len(arrays)
    if not len(listed) == len(arrays) == len(places):
        counts = f"{len(listed)} sources, {len(arrays)} targets and {len(places)} regions"
        raise ValueError(f"{counts} do not match: give a list of as many of each, or one region for all")
    factory = lock_factory(lock)
    for array in {(id(array.store), array.path): array for array in arrays}.values():
        check_no_job(array.store, array.path)
    wheres = [write_region_of(array, region) for array, region in zip(arrays, places, strict=True)]
    values = together_as_dask([checked_values(x) for x in listed])
    with ExitStack() as transactions:
        for each in {id(array.store): array.store for array in arrays}.values():
            transactions.enter_context(each.transaction(f"write to {len(arrays)} arrays"))
        planned = [
            write_graph(x, array, where, lock=factory, write_empty=write_empty_chunks, stored=array, compute=compute)
            for x, array, where in zip(values, arrays, wheres, strict=True)
        ]
        check_writers(arrays if compute else [])
        finish = partial(_reports, n_regrouped=[n for _, n in planned], arrays=arrays)
        result = run([counts for counts, _ in planned], finish, compute=compute, arrays=arrays, regions=wheres)
    if not return_stored:
        return result
    targeted = zip(arrays, wheres, listed, strict=True)
    return [stored_values(array, where, result, kind_of(x)) for array, where, x in targeted]


def _of_one_transaction(arrays: Sequence[StoredArray]) -> list[StoredArray]:
    """Return the arrays, of which those of one repository share its store, and so a commit."""
    stores: list[Store] = []
    for store in (array.store for array in arrays if array.store.has_transactions):
        if store not in stores:
            stores.append(store)
    return [
        array.with_store(next((store for store in stores if store == array.store), array.store)) for array in arrays
    ]


def _listed(targets: Any) -> list[Any]:
    """Return several targets as a list, or one: a tuple of a url and a path is one."""
    is_place = isinstance(targets, tuple) and len(targets) == 2 and isinstance(targets[1], str)  # noqa: PLR2004
    return list(targets) if isinstance(targets, (list, tuple)) and not is_place else [targets]


def _target(place: Any) -> StoredArray:
    array = open_array_at(place, mode="r+").stored
    array.check_writable()
    return array


def _reports(*counts: Any, n_regrouped: Sequence[int], arrays: Sequence[StoredArray]) -> list[WriteReport]:
    check_after_writing({id(array): array for array in arrays}.values())
    for each in {id(array.store): array.store for array in arrays}.values():
        each.flush()
    return [report(*each) for each in zip(arrays, counts, n_regrouped, strict=True)]


# --------------------------------------------------------------------------------------------------------------------
# Values and regions


def checked_values(x: Any) -> Any:
    """Return the values; raise `TypeError` where `x` holds none, or those of several arrays."""
    if isinstance(x, (Mapping, AbstractSet, Group)) or x is None or hasattr(x, "data_vars"):
        kind = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}".removeprefix("builtins.")
        msg = f"got {kind}, where values of one array are expected: of dask, NumPy, xarray (a DataArray), chunkmill"
        hint = "; write_dataset writes datasets" if hasattr(x, "data_vars") else ""
        raise TypeError(msg + hint)
    return x


def open_existing(store: Store, path: str, mode: str, kind: type[N], named: str | None = None) -> N | None:
    """Return the array or group to write into; ``None`` where `mode` creates a new one.

    `named` is the format that the place names, which it must have.

    Raises
    ------
    NodeExists
        There is a group where an array is to be written into, or the reverse.
    NodeNotFound
        There is no node, and `mode` is ``"r+"``; or it is of another format than `named`.
    """
    if mode in {"w", "w-"}:
        return None
    if mode not in {"a", "r+"}:
        raise ValueError(f"mode={mode!r} does not write; the modes are 'w-', 'w', 'a' and 'r+'")
    try:
        node = open_stored(store, path, read_only=False, consolidated=False)
    except NodeNotFound:
        if mode == "a":
            return None
        raise
    if not isinstance(node, kind):
        found = "array" if isinstance(node, StoredArray) else "group"
        raise NodeExists(url=node.url, path=node.path, found=found, hint="give mode='w' to replace it")
    check_adapter(named, node)
    return node


def chunks_for_blocks(blocks: DaskChunks | None, chunks: Any, names: Sequence[str | None] | None = None) -> Any:
    """Return the chunks of a new array: by default those of the largest block, where there are blocks that count."""
    if blocks is None:
        return "auto" if chunks is None else chunks
    largest = tuple(max((*axis, 1)) for axis in blocks)
    return largest if chunks is None else lengths_by_name(chunks, names, largest, "chunks")


def write_region_of(array: StoredArray, region: Any) -> Region:
    """Return the region of the array to write to; all of it for ``None``."""
    if isinstance(region, str) and region == "auto":
        reason = "only write_dataset knows coordinates to find it by"
        raise RegionError(index="'auto'", shape=array.shape, reason=reason)
    return as_region(region, array.shape)


def stored_values(array: StoredArray, region: Region, written: Any, kind: ArrayKind | None) -> Any:
    """Return the region as a Dask array that reads it after the write, which may not have been computed yet.

    It is of the kind that the values were of, and of the active one for values of none.
    """
    if not isinstance(written, Delayed):
        return read_array(array, None, region, kind=kind)
    return as_kind(bind(read_graph(array, None, region), written), check_kind(kind))
