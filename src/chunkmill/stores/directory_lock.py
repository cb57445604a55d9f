"""A lock on a directory that leaves nothing behind."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["CAN_LOCK", "PARTIAL_SUFFIX", "locked"]

CAN_LOCK = bool(fcntl)

PARTIAL_SUFFIX = ".chunkmill-partial"
"""Files with this suffix are values being written (or left by a process that was killed): never keys."""


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Hold the directory's lock. flock on the directory itself leaves no lock file behind and dies with its holder."""
    if not CAN_LOCK:
        yield
        return
    fd = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in {errno.EBADF, errno.EISDIR, errno.EINVAL}:
                raise
            # NFS: only files open for writing can be locked
            with _lock_file(os.path.join(directory, f".lock{PARTIAL_SUFFIX}")):  # noqa: PTH118
                yield
            return
        yield
    finally:
        os.close(fd)


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
            os.close(fd)
