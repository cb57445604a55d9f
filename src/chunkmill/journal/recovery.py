"""Roll back: delete what a job that is over has left in its journal, where another one may begin at any moment (P8).

Nothing is deleted by its folder, which may be the next job's by then, but by keys that were listed when the job that
had them was over: names of runs and heartbeats are parts of them, and are used once.

A client that dies while it publishes leaves nodes below a group that is not visible. A job that begins again, with
another plan, would write chunks of its own under their keys. So the journal names these documents before the first of
them is written. Not here: publishing (`chunkmill.nodes.documents`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

import google_crc32c

from chunkmill.array.threads import BackgroundCalls
from chunkmill.journal.heartbeat import end_dead
from chunkmill.journal.names import PLAN, RUNNING, TAG_PREFIX, check_own, journal_prefix
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store
from chunkmill.stores.conflicts import swap, update

__all__ = ["clear_journal", "clear_listed", "record_published", "withdraw_published"]

_BELOW = "below.json"


def clear_journal(store: Store, prefix: str, *, ended: Collection[str] = ()) -> None:
    """Delete all below the prefix of a journal unless there is a plan; `ended`, as of `clear_listed`."""
    keys = list(store.list_prefix(prefix))
    if store.get(f"{prefix}{PLAN}") is None:  # after the listing: what a job that began since stores is not listed
        if f"{prefix}{PLAN}" in keys:
            swap(store, f"{prefix}{PLAN}", None, None)  # a link, which is not a plan
        clear_listed(store, prefix, keys, ended=ended)


def clear_listed(store: Store, prefix: str, keys: Iterable[str], *, ended: Collection[str] = ()) -> None:
    """Delete keys of a journal, listed before its plan was deleted or missed, and folders in which nothing is left.

    Of heartbeats those that have `ended`, and those whose clients are dead: a living one may be about to begin.
    """
    keys = [key for key in keys if key != f"{prefix}{PLAN}"]
    others = {key for key in keys if key.startswith(f"{prefix}{RUNNING}") and key not in ended}
    tags = [key for key in keys if key.rpartition("/")[2].startswith(TAG_PREFIX)]
    store.delete_many(tags)  # first: without it, nobody puts in place what is being deleted
    store.delete_many([key for key in keys if key not in others and key not in tags])
    end_dead(store, others)
    store.sweep(prefix)  # of clients that were killed while they recorded a task
    store.remove_empty_folders(prefix)
    store.remove_folder(prefix)


def record_published(store: Store, path: str, top: str, documents: Mapping[str, bytes]) -> None:
    """Record in the journal of the job at `path` what it is about to publish below, before the key `top`."""
    known = {key: [len(value), google_crc32c.value(value)] for key, value in documents.items()}
    store.set(f"{journal_prefix(path)}{_BELOW}", json.dumps([top, known]).encode())


def withdraw_published(store: Store, path: str) -> None:
    """Delete what an interrupted job published below `path`, unless there is a node at `path` since.

    What others have changed is theirs, and stays.
    """
    value = store.get(f"{journal_prefix(path)}{_BELOW}")
    try:
        top, known = json.loads(value or b"")
        check_own(path, documents=[top, *known], keys=known)
    except (ValueError, TypeError, RecursionError):
        # absent, or damaged: discarding must not fail, and no node is replaced
        return
    if store.size(top) is not None:
        return

    def withdraw(key: str) -> None:
        update(store, key, lambda there: None if _is(there, known[key]) else there)

    with BackgroundCalls(REQUESTS_AT_ONCE if store.is_remote else 0) as calls:
        for key in known:
            calls.call(withdraw, key)


def _is(value: bytes | None, known: Sequence[int]) -> bool:
    return value is not None and [len(value), google_crc32c.value(value)] == known
