"""The document that a journal's plan is: what it says of a job, and who holds a place briefly.

A brief reservation is this one document: it holds the only heartbeat of its client, and whoever meets it waits, since
it is gone after a few requests. Not here: other heartbeats (`chunkmill.journal.attempts`), what is done with plans
(`chunkmill.journal.journal`).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Self

from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.journal.attempts import any_live, is_live
from chunkmill.stores.base import Store

__all__ = [
    "LOOK_SECONDS",
    "PAUSES",
    "Plan",
    "awaited",
    "delete_plan",
    "is_dead_creation",
    "is_held_briefly",
    "is_of_run",
    "mark_over",
    "pause",
    "stands",
    "store_plan",
]

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between looks whether another writer gives up or ends; one whose requests take longer is refused as well."""

LOOK_SECONDS = 1.0
"""Seconds between looks whether another client of the same run, which does the same, has ended."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Contents of the document of a plan.

    Attributes
    ----------
    job
        Description of the job for messages.
    path
        Of the node that it writes.
    run, began
        Name of its run, and time of its beginning.
    version, fingerprint
        Of the layout of journals, and of the plan: only a job with equal ones resumes what is recorded.
    is_block_write
        True for a `to_store`, and for a reservation.
    is_reservation
        True for what only keeps other writers away while its client is alive.
    scope
        Names what it writes of the node; empty for all.
    client
        Heartbeat of a brief reservation's client; empty for all others, which have attempts.
    follows_interrupted
        Whether a brief reservation began in the place of a writer that had died.
    old_prefix
        Prefix of the keys of the node that it writes beside, which is there until it is done.
    replaced
        Store key -> hash of the documents of that node, as they were when the run began.
    over
        Whether all is done, and only the journal has to be deleted.
    """

    job: str = ""
    path: str = ""
    run: str = ""
    began: str = ""
    version: int = 0
    fingerprint: str = ""
    is_block_write: bool = False
    is_reservation: bool = False
    scope: str = ""
    client: str = ""
    follows_interrupted: bool = False
    old_prefix: str | None = None
    replaced: Mapping[str, str] = field(default_factory=dict, compare=False)
    over: bool = False
    _documents: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def beginning(cls, documents: Mapping[str, bytes], **about: Any) -> Self:
        """Return a plan that begins now, with the documents that are published when all is done, by store key."""
        began = datetime.now(UTC).isoformat(timespec="seconds")
        encoded = {key: base64.b64encode(value).decode() for key, value in documents.items()}
        return cls(began=began, _documents=encoded, **about)

    @classmethod
    def parsed(cls, value: bytes) -> Self | None:
        """Return the plan of a document; ``None`` where it is damaged."""
        try:
            known = json.loads(value)
            about: dict[str, Any] = {
                name: (str if default is None else type(default))(value)
                for name, default in _DEFAULTS.items()
                if (value := known.get(name)) is not None
            }
            return cls(_documents=dict(known.get("documents") or {}), **about)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None

    @classmethod
    def read(cls, value: bytes, job: str, key: str) -> Self:
        """Return the plan of the document at a key; `JobError`, for the job that asks, where it is damaged."""
        if (plan := cls.parsed(value)) is None:
            hint = Hint("give {} to discard it and start again", ("resume", False))
            raise JobError(job=job, reason=f"the journal at {key!r} is damaged", hint=hint)
        return plan

    def packed(self) -> bytes:
        """Return its document."""
        said = {name: value for name, default in _DEFAULTS.items() if (value := getattr(self, name)) != default}
        return json.dumps({**said, "documents": self._documents}).encode()

    @property
    def documents(self) -> dict[str, bytes]:
        """Documents to publish when all is done, by store key."""
        return {key: base64.b64decode(text) for key, text in self._documents.items()}

    def has_client(self, store: Store, attempts: Iterable[str]) -> bool:
        """Return whether a client of the job is alive, by the plan or by its attempts' objects."""
        return is_live(self.client.encode()) if self.client else any_live(store, attempts)


_DEFAULTS: dict[str, Any] = {each.name: getattr(Plan(), each.name) for each in fields(Plan) if each.name[0] != "_"}


def mark_over(store: Store, key: str, plan: bytes | None, version: str | None, run: str) -> bool | None:
    """Mark the plan of a run as over, and return whether it still is that run's; ``None`` where there is none."""
    while plan is not None:
        if not is_of_run(plan, run) or (known := Plan.parsed(plan)) is None:
            return False
        try:
            if store.set_if(key, replace(known, over=True).packed(), version):
                return True
        except OSError:  # a full disk: all is done, and the rest frees space
            store.delete(key)
            return True
        plan, version = store.get_versioned(key)
    return None


def is_of_run(plan: bytes | None, run: str) -> bool:
    """Return whether there is a plan, and it is of that run."""
    return plan is not None and f'"run": "{run}"'.encode() in plan  # as `Plan.packed` writes it


def stands(plan: bytes | None, run: str) -> bool:
    """Return whether there is a plan of that run, and it is not over: what the run writes is not in place yet."""
    known = Plan.parsed(plan) if plan is not None and is_of_run(plan, run) else None
    return known is not None and not known.over


def is_held_briefly(value: bytes) -> bool:
    """Return whether a plan is a brief reservation whose client is alive."""
    plan = Plan.parsed(value) if b'"client"' in value else None
    return plan is not None and bool(plan.client) and is_live(plan.client.encode())


def is_dead_creation(plan: Plan) -> bool:
    """Return whether a plan is of a client that died while it created a node, where nothing had been left before."""
    return bool(plan.client) and not plan.follows_interrupted and not is_live(plan.client.encode())


def awaited(store: Store, key: str) -> bytes | None:
    """Return the plan at a key, after waiting for a brief reservation to end."""
    pauses = iter(PAUSES)
    while (value := store.get(key)) is not None and is_held_briefly(value):
        if (seconds := next(pauses, None)) is None:
            break
        pause(seconds)
    return value


def store_plan(store: Store, key: str, plan: bytes, replaces: str | None) -> bool:
    """Store the plan of a run where the one of that version is, or none; return whether it is there now.

    A brief reservation is waited for. A store whose response was lost is asked again by its client, and then meets this
    very plan; another client of the same run has another fingerprint.
    """
    for _ in PAUSES:
        if store.set_if(key, plan, replaces):
            return True
        found = awaited(store, key)
        if found is not None:
            return found == plan
        if replaces is not None:
            return False
    return False


def delete_plan(store: Store, key: str, plan: bytes) -> bool:
    """Delete a plan unless there is another by now; return whether this did, or it was gone."""
    there, version = store.get_versioned(key)
    return there is None or (there == plan and store.set_if(key, None, version))


def pause(seconds: float) -> None:
    """Wait before the next look."""
    time.sleep(seconds)
