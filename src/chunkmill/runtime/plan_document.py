"""The document that a journal's plan is: what it says of a job, and who holds a place briefly.

A brief reservation is this one document: it holds the only heartbeat of its client, and whoever meets it waits, since
it is gone after a few requests. Not here: other heartbeats (`chunkmill.runtime.attempts`), what is done with plans
(`chunkmill.runtime.journal`).
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from chunkmill.errors import JobError
from chunkmill.hints import Hint
from chunkmill.runtime.attempts import any_live, is_live
from chunkmill.stores.base import Store

__all__ = [
    "PAUSES",
    "awaited",
    "delete_plan",
    "emit_plan",
    "has_client",
    "is_dead_creation",
    "is_held_briefly",
    "mark_over",
    "parse_plan",
]
__all__ += ["pause", "store_plan"]

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between looks whether another writer gives up or ends; one whose requests take longer is refused as well."""


def emit_plan(about: Mapping[str, Any], documents: Mapping[str, bytes]) -> bytes:
    """Return the document of a plan that begins now."""
    encoded = {key: base64.b64encode(value).decode() for key, value in documents.items()}
    began = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({**about, "began": began, "documents": encoded}).encode()


def parse_plan(value: bytes, job: str, key: str) -> dict[str, Any]:
    """Return what the plan document at a key says; `JobError`, for the job that asks, where it is damaged."""
    with suppress(ValueError):
        if isinstance(parsed := json.loads(value), dict):
            return parsed
    hint = Hint("give {} to discard it and start again", ("resume", False))
    raise JobError(job=job, reason=f"the journal at {key!r} is damaged", hint=hint)


def mark_over(store: Store, key: str, plan: bytes | None, version: str | None, run: str) -> bool | None:
    """Mark the plan of a run as over, and return whether it still is that run's; ``None`` where there is none."""
    while plan is not None:
        if not is_of_run(plan, run):
            return False
        try:
            if store.set_if(key, json.dumps({**json.loads(plan), "over": True}).encode(), version):
                return True
        except OSError:  # a full disk: all is done, and the rest frees space
            store.delete(key)
            return True
        plan, version = store.get_versioned(key)
    return None


def is_of_run(plan: bytes | None, run: str) -> bool:
    """Return whether there is a plan, and it is of that run."""
    return plan is not None and f'"run": "{run}"'.encode() in plan  # as `emit_plan` writes it


def has_client(store: Store, plan: Mapping[str, Any], attempts: Iterable[str]) -> bool:
    """Return whether a client of the job is alive, by the plan or by its attempts' objects."""
    return is_live(str(plan["client"]).encode()) if plan.get("client") else any_live(store, attempts)


def is_held_briefly(value: bytes) -> bool:
    """Return whether a plan is a brief reservation whose client is alive."""
    client = _client(value)
    return bool(client) and is_live(client.encode())


def is_dead_creation(plan: Mapping[str, Any]) -> bool:
    """Return whether a plan is of a client that died while it created a node, where nothing had been left before."""
    client = str(plan.get("client") or "")
    return bool(client) and not plan.get("follows_interrupted") and not is_live(client.encode())


def awaited(store: Store, key: str) -> bytes | None:
    """Return the plan at a key, after waiting for a brief reservation to end."""
    pauses = iter(PAUSES)
    while (value := store.get(key)) is not None and is_held_briefly(value):
        if (seconds := next(pauses, None)) is None:
            break
        pause(seconds)
    return value


def store_plan(store: Store, key: str, plan: bytes, run: str, replaces: str | None) -> bool:
    """Store the plan of a run where the one of that version is, or none; return whether it is there now.

    A brief reservation is waited for. A store whose response was lost is asked again by its client, and then meets this
    run's own plan.
    """
    for _ in PAUSES:
        if store.set_if(key, plan, replaces):
            return True
        found = awaited(store, key)
        if found is not None:
            return is_of_run(found, run)
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


def _client(value: bytes) -> str:
    with suppress(ValueError):
        if b'"client"' in value and isinstance(plan := json.loads(value), dict):
            return str(plan.get("client") or "")
    return ""
