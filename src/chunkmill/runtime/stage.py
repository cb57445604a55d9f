"""Stages of whole-store jobs: a function over many small task specs, and the grouping of specs into tasks.

Specs are never listed: any of them, and their number, follow by arithmetic. Not here: running stages
(`chunkmill.runtime.stage_runner`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from chunkmill.journal.records import Inputs
from chunkmill.stores.base import Store
from chunkmill.stores.wrapper import Meter


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


MAX_TASKS = 100_000
"""More groups of task specs than this are joined, so that the scheduler sees no more tasks."""

# Upper bounds of what one task of a job owns: large enough that the overhead of scheduler and journal (0.3 ms a task
# together) is small, small enough that progress is seen and memory is spared. Smaller jobs are divided into more tasks,
# so that every worker has something to do.
MAX_TASK_BYTES = 64 << 20
MAX_TASK_KEYS = 1024
LEAST_TASKS = 32


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of one task.

    Attributes
    ----------
    counts
        Numbers to be summed over all tasks (``"n_keys"``, ``"bytes_read"``, …); the largest is kept of those that
        begin with ``"peak_"``.
    writes
        Store key -> size of what was written, ``None`` where nothing is stored: for the journal.
    details
        Further results for the client, few and small.
    reads
        Mark of the versions of what was read, by `chunkmill.stores.wrapper.digest_of`; ``None``: not known.
    """

    counts: Mapping[str, int]
    writes: Mapping[str, Any] = field(default_factory=dict)
    details: Sequence[Any] = ()
    reads: int | None = None

    @classmethod
    def of(cls, meter: Meter, **counts: int) -> TaskResult:
        """Return what `meter` counted, and further `counts`."""
        return cls(meter.counts() | counts, meter.writes, reads=meter.digest())


@dataclass(frozen=True, slots=True)
class Stage:
    """Tasks that do not depend on each other.

    Attributes
    ----------
    name
        Shown on the dashboard and the progress bar: ``"convert"``, ``"rechunk-spill"``.
    function
        Called as ``function(common, spec)`` for every spec. It must be importable by name, and may be called twice for
        a spec, later or at the same time: its effect must be the same each time.
    common
        Shared by all tasks, such as the arrays: pickled once, and unpickled once in each process.
    tasks
        The specs: small, picklable, in the same order in every run of the plan (the journal knows them by number).
        `TaskSpecs`, where they are not listed: those of one array have the same share.
    shows
        The store key shown for the task of a spec: the first that it deals with.
    share
        Fraction of one task's budget that a spec uses; consecutive specs are grouped into a task up to a total of 1.
    touched
        By number of the array, the blocks that have anything to do, where that is known: a task of none is not run.
    left_out
        Counts of what is left out so.
    inputs
        Stores and keys that the task of a spec reads: of a task on record they are compared with what was read, when
        the job is resumed. ``None``: they do not change.
    files
        Store of the intermediate files that the tasks write: a resumed job compares each with its record, whatever the
        store. ``None``: they write to the job's store.
    """

    name: str
    function: Callable[[Any, Any], TaskResult]
    common: Any
    tasks: Sequence[Any]
    shows: Callable[[Any, Any], str] | None = None
    share: Callable[[Any, Any], float] | None = None
    touched: Mapping[int, Any] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    inputs: Inputs | None = None
    files: Store | None = None

    def show(self, arguments: tuple[Any, ...]) -> str:
        """Return the store key shown for a task, from its arguments: its number, and a group of specs."""
        return "" if self.shows is None else self.shows(self.common, arguments[1][0])


def grouped(stage: Stage) -> Sequence[Sequence[Any]]:
    """Return the specs of each task of a stage: none of them listed, where those of an array have the same share.

    Examples
    --------
    >>> list(grouped(Stage("x", print, None, [2, 3, 9, 4, 6], share=lambda _, spec: spec / 10)))
    [[2, 3], [9], [4, 6]]
    """
    return _Groups(stage.tasks, _joined(stage))


def tasks_to_run(
    stage: Stage, done: Collection[int] = (), *, only: Collection[int] | None = None
) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield number and specs of each task that has anything to do and is not `done`: never a list of them.

    Of those `only`, in their order, whether or not they have anything to do.
    """
    groups = _Groups(stage.tasks, _joined(stage))
    for i in groups.left_by(stage.touched) if only is None else sorted(only):
        if i not in done:
            yield i, _narrowed(groups[i], stage.touched)


def _narrowed(specs: Sequence[Any], touched: Mapping[int, Any]) -> Sequence[Any]:
    return specs.narrowed(touched) if touched and isinstance(specs, TaskSpecs) else specs


def count_tasks(stage: Stage, *, on_record: Collection[int] | None = None) -> int:
    """Return the number of tasks of a stage; with `on_record`, of these and those that have anything to do."""
    if on_record is None or not stage.touched:
        return len(grouped(stage))
    return len(on_record) + sum(1 for _ in tasks_to_run(stage, on_record))


_ROUNDING = 1e-9  # of shares that add up to 1


def _joined(stage: Stage) -> list[_Joined]:
    """Return the groups of neighbours whose shares add up to 1 at most."""
    share, specs = stage.share, stage.tasks
    if share is None:
        return [_Joined(0, 0, 1)]
    runs = specs.runs() if isinstance(specs, TaskSpecs) else (range(i, i + 1) for i in range(len(specs)))
    found: list[_Joined] = []
    n_groups, used = 0, 1.0
    for run in runs:
        one = max(share(stage.common, specs[run.start]), _ROUNDING)
        first = run.start + min(
            len(run), max(0, int((1 - used) / one + _ROUNDING))
        )  # the others go with those before them
        used += one * (first - run.start)
        if first == run.stop:
            continue
        per_group = max(1, int(1 / one + _ROUNDING))
        if not found or found[-1].per_group != per_group or found[-1].start(n_groups) != first:
            found.append(_Joined(n_groups, first, per_group))
        n_groups += -(-(run.stop - first) // per_group)
        used = one * ((run.stop - first - 1) % per_group + 1)
    return found


class _Joined(NamedTuple):
    """Groups of `per_group` specs each: those from number `first` on, of which that begins with spec `first_spec`."""

    first: int
    first_spec: int
    per_group: int

    def start(self, group: int) -> int:
        return self.first_spec + (group - self.first) * self.per_group


class _Groups(Sequence[Sequence[Any]]):
    """The specs of each task: whole groups, as many as it takes to have no more than `MAX_TASKS` tasks."""

    def __init__(self, specs: Sequence[Any], joined: Sequence[_Joined]) -> None:
        self._specs, self._joined = specs, joined
        self._n_groups = 0
        if joined and len(specs):
            last = joined[-1]
            self._n_groups = last.first + -(-(len(specs) - last.first_spec) // last.per_group)
        self._per_task = max(1, -(-self._n_groups // MAX_TASKS))

    def __len__(self) -> int:
        return (self._n_groups + self._per_task - 1) // self._per_task

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._specs[self._start(index) : self._start(index + 1)]

    def left_by(self, touched: Mapping[int, Any]) -> Iterator[int]:
        """Yield the numbers of the tasks that have anything to do, passing over many at once."""
        stack = [(0, len(self))]
        while stack:
            first, stop = stack.pop()
            if first >= stop or not len(_narrowed(self._specs[self._start(first) : self._start(stop)], touched)):
                continue
            if stop - first == 1:
                yield first
            else:
                middle = (first + stop) // 2
                stack += [(middle, stop), (first, middle)]

    def _start(self, task: int) -> int:
        group = task * self._per_task
        if group >= self._n_groups:
            return len(self._specs)
        return self._joined[bisect_right(self._joined, group, key=lambda each: each.first) - 1].start(group)
