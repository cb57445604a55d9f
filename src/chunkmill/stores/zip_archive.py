"""State of one zip file in one process: read in place, changed in a hidden copy that replaces it when published.

Members are copied as they are stored: compressed or encrypted ones are neither decoded nor encoded again.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import struct
import threading
import time
import weakref
import zipfile
from collections.abc import Callable, Iterable
from copy import copy
from typing import IO, Any, cast

from chunkmill.stores.base import check_key
from chunkmill.stores.partial_files import partial_name, sweep_copies
from chunkmill.stores.posix_file import replace

__all__ = ["HEADER", "Archive", "copy_member", "header_length", "shared_archive", "version_of"]

HEADER = struct.Struct("<4s22xHH")  # of a member: its signature, the lengths of its name and of an extra field
_COPY_STEP = 2**20
_ENCRYPTED, _SIZES_FOLLOW = 1, 8  # bits of a member's flags


def header_length(header: bytes) -> int:
    """Return the length of what precedes a member's bytes, whose first `HEADER.size` bytes are given."""
    if len(header) != HEADER.size:
        raise OSError("the zip file is truncated")
    signature, name_length, extra_length = HEADER.unpack(header)
    if signature != b"PK\x03\x04":
        raise OSError("the zip file is damaged: there is no member where its directory says")
    return HEADER.size + int(name_length) + int(extra_length)


def copy_member(source: zipfile.ZipFile, member: zipfile.ZipInfo, target: zipfile.ZipFile, name: str) -> None:
    """Append a member of one open zip file to another one, under a name that is not in it."""
    new = copy(member)
    new.filename = new.orig_filename = name
    new.header_offset = target.start_dir
    if not new.flag_bits & _ENCRYPTED:  # else its password is checked by them
        new.flag_bits &= ~_SIZES_FOLLOW  # the directory has them
    file, written = cast("IO[bytes]", source.fp), cast("IO[bytes]", target.fp)
    written.seek(target.start_dir)
    written.write(new.FileHeader(zip64=member.extract_version >= zipfile.ZIP64_VERSION or None))
    with source._lock:  # type: ignore[attr-defined]  # noqa: SLF001, readers seek in the same file
        file.seek(member.header_offset)
        file.seek(member.header_offset + header_length(file.read(HEADER.size)))
        n_left = member.compress_size
        while n_left:
            if not (part := file.read(min(_COPY_STEP, n_left))):
                raise OSError("the zip file is truncated")
            written.write(part)
            n_left -= len(part)
    target.start_dir = written.tell()
    target.filelist.append(new)
    target.NameToInfo[name] = new
    target._didModify = True  # type: ignore[attr-defined]  # noqa: SLF001, else close() writes no directory


class Archive:
    """The one state of a zip file in a process: what is on disk, or a hidden copy with changes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_ozx = path.lower().endswith(".ozx")
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self._zip: zipfile.ZipFile | None = None
        self._seen: tuple[int, int, int] | None = None  # which file on disk `_zip` is, or began as
        self._partial: str | None = None
        self._members: dict[str, zipfile.ZipInfo] = {}

    def __del__(self) -> None:
        if self._zip is not None and self.pid == os.getpid():
            self._zip.close()

    def members(self) -> dict[str, zipfile.ZipInfo]:
        """Return the members of the file on disk, or of its hidden copy, that are keys."""
        with self.lock:
            if self._partial is None and (self._zip is None or self._seen != _signature(self.path)):
                self._reopen()
            return self._members

    def _reopen(self) -> None:
        if self._zip is not None:
            self._zip.close()  # reads under way continue: zipfile counts its readers
        self._zip, self._members, self._seen = None, {}, _signature(self.path)
        if self._seen is not None:
            self._zip = zipfile.ZipFile(self.path)
            self._members = {info.filename: info for info in self._zip.infolist() if _is_key(info)}

    def read(self, member: zipfile.ZipInfo, start: int, stop: int) -> bytes | None:
        """Return a range of a member; ``None`` where it has been written again, deleted or moved since it was found."""
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
        with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123
            file.seek(member.header_offset)
            return member.header_offset + header_length(file.read(HEADER.size))

    def write(self, name: str, value: bytes) -> None:
        """Add a member, in place of one of that name."""
        archive = self._begin()
        self._forget([name])
        self._add(archive, name, value)
        self._members[name] = archive.getinfo(name)

    def _add(self, archive: zipfile.ZipFile, name: str, value: bytes) -> None:
        member = zipfile.ZipInfo(name, time.localtime()[:6])
        with archive.open(member, "w", force_zip64=self.is_ozx) as file:
            file.write(value)

    def remove(self, names: list[str]) -> None:
        """Take members out of the directory, and all bytes out of the file when none is left."""
        if not any(name in self.members() for name in names):
            return
        self._begin()
        self._forget(names)
        if not self._members:
            self._drop()
            self._create(copy=False)

    def exchange(
        self, renamed: Callable[[str], str | None], added: Iterable[tuple[str, Callable[[], bytes | None]]] = ()
    ) -> None:
        """Change many members at once: all of it is seen, or nothing.

        What stays is copied into a new hidden copy, so that the bytes of what does not are freed.

        Parameters
        ----------
        renamed
            Returns the new name of a member; ``None``: it is deleted.
        added
            Names of new members, and what reads each.
        """
        with self.lock:
            members, begun = self.members(), self._partial is not None
            partial = self._partial_name()
            new = zipfile.ZipFile(partial, "x")
            try:
                if self._zip is not None:
                    new.comment = self._zip.comment
                    for info in self._zip.infolist():
                        is_key = members.get(info.filename) is info
                        name = renamed(info.filename) if is_key else None if _is_key(info) else info.filename
                        if name is not None:
                            copy_member(self._zip, info, new, name)
                for name, read in added:
                    if (value := read()) is not None:
                        self._add(new, name, value)
            except BaseException:
                with contextlib.suppress(OSError):
                    new.close()
                with contextlib.suppress(OSError):
                    os.unlink(partial)  # noqa: PTH108
                raise
            if begun:
                self._drop()
            elif self._zip is not None:
                self._zip.close()
            self._take(new, partial)
            _unpublished.add(self)

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
        partial = self._partial_name()
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
        self._take(archive, partial)

    def _partial_name(self) -> str:
        directory, name = os.path.split(self.path)
        os.makedirs(directory, exist_ok=True)  # noqa: PTH103
        for _ in sweep_copies(self.path):  # copies of killed writers
            pass
        return os.path.join(directory, partial_name(name))  # noqa: PTH118

    def _take(self, archive: zipfile.ZipFile, partial: str) -> None:
        self._zip, self._partial = archive, partial
        self._members = {info.filename: info for info in archive.infolist() if _is_key(info)}

    def publish(self) -> None:
        """Put the hidden copy in place of the file."""
        with self.lock:
            if self._partial is None or self._zip is None:
                return
            try:
                if self.is_ozx:
                    _describe_ozx(self._zip)
                self._zip.close()  # writes the directory
                if self.is_ozx:
                    _end_as_zip64(self._partial, self._zip)
                if _signature(self.path) != self._seen:
                    raise OSError(
                        f"another process changed {self.path} in between, what was written is dropped: "
                        "write a zip file from one process, or a directory store from many"
                    )
                fd = os.open(self._partial, os.O_RDWR | getattr(os, "O_BINARY", 0))
                try:
                    os.fsync(fd)  # all that was in the file before is replaced
                finally:
                    os.close(fd)
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
        self._zip, self._partial, self._members = None, None, {}


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


def _end_as_zip64(path: str, archive: zipfile.ZipFile) -> None:
    """End the directory of a closed zip file as ZIP64 does, which RFC-9 wants whatever the size."""
    with open(path, "r+b") as file:  # noqa: PTH123
        end = file.seek(-_END_BYTES - len(archive.comment), os.SEEK_END)
        last = file.read()
        file.seek(end - _LOCATOR64.size)
        if file.read(4) == b"PK\x06\x07":  # so large that it does already
            return
        n, start = len(archive.filelist), archive.start_dir
        file.seek(end)
        file.write(_END64.pack(b"PK\x06\x06", _END64.size - 12, 45, 45, 0, 0, n, n, end - start, start))
        file.write(_LOCATOR64.pack(b"PK\x06\x07", 0, end, 1) + last)


_END_BYTES, _END64, _LOCATOR64 = 22, struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")

_archives: weakref.WeakValueDictionary[tuple[int, str], Archive] = weakref.WeakValueDictionary()
_unpublished: set[Archive] = set()
_lock = threading.Lock()


def shared_archive(path: str) -> Archive:
    """Return the state of that zip file in this process."""
    with _lock:
        archive = _archives.get((os.getpid(), path))
        if archive is None:
            archive = _archives[os.getpid(), path] = Archive(path)
        return archive


def _publish_all() -> None:
    for archive in list(_unpublished):
        if archive.pid == os.getpid():
            archive.publish()


def _after_fork() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


atexit.register(_publish_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, start: int, stop: int) -> bytes:
    with archive._lock:  # type: ignore[attr-defined]  # noqa: SLF001
        # Python 3.12 and 3.13.0 seek from where another thread has read last: here none can have
        file = archive.open(member)
        if member.compress_type == zipfile.ZIP_STORED:
            file.seek(start)
    with file:
        if member.compress_type == zipfile.ZIP_BZIP2:
            file._decompressor = _Bounded(file._decompressor, member.file_size)  # type: ignore[attr-defined]  # noqa: SLF001
        elif member.compress_type == zipfile.ZIP_LZMA:
            return _read_in_steps(file, start, stop)
        file.seek(start)
        return file.read(stop - start)


# zipfile decompresses all that it has fetched of bzip2 and LZMA, whatever the directory says of the size


class _Bounded:
    """A bzip2 decompressor that stops after as many bytes as there should be: 4 KiB can hold 4 GiB."""

    def __init__(self, decompressor: Any, n_bytes: int) -> None:
        self._decompressor = decompressor
        self._n_left = n_bytes

    @property
    def eof(self) -> bool:
        return bool(self._decompressor.eof)

    def decompress(self, data: bytes) -> bytes:
        value: bytes = self._decompressor.decompress(data, self._n_left + 1)
        self._n_left -= len(value)
        if self._n_left < 0:
            raise OSError("the member decompresses to more bytes than the zip file's directory says")
        return value


def _read_in_steps(file: IO[bytes], start: int, stop: int) -> bytes:
    """Read by 4 KiB, the least that zipfile fetches: of LZMA they decompress to 28 MiB at most."""
    value = bytearray()
    done = 0
    while done < stop and (data := file.read(min(_STEP, stop - done))):
        value += data[max(0, start - done) :]
        done += len(data)
    return bytes(value)


_STEP = 4096


def _is_key(info: zipfile.ZipInfo) -> bool:
    try:
        check_key(info.filename)
    except ValueError:  # a directory, an absolute name, '..'
        return False
    return True


def version_of(member: zipfile.ZipInfo) -> str:
    """Return the version of a member: different for each time it is written."""
    return f"{member.header_offset}-{member.CRC:08x}-{member.file_size}"


def _signature(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
