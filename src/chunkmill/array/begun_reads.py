"""Request the values of many store keys together, before they are asked for one by one.

Where requests cost latency, a task that asks for one key and waits makes one request at a time. `BegunReads` makes the
requests of many keys in threads of its own, which end with them; a caller that takes a value waits for that one alone.
Not here: how a store has many requests under way (`chunkmill.stores.read_ahead`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from chunkmill.stores.base import ByteRange, ByteSpan, Store
from chunkmill.stores.wrapper import StoreWrapper

__all__ = ["MAX_BEGUN_BYTES", "BegunReads", "with_begun_reads"]

MAX_BEGUN_BYTES = 64 << 20
"""Bytes that a process has requested ahead, or holds until they are taken: more is read when it is asked for."""

_KEYS_A_THREAD = 16  # as many as stores request at once before they know how large values are


class _Budget:
    """Bytes of this process that are requested, or held until they are taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_bytes = 0

    def reserve(self, n_bytes: int) -> bool:
        with self._lock:
            fits = self._n_bytes + n_bytes <= MAX_BEGUN_BYTES
            self._n_bytes += n_bytes if fits else 0
            return fits

    def release(self, n_bytes: int) -> None:
        with self._lock:
            self._n_bytes -= n_bytes


_budget = _Budget()
if hasattr(os, "register_at_fork"):  # a child has neither the threads nor the values
    os.register_at_fork(after_in_child=_budget.__init__)  # type: ignore[misc]


class _Values:
    """State that threads share with the `BegunReads` that they work for, which may be dropped before they end."""

    def __init__(self, value_bytes: int) -> None:
        self._changed = threading.Condition()
        self._pending: set[str] = set()
        self._fetched: dict[str, bytes | None] = {}
        self._value_bytes = value_bytes
        self._is_wanted = True

    def begin(self, store: Store, keys: Sequence[str]) -> bool:
        if not _budget.reserve(self._value_bytes * len(keys)):
            return False
        self._pending.update(keys)
        for start in range(0, len(keys), _KEYS_A_THREAD):
            own = keys[start : start + _KEYS_A_THREAD]
            thread = threading.Thread(target=self._fetch, args=(store, own), daemon=True, name="chunkmill-reads")
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads, or this process ends
                self._leave(keys[start:])
                break
        return True

    def _fetch(self, store: Store, keys: Sequence[str]) -> None:
        try:
            for key, value in zip(keys, store.get_many(map(ByteSpan, keys)), strict=True):
                with self._changed:
                    if not self._is_wanted:
                        return
                    self._pending.discard(key)
                    self._fetched[key] = value
                    self._changed.notify_all()
        except Exception:  # noqa: BLE001, S110 - of any store: the caller that asks for a key that failed reads it, and meets the error
            pass
        finally:
            self._leave(keys)

    def _leave(self, keys: Sequence[str]) -> None:
        """Leave pending keys to the callers that ask for them."""
        with self._changed:
            left = self._pending.intersection(keys)
            self._pending -= left
            self._changed.notify_all()
        _budget.release(self._value_bytes * len(left))

    def take(self, key: str) -> tuple[bytes | None] | None:
        with self._changed:
            self._changed.wait_for(lambda: key not in self._pending)
            if key not in self._fetched:
                return None
            _budget.release(self._value_bytes)
            return (self._fetched.pop(key),)

    def drop(self) -> None:
        with self._changed:
            self._is_wanted = False
            _budget.release(self._value_bytes * len(self._fetched))
            self._fetched.clear()


class BegunReads:
    """Values of `keys` of a store, whose requests are under way from now on, as far as `MAX_BEGUN_BYTES` allow.

    Pickled, it arrives without values: there, callers read from the store. What is not taken is given up when
    nothing refers to this object any more.

    Parameters
    ----------
    value_bytes
        Size to expect of a value.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> store.set("a", b"1")
    >>> reads = BegunReads(store, ["a", "b"], value_bytes=1)
    >>> reads.take("a"), reads.take("a"), reads.take("b")
    ((b'1',), None, (None,))
    """

    def __init__(self, store: Store, keys: Sequence[str], *, value_bytes: int) -> None:
        self._values: _Values | None = _Values(value_bytes)
        self._pid = os.getpid()
        self._n_bytes = value_bytes * len(keys)
        if self._values.begin(store, keys):
            weakref.finalize(self, self._values.drop).atexit = False
        else:
            self._values = None

    def __bool__(self) -> bool:
        """Return whether there may be values to take: not where it was refused, unpickled, or in a forked process."""
        return self._values is not None and self._pid == os.getpid()

    def take(self, key: str) -> tuple[bytes | None] | None:
        """Return a tuple of the value of a key, once; ``None``: the store must be asked."""
        return self._values.take(key) if self and self._values is not None else None

    def __sizeof__(self) -> int:
        # what a cluster weighs against running a task on another worker, where it would have to read again
        return object.__sizeof__(self) + self._n_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return _without_values, ()


def _without_values() -> BegunReads:
    reads = object.__new__(BegunReads)
    reads._values, reads._pid, reads._n_bytes = None, os.getpid(), 0
    return reads


def with_begun_reads(store: Store, reads: BegunReads | None) -> Store:
    """Return the store, such that whole values are taken from `reads` where it has them."""
    return _Taking(store, reads) if reads else store


class _Taking(StoreWrapper):
    def __init__(self, below: Store, reads: BegunReads) -> None:
        super().__init__(below)
        self.reads = reads

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        found = self.reads.take(key) if byte_range is None else None
        return self.below.get(key, byte_range) if found is None else found[0]

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        return (None if span is None else self.get(span.key, span.byte_range) for span in spans)
