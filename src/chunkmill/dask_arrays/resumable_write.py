"""Write a whole array so that an interrupted write resumes with the blocks that are missing.

A record is stored for each block that was written, and only blocks without one are computed. Counts are fetched as they
are computed: no worker holds results that would be computed again, with everything they depend on, if it died.
Not here: the records (`chunkmill.journal.journal`), conversions (`chunkmill.jobs.job`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
from chunkmill.nodes.target import Target
from chunkmill.runtime.cancellation import (
    abandon_on_error,
    hint_of_resuming,
    remove_partial_files,
    remove_partial_files_near,
)
from chunkmill.runtime.cluster_tasks import RunningTasks, scheduler_needed, sync_other_machines
from chunkmill.runtime.scheduler import Scheduler, optimised

__all__ = ["resumable_write"]

_VERSION = 1  # of the block numbers in the records


def resumable_write(x: da.Array, target: Target, *, lock: LockFactory, write_empty: bool) -> WriteReport:
    """Write `x` to the one array of the target on the current scheduler; an unfinished write of the same `x` resumes.

    Raises
    ------
    JobError
        The target holds an unfinished job that writes something else.
    """
    (array,) = target.arrays
    digest = fingerprint("to_store", _VERSION, x.name, x.chunks, x.dtype, array.format, array.metadata, write_empty)
    journal = Journal(array.store, array.path, _job(array), digest, is_block_write=True)
    resumes = _resumed(journal, x)
    if journal.is_over or (resumes and journal.is_in_place):
        return _already_done(x, target, journal)
    with hint_of_resuming(journal.job), journal.running():  # before it begins: without a heartbeat it looks interrupted
        target = target.resumed(journal) if resumes else target.prepared(journal)
        if resumes or not _begun(target, journal):
            _check_own(target, journal)
        (written,) = target.arrays
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
        documents = target.publish()
        array.store.sync()
    if resumes:
        remove_partial_files_near(array.store, documents)
    journal.finish()
    n_resumed = blocks.npartitions - len(keys)
    return replace(report(array, counts, n_regrouped), n_resumed=n_resumed)


def _begun(target: Target, journal: Journal) -> bool:
    journal.begin()
    return target.stays_free(journal)


def _check_own(target: Target, journal: Journal) -> None:
    """Raise where others have made a node; what is on record stays, for when that is gone."""
    try:
        target.check_own()
    except NodeExists:
        if not journal.records.names():
            journal.discard()
        raise


def _already_done(x: da.Array, target: Target, journal: Journal) -> WriteReport:
    """Finish a write that an earlier run had brought into place."""
    if not journal.is_over:
        with journal.running():
            target.resumed(journal).publish()
        journal.finish()
    (array,) = target.arrays
    return replace(report(array, WriteCounts(), 0), n_resumed=sum(1 for _ in _numbered(x, array)))


def _job(array: StoredArray) -> str:
    return f"write to {array.path!r} in {array.url}"


def _resumed(journal: Journal, x: da.Array) -> bool:
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
