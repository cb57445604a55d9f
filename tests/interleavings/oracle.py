"""What may come of two operations that run at the same time: what would come of them one after the other.

An operation that dies has been done, or has not; or its nodes are partly old and partly new, each whole, or one is being
replaced, which is absent where it is deleted first, and `chunkmill.check` names what is wrong. An operation that is refused
has not been done. In both cases its repetition must bring what it brings in a serial order: nothing, where the dead one
was a job whose result was in place. Operations that change visible chunks in place are serial for each element.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import contains
from typing import Any

from interleavings.operations import MARKS
from interleavings.processes import anonymous
from interleavings.scenarios import Scenario
from interleavings.scheduler import Choose, Outcome, Run, attempt, play
from interleavings.snapshot import UNREADABLE, Snapshot, snapshot

import chunkmill as cm
from chunkmill.journal.plans import JOB_PREFIX, PLAN, TAG_PREFIX
from chunkmill.model.metadata import is_within
from chunkmill.nodes.delete import _RECORD as DELETED_NODES
from chunkmill.stores.memory import MemoryStore

Views = dict[str, Snapshot]
_EMPTY_GROUP = ("group", "[]"), ()


@dataclass(frozen=True, slots=True)
class _Serial:
    """What came of operations one after the other."""

    store: MemoryStore
    views: Views
    kinds: tuple[str, ...]

    def kind(self, actor: str, order: str) -> str:
        """How the last operation of an actor ended."""
        return self.kinds[order.rindex(actor)]


class Oracle:
    """Knows what may come of a scenario, and what has come of its runs before."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._actions = {actor: scenario.action(actor) for actor in MARKS}
        ground = scenario.ground_store()
        self._seen: dict[Any, Views] = {}
        self._serials = {"": _Serial(ground, self._views(ground), ())}
        self._judged: dict[Any, list[str]] = {}
        self._repetitions: dict[Any, tuple[Outcome, MemoryStore]] = {}

    def play(self, choose: Choose) -> Run:
        """Run both operations on a store of their own."""
        return play(copy.copy(self._serials[""].store), self._actions, choose)

    def judge(self, run: Run) -> list[str]:
        """Return what is wrong with the outcome of a run; nothing, when it is as it must be."""
        known = self._key(run)
        if known not in self._judged:
            self._judged[known] = list(self._complaints(run))
        return self._judged[known]

    def is_telling(self) -> bool:
        """Whether each operation can be done alone."""
        return all(self._serial(actor).kinds == ("done",) for actor in self._actions)

    # --- serial orders

    def _serial(self, order: str) -> _Serial:
        if order not in self._serials:
            before = self._serial(order[:-1])
            store = copy.copy(before.store)
            actor = order[-1]
            action = self._actions[actor] if actor.islower() else self.scenario.action(actor.lower(), "begins")
            kind = attempt(lambda: action(store)).kind
            self._serials[order] = _Serial(store, self._views(store), (*before.kinds, kind))
        return self._serials[order]

    def _orders(self, outcomes: dict[str, Outcome]) -> Iterator[str]:
        """Yield the serial orders of which the store may be the result; capitals stand for what has only begun."""
        orders = list(self._whole_orders(outcomes))
        yield from orders
        for actor, outcome in outcomes.items():  # refused: what it had begun has been changed by the other
            if outcome.kind != "done" and self.scenario.operations[actor].begins is not None:
                yield from (order.replace(actor, actor.upper()) for order in orders if actor in order)

    def _whole_orders(self, outcomes: dict[str, Outcome]) -> Iterator[str]:
        kinds = {actor: outcome.kind for actor, outcome in outcomes.items()}
        dead = "".join(actor for actor, kind in kinds.items() if kind == "died")
        for order in ("ab", "ba"):
            serial = self._serial(order)
            if all(kind in {"died", serial.kind(actor, order)} for actor, kind in kinds.items()):
                yield order
        if self._is_one_job() and set(kinds.values()) == {"done"}:
            yield "a"
        if set(kinds.values()) == {"refused"} and self._may_refuse_both():
            yield ""
        for actor, other in ("ab", "ba"):
            if kinds[actor] == "refused" and kinds[other] in {"done", "died"}:
                yield other
                if self.scenario.operations[actor].in_place:  # some of its elements are written then
                    yield actor + other
            if actor == dead and kinds[other] == "done":
                yield other
            if actor == dead and kinds[other] == "refused":
                yield ""
                if self.scenario.operations[other].in_place:  # some of its elements are written then
                    yield other

    def _is_one_job(self) -> bool:
        (name, other), (path, other_path) = self.scenario.names, self.scenario.paths
        return self.scenario.operations["a"].joins and name == other and path == other_path

    def _may_refuse_both(self) -> bool:
        """Whether one may delete what the other has stored, and then meet it at the place that it reserves at last."""
        both = self.scenario.operations.values()
        return all(each.replaces for each in both) and any(each.reserves_late for each in both)

    # --- one run

    def _key(self, run: Run) -> Any:
        outcomes = sorted(run.outcomes.items())
        return _content(run.store), tuple((a, o.kind, repr(o.value), _untimed(str(o.error))) for a, o in outcomes)

    def _views(self, store: MemoryStore) -> Views:
        """Return all that a reader sees, which depends on nothing but what is stored."""
        content = _content(store)
        if content not in self._seen:
            self._seen[content] = snapshot(store)
        return self._seen[content]

    def _complaints(self, run: Run) -> Iterator[str]:
        broken = [f"{self._name(actor)} {o}" for actor, o in run.outcomes.items() if o.kind == "broken"]
        if broken:
            yield from broken
            return
        orders = list(dict.fromkeys(self._orders(dict(run.outcomes))))
        if not orders:
            ends = ", ".join(f"{self._name(actor)} {outcome}" for actor, outcome in sorted(run.outcomes.items()))
            yield f"no serial order ends so: {ends}"
            return
        yield from self._read(run)
        store = copy.copy(run.store)
        unfinished = [actor for actor, outcome in run.outcomes.items() if outcome.kind != "done"]
        mortal = any(outcome.kind == "died" for outcome in run.outcomes.values())
        died = [actor for actor, outcome in run.outcomes.items() if outcome.kind == "died"]
        state = list(self._state(store, orders, unfinished, mortal=mortal, deleted=self._deleted_by(died)))
        yield from state
        if not state:
            yield from self._repeated(store, orders, run.outcomes)

    def _read(self, run: Run) -> Iterator[str]:
        """Yield what a reader saw that was neither there before the other operation nor after it."""
        for actor, other in ("ab", "ba"):
            if self.scenario.operations[actor].name == "reader" and run.outcomes[actor].kind == "done":
                begins = [other.upper()] if self.scenario.operations[other].begins is not None else []
                allowed = [self._serial(order).views for order in ("", *begins, other)]
                allowed += _without(allowed, self._deleted_by([other]))
                for name, seen in self._without_traces(run.outcomes[actor].value, allowed, [other]).items():
                    strange = _strange(seen, [each[name] for each in allowed])
                    yield from (f"the reader saw {text}" for text in strange)

    def _state(
        self,
        store: MemoryStore,
        orders: Sequence[str],
        unfinished: Sequence[str],
        *,
        mortal: bool,
        stale: Sequence[str] = (),
        deleted: Sequence[str] = (),
    ) -> Iterator[str]:
        """Yield what is in the store that no serial order leaves there.

        An operation that died may leave nodes of different orders, consolidated metadata of `stale` ones, and none at
        the paths at which they are `deleted` first, if check names it.
        """
        allowed = [self._serial(order).views for order in orders]
        found = self._views(store)
        views = self._without_traces(found, allowed, unfinished)
        if any(self._is_whole(self._without_traces(found, [each], unfinished), each, allowed) for each in allowed):
            return
        gone = _without(allowed, deleted)
        older = {"consolidated": [self._serial(order).views for order in stale]}
        strange = [
            text
            for name, view in views.items()
            for text in _strange(
                view, [each[name] for each in (*allowed, *gone, *older.get(name, ()))], name, stale=mortal
            )
        ]
        if strange or not mortal:
            yield from strange or [f"nodes of different orders: {_differences(views, allowed[0])}"]
        elif (checked := attempt(lambda: cm.check(store))).kind == "broken" or (
            checked.kind == "done" and not checked.value.problems
        ):
            yield f"check does not name what is wrong ({checked}): {_differences(views, allowed[0])}"

    def _deleted_by(self, actors: Sequence[str]) -> list[str]:
        """Return the paths at which these delete a node before there is the new one."""
        paths = dict(zip("ab", self.scenario.paths, strict=True))
        is_deleted_first = self.scenario.format == "zarr3-draft"  # below the root, in two prefixes
        return [
            paths[actor]
            for actor in actors
            if is_deleted_first and paths[actor] and self.scenario.operations[actor].replaces
        ]

    def _without_traces(self, views: Views, allowed: Sequence[Views], unfinished: Sequence[str]) -> Views:
        """Return what is there without the empty groups that operations make which have not come to their ends."""
        begun = [
            f"{path}/" if path else ""
            for actor, path in zip("ab", self.scenario.paths, strict=True)
            if actor in unfinished
        ]

        def is_trace(path: str) -> bool:
            below = f"{path}/" if path else ""
            folder = self.scenario.format == "n5"  # where every folder is a group
            return any(other.startswith(below) or (folder and below.startswith(other)) for other in begun)

        def stays(name: str, path: str, shown: Any) -> bool:
            return (
                shown != _EMPTY_GROUP
                or any(each[name].get(path) == _EMPTY_GROUP for each in allowed)
                or not is_trace(path)
            )

        return {name: {p: s for p, s in view.items() if stays(name, p, s)} for name, view in views.items()}

    def _is_whole(self, views: Views, order: Views, allowed: Sequence[Views]) -> bool:
        if views == order:
            return True
        if not any(operation.in_place for operation in self.scenario.operations.values()):
            return False
        return all(
            view.keys() == order[name].keys()
            and all(view[path][0] == order[name][path][0] for path in view)
            and not list(_strange(view, [each[name] for each in allowed]))
            for name, view in views.items()
        )

    def _repeated(self, store: MemoryStore, orders: Sequence[str], outcomes: Any) -> Iterator[str]:
        """Yield what is wrong when what died, and then what was refused, is done again."""
        begun = orders
        is_over = any(_is_over(key, value) for key, value in store._values.items())
        todo = [(a, kind) for kind in ("died", "refused") for a, outcome in outcomes.items() if outcome.kind == kind]
        n_repeated = 0
        while todo:
            actor, kind = todo.pop(0)
            again, store = self._again(actor, store)
            n_repeated += 1
            if todo and n_repeated == 1 and "was interrupted" in str(again.error):  # the other's job, as it is told
                todo.append((actor, kind))
                continue
            name = f"{self._name(actor)}, which {kind}, again"
            if again.kind == "broken" or (again.kind == "refused" and not getattr(again.error, "hint", "")):
                yield f"{name}: {again}"
                return
            cleared = [o for o in orders if actor in o and is_over and kind == "died" and again.kind == "done"]
            orders = cleared + [o + actor for o in orders if self._serial(o + actor).kinds[-1] == again.kind]
            if not orders:
                yield f"{name}: {again}, as in no serial order"
                return
            # consolidated metadata that the dead one left stale stay so where it is refused now
            mortal = any(outcome.kind == "died" for outcome in outcomes.values()) and again.kind == "refused"
            state = list(self._state(store, orders, list(outcomes), mortal=mortal, stale=begun if mortal else ()))
            if state:
                yield f"{name} ({again}): {state[0]}"
                return

    def _again(self, actor: str, store: MemoryStore) -> tuple[Outcome, MemoryStore]:
        """Do the operation of an actor once more; return how that ends, and what is stored then."""
        known = actor, _content(store)
        if known not in self._repetitions:
            after = copy.copy(store)
            again = attempt(lambda: self._actions[actor](after))
            if "with another plan" in str(again.error) and self.scenario.operations[actor].restart is not None:
                again = attempt(lambda: self.scenario.action(actor, "restart")(after))
            if "others have changed" in str(again.error):  # told once, before the node as it is now is replaced
                again = attempt(lambda: self._actions[actor](after))
            self._repetitions[known] = again, after
        return self._repetitions[known]

    def _name(self, actor: str) -> str:
        return f"{self.scenario.names['ab'.index(actor)]} ({actor})"


def _strange(view: Snapshot, allowed: Sequence[Snapshot], name: str = "nodes", *, stale: bool = False) -> Iterator[str]:
    """Yield the nodes, and elements, that are as in none of what is allowed.

    Reading by `stale` consolidated metadata may be an error.
    """
    word = "" if name == "nodes" else f" in {name} metadata"
    for path in sorted({path for each in (view, *allowed) for path in each}):
        shown = view.get(path)
        known = [each.get(path) for each in allowed]
        alike = [each[1] for each in known if each is not None and shown is not None and each[0] == shown[0]]
        if shown in known or (alike and stale and word and shown[1] == UNREADABLE):
            continue
        if not alike or shown[1] == UNREADABLE or not all(map(contains, zip(*alike, strict=True), shown[1])):
            yield f"{path!r}{word}: {_text(shown)}, expected {' or '.join(sorted(set(map(_text, known))))}"


def _is_over(key: str, value: bytes) -> bool:
    """Return whether a key tells of a job whose repetition may have nothing to do: what came of it is in place.

    Or of a deletion, which its repetition ends also where others have replaced by then what was to be deleted.
    """
    if key.startswith(JOB_PREFIX):
        return (key.endswith(PLAN) and b'"over": true' in value) or key.endswith(DELETED_NODES)
    name = key.rpartition("/")[2]
    return name.startswith(TAG_PREFIX)


def _without(orders: Sequence[Views], paths: Sequence[str]) -> list[Views]:
    """Return the views without the nodes at some paths and all below them; nothing where there are no paths."""

    def stays(path: str) -> bool:
        return not any(is_within(path, each) for each in paths)

    return [
        {name: {path: shown for path, shown in view.items() if stays(path)} for name, view in views.items()}
        for views in (orders if paths else ())
    ]


def _differences(views: Views, order: Views) -> str:
    return "; ".join(text for name, view in views.items() for text in _strange(view, [order[name]], name))


def _text(node: Any) -> str:
    return "nothing" if node is None else f"{node[0]}{f' = {list(node[1])}' if node[1] else ''}"


def _content(store: MemoryStore) -> frozenset[bytes]:
    """Return keys and values, those of our own without times of day and names drawn by chance, which only they have."""
    return frozenset(
        _NAMES.sub(b"", anonymous(text)) if b".chunkmill-" in text else text
        for text in (b"%s %s" % (key.encode(), value) for key, value in store._values.items())
    )


def _untimed(text: str) -> str:
    return _NAMES.sub(b"", text.encode()).decode()


_NAMES = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.+]+|[0-9a-f]{8,}|\d+ s ago")
