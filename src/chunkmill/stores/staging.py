"""Directories that are written beside the one that they replace, and exchanged with it when they are whole."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import sys
from functools import lru_cache
from typing import Any

from chunkmill.stores.directory_lock import PARTIAL_SUFFIX, is_abandoned, partial_name

__all__ = ["exchange", "staged_directory"]


def staged_directory(path: str) -> str | None:
    """Return a new name beside the directory at `path`, hidden from listings; ``None`` where there can be none.

    That is where nothing can be created beside it, or where it is a mount point or a symbolic link, which cannot be
    renamed. What writers of this machine that have ended left there is removed first; what other machines left stays,
    since a long write cannot be told from a dead one.
    """
    above, name = os.path.split(path)
    if not os.path.isdir(path) or os.path.islink(path) or os.path.ismount(path):  # noqa: PTH112, PTH114
        return None
    if not os.access(above, os.W_OK | os.X_OK):
        return None
    with contextlib.suppress(OSError), os.scandir(above) as entries:
        for entry in entries:
            is_ours = entry.name.startswith(f".{name}.") and entry.name.endswith(PARTIAL_SUFFIX)
            if is_ours and entry.is_dir(follow_symlinks=False) and is_abandoned(entry.path, after=float("inf")):
                shutil.rmtree(entry.path, ignore_errors=True)
    return f"{above.rstrip(os.sep)}{os.sep}{partial_name(name)}"


def exchange(staged: str, path: str) -> None:
    """Put the directory `staged` in the place of `path`, and delete what was there.

    At every moment one of both is there whole, where the system can exchange two names (Linux); elsewhere there is
    none between two renames.
    """
    if not os.path.lexists(path):
        os.rename(staged, path)  # noqa: PTH104
        return
    if not _exchange_names(staged, path):
        aside = f"{os.path.dirname(path)}{os.sep}{partial_name(os.path.basename(path))}"  # noqa: PTH119, PTH120
        os.rename(path, aside)  # noqa: PTH104
        os.rename(staged, path)  # noqa: PTH104
        staged = aside
    shutil.rmtree(staged, ignore_errors=True)


def _exchange_names(a: str, b: str) -> bool:
    """Exchange two names at once; return whether the system can."""
    rename = _renameat2()
    return rename is not None and rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0


_HERE = -100  # AT_FDCWD: absolute paths
_EXCHANGE = 2  # RENAME_EXCHANGE, since Linux 3.15; file systems without it answer EINVAL


@lru_cache(maxsize=1)
def _renameat2() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # glibc 2.28
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function
