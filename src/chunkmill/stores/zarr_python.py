"""Store over a store of zarr-python: any ``zarr.abc.store.Store``.

zarr-python is not imported here unless the caller has imported it, since one of its stores is given. A store that has a
place of its own, such as a folder, is opened as ours instead (`chunkmill.stores.open`), with versions and locks.
Not here: sessions of Icechunk (`chunkmill.stores.icechunk_store`).
Checked against: zarr-python 3.1.6.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from typing import Any, TypeVar

import fsspec

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan, HeldInMemory, ReadOnly, RecordVersion, check_key, check_prefix
from chunkmill.stores.local import JOURNAL
from chunkmill.stores.read_ahead import ReadsAhead
from chunkmill.stores.wrapper import StoreWrapper

T = TypeVar("T")


def place_of(below: Any) -> Any | None:
    """Return what else names the place of one of zarr-python's own stores: a path, an obstore store, an fsspec mapper.

    ``None`` where it has no other name, or, a zip file being written, where others must not open it. One that was
    written and closed is a file: zarr-python, which opens it again with its old mode, would empty it.
    """
    kind = type(below)
    if not kind.__module__.startswith("zarr.storage"):
        return None
    if kind.__name__ == "LocalStore":
        return os.fspath(below.root)
    if kind.__name__ == "ObjectStore":
        return below.store
    if kind.__name__ == "FsspecStore":
        return fsspec.FSMap(below.path, below.fs)
    is_written = kind.__name__ == "ZipStore" and not below.read_only and (below._is_open or not hasattr(below, "_zf"))  # noqa: SLF001
    return os.fspath(below.path) if kind.__name__ == "ZipStore" and not is_written else None


class ReadOnlyStore(ReadOnly, StoreWrapper):
    """Store that refuses to write: its owner opened it for reading only."""

    read_only_reason = "the store of zarr-python was opened for reading only"


_NO_DELETES = "the store deletes nothing, and leases of writers would stay in it: close a ZipStore before it is given"


class ZarrPythonStore(ReadsAhead, HeldInMemory):
    """The keys of a store of zarr-python.

    Such a store tells no versions: `set_if` compares a digest of the value before it writes, and is atomic against
    nobody but callers that hold the same lock.

    Parameters
    ----------
    below
        A ``zarr.abc.store.Store``. It is opened at the first use.

    Examples
    --------
    >>> import zarr.storage
    >>> store = ZarrPythonStore(zarr.storage.MemoryStore())
    >>> store.set("a/c/0", b"0123456789")
    >>> store.get("a/c/0", ByteRange(-3)), store.get("a/c/1"), store.list_dir("a/")
    (b'789', None, ['c/'])
    """

    def __init__(self, below: Any) -> None:
        self.below_zarr = below
        self.url = _url(below)
        # Icechunk and object stores have requests to wait for; a store in memory answers at once
        self._is_memory = hasattr(below, "_store_dict")
        self.is_remote = not self._is_memory
        self.can_list = bool(below.supports_listing)
        self.home = self.here() if self._is_memory else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrPythonStore) and other.url == self.url and other.below_zarr == self.below_zarr

    def __hash__(self) -> int:
        return hash(self.url)

    # --- reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it."""
        check_key(key)
        return self._run(key, self._fetch(key, byte_range))

    def _submit(self, span: ByteSpan, record: RecordVersion | None) -> Future[bytes | None]:  # noqa: ARG002
        """Begin a request in the event loop: threads of ours that wait could be all that a store of ours has below."""
        return self._start(span.key, self._fetch(span.key, span.byte_range))

    async def _fetch(self, key: str, wanted: ByteRange | None) -> bytes | None:
        requests = sys.modules["zarr.abc.store"]
        if wanted is None:
            return await self._ask(key, None)
        if wanted.start < 0:
            data = await self._ask(key, requests.SuffixByteRequest(-wanted.start))
            return data if data is None or wanted.length is None else self.cut(key, data, wanted)
        if wanted.length == 0:
            return await self._whole(key, wanted)
        stop = None if wanted.length is None else wanted.start + wanted.length
        asked = (
            requests.OffsetByteRequest(wanted.start) if stop is None else requests.RangeByteRequest(wanted.start, stop)
        )
        try:
            data = await self._ask(key, asked)
        except Exception:  # noqa: BLE001 - stores differ in what they raise for a range past the end
            return await self._whole(key, wanted)
        if data is not None and (not data or wanted.length not in {None, len(data)}):
            return await self._whole(key, wanted)
        return data

    async def _ask(self, key: str, byte_request: Any) -> bytes | None:
        return await self._asked_of(self.below_zarr, key, byte_request)

    @staticmethod
    async def _asked_of(below: Any, key: str, byte_request: Any) -> bytes | None:
        prototype = sys.modules["zarr.core.buffer"].default_buffer_prototype()
        try:
            found = await below.get(key, prototype, byte_request)
        except FileNotFoundError:
            return None
        except ValueError:  # a store that knows which keys there may be, and takes others for a mistake
            folder, _, name = key.rpartition("/")
            if below.supports_listing and name not in [listed.strip("/") async for listed in below.list_dir(folder)]:
                return None
            raise
        return None if found is None else bytes(found.to_bytes())

    async def _whole(self, key: str, wanted: ByteRange) -> bytes | None:
        """Get all of a value for a range that is empty, short or refused: its size tells what is wrong."""
        value = await self._ask(key, None)
        return None if value is None else self.cut(key, value, wanted)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        check_key(key)

        async def size() -> int | None:
            try:
                return int(await self.below_zarr.getsize(key))
            except (FileNotFoundError, KeyError):
                return None

        return self._run(key, size())

    # --- writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value."""
        check_key(key)
        buffer = self._buffer(value)
        self._write(key, lambda: self.below_zarr.set(key, buffer))

    @staticmethod
    def _buffer(value: bytes | bytearray | memoryview) -> Any:
        return sys.modules["zarr.core.buffer"].default_buffer_prototype().buffer.from_bytes(bytes(value))

    def delete(self, key: str) -> None:
        """Delete a key."""
        check_key(key)
        self._write(key, lambda: self._deleted(self.below_zarr, key))

    @staticmethod
    async def _deleted(below: Any, key: str) -> None:
        with suppress(FileNotFoundError, KeyError):
            await below.delete(key)

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`."""
        check_prefix(prefix)
        if not prefix:
            self._write(prefix, self.below_zarr.clear)
        elif next(self.list_prefix(prefix), None) is not None:
            self._write(prefix, lambda: self.below_zarr.delete_dir(prefix.rstrip("/")))

    # --- listing

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        check_prefix(prefix)
        keys = self._run(prefix, _gathered(lambda: self.below_zarr.list_prefix(prefix)))
        if keys is None:
            for name in self.list_dir(prefix):
                yield from self.list_prefix(prefix + name) if name.endswith("/") else [prefix + name]
            return
        yield from (key for key in keys if key.startswith(prefix))

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        if self._is_memory:
            return super().list_dir(prefix)
        check_prefix(prefix)
        names = self._run(prefix, _gathered(lambda: self.below_zarr.list_dir(prefix.rstrip("/")))) or []
        names = [name.strip("/") for name in names]

        async def kinds() -> list[bool]:
            return await asyncio.gather(*(self._exists(prefix + name) for name in names))

        keys = self._run(prefix, kinds()) or []
        return sorted({name if found else f"{name}/" for name, found in zip(names, keys, strict=True)})

    async def _exists(self, key: str) -> bool:
        try:
            return bool(await self.below_zarr.exists(key))
        except NotImplementedError:
            return await _gathered(lambda: self.below_zarr.list_dir(key)) == []  # `None` of an array

    # --- the event loop of zarr-python, to which its filesystems are bound

    def _run(self, key: str, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._start(key, coroutine).result()

    def _start(self, key: str, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        async def opened() -> T:
            with closing(coroutine), self.named_in_errors(key):
                self.check_home()
                below = self.below_zarr
                if below is not None and not below._is_open:  # noqa: SLF001 - as zarr-python does at the first use
                    await below._ensure_open()  # noqa: SLF001
                return await coroutine

        return asyncio.run_coroutine_threadsafe(opened(), sys.modules["zarr.core.sync"]._get_loop())  # noqa: SLF001

    def _write(self, key: str, function: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        if self.below_zarr.read_only:
            raise StoreError(url=self.url, key=key, reason=ReadOnlyStore.read_only_reason)
        if key.startswith(JOURNAL) and not self.below_zarr.supports_deletes:
            raise StoreError(url=self.url, key=key, reason=_NO_DELETES)
        self._run(key, function())


async def _gathered(listing: Callable[[], AsyncIterator[str]]) -> list[str] | None:
    """Return what a store lists; ``None`` where it does not list so."""
    try:
        return [key async for key in listing()]
    except NotImplementedError:
        return None
    except FileNotFoundError:
        return []


def _url(below: Any) -> str:
    text = str(below)  # of a MemoryStore "memory://…", which is not fsspec's
    is_url = "://" in text and "\n" not in text and not text.startswith("memory://")
    return text if is_url else f"zarr-python://{type(below).__name__}-{id(below):x}"
