"""Counts of a job and of its stages: what plans estimate and reports have measured.

Not here: plans and reports (`chunkmill.conversion.plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["JobCounts", "PlannedStage"]


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """Tasks, bytes and requests of one stage of a plan, or of a report."""

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
    bytes_read, bytes_written, bytes_temporary
        Bytes that pass between workers and stores. Those of intermediate files (temporary) are written once and read
        once, and are part of both others. A plan counts decoded bytes where the encoded sizes are not known before.
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
    n_requests: int = 0
    peak_memory_bytes: int = 0
    read_amplification: float = 1.0
    n_keys: int = 0
    actions: Mapping[str, int] = field(default_factory=dict)
