"""Heartbeats: small objects by which the clients of jobs and leases are known to be alive (P4, P10).

A client rewrites its own every few seconds, and deletes it at the end. A lease, which has one client, is its heartbeat.
Of a job, which several clients may run, each stores one in the journal; a client that discards the job deletes them. So
a task learns by one small request whether its result is still wanted.

Clocks of machines may differ by hours, and containers share names: a client is dead where its process has ended in our
pid namespace of this boot, or where this process saw its heartbeat unchanged for two beats by its own monotonic clock.
Only a client that wants the lease waits for that (`watch`); to others it is silent, and counts as alive.

A process may sleep between its question and its write. Where the store compares versions, the write then fails
(`chunkmill.stores.wrapper`); where it does not, one store key for each thread of that process gets its old value back.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from chunkmill.errors import JobError
from chunkmill.log import LOG
from chunkmill.stores import conflicts
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import create, swap
from chunkmill.stores.posix_file import is_gone, origin

HEARTBEAT_SECONDS = 10.0
"""Pause between two heartbeats of a client."""

LIVE_SECONDS = 60.0
"""Age of a heartbeat, by both clocks, up to which its client counts as alive without being watched."""

CHECK_SECONDS = 1.0
"""For so long a process relies on the answer that its heartbeat stands."""

# Linux: the monotonic clock stops while a machine sleeps, and what was asked before would seem fresh after it
clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat of one client of a job; the client holds it as a context, tasks ask it by `check`.

    Parameters
    ----------
    store, key
        Where its object is stored, as long as it stands.
    job
        Description of the job for error messages.
    lease
        The plan of a lease, which the object says as well, and alone when its client is not alive any more.
    name
        Never used twice; the key, where that is not.
    """

    store: Store
    key: str
    job: str
    lease: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def check(self, *, now: bool = False) -> None:
        """Raise `JobError` when it was ended; asks the store at most once in `CHECK_SECONDS`, unless `now`."""
        asked = clock()
        if not now and asked - _STOOD.get(self.key, -CHECK_SECONDS) < CHECK_SECONDS:
            return
        if self.store.get(self.key) is None:
            _STOOD.pop(self.key, None)
            reason = "the job has ended, was interrupted, or was replaced by another one; this result is discarded"
            raise JobError(job=self.job, reason=reason)
        self._stood(asked)

    @contextmanager
    def running(self, says: Callable[[], Mapping[str, Any]] | None = None) -> Iterator[None]:
        """Rewrite the object regularly inside, with what `says` returns; it is deleted at the end in any case."""
        _ALIVE[self._name] = heart = _Heart()
        if not self.lease:
            self.begin()
        heart.run(self._beat, heart.stopped, says)
        try:
            yield
        finally:
            if self.stop():
                self.end()
            _ALIVE.pop(self._name, None)

    @property
    def _name(self) -> str:
        return self.name or self.key

    def packed(self, said: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """Return the object as it is written now."""
        return _heartbeat(self._name, {**self.lease, **said})

    def begin(self) -> None:
        """Store the object where there is none."""
        asked = clock()
        # False: it is there, since names are never used twice
        if create(self.store, self.key, self.packed()):
            self._stood(asked)

    def stop(self) -> bool:
        """Stop rewriting the object, and return whether this did: the caller deletes it.

        To others the client is alive until it leaves the context: it still deletes what it has left.
        """
        heart = _ALIVE.get(self._name)
        if heart is None or heart.stopped.is_set():
            return False
        heart.stop()
        return True

    def end(self) -> None:
        """Delete the object, so that its tasks stop, or leave the lease alone; nothing happens where it has ended."""
        _STOOD.pop(self.key, None)
        with suppress(OSError):  # the error that ended the job is raised, and nothing rewrites the object
            if self.lease:
                plan = json.dumps(dict(self.lease)).encode()
                conflicts.update(self.store, self.key, lambda there: plan if self._is_own(there) else there)
            else:
                self.store.delete(self.key)

    def _is_own(self, stored: bytes | None) -> bool:
        return stored is not None and f'"key": "{self._name}"'.encode() in stored

    def _stood(self, asked: float) -> None:
        if len(_STOOD) > _MAX_STOOD:
            _STOOD.clear()
        _STOOD[self.key] = asked

    def _beat(self, stopped: threading.Event, says: Callable[[], Mapping[str, Any]] | None) -> None:
        while not stopped.wait(HEARTBEAT_SECONDS):
            with suppress(Exception):  # the next one may succeed, and without any the job seems dead after a minute
                found, version = self.store.get_versioned(self.key)
                if not self._is_own(found):  # ended by others: tasks must not find it again
                    return
                swap(self.store, self.key, self.packed({} if says is None else says()), version)


_STOOD: dict[str, float] = {}  # key, which is never used twice -> when its object was last found
_MAX_STOOD = 1024


class _Heart:
    """Threads of a heartbeat that is alive."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments, name="chunkmill-heartbeat", daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join(HEARTBEAT_SECONDS)  # one that is at work could write the object after it is deleted


_ALIVE: dict[str, _Heart] = {}  # of this process: one whose store failed when it ended still has its object
_PROCESS = uuid4().hex  # a host's name and a number may be those of another container's process, too


def _heartbeat(key: str = "", said: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    beat: dict[str, Any] = {"seen": datetime.now(UTC).isoformat(timespec="seconds")}
    beat |= zip(("host", "boot", "namespace"), origin(), strict=True)
    return json.dumps({**beat, "pid": os.getpid(), "process": _PROCESS, "key": key, **said}).encode()


def age(moment: str) -> str:
    """Return how long ago a time was that is written as in heartbeats and plans; the text itself if it is none.

    Examples
    --------
    >>> age(datetime.now(UTC).isoformat()), age("once")
    ('0 s ago', 'once')
    >>> age("2026-01-01T00:00:00+00:00").endswith(" d ago")
    True
    """
    try:
        seconds = int((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())
    except (ValueError, TypeError):
        return moment
    for name, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {name} ago"
    return f"{seconds} s ago"


def is_live(heartbeat: bytes) -> bool:
    """Return whether the client of a heartbeat may be alive: it is not known to be dead.

    Examples
    --------
    >>> is_live(_heartbeat("ended")), is_live(b'{"seen": "2020-01-01T00:00:00+00:00", "host": "elsewhere", "pid": 1}')
    (False, True)
    """
    return _liveness(heartbeat)[0] is not False


def silence(heartbeats: Iterable[bytes]) -> float | None:
    """Return the least seconds since a heartbeat, where it is not known of any whether its client is alive or dead."""
    found = [_liveness(each) for each in heartbeats]
    silent = [seconds for state, seconds in found if state is None]
    return min(silent) if silent and not any(state for state, _ in found) else None


def watch(read: Callable[[], Iterable[bytes]], job: str) -> None:
    """Wait until it is known of each heartbeat that `read` returns whether its client is alive, or dead.

    A line of the log says what is waited for.
    """
    is_said = False
    while (seconds := silence(read())) is not None:
        if not is_said:
            text = "%s: its client is silent for %.0f s by the clocks; waits up to %.0f s for its heartbeat"
            LOG.warning(text, job, seconds, _BEATS * HEARTBEAT_SECONDS)
            is_said = True
        conflicts.pause(min(conflicts.LOOK_SECONDS, HEARTBEAT_SECONDS / 2))


_BEATS = 2  # that a client misses before it counts as dead
_WATCHED: dict[str, tuple[bytes, float, bool]] = {}  # what was seen, since when, and whether it was changed before


def _liveness(heartbeat: bytes) -> tuple[bool | None, float]:
    """Return whether its client is alive (``None``: not known), and the seconds since then by the clocks."""
    try:
        known = json.loads(heartbeat)
        age = (datetime.now(UTC) - datetime.fromisoformat(known["seen"])).total_seconds()
        where, pid = tuple(str(known.get(name, "")) for name in ("host", "boot", "namespace")), int(known["pid"])
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
        return False, 0.0
    if known.get("process") == _PROCESS and pid == os.getpid():
        return str(known.get("key")) in _ALIVE, 0.0
    if is_gone(where, pid):  # type: ignore[arg-type]
        return False, 0.0
    if abs(age) < LIVE_SECONDS:
        return True, age
    name, now = str(known.get("key", "")) or repr(heartbeat), time.monotonic()
    if len(_WATCHED) > _MAX_STOOD:
        _WATCHED.clear()
    value, since, has_changed = _WATCHED.setdefault(name, (heartbeat, now, False))
    if value != heartbeat:
        _WATCHED[name] = heartbeat, now, True
        return True, 0.0
    is_silent = now - since >= _BEATS * HEARTBEAT_SECONDS
    return False if is_silent else has_changed or None, max(age, now - since)


def client_of(known: Mapping[str, Any]) -> str:
    """Return the client that a heartbeat names, for messages."""
    return f"process {known.get('pid', '?')} on {known.get('host', 'an unknown machine')}"


def is_beating(plan: bytes | None) -> bool:
    """Return whether a plan is a heartbeat, too: of a lease whose client has not ended it."""
    return plan is not None and b'"seen": ' in plan


def heartbeats_below(store: Store, start: str) -> list[str]:
    """Return the keys of the heartbeats that begin so."""
    folder = start[: start.rfind("/") + 1]
    return [key for name in store.list_dir(folder) if (key := folder + name).startswith(start)]


def stored_beats(store: Store, keys: Iterable[str]) -> list[bytes]:
    """Return the heartbeats with these keys that are stored."""
    return [heartbeat for heartbeat in map(store.get, keys) if heartbeat is not None]


def any_live(heartbeats: Iterable[bytes]) -> bool:
    """Return whether the client of one of the heartbeats may be alive."""
    return any(map(is_live, heartbeats))


def end_dead(store: Store, keys: Iterable[str]) -> int:
    """Delete the heartbeats of clients that are not alive, so that their tasks stop; return how many there were."""
    n_ended = 0
    for key in keys:
        if (heartbeat := store.get(key)) is not None and not is_live(heartbeat):
            store.delete(key)
            n_ended += 1
    return n_ended
