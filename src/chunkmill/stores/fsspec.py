"""Store over any fsspec filesystem: archives, servers of files, filesystems and protocols of the user's own.

Such stores compare no versions: documents and parts of chunks are guarded by locks alone.

Filesystems are made at their first use in a process and never pickled: importing and constructing start no thread and
no event loop, so forks before and after use both work. Errors leave a `Service` as the filesystem raises them; only
those of `ABSENT` mean that there is no such key.
"""

from __future__ import annotations

import contextlib
import ftplib
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, TypeVar
from urllib.parse import quote

import fsspec
import fsspec.core
import fsspec.utils
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.registry import known_implementations
from fsspec.spec import AbstractFileSystem

from chunkmill.errors import StoreError
from chunkmill.stores.base import (
    READ_ONLY,
    ByteRange,
    HeldInMemory,
    PlacedStore,
    check_key,
    fork_safe_lock,
    range_bounds,
)
from chunkmill.stores.conflicts import warn_unguarded
from chunkmill.stores.places import protocols_of
from chunkmill.stores.posix_file import PARTIAL_SUFFIX, partial_name
from chunkmill.stores.read_ahead import ReadsAhead

T = TypeVar("T")

LOCAL_PROTOCOLS = frozenset({"memory", "file", "local"})
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

N_ATTEMPTS = 5
"""How often a value is put: one more for each folder that another process makes at the same time."""

ARCHIVE_PROTOCOLS = frozenset({"zip", "libarchive"})  # those that decompress, and tell sizes before
CACHE_PROTOCOLS = frozenset({"simplecache", "filecache", "blockcache", "cached"})  # those that keep what was read
RENAMING_PROTOCOLS = frozenset({"sftp", "ssh", "file", "local"})
ATOMIC_PROTOCOLS = RENAMING_PROTOCOLS | {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"}
"""Protocols whose values are replaced at once: object stores, and files that can be renamed over others."""


def hidden_failure(error: BaseException) -> BaseException | None:
    """Return what failed where a filesystem took it for an absent file, as fsspec's FTP does whatever fails (P1)."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        is_absence = isinstance(cause, ftplib.error_perm) and str(cause).startswith(("501", "550"))
        if isinstance(cause, (ConnectionError, TimeoutError, EOFError, ftplib.Error)) and not is_absence:
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


class FsspecStore(ReadsAhead, HeldInMemory, PlacedStore):
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
    `set_if` compares before it writes, and the first one warns. Answers of 403 raise, though S3 gives them for absent
    keys too, to clients that must not list the bucket.

    Examples
    --------
    >>> store = FsspecStore("memory://docs-fsspec-store")
    >>> store.set("a/c/0", b"0123456789")
    >>> store.get("a/c/0", ByteRange(-3)), store.get("a/c/1"), store.list_dir("a/")
    (b'789', None, ['c/'])
    >>> store.delete_prefix("")
    """

    lists_at_once = has_folders = True

    def __init__(
        self, url: str, storage_options: Mapping[str, Any] | None = None, filesystem: type[Any] | None = None
    ) -> None:
        options = copied(storage_options or {})
        options.pop("asynchronous", None)  # would mean that we await; it comes with options meant for others
        self._protocol = protocol = protocols_of(url)[0]
        self.url = canonical_url(url)
        self.is_remote = protocol not in LOCAL_PROTOCOLS
        self.replaces_atomically = protocol in ATOMIC_PROTOCOLS
        self.can_list = protocol not in {"http", "https"}
        self._identity = url, options, filesystem, own_classes(url) if filesystem is None else {}
        self.home = self.here() if protocols_of(url)[-1] == "memory" else None
        self._opened: Service | None = None
        self._max_bytes: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def asks_at_once(self) -> bool:
        """Return whether the filesystem has coroutines: others, and fsspec's caches, fail in many threads."""
        return self._open().is_async

    def identity(self) -> tuple[str, str]:
        """Return a digest of url and options, which hold secrets."""
        return "chunkmill.FsspecStore", fsspec.utils.tokenize(*self._identity)

    def limited_to(self, n_bytes: int) -> FsspecStore:
        """Return the store, such that it decompresses no member of an archive to more than `n_bytes`."""
        if self._protocol not in ARCHIVE_PROTOCOLS:
            return self
        other = copy(self)
        other._max_bytes = n_bytes  # noqa: SLF001
        return other

    # --- reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it: one request."""
        check_key(key)
        return self._call(key, lambda opened: self._fetch(opened, key, byte_range))

    def _fetch(self, opened: Service, key: str, wanted: ByteRange | None) -> bytes | None:
        """Get bytes, and see that they are as many as were asked for; `ABSENT` is raised where the key is."""
        path = opened.path(key)
        if self._max_bytes is not None and (size := opened.size(path)) > self._max_bytes:
            reason = f"the member decompresses to {size} bytes, expected at most {self._max_bytes}: it is damaged, or "
            raise StoreError(url=self.url, key=key, reason=reason + "was made to fill memory")
        if wanted is None:
            return opened.fetch(path)
        start, length = wanted.start, wanted.length
        if start < 0 or not length:  # not every filesystem knows suffixes, or says when a start is past the end
            start, stop = range_bounds(wanted, opened.size(path), url=self.url, key=key)
            if start == stop:
                return b""
            length = stop - start
        data = opened.fetch(path, start=start, end=start + length)
        if len(data) != length:
            reason = f"expected {length} bytes from {start}, got {len(data)}"
            raise StoreError(url=self.url, key=key, reason=f"{reason}: the object or the response is truncated")
        return data

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes, without fetching it."""
        check_key(key)
        return self._call(key, lambda opened: opened.size(opened.path(key)))

    # --- writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value in one request (large values by a multipart upload, where the service has one)."""
        self._check_writable(key)
        data = bytes(value)
        if not self._call(key, lambda opened: opened.put(opened.path(key), data)):
            raise StoreError(url=self.url, key=key, reason="cannot write: the place does not exist")

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store (or delete) if the key still has `version`, compared before: under a lock."""
        self._check_writable(key)
        stored = super().set_if(key, value, version)
        if stored and self.is_remote:
            warn_unguarded(self, "/".join(self.url.split("/")[:3]))
        return stored

    def _check_writable(self, key: str) -> None:
        check_key(key)
        if self._protocol in {"http", "https"}:
            raise StoreError(url=self.url, key=key, reason=READ_ONLY)
        if self._protocol in CACHE_PROTOCOLS:
            reason = f"cannot write through {self._protocol!r}, which keeps what it has read of the old value"
            below = self.url.partition("::")[2]
            raise StoreError(url=self.url, key=key, reason=f"{reason}: write to {below or 'the url below'}")

    def delete(self, key: str) -> None:
        """Delete a key."""
        self._check_writable(key)
        self._call(key, lambda opened: opened.delete(opened.path(key)))

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`, and the directories where there are any."""
        self._check_writable(prefix.rstrip("/") or "any")
        self.delete_many(list(self.list_prefix(prefix)))
        if not self._open().is_async:
            self._call(prefix, lambda opened: _remove_directory(opened, opened.path(prefix)))

    def remove_folder(self, prefix: str) -> bool:
        """Remove the directory of a prefix if it is empty, where there are directories."""
        if self._open().is_async or self.list_dir(prefix):
            return False
        self._check_writable(prefix.rstrip("/") or "any")
        self._call(prefix, lambda opened: _remove_directory(opened, opened.path(prefix)))
        return True

    # --- listing

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        yield from (key for key, _ in self.list_sizes(prefix))

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int | None]]:
        """Yield every key that starts with `prefix` with its size, ``None`` where the service's listing has none."""
        self.check_listed(prefix)
        found: Mapping[str, Any] = self._call(prefix, lambda opened: opened.find(opened.path(prefix))) or {}
        for path, info in found.items():
            yield from ((prefix + name, info.get("size")) for name in self._open().names_below(prefix, [path]))

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`; `StoreError` of web servers."""
        self.check_listed(prefix)
        entries: Iterable[dict[str, Any]] = self._call(prefix, lambda opened: opened.entries(opened.path(prefix))) or ()
        paths = (e["name"].rstrip("/") + ("/" if e["type"] == "directory" else "") for e in entries)
        return sorted(set(self._open().names_below(prefix, paths)))

    # --- filesystem

    def _open(self) -> Service:
        self.check_home()
        if self._opened is None or self._opened.pid != os.getpid():
            try:
                self._opened = open_filesystem(*self._identity)
            except Exception as error:
                raise self._failed("", error) from error
        return self._opened

    def _call(self, key: str, function: Callable[[Service], T]) -> T | None:
        """Ask the filesystem; return `None` where the key is absent."""
        opened = self._open()
        try:
            with opened.one_at_a_time:
                return function(opened)
        except ABSENT as error:
            if (cause := hidden_failure(error)) is not None:
                raise self._failed(key, cause) from cause
            return None
        except Exception as error:
            raise self._failed(key, error) from error

    def _failed(self, key: str, error: BaseException) -> StoreError:
        if isinstance(error, StoreError):
            return error
        hint = _MAY_BE_ABSENT if self.is_remote and isinstance(error, PermissionError) else ""
        return self.failed(key, f"{type(error).__name__}: {error}{hint}", error)


_MAY_BE_ABSENT = "; servers answer so for absent keys too, unless the credentials may list the bucket: give format="


def _remove_directory(opened: Service, path: str) -> None:
    if opened.fs.isdir(path):  # a file, without the slash, is not below the prefix
        opened.fs.rm(path, recursive=True)


# --- requests, by kind of service: archives, those that rename files, any other


class Service:
    """Any filesystem, through fsspec's common methods, below a root."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.fs = filesystem
        self.pid = os.getpid()
        self.one_at_a_time: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        protocols = _protocols_of(filesystem)
        self.is_http = "http" in protocols
        self.root = root if self.is_http else root.rstrip("/")
        self.is_archive = not protocols.isdisjoint(ARCHIVE_PROTOCOLS)
        # `zipfile` of Python 3.12 and 3.13.0 returns wrong bytes where several threads seek in one file, and paramiko's
        # client waits for ever where two threads ask at once
        if self.is_archive or protocols & {"ftp", "sftp", "ssh"}:
            # stores of several urls share a client: fsspec makes one for each host
            self.one_at_a_time = vars(filesystem).setdefault("_chunkmill_lock", threading.RLock())
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

        fsspec's own walk passes over folders that it failed to list: chunks in them would be read as fill values (P1).
        """
        self.fs.invalidate_cache()  # or others' changes stay unseen
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
        except (ftplib.error_perm, KeyError) as error:  # `zipfile`'s own, from fsspec before 2026.6
            if self.is_archive if isinstance(error, KeyError) else str(error).startswith("550"):
                raise FileNotFoundError(*args[:1]) from error
            raise

    def entries(self, path: str) -> list[dict[str, Any]]:
        """Return what the filesystem tells of each file and folder directly below a path."""
        self.fs.invalidate_cache()
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


def http_url(root: str, key: str) -> str:
    """Return the url of a key: quoted, and before the query of the root.

    Examples
    --------
    >>> http_url("https://host/x.zarr?token=1", "a b/#0")
    'https://host/x.zarr/a%20b/%230?token=1'
    """
    base, question, query = root.partition("?")
    return base.rstrip("/") + "/" + quote(key) + question + query


# --- the filesystem of a url: one a process; fsspec keeps one a thread, each with its own connections

_WITH_HOST = {"http", "https", "ftp", "sftp", "ssh", "smb", "webdav", "webhdfs"}
_ALIASES = {"s3a": "s3", "gcs": "gs", "local": "file"}


_filesystems: dict[tuple[int, str], Service] = {}
_lock = fork_safe_lock()
# after a fork the parent's stay referenced: their finalizers want the parent's loop


def open_filesystem(
    url: str, options: Mapping[str, Any], made_by: type[Any] | None, registered: Mapping[str, type[Any]]
) -> Service:
    """Return the filesystem of a url, one per process (fsspec's cache has one per thread, each with connections).

    Classes that users have registered, in the process that made the store, are `registered` here.
    """
    token = os.getpid(), fsspec.utils.tokenize(url, options, made_by)
    with _lock:
        if token not in _filesystems:
            for protocol, kind in registered.items():
                fsspec.register_implementation(protocol, kind, clobber=True)
            if made_by is None:
                fs, root = fsspec.core.url_to_fs(url, **copied(options))
            else:
                fs = made_by(**made_by._get_kwargs_from_urls(url) | copied(options))  # noqa: SLF001
                root = url if protocols_of(url)[0] in {"http", "https"} else url.partition("://")[2]
            fs, root = without_dirs(fs, root)
            _filesystems[token] = service_of(fs, root)
        return _filesystems[token]


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


def own_classes(url: str) -> dict[str, type[Any]]:
    """Return the filesystem classes of protocols that users have registered: other processes may not know them.

    `StoreError` where there is no class of a protocol.
    """
    found = {}
    for protocol in protocols_of(url):
        try:
            found[protocol] = fsspec.get_filesystem_class(protocol)
        except (ImportError, ValueError) as error:
            raise StoreError(url=canonical_url(url), key="", reason=_how_to_install(protocol, error)) from error
    return {protocol: kind for protocol, kind in found.items() if protocol not in known_implementations}


def _how_to_install(protocol: str, error: BaseException) -> str:
    if isinstance(error, ImportError):
        return f"protocol {protocol!r} needs a package that is not installed: {error}"
    return (
        f"unknown protocol {protocol!r}: fsspec knows none of that name; register one with "
        "fsspec.register_implementation, or correct the url"
    )
