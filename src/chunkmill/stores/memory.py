"""Stores in the memory of one process, and one of documents in memory over another store.

`MemoryStore` pickles by content: the other process gets a copy, to read from. Its changes would not come back: writing
to it raises `StoreError`. Use files to share values among processes, and ``memory://`` to share by url within one.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any
from weakref import WeakValueDictionary

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan, HeldInMemory, Store, check_key, check_prefix, digest
from chunkmill.stores.wrapper import StoreWrapper


class MemoryStore(HeldInMemory):
    """Values in memory, safe among threads: private to this instance, or those of a dictionary of the caller's.

    Parameters
    ----------
    values
        ``{store key: bytes}``, or buffers of zarr-python as its own store in memory has them; what is written changes
        it.

    Examples
    --------
    >>> store = MemoryStore()
    >>> store.set("a/zarr.json", b"{}")
    >>> store.list_dir("a/")
    ['zarr.json']
    >>> value, version = store.get_versioned("a/zarr.json")
    >>> store.set_if("a/zarr.json", b"{ }", version), store.set_if("a/zarr.json", b"", version)
    (True, False)
    """

    is_remote = False
    compares_versions = True

    def __init__(self, values: MutableMapping[str, Any] | None = None) -> None:
        self.has_versions = values is None  # numbers of writes; a dictionary may be changed by others
        self._values = {} if values is None else values
        self._numbers: dict[str, int] = {}
        self.url = f"memory-store://{uuid.uuid4().hex}" if values is None else f"dict://{id(values):x}"
        self.home = self.here()
        self._n_writes = 0
        self._lock = _lock_of(self._values)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            values = {key: _bytes_of(entry) for key, entry in self._values.items()}
            state = self.__dict__ | {"_values": values, "_numbers": dict(self._numbers)}
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = _lock_of(self._values)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        versions = [] if self.has_versions else [self.get_versioned(key) for key in sorted(self._values)]
        return "chunkmill.MemoryStore", self.url, self._n_writes, versions

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        entry = self._values.get(check_key(key))
        return None if entry is None else self.cut(key, _bytes_of(entry), byte_range)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version: the number of the write, or a digest."""
        with self._lock:
            entry = self._values.get(check_key(key))
            if entry is None:
                return None, None
            value = _bytes_of(entry)
            return value, str(self._numbers[key]) if self.has_versions else digest(value)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        value = self.get(key)
        return None if value is None else len(value)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a copy of a value."""
        self.check_home(check_key(key))
        value = bytes(value)
        with self._lock:
            self._put(key, value)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store `value`, or delete, if the key still has `version`."""
        self.check_home(check_key(key))
        value = None if value is None else bytes(value)
        with self._lock:
            if self.get_versioned(key)[1] != version:
                return False
            self._put(key, value)
            return True

    def delete(self, key: str) -> None:
        """Delete a key."""
        self.check_home(check_key(key))
        with self._lock:
            self._put(key, None)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        with self._lock:
            for key in self._keys(prefix):
                self.check_home(check_key(key))
                self._put(key, None)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield the keys that start with `prefix`, as they are at the first of them."""
        with self._lock:
            keys = self._keys(prefix)
        yield from keys

    def _put(self, key: str, value: bytes | None) -> None:
        self._n_writes += 1
        if value is None:
            self._values.pop(key, None)
            self._numbers.pop(key, None)
            return
        self._numbers[key] = self._n_writes
        kind = type(next(iter(self._values.values()), value))
        self._values[key] = kind.from_bytes(value) if hasattr(kind, "from_bytes") and kind is not int else value

    def _keys(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        return [key for key in self._values if key.startswith(prefix)]

    def can_replace(self, prefix: str) -> bool:
        """Return whether there is something below `prefix` that `replace_prefix` can replace."""
        return bool(self._keys(prefix))

    def replace_prefix(self, prefix: str, staged: str, proof: str) -> None:
        """Replace all below `prefix` by what is below `staged`, the key `proof` included; once."""
        self.check_home(check_key(prefix + proof))
        with self._lock:
            new = {key[len(staged) :]: self._values[key] for key in self._keys(staged)}
            is_done = prefix + proof in self._values
            if not is_done and not new.get(proof):
                reason = "there is nothing to put in place: others have ended this"
                raise StoreError(url=self.url, key=staged, reason=reason)
            for name in new:
                self._put(staged + name, None)
            if is_done:
                return
            for key in self._keys(prefix):
                self._put(key, None)
            for name, value in new.items():
                self._put(prefix + name, value)


def _bytes_of(entry: Any) -> bytes:
    """Return a value of a dictionary, of which zarr-python makes buffers."""
    return bytes(entry.to_bytes()) if hasattr(entry, "to_bytes") else bytes(entry)


_LOCKS: WeakValueDictionary[int, Any] = WeakValueDictionary()  # id of a dictionary -> one lock for all its stores


def _lock_of(values: Any) -> Any:
    return _LOCKS.setdefault(id(values), threading.RLock())


class OverlayStore(StoreWrapper):
    """A store whose metadata documents are known already: from consolidated metadata.

    Keys whose last segment is in `answers` are answered from `documents` alone, without a request: such a key that is
    not in `documents` is absent. All other keys are answered by the store below. `list_dir` lists the documents.

    Writing such a key writes below, and from then on that key is answered from below, as are listings.

    Documents in memory may be stale. Where listings are cheap (`lists_below`), the names are those that the store below
    has, so that nodes which were made or deleted since are not missed, and all documents are read from below; those in
    memory only answer for what is not there, and not for other documents of a node that is there.

    Parameters
    ----------
    documents
        Full store keys and their bytes.
    below
        The store of everything else.
    answers
        Last segments of the keys that are answered here: ``{".zarray", ".zgroup", ".zattrs"}``.
    is_demanded
        Whether the caller asked for these documents, stale or not: jobs use them then, too.
    lists_below
        Whether names are compared with the store below.
    entries
        Those of `answers` that make a node: where one is below, documents of its folder that are not are absent.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = OverlayStore({"a/.zarray": b"{}"}, MemoryStore(), frozenset({".zarray", ".zattrs"}))
    >>> store.get("a/.zarray"), store.get("a/.zattrs"), store.list_dir("")
    (b'{}', None, ['a/'])
    """

    def __init__(
        self,
        documents: Mapping[str, bytes],
        below: Store,
        answers: frozenset[str],
        *,
        is_demanded: bool = False,
        lists_below: bool = False,
        entries: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(below)
        self._documents = dict(documents)
        self._answers = answers
        self._entries = entries
        self.is_demanded = is_demanded
        self._lists_below = lists_below
        self._written: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_children"}

    @property
    def uncached(self) -> Store:
        """The store below, without documents held in memory."""
        return self.below.uncached

    def after_stored(self, *, without: str | None = None) -> Store:
        """Return a store in which the documents answer for no more than what is not in the store below.

        Parameters
        ----------
        without
            Prefix of keys that they do not answer for: of what was deleted.
        """
        if not self.can_list:
            return self.uncached
        documents = {k: v for k, v in self._documents.items() if without is None or not k.startswith(without)}
        return OverlayStore(documents, self.below, self._answers, lists_below=True, entries=self._entries)

    def remembered(self, prefix: str) -> Mapping[str, bytes]:
        """Return the documents in memory whose keys start with `prefix`."""
        return {key: value for key, value in self._documents.items() if key.startswith(prefix)}

    def _answers_to(self, key: str) -> bool:
        folder, slash, name = key.rpartition("/")
        is_own = name in self._answers and key not in self._written
        return is_own and (not self._lists_below or folder + slash in self._children)

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it: a document from memory, all else from the store below."""
        if not self._answers_to(key):
            return self.below.get(key, byte_range)
        if self._lists_below and (value := self.below.get(key, byte_range)) is not None:
            return value
        return self._document(key, byte_range)

    def _document(self, key: str, byte_range: ByteRange | None) -> bytes | None:
        """Return a document from memory, or a range of it."""
        value = self._documents.get(key)
        if value is not None and self._lists_below and self._has_node_below(key):
            return None
        return None if value is None else self.cut(key, value, byte_range)

    def _has_node_below(self, key: str) -> bool:
        """Return whether another document below makes a node where `key` is one: the one in memory is out of date."""
        folder, slash, own = key.rpartition("/")
        return any(self.below.get(f"{folder}{slash}{name}") is not None for name in self._entries if name != own)

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order; those from below concurrently, as the store below does."""
        asked: deque[ByteSpan | None] = deque()

        def wanted() -> Iterator[ByteSpan | None]:
            for span in spans:
                asked.append(span)
                yield None if span is None or (not self._lists_below and self._answers_to(span.key)) else span

        for value in self.below.get_many(wanted()):
            span = asked.popleft()
            is_missed = value is None and span is not None and self._answers_to(span.key)
            yield self._document(span.key, span.byte_range) if span is not None and is_missed else value

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        if not self._answers_to(key):
            return self.below.size(key)
        value = self.get(key)
        return None if value is None else len(value)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value below; its document here, if any, is forgotten."""
        self.below.set(key, value)
        self._forget(key)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store a value below if the key has that version there."""
        stored = self.below.set_if(key, value, version)
        self._forget(key)
        return stored

    def delete(self, key: str) -> None:
        """Delete a key below, and its document here."""
        self.below.delete(key)
        self._forget(key)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`, below and here."""
        self.below.delete_prefix(prefix)
        for key in [key for key in self._documents if key.startswith(prefix)]:
            self._forget(key)

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names that the documents imply, without a request; asks below after a write.

        With `lists_below` those that are below, unless the documents of the folder are only here.
        """
        check_prefix(prefix)
        if self._written and not self._lists_below:
            return self.below.list_dir(prefix)
        known = self._children.get(prefix, ())
        if not self._lists_below:
            return list(known)
        listed = self.below.list_dir(prefix)
        is_documented = not self._answers.isdisjoint(listed)
        return listed if is_documented or not known else sorted({*known, *listed})

    @functools.cached_property
    def _children(self) -> dict[str, tuple[str, ...]]:
        names: dict[str, set[str]] = {}
        for key in self._documents:
            above, slash, name = key.rpartition("/")
            while name not in (known := names.setdefault(above + slash, set())):
                known.add(name)
                if above:
                    above, slash, folder = above.rpartition("/")
                    name = f"{folder}/"
        same: dict[tuple[str, ...], tuple[str, ...]] = {}  # most folders have names that others have, too
        return {f: same.setdefault(each, each) for f, known in names.items() for each in [tuple(sorted(known))]}

    def _forget(self, key: str) -> None:
        if key.rpartition("/")[2] in self._answers:
            self._documents.pop(key, None)
            self._written.add(key)
            self.__dict__.pop("_children", None)
