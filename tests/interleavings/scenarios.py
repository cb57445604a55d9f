"""Two operations at their places, in a format and on a ground; those of each pair."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from interleavings.operations import ALL_FORMATS, CONSOLIDATED, MARKS, OPERATIONS, Call, Operation, needs_source

import chunkmill as cm
from chunkmill.errors import NodeExists
from chunkmill.stores.base import Store
from chunkmill.stores.memory import MemoryStore

GROUNDS = ("bare", "consolidated")
_ROOT = ("",)
_MADE = "g/a/1"  # where one at g/a makes a node


@dataclass(frozen=True, slots=True)
class Scenario:
    """Two operations at their places, in a format and on a ground."""

    format: str
    ground: str
    names: tuple[str, str]
    paths: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.format},{self.ground},{self.names[0]}@{self.paths[0]},{self.names[1]}@{self.paths[1]}"

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """Read what `str` wrote."""
        name, ground, *calls = text.split(",")
        (a, path_a), (b, path_b) = (call.split("@") for call in calls)
        return cls(name, ground, (a, b), (path_a, path_b))

    @property
    def operations(self) -> dict[str, Operation]:
        return {actor: OPERATIONS[name] for actor, name in zip(MARKS, self.names, strict=True)}

    def action(self, actor: str, part: str = "run") -> Callable[[Store], Any]:
        """Return what an actor does: its operation, as it ``begins`` it, or to ``restart`` it as its error says."""
        does = getattr(self.operations[actor], part)
        return lambda store: does(self._call(actor, store))

    def _call(self, actor: str, store: Store) -> Call:
        return Call(store, dict(zip(MARKS, self.paths, strict=True))[actor], self.format, MARKS[actor])

    def ground_store(self) -> MemoryStore:
        """Return the store in which both begin.

        Raises
        ------
        ChunkmillError
            Both cannot begin in one store.
        """
        store = MemoryStore()
        if "consolidated" in self.ground:
            cm.create_group(store, format=self.format, attributes={"title": "ground"})
        made = set()
        for actor, operation in sorted(self.operations.items(), key=lambda item: self._call(item[0], store).path):
            call = self._call(actor, store)
            if operation.needs is not None and (made_by := (operation.needs, call.path)) not in made:
                with suppress(NodeExists) if call.path == _MADE else nullcontext():  # the other has needed it, too
                    operation.needs(call)
                made.add(made_by)
        if "consolidated" in self.ground and self.format in CONSOLIDATED:
            cm.consolidate(store)
        return store


def scenarios(pair: tuple[str, str]) -> Iterator[Scenario]:
    """Yield the scenarios of two operations: the most telling first."""
    a, b = (OPERATIONS[name] for name in pair)
    seen = set()
    for paths in _meetings(a, b):
        for ground, name in itertools.product(GROUNDS, ALL_FORMATS):
            if name in a.formats and name in b.formats and (name in CONSOLIDATED or "consolidated" not in ground):
                mirrored = (name, ground, paths[::-1])
                if a is b and mirrored in seen:
                    continue
                seen.add((name, ground, paths))
                yield Scenario(name, ground, pair, paths)


def _meetings(a: Operation, b: Operation) -> Iterator[tuple[str, str]]:
    """Yield the paths of both: one place, neighbours, one above the other, and one what the other reads."""
    met = [("g/a", "g/a"), ("g/a", "g/b"), ("g/a", "g"), ("g", "g/a"), ("g/a", ""), ("", "g/a"), ("", "")]
    met += [("g/a", "src/a"), ("src/a", "g/a"), ("g/a", "src"), ("src", "g/a"), ("g/a", _MADE), (_MADE, "g/a")]
    for one, other in met:
        if _goes(a, one, b) and _goes(b, other, a):
            yield one, other


def _goes(operation: Operation, path: str, other: Operation) -> bool:
    if path.startswith("src"):
        return needs_source(other, operation) and operation.paths != _ROOT
    if path == _MADE:
        return other.makes and "g/a" in operation.paths
    return path in operation.paths
