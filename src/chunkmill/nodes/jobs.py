"""List the jobs of a store that have not ended, from any process: the public function `jobs`.

Not here: what a job keeps of itself (`chunkmill.journal.journal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from chunkmill.journal.names import PLAN
from chunkmill.journal.record_files import RecordFiles
from chunkmill.journal.unfinished import UnfinishedJob, unfinished_jobs
from chunkmill.nodes import deferred_imports
from chunkmill.nodes.api import Url
from chunkmill.nodes.open_store import open_plain_store
from chunkmill.stores.base import Store

__all__ = ["StoredJob", "jobs"]


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
        ``"running"``: its client is alive. ``"interrupted"``: it has died, and the same call resumes the job.
        ``"dead"``: it has died, and had nothing but the place reserved: others may write there.
    began
        When it began, in UTC.
    run
        Name of its run.
    n_tasks_done
        Tasks that are recorded as done, which are not done again.
    """

    job: str
    path: str
    state: Literal["running", "interrupted", "dead"]
    began: str
    run: str
    n_tasks_done: int

    def __str__(self) -> str:
        done = f", {self.n_tasks_done:,} tasks done" if self.n_tasks_done else ""
        return deferred_imports.printable(
            f"{self.state}: {self.job or 'damaged journal'}, begun {self.began or 'at an unknown time'}{done}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes."""
        return asdict(self)


def jobs(url: Url, *, storage_options: Mapping[str, Any] | None = None) -> list[StoredJob]:
    """Return the jobs that write to a store and have not ended: running, interrupted, dead.

    Parameters
    ----------
    url, storage_options
        As in `open`.

    Returns
    -------
    list of StoredJob
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
    store = open_plain_store(url, storage_options)
    return sorted((_described(store, job) for job in unfinished_jobs(store)), key=lambda job: (job.began, job.path))


def _described(store: Store, job: UnfinishedJob) -> StoredJob:
    state: Literal["running", "interrupted", "dead"] = "dead" if job.is_lease else "interrupted"
    n_done = len(RecordFiles(store, job.key.removesuffix(PLAN), job.run).names()) if job.run else 0
    return StoredJob(job.job, job.path, "running" if job.is_running else state, job.began, job.run, n_done)
