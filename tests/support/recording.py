"""Stores that watch, fail or dawdle: wrappers for tests of what is asked of a store, and of what happens then.

All pickle with the store they wrap; a log stays in the process that made it.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan, RecordVersion, Store
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.wrapper import StoreWrapper

_LOCK = threading.Lock()  # of all counts
CHANGES = ("set", "set_if", "delete", "delete_prefix")


def contents(store: Store, prefix: str = "") -> dict[str, bytes | None]:
    """Return every value below a prefix, by key."""
    return {key: store.get(key) for key in store.list_prefix(prefix)}


def copy_keys(source: Store, target: Store, prefix: str = "") -> None:
    """Store what is below a prefix as another writer would: value by value."""
    for key, value in contents(source, prefix).items():
        target.set(key, value)


class Died(BaseException):
    """The process is gone: nobody catches it."""


class DeletingStore(MemoryStore):
    """Cannot rename, as object stores: what is replaced is deleted first."""

    can_replace = Store.can_replace


class _Wrapper(StoreWrapper):
    """Every method passes through `_before`, one call a request: `get_many` counts as one ``get`` a span."""

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        raise NotImplementedError

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        self._before("get", key, byte_range)
        return self.below.get(key, byte_range)

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        def watched() -> Iterator[ByteSpan | None]:
            for span in spans:
                if span is not None:
                    self._before("get", span.key, span.byte_range)
                yield span

        return self.below.get_many(watched())

    @property
    def has_versions(self) -> bool:
        return self.below.has_versions

    def get_noting(self, key: str, byte_range: ByteRange | None, note: RecordVersion) -> bytes | None:
        version = self.below.version(key)
        value = self.get(key, byte_range)
        if value is not None:
            note(key, version or "none")
        return value

    def get_many_noting(self, spans: Iterable[ByteSpan | None], note: RecordVersion) -> Iterator[bytes | None]:
        asked = list(spans)
        versions = {span: self.below.version(span.key) for span in asked if span is not None}
        for span, value in zip(asked, self.get_many(asked), strict=True):
            if span is not None and value is not None:
                note(span.key, versions[span] or "none")
            yield value


def _watched(method: str) -> Callable[..., Any]:
    def call(self: _Wrapper, key: str, *values: Any, **options: Any) -> Any:
        self._before(method, key)
        return getattr(self.below, method)(key, *values, **options)

    return call


for _method in (*CHANGES, "version", "get_versioned", "size", "list_prefix", "list_dir"):
    setattr(_Wrapper, _method, _watched(_method))


class RecordingStore(_Wrapper):
    """Logs ``(method, key, byte_range)`` of every request, in order."""

    def __init__(self, below: Store) -> None:
        super().__init__(below)
        self.log: list[tuple[str, str, ByteRange | None]] = []

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        self.log.append((method, key, byte_range))

    def keys(self, *methods: str) -> list[str]:
        """Keys asked for by these methods (by any, when none is named), in order."""
        return [key for method, key, _ in self.log if not methods or method in methods]

    def clear(self) -> None:
        self.log.clear()


class Meanwhile(RecordingStore):
    """Calls `act` with the store below, once, before the n-th request that `when` says; without, it dies there.

    `when` is a method and a key, or says of both whether it is then.
    """

    def __init__(
        self,
        below: Store,
        when: Callable[[str, str], bool] | tuple[str, str],
        act: Callable[[Store], object] | None = None,
        n: int = 1,
    ) -> None:
        super().__init__(below)
        self.when = when if callable(when) else lambda *asked: asked == when
        self.act, self.left, self.done = act, n, False

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        super()._before(method, key, byte_range)
        if not self.done and self.when(method, key):
            self.left -= 1
            self.done = self.left == 0
            if self.done and self.act is not None:
                self.act(self.below)
        if self.done and self.act is None:
            raise Died


def reads_a_chunk(method: str, key: str) -> bool:
    return method == "get" and "/c/" in f"/{key}"


class FarStore(RecordingStore):
    """A store in memory whose every request takes `seconds`; counts those under way at once."""

    def __init__(self, below: Store | None = None, seconds: float = 0.0) -> None:
        super().__init__(MemoryStore() if below is None else below)
        self.is_remote = True
        self.seconds = seconds
        self.n_now = self.most_at_once = 0

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        super()._before(method, key, byte_range)
        if method in {"get", "set", "set_if"}:
            self._wait(1)

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """All at once, of which this thread waits for the slowest, as a remote store does."""
        spans = list(spans)
        self.log += [("get", span.key, span.byte_range) for span in spans if span is not None]
        self._wait(len(spans))
        return self.below.get_many(spans)

    def _wait(self, n: int) -> None:
        if not self.seconds:
            return
        with _LOCK:
            self.n_now += n
            self.most_at_once = max(self.most_at_once, self.n_now)
        time.sleep(self.seconds)
        with _LOCK:
            self.n_now -= n

    def chunks(self, *methods: str) -> Counter[str]:
        """Return how often each chunk was asked for by these methods."""
        return Counter(key for key in self.keys(*methods) if f"/{key}".rpartition("/c/")[1])


class FailingStore(_Wrapper):
    """Raises at every `every`-th request whose method is in `methods` (any, when empty): the n-th, 2n-th, …

    `times` limits how often; then all goes well.
    """

    def __init__(
        self,
        below: Store,
        every: int,
        methods: Iterable[str] = (),
        times: int | None = None,
        reason: str = "injected failure",
    ) -> None:
        super().__init__(below)
        self.every = every
        self.methods = frozenset(methods)
        self.times = times
        self.reason = reason
        self.n_requests = self.n_failures = 0

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        if self.methods and method not in self.methods:
            return
        with _LOCK:
            self.n_requests += 1
            if self.n_requests % self.every or (self.times is not None and self.n_failures >= self.times):
                return
            self.n_failures += 1
        error = StoreError(url=self.url, key=key, reason=f"{self.reason} ({method})")
        error.errno = errno.EIO
        raise error


class DyingStore(_Wrapper):
    """Refuses every request whose method is in `methods` after the first `n`, as if the process had died then.

    By an error of a store, or by `error`, which nobody catches.
    """

    def __init__(
        self, below: Store, n: int, methods: Iterable[str] = CHANGES, error: type[BaseException] | None = None
    ) -> None:
        super().__init__(below)
        self.n = n
        self.methods = frozenset(methods)
        self.error = error

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        if method in self.methods:
            self.n -= 1
            if self.n < 0:
                if self.error is not None:
                    raise self.error
                raise StoreError(url=self.url, key=key, reason=f"injected death ({method})")


def deaths(make: Callable[[], Store], run: Callable[[Store], object], first: int = 0) -> Iterator[Store]:
    """Run this with a new store for each `n`, as a process that dies after `n` changes, and yield what it has left.

    Until one lives to the end.
    """
    for n in itertools.count(first):
        store = make()
        try:
            run(DyingStore(store, n, error=Died))
        except Died:
            yield store
        else:
            return


class SlowStore(_Wrapper):
    """Waits `seconds` before every request whose method is in `methods` (any, when empty)."""

    def __init__(self, below: Store, seconds: float, methods: Iterable[str] = ()) -> None:
        super().__init__(below)
        self.seconds = seconds
        self.methods = frozenset(methods)

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        if not self.methods or method in self.methods:
            time.sleep(self.seconds)


class LoggedStore(_Wrapper):
    """Waits before every write of a value that is not a journal's, and notes its key in a file that processes share."""

    def __init__(self, below: Store, log: Path, seconds: float = 0.0) -> None:
        super().__init__(below)
        self.log = log
        self.seconds = seconds

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        if method not in {"set", "set_if"} or (key.startswith(".") and "intermediate/" not in key):
            return
        time.sleep(self.seconds)
        with self.log.open("a") as file:
            file.write(f"{key}\n")

    def counts(self) -> Counter[str]:
        """Return how often each key was written."""
        return Counter(self.log.read_text().split() if self.log.exists() else ())


class SuspendingStore(_Wrapper):
    """Suspends the process that is the first to write a value below `prefix`, right before; its id is in `file`."""

    def __init__(self, below: Store, prefix: str, file: Path) -> None:
        super().__init__(below)
        self.prefix = prefix
        self.file = file

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None:
        if method in {"set", "set_if"} and key.startswith(self.prefix):
            with suppress(FileExistsError), self.file.open("x") as file:
                file.write(str(os.getpid()))
                file.flush()
                os.kill(os.getpid(), signal.SIGSTOP)


class UnfencedStore(_Wrapper):
    """Takes every `set_if` for a `set`, and says so: only a lock keeps partial writes apart."""

    def __init__(self, below: Store) -> None:
        super().__init__(below)
        self.compares_versions = False

    def _before(self, method: str, key: str, byte_range: ByteRange | None = None) -> None: ...

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        if value is None:
            self.below.delete(key)
        else:
            self.below.set(key, value)
        return True
