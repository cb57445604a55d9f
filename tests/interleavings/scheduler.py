"""A scheduler that decides which of two actors makes the next store operation, and the store that asks it.

Each actor runs in a thread of its own, but only one of them at a time: the others wait before their next store
operation. So a run is a string of letters, one for each store operation: ``a`` or ``b``, and ``A`` or ``B`` where the
actor dies instead of making it. The same string gives the same run again. Locks of this process are taken as if each
actor were a process of its own: what must hold among processes holds among threads, too.
"""

from __future__ import annotations

import contextvars
import itertools
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from interleavings.processes import ENDED, PROCESS, PROCESSES
from support.recording import _Wrapper

from chunkmill.errors import ChunkmillError
from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.memory import MemoryStore

_PATIENCE = 5.0
"""Seconds after which an actor that does not come to its next store operation is taken to wait for the other."""


_PAUSE = 8
"""Operations that others make while an actor pauses: the shortest pause is longer than some requests take."""


class Crash(BaseException):
    """The actor is dead: nothing that it still does, not even clearing up, reaches the store."""


@dataclass(frozen=True, slots=True)
class Access:
    """One store operation."""

    method: str
    key: str

    @property
    def writes(self) -> bool:
        return self.method in {"set", "set_if", "copy", "delete", "delete_prefix", "replace_prefix"}

    @property
    def _spans(self) -> bool:
        return self.method in {"delete_prefix", "list_prefix", "list_dir", "replace_prefix"}

    def meets(self, other: Access) -> bool:
        """Whether it matters which of both comes first."""
        if not (self.writes or other.writes):
            return False
        return (
            self.key == other.key
            or (self._spans and other.key.startswith(self.key))
            or (other._spans and self.key.startswith(other.key))
        )


@dataclass(frozen=True, slots=True)
class Step:
    """Who made which store operation; a capital letter for the one that died instead."""

    letter: str
    access: Access

    @property
    def actor(self) -> str:
        return self.letter.lower()

    @property
    def dies(self) -> bool:
        return self.letter.isupper()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an operation ended: ``"done"``, ``"refused"`` by one of our errors, ``"died"``, or ``"broken"`` by another."""

    kind: str
    value: Any = None
    error: BaseException | None = None

    def __str__(self) -> str:
        if self.error is None or self.kind == "died":
            return self.kind
        text = re.sub(r" (in|of) memory-store:\S*", "", str(self.error))
        return f"{self.kind}, {type(self.error).__name__}: {text}"


@dataclass(frozen=True, slots=True)
class Run:
    """One interleaving: its steps, how both operations ended, and what the store holds."""

    trace: tuple[Step, ...]
    outcomes: Mapping[str, Outcome]
    store: MemoryStore
    letters: str


Choose = Callable[[str, Mapping[str, Access]], str]
"""The letters so far, and who waits for which operation -> the next letter."""


def attempt(action: Callable[[], Any]) -> Outcome:
    """Do something, and return how that ended."""
    try:
        return Outcome("done", action())
    except ChunkmillError as error:
        return Outcome("refused", error=error)
    except Crash as error:
        return Outcome("died", error=error)
    except BaseException as error:  # noqa: BLE001 - what the oracle will call a failure
        return Outcome("broken", error=error)


def play(store: MemoryStore, actions: Mapping[str, Callable[[Store], Any]], choose: Choose) -> Run:
    """Run the actions at the same time on one store, in the order that `choose` says."""
    scheduler = _Scheduler(choose)
    outcomes: dict[str, Outcome] = {}

    def act(actor: str) -> None:
        PROCESS.number = scheduler.processes[actor] = next(PROCESSES)
        PROCESS.names = itertools.count()
        PROCESS.actor = actor
        PROCESS.pause = lambda: scheduler.step(actor, Access("pause", ""))
        outcomes[actor] = attempt(lambda: actions[actor](ActorStore(store, scheduler, actor)))
        scheduler.end(actor)

    for actor in actions:
        scheduler.start(actor, partial(act, actor))
    scheduler.finish()
    return Run(tuple(scheduler.trace), outcomes, store, scheduler.letters)


class _Scheduler:
    """Whose turn it is: all others wait in `step`, each for a lock of its own that is released when its turn comes."""

    def __init__(self, choose: Choose) -> None:
        self.trace: list[Step] = []
        self.letters = ""
        self._choose = choose
        self._state = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}  # held while an actor waits
        self._waiting: dict[str, Access] = {}
        self._since: dict[str, int] = {}  # number of the step before which an actor began to wait
        self._living: set[str] = set()
        self._dead: set[str] = set()
        self.processes: dict[str, int] = {}
        self._turn = ""
        self._started = False
        self._main = threading.Lock()
        self._main.acquire()

    def start(self, actor: str, action: Callable[[], None]) -> None:
        """Let an actor come to its first store operation."""
        self._living.add(actor)
        self._turns[actor] = threading.Lock()
        self._turns[actor].acquire()
        threading.Thread(target=contextvars.Context().run, args=(action,), daemon=True).start()
        self._main.acquire()

    def finish(self) -> None:
        """Let the actors run to their ends."""
        with self._state:
            self._started = True
            self._pass_on("")
            is_over = not self._living
        if not is_over:
            self._main.acquire()

    def step(self, actor: str, access: Access) -> None:
        """Return when it is the actor's turn to make the operation."""
        with self._state:
            if actor in self._dead:
                raise Crash
            if access.method == "pause" and len(self._living) == 1:
                return
            self._waiting[actor] = access
            self._since[actor] = len(self.trace)
            if self._turn in {actor, ""}:
                self._pass_on(actor)
            is_next = self._turn == actor
        if not is_next:
            self._await_turn(actor)
        with self._state:
            del self._waiting[actor]
            if actor in self._dead:
                raise Crash

    def end(self, actor: str) -> None:
        with self._state:
            self._living.discard(actor)
            if self._turn == actor:
                self._pass_on(actor)
            if not self._started or not self._living:
                self._main.release()

    def _pass_on(self, actor: str) -> None:
        """Choose who makes the next operation, and wake it unless it is `actor`, who asks."""
        if not self._started:
            self._main.release()
            return
        self._turn = ""
        if self._waiting:
            letter = self._choose(self.letters, self._awake() or self._waiting)
            self._turn = letter.lower()
            self.letters += letter
            self.trace.append(Step(letter, self._waiting[self._turn]))
            if letter.isupper():
                self._dead.add(self._turn)
                ENDED.add(self.processes[self._turn])
            if self._turn != actor and self._turns[self._turn].locked():
                self._turns[self._turn].release()

    def _awake(self) -> dict[str, Access]:
        """Return who does not pause: for so long the other makes some operations, if there is one."""
        n = len(self.trace)
        waits = self._waiting.items()
        return {actor: a for actor, a in waits if a.method != "pause" or n - self._since[actor] >= _PAUSE}

    def _await_turn(self, actor: str) -> None:
        while True:
            was_woken = self._turns[actor].acquire(timeout=_PATIENCE)
            with self._state:
                stuck = self._turn not in self._waiting and len(self._living) == len(self._waiting) + 1
                if not was_woken and self._turn != actor and stuck:
                    self._pass_on(actor)  # the one whose turn it is waits for us outside of the store
                if self._turn == actor:
                    return


class ActorStore(_Wrapper):
    """The view of one actor on a store: every request is a step."""

    def __init__(self, below: MemoryStore, scheduler: _Scheduler, actor: str) -> None:
        super().__init__(below)
        self._scheduler = scheduler
        self._actor = actor

    def __reduce__(self) -> Any:
        return MemoryStore, ()  # for checks of other processes, of which there are none

    def __dask_tokenize__(self) -> Any:
        return "ActorStore", self.url

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        self._scheduler.step(self._actor, Access(method, key))

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Ask in the order of the keys, as that of sets may change from process to process."""
        asked = list(spans)
        found = {span: self.get(span.key, span.byte_range) for span in sorted(set(asked) - {None}, key=repr)}
        yield from map(found.get, asked)

    def get_noting(self, key: str, byte_range: ByteRange | None, note: Any) -> bytes | None:
        self._before("get", key, byte_range)
        return self.below.get_noting(key, byte_range, note)

    get_many_noting = Store.get_many_noting  # one after the other, in the order that a task asks

    def can_replace(self, prefix: str) -> bool:
        self._before("list_prefix", prefix)
        return self.below.can_replace(prefix)

    def replace_prefix(self, prefix: str, staged: str, mark: str) -> None:
        self._before("replace_prefix", staged)
        self._before("replace_prefix", prefix)
        self.below.replace_prefix(prefix, staged, mark)


# --------------------------------------------------------------------------------------------------------------------
# Who is next


def following(letters: str) -> Choose:
    """Follow a string; then let the last actor go on to its end, and then the other."""

    def choose(before: str, waiting: Mapping[str, Access]) -> str:
        wanted = letters[len(before)] if len(before) < len(letters) else before[-1:].lower()
        return wanted if wanted.lower() in waiting else min(waiting)

    return choose


def wandering(seed: int) -> Choose:
    """Change from actor to actor now and then, and let one die in every second run."""
    chance = random.Random(seed)
    change = chance.choice((0.1, 0.2, 0.5))
    death = chance.choice((0.0, 0.1))

    def choose(before: str, waiting: Mapping[str, Access]) -> str:
        same = before[-1:].lower()
        if same not in waiting or chance.random() < change:
            same = chance.choice(sorted(waiting))
        mortal = len(waiting) == 2 and before == before.lower() and waiting[same].writes
        return same.upper() if mortal and chance.random() < death else same

    return choose


def pack(letters: str) -> str:
    """Write a string of steps short.

    >>> pack("aaabbA"), unpack("a3b2A1")
    ('a3b2A1', 'aaabbA')
    """
    return "".join(f"{letter}{len(list(same))}" for letter, same in itertools.groupby(letters))


def unpack(text: str) -> str:
    return "".join(letter * int(n or 1) for letter, n in re.findall(r"([abAB])(\d*)", text))
