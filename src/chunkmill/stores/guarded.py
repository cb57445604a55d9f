"""Stores that ask about writes: whether the task may still write, and what it means that others have changed a value.

`GuardedStore` is for tasks that may outlive their job: a worker that was suspended, or cut from the network, carries on
where it stopped. It replaces only values that it has seen: between its question and its write nothing can be asked
again, and there the version decides, where the store compares versions: a value that came in between stays. Not here:
what answers (`chunkmill.runtime.cancellation`, `chunkmill.array.staleness`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Protocol

from chunkmill.errors import StoreError
from chunkmill.log import LOG
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import set_parts
from chunkmill.stores.wrapper import StoreWrapper

__all__ = ["AsksAboutChunks", "Guard", "GuardedStore", "guarded", "write_guard"]

_ATTEMPTS = 100  # at replacing a value that others replace, too: tasks of one job that dask runs twice, and no more

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
        version = self.below.get_versioned(key)[1] if self._meets_values else None
        self._guard()
        for _ in range(_ATTEMPTS):
            if self.below.set_if(key, value, version):
                return
            self._meets_values = True
            found, version = self.below.get_versioned(key)
            self._guard(now=True)
            if found == memoryview(value).tobytes():
                LOG.info("%s/%s is stored already: by a try whose response was lost, or by another task", self.url, key)
                return
        raise self._contended(key)

    def set_parts(self, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Store the joined parts, each written as it comes where the store can."""

        def allowed() -> Iterator[bytes | bytearray | memoryview]:
            for part in parts:
                self._guard()
                yield part
                del part  # before the next one is made, so that it gets the same memory
            self._guard(now=True)  # the store publishes the value when there are no more parts

        set_parts(self.below, key, allowed())

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
        for _ in range(_ATTEMPTS):
            version = self.below.get_versioned(key)[1]
            self._guard()
            if version is None or self.below.set_if(key, None, version):
                return
        raise self._contended(key)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        self._guard()
        self.below.delete_prefix(prefix)

    def _contended(self, key: str) -> StoreError:
        return StoreError(
            url=self.url, key=key, reason=f"others replaced this value {_ATTEMPTS} times since it was read"
        )


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
