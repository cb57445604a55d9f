"""System calls for one plain file: open, read, write, create, and its version.

Not here: keys, locks, errors with a store's name (`chunkmill.stores.local`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "check_name",
    "create",
    "leads_up",
    "open_to_read",
    "read_array",
    "read_part",
    "remove",
    "replace",
    "stamp",
    "sync_directory",
]
__all__ += [
    "DESCRIPTORS",
    "exchange_names",
    "rename_new",
    "sync_file_system",
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
    """Open a file, or a directory, to read; return at once also for a pipe, which would be waited for.

    Raises
    ------
    IsADirectoryError
        It is a directory, and the system opens none (Windows).
    """
    try:
        return os.open(path, _READ | _NONBLOCK)
    except BlockingIOError:  # a file server holds a lease on the file, and gives it up when it is waited for
        return os.open(path, _READ)
    except PermissionError as error:
        if _IS_WINDOWS and os.path.isdir(path):  # noqa: PTH112, elsewhere directories can be opened
            raise IsADirectoryError(error.errno, error.strerror) from error
        raise


def read_part(fd: int, start: int, stop: int) -> bytes:
    """Read a range of a file; fewer bytes where the file ends before."""
    size = stop - start
    if size == 0:
        return b""
    data = _read_at(fd, size, start) if start else os.read(fd, size)
    if len(data) == size or not data:
        return data
    received = [data]  # a signal, a network file system, or more than the 2 GiB that Linux reads at once
    done = len(data)
    while done < size and (data := _read_at(fd, size - done, start + done)):
        received.append(data)
        done += len(data)
    return b"".join(received)


def read_array(fd: int, start: int, stop: int) -> NDArray[np.uint8]:
    """Read a range of a file into a new array; it is read-only where the system cannot, shorter where the file ends."""
    if _read_into is None:
        return np.frombuffer(read_part(fd, start, stop), np.uint8)
    out = np.empty(stop - start, np.uint8)
    view, done = out.data, 0
    while done < len(view) and (n_bytes := _read_into(fd, [view[done:]], start + done)):
        done += n_bytes
    return out if done == len(view) else out[:done]


_read_into: Callable[[int, Any, int], int] | None = getattr(os, "preadv", None)  # Linux, BSD, macOS 11


def _seek_and_read(fd: int, n_bytes: int, offset: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, n_bytes)


_read_at: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)  # Windows has no pread


def write_all(fd: int, value: bytes | bytearray | memoryview) -> None:
    """Write all of a buffer without a copy, unless it is not contiguous."""
    view = value if type(value) is bytes else memoryview(value)
    if isinstance(view, memoryview):
        view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
    done = os.write(fd, view)
    while done < len(view):  # a signal, a full disk (which the next one reports), or more than 2 GiB
        done += os.write(fd, memoryview(view)[done:])


def create(directory: str, path: str, *, fsync: bool = False) -> int:
    """Create a file in a directory that many workers may create, and others delete, at once.

    `fsync`: the names of new directories survive a crash of the machine.
    """
    below, name = _at(path)
    for _ in range(_ATTEMPTS):
        try:
            return os.open(name, _CREATE, 0o666, dir_fd=below)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                _make_directories(directory, fsync=fsync)
    return os.open(name, _CREATE, 0o666, dir_fd=below)


def _make_directories(path: str, *, fsync: bool) -> None:
    """Create a directory and those above it: the last one first, since mostly it alone is missing."""
    above = os.path.dirname(path)  # noqa: PTH120
    try:
        os.mkdir(path)  # noqa: PTH102
    except FileNotFoundError:
        if above == path:
            raise
        _make_directories(above, fsync=fsync)
        os.mkdir(path)  # noqa: PTH102
    if fsync:
        sync_directory(above)


def _at(path: str) -> tuple[int | None, str]:
    """Split a path below an open directory into its descriptor and the rest: each look at it takes 2.3 us less."""
    if path.startswith(f"{DESCRIPTORS}/"):
        number, _, name = path[len(DESCRIPTORS) + 1 :].partition("/")
        if name and number.isdecimal():
            return int(number), name
    return None, path


DESCRIPTORS = "/proc/self/fd"
"""Folder of the open files, as of directories that are pinned (`chunkmill.stores.directories`)."""


def stamp(fd: int, path: str) -> None:
    """Set the time of an open file to now, so that its version is a new one.

    The kernel's own clock ticks every few milliseconds, and inodes are used again: within a tick two writes would bring
    an old version back.
    """
    now = time.time_ns()
    try:  # noqa: SIM105 - every value that is stored comes by here
        os.utime(fd if _BY_DESCRIPTOR else path, ns=(now, now))
    except OSError:
        pass  # not every file system keeps times


_BY_DESCRIPTOR = os.utime in os.supports_fd


def replace(source: str, target: str) -> None:
    """Rename a file over another one, which readers may hold open."""
    _once_readers_let(os.replace, source, target)


def rename_new(source: str, target: str) -> bool:
    """Rename a file to a name that nobody has, at once; False where somebody has it, or the system cannot tell.

    A client that creates a file so needs no lock against others who create it, compare it or delete it.
    """
    return _renamed(source, target, _NOREPLACE)


def exchange_names(a: str, b: str) -> bool:
    """Intent two names at once; return whether the system can."""
    return _renamed(a, b, _EXCHANGE)


def _renamed(source: str, target: str, flags: int) -> bool:
    rename = _renameat2()
    if rename is None:
        return False
    (old, source), (new, target) = _at(source), _at(target)
    ends = _HERE if old is None else old, os.fsencode(source), _HERE if new is None else new, os.fsencode(target)
    return bool(rename(*ends, flags) == 0)


_HERE = -100  # AT_FDCWD: absolute paths
_NOREPLACE, _EXCHANGE = 1, 2  # RENAME_…, since Linux 3.15; file systems without them, as NFS, answer EINVAL


@lru_cache(maxsize=1)
def _renameat2() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # glibc 2.28
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function


def remove(path: str) -> None:
    """Delete a file, which readers may hold open."""
    _once_readers_let(os.unlink, path)


def _once_readers_let(function: Callable[..., None], *paths: str) -> None:
    """Call again what Windows refuses for as long as a reader has the file open."""
    for attempt in range(_N_REFUSED):
        try:
            function(*paths)
        except PermissionError:
            time.sleep(0.001 * 2 ** min(attempt, 7))
        else:
            return
    function(*paths)


_IS_WINDOWS = os.name == "nt"
_N_REFUSED = 40 if _IS_WINDOWS else 0  # some 4 s
_WINDOWS_REFUSES = re.compile(
    r"""[<>:"\\|?*\x00-\x1f]|[ .](/|$)|(^|/)(con|prn|aux|nul|com\d|lpt\d)([./]|$)""", re.IGNORECASE
)


def path_of_url(path: str) -> str:
    """Return the path that follows ``file://``, which Windows begins with a drive, not with a slash."""
    return path[1:] if _IS_WINDOWS and re.match(r"/[A-Za-z]:(/|$)", path) else path


def check_name(key: str) -> None:
    """Raise `ValueError` for a key that Windows cannot hold as a file name, or holds under another one."""
    if _IS_WINDOWS and (found := _WINDOWS_REFUSES.search(key)) is not None:
        raise ValueError(f"{key!r} cannot be stored on Windows, whose file names have no {found[0].strip('/')!r} there")


def sync_directory(directory: str) -> None:
    """Make the names in a directory survive a crash of the machine."""
    if os.name == "posix":
        fd = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def sync_file_system(directory: str) -> None:
    """Make all that was written to the file system of a directory, by whichever process, survive a crash."""
    if os.name != "posix":
        return
    function = _syncfs()
    if function is None:
        os.sync()
        return
    try:
        fd = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        return  # nothing was written there
    try:
        if function(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
    finally:
        os.close(fd)


@lru_cache(maxsize=1)
def _syncfs() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


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
    except (*_ABSENT, IsADirectoryError):
        return None
    try:
        status = os.fstat(fd)
    finally:
        os.close(fd)
    return None if stat.S_ISDIR(status.st_mode) else version_from(status)


def leads_up(link: str, path: str) -> bool:
    """Return whether a symbolic link in directory `path` leads to that directory, or to one above it."""
    target = os.path.realpath(link)
    try:
        return os.path.commonpath([target, os.path.realpath(path)]) == target
    except ValueError:  # on another drive of Windows
        return False
