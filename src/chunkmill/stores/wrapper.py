"""Stores that wrap another one: they count, record versions, ask about writes, know absent keys, or remember reads.

`GuardedStore` is for tasks that may outlive their job: a worker that was suspended, or cut from the network, carries on
where it stopped. It replaces only values that it has seen: between its question and its write nothing can be asked
again, and there the version decides, where the store compares versions: a value that came in between stays (P3, P10).

Not here: what is done about a change (`chunkmill.journal.records`), and what answers guards
(`chunkmill.runtime.cancellation`, `chunkmill.array.staleness`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Protocol, TypeVar, cast

from chunkmill.stores.base import ByteRange, ByteSpan, GetsMany, ReadOnly, Store
from chunkmill.stores.conflicts import update


class _PassedOn:
    """Member of a wrapper that is the one of the store below."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: StoreWrapper | None, owner: type) -> Any:
        return self if wrapper is None else getattr(wrapper.below, self._name)


M = TypeVar("M", bound=Callable[..., Any])


def _passed_on(method: M) -> M:
    """Return what passes on to the store below, typed as a method of `Store` is."""
    return cast("M", _PassedOn(method.__name__))


class StoreWrapper(Store):
    """Store that passes every call on to the store `below`.

    Except those that other calls make up, which a wrapper may have changed: parts are set and arrays read as values,
    many keys deleted one by one. A wrapper has no versions of what is read, and no documents in memory, but its own.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = StoreWrapper(MemoryStore())
    >>> store.set("a", b"1"), store.get("a"), store.below.get("a")
    (None, b'1', b'1')
    """

    def __init__(self, below: Store) -> None:
        self.below = below
        self.url = below.url
        self.is_remote = below.is_remote

    get = _passed_on(Store.get)
    size = _passed_on(Store.size)
    set = _passed_on(Store.set)
    delete = _passed_on(Store.delete)
    delete_prefix = _passed_on(Store.delete_prefix)
    list_prefix = _passed_on(Store.list_prefix)


for _name in (
    *(
        "innermost",
        "scratch",
        "compares_versions",
        "replaces_atomically",
        "can_list",
        "deletes_conditionally",
        "is_archive",
    ),
    *("get_many", "get_versioned", "set_if", "list_dir"),
    *("lists_at_once", "list_sizes", "explain_absence", "flush", "can_sync", "sync", "sweep"),
    *("has_folders", "remove_folder", "is_link", "can_replace", "replace_prefix"),
    *("has_transactions", "commits", "snapshot", "transaction", "declare", "changes_taken"),
    *("can_refer", "refer"),
):
    setattr(StoreWrapper, _name, _PassedOn(_name))


class ListedStore(StoreWrapper):
    """Wrap `below` for reading values: of keys that are not `listed`, none is asked for.

    Documents are read from the `uncached` store.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> store.set("a", b"1"), store.set("b", b"2")
    (None, None)
    >>> ListedStore(store, {"a", "c"}).get("a"), ListedStore(store, {"a", "c"}).get("b")
    (b'1', None)
    """

    def __init__(self, below: Store, listed: AbstractSet[str]) -> None:
        super().__init__(below)
        self.listed = listed

    @property
    def uncached(self) -> Store:
        """The store below, without documents held in memory: it asks for every key."""
        return self.below.uncached

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        return self.below.get(key, byte_range) if key in self.listed else None

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        return self.below.get_many(None if span is None or span.key not in self.listed else span for span in spans)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version."""
        return self.below.get_versioned(key) if key in self.listed else (None, None)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        return self.below.size(key) if key in self.listed else None


class AbsencesNoted(GetsMany, StoreWrapper):
    """Wrap `below` for reading; keys that were asked for and do not exist are in `absent`.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = AbsencesNoted(MemoryStore())
    >>> store.get("a"), store.absent
    (None, {'a'})
    """

    def __init__(self, below: Store) -> None:
        super().__init__(below)
        self.absent: set[str] = set()

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        asked = list(spans)
        values = self.below.get_many(asked)
        for span in asked:
            value = next(values)
            if value is None and span is not None:
                self.absent.add(span.key)
            yield value
            del value  # before the next one is fetched, so that it gets the same memory


def listed_keys(store: Store) -> AbstractSet[str] | None:
    """Return the keys that a `ListedStore` asks for; ``None`` of other stores, which ask for all."""
    return store.listed if isinstance(store, ListedStore) else None


def digest_of(versions: Mapping[str, str]) -> int:
    """Return 64 bits that tell keys and versions from others: the sum of their hashes, so that parts add up.

    Examples
    --------
    >>> both = digest_of({"a/0": "1", "a/1": "1"})
    >>> both == (digest_of({"a/0": "1"}) + digest_of({"a/1": "1"})) % 2**64, both == digest_of({"a/0": "1", "a/1": "2"})
    (True, False)
    """
    texts = (f"{key} {version}".encode(errors="surrogatepass") for key, version in versions.items())
    return sum(int.from_bytes(blake2b(text, digest_size=8).digest(), "big") for text in texts) % 2**64


@dataclass(slots=True)
class Meter:
    """Counts of the requests that one task makes to its stores.

    Attributes
    ----------
    writes
        Store key -> size in bytes of the value that was set last; ``None`` for a key that was deleted.
    reads
        Store key -> version of the value that was read; ``None`` where a store that was read has none.

    Examples
    --------
    >>> meter = Meter()
    >>> meter.record_read("a/0", "1"), meter.record_read("a/0", "2"), meter.digest() == digest_of({"a/0": "2"})
    (None, None, False)
    """

    n_requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    writes: dict[str, int | None] = field(default_factory=dict)
    reads: dict[str, str] | None = field(default_factory=dict)

    def record_read(self, key: str, version: str) -> None:
        """Record a version; two of one key, which was replaced between, are a third that the value never had."""
        if self.reads is not None and self.reads.setdefault(key, version) != version:
            self.reads[key] = ""

    def digest(self) -> int | None:
        """Return the digest of the versions of what was read."""
        return None if self.reads is None else digest_of(self.reads)

    def counts(self) -> dict[str, int]:
        """Return the numbers by the names that reports use."""
        return {"n_requests": self.n_requests, "bytes_read": self.bytes_read, "bytes_written": self.bytes_written}


class MeteredStore(StoreWrapper):
    """Wrap `store`, counting in `meter`.

    For one task, and the threads that store values for it while it makes the next ones.

    Parameters
    ----------
    is_source
        Whether the versions of what is read are recorded in `meter`.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> meter = Meter()
    >>> MeteredStore(MemoryStore(), meter).set("a", b"123456789")
    >>> meter.n_requests, meter.bytes_written, meter.writes
    (1, 9, {'a': 9})
    """

    def __init__(self, store: Store, meter: Meter, *, is_source: bool = False) -> None:
        super().__init__(store)
        self.meter = meter
        self._lock = threading.Lock()
        if is_source and not store.has_versions:
            meter.reads = None
        self._record_read = meter.record_read if is_source and meter.reads is not None else None

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        self._asked()
        below, record = self.below, self._record_read
        data = below.get(key, byte_range) if record is None else below.get_noting(key, byte_range, record)
        self.meter.bytes_read += 0 if data is None else len(data)
        return data

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        asked = list(spans)
        self._asked(sum(span is not None for span in asked))
        below, record = self.below, self._record_read
        for data in below.get_many(asked) if record is None else below.get_many_noting(asked, record):
            self.meter.bytes_read += 0 if data is None else len(data)
            yield data
            del data  # before the next one is fetched, so that it gets the same memory

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version."""
        self._asked()
        data, version = self.below.get_versioned(key)
        self.meter.bytes_read += 0 if data is None else len(data)
        return data, version

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value."""
        self.below.set(key, value)
        self._record(key, memoryview(value).nbytes)

    def set_parts(self, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Store the joined parts, each written as it comes where the store can."""
        size = 0

        def counted() -> Iterator[bytes | bytearray | memoryview]:
            nonlocal size
            for part in parts:
                size += memoryview(part).nbytes
                yield part
                del part  # before the next one is made, so that it gets the same memory

        self.below.set_parts(key, counted())
        self._record(key, size)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store a value (delete, when ``None``) if the key still has `version`."""
        stored = self.below.set_if(key, value, version)
        if stored:
            self._record(key, None if value is None else memoryview(value).nbytes)
        return stored

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        self._asked()
        return self.below.size(key)

    def delete(self, key: str) -> None:
        """Delete a key."""
        self.below.delete(key)
        self._record(key, None)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        self._asked()
        self.below.delete_prefix(prefix)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        self._asked()
        return self.below.list_prefix(prefix)

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        self._asked()
        return self.below.list_dir(prefix)

    def _record(self, key: str, written: int | None) -> None:
        with self._lock:
            self.meter.n_requests += 1
            self.meter.bytes_written += written or 0
            self.meter.writes[key] = written

    def _asked(self, n_requests: int = 1) -> None:
        with self._lock:
            self.meter.n_requests += n_requests


# Object stores take larger values in many requests (S3 at most 5 GiB in one), and compare no version then
_LARGEST_COMPARED = 64 << 20


class Guard(Protocol):
    """Question whether the calling task may still write."""

    def __call__(self, *, now: bool = False) -> None:
        """Raise where it may not; an answer of a second ago will do, unless `now`."""


write_guard: ContextVar[Guard | None] = ContextVar("write_guard", default=None)
"""Guard of the task that runs in this thread."""


def guarded(store: Store) -> Store:
    """Return the store as the task that runs in this thread may write to it, in all its threads."""
    guard = write_guard.get()
    return store if guard is None else GuardedStore(store, guard)


class GuardedStore(StoreWrapper):
    """`store`, for the writes of one task.

    A value is created where there is none. Where there is one, its version is looked up, `guard` is asked again, and
    the value replaced if it still has that version. From then on versions are looked up first, since this target is no
    new one. Values that are written in parts are not compared, since they may
    be too large for memory; neither are large ones in remote stores.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = GuardedStore(MemoryStore(), lambda *, now=False: None)
    >>> store.set("a", b"1"), store.set("a", b"2"), store.get("a")
    (None, None, b'2')
    """

    def __init__(self, store: Store, guard: Guard) -> None:
        super().__init__(store)
        self._guard = guard
        self._meets_values = False

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value."""
        large = self.is_remote and memoryview(value).nbytes > _LARGEST_COMPARED
        if large or not self.compares_versions:
            self._guard()
            self.below.set(key, value)
            return
        self._update(key, memoryview(value), self.below.get_versioned(key) if self._meets_values else (None, None))

    def set_parts(self, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Store the joined parts, each written as it comes where the store can."""

        def allowed() -> Iterator[bytes | bytearray | memoryview]:
            for part in parts:
                self._guard()
                yield part
                del part  # before the next one is made, so that it gets the same memory
            self._guard(now=True)  # the store publishes the value when there are no more parts

        self.below.set_parts(key, allowed())

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store a value (delete, when ``None``) if the key still has `version`."""
        self._guard()
        return self.below.set_if(key, value, version)

    def delete(self, key: str) -> None:
        """Delete a key."""
        if not self.compares_versions:
            self._guard()
            self.below.delete(key)
            return
        self._update(key, None, self.below.get_versioned(key))

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        self._guard()
        self.below.delete_prefix(prefix)

    def _update(self, key: str, value: memoryview | None, seen: tuple[bytes | None, str | None]) -> None:
        """Store, or delete, while the key has the version that was seen; ask the guard before each try."""
        n_tries = 0

        def allowed(_: bytes | None) -> Any:
            nonlocal n_tries
            self._guard(now=n_tries > 0)
            self._meets_values |= n_tries > 0
            n_tries += 1
            return value

        update(self.below, key, allowed, seen=seen)


class AsksAboutChunks(StoreWrapper):
    """`store`, which calls `ask` before a part of a chunk is written that others may have changed: it may raise.

    Remote stores: when the store has refused to replace a value. Others, whose requests take no time: between reading
    a value and replacing it.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = AsksAboutChunks(MemoryStore(), lambda: print("whose chunks are these?"))
    >>> store.get_versioned("a")
    whose chunks are these?
    (None, None)
    """

    def __init__(self, store: Store, ask: Callable[[], None]) -> None:
        super().__init__(store)
        self._ask = ask

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return the stored bytes and their version, after which others' changes are refused."""
        found = self.below.get_versioned(key)
        if not self.is_remote:
            self._ask()
        return found

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store a value (delete, when ``None``) if the key still has `version`."""
        is_stored = self.below.set_if(key, value, version)
        if self.is_remote and not is_stored:
            self._ask()
        return is_stored


class RememberedReads(ReadOnly, GetsMany, StoreWrapper):
    """Wrap `store` for reading: values, absences and listings are kept until `forget`.

    A range of a value that was returned whole is cut from it. For the reads of one thread.

    Parameters
    ----------
    listings_answer
        Whether a key is absent when its folder was listed and does not name it. Without, each key is asked for.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> store.set("a", b"123456")
    >>> reads = RememberedReads(store)
    >>> reads.get("a"), store.delete("a"), reads.get("a", ByteRange(2, 3)), reads.any_present
    (b'123456', None, b'345', True)
    """

    read_only_reason = "this store remembers what it has read, and is not written to"

    def __init__(self, store: Store, *, listings_answer: bool = False) -> None:
        super().__init__(store)
        self._values: dict[ByteSpan, bytes | None] = {}
        self._listed: dict[str, list[str]] = {}
        self._listings_answer = listings_answer

    @property
    def any_present(self) -> bool:
        """True if any value that was asked for exists."""
        return any(value is not None for value in self._values.values())

    @property
    def absent(self) -> frozenset[str]:
        """Keys that were asked for and do not exist."""
        return frozenset(span.key for span, value in self._values.items() if value is None)

    def forget(self) -> None:
        """Forget all values and listings."""
        self._values.clear()
        self._listed.clear()

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        asked = list(spans)
        missing = list(dict.fromkeys(span for span in asked if span is not None and not self._knows(span)))
        pending, found = iter(missing), self.below.get_many(missing)
        for span in asked:
            while span is not None and not self._knows(span):
                self._values[next(pending)] = next(found)
            yield None if span is None else self._known(span)

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        if prefix not in self._listed:
            self._listed[prefix] = self.below.list_dir(prefix)
        return list(self._listed[prefix])

    def _knows(self, span: ByteSpan) -> bool:
        return span in self._values or ByteSpan(span.key) in self._values or self._is_unlisted(span.key)

    def _is_unlisted(self, key: str) -> bool:
        folder, slash, name = key.rpartition("/")
        return self._listings_answer and name not in self._listed.get(folder + slash, (name,))

    def _known(self, span: ByteSpan) -> bytes | None:
        if self._is_unlisted(span.key):
            return None
        if span in self._values:
            return self._values[span]
        value = self._values[ByteSpan(span.key)]
        return None if value is None else self.cut(span.key, value, span.byte_range)
