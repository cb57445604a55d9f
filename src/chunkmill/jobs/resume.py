"""`resume`: take up an unfinished job from what its plan stores, without its arguments (P7).

A plan names the public planner that made it, which is found on the public face: rooms above this one have planners.
Not here: how a job is taken up by other workers (`chunkmill.conversion.convert_job`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from chunkmill.errors import JobError
from chunkmill.jobs.call import argument
from chunkmill.jobs.plan import Plan, Report
from chunkmill.journal.unfinished import UnfinishedJob, unfinished_jobs
from chunkmill.nodes.api import open_array, open_group
from chunkmill.nodes.opening import open_target_store
from chunkmill.stores.open import Url, open_store
from chunkmill.stores.places import place_of


def resume(
    url: Url,
    path: str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    source_storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> Report:
    """Resume an unfinished `convert`, `rechunk` or `pyramid` from what is stored with it, on the current scheduler.

    The arguments of the call are stored with the plan, without options of filesystems. What is done stays done on
    any cluster: the tasks are those that were planned when the job began. A write of a Dask array, such as `to_store`,
    and an append of `write_dataset` have values that no store holds: the error says which call to repeat.

    Parameters
    ----------
    url
        Of the store that the job writes, as in `open`.
    path
        Path of the node that the job writes, where there are several jobs.
    storage_options
        For the filesystem of the target, as in fsspec.
    source_storage_options
        For that of the source; those of the target by default.
    progress
        As in `Plan.run`.

    Returns
    -------
    Report
        As of `convert` and `rechunk`.

    Raises
    ------
    JobError
        There is no such job, or several, or one whose arguments a plan cannot hold: says which call resumes it.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-resume", shape=(4,), dtype="i4")
    >>> cm.resume("memory://doc-resume")
    Traceback (most recent call last):
        ...
    chunkmill.errors.JobError: resume in memory://doc-resume: there is no unfinished job; a scan, ...
    """
    url, named, *_ = place_of(url, path or "")
    path = named if named or path is not None else None
    store = open_store(url, storage_options)
    name = f"resume in {store.url}"
    job = _only_one([each for each in unfinished_jobs(store) if path in {None, each.path}], name)
    call = _call_of(job, name)
    kind, _, group = (call["target"] or "").partition(":")
    target: Any = None if call["target"] is None else (open_target_store(url, storage_options), job.path)
    if kind == "array":
        target = open_array(url, job.path, mode="r+", storage_options=storage_options)
    if kind == "group":
        target = open_group(url, group, mode="r+", storage_options=storage_options)
    options = {name: argument(value) for name, value in call["options"].items()}
    if (stored := job.choices.get("arguments", {}).get("format")) is not None:  # a url pipeline may have named it
        options["format"] = stored
    planner: Callable[..., Plan] = getattr(import_module("chunkmill"), call["function"])
    plan = planner(
        options.pop("source"),
        target,
        **options,
        storage_options=storage_options if source_storage_options is None else source_storage_options,
    )
    return plan.run(progress=progress)


def _only_one(jobs: Sequence[UnfinishedJob], name: str) -> UnfinishedJob:
    """Return the job to resume; `JobError` where there is none, or more than one."""
    found = [each for each in jobs if not each.is_lease]
    if len(found) == 1:
        return found[0]
    reason, hint = "there is no unfinished job", "a scan, of which each file has a record, resumes by the same call"
    if found:
        reason, hint = f"there are several: {sorted(each.path for each in found)}", "give the path of one"
    elif dead := [each for each in jobs if not each.is_running]:
        reason = f"{dead[0]} was interrupted, and nothing of it is on record"
        hint = "repeat the same call, such as `write_dataset(..., append_dim=...)`, which writes all of it again; or "
        hint += "remove what it left: `chunkmill check --repair`"
    raise JobError(job=name, reason=reason, hint=hint)


def _call_of(job: UnfinishedJob, name: str) -> Mapping[str, Any]:
    """Return the call that began a job, as its plan stores it; else `JobError` says which call to repeat."""
    call: Mapping[str, Any] = job.choices.get("call", {})
    function, missing = str(call.get("function", "")), call.get("missing")
    if function in _planners() and missing is None:
        return call
    hint = "the same call resumes it"
    if function in _planners():
        reason = f"the arguments of {job.job!r} are not stored: a plan cannot hold {missing}"
        hint = f"repeat the call of `{function.removeprefix('plan_')}`, which resumes it"
    elif job.is_damaged:
        reason = "the plan of the job is damaged"
    else:
        reason = f"{job.job!r} writes values that are computed, of which no store holds the graph"
        hint = "repeat the call that began it with the same values: `to_store(..., resume=True)` writes what is missing"
    raise JobError(job=name, reason=reason, hint=hint)


def _planners() -> list[str]:
    return [name for name in import_module("chunkmill").__all__ if name.startswith("plan_")]
