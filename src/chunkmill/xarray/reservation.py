"""Lease what a dataset is written to: a new group, new arrays in a group, and the end of arrays for an append (P4).

Writers of regions lease nothing: many write to one dataset at a time. Where the data are written later
(``compute=False``), the lease ends when the documents are published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import NodeExists
from chunkmill.journal.lease import check_no_job, leased
from chunkmill.model.grid import ChunkCoords
from chunkmill.model.metadata import is_within, parents_of
from chunkmill.nodes import placement
from chunkmill.nodes.documents import fetch, join_path, node_keys, present, unpublish
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import Store
from chunkmill.xarray.publication import Growth, Publication, UnfinishedAppend
from chunkmill.xarray.write_plan import DatasetPlan


@contextmanager
def reserved_group(plan: DatasetPlan, *, overwrite: bool) -> Iterator[dict[str, bytes]]:
    """Lease the path of a new group, make room, and yield the documents of groups above it that are missing.

    What was written is deleted where the write fails before the group is visible.
    """
    store, path = plan.store, plan.path
    with leased(store, path, f"write a dataset to {path!r} in {store.url}") as own:
        with placement.consolidating_interrupted(store, [path, *plan.nodes], plan.documents_format.name, own):
            above = make_room(plan, overwrite=overwrite, run=own.run, again=own.follows_interrupted)
        placement.announce_below(store, path)
        try:
            yield above
        except BaseException as error:
            if isinstance(error, NodeExists) or not _exists(plan, plan.path):  # then others have made the group
                with suppress(OSError):  # what failed is said, not what tidying up met
                    _take_back(plan)
            raise


@contextmanager
def reserved_additions(plan: DatasetPlan, publication: Publication) -> Iterator[None]:
    """Lease what a write adds to an existing group: the paths of new nodes, and an append of all arrays."""
    store = plan.store
    with ExitStack() as held:
        for path in plan.nodes:
            if not plan.nodes.keys() & set(parents_of(path)):
                own = held.enter_context(leased(store, path, f"add {path!r} to a dataset in {store.url}"))
                check_no_job(store, path, own_run=own.run, waits=True)
                if own.follows_interrupted:
                    _clear(plan, path)
        # of Zarr v2, attributes alone are of a writer that died
        entries = {path: _entries(plan, path) for path in plan.nodes}
        if there := present(fetch(store, (key for its in entries.values() for key in its))):
            path = next(path for path, its in entries.items() if not there.keys().isdisjoint(its))
            raise NodeExists(url=store.url, path=path, found="node", hint="it was made since: write again")
        if plan.growth:
            job = f"append to {plan.path!r} in {store.url}"
            own = held.enter_context(leased(store, plan.path, job, scope="append"))
            # a client that replaces such an array may have died since the plan was made: its commit is rolled forward
            check_no_job(store, plan.path, *(each.path for each in plan.growth), own_run=own.run, waits=True)
            publication.check_unchanged(plan.growth, plan.pending)
        try:
            yield
        except BaseException:  # what was written would be values of whatever is created there next
            with suppress(OSError):
                _clear(plan, "")
            raise


def end_dead_append(store: Store, path: str, past_end: Iterable[tuple[str, ChunkCoords, str]]) -> bool:
    """End an append to the group at `path` whose client has died, and return whether it has ended.

    Where it was being published, it is rolled forward, as far as its record says how. Otherwise what it has written
    past the end of arrays is deleted.

    Parameters
    ----------
    past_end
        Path of the array, chunk and store key of what may be stored past an end.

    Raises
    ------
    JobError, DatasetError
        Another client appends there, or has changed an array since.
    """
    with leased(store, path, f"repair an append to {path!r} in {store.url}", scope="append"):
        group = open_stored(store, path, consolidated=False, read_only=False)
        append = UnfinishedAppend.of(group.metadata.attributes)
        if append.dim and isinstance(group, StoredGroup):
            if append.after.keys() != append.shapes.keys():
                return False
            growth = [
                Growth(array.path, array.metadata, before, append.after[name])
                for name, before in append.shapes.items()
                if isinstance(array := group[name], StoredArray)
            ]
            Publication(store, group.documents, path, None).append(append.dim, growth, {path: append})
        for array_path, chunks in groupby(past_end, lambda each: each[0]):
            array = open_stored(store, array_path, consolidated=False)
            shape = array.metadata.chunk_grid.grid_shape if isinstance(array, StoredArray) else ()
            for _, coords, key in chunks:
                if any(i >= n for i, n in zip(coords, shape, strict=False)):
                    store.delete(key)
    return True


def make_room(plan: DatasetPlan, *, overwrite: bool, run: str = "", again: bool = False) -> dict[str, bytes]:
    """Delete what is at the path of the group, and chunks that an interrupted write left where arrays will be.

    Return the documents of groups above it that are missing.

    Raises
    ------
    NodeExists
        There is a node where the group or one of its arrays will be.
    """
    store, documents_format = plan.store, plan.documents_format
    options: Any = {"overwrite": overwrite, "run": run, "below": bool(run), "again": again}
    above = placement.make_room(store, plan.path, documents_format, **options)
    prefixes = {planned.array.path: planned.array.prefix for planned in plan.variables}
    for group in plan.groups:
        for prefix in documents_format.list_prefixes(group):
            for listed in store.list_dir(prefix):
                child = join_path(group, documents_format.child_name(group, prefix, listed) or "")
                if child not in prefixes:
                    continue
                if present(fetch(store, node_keys(documents_format, child))):
                    hint = "it is in a folder without a document: give another path, or mode='w' to replace both"
                    raise NodeExists(url=store.url, path=child, found="node", hint=hint)
                store.delete_prefix(prefixes[child])
    return above


def _clear(plan: DatasetPlan, path: str) -> None:
    """Delete chunks of new arrays at or below `path` that no document shows."""
    for array in (planned.array for planned in plan.variables):
        if array.path in plan.nodes and is_within(array.path, path) and not _exists(plan, array.path):
            placement.delete_stored_chunks(array)


def _entries(plan: DatasetPlan, path: str) -> tuple[str, str]:
    """Return the keys of the documents that make an array or a group of what is at `path`."""
    return plan.documents_format.array_keys(path)[0], plan.documents_format.group_keys(path)[0]


def _exists(plan: DatasetPlan, path: str) -> bool:
    return bool(present(fetch(plan.store, _entries(plan, path))))


def _take_back(plan: DatasetPlan) -> None:
    """Delete what this write has written to a group that it has not made visible."""
    store, documents_format = plan.store, plan.documents_format
    for path, its in plan.nodes.items():
        if path != plan.path:
            unpublish(store, documents_format, path, its)
    for planned in plan.variables:
        if not present(fetch(store, node_keys(documents_format, planned.array.path))):
            placement.delete_stored_chunks(planned.array)
