"""List the jobs of a store that have not ended, from any process: the public function `jobs`.

Not here: what a job keeps of itself (`chunkmill.journal.journal`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from chunkmill.display.report import format_bytes, format_seconds, report_html, report_text
from chunkmill.errors import JobError
from chunkmill.journal.heartbeat import client_of, is_live
from chunkmill.journal.lease import discard_jobs
from chunkmill.journal.plans import PLAN, beats_of, watch_client
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
        Tasks of all stages that are recorded as done, which are not done again.
    n_tasks, stage, n_stage_done, n_stage_tasks
        Of a running job, as of its last heartbeat: the tasks of all stages; the stage at work, and its tasks.
    bytes_per_second, seconds, seconds_left
        Read and written by this run; since it began; estimated for all stages.
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
    n_tasks: int = 0
    stage: str = ""
    n_stage_done: int = 0
    n_stage_tasks: int = 0
    bytes_per_second: float = 0.0
    seconds: float | None = None
    seconds_left: float | None = None
    client: str = ""
    waits_for: str = ""
    silent_seconds: float | None = None
    _found: Any = field(default=None, repr=False, compare=False)  # the store, and what is known of the job there

    def __str__(self) -> str:
        title = f"{self.state}: {self.job or 'a job whose plan is damaged'}, begun {self.began or 'at an unknown time'}"
        return report_text(title, ((name, value) for name, value in self._columns().items() if value))

    def _columns(self) -> dict[str, str]:
        of_all = f" of {self.n_tasks:,} ({self.n_tasks_done / self.n_tasks:.0%})" if self.n_tasks else " done"
        return {
            "tasks": f"{self.n_tasks_done:,}{of_all}" if self.n_tasks_done or self.n_tasks else "",
            "stage": self.stage and f"{self.stage}, {self.n_stage_done:,} of its {self.n_stage_tasks:,} tasks",
            "rate": f"{format_bytes(self.bytes_per_second)}/s" if self.bytes_per_second else "",
            "elapsed": "" if self.seconds is None else format_seconds(self.seconds),
            "left": "" if self.seconds_left is None else f"about {format_seconds(self.seconds_left)}",
            "run by": self.client,
            "waits for": self.waits_for,
            "silent for": "" if self.silent_seconds is None else format_seconds(self.silent_seconds),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name[0] != "_"}

    def discard(self) -> None:
        """Drop a job whose client has died: its lease, records, intermediate files and staged values (P8).

        Values that the job wrote under keys of a node that is not visible
        stay until another one is written there, and `chunkmill.check` names them. Where it is not known whether the
        client is alive, this waits for its heartbeat, some 20 s at most.

        Raises
        ------
        JobError
            Its client is alive.
        """
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
        rows = [{"state": job.state, "job": job.job, **job._columns()} for job in self]  # noqa: SLF001
        table = [tuple(row) for row in rows[:1]] + [tuple(row.values()) for row in rows]
        return report_html("unfinished jobs", [], [table]) if self else "no unfinished jobs"


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
    beat = _last_heartbeat(store, job) if job.is_running else {}
    return StoredJob(
        job.job,
        job.path,
        "running" if job.is_running else "dead" if job.is_lease else "interrupted",
        job.began,
        job.run,
        len(Records(store, job.key.removesuffix(PLAN), job.run).names()),
        bytes_per_second=beat.get("n_bytes", 0) / max(beat.get("seconds", 0.0), 1e-3),
        client=client_of(beat) if beat else "",
        **{name: beat[name] for name in _OF_HEARTBEAT if name in beat},
        silent_seconds=job.silence,
        _found=(store, job),
    )


_OF_HEARTBEAT = ("n_tasks", "stage", "n_stage_done", "n_stage_tasks", "seconds", "seconds_left", "waits_for")


def _last_heartbeat(store: Store, job: UnfinishedJob) -> dict[str, Any]:
    found = [json.loads(beat) for beat in beats_of(store, job.key) if is_live(beat)]
    last: dict[str, Any] = max(found, key=lambda beat: str(beat.get("seen", "")), default={})
    # of a stranger's store it may say anything (P13)
    return {name: said for name, said in last.items() if isinstance(said, str if name in _TEXTS else (int, float))}


_TEXTS = frozenset({"seen", "host", "stage", "waits_for"})
