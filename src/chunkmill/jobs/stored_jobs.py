"""List the jobs of a store that have not ended, from any process: the public function `jobs`.

Not here: what a job keeps of itself (`chunkmill.journal.journal`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from chunkmill.display.report import printable, report_html
from chunkmill.errors import JobError
from chunkmill.journal.heartbeat import heartbeats_below, is_live
from chunkmill.journal.lease import discard_jobs
from chunkmill.journal.plans import PLAN, RUNNING, watch_client
from chunkmill.journal.records import Records
from chunkmill.journal.unfinished import UnfinishedJob, unfinished_jobs, with_state
from chunkmill.nodes.delete import withdraw_below
from chunkmill.stores.base import Store
from chunkmill.stores.open import Url, open_store
from chunkmill.stores.places import place_of


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job that began to write to a store and has not ended.

    Attributes
    ----------
    job
        Description: ``"convert to file:///data/x.zarr"``.
    path
        Path of the node that it writes.
    state
        ``"running"``: its client is alive, or not known to be dead. ``"interrupted"``: it has died, and the same call
        resumes the job. ``"dead"``: it has died, and had nothing but the path leased: others may write there.
    began
        When it began, in UTC.
    run
        Name of its run.
    n_tasks_done
        Tasks that are recorded as done, which are not done again.
    stage, n_stage_done, n_stage_tasks
        Of a running job, as of its last heartbeat: the stage at work, and its tasks.
    bytes_per_second, seconds_left
        Read and written by this run; estimated.
    client
        Host and process that run it.
    waits_for
        What it waits for where no worker takes tasks, or the scheduler does not answer.
    silent_seconds
        Seconds since its client's last heartbeat, where it is not known whether that client is alive.
    """

    job: str
    path: str
    state: Literal["running", "interrupted", "dead"]
    began: str
    run: str
    n_tasks_done: int
    stage: str = ""
    n_stage_done: int = 0
    n_stage_tasks: int = 0
    bytes_per_second: float = 0.0
    seconds_left: float | None = None
    client: str = ""
    waits_for: str = ""
    silent_seconds: float | None = None
    _found: tuple[Store, UnfinishedJob] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        done = f", {self.n_tasks_done:,} tasks done" if self.n_tasks_done else ""
        if self.stage:
            done += f", {self.stage}: {self.n_stage_done:,} of {self.n_stage_tasks:,} tasks"
        if self.bytes_per_second:
            done += f", {self.bytes_per_second / 2**20:,.1f} MiB/s"
        if self.seconds_left is not None:
            done += f", about {self.seconds_left:,.0f} s left"
        if self.client:
            done += f", run by {self.client}"
        if self.waits_for:
            done += f"; waits: {self.waits_for}"
        if self.silent_seconds is not None:
            done += f", silent for {self.silent_seconds:,.0f} s"
        name = self.job or "a job whose plan is damaged"
        return printable(f"{self.state}: {name}, begun {self.began or 'at an unknown time'}{done}")

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name[0] != "_"}

    def discard(self) -> None:
        """Drop a job whose client has died: its lease, its records, its intermediate files and staged values.

        Values that the job wrote under keys of a node that is not visible
        stay until another one is written there, and `chunkmill.check` names them. Where it is not known whether the
        client is alive, this waits for its heartbeat, some 20 s at most.

        Raises
        ------
        JobError
            Its client is alive.
        """
        if self._found is None:
            raise JobError(job=self.job, reason="this is a copy without its store", hint="list the jobs again")
        store, job = self._found
        watch_client(store, job.key, job)
        job = with_state(store, job)
        if job.is_running:
            raise JobError(job=self.job, reason="its client is alive", hint="wait until it is done, or stop it")
        if not job.is_damaged:
            withdraw_below(store, job.path)
        discard_jobs(store, [job])


class StoredJobs(list[StoredJob]):
    """The unfinished jobs of a store; notebooks show them as a table."""

    def _repr_html_(self) -> str:
        rows = [("state", "job", "stage", "tasks", "MiB/s", "seconds left", "run by", "waits for")]
        for job in self:
            tasks = f"{job.n_stage_done:,} of {job.n_stage_tasks:,}" if job.stage else f"{job.n_tasks_done:,} done"
            left = "" if job.seconds_left is None else f"{job.seconds_left:,.0f}"
            speed = f"{job.bytes_per_second / 2**20:,.1f}" if job.bytes_per_second else ""
            rows.append((job.state, job.job, job.stage, tasks, speed, left, job.client, job.waits_for))
        return report_html("unfinished jobs", [], [rows]) if self else "no unfinished jobs"


def jobs(url: Url, *, storage_options: Mapping[str, Any] | None = None) -> StoredJobs:
    """Return the jobs that write to a store and have not ended: running, interrupted, dead.

    Parameters
    ----------
    url, storage_options
        As in `open`; of a url pipeline that names a node, the jobs at and below it.

    Returns
    -------
    StoredJobs
        A list of StoredJob.
        Of all clients, in the order in which they began; one listing, and a few requests for each job.

    Raises
    ------
    StoreError
        The store cannot be listed.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-jobs", shape=(4,), dtype="i4")
    >>> cm.jobs("memory://doc-jobs")
    []
    """
    place = place_of(url)
    store, at = open_store(place.url, storage_options), place.path
    below = (job for job in unfinished_jobs(store) if at in {"", job.path} or job.path.startswith(f"{at}/"))
    found = (_described(store, job) for job in below)
    return StoredJobs(sorted(found, key=lambda job: (job.began, job.path)))


def _described(store: Store, job: UnfinishedJob) -> StoredJob:
    state: Literal["running", "interrupted", "dead"] = "dead" if job.is_lease else "interrupted"
    n_done = len(Records(store, job.key.removesuffix(PLAN), job.run).names())
    beat = _last_heartbeat(store, job) if job.is_running else {}
    return StoredJob(
        job.job,
        job.path,
        "running" if job.is_running else state,
        job.began,
        job.run,
        n_done,
        stage=beat.get("stage", ""),
        n_stage_done=beat.get("n_tasks_done", 0),
        n_stage_tasks=beat.get("n_tasks", 0),
        bytes_per_second=beat.get("n_bytes", 0) / max(beat.get("seconds", 0.0), 1e-3),
        seconds_left=beat.get("seconds_left"),
        client=f"process {beat['pid']} on {beat['host']}" if "pid" in beat else "",
        waits_for=beat.get("waits_for", ""),
        silent_seconds=job.silence,
        _found=(store, job),
    )


def _last_heartbeat(store: Store, job: UnfinishedJob) -> dict[str, Any]:
    beats = map(store.get, heartbeats_below(store, job.key.removesuffix(PLAN) + RUNNING))
    found = [json.loads(beat) for beat in beats if beat is not None and is_live(beat)]
    return max(found, key=lambda beat: str(beat.get("seen", "")), default={})
