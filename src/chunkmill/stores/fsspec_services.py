"""Requests to fsspec filesystems, by kind of service: archives, those that rename files, any other.

Errors leave as the filesystem raises them; only those of `ABSENT` mean that there is no such key.
"""

from __future__ import annotations

import contextlib
import ftplib
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

from chunkmill.stores.posix_file import PARTIAL_SUFFIX, partial_name

ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

N_ATTEMPTS = 5
"""How often a value is put: one more for each folder that another process makes at the same time."""

ARCHIVE_PROTOCOLS = frozenset({"zip", "libarchive"})  # those that decompress, and tell sizes before
CACHE_PROTOCOLS = frozenset({"simplecache", "filecache", "blockcache", "cached"})  # those that keep what was read
RENAMING_PROTOCOLS = frozenset({"sftp", "ssh", "file", "local"})
ATOMIC_PROTOCOLS = RENAMING_PROTOCOLS | {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"}
"""Protocols whose values are replaced at once: object stores, and files that can be renamed over others."""


def hidden_failure(error: BaseException) -> BaseException | None:
    """Return what failed where a filesystem took it for an absent file, as fsspec's FTP does whatever fails."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        is_absence = isinstance(cause, ftplib.error_perm) and str(cause).startswith(("501", "550"))
        if isinstance(cause, (ConnectionError, TimeoutError, EOFError, ftplib.Error)) and not is_absence:
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


class Service:
    """Any filesystem, through fsspec's common methods, below a root."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.fs = filesystem
        self.pid = os.getpid()
        self.one_at_a_time: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        protocols = _protocols_of(filesystem)
        self.is_http = "http" in protocols
        self.root = root if self.is_http else root.rstrip("/")
        self.is_archive = not protocols.isdisjoint(ARCHIVE_PROTOCOLS) and not filesystem.async_impl
        # `zipfile` of Python 3.12 and 3.13.0 returns wrong bytes where several threads seek in one file, and paramiko's
        # client waits for ever where two threads ask at once
        if self.is_archive or protocols & {"ftp", "sftp", "ssh"}:
            self.one_at_a_time = _lock_of(filesystem)
        # caches of fsspec before 2026.3 say so of the filesystem below, and have no coroutines
        self.is_async = filesystem.async_impl and hasattr(type(filesystem), "_cat_file")

    def path(self, key: str) -> str:
        """Return what the filesystem calls a key, or a prefix."""
        if self.is_http:
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
        if getattr(kind, "_find", None) is not AsyncFileSystem._find and kind.find is not AbstractFileSystem.find:  # noqa: SLF001
            found: dict[str, dict[str, Any]] = self.fs.find(path, detail=True)
            return found
        return {info["name"]: info for info in self._walk(path)}

    def _walk(self, path: str) -> Iterator[dict[str, Any]]:
        try:
            entries = self.entries(path)
        except ABSENT as error:  # others may delete it since it was listed
            if hidden_failure(error) is not None:
                raise
            return
        for info in entries:
            name = info["name"].rstrip("/")
            if info["type"] != "directory":
                yield info
            elif name.strip("/") != path.strip("/"):
                yield from self._walk(name)

    def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the filesystem."""
        try:
            return getattr(self.fs, name)(*args, **kwargs)
        except ftplib.error_perm as error:
            if str(error).startswith("550"):
                raise FileNotFoundError(*args[:1]) from error
            raise
        except KeyError as error:
            if self.is_archive:  # `zipfile`'s own, from fsspec before 2026.6
                raise FileNotFoundError(*args[:1]) from error
            raise

    def entries(self, path: str) -> list[dict[str, Any]]:
        """Return what the filesystem tells of each file and folder directly below a path."""
        found: list[dict[str, Any]] = self._run("ls", path, detail=True)
        return found

    def fetch(self, path: str, **bounds: int) -> bytes:
        """Return a value, or the bytes from `start` to `end`, perhaps fewer."""
        return bytes(self._run("cat_file", path, **bounds))

    def size(self, path: str) -> int:
        """Return the size of a value; `FileNotFoundError` where there is none."""
        self.fs.invalidate_cache()  # some filesystems remember sizes from listings
        info = self._run("info", path)
        if info["type"] == "directory":
            raise FileNotFoundError(path)
        size: int | None = info["size"]
        return len(self.fetch(path)) if size is None else size

    def put(self, path: str, value: bytes) -> bool:
        """Store a value; return true. Others may make and remove the same folders at the same time."""
        for n_left in reversed(range(N_ATTEMPTS)):
            try:
                self._run("pipe_file", path, value)
                break
            except FileNotFoundError:
                if self.is_async or not n_left:  # no directories in object stores: what is missing stays so
                    raise
            self.fs.invalidate_cache()
            try:
                self._run("makedirs", path.rpartition("/")[0], exist_ok=True)
            except Exception:  # what it is where another made one of them first, each filesystem says in its own way
                if n_left == 1:
                    raise
        return True

    def delete(self, path: str) -> None:
        """Delete a value; `FileNotFoundError` where there is none."""
        if not self.is_async:  # nor a folder, which WebDAV deletes with all that is in it
            self.size(path)
        self._run("rm_file", path)


def _protocols_of(filesystem: Any) -> set[str]:
    return {filesystem.protocol} if isinstance(filesystem.protocol, str) else set(filesystem.protocol)


def _lock_of(filesystem: Any) -> threading.RLock:
    """Return the lock of a client, which stores of several urls share: fsspec makes one for each host."""
    lock: threading.RLock = vars(filesystem).setdefault("_chunkmill_lock", threading.RLock())
    return lock


class RenamingService(Service):
    """A filesystem whose files are replaced by renaming another one: written in place, they are seen half written."""

    def put(self, path: str, value: bytes) -> bool:
        """Store a value: a hidden file in the same directory, then a rename over the path."""
        directory, _, name = path.rpartition("/")
        partial = f"{directory}/{partial_name(name)}"
        try:
            super().put(partial, value)
            self._run("mv", partial, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self._run("rm_file", partial)
            raise
        return True


class SftpService(RenamingService):
    """SFTP, whose server may close the connection."""

    def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._run(name, *args, **kwargs)
        except (EOFError, OSError) as error:
            if self._is_connected_again():
                return super()._run(name, *args, **kwargs)
            if isinstance(error, ABSENT) or name != "cat_file" or not self.fs.isdir(args[0]):
                raise
            raise IsADirectoryError(*args) from error  # servers say "Failure", or "Is a directory"

    def _is_connected_again(self) -> bool:
        """Connect again where the server has closed the connection; return whether it had."""
        transport = self.fs.client.get_transport() if hasattr(self.fs, "client") else None
        is_lost = transport is not None and not transport.is_active()
        if is_lost:
            self.fs._connect()  # noqa: SLF001
        return is_lost


class WebdavService(Service):
    """WebDAV, through webdav4, which does not quote what is special in a url."""

    def __init__(self, filesystem: Any, root: str) -> None:
        super().__init__(filesystem, root)
        client = filesystem.client
        join = type(client).join_url

        def quoted(path: str, add_trailing_slash: bool = False) -> Any:
            return join(client, quote(path), add_trailing_slash)

        vars(client)["join_url"] = quoted


def service_of(filesystem: Any, root: str) -> Service:
    """Return how to talk to `filesystem`, for a store that begins at `root`."""
    protocols = _protocols_of(filesystem)
    if "webdav" in protocols:
        return WebdavService(filesystem, root)
    if protocols & {"sftp", "ssh"}:
        return SftpService(filesystem, root)
    return (Service if protocols.isdisjoint(RENAMING_PROTOCOLS) else RenamingService)(filesystem, root)


def digest(data: bytes) -> str:
    """Return a version for filesystems that have none: a digest of the content."""
    return "blake2b-" + hashlib.blake2b(data, digest_size=16).hexdigest()


def http_url(root: str, key: str) -> str:
    """Return the url of a key: quoted, and before the query of the root.

    Examples
    --------
    >>> http_url("https://host/x.zarr?token=1", "a b/#0")
    'https://host/x.zarr/a%20b/%230?token=1'
    """
    base, question, query = root.partition("?")
    return base.rstrip("/") + "/" + quote(key) + question + query
