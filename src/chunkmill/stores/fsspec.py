"""Store over any fsspec filesystem: object stores, HTTP, archives, protocols that users registered.

Filesystems are made at their first use in a process and never pickled: importing and constructing start no thread and
no event loop, so forks before and after use both work. `fsspec_services` has the requests of each service.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from copy import copy
from typing import Any, TypeVar
from urllib.parse import unquote

import fsspec
import fsspec.asyn
import fsspec.utils

from chunkmill.config import setting
from chunkmill.errors import StoreError
from chunkmill.stores.base import OTHER_MEMORY, ByteRange, ByteSpan, check_key, check_prefix, range_bounds
from chunkmill.stores.contact import Waiting, check_reachable
from chunkmill.stores.filesystems import (
    LOCAL_PROTOCOLS,
    Opened,
    canonical_url,
    copied,
    max_requests,
    open_filesystem,
    protocols_of,
    register_classes,
    registered_classes,
    request_limit,
    run_now,
)
from chunkmill.stores.fsspec_services import (
    ABSENT,
    ARCHIVE_PROTOCOLS,
    ATOMIC_PROTOCOLS,
    CACHE_PROTOCOLS,
    HttpService,
    OutOfRange,
    digest,
)
from chunkmill.stores.probe import compares_versions, create_again, set_unguarded, warn_unguarded
from chunkmill.stores.read_ahead import get_ahead

__all__ = ["FsspecStore"]

T = TypeVar("T")


class FsspecStore:
    """The keys below a url that fsspec opens.

    Parameters
    ----------
    url
        Url of the root, chains (``zip://::s3://bucket/x.zip``) included.
    storage_options
        For the filesystem, as everywhere with fsspec.
    filesystem
        Its class, where it is not the one that fsspec has for the url's protocol.

    Notes
    -----
    Values appear whole on object stores, and by rename over sftp. Elsewhere (smb, ftp, WebDAV, …) a reader may get some
    of the old value and some of the new one while it is replaced: `replaces_atomically` is false there.
    `set_if` is atomic on S3 (``If-Match``). Elsewhere it compares before it writes, and the first one warns. Answers of
    403 raise, though S3 gives them for absent keys too, to clients that must not list the bucket.

    Examples
    --------
    >>> store = FsspecStore("memory://docs-fsspec-store")
    >>> store.set("a/c/0", b"0123456789")
    >>> store.get("a/c/0", ByteRange(-3)), store.get("a/c/1"), store.list_dir("a/")
    (b'789', None, ['c/'])
    >>> store.delete_prefix("")
    """

    lists_at_once = True

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None = None, filesystem: type[Any] | None = None
    ) -> None:
        options = copied(storage_options or {})
        options.pop("asynchronous", None)  # would mean that we await; it comes with options meant for others
        protocol = protocols_of(url)[0]
        self.url = canonical_url(url)
        self._registered = registered_classes(url) if filesystem is None else {}
        self.is_remote = protocol not in LOCAL_PROTOCOLS
        self._is_s3 = hasattr(filesystem or fsspec.get_filesystem_class(protocol), "call_s3")
        if self._is_s3:  # botocore's pool of 10 connections would be the limit instead of ours
            options["config_kwargs"] = {"max_pool_connections": max_requests()} | (options.get("config_kwargs") or {})
        self.replaces_atomically = protocol in ATOMIC_PROTOCOLS
        self.can_list = protocol not in {"http", "https"}
        self._identity = url, options, filesystem
        self._is_elsewhere = False  # memory, of the process that pickled this
        self._opened: Opened | None = None
        self._max_bytes: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None, "_home": os.getpid()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        moved = state.pop("_home") != os.getpid()
        self.__dict__.update(state)
        self._is_elsewhere |= moved and protocols_of(self._identity[0])[-1] == "memory"
        register_classes(self._registered)  # by the user, in the process that pickled this

    def __repr__(self) -> str:
        return f"FsspecStore({self.url!r})"  # not the options: they hold secrets

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FsspecStore) and other._identity == self._identity

    def __hash__(self) -> int:
        return hash(self.url)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "chunkmill.FsspecStore", fsspec.utils.tokenize(*self._identity)

    def limited_to(self, n_bytes: int) -> FsspecStore:
        """Return the store, such that it decompresses no member of an archive to more than `n_bytes`."""
        if protocols_of(self._identity[0])[0] not in ARCHIVE_PROTOCOLS:
            return self
        other = copy(self)
        other._max_bytes = n_bytes  # noqa: SLF001
        return other

    async def _check_size(self, opened: Opened, key: str) -> None:
        size = await opened.service.size(opened.path(key))
        if self._max_bytes is not None and size > self._max_bytes:
            reason = f"the member decompresses to {size} bytes, expected at most {self._max_bytes}: it is damaged, or "
            raise StoreError(url=self.url, key=key, reason=reason + "was made to fill memory")

    @property
    def compares_versions(self) -> bool:
        """True when `set_if` is atomic: on S3, if its server heeds conditions, which is found out once a process."""
        if not self._is_s3:
            return False
        return compares_versions(self, f"{'/'.join(self.url.split('/')[:3])} {self._endpoint}")

    @property
    def _endpoint(self) -> str | None:
        """Url of the server, where that is not Amazon's: of those some know no conditions."""
        options = self._identity[1]
        return options.get("endpoint_url") or (options.get("client_kwargs") or {}).get("endpoint_url")

    # --- reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it: one request."""
        check_key(key)
        return self._call(key, lambda opened: self._fetch(opened, key, byte_range))

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order.

        Where requests cost latency, many run at once: as many ahead of the caller as memory allows, neighbouring ranges
        of a key in one request.
        """
        opened = self._open()
        if not opened.service.is_async:
            for span in spans:
                yield None if span is None else self.get(span.key, span.byte_range)
            return

        def begin(span: ByteSpan, exact: bool) -> Future[bytes | None]:
            coroutine = self._fetch(opened, span.key, span.byte_range, exact=exact)
            return asyncio.run_coroutine_threadsafe(coroutine, opened.fs.loop)

        def result(key: str, future: Future[bytes | None]) -> bytes | None:
            return self._blocking(key, future.result)

        yield from get_ahead(spans, begin, result, url=self.url)

    async def _fetch(self, opened: Opened, key: str, wanted: ByteRange | None, *, exact: bool = True) -> bytes | None:
        """Get bytes, and see that they are as many as were asked for; `ABSENT` is raised where the key is."""
        path = opened.path(key)
        if self._max_bytes is not None:
            await self._check_size(opened, key)
        async with request_limit() if opened.service.is_async else contextlib.nullcontext():
            if wanted is None:
                return (await opened.service.fetch(path, None))[0]
            try:
                data, _ = await opened.service.fetch(path, wanted)
            except OutOfRange:
                start, stop = range_bounds(wanted, await opened.service.size(path), url=self.url, key=key)
                if start == stop:
                    return b""
                wanted = ByteRange(start, stop - start)  # the server knows no suffixes
                data, _ = await opened.service.fetch(path, wanted)
        if wanted.start < 0 and wanted.length is not None:
            data = data[: wanted.length]
        if exact and wanted.length not in {None, len(data)}:
            reason = f"expected {wanted.length} bytes from {wanted.start}, got {len(data)}"
            raise StoreError(url=self.url, key=key, reason=f"{reason}: the object or the response is truncated")
        return data

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version (the ETag, or a digest), of one response."""

        async def fetch(opened: Opened) -> tuple[bytes | None, str | None]:
            data, version = await opened.service.fetch(opened.path(key), None)
            return data, version or digest(data)

        check_key(key)
        return self._call(key, fetch) or (None, None)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes, without fetching it."""
        check_key(key)
        return self._call(key, lambda opened: opened.service.size(opened.path(key)))

    # --- writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value in one request (large values by a multipart upload, where the service has one)."""
        self._check_writable(key)
        data = bytes(value)
        if not self._call(key, lambda opened: opened.service.put(opened.path(key), data)):
            raise StoreError(url=self.url, key=key, reason="cannot write: the place does not exist")

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store (or delete) if the key still has `version`: `compares_versions` says whether that is atomic."""
        if self._is_s3 and self._endpoint and not self.compares_versions:
            return set_unguarded(self, key, value, version)
        data = None if value is None else bytes(value)

        def put() -> bool:
            return self.set_by_condition(key, data, version)

        if put():
            if self.is_remote and not self._is_s3:
                warn_unguarded(self, "/".join(self.url.split("/")[:3]))
            return True
        is_refused = self._is_s3 and version is None and data is not None
        return is_refused and create_again(self, key, put, float(setting("retry-seconds")))

    def set_by_condition(self, key: str, value: bytes | None, version: str | None) -> bool:
        """Store (or delete) if the key still has `version`, by the service's own conditions where it has some."""
        self._check_writable(key)
        stored = self._call(key, lambda opened: opened.service.put_if(opened.path(key), value, version))
        if stored is None:
            raise StoreError(url=self.url, key=key, reason="cannot write: the place does not exist")
        return stored

    def _check_writable(self, key: str) -> None:
        check_key(key)
        protocol = protocols_of(self._identity[0])[0]
        if protocol in CACHE_PROTOCOLS:
            reason = f"cannot write through {protocol!r}, which keeps what it has read of the old value"
            below = self.url.partition("::")[2]
            raise StoreError(url=self.url, key=key, reason=f"{reason}: write to {below or 'the url below'}")

    def copy(self, source: str, target: str) -> None:
        """Store the value of a key under another one, on the server where the service can."""
        self._check_writable(target)
        check_key(source)

        async def copy(opened: Opened) -> bool:
            if self._is_s3:
                await opened.fs._cp_file(opened.path(source), opened.path(target))  # noqa: SLF001
            else:
                await opened.service.put(
                    opened.path(target), (await opened.service.fetch(opened.path(source), None))[0]
                )
            return True

        if self._call(source, copy) is None:
            raise StoreError(url=self.url, key=source, reason="it was deleted before it could be copied")

    def delete(self, key: str) -> None:
        """Delete a key."""
        self._check_writable(key)
        self._call(key, lambda opened: opened.service.delete(opened.path(key)))

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`, and the directories where there are any."""
        self._check_writable(prefix.rstrip("/") or "any")
        keys = list(self.list_prefix(prefix))
        self._call(prefix, lambda opened: opened.service.delete_many([opened.path(key) for key in keys]))
        if not (opened := self._open()).service.is_async:
            self._blocking(prefix, lambda: _remove_directory(opened, opened.path(prefix)))

    def remove_folder(self, prefix: str) -> None:
        """Remove the directory of a prefix if it is empty, where there are directories."""
        if not (opened := self._open()).service.is_async and not self.list_dir(prefix):
            self._check_writable(prefix.rstrip("/") or "any")
            self._blocking(prefix, lambda: _remove_directory(opened, opened.path(prefix)))

    # --- listing

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        check_prefix(prefix)
        opened = self._open()
        if isinstance(opened.service, HttpService):
            for name in self.list_dir(prefix):
                yield from self.list_prefix(prefix + name) if name.endswith("/") else [prefix + name]
            return
        opened.fs.invalidate_cache()  # or others' changes stay unseen
        paths: Iterable[str] = self._blocking(prefix, lambda: opened.find(opened.path(prefix))) or ()
        yield from (prefix + name for name in opened.names_below(prefix, paths))

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int | None]]:
        """Yield every key that starts with `prefix` with its size, ``None`` where the service's listing has none."""
        check_prefix(prefix)
        opened = self._open()
        if isinstance(opened.service, HttpService):
            yield from ((key, None) for key in self.list_prefix(prefix))
            return
        opened.fs.invalidate_cache()
        found: Mapping[str, Any] = self._blocking(prefix, lambda: opened.find(opened.path(prefix))) or {}
        for path, info in found.items():
            yield from ((prefix + name, info.get("size")) for name in opened.names_below(prefix, [path]))

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`; `StoreError` where a web server does not list."""
        check_prefix(prefix)
        opened = self._open()
        if isinstance(opened.service, HttpService):
            return self._list_links(opened, prefix)
        opened.fs.invalidate_cache()
        entries: Iterable[dict[str, Any]] = (
            self._blocking(prefix, lambda: opened.service.entries(opened.path(prefix))) or ()
        )
        paths = (e["name"].rstrip("/") + ("/" if e["type"] == "directory" else "") for e in entries)
        return sorted(set(opened.names_below(prefix, paths)))

    def _list_links(self, opened: Opened, prefix: str) -> list[str]:
        url = opened.path(prefix).partition("?")[0].rstrip("/") + "/"
        links: list[str] = self._blocking(prefix, lambda: opened.fs.ls(url, detail=False)) or []
        names = {link[len(url) :] for link in links if link.startswith(url)}
        names = {unquote(name) for name in names if re.fullmatch(r"[^/?#]+/?", name)} - {"./", "../"}
        if not names:
            reason = "the web server lists nothing here (few do): open nodes by their path, or consolidate the metadata"
            raise StoreError(url=self.url, key=prefix, reason=reason)
        return sorted(names)

    # --- filesystem

    def _open(self) -> Opened:
        if self._is_elsewhere:
            raise StoreError(url=self.url, key="", reason=OTHER_MEMORY)
        if self._opened is None or self._opened.pid != os.getpid():
            if server := self._endpoint if self._is_s3 else self._identity[0] if not self.can_list else None:
                check_reachable("/".join(server.split("/")[:3]), self.url)
            try:
                self._opened = open_filesystem(*self._identity)
            except Exception as error:
                raise self._failed("", error) from error
        return self._opened

    def _call(self, key: str, function: Callable[[Opened], Coroutine[Any, Any, T]]) -> T | None:
        """Run a service's coroutine; `None` where the key is absent."""
        opened = self._open()
        if opened.service.is_async:
            return self._blocking(key, lambda: fsspec.asyn.sync(opened.fs.loop, function, opened))
        return self._blocking(key, lambda: run_now(function(opened)))

    def _blocking(self, key: str, function: Callable[[], T]) -> T | None:
        try:
            limit = contextlib.nullcontext() if self._opened is None else self._opened.service.one_at_a_time
            with limit, Waiting(self.url, key) if self.is_remote else contextlib.nullcontext():
                return function()
        except ABSENT:
            return None
        except Exception as error:
            raise self._failed(key, error) from error

    def _failed(self, key: str, error: BaseException) -> StoreError:
        if isinstance(error, StoreError):
            return error
        hint = ""
        if self.is_remote and isinstance(error, PermissionError):
            hint = "; servers answer so for absent keys too, unless the credentials may list the bucket: give format="
        failed = StoreError(url=self.url, key=key, reason=f"{type(error).__name__}: {error}{hint}")
        failed.errno = getattr(error, "errno", None)
        return failed


def _remove_directory(opened: Opened, path: str) -> None:
    if opened.fs.isdir(path):  # a file, without the slash, is not below the prefix
        opened.fs.rm(path, recursive=True)
