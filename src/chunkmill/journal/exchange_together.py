"""Nodes that one job replaces together: when the first one is decided, whoever finishes the job exchanges the others.

Before the first one is put in its place, all are stored whole, and a record in the journal names the others: where each
is staged, where it belongs, and what was seen of the old one. Not here: how one node is exchanged
(`chunkmill.journal.exchange`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from chunkmill.errors import StoreError
from chunkmill.journal import plan_document
from chunkmill.journal.exchange import (
    Exchange,
    check_texts,
    complete_exchange,
    delete_note,
    is_exchanging,
    is_marked,
    store_note,
    unpacked,
)
from chunkmill.journal.journal_names import journal_prefix, new_mark
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush, replace_prefix

__all__ = ["Other", "complete_others", "complete_planned", "note_others"]


@dataclass(frozen=True, slots=True)
class Other:
    """A node that is replaced together with the one that a job is named after.

    Attributes
    ----------
    path
        Path of the node.
    prefix
        Prefix below which it is stored, the old one and then the new one.
    staged
        Prefix below which the new one is stored whole until then, its documents included where the store renames.
    seen, documents
        Hashes of the old documents, and of the new ones, by store key.
    exchange
        How it is exchanged by copies; ``None`` where the store renames.
    """

    path: str
    prefix: str
    staged: str
    seen: Mapping[str, str]
    documents: Mapping[str, str]
    exchange: Exchange | None

    def is_as_seen(self, store: Store) -> bool:
        """Return whether nobody else has changed the old node's documents, those that are deleted aside."""
        found = {key: value for key in self.seen if (value := store.get(key)) is not None}
        hashes = {key: sha256(value).hexdigest() for key, value in found.items()}
        return all(hashed in {self.seen[key], self.documents.get(key)} for key, hashed in hashes.items())


def _key(path: str, run: str) -> str:
    return f"{journal_prefix(path)}together-{run}.json"


def note_others(store: Store, path: str, run: str, others: Sequence[Other]) -> None:
    """Record the nodes that take their places after the one at `path`, before that one is decided."""
    store.set(_key(path, run), json.dumps([asdict(each) for each in others]).encode())


def complete_planned(store: Store, path: str, plan: bytes) -> bool:
    """Finish what the run of a plan that is about to be discarded has decided; return whether its node is in place."""
    known = plan_document.Plan.parsed(plan)
    if known is None or known.old_prefix is None:
        return False
    is_there = complete_exchange(store, path, known.run, old_prefix=known.old_prefix)
    if is_there:
        complete_others(store, path, known.run)
    return is_there


def complete_others(store: Store, path: str, run: str) -> None:
    """Put the nodes in place that an earlier client has not; one whose documents others have changed stays."""
    for other in _others(store, _key(path, run)):
        if is_exchanging(store, other.path, run):
            complete_exchange(store, other.path, run)
        elif is_marked(store, other.staged, new_mark(run)) and other.is_as_seen(store):
            if other.exchange is None:
                replace_prefix(store, other.prefix, other.staged, new_mark(run))
            else:
                store_note(store, other.path, run, other.exchange)
                complete_exchange(store, other.path, run)
            flush(store)
        delete_note(store, other.path, run, other.prefix)


def _others(store: Store, key: str) -> list[Other]:
    value = store.get(key)
    if value is None:
        return []
    try:
        known: list[dict[str, Any]] = json.loads(value)
        for each in known:
            check_texts([each["path"], each["prefix"], each["staged"]])
            check_texts([*each["seen"].values(), *each["documents"].values()])
        return [
            Other(**{**each, "exchange": None if each["exchange"] is None else unpacked(each["exchange"])})
            for each in known
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        reason = "the record of nodes that are replaced together is damaged; the new ones are stored whole beside them"
        raise StoreError(url=store.url, key=key, reason=reason) from None
