# ruff: noqa: ARG002, B027 - what holds for stores without an ability needs no arguments
"""The class `Store`: a mapping of keys to bytes, without JSON or arrays.

Synchronous on purpose: a task is one chunk, parallelism is the scheduler's; stores with latency fetch many spans at
once inside `Store.get_many`. A store pickles to what opens it again, never to a connection, and opens nothing before
its first use in a process (so that forks before and after use both work).
"""

from __future__ import annotations

import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from chunkmill.config import setting
from chunkmill.errors import StoreError

if TYPE_CHECKING:
    from chunkmill.model.references import Reference, References

REQUESTS_AT_ONCE = 16
"""Requests that one caller makes at the same time, in threads of its own, to a store where each request waits."""

READ_ONLY = "web servers are read only: write to a folder or an object store"
LISTS_NOTHING = "web servers are read only, and list nothing: open nodes by their path, or consolidate the metadata"


RecordVersion = Callable[[str, str], None]
"""Called with the key of a value that was read, and its version."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Range of an object: `length` bytes from `start`; the last ``-start`` bytes when `start` is negative.

    ``length=None`` means to the end.
    """

    start: int
    length: int | None = None


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes under one store key: all of them, or a range."""

    key: str
    byte_range: ByteRange | None = None


class Store(ABC):
    """Keys are ``/``-separated, without a leading slash; values are bytes.

    ``None`` for a key means that the store says for certain that there is no such key. Permission errors, network
    errors, short reads, everything else raises (`OSError`, of which `StoreError` is one).

    A store of one's own defines the abstract methods, `url` and `is_remote`. What follows them are abilities that only
    some stores have, each with what holds for a store without it.

    Attributes
    ----------
    url
        Canonical url of the root: what a lock is named from, what an error names.
    is_remote
        True when a request costs latency, so that many at once are faster.
    replaces_atomically
        True when a reader gets the old or the new value, whole, while `set` replaces it.
    can_list
        False of web servers, whose keys are not listed.
    can_refer
        True when chunks may be ranges of other files and objects (`refer`).
    can_sync
        True when values survive a crash of the machine only after `sync`.
    deletes_conditionally
        True when `set_if` is atomic where it deletes, too. Where it is not, a value that others may be changing is
        replaced by an empty chunk rather than deleted.
    has_folders
        True when folders stay when nothing is in them.
    has_transactions
        True when what is written is hidden from others until a commit.
    has_versions
        True when values come with versions, by `get_noting`, that cost no further request.
    is_archive
        True of one file with one writer, to which members are appended. A node there is replaced by deleting it first
        (P6), and a job that was killed begins again (P7).
    is_demanded
        True when the caller asked for the documents that the store holds in memory, stale or not.
    lists_at_once
        True when a listing cannot stop at its first key.
    locates_values
        True when values are byte ranges of files that others can open (`locate`): an archive, a reference set.
    references, targets
        Of a reference set that the store answers from, and what opens the urls in it.
    writes_parts
        True when a value need not be in memory as a whole (`set_parts`).
    """

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"  # not the options: they hold secrets

    def failed(self, key: str, reason: str, error: BaseException | None) -> StoreError:
        """Return the error that says what failed, with the number of the system's one."""
        failed = StoreError(url=self.url, key=key, reason=reason)
        failed.errno = getattr(error, "errno", None)
        return failed

    @contextmanager
    def named_in_errors(self, key: str) -> Iterator[None]:
        """Name store and key in errors of the library below."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise self.failed(key, f"{type(error).__name__}: {error}", error) from error

    url: str
    is_remote: bool
    replaces_atomically: bool = True
    can_list: bool = True
    can_refer: bool = False
    can_sync: bool = False
    deletes_conditionally: bool = True
    has_folders: bool = False
    has_transactions: bool = False
    has_versions: bool = False
    is_archive: bool = False
    is_demanded: bool = False
    lists_at_once: bool = False
    locates_values: bool = False
    writes_parts: bool = False
    references: References | None = None
    targets: Any = None

    @property
    def compares_versions(self) -> bool:
        """True when `set_if` is atomic against other processes and machines, and against `set` and `delete`."""
        return False

    @abstractmethod
    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it.

        A range that starts past the end or runs past it raises; a suffix longer than the value gives all of it.
        """

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order (``None`` for ``None``); concurrently where requests cost latency."""
        for span in spans:
            yield None if span is None else self.get(span.key, span.byte_range)

    @abstractmethod
    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value: whole, or nothing of it becomes visible, where the store `replaces_atomically`."""

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and the version that `set_if` compares; both ``None`` when the key is absent."""
        value = self.get(key)
        return value, None if value is None else digest(value)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store `value` (delete, when ``None``) if the key still has `version` (``None``: is absent).

        Return whether it was stored. Unless the store `compares_versions`, the version is looked at before, under a
        lock of the caller's.
        """
        if self.get_versioned(key)[1] != version:
            return False
        if value is not None:
            self.set(key, value)
        elif version is not None:
            self.delete(key)
        return True

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes, without fetching it."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete a key; nothing happens when there is none."""

    @abstractmethod
    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`, which is empty or ends with ``/``."""

    @abstractmethod
    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix` (empty, or ending with ``/``), in any order."""

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`: keys as they are, common prefixes ending with ``/``."""
        split = (key[len(prefix) :].partition("/") for key in self.list_prefix(prefix))
        return sorted({name + slash for name, slash, _ in split})

    # --- views of the store

    @property
    def innermost(self) -> Store:
        """The store that holds the bytes, below those that count or answer from memory."""
        return self

    @property
    def uncached(self) -> Store:
        """The store without the documents that it answers from memory."""
        return self

    def after_stored(self, *, without: str | None = None) -> Store:
        """Return the store such that documents in memory answer for no more than what is not stored.

        Parameters
        ----------
        without
            Prefix of keys that they do not answer for: of what is written or deleted.
        """
        return self.uncached

    def remembered(self, prefix: str) -> Mapping[str, bytes]:
        """Return the documents below `prefix` that the store holds in memory."""
        return {}

    def limited_to(self, n_bytes: int) -> Store:
        """Return the store, such that it decompresses no value to more than `n_bytes` (P13).

        A small archive can hold values that decompress to a thousand times its size. Only the reader knows how long a
        value may be.
        """
        return self

    def scratch(self) -> Store:
        """Return the store for intermediate files of jobs that write here."""
        return self

    # --- reading

    def get_writable(self, key: str, byte_range: ByteRange | None = None) -> bytes | NDArray[np.uint8] | None:
        """Return a value, or a range of it, as an array of the caller's where that costs no copy."""
        return self.get(key, byte_range)

    def get_noting(self, key: str, byte_range: ByteRange | None, record: RecordVersion) -> bytes | None:
        """Return a value, or a range of it, and call `record` with its version."""
        value, version = self._noted(key, byte_range)
        if version is not None:
            record(key, version)
        return value

    def _noted(self, key: str, byte_range: ByteRange | None) -> tuple[bytes | None, str | None]:
        """Return a value, or a range of it, and the version to record."""
        value, version = self.get_versioned(key)
        return None if value is None else self.cut(key, value, byte_range), version

    def get_many_noting(self, spans: Iterable[ByteSpan | None], record: RecordVersion) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order, and call `record` with the version of each value."""
        return (None if span is None else self.get_noting(span.key, span.byte_range, record) for span in spans)

    def version(self, key: str) -> str | None:
        """Return the version of a value; ``None`` when the key is absent."""
        return self.get_versioned(key)[1]

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str]] | None:
        """Yield every key that starts with `prefix`, and its version; ``None`` where listings do not tell versions."""
        return None

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int | None]]:
        """Yield every key that starts with `prefix`, with its size where a listing tells it."""
        return ((key, None) for key in self.list_prefix(prefix))

    def is_empty(self, prefix: str, *, besides: tuple[str, ...] = ()) -> bool:
        """Return whether nothing is stored below `prefix` but names that begin as `besides` does.

        The first key of a listing tells it: of 10^9 keys no more are listed, unless the store `lists_at_once`.
        """
        names = self.list_dir(prefix) if self.lists_at_once else (k[len(prefix) :] for k in self.list_prefix(prefix))
        return all(name.startswith(besides) for name in names)

    def locate(self, key: str) -> Reference | None:
        """Return url, offset and length of a value, or its bytes; ``None`` when there is no such key."""
        return None

    def check_listed(self, prefix: str) -> None:
        """Raise `StoreError` where the store cannot list, and `ValueError` for what is not a prefix."""
        check_prefix(prefix)
        if not self.can_list:
            raise StoreError(url=self.url, key=prefix, reason=LISTS_NOTHING)

    def explain_absence(self) -> str | None:
        """Return why the store has no keys at all; ``None`` where it does not know."""
        return None

    def cut(self, key: str, value: bytes, byte_range: ByteRange | None) -> bytes:
        """Return a range of a value; without one, the value itself."""
        if byte_range is None:
            return value
        start, stop = self.bounds(key, byte_range, len(value))
        return value[start:stop]

    def bounds(self, key: str, byte_range: ByteRange | None, size: int) -> tuple[int, int]:
        """Return where a range of a value of `size` bytes, or all of it, begins and ends."""
        return (0, size) if byte_range is None else range_bounds(byte_range, size, url=self.url, key=key)

    # --- writing

    def set_parts(self, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Store the joined parts: whole, or nothing of it becomes visible, also when making a part fails."""
        self.set(key, b"".join(parts))

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete keys, of which others may delete some at the same time."""
        for key in keys:
            self.delete(key)

    def flush(self) -> None:
        """Make what was written visible to others now."""
        _Publications.n += 1

    def sync(self) -> None:
        """Make all that was written, by any process of this machine, survive a crash (P11)."""

    def sweep(self, prefix: str = "", *, remove: bool = True, recursive: bool = True) -> list[str]:
        """Delete the files that killed writers left below `prefix`, unless not `remove`; return their keys (P8)."""
        return []

    # --- folders

    def remove_folder(self, prefix: str) -> bool:
        """Remove the folder of a prefix if nothing is in it; return whether there is none left."""
        return True

    def remove_empty_folders(self, prefix: str) -> None:
        """Remove the folders below a prefix in which nothing is left."""
        for name in self.list_dir(prefix) if self.has_folders else ():
            if name.endswith("/"):
                self.remove_empty_folders(prefix + name)
                self.remove_folder(prefix + name)

    def is_link(self, prefix: str) -> bool:
        """Return whether the folder of a prefix is a symbolic link, which `delete_prefix` deletes."""
        return False

    # --- replacing what is below a prefix, at once (P6)

    def can_replace(self, prefix: str) -> bool:
        """Return whether there is something below `prefix` that `replace_prefix` can replace."""
        return False

    def replace_prefix(self, prefix: str, staged: str, proof: str) -> None:
        """Replace all below `prefix` by what is below the prefix `staged`.

        Of what is staged, the key `proof` is known by: where it is below `prefix` already, nothing is replaced, so that
        a repetition does no harm, be it after a death or by another client. Where it is in neither place, or is empty
        in what is staged, `StoreError`.
        """
        raise self._cannot("replace at once", prefix)

    def _cannot(self, what: str, key: str) -> StoreError:
        return StoreError(url=self.url, key=key, reason=f"{type(self).__name__} cannot {what}")

    # --- transactions: in such a store nothing is visible to others before its commit

    @property
    def commits(self) -> bool:
        """True where a transaction ends with a commit; else the caller of all of them makes it."""
        return False

    @property
    def snapshot(self) -> str | None:
        """Name of the state that the store reads for ever; ``None`` where it reads what is there."""
        return None

    def transaction(self, message: str) -> AbstractContextManager[None]:
        """Make one commit of all that is written inside, at the end and at once; nothing of it where that fails.

        Inside another transaction of the store, it is part of that.
        """
        return nullcontext()

    def declare(self, documents: Mapping[str, bytes], key: str) -> None:
        """Take the documents of an array whose chunks, as that of `key`, come first; readers find them once set."""

    def changes_taken(self) -> AbstractContextManager[TakeChanges]:
        """Write to a fork inside, and yield what returns its changes then.

        In the transaction's own process writes go to the transaction, and there are none.
        """
        return NOTHING_TAKEN

    def refer(self, path: str, chunks: Sequence[tuple[tuple[int, ...], str, int, int]], seen: datetime) -> None:
        """Make chunks of the array at `path` virtual: each by its coords, a url, an offset and a length.

        Objects that were changed after `seen` are refused when they are read.
        """
        raise self._cannot("hold virtual chunks", path)


class PlacedStore(Store):
    """A store that is equal to others of the same place."""

    @abstractmethod
    def identity(self) -> tuple[Any, ...]:
        """Return the place, and how it is opened: texts that are the same in every process."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacedStore) and other.identity() == self.identity()

    def __hash__(self) -> int:
        return hash(self.url)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.identity()


class GetsMany(Store):
    """A store that gets one value as it gets many."""

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        (value,) = self.get_many([ByteSpan(key, byte_range)])
        return value


_STARTED = uuid4().hex  # in another container, a process may have the same number


class HeldInMemory(Store):
    """A store whose values may be in the memory of one process, where it came by pickle to another one."""

    home: str | None = None
    """The process that has the values in memory; ``None``: every process reaches them."""

    @staticmethod
    def here() -> str:
        """Return the name of this process: no other has it, not one forked from it either."""
        return f"{_STARTED}-{os.getpid()}"

    def check_home(self, key: str = "") -> None:
        """Raise `StoreError` where the values are in the memory of another process."""
        if self.home not in {None, self.here()}:
            reason = "in the memory of another process, which does not see what is written here, nor this what was "
            reason += "written there; use files or a store that every process reaches"
            raise StoreError(url=self.url, key=key, reason=reason)


class ReadOnly(Store):
    """The methods of a store, or a wrapper, that refuses to write, and says why."""

    read_only_reason: str

    def _refuse(self, key: str) -> NoReturn:
        raise StoreError(url=self.url, key=key, reason=self.read_only_reason)

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Refuse."""
        self._refuse(check_key(key))

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Refuse."""
        self._refuse(check_key(key))

    def delete(self, key: str) -> None:
        """Refuse."""
        self._refuse(check_key(key))

    def delete_prefix(self, prefix: str) -> None:
        """Refuse."""
        self._refuse(check_prefix(prefix))


class Changes(Protocol):
    """Changes that a task has made in a fork of a transaction; can be pickled."""

    def joined(self, others: Iterable[Changes]) -> Changes:
        """Return the changes of several tasks as one."""

    def apply(self) -> None:
        """Add them to the transaction, which must be of this process."""


def joined_changes(changes: Iterable[Changes | None]) -> Changes | None:
    """Return the changes of several tasks as one; ``None`` where there are none."""
    found = [each for each in changes if each is not None]
    return found[0].joined(found[1:]) if len(found) > 1 else found[0] if found else None


TakeChanges = Callable[[], Changes | None]
NOTHING_TAKEN: AbstractContextManager[TakeChanges] = nullcontext(lambda: None)  # one for all: each task enters it


def digest(value: bytes) -> str:
    """Return the version of a value where the store has none: a digest of the content."""
    return "blake2b-" + blake2b(value, digest_size=16).hexdigest()


def is_instance(value: Any, module: str, *names: str) -> bool:
    """Return whether a value is of one of the classes of a module, which is not imported.

    Examples
    --------
    >>> is_instance("x.zarr", "zarr", "Array", "Group")
    False
    """
    classes = [getattr(sys.modules.get(module), name, None) for name in names]
    return isinstance(value, tuple(each for each in classes if each is not None))


class _Publications:
    n = 0


def n_publications() -> int:
    """Return how often this process has published documents: what it knows of others may be out of date since."""
    return _Publications.n


def fork_safe_lock() -> threading.RLock:
    """Return a lock that nobody holds in a forked process, where the thread that held it is not."""
    lock: Any = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # noqa: SLF001 - as modules of Python do
    return lock  # type: ignore[no-any-return]


def max_requests() -> int:
    """Return how many requests a process has under way at once, as users have set it."""
    return int(setting("remote-requests"))


_NO_SEGMENTS = frozenset({"", ".", ".."})


def check_key(key: str) -> str:
    """Return `key`, or raise `ValueError` when it could name something outside the store (P13).

    Examples
    --------
    >>> check_key("a/c/0/1")
    'a/c/0/1'
    """
    if not key or "\0" in key or not _NO_SEGMENTS.isdisjoint(key.split("/")):
        msg = f"{key!r} is not a store key: it has empty, '.' or '..' segments"
        raise ValueError(msg)
    return key if key.isascii() else check_text(key)


def check_text(text: str) -> str:
    """Return a url, path or key, or raise `ValueError` where it has a lone surrogate, which is not a character.

    Those that stand for bytes in names of files which are not UTF-8 may be.
    """
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} has a lone surrogate, which is not a character: correct the url or path") from None
    return text


def check_prefix(prefix: str) -> str:
    """Return `prefix`, or raise `ValueError` unless it is empty or a key followed by ``/``.

    Examples
    --------
    >>> check_prefix(""), check_prefix("a/c/")
    ('', 'a/c/')
    """
    if prefix:
        if not prefix.endswith("/"):
            msg = f"{prefix!r} is not a prefix: it does not end with '/'"
            raise ValueError(msg)
        check_key(prefix[:-1])
    return prefix


def range_bounds(byte_range: ByteRange, size: int, *, url: str, key: str) -> tuple[int, int]:
    """Return where `byte_range` begins and ends in a value of `size` bytes; `StoreError` where it runs past it.

    Examples
    --------
    >>> range_bounds(ByteRange(-4), 10, url="memory://", key="a")
    (6, 10)
    """
    start = byte_range.start if byte_range.start >= 0 else max(0, size + byte_range.start)
    stop = size if byte_range.length is None else start + byte_range.length
    if start > size or stop > size:
        wanted = f"{'the rest' if byte_range.length is None else byte_range.length} bytes from {start}"
        reason = f"expected {wanted}, got a value of {size} bytes: the object is truncated, or its reference is wrong"
        raise StoreError(url=url, key=key, reason=reason)
    return start, stop
