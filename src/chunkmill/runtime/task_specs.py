"""Specs of the tasks of a stage over many arrays, never listed: any of them, and their number, by arithmetic.

Not here: the grouping of specs into tasks (`chunkmill.runtime.stage`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

__all__ = ["TaskSpecs"]


class TaskSpecs(Sequence[tuple[Any, ...]]):
    """Number of the array, and what one task owns of it, for every spec of a stage, in order.

    Slices are specs, too, and pickle to what they name alone.

    Parameters
    ----------
    owned
        Number of each array, ascending, and what each of its specs owns: numbers (a ``range``), or tuples of a number
        and more.

    Examples
    --------
    >>> specs = TaskSpecs.counted([2, 0, 1])
    >>> list(specs), list(specs[1:])
    ([(0, 0), (0, 1), (2, 0)], [(0, 1), (2, 0)])
    >>> list(TaskSpecs([(1, [(7, "a"), (9, "b")])]))
    [(1, 7, 'a'), (1, 9, 'b')]
    """

    def __init__(self, owned: Iterable[tuple[int, Sequence[Any]]]) -> None:
        self._owned = [(which, each) for which, each in owned if len(each)]
        self._starts = list(accumulate((len(each) for _, each in self._owned), initial=0))

    @classmethod
    def counted(cls, counts: Iterable[int]) -> TaskSpecs:
        """Return specs of arrays of each of which as many tasks own a number."""
        return cls((which, range(count)) for which, count in enumerate(counts))

    def narrowed(self, owned: Mapping[int, Any]) -> TaskSpecs:
        """Return the specs, of the arrays that `owned` names only those that it has ``between`` their numbers."""
        found: list[tuple[int, Any]] = []
        for which, each in self._owned:
            stop = each[-1] + 1
            found.append((which, owned[which].between(each[0], stop) if which in owned else each))
        return TaskSpecs(found)

    def runs(self) -> Iterator[range]:
        """Yield the indexes of the specs of each array that has any."""
        return (range(start, stop) for start, stop in zip(self._starts, self._starts[1:], strict=False))

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (_spec(which, each) for which, owned in self._owned for each in owned)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._between(*index.indices(len(self)))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        run = bisect_right(self._starts, index) - 1
        which, owned = self._owned[run]
        return _spec(which, owned[index - self._starts[run]])

    def _between(self, start: int, stop: int, step: int) -> TaskSpecs:
        if step != 1:
            msg = f"specs[{start}:{stop}:{step}]: expected a step of 1"
            raise ValueError(msg)
        found = []
        run = bisect_right(self._starts, start) - 1
        while run < len(self._owned) and (first := self._starts[run]) < stop:
            which, owned = self._owned[run]
            found.append((which, owned[max(start - first, 0) : stop - first]))
            run += 1
        return TaskSpecs(found)


def _spec(which: int, owned: Any) -> tuple[Any, ...]:
    return (which, *owned) if isinstance(owned, tuple) else (which, owned)
