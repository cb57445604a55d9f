"""Which interleavings are run: first those with few changes of actor, then, where there are too many, chosen ones.

From each run follow those in which two operations that meet come in the other order, or in which an actor dies before a
write. Where that leads to nothing new, all interleavings that differ have been seen.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from interleavings.operations import OPERATIONS
from interleavings.oracle import Oracle
from interleavings.scenarios import Scenario, scenarios
from interleavings.scheduler import Access, Choose, Run, Step, following, pack, unpack, wandering

from chunkmill.errors import NodeExists, NodeNotFound
from chunkmill.journal.plans import JOB_PREFIX

T = TypeVar("T")

_MAX_SYSTEMATIC = 20_000  # of one scenario: what was seen is kept, some 5 kB a run


@dataclass(frozen=True, slots=True)
class Explored:
    """One interleaving, and what is wrong with it."""

    scenario: Scenario
    run: Run
    complaints: Sequence[str]

    @property
    def name(self) -> str:
        """The string that replays it."""
        return f"{self.scenario}:{pack(self.run.letters)}"

    def __str__(self) -> str:
        return "\n    ".join([self.name, *self.complaints])


def replay(name: str) -> Explored:
    """Run one interleaving again."""
    text, _, letters = name.rpartition(":")
    scenario = Scenario.parse(text)
    oracle = Oracle(scenario)
    run = oracle.play(following(unpack(letters)))
    return Explored(scenario, run, oracle.judge(run))


def explore_all(
    todo: Sequence[Scenario], count: int, seed: int = 0, *, n_scenarios: int | None = None
) -> Iterator[Explored]:
    """Run `count` interleavings of all scenarios together, or all that differ; of the first `n_scenarios` alone.

    Scenarios in which one of both operations cannot be done at all are passed over.
    """
    n_left = len(todo) if n_scenarios is None else n_scenarios
    for number, scenario in enumerate(todo):
        if not n_left:
            return
        n_before = count
        for explored in explore(scenario, -(-count // min(n_left, len(todo) - number)), seed):
            count -= 1
            yield explored
        n_left -= n_scenarios is None or count < n_before


def chosen(pair: tuple[str, str]) -> list[Scenario]:
    """Return the scenarios of a pair: where both meet at one place first, then others, not the same for every pair."""
    turn = sum(map(list(OPERATIONS).index, pair))
    meetings = [list(found) for _, found in itertools.groupby(scenarios(pair), lambda scenario: scenario.paths)]
    rounds = itertools.zip_longest(*(_turned(found, turn) for found in [*meetings[:1], *_turned(meetings[1:], turn)]))
    return [scenario for each in rounds for scenario in each if scenario is not None]


def _turned(items: list[T], n: int) -> list[T]:
    n = n % len(items) if items else 0
    return items[n:] + items[:n]


def explore(scenario: Scenario, count: int, seed: int = 0) -> Iterator[Explored]:
    """Run at most `count` interleavings of a scenario."""
    try:
        oracle = Oracle(scenario)
    except (NodeExists, NodeNotFound):  # what one of both needs is in the way of what the other needs
        return
    if not oracle.is_telling():
        return
    n_left = count
    for run in differing(oracle.play, min(-(-count * 2 // 3), _MAX_SYSTEMATIC)):
        n_left -= 1
        yield Explored(scenario, run, oracle.judge(run))
    for number in range(n_left if n_left <= count // 3 else 0):  # else all that differ have been run
        run = oracle.play(wandering(seed * 1_000_003 + number))
        yield Explored(scenario, run, oracle.judge(run))


def differing(play: Callable[[Choose], Run], count: int) -> Iterator[Run]:
    """Yield at most `count` runs that differ, those with few changes of actor first, deaths of each kind in turn."""
    order = itertools.count()
    n_of_kind: Counter[str] = Counter()
    todo = [(0, 0, next(order), "a"), (0, 0, next(order), "b")]
    seen = {"a", "b"}
    while todo and count:
        run = play(following(heapq.heappop(todo)[-1]))
        yield run
        count -= 1
        letters = run.letters
        seen.update(letters[: i + 1] for i in range(len(letters)))
        for other, kind in _others(run.trace, letters):
            if other not in seen:
                seen.add(other)
                n_of_kind[kind] += 1
                heapq.heappush(todo, (_cost(other), n_of_kind[kind], next(order), other))


def _others(trace: Sequence[Step], letters: str) -> Iterator[tuple[str, str]]:
    """Yield the beginnings of runs that follow from one: two operations the other way round, or a death, and its kind."""
    met = {"a": -1, "b": -1}  # the last operation of the other that came, for certain, before what the actor does now
    mortal = letters == letters.lower()
    made: dict[str, list[tuple[int, Access]]] = {"a": [], "b": []}  # by each, with the numbers
    for j, step in enumerate(trace):
        actor, access = step.actor, step.access
        if not step.dies:
            for i, earlier in reversed(made["b" if actor == "a" else "a"]):
                if i <= met[actor]:
                    break
                if earlier.meets(access):
                    met[actor] = i
                    yield letters[:i] + actor, ""
                    break
            made[actor].append((j, access))
        if mortal and access.writes:
            yield letters[:j] + actor.upper(), f"{access.method} {access.key.startswith(JOB_PREFIX)}"


def _cost(letters: str) -> int:
    changes = sum(one.lower() != other.lower() for one, other in itertools.pairwise(letters))
    return changes + (letters != letters.lower())
