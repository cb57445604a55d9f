"""Describe a job without its workers (`Work`), and its tasks as they are fitted to some (`Tasks`).

A kind of job is a subclass of each. The rest is the same for all: fingerprint, plan.json, resuming, memory
(`chunkmill.jobs.job`), plans and reports (`chunkmill.jobs.plan`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NotRequired, TypedDict

from chunkmill.array.stored_array import StoredArray
from chunkmill.jobs.sources import Source
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.nodes.target import Target
from chunkmill.runtime.stage import Stage
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.base import Store


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """Tasks, bytes and requests of one stage of a plan, or of a report.

    Attributes
    ----------
    name
        Name of the stage.
    n_tasks, bytes_read, bytes_written, n_requests
        As in `JobCounts`, of this stage alone.
    seconds
        Time from its first task to its last one; ``None`` in a plan.
    """

    name: str
    n_tasks: int
    bytes_read: int
    bytes_written: int
    n_requests: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Columns that a plan estimates and a report has measured.

    Attributes
    ----------
    n_tasks
        Tasks that the scheduler sees.
    bytes_read, bytes_written
        Bytes that pass between workers and stores. A plan counts decoded bytes where the encoded sizes are not known
        before.
    bytes_temporary, bytes_temporary_read
        Those of intermediate files among the bytes written, and among the bytes read.
    n_requests
        Gets, sets and deletes.
    peak_memory_bytes
        Memory of one worker, all its threads together. In a plan: the buffers of its tasks. In a report: the largest
        resident memory of any process that took part, with the interpreter's own and what was there before the job.
    read_amplification
        Elements of the source chunks that were read over the elements to convert: 1 when every chunk is read once.
    n_keys
        Store keys of the target that are written, or found to be absent.
    actions
        Store keys of the target (chunks, where those are repacked into shards or out of them) by what is done for
        them: ``{"copy": 90, "recode": 10}``.
    """

    n_tasks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_temporary: int = 0
    bytes_temporary_read: int = 0
    n_requests: int = 0
    peak_memory_bytes: int = 0
    read_amplification: float = 1.0
    n_keys: int = 0
    actions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, stages: Sequence[PlannedStage], **more: Any) -> JobCounts:
        """Return the counts of some stages together; `more` are columns that a stage does not have.

        Intermediate files are read as often as they are written where `more` does not say it.
        """
        more.setdefault("bytes_temporary_read", more.get("bytes_temporary", 0))
        names = ("n_tasks", "bytes_read", "bytes_written", "n_requests")
        return cls(**{name: sum(getattr(stage, name) for stage in stages) for name in names}, **more)


def shown_node(node: StoredNode) -> str:
    """Return url, path and format of a node, as plans show them."""
    return f"{node.url}/{node.path} ({node.format})" if node.path else f"{node.url} ({node.format})"


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
    since
        Why none can hold less, for the error where memory is too little; empty: tasks may hold more than `max_mem`.
    choices
        What `Work.fit` returns the same tasks from again, besides the workers, as plain JSON.
    writes
        Further stores (a temporary one) that tasks write to.
    """

    numbered: Any
    task_bytes: int = 0
    since: str = ""
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

    @property
    def same_again(self) -> str:
        """Addition to the hint where the unfinished job at the target is another one: how to get the same."""
        return ""

    @abstractmethod
    def fit(self, worker: Worker, choices: Mapping[str, Any] | None = None) -> Tasks:
        """Return the tasks for workers of that kind, the same for the same workers and `Tasks.choices`.

        Those that hold least, where no others fit into the memory of a worker.
        """

    def identity(self) -> tuple[Any, ...]:
        """Return what tells the job from others besides its sources, nodes and tasks."""
        return ()

    def arguments(self) -> Mapping[str, Any]:
        """Return arguments that its plan stores in words, of which an error names the first that differs."""
        return {}

    described: ClassVar[Callable[..., Described]]
    """Method of kinds that are planned: called with tasks and the worker that they fit, it returns what plans show."""
