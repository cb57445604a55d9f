"""Plan of squaring an array: which chunks each task squares. Integers in, frozen values out."""

from __future__ import annotations

__all__ = ["plan_tasks"]


def plan_tasks(n_chunks: int, chunks_a_task: int) -> tuple[tuple[int, int], ...]:
    """Return the first chunk of each task, and the one after its last.

    Examples
    --------
    >>> plan_tasks(5, 2)
    ((0, 2), (2, 4), (4, 5))
    """
    return tuple((start, min(start + chunks_a_task, n_chunks)) for start in range(0, n_chunks, chunks_a_task))
