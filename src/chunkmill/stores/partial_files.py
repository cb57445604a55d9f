"""Partial files: values while they are written, under hidden names next to the keys that they replace (P2, P8).

A name says which process of which machine writes, so that files of killed writers are known, and removed. Containers
may have one host name and the same numbers of processes: a process counts as gone only where its number is of our pid
namespace and of this boot of the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256

__all__ = ["PARTIAL_SUFFIX", "is_abandoned", "is_gone", "origin", "partial_files", "partial_name", "sweep"]
__all__ += ["sweep_copies"]

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
    os.register_at_fork(after_in_child=_process.cache_clear)
    os.register_at_fork(after_in_child=origin.cache_clear)
    os.register_at_fork(after_in_child=_place.cache_clear)


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


def is_abandoned(path: str, *, after: float | None = None) -> bool:
    """Return whether the partial file at `path` was abandoned: its process has ended, or it is an hour old.

    Of processes of other machines and containers it is not known whether they have ended: their files are abandoned
    `after` so many seconds, an hour when ``None``, by the clock of the file system.

    Examples
    --------
    >>> is_abandoned("/tmp/" + partial_name("0.0"))
    False
    """
    found = re.search(r"\.([^.]*)-(\d+)\.[0-9a-f]{32}" + re.escape(PARTIAL_SUFFIX) + "$", path)
    if found and found[1] == _place() and is_gone(origin(), int(found[2])):
        return True
    after = _ABANDONED_AFTER if after is None else after
    try:
        changed = os.stat(path).st_ctime  # noqa: PTH116
        return time.time() - changed > after and _now_in(os.path.dirname(path)) - changed > after  # noqa: PTH120
    except OSError:
        return False


def _now_in(directory: str) -> float:
    """Return the time by the clock of the file system, which a server may have: that of a file that is made now."""
    path = f"{directory}{os.sep}{partial_name('')}"
    with open(path, "xb") as file:  # noqa: PTH123
        os.unlink(path)  # noqa: PTH108
        return os.fstat(file.fileno()).st_ctime


def sweep(directory: str, *, remove: bool, recursive: bool) -> Iterator[str]:
    """Yield the paths of partial files and directories of killed writers in `directory`, deleted if `remove`."""
    yield from _sweep_each(partial_files(directory, recursive=recursive), remove=remove)


def sweep_copies(path: str, *, remove: bool = True) -> Iterator[str]:
    """Yield the paths of what killed writers of the file, or directory, at `path` left next to it; as of `sweep`."""
    above, name = os.path.split(path)
    start = f".{name[:_NAME_SHOWN]}."
    found = (each for each in partial_files(above, recursive=False) if os.path.basename(each).startswith(start))  # noqa: PTH119
    yield from _sweep_each(found, remove=remove)


def _sweep_each(paths: Iterable[str], *, remove: bool) -> Iterator[str]:
    for path in paths:
        is_directory = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
        if not (_is_abandoned_directory(path) if is_directory else is_abandoned(path)):
            continue
        yield path
        if remove and is_directory:
            shutil.rmtree(path, ignore_errors=True)
        elif remove:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108


def _is_abandoned_directory(path: str) -> bool:
    """Return whether a writer that has ended left a directory, or nothing in it has changed for a day.

    The latter alone counts for a new node that is complete: the same job, if it is repeated, puts it in place.
    """
    with contextlib.suppress(OSError):
        is_whole = any(name.startswith(".chunkmill-new-") for name in os.listdir(path))  # noqa: PTH208
        if not is_whole and is_abandoned(path, after=float("inf")):
            return True
        changed = max(os.stat(folder).st_ctime for folder, _, _ in os.walk(path))  # noqa: PTH116
        if time.time() - changed > _UNCHANGED:
            return _now_in(os.path.dirname(path)) - changed > _UNCHANGED  # noqa: PTH120
    return False
