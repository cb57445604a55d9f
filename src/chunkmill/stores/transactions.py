# mypy: disable-error-code="type-abstract"
"""Transactions of stores that have them: one commit for each job, and the changes that its tasks carry back to it.

In such a store (Icechunk) nothing of a transaction is visible to others before its commit, so that neither leases nor
staging are needed. Tasks of other processes write to forks of it, whose changes come back with their results. Not here:
the one store of that kind (`chunkmill.stores.icechunk_store`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import Protocol, TypeVar, runtime_checkable

from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import find_ability, innermost

__all__ = [
    "Changes",
    "RefersToChunks",
    "Transacts",
    "changes_taken",
    "check_computed_now",
    "declare",
    "has_transactions",
    "joined",
    "one_commit",
    "referring",
    "snapshot_of",
]

T = TypeVar("T")


class Changes(Protocol):
    """Changes that a task has made in a fork of a transaction; can be pickled."""

    @property
    def data(self) -> bytes:
        """The changes as bytes."""

    def joined(self, others: Iterable[Changes]) -> Changes:
        """Return the changes of several tasks as one."""

    def apply(self) -> None:
        """Add them to the transaction, which must be of this process."""


@runtime_checkable
class RefersToChunks(Protocol):
    """A store that holds places of chunks in other files and objects, and reads them from there."""

    def refer(self, path: str, chunks: Sequence[tuple[tuple[int, ...], str, int, int]], seen: datetime) -> None:
        """Make chunks of the array at `path` virtual: each by its coords, a url, an offset and a length.

        Objects that were changed after `seen` are refused when they are read.
        """


def referring(store: Store) -> RefersToChunks | None:
    """Return the store that holds virtual chunks; ``None`` where it holds none."""
    return find_ability(store, RefersToChunks)


TakeChanges = Callable[[], Changes | None]


@runtime_checkable
class Transacts(Protocol):
    """A store whose writes become visible by a commit."""

    @property
    def commits(self) -> bool:
        """True where a transaction ends with a commit; else the caller of all of them makes it."""

    def transaction(self, message: str) -> AbstractContextManager[None]:
        """Commit what is written inside, at the end and at once; nothing of it where that fails.

        Inside another transaction of the store, it is part of that.
        """

    def declare(self, documents: Mapping[str, bytes], key: str) -> None:
        """Take the documents of an array whose chunks, as that of `key`, come first; readers find them once set."""

    def changes_taken(self) -> AbstractContextManager[TakeChanges]:
        """Write to a fork inside, and yield what returns its changes then.

        In the transaction's own process writes go to the transaction, and there are none.
        """


def has_transactions(store: Store) -> bool:
    """Return whether what is written to the store is hidden from others until a commit.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> has_transactions(MemoryStore())
    False
    """
    return find_ability(store, Transacts) is not None


@contextmanager
def one_commit(store: Store, message: str) -> Iterator[None]:
    """Make one commit of all that is written inside, if the store has commits."""
    own = find_ability(store, Transacts)
    if own is None:
        yield
        return
    with own.transaction(message):
        yield


def declare(store: Store, documents: Mapping[str, bytes], key: str) -> None:
    """Tell the store of an array whose chunks will be written next, if it must know it before.

    Parameters
    ----------
    documents
        Of the array, by store key; they are hidden until they are set.
    key
        Store key of a chunk.
    """
    if (own := find_ability(store, Transacts)) is not None:
        own.declare(documents, key)


def check_computed_now(store: Store) -> None:
    """Raise `ValueError` where a write that is computed later would miss its commit."""
    if (own := find_ability(store, Transacts)) is not None and own.commits:
        msg = f"compute=False: {store.url} is committed when this call ends: compute now, or give a session of the "
        raise ValueError(msg + "repository, and commit it when all is computed")


def _no_changes() -> None:
    return None


_NOTHING_TAKEN = nullcontext(_no_changes)  # one for all: each task enters it


def changes_taken(store: Store | None) -> AbstractContextManager[TakeChanges]:
    """Write as a task of a transaction inside (see `Transacts.changes_taken`); other stores yield no changes."""
    own = None if store is None else find_ability(store, Transacts)
    return _NOTHING_TAKEN if own is None else own.changes_taken()


def joined(changes: Iterable[Changes | None]) -> Changes | None:
    """Return the changes of several tasks as one; ``None`` where there are none."""
    found = [each for each in changes if each is not None]
    return found[0].joined(found[1:]) if len(found) > 1 else found[0] if found else None


def snapshot_of(store: Store) -> str | None:
    """Return what tells states of a store apart that it reads at one moment for ever (attribute `snapshot`)."""
    found: str | None = getattr(innermost(store), "snapshot", None)
    return found
