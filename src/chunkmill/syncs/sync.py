"""`sync`: bring the target of a conversion, a rechunk, a pyramid or a transform up to date with its source.

Not here: what has changed (`chunkmill.syncs.changes`), the job (`chunkmill.syncs.plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from chunkmill.conversion.lineage import Lineage
from chunkmill.conversion.options import with_options_of
from chunkmill.conversion.plan import Report
from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.nodes.api import open_source, open_target
from chunkmill.runtime.worker_memory import current_worker
from chunkmill.syncs.blocks import plan_again
from chunkmill.syncs.derived import described_again, same_paths
from chunkmill.syncs.plan import SyncPlan, SyncRequest

__all__ = ["SyncPlan", "plan_sync", "sync"]


def plan_sync(
    source: Any,
    target: Any,
    *,
    compare: Literal["versions", "values"] = "versions",
    function: Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    lineage: bool | str = True,
    overwrite: bool = False,
    max_mem: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> SyncPlan:
    """Plan to bring a target that a job has made up to date; nothing is written before the plan runs.

    Only store keys of the target are written whose source has changed: values that were written again, came or went; of
    a pyramid in all levels, of a transform the blocks that read them. Where the source has grown, the target grows.
    Options are those of the call that made the target, which are kept with its lineage. Attributes stay as they are,
    and so do nodes that the source has not had then.

    Parameters
    ----------
    source, target
        Those of the call that made the target (`plan_convert`, `plan_rechunk`, `plan_pyramid`, `plan_transform`); the
        group of the image, where levels were made next to their source, and the first of several targets.
    compare
        ``"versions"``: by the versions in the lineage (ETags of objects; inode, times and size of files); both stores
        are listed, and nothing else is read. ``"values"``: every element is read and compared, as `verify` does, and
        what differs is written; without lineage, nodes of one path below source and target belong together. Not for
        transforms.
    function
        Of a transform: the function that has made the target, which lineage does not hold. Another one is an error.
    options
        Of a transform: what else the lineage does not hold, by name, such as `source_region`.
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
        There is no lineage; source or function are others; the source has become shorter, or has another layout; or
        others have changed the target, with the names of store keys.
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
    opening = storage_options if target_storage_options is None else target_storage_options
    store, path, _ = open_target(target, opening)
    job = f"sync to {store.url}/{path}" if path else f"sync to {store.url}"
    place = Lineage.of(lineage, store, path, opening)
    known = None if place is None else place.read()
    if known is None and compare == "versions":
        at = "" if place is None else f" in {place.store.url}"
        hint = Hint("{} compares every element; jobs keep lineage with", ("compare", "values"))
        hint = hint.also("{}", ("lineage", True))
        raise JobError(job=job, reason=f"there is no lineage of the target{at}", hint=hint)
    made, traced = ({}, None) if known is None else known
    request = SyncRequest(job, store, path, place, made, traced, compares=compare == "values", overwrite=overwrite)
    if made.get("call", {}).get("function") == "plan_transform":
        if compare == "values":
            reason = "values of a transform are known when all of it is made again"
            raise JobError(job=job, reason=reason, hint=Hint("transform with {}", ("overwrite", True)))
        known_options = {"storage_options": storage_options, "target_storage_options": opening, "max_mem": max_mem}
        return request.plan_blocks(
            plan_again(job, made, source, (store, path), function=function, options=known_options | dict(options or {}))
        )
    if function is not None or options:
        raise ValueError(f"function= and options= are those of a transform, and {store.url} was made by none")
    node = open_source(source, storage_options)
    if traced is None:
        derived = [*same_paths(job, node, store, path)]
    else:
        known_paths = {each.path for each in traced}
        derived = [
            *described_again(
                job, made, node, (store, path), storage_options=(storage_options, opening), known=known_paths
            )
        ]
    return request.plan_arrays(derived, node, current_worker(max_mem))


@with_options_of(plan_sync)
def sync(source: Any, target: Any, *, progress: bool | str | None = None, **options: Any) -> Report:
    """Bring a target that a job has made up to date: `plan_sync`, and run.

    Parameters
    ----------
    source, target, compare, function, options, lineage, overwrite, max_mem, storage_options, target_storage_options
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
