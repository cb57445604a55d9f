"""System calls for one plain file, and partial files: values while they are written, under hidden names (P2, P8).

The name of a partial file says which process of which machine writes, so that files of killed writers are known, and
removed. Containers may have one host name and the same numbers of processes: a process counts as gone only where its
number is of our pid namespace and of this boot of the machine.
Not here: keys, locks, errors with a store's name (`chunkmill.stores.local`).
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    if start:
        os.lseek(fd, start, os.SEEK_SET)
    received = []  # several: a signal, a network file system, or more than the 2 GiB that Linux reads at once
    while start < stop and (data := os.read(fd, stop - start)):
        received.append(data)
        start += len(data)
    return b"".join(received)  # of one, that itself


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


def write_all(fd: int, value: bytes | bytearray | memoryview) -> None:
    """Write all of a buffer without a copy, unless it is not contiguous."""
    view = value if type(value) is bytes else memoryview(value)
    if isinstance(view, memoryview):
        view = view.cast("B") if view.c_contiguous and view.nbytes else memoryview(view.tobytes())
    done = os.write(fd, view)
    while done < len(view):  # a signal, a full disk (which the next one reports), or more than 2 GiB
        done += os.write(fd, memoryview(view)[done:])


def create(path: str, *, fsync: bool = False) -> int:
    """Create a file, and the directories above it, which others may create, or delete, at the same time.

    `fsync`: the names of new directories survive a crash of the machine.
    """
    for _ in range(_ATTEMPTS):
        try:
            return os.open(path, _CREATE, 0o666)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                _make_directories(os.path.dirname(path), fsync=fsync)  # noqa: PTH120
    return os.open(path, _CREATE, 0o666)


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
    """Exchange two names at once; return whether the system can."""
    return _renamed(a, b, _EXCHANGE)


def _renamed(source: str, target: str, flags: int) -> bool:
    rename = _of_linux("renameat2")  # glibc 2.28
    return rename is not None and rename(_HERE, os.fsencode(source), _HERE, os.fsencode(target), flags) == 0


_HERE = -100  # AT_FDCWD: absolute paths
_NOREPLACE, _EXCHANGE = 1, 2  # RENAME_…, since Linux 3.15; file systems without them, as NFS, answer EINVAL


@lru_cache
def _of_linux(name: str) -> Any:
    """Return a function of the system that Python does not have; ``None`` where there is none."""
    return getattr(ctypes.CDLL(None, use_errno=True), name, None) if sys.platform.startswith("linux") else None


def remove(path: str) -> None:
    """Delete a file, which readers may hold open."""
    _once_readers_let(os.unlink, path)


def remove_tree(path: str) -> None:
    """Delete a directory and all below it, in which others may be deleting, or writing."""
    for n_left in reversed(range(_ATTEMPTS)):
        if not os.path.lexists(path):
            break
        shutil.rmtree(path, ignore_errors=n_left > 0)


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
    """Raise `ValueError` for a key that Windows cannot hold as a file name, or holds under another one (P1)."""
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


def sync_file_system(directory: str, own: int = -1) -> None:
    """Make all that was written to the file system of a directory, by whichever process, survive a crash.

    `own`: descriptor of an open directory of that file system.
    """
    if os.name != "posix":
        return
    function = _of_linux("syncfs")
    if function is None:
        os.sync()
        return
    try:
        fd = os.open(directory, os.O_RDONLY) if own < 0 else own
    except FileNotFoundError:
        return  # nothing was written there
    try:
        if function(fd) != 0:
            raise OSError(number := ctypes.get_errno(), os.strerror(number), directory)
    finally:
        if own < 0:
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


PARTIAL_SUFFIX = ".chunkmill-partial"
"""Files with this suffix are values being written (or left by a process that was killed): never keys.

So are directories: of a node that is about to replace another, or was replaced.
"""

_NAME_SHOWN = 64  # of the key in a partial file's name: with the rest it must stay below the usual limit of 255
_ABANDONED_AFTER = 3600.0  # seconds, of a file whose writer cannot be asked about
_UNCHANGED = 24 * _ABANDONED_AFTER  # seconds, of a directory: one in which a writer is at work looks like any other
_BOOT_ID, _NAMESPACE = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"


@lru_cache(maxsize=1)
def origin() -> tuple[str, str, str]:
    """Return host, boot and pid namespace of this process; the last two are empty where they cannot be known."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:  # noqa: PTH123
            boot = file.read().strip()
        return socket.gethostname(), boot, os.readlink(_NAMESPACE)  # noqa: PTH115
    except OSError:  # no /proc
        return socket.gethostname(), "", ""


def is_gone(where: tuple[str, str, str], pid: int) -> bool:
    """Return whether it is known that the process of that origin has ended: no is not yes.

    Examples
    --------
    >>> is_gone(origin(), os.getpid()), is_gone(("elsewhere", "", ""), 1)
    (False, False)
    """
    if where != origin() or not all(where):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # the process of another user
        pass
    return False


def partial_name(name: str) -> str:
    """Return a hidden name for the value of `name` while it is written, in the same directory: never the same twice.

    It says which process of which machine writes, so that `is_abandoned` can tell.
    """
    return f".{name[:_NAME_SHOWN]}{_process()}{next(_NUMBERS):012x}{PARTIAL_SUFFIX}"


def hidden_name(path: str) -> str:
    """Return a new partial name next to `path`."""
    above, name = os.path.split(path)
    return f"{above.rstrip(os.sep)}{os.sep}{partial_name(name)}"


@lru_cache(maxsize=1)
def _place() -> str:
    host, boot, namespace = origin()
    own = sha256(f"{boot} {namespace}".encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', host)[:23]}_{own}"


@lru_cache(maxsize=1)
def _process() -> str:
    return f".{_place()}-{os.getpid()}.{os.urandom(10).hex()}"


_NUMBERS = itertools.count()
if hasattr(os, "register_at_fork"):
    for _known in (_process, origin, _place):
        os.register_at_fork(after_in_child=_known.cache_clear)


def partial_files(directory: str, *, recursive: bool) -> Iterator[str]:
    """Yield the paths of partial files, and directories, in `directory`, and below it if `recursive`."""
    todo = [directory]  # no os.walk: it calls itself for each level, and there may be more than Python's stack holds
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(PARTIAL_SUFFIX):
                    yield entry.path
                elif recursive and entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)


def is_abandoned(path: str) -> bool:
    """Return whether a partial file, or directory, was abandoned: its process has ended, or it is old.

    Of processes of other machines and containers it is not known whether they have ended. A file is old an hour after
    its last change, by the clock of the file system; a directory, in which a writer at work looks like any other, a
    day. That alone counts for a new node that is complete: the same job, if it is repeated, puts it in place.

    Examples
    --------
    >>> is_abandoned("/tmp/" + partial_name("0.0"))
    False
    """
    found = re.search(r"\.([^.]*)-(\d+)\.[0-9a-f]{32}" + re.escape(PARTIAL_SUFFIX) + "$", path)
    is_directory = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
    try:
        is_complete = is_directory and any(name.startswith(".chunkmill-new-") for name in os.listdir(path))  # noqa: PTH208
        if found and found[1] == _place() and not is_complete and is_gone(origin(), int(found[2])):
            return True
        folders = [folder for folder, _, _ in os.walk(path)] if is_directory else [path]
        changed = max(os.stat(folder).st_ctime for folder in folders)  # noqa: PTH116
        after = _UNCHANGED if is_directory else _ABANDONED_AFTER
        return time.time() - changed > after and _now_in(os.path.dirname(path)) - changed > after  # noqa: PTH120
    except OSError:
        return False


def _now_in(directory: str) -> float:
    """Return the time by the clock of the file system, which a server may have: that of a file that is made now."""
    path = f"{directory}{os.sep}{partial_name('')}"
    with open(path, "xb") as file:  # noqa: PTH123
        os.unlink(path)  # noqa: PTH108
        return os.fstat(file.fileno()).st_ctime


def sweep(directory: str, *, remove: bool = True, recursive: bool = False, of: str = "") -> list[str]:
    """Delete the partial files and directories of killed writers in `directory`, if `remove`; return their paths.

    With `of`, only those of the file, or directory, of that name.
    """
    found = []
    for path in partial_files(directory, recursive=recursive):
        is_named = not of or os.path.basename(path).startswith(f".{of[:_NAME_SHOWN]}.")  # noqa: PTH119
        if not (is_named and is_abandoned(path)):
            continue
        found.append(path)
        if remove:
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):  # a directory, which is gone
                os.unlink(path)  # noqa: PTH108
    return found
