"""Locks on directories: what makes plain files safe to share.

A lock ends with its process. Not here: values that are being written (`chunkmill.stores.partial_files`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from chunkmill.stores.partial_files import PARTIAL_SUFFIX
from chunkmill.stores.posix_file import remove, rename_new, replace, version_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["CAN_LOCK", "locked", "locks_reach_all", "replace_if"]

CAN_LOCK = bool(fcntl)


_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK}
_MOUNTED_ALONE = re.compile(r"(^|,)(nolock|localflock|local_lock=(all|flock))(,|$)")


class locked:  # noqa: N801 - used as a function is
    """Hold the directory's lock. flock on the directory itself needs no lock file and ends with its holder.

    Where the system has no flock (Windows), a lock of this process is held; where the file system has none, nothing. A
    class, not a generator: every value that is stored comes by here.
    """

    __slots__ = ("_below", "_directory", "_fd")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fd = -1
        self._below: contextlib.AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        if not CAN_LOCK:
            self._below = _IN_PROCESS[hash(self._directory) % len(_IN_PROCESS)]
            self._below.__enter__()
            return
        try:
            fd = _open(self._directory, os.O_RDONLY)
        except PermissionError as error:  # it may be written to, and not be listed
            self._enter_without(error)
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except BaseException as error:
            _close(fd)
            if isinstance(error, OSError):
                self._enter_without(error)
                return
            raise
        self._fd = fd

    def _enter_without(self, error: OSError) -> None:
        if error.errno in _NO_LOCKS and not locks_reach_all(self._directory):
            return
        if error.errno not in {errno.EBADF, errno.EISDIR, errno.EINVAL, errno.EACCES}:
            raise _of_flock(error)
        # NFS: only files open for writing can be locked
        below = _lock_file(os.path.join(self._directory, f".lock{PARTIAL_SUFFIX}"))  # noqa: PTH118
        try:
            below.__enter__()
        except OSError as other:
            raise _of_flock(other) from error
        self._below = below

    def __exit__(self, *raised: object) -> None:
        if self._fd >= 0:
            _unlock(self._fd)
        elif self._below is not None:
            self._below.__exit__(*raised)  # type: ignore[arg-type]


_IN_PROCESS = [threading.RLock() for _ in range(64)]  # of whose threads one creates a file, and no other replaces it


def _of_flock(error: OSError) -> OSError:
    reason = f"flock failed: {error.strerror}; the file system may have to be mounted with locks"
    return OSError(error.errno, reason)


@contextlib.contextmanager
def _lock_file(path: str) -> Iterator[None]:
    """Hold a lock on a hidden file that its holder unlinks: valid only while the name leads to the locked file."""
    while True:
        fd = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):  # noqa: PTH116
                    try:
                        yield
                        return
                    finally:
                        os.unlink(path)  # noqa: PTH108
        finally:
            _unlock(fd)


def _open(path: str, flags: int) -> int:
    """Open a file to lock it.

    A process that forks while it holds a lock shares it with its child, until one of them unlocks (closing is not
    enough), or the child has closed it: it does so first of all.
    """
    fd = os.open(path, flags, 0o666)
    _HELD.add(fd)
    return fd


def _unlock(fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        _close(fd)


def _close(fd: int) -> None:
    _HELD.discard(fd)
    os.close(fd)


_HELD: set[int] = set()


def _let_go() -> None:
    for fd in _HELD:
        with contextlib.suppress(OSError):
            os.close(fd)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@lru_cache(maxsize=1024)
def locks_reach_all(directory: str) -> bool:
    """Return whether `locked` excludes every process that can see `directory`, those on other machines too.

    Not on Windows, not where the file system has no flock (Lustre, unless mounted with it), and not where the mount
    keeps locks to this machine (NFS with ``nolock`` or ``local_lock``, Lustre with ``localflock``).
    """
    if not CAN_LOCK or _MOUNTED_ALONE.search(_mount_options(directory)):
        return False
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            fd = os.open(directory, os.O_RDONLY)
        except PermissionError:
            return True  # where nothing can be written either
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in _NO_LOCKS
        finally:
            os.close(fd)
        return True
    parent = os.path.dirname(directory)  # noqa: PTH120
    return parent == directory or locks_reach_all(parent)


def _mount_options(path: str) -> str:
    """Return the options of the mount that holds `path`; empty where the system does not tell (all but Linux)."""
    best, options = "", ""
    path = os.path.realpath(path)
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
            own, _, of_system = line.partition(" - ")
            fields, super_fields = own.split(" "), of_system.split(" ")
            point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
            is_above = path == point or path.startswith(point.rstrip("/") + "/")
            if is_above and len(point) >= len(best):  # the last mount over a point hides the others
                best, options = point, f"{fields[5]},{super_fields[-1]}"
    return options


def replace_if(path: str, directory: str, partial: str | None, version: str | None) -> bool:
    """Put `partial` in the place of a file, or delete that, if it has `version`; return whether it was done."""
    with locked(directory):
        if version_of(path) != version:
            return False
        if partial is None:
            if version is not None:
                remove(path)
        elif version is not None or not rename_new(partial, path):
            if version is None and os.path.isfile(path):  # noqa: PTH113 - created in between, without the lock
                return False
            replace(partial, path)
        return True
