"""Directories that are written beside the one that they replace, and exchanged with it when they are whole.

Beside: hidden next to it, for one process, or inside the store, where later runs of a job find what was written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Self

from chunkmill.errors import StoreError
from chunkmill.stores.directory_lock import locked
from chunkmill.stores.partial_files import PARTIAL_SUFFIX, is_abandoned, partial_name
from chunkmill.stores.pinned_directory import PinsDirectories
from chunkmill.stores.posix_file import exchange_names, sync_directory

__all__ = ["ReplacesDirectories", "exchange", "exchange_once", "name_beside", "staged_directory"]


_ATTEMPTS = 20


class ReplacesDirectories(PinsDirectories):
    """The methods of a store of directories by which a node is written beside the one that it replaces."""

    _root: str
    _fsync: bool
    _directory: Callable[[str], str]
    _failed: Callable[[str, str, OSError], StoreError]

    def stage(self, prefix: str) -> Self | None:
        """Return a store for what is to replace all below `prefix`: a hidden directory beside it (see `swap_in`)."""
        staged = staged_directory(self._directory(prefix))
        return None if staged is None else type(self)(staged, fsync=self._fsync)  # type: ignore[call-arg]

    def swap_in(self, prefix: str, staged: Self) -> None:
        """Replace all below `prefix` by what `staged` holds, and delete what was there."""
        with self._putting_in_place(prefix):
            exchange(staged._root, self._directory(prefix), fsync=self._fsync)

    def can_rename(self, prefix: str) -> bool:
        """Return whether what is below `prefix` is not in a directory that cannot be renamed: a link, a mount point."""
        return not os.path.isdir(self._directory(prefix)) or self.can_replace(prefix)  # noqa: PTH112

    def can_replace(self, prefix: str) -> bool:
        """Return whether `replace_prefix` can."""
        return _can_exchange(self._directory(prefix), self._root if prefix else "")

    def replace_prefix(self, prefix: str, staged: str, mark: str) -> None:
        """Replace all below `prefix` by what is below the prefix `staged`, once (see `exchange_once`)."""
        with self._putting_in_place(prefix):
            exchange_once(self._directory(staged), self._directory(prefix), mark, root=self._root, fsync=self._fsync)

    def remove_folder(self, prefix: str) -> None:
        """Remove the directory of a prefix if it is empty, which the system looks at itself."""
        with contextlib.suppress(OSError):
            os.rmdir(self._directory(prefix))  # noqa: PTH106

    def is_link(self, prefix: str) -> bool:
        """Return whether the directory of a prefix is a symbolic link; the store's own one does not count."""
        return bool(prefix) and os.path.islink(self._directory(prefix))  # noqa: PTH114

    def links(self, prefix: str) -> list[str]:
        """Return the prefixes below `prefix` whose directories are symbolic links, none below another."""
        top = self._directory(prefix)
        found = [
            os.path.join(above, name)  # noqa: PTH118
            for above, names, _ in os.walk(top)
            for name in names
            if os.path.islink(os.path.join(above, name))  # noqa: PTH114, PTH118
        ]
        return sorted(f"{prefix}{os.path.relpath(path, top).replace(os.sep, '/')}/" for path in found)

    @contextlib.contextmanager
    def _putting_in_place(self, prefix: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed(prefix, "cannot put the new directory in place", error) from error


def staged_directory(path: str) -> str | None:
    """Return a new name beside the directory at `path`, hidden from listings; ``None`` where there can be none.

    That is where nothing can be created beside it, or where it is a mount point or a symbolic link, which cannot be
    renamed. What writers of this machine that have ended left there is removed first; what other machines left stays,
    since a long write cannot be told from a dead one.
    """
    if not _can_exchange(path):
        return None
    return name_beside(path)


def name_beside(path: str) -> str:
    """Return a new name beside `path`, hidden from listings; what ended writers of this machine left is removed."""
    above, name = os.path.split(path)
    _remove_abandoned(above, name)
    return f"{above.rstrip(os.sep)}{os.sep}{partial_name(name)}"


def _can_exchange(path: str, store: str = "") -> bool:
    """Return whether `path` is a directory that can be exchanged with one beside it, or in the directory `store`."""
    if not os.path.isdir(path) or os.path.islink(path) or os.path.ismount(path):  # noqa: PTH112, PTH114
        return False
    above = os.path.dirname(path)  # noqa: PTH120
    try:
        one_file_system = not store or os.stat(path).st_dev == os.stat(store).st_dev  # noqa: PTH116
    except OSError:
        return False
    return one_file_system and os.access(above, os.W_OK | os.X_OK)


def _remove_abandoned(above: str, name: str) -> None:
    """Delete what writers of this machine that have ended left beside the directory `name`."""
    with contextlib.suppress(OSError), os.scandir(above) as entries:
        for entry in entries:
            is_ours = entry.name.startswith(f".{name}.") and entry.name.endswith(PARTIAL_SUFFIX)
            if is_ours and entry.is_dir(follow_symlinks=False) and is_abandoned(entry.path, after=float("inf")):
                shutil.rmtree(entry.path, ignore_errors=True)


def exchange(staged: str, path: str, *, fsync: bool = False) -> None:
    """Put the directory `staged` in the place of `path`, and delete what was there.

    At every moment one of both is there whole, where the system can exchange two names (Linux); elsewhere there is
    none between two renames.
    """
    _finish(_exchange(staged, path), path, fsync=fsync)


def exchange_once(staged: str, path: str, mark: str, *, root: str, fsync: bool = False) -> None:
    """Exchange as `exchange` does a directory that has the file `mark`; nothing happens where `path` has it already.

    A second exchange, of a client that resumes or has joined the job, would put the old directory back: all of them
    ask under the lock of the store, the directory `root`. A directory inside of the one that it replaces is moved
    beside that first, where a repetition finds it.

    Raises
    ------
    FileNotFoundError
        The file is in neither, or empty in what is staged.
    """
    with locked(root):
        old = _exchange_once(staged, path, mark)
    _finish(old, path, fsync=fsync)


def _exchange_once(staged: str, path: str, mark: str) -> str | None:
    above = os.path.dirname(path)  # noqa: PTH120
    if os.path.lexists(os.path.join(path, mark)):  # noqa: PTH118
        return _aside(staged) if os.path.lexists(staged) else None
    new: str | None = staged
    if not _is_marked(staged, mark):
        new = _beside_with(above, mark)
    elif staged.startswith(path.rstrip(os.sep) + os.sep):
        new = name_beside(path)
        os.rename(staged, new)  # noqa: PTH104
    if new is None:
        raise FileNotFoundError(errno.ENOENT, "there is nothing to put in place: others have ended this", staged)
    old = _exchange(new, path)
    return _aside(old) if old == staged else old


def _exchange(staged: str, path: str) -> str | None:
    """Exchange two directories, and return where the old one is now."""
    if not os.path.isdir(staged):  # noqa: PTH112
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), staged)
    if exchange_names(staged, path):
        return staged
    old = _aside(path) if os.path.lexists(path) else None
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - deleted since with what was there
    os.rename(staged, path)  # noqa: PTH104
    return old


def _finish(old: str | None, path: str, *, fsync: bool) -> None:
    if fsync:
        sync_directory(os.path.dirname(path))  # noqa: PTH120
    if old is not None:
        for _ in range(_ATTEMPTS):  # those who write in place write on to what was there (`pinned_directory`)
            shutil.rmtree(old, ignore_errors=True)
            if not os.path.lexists(old):
                return


def _beside_with(above: str, mark: str) -> str | None:
    """Return the hidden directory in `above` that has the file `mark`."""
    with os.scandir(above) as entries:
        hidden = [entry.path for entry in entries if entry.name.endswith(PARTIAL_SUFFIX)]
    return next((path for path in hidden if _is_marked(path, mark)), None)


def _is_marked(directory: str, mark: str) -> bool:
    try:
        return os.stat(os.path.join(directory, mark)).st_size > 0  # noqa: PTH116, PTH118
    except OSError:
        return False


def _aside(path: str) -> str:
    """Rename a directory, so that nobody finds it there any more, and return its new name."""
    aside = f"{os.path.dirname(path)}{os.sep}{partial_name(os.path.basename(path))}"  # noqa: PTH119, PTH120
    os.rename(path, aside)  # noqa: PTH104
    return aside
