"""`sync`: bring the target of a `convert` or a `rechunk` up to date with its source.

Not here: what has changed (`chunkmill.syncs.changes`), the tasks (`chunkmill.syncs.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import see_sources
from chunkmill.conversion.convert import plan_convert, plan_rechunk
from chunkmill.conversion.lineage import KeyVersions, Lineage, TracedArray
from chunkmill.conversion.options import argument, with_options_of
from chunkmill.conversion.plan import JobCounts, Plan, PlannedStage, Report
from chunkmill.conversion.region_option import whole
from chunkmill.errors import JobError, NodeNotFound
from chunkmill.hints import Hint
from chunkmill.journal.names import fingerprint
from chunkmill.nodes.api import open_array, open_group, open_source, open_target
from chunkmill.nodes.keys import join_path
from chunkmill.nodes.opening import open_stored, walk
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.runtime.job import Job, JobResult
from chunkmill.runtime.job_handle import RunningJob
from chunkmill.runtime.stage import count_tasks
from chunkmill.runtime.worker_memory import current_worker
from chunkmill.stores.base import Store
from chunkmill.syncs.changes import all_keys, changed_keys, check_grown, check_unchanged_target, with_shapes
from chunkmill.syncs.tasks import SyncedArray, SyncWriter

__all__ = ["SyncPlan", "plan_sync", "sync"]

_PLANNERS: dict[str, Callable[..., Plan]] = {"plan_convert": plan_convert, "plan_rechunk": plan_rechunk}
_BLOCKS = 3  # a store key of source and target, and its encoded bytes


@dataclass(frozen=True, repr=False)
class SyncPlan(Plan):
    """Plan of a sync: the store keys that `run` will write, and why.

    Attributes
    ----------
    writer
        The callbacks of its job.
    n_changed
        Store keys of the source that were changed, came or went; ``None``: values are compared.
    """

    writer: SyncWriter = field(kw_only=True, repr=False)
    n_changed: int | None = field(kw_only=True)

    def run(self, resume: bool = False, progress: bool | str | None = None) -> Report:
        """Run the job on the current dask scheduler or Client; in threads where none is set.

        Parameters
        ----------
        resume : bool
            Resume an interrupted run of this very plan. A plan that is made again finds what is left to do, so that
            by default an interrupted sync is discarded.
        progress : bool, str or None
            As in `Plan.run`.

        Returns
        -------
        Report
            Measured counts, bytes and seconds.

        Raises
        ------
        JobError
            Another job writes to the target, or the source was deleted or replaced since the plan was made.
        """
        return super().run(resume=resume, progress=progress)

    def start(self, resume: bool = False, progress: bool | str | None = False) -> RunningJob[Report]:
        """Run the job in a thread of this process (see `Plan.start`)."""
        return super().start(resume=resume, progress=progress)

    def _traced(self) -> Callable[[JobResult], Report]:
        return self._report_synced

    def _report_synced(self, result: JobResult) -> Report:
        self.writer.trace()
        return self.report(result)


def plan_sync(
    source: Any,
    target: Any,
    *,
    compare: Literal["versions", "values"] = "versions",
    lineage: bool | str = True,
    overwrite: bool = False,
    max_mem: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> SyncPlan:
    """Plan to bring a target that `convert` or `rechunk` has made up to date; nothing is written before the plan runs.

    Only store keys of the target are written whose source has changed: values that were written again, came or went.
    Where the source has grown, the target grows. Options are those of the call that made the target, which are kept
    with its lineage. Attributes stay as they are, and so do nodes that the source has not had then.

    Parameters
    ----------
    source, target
        As in `plan_convert`: those of the call that made the target.
    compare
        ``"versions"``: by the versions in the lineage (ETags of objects; inode, times and size of files); both stores
        are listed, and nothing else is read. ``"values"``: every element is read and compared, as `verify` does, and
        what differs is written; without lineage, nodes of one path below source and target belong together.
    lineage
        Where the lineage is, as in `plan_convert`; it is brought up to date, too. ``False``: there is none.
    overwrite
        Write also over store keys of the target that others have changed since it was made, or was synced.
    max_mem
        Largest memory of the tasks of one worker, as in `plan_convert`.
    storage_options, target_storage_options
        For the filesystems, as in fsspec; the target's default to the source's.

    Returns
    -------
    SyncPlan
        Prints how much has changed, and what is written; ``plan.run()`` writes it.

    Raises
    ------
    JobError
        There is no lineage; the source is another one, has become shorter or has another layout; or others have changed
        the target, with the names of store keys.
    StoreError
        Listings of the source's store tell no versions, or the lineage is damaged.

    Examples
    --------
    >>> import chunkmill as cm, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> a = cm.create_array(f"{folder}/a.zarr", shape=(8,), dtype="i4", chunks=(2,))
    >>> a[...] = 1
    >>> report = cm.convert(f"{folder}/a.zarr", f"{folder}/a.n5", format="n5", lineage=True)
    >>> a[5] = 7
    >>> plan = cm.plan_sync(f"{folder}/a.zarr", f"{folder}/a.n5")
    >>> plan.n_changed, plan.run().n_keys, cm.verify(f"{folder}/a.zarr", f"{folder}/a.n5").equal
    (1, 1, True)
    """
    if compare not in {"versions", "values"}:
        raise ValueError(f"compare={compare!r}: expected 'versions' or 'values'")
    node = open_source(source, storage_options)
    options = storage_options if target_storage_options is None else target_storage_options
    store, path, _ = open_target(target, options)
    where = f"{store.url}/{path}" if path else store.url
    job = f"sync to {where}"
    place = Lineage.of(lineage, store, path, options)
    known = None if place is None else place.read()
    if known is None and compare == "versions":
        at = "" if place is None else f" in {place.store.url}"
        hint = Hint("{} compares every element; convert and rechunk keep lineage with", ("compare", "values"))
        hint = hint.also("{}", ("lineage", True))
        raise JobError(job=job, reason=f"there is no lineage of the target{at}", hint=hint)
    made: Mapping[str, Any] = {} if known is None else known[0]
    traced = {} if known is None else {each.path: each for each in known[1]}
    pairs = list(
        _same_paths(job, node, store, path)
        if known is None
        else _described_again(job, made, node, (store, path), (storage_options, options))
    )
    arrays, before, old = [], list[KeyVersions](), list[TracedArray]()
    n_changed, n_source_keys = 0, 0
    seen = see_sources([whole(one) for one, _ in pairs])
    versions = place.seen([one for one, _ in pairs]) if known is not None and place is not None else None
    for which, (one, at) in enumerate(pairs):
        stored = _stored_target(job, store, at)
        if versions is not None and at not in traced:
            raise JobError(job=job, reason=f"the lineage has no array {at!r}, which the source has")
        if versions is not None and (of := traced[at].of) != (got := f"{one.url}/{one.path}"):
            raise JobError(job=job, reason=f"{at!r} was made of {of}, and the source is {got}")
        check_grown(job, one, stored, traced.get(at))
        grid = stored.metadata.chunk_grid.resized(one.shape)
        new = replace(stored, metadata=replace(stored.metadata, chunk_grid=grid))
        numbers = np.zeros(0, np.int64)
        if versions is not None:
            was = with_shapes(traced[at], one, new)
            before.append(versions[which])
            old.append(was)
            numbers, n = changed_keys(was, versions[which], one, new, stored)
            n_changed += n
        if compare == "values":
            numbers = all_keys(one, new)
        elif not overwrite:
            check_unchanged_target(job, old[-1], new, numbers)
        n_source_keys += one.write_layout.grid.n_chunks
        arrays.append(SyncedArray(one, new, stored, numbers, seen[which], compare == "values"))
    writer = SyncWriter(job, arrays, place if known is not None else None, made, before, old)
    changed = None if compare == "values" else n_changed
    reason = f"{n_changed:,} of {n_source_keys:,} store keys of the source were changed, came or went"
    if compare == "values":
        reason = "values are compared, and written where they differ"
    return _as_plan(node, writer, (store, path), max_mem, n_changed=changed, reason=reason)


def _described_again(
    job: str,
    made: Mapping[str, Any],
    node: StoredNode,
    target: tuple[Store, str],
    storage_options: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
) -> Iterator[tuple[StoredArray, str]]:
    """Yield each source array, and the path of its target, by the call that made it."""
    call = made.get("call", {})
    if call.get("function") not in _PLANNERS or "options" not in call:
        missing = f": a lineage cannot hold {call['missing']}" if "missing" in call else ""
        hint = Hint("{} compares every element", ("compare", "values"))
        raise JobError(job=job, reason=f"the call that made the target is not stored{missing}", hint=hint)
    store, path = target
    place: Any = target
    if made.get("into"):
        place = open_array(store, path, mode="r+")
    if (group := made.get("group")) is not None:
        place = open_group(store, group, mode="r+")
    options = {name: argument(value) for name, value in call["options"].items()}
    options |= {"overwrite": False, "lineage": False}
    stores = dict(zip(("storage_options", "target_storage_options"), storage_options, strict=True))
    plan = _PLANNERS[call["function"]]((node.store, node.path), place, **options, **stores)
    yield from zip(plan.job.sources, (array.path for array in plan.job.targets), strict=True)


def _same_paths(job: str, node: StoredNode, store: Store, path: str) -> Iterator[tuple[StoredArray, str]]:
    """Yield the array of the source at the path of each array of the target, and that path."""
    top = open_stored(store, path, consolidated=False, read_only=False)
    for stored in [top] if isinstance(top, StoredArray) else walk(top):
        if not isinstance(stored, StoredArray):
            continue
        below = stored.path[len(path) :].strip("/")
        one = node
        if below:
            try:
                one = open_stored(node.store, join_path(node.path, below), consolidated=False)
            except NodeNotFound as error:
                raise JobError(job=job, reason=f"the source has no array {below!r}, which the target has") from error
        if not isinstance(one, StoredArray):
            raise JobError(job=job, reason=f"the source has a group where the target has the array {stored.path!r}")
        yield one, stored.path


def _stored_target(job: str, store: Store, path: str) -> StoredArray:
    try:
        stored = open_stored(store, path, consolidated=False, read_only=False)
    except NodeNotFound as error:
        reason = f"the target has no array {path!r}, which the source has"
        raise JobError(job=job, reason=reason, hint="convert that array alone") from error
    if not isinstance(stored, StoredArray):
        raise JobError(job=job, reason=f"the target has a group at {path!r}")
    return stored


def _as_plan(
    node: StoredNode,
    writer: SyncWriter,
    target: tuple[Store, str],
    max_mem: int | str | None,
    *,
    n_changed: int | None,
    reason: str,
) -> SyncPlan:
    store, path = target
    worker, arrays = current_worker(max_mem), writer.arrays
    key_bytes = max((each.key_bytes for each in arrays if len(each.numbers)), default=0)
    at_once = min(worker.n_threads, worker.max_mem // (_BLOCKS * key_bytes)) if key_bytes else worker.n_threads
    if not at_once:
        reason = f"{worker.max_mem:,} bytes for a worker are too little: a store key takes {_BLOCKS * key_bytes:,}"
        raise JobError(job=writer.job, reason=reason, hint=Hint("give {}", ("max_mem", _BLOCKS * key_bytes)))
    # tasks are counted, and nothing is written to the lineage
    n_keys = sum(len(each.numbers) for each in arrays)
    n_bytes = sum(len(each.numbers) * each.key_bytes for each in arrays)
    n_read = n_bytes * (2 if n_changed is None else 1)
    n_requests = n_keys * (3 if n_changed is None else 2)
    stage = replace(writer, lineage=None).stages("")[0]
    planned = PlannedStage("sync", count_tasks(stage), n_read, n_bytes, n_requests)
    memory = at_once * _BLOCKS * key_bytes
    costs = JobCounts(planned.n_tasks, n_read, n_bytes, 0, n_requests, memory, n_keys=n_keys)
    job = Job(
        name=writer.job,
        store=store,
        path=path,
        fingerprint=fingerprint("sync", node.url, node.path, [(a.target.path, a.numbers.tobytes()) for a in arrays]),
        sources=[each.source for each in arrays],
        targets=[each.target for each in arrays],
        prepare=writer.prepare,
        stages=writer.stages,
        publish=writer.publish,
        check_result=writer.check_result,
        overwrite=None,
        tasks_at_once=at_once if at_once < worker.n_threads else None,
        memory_of_tasks=memory,
    )
    rows = [
        {"array": a.target.path or "/", "shape": _shown_shape(a), "store keys": f"{len(a.numbers):,}"} for a in arrays
    ]
    where = f"{store.url}/{path}" if path else store.url
    return SyncPlan(
        operation="sync",
        source=f"{node.url}/{node.path}" if node.path else node.url,
        target=where,
        strategy="values" if n_changed is None else "versions",
        reason=reason,
        costs=costs,
        stages=(planned,),
        job=job,
        arrays=rows,
        writer=writer,
        n_changed=n_changed,
    )


def _shown_shape(array: SyncedArray) -> str:
    return f"{array.stored.shape} → {array.target.shape}" if array.grows else str(array.target.shape)


@with_options_of(plan_sync)
def sync(source: Any, target: Any, *, progress: bool | str | None = None, **options: Any) -> Report:
    """Bring a target that `convert` or `rechunk` has made up to date: `plan_sync`, and run.

    Parameters
    ----------
    source, target, compare, lineage, overwrite, max_mem, storage_options, target_storage_options
        As in `plan_sync`.
    progress
        As in `Plan.run`.

    Returns
    -------
    Report
        Store keys written, bytes, seconds.

    Raises
    ------
    JobError, StoreError
        As in `plan_sync`; `JobError` also where another job writes to the target.

    Examples
    --------
    >>> import chunkmill as cm, numpy as np, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> a = cm.create_array(f"{folder}/daily.zarr", shape=(4, 6), dtype="f4", chunks=(1, 6))
    >>> a[...] = 1
    >>> report = cm.rechunk(f"{folder}/daily.zarr", f"{folder}/series.zarr", chunks=(-1, 2), lineage=True)
    >>> a.append(np.full((2, 6), 2))
    (6, 6)
    >>> report = cm.sync(f"{folder}/daily.zarr", f"{folder}/series.zarr")
    >>> cm.open_array(f"{folder}/series.zarr")[:, 0]
    array([1., 1., 1., 1., 2., 2.], dtype=float32)
    """
    return plan_sync(source, target, **options).run(progress=progress)
