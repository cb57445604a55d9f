"""`resume`: take up an unfinished job from what its plan stores, without its arguments.

Not here: how a job is taken up by other workers (`chunkmill.conversion.convert_job`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chunkmill.conversion.convert import plan_convert, plan_rechunk
from chunkmill.conversion.options import argument
from chunkmill.conversion.plan import Plan, Report
from chunkmill.errors import JobError
from chunkmill.journal.unfinished import UnfinishedJob, unfinished_jobs
from chunkmill.nodes.api import Url, open_array, open_group
from chunkmill.stores.open import open_plain_store
from chunkmill.stores.places import place_of

__all__ = ["resume"]

_PLANNERS: dict[str, Callable[..., Plan]] = {"plan_convert": plan_convert, "plan_rechunk": plan_rechunk}


def resume(
    url: Url,
    path: str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    source_storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> Report:
    """Resume an unfinished `convert` or `rechunk` from what is stored with it, on the current dask scheduler.

    The arguments of the call are stored with the plan, without options of filesystems. What is done stays done on
    any cluster: the tasks are those that were planned when the job began.

    Parameters
    ----------
    url
        Of the store that the job writes, as in `open`.
    path
        Of the node that it writes, where there are several such jobs.
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
        There is no such job, or several, or one whose arguments a plan cannot hold: the same call resumes it.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-resume", shape=(4,), dtype="i4")
    >>> cm.resume("memory://doc-resume")
    Traceback (most recent call last):
        ...
    chunkmill.errors.JobError: resume in memory://doc-resume: there is no unfinished job
    """
    url, named, *_ = place_of(url, path or "")
    path = named if named or path is not None else None
    store = open_plain_store(url, storage_options)
    name = f"resume in {store.url}"
    found = [each for each in unfinished_jobs(store) if not each.is_lease and path in {None, each.path}]
    if len(found) != 1:
        reason = f"there are several: {sorted(each.path for each in found)}" if found else "there is no unfinished job"
        raise JobError(job=name, reason=reason, hint="give the path of one" if found else "")
    (job,) = found
    call = _call_of(job, name)
    target: Any = (url, job.path)
    if job.choices["into"]:
        target = open_array(url, job.path, mode="r+", storage_options=storage_options)
    if (group := job.choices.get("group")) is not None:
        target = open_group(url, group, mode="r+", storage_options=storage_options)
    options = {name: argument(value) for name, value in call["options"].items()}
    if (stored := job.choices.get("arguments", {}).get("format")) is not None:  # a url pipeline may have named it
        options["format"] = stored
    plan = _PLANNERS[call["function"]](
        tuple(job.choices["source"]),
        target,
        **options,
        storage_options=storage_options if source_storage_options is None else source_storage_options,
        target_storage_options=storage_options,
    )
    return plan.run(progress=progress)


def _call_of(job: UnfinishedJob, name: str) -> Mapping[str, Any]:
    call: Mapping[str, Any] = job.choices.get("call", {})
    if call.get("function") in _PLANNERS and "options" in call:
        return call
    if job.is_damaged:
        raise JobError(job=name, reason="the plan of the job is damaged", hint="the same call resumes it")
    missing = f": a plan cannot hold {call['missing']}" if "missing" in call else ""
    reason = f"the arguments of {job.job!r} are not stored{missing}"
    raise JobError(job=name, reason=reason, hint="the same call resumes it")
