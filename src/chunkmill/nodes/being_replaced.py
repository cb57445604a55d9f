"""Read nodes while others may replace them by copies: one gets the old node, the new one, or an error that says so.

Where a store cannot rename, the documents of the old node are deleted before those of the new one are written. Who
misses a document looks whether that is under way. Not here: the exchange itself (`chunkmill.runtime.exchange`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from chunkmill.errors import NodeBeingReplaced
from chunkmill.hints import Hint
from chunkmill.runtime.unfinished_jobs import exchanged_now
from chunkmill.stores.base import Store

__all__ = ["settled"]

T = TypeVar("T")


def settled(store: Store, read: Callable[[], tuple[T, Collection[str]]]) -> T:
    """Return what `read` does, and is the same when nothing is being replaced where it misses documents.

    It returns, too, the paths where it misses some. Without any, no request is made.

    Raises
    ------
    NodeBeingReplaced
        A node at one of the paths, or above, is being replaced, and is not after a moment.
    """
    before: Collection[str] | None = None
    while True:
        found, missing = read()
        if not missing or missing == before:
            return found
        job = exchanged_now(store, missing)
        if job is not None:
            hint = "it is stored whole beside its place: wait until it is done"
            if not job.is_running:
                hint = Hint("its client died: check the store with {} to finish it", ("repair", True))
            raise NodeBeingReplaced(url=store.url, path=job.path, job=str(job), hint=hint)
        before = missing  # an exchange may have ended since they were missed
