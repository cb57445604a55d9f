"""Actors as processes of their own, in which nothing but the scheduler decides.

Each is alive until it dies at a step, draws the same names in each replay, and takes locks of its process as if the
other were not there. Not here: who makes the next step (`interleavings.scheduler`).
"""

from __future__ import annotations

import gc
import itertools
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import dask

from chunkmill.array import threads
from chunkmill.journal import heartbeat, journal, plans
from chunkmill.runtime import stage_runner
from chunkmill.stores import conflicts


@contextmanager
def one_actor_at_a_time() -> Iterator[None]:
    """Run dask and pools of threads in the thread that calls."""

    def submit(_: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the caller meets it in the future
            future.set_exception(error)
        return future

    with (
        _seldom_collecting(),
        dask.config.set({"scheduler": "synchronous", "chunkmill.progress": False}),
        mock.patch.object(ThreadPoolExecutor, "submit", submit),
        mock.patch.object(heartbeat, "_heartbeat", _heartbeat),
        mock.patch.object(heartbeat._Heart, "run", _start_nothing),
        mock.patch.object(heartbeat, "is_live", _is_live),
        mock.patch.object(journal, "CHECK_SECONDS", 0.0),
        mock.patch.object(stage_runner, "abandon", _start_nothing),  # no other thread writes, and names come again
        mock.patch.object(conflicts, "pause", _pause),
        mock.patch.object(journal, "uuid4", _uuid4),
        mock.patch.object(plans, "uuid4", _uuid4),
        mock.patch.object(threads, "_LOCKS", [_NoLock()] * threads.N_STRIPES),
    ):
        yield


@contextmanager
def _seldom_collecting() -> Iterator[None]:
    """Look for garbage in cycles a hundred times less often: it took a fifth of the time of a run."""
    usual = gc.get_threshold()
    gc.set_threshold(70_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


PROCESS = threading.local()  # each actor is a process of its own to those who ask whether it is alive
PROCESSES = itertools.count(1)
ENDED: set[int] = set()


def _heartbeat(name: str, said: Mapping[str, Any]) -> bytes:
    return json.dumps({"seen": f"process-{getattr(PROCESS, 'number', 0)}", "key": name, **said}).encode()


def _start_nothing(_: object, *__: object) -> None:
    """Leave out the thread of a heartbeat: its actor ends before the first beat is due."""


def _is_live(heartbeat: bytes) -> bool:
    number = re.search(rb'"seen": "process-(\d+)"', heartbeat)  # none in a plan that is no lease any more
    return number is not None and int(number[1]) not in ENDED


def anonymous(heartbeats: bytes) -> bytes:
    """Return a value such that of the processes whose heartbeats are in it only this is left: who is alive."""
    beat = rb'"seen": "process-\d+"'
    return re.sub(beat, lambda found: b"living" if _is_live(found.group()) else b"dead", heartbeats)


def _pause(_: float) -> None:
    """Let the other go on, instead of sleeping."""
    getattr(PROCESS, "pause", lambda: None)()


def _uuid4() -> uuid.UUID:
    """Return a name that is the same in each replay."""
    if not hasattr(PROCESS, "actor"):
        return uuid.uuid4()
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{PROCESS.actor} {next(PROCESS.names)}")


class _NoLock:
    def acquire(self, *_: Any, **__: Any) -> bool:
        return True

    def release(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
