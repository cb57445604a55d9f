"""Read nodes while others may replace them by copies: one gets the old node, the new one, or an error that says so.

Where a store cannot rename, the documents of the old node are deleted before those of the new one are written. Who
misses a document looks whether that is under way; a node without the document of its attributes, which may be missed
just then or not be there at all, is looked at twice. Not here: the exchange itself (`chunkmill.journal.exchange`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import TypeVar

from chunkmill.errors import NodeBeingReplaced
from chunkmill.formats.base import Format
from chunkmill.hints import Hint
from chunkmill.journal.unfinished_jobs import exchanged_now
from chunkmill.nodes.documents import Documents, fetch, present
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import can_rename, uncached

__all__ = ["is_torn", "settled"]

T = TypeVar("T")


def settled(store: Store, read: Callable[[], tuple[T, Collection[str] | None]]) -> T:
    """Return what `read` does, and is the same when nothing is being replaced where it misses documents.

    It returns, too, the paths where it misses some; ``None`` where it has read of two nodes, and has to read again.
    Without any, no request is made.

    Raises
    ------
    NodeBeingReplaced
        A node at one of the paths, or above, is being replaced, and is not after a moment.
    """
    before: Collection[str] | None = None
    while True:
        found, missing = read()
        if missing is None:
            continue
        if not missing or missing == before:
            return found
        job = exchanged_now(store, missing)
        if job is not None:
            hint = "it is stored whole beside its place: wait until it is done"
            if not job.is_running:
                hint = Hint("its client died: check the store with {} to finish it", ("repair", True))
            raise NodeBeingReplaced(url=store.url, path=job.path, job=str(job), hint=hint)
        before = missing  # an exchange may have ended since they were missed


def is_torn(store: Store, documents_format: Format, paths: Iterable[str], documents: Documents) -> bool:
    """Return whether nodes without attributes among `documents` were read while they were being replaced.

    The document of a node is deleted before its attributes, and written after them. So where it is there after these
    were missed, they are those of the same node from then on: two requests for each node without, none for others, nor
    where the store renames.
    """
    if len(documents_format.group_keys("")) == 1:
        return False
    below = uncached(store)
    missed = {
        entry: absent
        for path in paths
        for entry, *others in (documents_format.array_keys(path), documents_format.group_keys(path))
        if documents.get(entry) is not None
        and (absent := [key for key in others if documents.get(key) is None])
        and not can_rename(below, documents_format.chunk_prefix(path))
    }
    if not missed:
        return False
    if len(present(fetch(store, missed))) < len(missed):
        return True
    return bool(present(fetch(store, chain.from_iterable(missed.values()))))
