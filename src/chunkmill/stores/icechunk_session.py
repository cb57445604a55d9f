"""Transactions of a repository of Icechunk: sessions that are packed, forked, merged, and committed.

The only module that knows how a session is serialised. Icechunk's own `Session.fork` refuses a session with changes,
in version 1: here documents are written before the chunks that tasks write. Not here: keys and values
(`chunkmill.stores.icechunk_store`).
Checked against: icechunk 1.1.21 and 2.3.0.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, cast
from uuid import uuid4
from weakref import WeakValueDictionary

from chunkmill.errors import StoreError
from chunkmill.stores.base import Changes, Store
from chunkmill.stores.memory import MemoryStore


def packed(session: Any) -> bytes:
    """Return a session with its changes as bytes; with the credentials that its storage was given."""
    data: bytes = session._session.as_bytes()  # noqa: SLF001 - as Icechunk pickles its forks
    return data


def fork_of(data: bytes) -> Any:
    """Return a fork of a session that was packed, with the same changes; nothing is requested."""
    module: Any = import_module("icechunk.session")
    return module.ForkSession(module.PySession.from_bytes(data))


@dataclass(frozen=True, slots=True)
class Place:
    """Repository, and version of it, that a store reads and commits to.

    Attributes
    ----------
    url
        For messages and locks.
    repository
        An ``icechunk.Repository``; ``None``: a session was given, or `create` makes it.
    kind, name
        ``"branch"``, ``"tag"`` or ``"snapshot"``, and its name; only a branch is written to.
    message
        Of the commits; each job has its own when ``None``.
    scratch
        Opens the store for intermediate files of jobs; the folder for temporary files when ``None``.
    create
        Makes the repository, at the first write.
    """

    url: str
    repository: Any = None
    kind: str = "branch"
    name: str = "main"
    message: str | None = None
    scratch: Callable[[], Store] | None = None
    create: Callable[[], Any] | None = None

    def read(self) -> Any:
        """Return a session for reading."""
        version = {"snapshot_id" if self.kind == "snapshot" else self.kind: self.name}
        with self.named_in_errors():
            return self.repository.readonly_session(**version)

    def write(self) -> Any:
        """Return a session for a commit."""
        if self.kind != "branch":
            reason = f"a {self.kind} of a repository of Icechunk never changes: name a branch to write to"
            raise StoreError(url=self.url, key="", reason=reason)
        with self.named_in_errors():
            return self.repository.writable_session(self.name)

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Say which version of the repository could not be opened."""
        icechunk: Any = import_module("icechunk")
        try:
            yield
        except (icechunk.IcechunkError, ValueError, TypeError) as error:
            cause = str(error).strip().splitlines()[0]
            reason = f"the {self.kind} {self.name!r} of the repository cannot be opened: {cause}"
            raise StoreError(url=self.url, key="", reason=reason) from error


@dataclass(eq=False)
class Transaction:
    """The session that the copies of a store in one process share: they read it, and write to it in a transaction.

    Attributes
    ----------
    session
        For reading; writable in a transaction. ``None`` where there is no repository yet.
    is_callers
        Whether the session was passed in, and is committed by the caller.
    is_fork
        Whether the transaction is of another process.
    seen
        What readers find, by key, for documents that were declared and are not set yet.
    before
        Documents as they were before the transaction changed them.
    base
        The session, packed, as tasks fork it: with what was declared, and few chunks.
    whole
        The same with all chunks, which tasks read.
    journal
        What jobs keep of themselves.
    """

    place: Place
    session: Any
    is_callers: bool = False
    is_fork: bool = False
    token: str = field(default_factory=lambda: uuid4().hex)
    seen: dict[str, bytes | None] = field(default_factory=dict)
    before: dict[str, bytes | None] = field(default_factory=dict)
    base: bytes | None = None
    whole: bytes | None = None
    depth: int = 0
    journal: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.lock, self.own = threading.RLock(), threading.RLock()
        self.store: Any = None if self.session is None else self.session.store
        self.pid = os.getpid()
        if not self.is_fork:
            LIVE[self.token] = self

    @property
    def is_open(self) -> bool:
        """True while there may be changes that others do not see."""
        return self.depth > 0 or (self.is_callers and not self.session.read_only)

    def use(self, session: Any) -> None:
        """Read, and in a transaction write, another session."""
        self.session, self.store = session, None if session is None else session.store
        self.seen, self.before, self.base, self.whole = {}, {}, None, None

    def begin(self) -> None:
        """Begin a transaction on what is committed now; make the repository where it is to be made."""
        if self.place.repository is None and self.place.create is not None:
            with self.place.named_in_errors():
                self.place = replace(self.place, repository=self.place.create(), create=None)
        self.use(self.place.write())

    def end(self, message: str) -> None:
        """Commit; `StoreError` where others have changed the same."""
        session = self.session
        is_new = commit(session, self.place.message or message, self.place.url, self.token)
        self.use(session if is_new else self.place.read())

    def merge(self, data: bytes) -> None:
        """Add the changes of a fork that was packed."""
        with self.lock:
            self.session.merge(fork_of(data))
            self.whole = None

    def packed(self) -> tuple[bytes, bytes]:
        """Return `base` and `whole`; the same object where they are the same."""
        with self.lock:
            if self.base is None:
                self.base = self.whole = packed(self.session)
            if self.whole is None:
                self.whole = packed(self.session)
            return self.base, self.whole


LIVE: WeakValueDictionary[str, Transaction] = WeakValueDictionary()
"""Transactions of this process, by their tokens."""


@dataclass(frozen=True, slots=True)
class SessionChanges:
    """The changes of forks of one transaction.

    Attributes
    ----------
    token
        Of the transaction: Icechunk merges forks of other snapshots, too, and loses chunks then.
    data
        A fork with these changes, packed.
    """

    token: str
    data: bytes

    def joined(self, others: Iterable[Changes]) -> SessionChanges:
        """Return the changes of several tasks as one."""
        fork = fork_of(self.data)
        for other in cast("Iterable[SessionChanges]", others):
            if other.token != self.token:
                raise _strange(other.token)
            fork.merge(fork_of(other.data))
        return SessionChanges(self.token, packed(fork))

    def apply(self) -> None:
        """Add them to the transaction.

        Raises
        ------
        StoreError
            It is not one of this process.
        """
        if (transaction := LIVE.get(self.token)) is None:
            raise _strange(self.token)
        transaction.merge(self.data)


def _strange(token: str) -> StoreError:
    reason = "what a task has written belongs to a transaction that this process does not have: compute where the "
    reason += "session is, or give a repository or its url, and compute=True"
    return StoreError(url="icechunk:", key=token, reason=reason)


class TaskFork:
    """Fork that one task writes to.

    Attributes
    ----------
    token
        Of the transaction.
    session
        The fork.
    keys
        Store keys written, which the task reads from its fork.
    """

    def __init__(self, token: str, data: bytes) -> None:
        self.token = token
        self.session = fork_of(data)
        self.store = self.session.store
        self.keys = set[str]()

    def changes(self) -> SessionChanges | None:
        """Return what was written; ``None`` where that is nothing."""
        return SessionChanges(self.token, packed(self.session)) if self.keys else None


FORK: ContextVar[TaskFork | None] = ContextVar("fork", default=None)
"""Fork of the task that runs in this thread, or for which it works."""


_BY = "chunkmill-transaction"  # in the metadata of a commit, by which a later client knows that it was made


def commit(session: Any, message: str, url: str, token: str = "") -> bool:
    """Commit the changes of a session, on top of what others have committed since; return whether there were any.

    Raises
    ------
    StoreError
        Others have changed the same chunks or documents: all of them are named.
    """
    if not session.has_uncommitted_changes:
        return False
    icechunk: Any = import_module("icechunk")
    try:
        session.commit(message, {_BY: token}, rebase_with=icechunk.ConflictDetector())
    except icechunk.RebaseFailedError as error:
        shown = [_shown(each) for each in error.conflicts]
        more = f" and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
        reason = f"nothing was committed: since this began, others have changed {'; '.join(shown[:_MOST_SHOWN])}{more}"
        raise StoreError(url=url, key="", reason=f"{reason}; run it again, on what they have made") from error
    except icechunk.IcechunkError as error:
        reason = f"the commit failed: {str(error).strip().splitlines()[0]}"
        raise StoreError(url=url, key="", reason=reason) from error
    return True


_MOST_SHOWN = 20


def _shown(conflict: Any) -> str:
    kind = str(conflict.conflict_type).lower()
    chunks = conflict.conflicted_chunks
    return f"{conflict.path.strip('/')!r} ({kind}{f', chunks {chunks}' if chunks else ''})"
