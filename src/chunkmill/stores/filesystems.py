"""The fsspec filesystem of a url: one per process, made at its first use.

fsspec keeps one per thread instead, each with its own connections, and makes new ones wherever one is unpickled.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import weakref
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar

import fsspec
import fsspec.asyn
import fsspec.core
import fsspec.utils
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.registry import known_implementations, registry
from fsspec.spec import AbstractFileSystem

from chunkmill.config import setting
from chunkmill.errors import StoreError
from chunkmill.stores.file_services import FtpService, RenamingService, SftpService, WebdavService
from chunkmill.stores.fsspec_services import (
    ABSENT,
    ARCHIVE_PROTOCOLS,
    RENAMING_PROTOCOLS,
    ArchiveService,
    HttpService,
    S3Service,
    Service,
    http_url,
)
from chunkmill.stores.partial_files import PARTIAL_SUFFIX

__all__ = [
    "LOCAL_PROTOCOLS",
    "Opened",
    "canonical_url",
    "copied",
    "max_requests",
    "open_filesystem",
    "protocols_of",
    "register_classes",
    "registered_classes",
    "request_limit",
    "run_now",
    "without_dirs",
]

LOCAL_PROTOCOLS = frozenset({"memory", "file", "local"})

_WITH_HOST = {"http", "https", "ftp", "sftp", "ssh", "smb", "webdav", "webhdfs"}
_ALIASES = {"s3a": "s3", "gcs": "gs", "local": "file"}
_PACKAGES = {
    "s3": "chunkmill[s3]",
    "s3a": "chunkmill[s3]",
    "http": "chunkmill[http]",
    "https": "chunkmill[http]",
    "gs": "chunkmill[obstore]",
    "gcs": "chunkmill[obstore]",
    "abfs": "chunkmill[obstore]",
    "abfss": "chunkmill[obstore]",
    "az": "chunkmill[obstore]",
    "sftp": "paramiko",
    "ssh": "paramiko",
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opened:
    """A filesystem of this process, and where the store begins in it."""

    pid: int
    fs: Any
    root: str
    service: Service

    def path(self, key: str) -> str:
        """Return what the filesystem calls a key, or a prefix."""
        if isinstance(self.service, HttpService):
            return http_url(self.root, key)
        return f"{self.root}/{key}".rstrip("/") if self.root else key.rstrip("/")

    def names_below(self, prefix: str, paths: Iterable[str]) -> Iterator[str]:
        """Yield what follows the prefix in each path (filesystems disagree on the leading slash)."""
        base = f"{self.root}/{prefix}".strip("/")
        base += "/" if base else ""
        for path in paths:
            path = path.lstrip("/")  # noqa: PLW2901
            if path.startswith(base) and path != base and not path.endswith(PARTIAL_SUFFIX):
                yield path[len(base) :]

    def find(self, path: str) -> dict[str, dict[str, Any]]:
        """Return what the filesystem tells of each file below a path, by name.

        fsspec's own walk passes over folders that it failed to list: chunks in them would be read as fill values.
        """
        kind = type(self.fs)
        if getattr(kind, "_find", None) is not _AsyncFind and kind.find is not AbstractFileSystem.find:
            found: dict[str, dict[str, Any]] = self.fs.find(path, detail=True)
            return found
        return {info["name"]: info for info in self._walk(path)}

    def _walk(self, path: str) -> Iterator[dict[str, Any]]:
        try:
            entries = self.service.entries(path)
        except ABSENT:  # others may delete it since it was listed
            return
        for info in entries:
            name = info["name"].rstrip("/")
            if info["type"] != "directory":
                yield info
            elif name.strip("/") != path.strip("/"):
                yield from self._walk(name)


_AsyncFind = fsspec.asyn.AsyncFileSystem._find  # noqa: SLF001

_filesystems: dict[tuple[int, str], Opened] = {}
_lock = threading.Lock()


def _new_lock() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # another thread may have held it. The parent's filesystems stay referenced: their finalizers want the parent's loop
    os.register_at_fork(after_in_child=_new_lock)


def open_filesystem(url: str, options: Mapping[str, Any], made_by: type[Any] | None = None) -> Opened:
    """Return the filesystem of a url, one per process (fsspec's cache has one per thread, each with connections)."""
    token = os.getpid(), fsspec.utils.tokenize(url, options, made_by)
    with _lock:
        if token not in _filesystems:
            if made_by is None:
                fs, root = fsspec.core.url_to_fs(url, **copied(options))
            else:
                fs = made_by(**copied(options))
                root = url if isinstance(service_of(fs), HttpService) else url.partition("://")[2]
            fs, root = without_dirs(fs, root)
            service = service_of(fs)
            root = root if isinstance(service, HttpService) else root.rstrip("/")
            _filesystems[token] = Opened(os.getpid(), fs, root, service)
        return _filesystems[token]


def service_of(filesystem: Any) -> Service:
    """Return how to talk to `filesystem`."""
    protocols = {filesystem.protocol} if isinstance(filesystem.protocol, str) else set(filesystem.protocol)
    for kind, names, attribute in _SERVICES:
        if protocols & names and hasattr(filesystem, attribute):
            return kind(filesystem)
    is_archive = protocols & ARCHIVE_PROTOCOLS and not filesystem.async_impl
    return ArchiveService(filesystem) if is_archive else Service(filesystem)


_SERVICES: tuple[tuple[type[Service], AbstractSet[str], str], ...] = (  # with what their filesystems are known by
    (S3Service, {"s3"}, "call_s3"),
    (HttpService, {"http"}, "set_session"),
    (WebdavService, {"webdav"}, "client"),
    (FtpService, {"ftp"}, "ftp"),
    (SftpService, {"sftp", "ssh"}, "mv"),
    (RenamingService, RENAMING_PROTOCOLS, "mv"),
)


def without_dirs(fs: Any, root: str) -> tuple[Any, str]:
    """Return the filesystem below fsspec's ``dir``, and the path there: ``dir`` says it can wait where that cannot.

    Examples
    --------
    >>> import fsspec
    >>> from fsspec.implementations.dirfs import DirFileSystem
    >>> without_dirs(DirFileSystem("/data", fsspec.filesystem("memory")), "x.zarr")[1]
    '/data/x.zarr'
    """
    while isinstance(fs, DirFileSystem):
        fs, root = fs.fs, f"{fs.path.rstrip('/')}/{root.strip('/')}".rstrip("/") if fs.path else root
    return fs, root


def copied(options: Mapping[str, Any]) -> dict[str, Any]:
    """Copy nested dicts: fsspec changes its arguments."""
    return {name: copied(value) if isinstance(value, dict) else value for name, value in options.items()}


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a filesystem that says it is synchronous waited")


_limits: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


def max_requests() -> int:
    """Return how many requests a process has under way at once, as users have set it."""
    return int(setting("remote-requests"))


def request_limit() -> asyncio.Semaphore:
    """Return the limit of requests on the running loop: one for all stores and threads of the process."""
    return _limits.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(max_requests()))


def protocols_of(url: str) -> list[str]:
    """Return the protocols of a url or a chain of urls, the outermost first.

    Examples
    --------
    >>> protocols_of("zip://a::s3://bucket/x.zip"), protocols_of("/data")
    (['zip', 's3'], ['file'])
    """
    first, *others = url.split("::")
    protocols = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)(?:://|$)", first)
    if protocols is None or not ("://" in first or others):
        return ["file"]
    return [protocols[1], *(other.partition("://")[0] for other in others if "://" in other)]


def canonical_url(url: str) -> str:
    """Return a url to show and to name locks from: one for each root, without secrets.

    Examples
    --------
    >>> canonical_url("https://me:secret@host/x.zarr/?token=1"), canonical_url("memory:///x/")
    ('https://host/x.zarr', 'memory://x')
    """
    if "::" in url:
        return re.sub(r"//[^/@:]*:[^/@:]*@", "//", url).rstrip("/")
    protocol = protocols_of(url)[0]
    path = url.partition("://")[2].rstrip("/")
    if protocol in _WITH_HOST:
        host, slash, rest = path.partition("/")
        path = host.rpartition("@")[2] + slash + rest
    if protocol in {"http", "https"}:
        path = path.partition("?")[0].rstrip("/")
    if protocol == "memory":
        path = path.lstrip("/")
    return f"{_ALIASES.get(protocol, protocol)}://{path}"


def registered_classes(url: str) -> dict[str, Any]:
    """Return the filesystem classes that only this process may know; `StoreError` where there is none of a protocol."""
    classes = {}
    for protocol in protocols_of(url):
        try:
            cls = fsspec.get_filesystem_class(protocol)
        except (ImportError, ValueError) as error:
            raise StoreError(url=canonical_url(url), key="", reason=_how_to_install(protocol, error)) from error
        if protocol not in known_implementations:
            classes[protocol] = cls
    return classes


def register_classes(classes: Mapping[str, Any]) -> None:
    """Make protocols known in this process that were registered in another."""
    for protocol, cls in classes.items():
        if protocol not in registry:
            fsspec.register_implementation(protocol, cls)


def _how_to_install(protocol: str, error: BaseException) -> str:
    if isinstance(error, ImportError):
        package = _PACKAGES.get(protocol)
        install = f"pip install '{package}' ({error})" if package else str(error)
        return f"protocol {protocol!r} needs a package that is not installed: {install}"
    return (
        f"unknown protocol {protocol!r}: fsspec knows none of that name; register one with "
        "fsspec.register_implementation, or correct the url"
    )
