"""Describe a job without its workers (`Work`), and its tasks as they are fitted to some (`Tasks`).

A kind of job is a subclass of each. The rest is the same for all: fingerprint, plan.json, resuming, memory
(`chunkmill.jobs.job`), plans and reports (`chunkmill.jobs.plan`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NotRequired, TypedDict

from chunkmill.array.stored_array import StoredArray
from chunkmill.jobs.sources import Source
from chunkmill.nodes.target import Target
from chunkmill.runtime.stage import Stage
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.base import Store

if TYPE_CHECKING:
    from chunkmill.jobs.plan import JobCounts, PlannedStage

__all__ = ["Described", "Tasks", "Work"]


class Described(TypedDict):
    """Text and estimates of a job, as in `chunkmill.jobs.plan.Plan`."""

    source: str
    target: str
    strategy: str
    reason: str
    costs: JobCounts
    stages: tuple[PlannedStage, ...]
    arrays: Sequence[Mapping[str, Any]]
    drawn: tuple[StoredArray, StoredArray] | None
    not_read_by: NotRequired[str]


@dataclass(frozen=True, kw_only=True)
class Tasks(ABC):
    """Tasks of a job, fitted to some workers; can be pickled.

    Attributes
    ----------
    numbered
        What the numbers of tasks mean, for the fingerprint.
    task_bytes
        Bytes that a task holds, at most.
    choices
        What `Work.fit` returns the same tasks from again, besides the workers, as plain JSON.
    writes
        Further stores (a temporary one) that tasks write to.
    """

    numbered: Any
    task_bytes: int = 0
    choices: Mapping[str, Any] = field(default_factory=dict)
    writes: Sequence[Store] = ()

    @abstractmethod
    def stages(self, target: Target, *, fresh: bool) -> Sequence[Stage]:
        """Return the stages that write the target of a run, called when it begins, and when it is resumed.

        The name of the run stands in the names of all temporary values. `fresh`: nothing is at the target yet, so that
        absent chunks need not be deleted.
        """

    def check_result(self) -> None:  # noqa: B027 - of most kinds nothing
        """Raise where the result must not be published; called when all tasks are done."""

    def publish(self, target: Target) -> Sequence[str]:
        """Make the result visible, delete what is temporary, and return the keys of the documents.

        It may be called again when the process ends before the journal is deleted.
        """
        return target.publish()


@dataclass(frozen=True, kw_only=True)
class Work(ABC):
    """Description of a job that is the same on all workers; can be pickled.

    Attributes
    ----------
    version
        Of what the numbers of its tasks mean.
    operation, name
        ``"convert"``; for messages: ``"convert to file:///x"``.
    sources
        Arrays that tasks read, with their documents: those of a source that changes are an error (P9).
    target
        The nodes that it writes; the journal is stored in its store, named after its path.
    """

    version: ClassVar[int] = 1
    operation: str
    name: str
    sources: Sequence[Source]
    target: Target

    @abstractmethod
    def fit(self, worker: Worker, choices: Mapping[str, Any] | None = None) -> Tasks:
        """Return the tasks for workers of that kind, the same for the same workers and `Tasks.choices`.

        Raises
        ------
        JobError
            The memory allowed is too little; says how much is needed.
        """

    def identity(self) -> tuple[Any, ...]:
        """Return what tells the job from others besides its sources, nodes and tasks."""
        return ()

    def arguments(self) -> Mapping[str, Any]:
        """Return arguments that its plan stores in words, of which an error names the first that differs."""
        return {}

    def described(self, tasks: Any, worker: Worker) -> Described:  # noqa: ARG002 - of kinds without a plan
        """Return text and estimates of the job as it was fitted to those workers, for plans."""
        raise TypeError(f"{self.operation}: no plan is shown of it")
