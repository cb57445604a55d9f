"""Documents that a job publishes below its topmost node: withdrawn when the job is discarded before that is visible.

A client that dies while it publishes leaves nodes below a group that is not there yet. A job that begins again, with
another plan, would write chunks of its own under their keys. So the journal names these documents before the first of
them is written. Not here: publishing (`chunkmill.nodes.documents`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import google_crc32c

from chunkmill.array.threads import BackgroundCalls
from chunkmill.journal.journal_names import journal_prefix
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store

__all__ = ["note_published", "withdraw_published"]

_BELOW = "below.json"


def note_published(store: Store, path: str, top: str, documents: Mapping[str, bytes]) -> None:
    """Note in the journal of the job at `path` what it is about to publish below, before the key `top`."""
    known = {key: [len(value), google_crc32c.value(value)] for key, value in documents.items()}
    store.set(f"{journal_prefix(path)}{_BELOW}", json.dumps([top, known]).encode())


def withdraw_published(store: Store, path: str) -> None:
    """Delete what an interrupted job published below `path`, unless there is a node at `path` since.

    What others have changed is theirs, and stays.
    """
    value = store.get(f"{journal_prefix(path)}{_BELOW}")
    try:
        top, known = json.loads(value or b"")
    except (ValueError, TypeError, RecursionError):
        # absent, or damaged: discarding must not fail, and what is there is not replaced
        return
    if store.size(top) is not None:
        return

    def withdraw(key: str) -> None:
        value, version = store.get_versioned(key)
        if value is not None and [len(value), google_crc32c.value(value)] == known[key]:
            store.set_if(key, None, version)

    with BackgroundCalls(REQUESTS_AT_ONCE if store.is_remote else 0) as calls:
        for key in known:
            calls.call(withdraw, key)
