"""Replace whole directories of plain files, and lock them.

A new directory is written hidden, next to the one that it replaces or inside the store, and exchanged with that when it
is complete (P6).

A lock on a directory makes plain files safe to share, and ends with its process (P3).
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
from typing import Any

from chunkmill.stores.posix_file import (
    PARTIAL_SUFFIX,
    exchange_names,
    hidden_name,
    remove,
    remove_tree,
    rename_new,
    replace,
    sweep,
    sync_directory,
    sync_file_system,
    version_of,
)


def can_exchange(path: str, store: str = "") -> bool:
    """Return whether `path` is a directory that can be exchanged with one next to it, or in the directory `store`."""
    if not os.path.isdir(path) or os.path.islink(path) or os.path.ismount(path):  # noqa: PTH112, PTH114
        return False
    above = os.path.dirname(path)  # noqa: PTH120
    try:
        one_file_system = not store or os.stat(path).st_dev == os.stat(store).st_dev  # noqa: PTH116
    except OSError:  # others have deleted it
        return False
    return one_file_system and os.access(above, os.W_OK | os.X_OK)


def exchange_once(staged: str, path: str, proof: str, *, root: str, fsync: bool = False) -> None:
    """Put the directory `staged`, which has the file `proof`, in the place of `path`, and delete what was there.

    At every moment one of both is there whole, where the system can exchange two names (Linux); elsewhere there is
    none between two renames. Nothing happens where `path` has the file already: a second exchange, of a client that
    resumes or has joined the job, would put the old directory back. All of them ask under the lock of the store, the
    directory `root`. A directory inside of the one that it replaces is moved next to that first, where a repetition
    finds it.

    Raises
    ------
    FileNotFoundError
        The file is in neither, or empty in what is staged.
    """
    with locked(root) as fd:
        old = _exchange_once(staged, path, proof, fd)
    if fsync:
        sync_directory(os.path.dirname(path))  # noqa: PTH120
    if old is not None:
        with contextlib.suppress(OSError):
            remove_tree(old)
        if fsync:
            sync_directory(os.path.dirname(old))  # noqa: PTH120
    sweep(os.path.dirname(path), of=os.path.basename(path))  # noqa: PTH119, PTH120 - of clients that died (P8)


def _exchange_once(staged: str, path: str, proof: str, fd: int) -> str | None:
    above = os.path.dirname(path)  # noqa: PTH120
    if os.path.lexists(os.path.join(path, proof)):  # noqa: PTH118
        return staged if os.path.lexists(staged) else None
    new: str | None = staged
    if not _has_proof(staged, proof):
        new = _hidden_with(above, proof)
    elif staged.startswith(path.rstrip(os.sep) + os.sep):
        new = hidden_name(path)
        os.rename(staged, new)  # noqa: PTH104
    if new is None:
        raise FileNotFoundError(errno.ENOENT, "there is nothing to put in place: others have ended this", staged)
    return _exchange(new, path, fd)


def _exchange(staged: str, path: str, fd: int) -> str | None:
    """Exchange two directories, and return where the old one is now; `fd`, as of `sync_file_system`."""
    sync_file_system(staged, fd)  # what it replaces is deleted then
    if exchange_names(staged, path):
        return staged
    old = hidden_name(path) if os.path.lexists(path) else None
    if old is not None:
        os.rename(path, old)  # noqa: PTH104
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - deleted since with what was there
    os.rename(staged, path)  # noqa: PTH104
    return old


def _hidden_with(above: str, proof: str) -> str | None:
    """Return the hidden directory in `above` that has the file `proof`."""
    with os.scandir(above) as entries:
        hidden = [e.path for e in entries if e.name.endswith(PARTIAL_SUFFIX) and e.is_dir(follow_symlinks=False)]
    return next((path for path in hidden if _has_proof(path, proof)), None)


def _has_proof(directory: str, proof: str) -> bool:
    try:
        return os.stat(os.path.join(directory, proof)).st_size > 0  # noqa: PTH116, PTH118
    except OSError:
        return False


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


CAN_LOCK = bool(fcntl)


_NO_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK}
_MOUNTED_ALONE = re.compile(r"(^|,)(nolock|localflock|local_lock=(all|flock))(,|$)")


class locked:  # noqa: N801 - used as a function is
    """Hold the directory's lock, and give its descriptor, or -1.

    flock on the directory itself needs no lock file and ends with its holder.

    Where the system has no flock (Windows), a lock of this process is held; where the file system has none, nothing. A
    class, not a generator: every value that is stored comes by here.
    """

    __slots__ = ("_below", "_directory", "_fd")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._fd = -1
        self._below: contextlib.AbstractContextManager[object] | None = None

    def __enter__(self) -> int:
        if not CAN_LOCK:
            self._below = _IN_PROCESS[hash(self._directory) % len(_IN_PROCESS)]
            self._below.__enter__()
            return -1
        try:
            fd = os.open(self._directory, os.O_RDONLY)
        except PermissionError as error:  # it may be written to, and not be listed
            self._enter_without(error)
            return -1
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError):
                self._enter_without(error)
                return -1
            raise
        self._fd = fd
        return fd

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
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
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


def _unlock(fd: int) -> None:
    """Unlock before closing: a process that was forked meantime has the file open, too."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


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
    return locks_reach_all(os.path.dirname(directory))  # noqa: PTH120


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


ANY: Any = object()
"""In place of a version: whichever a file has, or none."""


def put(path: str, directory: str, partial: str | None, version: str | None) -> bool:
    """Put `partial` in the place of a file, or delete that, if it has `version`; return whether it was done.

    A file that is to be new needs no lock. One that is replaced does, whatever its version is: or it could come between
    another's comparing and renaming, and be lost.
    """
    if partial is not None and version in {None, ANY} and rename_new(partial, path):
        return True
    try:
        with locked(directory):
            if version != ANY and version_of(path) != version:
                return False
            if partial is None:
                if version is not None:
                    remove(path)
            elif version is not None or not rename_new(partial, path):
                if version is None and os.path.isfile(path):  # noqa: PTH113 - created in between, without the lock
                    return False
                replace(partial, path)
            return True
    except (FileNotFoundError, NotADirectoryError):
        if partial is None:
            return version is None  # the directory is gone, and the key with it
        raise
