"""System calls for one plain file: open, read, write, create, and its version.

Not here: keys, locks, errors with a store's name (`chunkmill.stores.local`).
"""

from __future__ import annotations

import contextlib
import os
import stat

__all__ = [
    "create",
    "leads_up",
    "open_to_read",
    "read_part",
    "sync_directory",
    "version_from",
    "version_of",
    "write_all",
]

_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # means nothing for a file; a pipe would be waited for without end
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_ABSENT = (FileNotFoundError, NotADirectoryError)
_ATTEMPTS = 20  # at what loses a race only against others' mkdir and rmtree


def open_to_read(path: str) -> int:
    """Open a file to read; return at once also for a pipe, which would be waited for."""
    try:
        return os.open(path, _READ | _NONBLOCK)
    except BlockingIOError:  # a file server holds a lease on the file, and gives it up when it is waited for
        return os.open(path, _READ)


def read_part(fd: int, start: int, stop: int) -> bytes:
    """Read a range of a file; fewer bytes where the file ends before."""
    size = stop - start
    if size == 0:
        return b""
    data = os.pread(fd, size, start) if start else os.read(fd, size)
    if len(data) == size or not data:
        return data
    received = [data]  # a signal, a network file system, or more than the 2 GiB that Linux reads at once
    done = len(data)
    while done < size and (data := os.pread(fd, size - done, start + done)):
        received.append(data)
        done += len(data)
    return b"".join(received)


def write_all(fd: int, value: bytes | bytearray | memoryview) -> None:
    """Write all of a buffer without a copy, unless it is not contiguous."""
    view = value if type(value) is bytes else memoryview(value)
    if isinstance(view, memoryview):
        view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
    done = os.write(fd, view)
    while done < len(view):  # a signal, a full disk (which the next one reports), or more than 2 GiB
        done += os.write(fd, memoryview(view)[done:])


def create(directory: str, path: str) -> int:
    """Create a file in a directory that many workers may create, and others delete, at once."""
    for _ in range(_ATTEMPTS):
        try:
            return os.open(path, _CREATE, 0o666)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                os.makedirs(directory, exist_ok=True)  # noqa: PTH103
    return os.open(path, _CREATE, 0o666)


def sync_directory(directory: str) -> None:
    """Make the names in a directory survive a crash of the machine."""
    if os.name == "posix":
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def version_from(status: os.stat_result) -> str:
    """Return the version of an open file: different for each value that is stored.

    The time of the last change to the inode finds also what was written in place by a program that sets the time of the
    content back (rsync --inplace --times, cp --preserve, editors). It changes with links and permissions too, which
    costs a writer who compares versions one more read.
    """
    return f"{status.st_ino}-{status.st_mtime_ns}-{status.st_ctime_ns}-{status.st_size}"


def version_of(path: str) -> str | None:
    """Return the version of a file; ``None`` when there is none."""
    try:
        fd = open_to_read(path)  # open, not stat: NFS looks at the server again
    except _ABSENT:
        return None
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    return None if stat.S_ISDIR(status.st_mode) else version_from(status)


def leads_up(link: str, path: str) -> bool:
    """Return whether a symbolic link in directory `path` leads to that directory, or to one above it."""
    target = os.path.realpath(link)
    return os.path.commonpath([target, os.path.realpath(path)]) == target
