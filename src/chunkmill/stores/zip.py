"""Store over one local zip file: keys are member names.

Reading is safe from many threads. Writing is for one process: values go to a hidden copy next to the file, which
replaces it when the store is closed. What jobs keep of themselves stays in memory: a job that was killed begins again
(P7), and no byte of it is in the file. Zip files elsewhere (``zip://::s3://…``) are read through `FsspecStore`.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import shutil
import threading
import time
import weakref
import zipfile
from collections.abc import Iterator
from copy import copy
from typing import Any, cast

from chunkmill.errors import StoreError
from chunkmill.model.references import Reference
from chunkmill.stores.base import (
    ByteRange,
    PlacedStore,
    check_key,
    check_prefix,
    fork_safe_lock,
)
from chunkmill.stores.local import JOURNAL, LocalStore
from chunkmill.stores.posix_file import hidden_name, replace, sweep

_MAX_MEMBER_BYTES = 8 * 2**30  # of a compressed member, decompressed
_MAX_UNLIMITED_BYTES = 2**28  # where the reader says nothing (`limited_to`), of a document; more where more is stored
_MAX_RATIO = 200  # to what is stored of it; consolidated metadata of alike arrays: 58, indented 95


class ZipStore(PlacedStore, contextlib.AbstractContextManager["ZipStore"]):
    """The members of a zip file.

    Of two members of one name the last wins, as archivers mean it. Members with absolute names or ``..`` are not keys.

    What is written is stored uncompressed (chunks are compressed already) and seen at once by every `ZipStore` of the
    path in this process; the file changes when one of them is closed, or the process ends. Other processes can read
    only: to write from many, write a directory store and zip it. Of a symbolic link, the file that it leads to changes.

    Parameters
    ----------
    path
        The zip file; made by the first `close` after a write when there is none.
    prefix
        Directory in the archive that is the root of the store.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, ZipStore(f"{folder}/x.zip") as store:
    ...     store.set("a/zarr.json", b"{}")
    ...     store.get("a/zarr.json"), store.list_dir("")
    (b'{}', ['a/'])
    """

    is_remote = False
    has_versions = is_archive = locates_values = True

    def __init__(self, path: str | os.PathLike[str], prefix: str = "") -> None:
        self._path = os.path.abspath(os.path.expanduser(os.fspath(path)))  # noqa: PTH100, PTH111
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        check_prefix(self._prefix)
        self.url = f"zip://{self._prefix[:-1]}::file://{self._path}"
        self._pid = os.getpid()  # the only process that may write
        self._archive: _Archive | None = None
        self._max_member_bytes: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_archive": None}

    def __repr__(self) -> str:
        return f"ZipStore({self._path!r}{', ' + repr(self._prefix[:-1]) if self._prefix else ''})"

    def identity(self) -> tuple[str, str]:
        """Return the file and the directory in it."""
        return "chunkmill.ZipStore", self.url

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Put what was written in place of the file. The store can be used again."""
        if self._pid == os.getpid():
            with self.named_in_errors(""):
                self._open().publish()

    def scratch(self) -> LocalStore:
        """Return the folder of the file: members are not read while others are written."""
        return LocalStore(os.path.dirname(self._path))  # noqa: PTH120

    def limited_to(self, n_bytes: int) -> ZipStore:
        """Return the store, such that it decompresses no member to more than `n_bytes`."""
        other = copy(self)
        other._max_member_bytes = min(n_bytes, self._max_member_bytes or n_bytes)  # noqa: SLF001
        return other

    def flush(self) -> None:
        """Put what was written in place of the file."""
        super().flush()
        self.close()

    # --- reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a member, or a range of it."""
        return self._noted(key, byte_range)[0]

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a member, and its place and checksum in the archive."""
        return self._noted(key, None)

    def version(self, key: str) -> str | None:
        """Return the place and checksum of a member."""
        member = self._member(key)
        return None if member is None else _version_of(member)

    def _noted(self, key: str, byte_range: ByteRange | None) -> tuple[bytes | None, str | None]:
        if (member := self._member(key)) is None:
            return None, None
        with self.named_in_errors(key):
            if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                # nothing bounds the size of others (P13)
                reason = "the member is neither stored nor deflated, and not decompressed: unpack the file"
                raise StoreError(url=self.url, key=key, reason=reason)
            unlimited = max(_MAX_UNLIMITED_BYTES, _MAX_RATIO * member.compress_size)
            n_most = min(_MAX_MEMBER_BYTES, self._max_member_bytes or unlimited)
            if member.compress_type != zipfile.ZIP_STORED and member.file_size > n_most:
                reason = f"the member decompresses to {member.file_size} bytes, expected at most "
                reason += f"{n_most}: it is damaged, or was made to fill memory"
                raise StoreError(url=self.url, key=key, reason=reason)
            start, stop = self.bounds(key, byte_range, member.file_size)
            data = self._open().read(member, start, stop)
        if data is None:
            return self._noted(key, byte_range)
        if len(data) != stop - start:
            reason = f"expected {stop - start} bytes from {start}, got {len(data)}: the zip file is truncated or wrong"
            raise StoreError(url=self.url, key=key, reason=reason)
        return data, _version_of(member)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        member = self._member(key)
        return None if member is None else member.file_size

    def _member(self, key: str) -> zipfile.ZipInfo | None:
        name = self._prefix + check_key(key)
        with self._waiting(key) as archive:
            return archive.members().get(name)

    def locate(self, key: str) -> Reference | None:
        """Return the range of the zip file that holds a value; ``None`` when there is no such key.

        Raises
        ------
        StoreError
            The member is compressed or encrypted: no range of the file is its value; or it is not in the file yet.
        """
        if (member := self._member(key)) is None:
            return None
        with self.named_in_errors(key):
            if member.compress_type != zipfile.ZIP_STORED:
                reason = "the member is compressed, so that no byte range of the zip file is its value: "
                reason += "zip without compression (zip -0), or unpack the file"
                raise StoreError(url=self.url, key=key, reason=reason)
            return Reference(f"file://{self._path}", self._open().data_offset(member), member.file_size)

    # --- writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Add a member, in place of one of that name."""
        name = self._prefix + check_key(key)
        with self._writing(key) as archive:
            archive.write(name, bytes(value))

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store (or delete) if the member still has `version`: atomic among the threads of this process."""
        name = self._prefix + check_key(key)
        with self._writing(key) as archive:
            if self.version(key) != version:
                return False
            archive.remove([name]) if value is None else archive.write(name, bytes(value))
            return True

    def delete(self, key: str) -> None:
        """Take a member out of the directory; its bytes stay in the file."""
        name = self._prefix + check_key(key)
        with self._writing(key) as archive:
            archive.remove([name])

    def delete_prefix(self, prefix: str) -> None:
        """Take all members below `prefix` out of the directory."""
        check_prefix(prefix)
        with self._writing(prefix) as archive:
            archive.remove([name for name in archive.members() if name.startswith(self._prefix + prefix)])

    def sweep(self, prefix: str = "", *, remove: bool = True, recursive: bool = True) -> list[str]:
        """Remove the copies of the file that killed writers left next to it, and return their names."""
        above, name = os.path.split(self._path)
        found = [] if prefix or not recursive else sweep(above, remove=remove, of=name)
        return sorted(f"../{os.path.basename(path)}" for path in found)  # noqa: PTH119

    # --- listing

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        full = self._prefix + check_prefix(prefix)
        with self._waiting(prefix) as archive:
            names = list(archive.members())
        yield from (name[len(self._prefix) :] for name in names if name.startswith(full))

    # --- errors

    def _writing(self, key: str) -> contextlib.AbstractContextManager[_Archive]:
        if self._pid != os.getpid():
            reason = "a zip file is written by one process: write a directory store, then zip it"
            raise StoreError(url=self.url, key=key, reason=reason)
        return self._waiting(key)

    @contextlib.contextmanager
    def _waiting(self, key: str) -> Iterator[_Archive]:
        """Open the archive, in which no member is being replaced (P2)."""
        archive = self._open()
        with archive.lock, self.named_in_errors(key):
            yield archive

    def _open(self) -> _Archive:
        if self._archive is None or self._archive.pid != os.getpid():
            self._archive = _shared_archive(os.path.realpath(self._path))
        return self._archive


# --- the state of a file in this process


class _Archive:
    """The one state of a zip file in a process: what is on disk, or a hidden copy with changes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_ozx = path.lower().endswith(".ozx")
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self._zip: zipfile.ZipFile | None = None
        self._seen: tuple[int, int, int] | None = None  # which file on disk `_zip` is, or began as
        self._partial: str | None = None
        self._held: dict[str, zipfile.ZipInfo] = {}  # of jobs
        self._members: dict[str, zipfile.ZipInfo] = {}

    def members(self) -> dict[str, zipfile.ZipInfo]:
        """Return the members of the file on disk, or of its hidden copy, that are keys."""
        with self.lock:
            if self._partial is None and (self._zip is None or self._seen != _signature(self.path)):
                self._reopen()
            return self._members

    def _reopen(self) -> None:
        if self._zip is not None:
            self._zip.close()  # reads under way continue: zipfile counts its readers
        self._zip, self._members, self._seen = None, dict(self._held), _signature(self.path)
        if self._seen is not None:
            self._zip = zipfile.ZipFile(self.path)
            self._members = _keys(self._zip) | self._held

    def read(self, member: zipfile.ZipInfo, start: int, stop: int) -> bytes | None:
        """Return a range of a member; ``None`` where it has been written again, deleted or moved since it was found."""
        if isinstance(member, _Held):
            return member.value[start:stop]
        with self.lock:
            if self._zip is None:
                raise FileNotFoundError(f"{self.path} was removed while it was read")
            if self._members.get(member.filename) is not member:
                return None
            if self._partial is not None:
                return _read(self._zip, member, start, stop)  # zipfile refuses to read while it writes
            archive = self._zip
        return _read(archive, member, start, stop)

    def data_offset(self, member: zipfile.ZipInfo) -> int:
        """Return where in the file on disk the bytes of a member begin."""
        with self.lock:
            if self._partial is not None:
                raise OSError("what was written is not in the file yet: close the store first")
            with cast("zipfile.ZipFile", self._zip).open(member) as file:  # checks the header before the bytes
                return int(file._orig_compress_start)  # type: ignore[attr-defined]  # noqa: SLF001

    def write(self, name: str, value: bytes) -> None:
        """Add a member, in place of one of that name."""
        if f"/{JOURNAL}" in f"/{name}":
            self.members()[name] = self._held[name] = _Held(name, value)
            return
        archive = self._begin()
        self._forget([name])
        member = zipfile.ZipInfo(name, time.localtime()[:6])
        with archive.open(member, "w") as file:
            file.write(value)
        self._members[name] = archive.getinfo(name)

    def remove(self, names: list[str]) -> None:
        """Take members out of the directory, and all bytes out of the file when none is left."""
        members = self.members()
        for name in names:
            if self._held.pop(name, None) is not None:
                del members[name]
        if not any(name in members for name in names):
            return
        self._forget(names)
        if len(self._members) == len(self._held):
            self._drop()
            self._create(copy=False)

    def _forget(self, names: list[str]) -> None:
        archive = self._begin()
        gone = {name for name in names if self._members.pop(name, None) is not None}
        if gone:
            archive.filelist[:] = [info for info in archive.filelist if info.filename not in gone]
            for name in gone:
                archive.NameToInfo.pop(name, None)
            archive._didModify = True  # type: ignore[attr-defined]  # noqa: SLF001, else close() writes no directory

    def _begin(self) -> zipfile.ZipFile:
        """Return the hidden copy that takes changes."""
        if self._partial is None or self._zip is None:
            self.members()
            self._create(copy=self._seen is not None)
            _unpublished.add(self)
        return cast("zipfile.ZipFile", self._zip)

    def _create(self, *, copy: bool) -> None:
        directory, name = os.path.split(self.path)
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103
        sweep(directory, of=name)  # copies of killed writers
        partial = hidden_name(self.path)
        try:
            if copy:
                shutil.copyfile(self.path, partial)
            archive = zipfile.ZipFile(partial, "a" if copy else "x")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)  # noqa: PTH108
            raise
        if self._zip is not None:
            self._zip.close()
        self._zip, self._partial, self._members = archive, partial, _keys(archive) | self._held

    def publish(self) -> None:
        """Put the hidden copy in place of the file."""
        with self.lock:
            if self._partial is None or self._zip is None:
                return
            try:
                if self.is_ozx:
                    _describe_ozx(self._zip)
                self._zip.close()  # writes the directory
                if _signature(self.path) != self._seen:
                    raise OSError(
                        f"another process changed {self.path} in between, what was written is dropped: "
                        "write a zip file from one process, or a directory store from many"
                    )
                with open(self._partial, "r+b") as file:  # noqa: PTH123
                    os.fsync(file)  # all that was in the file before is replaced
                replace(self._partial, self.path)
                self._partial = None
            finally:
                self._drop()
                _unpublished.discard(self)

    def _drop(self) -> None:
        """Close, and remove the hidden copy if it is still there."""
        if self._zip is not None:
            with contextlib.suppress(OSError):
                self._zip.close()
        if self._partial is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._partial)  # noqa: PTH108
        self._zip, self._partial, self._members = None, None, dict(self._held)


def _describe_ozx(archive: zipfile.ZipFile) -> None:
    """Put the documents first in the directory, the topmost before all, and say so in the comment (OME-Zarr RFC-9)."""

    def place(member: zipfile.ZipInfo) -> tuple[bool, int]:
        is_document = member.filename.rpartition("/")[2] == "zarr.json"
        return not is_document, member.filename.count("/") if is_document else 0

    if "zarr.json" not in archive.NameToInfo:  # RFC-9 describes files with a node of Zarr v3 at their root
        return
    archive.filelist.sort(key=place)  # members of one name keep their order: the last one counts
    version = "0.5"
    with contextlib.suppress(KeyError, ValueError, TypeError):
        version = json.loads(archive.read("zarr.json"))["attributes"]["ome"]["version"]
    described = {"version": version, "zipFile": {"centralDirectory": {"jsonFirst": True}}}
    archive.comment = json.dumps({"ome": described}).encode()


_archives: weakref.WeakValueDictionary[tuple[int, str], _Archive] = weakref.WeakValueDictionary()
_unpublished: set[_Archive] = set()
_lock = fork_safe_lock()


def _shared_archive(path: str) -> _Archive:
    """Return the state of that zip file in this process."""
    with _lock:
        archive = _archives.get((os.getpid(), path))
        if archive is None:
            archive = _archives[os.getpid(), path] = _Archive(path)
        return archive


def _publish_all() -> None:
    for archive in list(_unpublished):
        if archive.pid == os.getpid():
            archive.publish()


atexit.register(_publish_all)


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, start: int, stop: int) -> bytes:
    with archive._lock:  # type: ignore[attr-defined]  # noqa: SLF001
        # Python 3.12 and 3.13.0 seek from where another thread has read last: here none can have
        file = archive.open(member)
        if member.compress_type == zipfile.ZIP_STORED:
            file.seek(start)
    with file:
        file.seek(start)
        return file.read(stop - start)


class _Held(zipfile.ZipInfo):
    """A value in memory that is listed and read as a member."""

    _NUMBERS = itertools.count()

    def __init__(self, name: str, value: bytes) -> None:
        super().__init__(name)
        self.value, self.file_size, self.header_offset, self.CRC = value, len(value), next(self._NUMBERS), 0


def _keys(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    found = {}
    for info in archive.infolist():
        with contextlib.suppress(ValueError):  # a directory, an absolute name, '..'
            found[check_key(info.filename)] = info
    return found


def _version_of(member: zipfile.ZipInfo) -> str:
    """Return the version of a member: different for each time it is written."""
    return f"{member.header_offset}-{member.CRC:08x}-{member.file_size}"


def _signature(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
