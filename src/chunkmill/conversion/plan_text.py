"""Rows of plans and reports of jobs, as people ask for them: how long, how much is moved and kept, in which memory.

Not here: plans and reports (`chunkmill.conversion.plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from dask.utils import format_bytes, format_time

from chunkmill.conversion.counts import JobCounts, PlannedStage

__all__ = ["array_rows", "cost_rows", "duration_row", "remember_rate", "stage_rows"]

Rows = list[tuple[str, str]]


# --------------------------------------------------------------------------------------------------------------------
# Time

_rates: dict[tuple[str, str, str], float] = {}  # bytes a second of the last job of this process, by its kind
_LEAST_BYTES, _LEAST_SECONDS = 16 << 20, 0.5  # smaller jobs measure their preparations


def remember_rate(operation: str, source: str, target: str, n_bytes: int, seconds: float) -> None:
    """Remember how fast a job was, for plans of the same operation between the same kinds of stores."""
    if n_bytes >= _LEAST_BYTES and seconds >= _LEAST_SECONDS:
        _rates[_kind(operation, source, target)] = n_bytes / seconds


def duration_row(operation: str, source: str, target: str, n_bytes: int) -> Rows:
    """Return about how long a job will take; nothing where no such job has been measured in this process."""
    rate = _rates.get(_kind(operation, source, target))
    if rate is None:
        return []
    about = format_time(n_bytes / rate).strip()
    return [("time", f"about {about}, at the {format_bytes(int(rate))}/s of the last {operation} in this process")]


def _kind(operation: str, source: str, target: str) -> tuple[str, str, str]:
    return operation, urlsplit(source).scheme, urlsplit(target).scheme


# --------------------------------------------------------------------------------------------------------------------
# Bytes, memory, tasks


def cost_rows(costs: JobCounts) -> Rows:
    """Return what is read, written and kept meanwhile, in which memory; then tasks, keys and actions.

    Bytes of intermediate files, which are written and read once, have a row of their own.
    """
    kept, often = costs.bytes_temporary, costs.read_amplification
    again = f"; each element {often:.2g} times" if often > _ONCE else ""
    files = [("kept meanwhile", f"{format_bytes(kept)} of intermediate files, written and read once")] if kept else []
    actions = ", ".join(f"{name} {n:,}" for name, n in costs.actions.items())
    return [
        ("read", f"{format_bytes(costs.bytes_read - kept)}{again}"),
        ("written", f"{format_bytes(costs.bytes_written - kept)}, {costs.n_keys:,} store keys"),
        *files,
        ("memory", f"{format_bytes(costs.peak_memory_bytes)} a worker"),
        ("tasks", f"{costs.n_tasks:,}, with {costs.n_requests:,} requests"),
        *([("actions", actions)] if actions else []),
    ]


_ONCE = 1.005  # shown as 1.0


def stage_rows(stages: Sequence[PlannedStage]) -> Iterable[tuple[str, ...]]:
    """Yield a table of stages; the column of seconds only where they are measured."""
    timed = any(stage.seconds is not None for stage in stages)
    yield ("stage", "tasks", "read", "written", "requests", *(["seconds"] if timed else []))
    for stage in stages:
        seconds = [f"{stage.seconds:.1f}" if stage.seconds is not None else ""] if timed else []
        read, written = format_bytes(stage.bytes_read), format_bytes(stage.bytes_written)
        yield (stage.name, f"{stage.n_tasks:,}", read, written, f"{stage.n_requests:,}", *seconds)


def array_rows(arrays: Sequence[Mapping[str, Any]]) -> Iterable[tuple[str, ...]]:
    """Yield a table of arrays; columns of which nothing is known are left out, and why where there is one array."""
    names = [name for name in (arrays[0] if arrays else ()) if any(row[name] is not None for row in arrays)]
    if len(arrays) == 1 and "why" in names:
        names.remove("why")  # the plan says it in its strategy
    if names:
        yield tuple(names)
        yield from (tuple("" if row[name] is None else str(row[name]) for name in names) for row in arrays)
