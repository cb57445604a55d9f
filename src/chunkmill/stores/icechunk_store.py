"""Store over a repository of Icechunk, or a session of one: what is written becomes one commit.

Keys of Zarr v3 are the session's. Keys of jobs, which Icechunk refuses, stay in memory: a job that was killed has
changed nothing, and begins again (P7). In a transaction all that this process writes goes to one session; tasks write
to forks of it, each its own, and what they have written is merged before the commit. Not here: how sessions are forked
and committed (`chunkmill.stores.icechunk_session`), urls and credentials (`chunkmill.stores.icechunk`).
Checked against: icechunk 1.1.21 and 2.3.0.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from typing import Any

from chunkmill.errors import StoreError, UnsupportedFeature
from chunkmill.stores import icechunk_session as sessions
from chunkmill.stores.base import ByteRange, Store, check_key, check_prefix
from chunkmill.stores.icechunk_session import FORK, LIVE, Place, SessionChanges, TaskFork, Transaction
from chunkmill.stores.local import JOURNAL, LocalStore
from chunkmill.stores.zarr_python import ZarrPythonStore

_ZARR_3_KEY = re.compile(r"(?:.+/)?(?:zarr\.json|c(?:/\d+)*)")
_DOCUMENT = re.compile(r"(?:.+/)?zarr\.json")
_CHUNKS = re.compile(r"(?:(?<=/)|^)c/(?:\d+/)*$")


class IcechunkStore(ZarrPythonStore):
    """The keys of a session of Icechunk: documents and chunks of Zarr v3.

    Nothing that is written is visible to others before the end of a transaction (`transaction`), which is one commit. A
    write outside of one is a transaction of its own. The caller of a session that was given commits it.

    Parameters
    ----------
    place
        The repository, and what is read and written of it.
    session
        An ``icechunk.Session``, of which the place is only named.
    """

    has_transactions = can_refer = is_remote = True
    _is_memory = False

    def __init__(self, place: Place, session: Any = None) -> None:
        is_callers = session is not None
        read = session if is_callers or place.repository is None else place.read()
        self._set(Transaction(place, read, is_callers=is_callers))

    def _set(self, shared: Transaction) -> None:
        self._shared = shared
        self.url = shared.place.url

    def __getstate__(self) -> dict[str, Any]:
        shared = self._shared
        state: dict[str, Any] = {"token": shared.token, "callers": shared.is_callers, "journal": shared.journal}
        state["place"] = replace(shared.place, repository=None, create=None) if shared.is_callers else shared.place
        if shared.is_fork or shared.is_open:
            base, whole = (shared.base, shared.whole) if shared.is_fork else shared.packed()
            return state | {"base": base, "whole": whole, "seen": dict(shared.seen)}
        return state | {"session": shared.session}

    def __setstate__(self, state: dict[str, Any]) -> None:
        live = LIVE.get(state["token"])
        if live is not None and live.pid == os.getpid() and "base" in state:
            self._set(live)  # in the process that it comes from
            return
        if "session" in state:
            shared = Transaction(state["place"], state["session"], is_callers=state["callers"])
        else:
            shared = Transaction(state["place"], sessions.fork_of(state["whole"]), is_fork=True, token=state["token"])
            shared.base, shared.whole, shared.seen = state["base"], state["whole"], state["seen"]
        shared.journal = state["journal"]
        self._set(shared)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IcechunkStore):
            return False
        own, its = self._shared, other._shared
        return own is its or (own.session is its.session if own.is_callers else own.place.url == its.place.url)

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def snapshot(self) -> str:
        """Name of the snapshot that is read, or of the transaction."""
        shared = self._shared
        return shared.token if shared.is_open or shared.session is None else str(shared.session.snapshot_id)

    @property
    def commits(self) -> bool:
        """True where a transaction ends with a commit: not of a session that was passed in."""
        return not self._shared.is_callers

    @property
    def below_zarr(self) -> Any:
        """The store of the session that is read."""
        return self._shared.store

    # --- transactions

    @contextmanager
    def transaction(self, message: str) -> Iterator[None]:
        """Make one commit of what is written inside; nothing is committed after an error, nor to a session given."""
        shared = self._shared
        if shared.is_fork:
            yield
            return
        if shared.is_callers and shared.session.read_only:
            raise StoreError(url=self.url, key="", reason="the session of Icechunk was opened for reading only")
        with shared.own:  # of the threads that begin one of this store, one after the other
            is_first, before = shared.depth == 0, shared.session
            if is_first and not shared.is_callers:
                shared.begin()
            shared.depth += 1
            try:
                yield
                if is_first and not shared.is_callers:
                    shared.end(message)
            except BaseException:
                if is_first and shared.is_callers:  # what was written to it stays
                    self._withdraw_declared()
                elif is_first:
                    shared.use(before)
                raise
            finally:
                shared.depth -= 1

    def _withdraw_declared(self) -> None:
        """Take documents that were declared, and never set, out of a session that is the caller's."""
        for key, value in list(self._shared.seen.items()):
            with suppress(Exception):  # the first error is raised
                self.delete(key) if value is None else self.set(key, value)

    def declare(self, documents: Mapping[str, bytes], key: str) -> None:
        """Give the session the documents of an array whose chunks are written next; readers find what was there."""
        shared = self._shared
        if not shared.is_open:
            reason = _OUTSIDE if shared.is_fork else _LATER
            raise StoreError(url=self.url, key=next(iter(documents), ""), reason=reason)
        for each in (*documents, key):
            self._check_zarr(each)
        for document, value in documents.items():
            with shared.lock:
                seen = self.get(document)
                self._put(document, value)
                shared.seen[document] = seen

    @contextmanager
    def changes_taken(self) -> Iterator[Callable[[], SessionChanges | None]]:
        """Write to a fork of the transaction inside, which returns its changes; in its own process there are none."""
        shared = self._shared
        if not shared.is_fork:
            yield lambda: None
            return
        fork = TaskFork(shared.token, shared.base or b"")
        token = FORK.set(fork)
        try:
            yield fork.changes
        finally:
            FORK.reset(token)

    def _fork(self) -> TaskFork | None:
        fork = FORK.get()
        return fork if fork is not None and fork.token == self._shared.token else None

    # --- reading

    async def _fetch(self, key: str, wanted: ByteRange | None) -> bytes | None:
        if key.startswith(JOURNAL):
            return self._shared.journal.get(key, wanted)
        return await super()._fetch(key, wanted)

    async def _ask(self, key: str, byte_request: Any) -> bytes | None:
        shared = self._shared
        if shared.store is None or _ZARR_3_KEY.fullmatch(key) is None:
            return None
        if key in shared.seen and byte_request is None:
            return shared.seen[key]
        fork = self._fork()
        below = fork.store if fork is not None and key in fork.keys else shared.store
        return await self._asked_of(below, key, byte_request)

    @staticmethod
    async def _asked_of(below: Any, key: str, byte_request: Any) -> bytes | None:
        found = await ZarrPythonStore._asked_of(below, key, byte_request)  # noqa: SLF001 - of its base class
        if found is None and _DOCUMENT.fullmatch(key):
            await below.exists(key)  # raises where the snapshot cannot be read, which `get` takes for no such document
        return found

    async def _exists(self, key: str) -> bool:
        if _ZARR_3_KEY.fullmatch(key) is None:
            return False
        seen = self._shared.seen
        if key in seen:
            return seen[key] is not None
        try:
            return await super()._exists(key)
        except Exception:
            if _DOCUMENT.fullmatch(key):
                raise
            return False  # the name of a chunk, of what is a group

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        if key.startswith(JOURNAL):
            return self._shared.journal.size(key)
        if _ZARR_3_KEY.fullmatch(check_key(key)) is None or self._shared.store is None:
            return None
        if key in self._shared.seen:
            value = self._shared.seen[key]
            return None if value is None else len(value)
        return super().size(key)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`; those of jobs only where they are asked for."""
        if check_prefix(prefix).startswith(JOURNAL):
            yield from self._shared.journal.list_prefix(prefix)
        elif self._shared.store is not None:
            seen = self._shared.seen
            yield from (key for key in self._listed(prefix) if key not in seen or seen[key] is not None)

    def _listed(self, prefix: str) -> Iterator[str]:
        """List below a node, which alone can be listed, or below those that are declared without a group above."""
        node = _CHUNKS.sub("", prefix)
        if not node or self._run(prefix, self.below_zarr.exists(f"{node}zarr.json")):
            yield from (key for key in super().list_prefix(node) if key.startswith(prefix))
            return
        for key in [key for key in self._shared.seen if key.startswith(prefix)]:
            yield from super().list_prefix(key.removesuffix("zarr.json"))

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        if check_prefix(prefix).startswith(JOURNAL):
            return self._shared.journal.list_dir(prefix)
        own = [] if prefix else self._shared.journal.list_dir("")
        if self._shared.store is None:
            return own
        return sorted({*own, *super().list_dir(prefix)} - {"zarr.json/"})  # a document that is declared, and not set

    # --- writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value."""
        if check_key(key).startswith(JOURNAL):
            self._shared.journal.set(key, value)
            return
        self._check_zarr(key)
        self._change(key, lambda: self._put(key, value))

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store `value`, or delete, if the value there has the digest `version`; atomic in this process."""
        with self._shared.lock:
            return super().set_if(key, value, version)

    def delete(self, key: str) -> None:
        """Delete a key."""
        if check_key(key).startswith(JOURNAL):
            self._shared.journal.delete(key)
        elif _ZARR_3_KEY.fullmatch(key) is not None:
            self._change(key, lambda: self._remove(key))

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        if check_prefix(prefix).startswith(JOURNAL):
            self._shared.journal.delete_prefix(prefix)
            return
        if self._shared.store is None or next(self.list_prefix(prefix), None) is None:
            return
        shared = self._shared

        def remove() -> None:
            store = shared.store
            self._run(prefix, store.delete_dir(prefix.rstrip("/")) if prefix else store.clear())
            shared.base = shared.whole = None
            shared.seen = {key: value for key, value in shared.seen.items() if not key.startswith(prefix)}

        self._change(prefix, remove)

    def _check_zarr(self, key: str) -> None:
        if _ZARR_3_KEY.fullmatch(key) is None:
            raise StoreError(url=self.url, key=key, reason=_ONLY_ZARR_3)

    def _change(self, key: str, change: Callable[[], None]) -> None:
        """Make a change in the fork of the task, in the transaction, or in one of its own."""
        shared = self._shared
        is_here = shared.pid == os.getpid()
        if self._fork() is not None or (shared.is_open and is_here and not shared.is_fork):
            change()
            return
        if shared.is_fork or not is_here:
            raise StoreError(url=self.url, key=key, reason=_OUTSIDE)
        with self.transaction(f"change {key}"):
            change()

    def _put(self, key: str, value: bytes | bytearray | memoryview) -> None:
        buffer = self._buffer(value)
        if _DOCUMENT.fullmatch(key) and key not in (before := self._shared.before):
            before[key] = self._run(key, self._asked_of(self._shared.store, key, None))
        store = self._written(key)
        try:
            self._run(key, store.set(key, buffer))
        except StoreError as error:
            grid = json.loads(bytes(value)).get("chunk_grid", {}) if _DOCUMENT.fullmatch(key) else {}
            if grid.get("name") != "rectilinear" or not import_module("icechunk").__version__.startswith("1."):
                raise
            raise UnsupportedFeature(format="Icechunk 1", feature="a rectilinear grid", key=key) from error

    def _remove(self, key: str) -> None:
        store = self._written(key)
        try:
            self._run(key, self._deleted(store, key))
        except StoreError:
            document = f"{_CHUNKS.sub('', f'{key}/')}zarr.json"
            if (longer := self._shared.before.get(document)) is None or self._fork() is not None:
                raise
            # outside of an array that has become shorter, where Icechunk keeps chunks and deletes none
            with self._shared.lock:
                shorter = self._run(document, self._asked_of(store, document, None))
                self._run(document, store.set(document, self._buffer(longer)))
                try:
                    self._run(key, self._deleted(store, key))
                finally:
                    self._run(document, store.set(document, self._buffer(shorter or longer)))

    def _written(self, key: str) -> Any:
        """Return the store of the session to write a key to, of which it is known then."""
        if (fork := self._fork()) is not None:
            fork.keys.add(key)
            return fork.store
        shared = self._shared
        with shared.lock:
            shared.whole = None
            if _DOCUMENT.fullmatch(key):
                shared.base = None
                shared.seen.pop(key, None)
        return shared.store

    def refer(self, path: str, chunks: Sequence[tuple[tuple[int, ...], str, int, int]], seen: datetime) -> None:
        """Make chunks of an array byte ranges of other objects.

        Raises
        ------
        StoreError
            No virtual chunk container of the repository has the url of one of them.
        """
        spec: Any = vars(import_module("icechunk"))["VirtualChunkSpec"]
        specs = [spec([*coords], url, start, length, None, seen) for coords, url, start, length in chunks]

        def write() -> None:
            failed = getattr(self._shared.store, _REFER)(f"/{path}", specs)
            if failed:
                url = next(url for coords, url, _, _ in chunks if [*coords] == [*failed[0]])
                raise StoreError(url=self.url, key=path, reason=_NO_CONTAINER.format(url=url))
            self._shared.whole = None

        self._change(path, write)

    def scratch(self) -> Store:
        """Return the folder, or bucket, of the repository; the folder for temporary files where it is not known."""
        opens = self._shared.place.scratch
        return LocalStore(tempfile.gettempdir()) if opens is None else opens()


_ONLY_ZARR_3 = (
    "a repository of Icechunk holds arrays and groups of Zarr v3, with chunk keys as c/0/1: give format='zarr3' and "
    "chunk_key_encoding='/'"
)
_REFER = "set_virtual_refs"  # of Icechunk's store
_NO_CONTAINER = (
    "no virtual chunk container of the repository has {url}: give it one whose url_prefix is the start of that "
    "(config.set_virtual_chunk_container), save its config, and authorize the access when you read"
)
_OUTSIDE = (
    "this process holds a copy of a transaction of another one, to which nothing returns what is written outside of "
    "its tasks: write by to_store, store, or a job, or give a repository instead of a session"
)
_LATER = (
    "what is computed later (compute=False) cannot be part of a commit that is made now: compute now, or give a "
    "session of the repository, and commit it afterwards"
)
