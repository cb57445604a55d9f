"""Partial files: values while they are written, under hidden names next to the keys that they replace.

A name says which process of which machine writes, so that files of killed writers are known, and removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import time
from collections.abc import Iterator
from functools import lru_cache

__all__ = ["PARTIAL_SUFFIX", "is_abandoned", "partial_files", "partial_name", "sweep"]

PARTIAL_SUFFIX = ".chunkmill-partial"
"""Files with this suffix are values being written (or left by a process that was killed): never keys."""

_NAME_SHOWN = 64  # of the key in a partial file's name: with the rest it must stay below the usual limit of 255
_ABANDONED_AFTER = 3600.0  # seconds, of a file whose writer cannot be asked about


def partial_name(name: str) -> str:
    """Return a hidden name for the value of `name` while it is written, in the same directory: never the same twice.

    It says which process of which machine writes, so that `is_abandoned` can tell.
    """
    return f".{name[:_NAME_SHOWN]}{_process()}{next(_NUMBERS):012x}{PARTIAL_SUFFIX}"


@lru_cache(maxsize=1)
def _process() -> str:
    return f".{_host()}-{os.getpid()}.{os.urandom(10).hex()}"


_NUMBERS = itertools.count()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.cache_clear)


def partial_files(directory: str, *, recursive: bool) -> Iterator[str]:
    """Yield the paths of partial files in `directory`, and below it if `recursive`."""
    todo = [directory]  # no os.walk: it calls itself for each level, and there may be more than Python's stack holds
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo += [entry.path] if recursive else []
                elif entry.name.endswith(PARTIAL_SUFFIX):
                    yield entry.path


def is_abandoned(path: str, *, after: float | None = None) -> bool:
    """Return whether the partial file at `path` was abandoned: its process has ended, or it is an hour old.

    Of processes of other machines it is not known whether they have ended: their files are abandoned `after` so many
    seconds, an hour when ``None``.

    Examples
    --------
    >>> is_abandoned("/tmp/" + partial_name("0.0"))
    False
    """
    found = re.search(r"\.([^.]*)-(\d+)\.[0-9a-f]{32}" + re.escape(PARTIAL_SUFFIX) + "$", path)
    if found and found[1] == _host() and os.name == "posix":
        try:
            os.kill(int(found[2]), 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # somebody else's
    try:
        return time.time() - os.stat(path).st_ctime > (_ABANDONED_AFTER if after is None else after)  # noqa: PTH116
    except OSError:
        return False


@lru_cache(maxsize=1)
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname())[:32]


def sweep(directory: str, *, remove: bool, recursive: bool) -> Iterator[str]:
    """Yield the paths of partial files of killed writers in `directory`, which are deleted if `remove`."""
    for path in partial_files(directory, recursive=recursive):
        if is_abandoned(path):
            yield path
            if remove:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108
