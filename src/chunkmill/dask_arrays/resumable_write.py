"""Write a whole array so that an interrupted write resumes with the blocks that are missing.

A record is stored for each block that was written, and only blocks without one are computed. Counts are fetched as they
are computed: no worker holds results that would be computed again, with everything they depend on, if it died.
Not here: the records (`chunkmill.journal.journal`), conversions (`chunkmill.jobs.job`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
from dask.array import core as da
from distributed import Client
from numpy.typing import NDArray

from chunkmill.array.local_locks import LockFactory
from chunkmill.array.selection import full_region
from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.regroup import write_chunks
from chunkmill.dask_arrays.write import WriteReport, report, write_blocks
from chunkmill.dask_arrays.write_task import WriteCounts, block_number
from chunkmill.errors import JobError, NodeExists
from chunkmill.journal.journal import Journal
from chunkmill.journal.names import fingerprint
from chunkmill.runtime.cancellation import (
    abandon_on_error,
    hint_of_resuming,
    remove_partial_files,
    remove_partial_files_near,
)
from chunkmill.runtime.cluster_tasks import RunningTasks, scheduler_needed, sync_other_machines
from chunkmill.runtime.scheduler import Scheduler, optimised

__all__ = ["WriteTarget", "resumable_write"]

_VERSION = 1  # of the block numbers in the records


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """Array that a resumable write creates or fills.

    Attributes
    ----------
    prepare
        Clears the path and returns the documents to publish; not called by a write that resumes. Called with the name
        of the run where that holds the path, and whether it follows one that was interrupted.
    publish
        Makes the array visible; called as ``publish(documents, again=resumes)`` when all blocks are written. A write
        that resumes may have published these documents before.
    old_prefix
        Prefix of the keys of the array that this one replaces, if it is staged.
    replaced
        What was seen of that array when the write began, for the plan.
    """

    array: StoredArray
    prepare: Callable[[str, bool], Mapping[str, bytes]]
    publish: Callable[..., None]
    old_prefix: str | None = None
    replaced: Mapping[str, str] = field(default_factory=dict)


Staged = Callable[[str, Mapping[str, str] | None], WriteTarget | None]


def resumable_write(
    x: da.Array,
    target: WriteTarget,
    *,
    staged: Staged | None = None,
    lock: LockFactory,
    write_empty: bool,
    check_free: Callable[[str], object] | None = None,
    check_own: Callable[[], object] | None = None,
) -> WriteReport:
    """Write `x` to the target on the current scheduler; an unfinished write of the same `x` resumes.

    Parameters
    ----------
    staged
        Returns, for the name of a run, the staged target, while the array that is replaced stays until all is written
        (see `chunkmill.jobs.job.Job`).
    check_free
        Called with the name of the run when the write has begun: raises `NodeExists` where a node was made since
        `prepare`, whose chunks it would write over.
    check_own
        Called when an interrupted write resumes: raises `NodeExists` where there is another node than the one that it
        publishes.

    Raises
    ------
    JobError
        The target holds an unfinished job that writes something else.
    """
    array = target.array
    digest = fingerprint("to_store", _VERSION, x.name, x.chunks, x.dtype, array.format, array.metadata, write_empty)
    journal = Journal(array.store, array.path, _job(array), digest, is_block_write=True)
    documents = _resumed(journal, x)
    resumes = documents is not None
    if staged is not None and journal.old_prefix is not None:
        target = staged(journal.run, journal.replaced) or target
    if journal.is_over or (documents is not None and journal.is_in_place):
        return _already_done(x, target, journal, documents or {})
    with hint_of_resuming(journal.job), journal.running():  # before it begins: without a heartbeat it looks interrupted
        if documents is None:
            target, documents = _prepare(target, staged, journal)
        written = target.array
        if not resumes:
            journal.begin(documents)
            _check_begun(journal, check_free)
        elif check_own is not None and journal.old_prefix is None:
            _check_resumed(journal, check_own)
        done = set[int]()
        if resumes or journal.keeps_records:
            done = journal.records.forget_false(0, [number for _, number, _ in journal.records.names()])
        region = full_region(array.shape)
        blocks, n_regrouped = write_blocks(x, written, region, lock=lock, write_empty=write_empty, journal=journal)
        keys = [(blocks.name, *index, 0) for index, number in _numbered(x, array) if number not in done]
        with abandon_on_error([blocks]), remove_partial_files([written], after_death=resumes):
            counts = _compute(blocks, keys, journal)
        journal.check(now=True)
        array.store.sync()
        sync_other_machines([array.store], Scheduler().client, journal.job)
        target.publish(documents, again=resumes)
        array.store.sync()
    if resumes:
        remove_partial_files_near(array.store, documents)
    journal.finish()
    n_resumed = blocks.npartitions - len(keys)
    return replace(report(array, counts, n_regrouped), n_resumed=n_resumed)


def _prepare(target: WriteTarget, staged: Staged | None, journal: Journal) -> tuple[WriteTarget, dict[str, bytes]]:
    """Make room; return the target, or the staged one, and the documents to publish."""
    new = None if staged is None else staged(journal.name_run(), None)
    if new is not None:
        target, journal.old_prefix, journal.replaced = new, new.old_prefix, new.replaced
    if staged is None or new is not None:
        return target, dict(target.prepare("", False))
    with journal.reserving() as run:
        return target, dict(target.prepare(run, bool(journal.interrupted)))


def _already_done(x: da.Array, target: WriteTarget, journal: Journal, documents: Mapping[str, bytes]) -> WriteReport:
    """Finish a write that an earlier run had brought into place."""
    if not journal.is_over:
        with journal.running():
            target.publish(dict(documents), again=True)
        journal.finish()
    return replace(report(target.array, WriteCounts(), 0), n_resumed=sum(1 for _ in _numbered(x, target.array)))


def _check_begun(journal: Journal, check_free: Callable[[str], object] | None) -> None:
    """Give up a write that has begun where another writer has taken its place since room was made."""
    try:
        if check_free is not None:
            check_free(journal.run)
    except BaseException:
        journal.discard()
        raise


def _check_resumed(journal: Journal, check_own: Callable[[], object]) -> None:
    """Raise where others have made a node; what is on record stays, for when that is gone."""
    try:
        check_own()
    except NodeExists:
        if not journal.records.names():
            journal.discard()
        raise


def _job(array: StoredArray) -> str:
    return f"write to {array.path!r} in {array.url}"


def _resumed(journal: Journal, x: da.Array) -> dict[str, bytes] | None:
    try:
        return journal.resume()
    except JobError as error:
        hint = (
            f"{error.hint}. A source is identified by its name and chunks, here {x.name!r}: it has the same name again "
            "when it is built in the same way from files or equal values, or with a name= or a seed"
        )
        raise JobError(job=error.job, reason=error.reason, hint=hint) from None


def _numbered(x: da.Array, array: StoredArray) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the index and the number of every block that will be written, none for an array without elements."""
    chunks = write_chunks(array.write_layout.grid, full_region(array.shape), x.chunks, array.dtype.itemsize)
    starts = [list(accumulate(axis[:-1], initial=0)) for axis in chunks]
    if not array.size:
        return
    for index in np.ndindex(*map(len, chunks)):
        region = tuple(slice(s[i], s[i] + 1) for s, i in zip(starts, index, strict=True))
        yield index, block_number(array, region)


def _compute(blocks: da.Array, keys: list[Any], journal: Journal) -> WriteCounts:
    """Compute some blocks on the current scheduler, and return the sum of their counts."""
    if not keys:
        return WriteCounts()
    scheduler = Scheduler(of_job=True)
    client = scheduler.client
    graph = optimised(blocks.dask, keys, client)
    counts = scheduler.compute(graph, keys) if client is None else _gathered(client, graph, keys, journal)
    return WriteCounts.total(map(WriteCounts.of, counts))


def _gathered(client: Client, graph: dict[Any, Any], keys: list[Any], journal: Journal) -> Iterator[NDArray[np.int64]]:
    """Yield results as they are computed, and release each."""
    with scheduler_needed(client, journal.job):
        running = RunningTasks(client, journal.job, client.get(graph, keys, sync=False))
        # before they are cancelled, so that those at work learn of it
        with running.cancelled_on_error(None if journal.heartbeat is None else journal.heartbeat.end):
            while running:
                yield from running.gather_ended()
