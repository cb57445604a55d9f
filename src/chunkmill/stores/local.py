"""Plain files: one key, one file.

System calls straight from Python: a read is open, fstat, read, close. Nothing of fsspec, no event loop.
Values appear by rename, so that a reader sees a whole value, old or new, never a mixture.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from chunkmill.config import setting
from chunkmill.errors import StoreError
from chunkmill.log import LOG
from chunkmill.stores.base import ByteRange, PlacedStore, check_key, check_prefix
from chunkmill.stores.directories import (
    ANY,
    can_exchange,
    exchange_once,
    locked,
    locks_reach_all,
    put,
)
from chunkmill.stores.posix_file import (
    PARTIAL_SUFFIX,
    check_name,
    create,
    hidden_name,
    leads_up,
    open_to_read,
    read_array,
    read_part,
    remove,
    remove_tree,
    stamp,
    sweep,
    sync_directory,
    sync_file_system,
    version_from,
    version_of,
    write_all,
)

_ABSENT = (FileNotFoundError, NotADirectoryError)
_ATTEMPTS = 20  # at what loses a race only against others' mkdir and rmtree


JOURNAL = ".chunkmill-"
"""Start of the folders of journals: what is synced there is what a client that recovers a job reads first.

No link is followed at such a name or below it (P13): a store from elsewhere may hold links to anywhere.
"""


def _is_intent(key: str) -> bool:
    """Return whether a key is a plan, which must never be found empty after a crash."""
    return key.endswith(".json") and JOURNAL in key


def _is_own(key: str) -> bool:
    """Return whether a key, or a prefix, is at or below a name of ours."""
    return JOURNAL in key and f"/{JOURNAL}" in f"/{key}"


class LocalStore(PlacedStore):
    """A directory of plain files.

    A key that is a directory is absent; symbolic links are followed, wherever the user let them point, and one that
    points to nothing is an error: git-annex has such where contents were not fetched. Below names of ours, links are
    absent: they are listed as keys, and what is written or deleted there removes them. An empty directory is listed by
    `list_dir`, as N5 takes it for a group. Nothing is created before the first `set`.

    Parameters
    ----------
    root
        The directory; relative paths are made absolute now, ``~`` is expanded.
    fsync
        Whether every write and deletion returns only when it would outlive a crash of the machine (much slower); as
        users have set it when ``None``. Without, that holds for the content of what replaces an existing value after a
        comparison, and of plans: a crash leaves the old or the new one, never an empty file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = LocalStore(folder)
    ...     store.set("a/c/0", b"chunk")
    ...     store.get("a/c/0"), store.get("a/c/1"), store.list_dir("")
    (b'chunk', None, ['a/'])
    """

    is_remote = False
    can_sync = has_folders = has_versions = writes_parts = True

    def __init__(self, root: str | os.PathLike[str], *, fsync: bool | None = None) -> None:
        self._root = os.path.abspath(os.path.expanduser(os.fspath(root)))  # noqa: PTH100, PTH111
        self._base = self._root.rstrip(os.sep) + os.sep
        self._was_there = False  # this directory, when a value was read: sent to other processes, too
        self._fsync = bool(setting("fsync")) if fsync is None else fsync
        self.url = "file://" + ("" if self._root.startswith("/") else "/") + self._root.replace(os.sep, "/")

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def explain_absence(self) -> str | None:
        """Return what is there where the directory should be, when that is a file."""
        if not os.path.isfile(self._root):  # noqa: PTH113
            return None
        return (
            "that is a file, and neither a zip file (.zip) nor a reference set (.json); "
            "kerchunk and VirtualiZarr make reference sets of netCDF, HDF5, GRIB and TIFF"
        )

    def identity(self) -> tuple[str, str]:
        """Return the directory."""
        return "chunkmill.LocalStore", self.url

    @property
    def compares_versions(self) -> bool:
        """True when `set_if` is atomic against all others: it compares and renames under flock, where that reaches all.

        Without (Windows; NFS and Lustre mounted so) a lock of the cluster must guard partial writes.
        """
        return locks_reach_all(self._root)

    # --- reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it: one open, fstat, read and close."""
        return self._get(key, byte_range)[0]  # type: ignore[no-any-return]

    def get_writable(self, key: str, byte_range: ByteRange | None = None) -> Any:
        """Return a value, or a range of it, read into an array that is the caller's."""
        is_own = type(self).get is LocalStore.get  # a subclass may answer otherwise
        return self._get(key, byte_range, read_array)[0] if is_own else self.get(key, byte_range)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version, both of the same open file."""
        return self._noted(key, None)

    def _noted(self, key: str, byte_range: ByteRange | None) -> tuple[bytes | None, str | None]:
        data, status = self._get(key, byte_range)
        return data, None if status is None else version_from(status)

    def version(self, key: str) -> str | None:
        """Return the version of a value."""
        return None if self._own_link(key) else version_of(self._path(key))

    def _get(self, key: str, byte_range: ByteRange | None, read: Any = read_part) -> tuple[Any, os.stat_result | None]:
        path = self._path(key)
        is_link = JOURNAL in key and self._own_link(key)  # without a call for chunks
        if path.endswith(PARTIAL_SUFFIX) or is_link or (fd := self._opened(key, path)) is None:
            return None, None
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                return None, None
            start, stop = self._regular_bounds(key, status, byte_range)
            data = read(fd, start, stop)
        except StoreError:
            raise
        except OSError as error:
            raise self._failed(key, "cannot read", error) from error
        except MemoryError as error:
            raise StoreError(url=self.url, key=key, reason=f"{stop - start} bytes do not fit into memory") from error
        finally:
            os.close(fd)
        if len(data) != stop - start:
            reason = f"expected {stop - start} bytes from {start}, got {len(data)}: the file shrank while it was read"
            raise StoreError(url=self.url, key=key, reason=reason)
        return data, status

    def _opened(self, key: str, path: str) -> int | None:
        for _ in range(_ATTEMPTS):
            try:
                fd = open_to_read(path)
            except IsADirectoryError:
                return None
            except _ABSENT as error:
                if not self._is_there(key, path, error):
                    return None
            except OSError as error:
                raise self._failed(key, "cannot open", error) from error
            else:
                self._was_there = True
                return fd
        reason = f"the file system says {_ATTEMPTS} times both that there is such a file and that there is none"
        raise StoreError(url=self.url, key=key, reason=reason)

    def _is_there(self, key: str, path: str, error: OSError) -> bool:
        """Ask again about a file that is absent: what is absent for certain is read as fill values (P1)."""
        if (status := self._status(key, path, os.lstat)) is None:
            return False
        if not stat.S_ISLNK(status.st_mode) or os.path.exists(path):  # noqa: PTH110
            return True
        raise self._failed(key, "cannot follow the symbolic link", error) from error

    def _status(self, key: str, path: str, look: Callable[[str], os.stat_result]) -> os.stat_result | None:
        try:
            return look(path)
        except _ABSENT:
            self._check_root(key)
            return None
        except OSError as error:
            raise self._failed(key, "cannot look at", error) from error

    def _check_root(self, key: str) -> None:
        """Raise when the store's directory was there and is gone: then no key is known to be absent."""
        if self._was_there and not os.path.isdir(self._root):  # noqa: PTH112
            reason = "the directory of the store is gone: deleted, or on a file system that is not mounted"
            raise StoreError(url=self.url, key=key, reason=reason)

    def _regular_bounds(self, key: str, status: os.stat_result, byte_range: ByteRange | None) -> tuple[int, int]:
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(url=self.url, key=key, reason="cannot read: it is not a file, but a pipe or a device")
        return self.bounds(key, byte_range, status.st_size)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        path = self._path(key)
        if self._own_link(key):
            return None
        status = self._status(key, path, os.stat)
        is_value = status is not None and not stat.S_ISDIR(status.st_mode) and not path.endswith(PARTIAL_SUFFIX)
        return status.st_size if status is not None and is_value else None

    # --- writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value: a hidden file in the same directory, then a rename over the key."""
        self.set_parts(key, (value,))

    def set_parts(self, key: str, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        """Store the joined parts, each written as it comes."""
        self._change(key, parts, ANY)

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store (or delete) if the key still has `version`: compared and renamed under a lock, or created at once.

        Without flock (Windows) only this process guards the moment between comparing and renaming.
        """
        return self._change(key, None if value is None else (value,), version)

    def _change(self, key: str, parts: Iterable[bytes | bytearray | memoryview] | None, version: str | None) -> bool:
        """Write a value under a hidden name, unless it is to be deleted, and put it in place of the key."""
        path, directory = self._path_to_write(key)
        is_compared = version not in {None, ANY} and JOURNAL not in key  # and not a heartbeat
        partial = None if parts is None else hidden_name(path)
        done = False
        try:
            if partial is not None and parts is not None:
                self._write(partial, parts, fsync=self._fsync or _is_intent(key) or is_compared)
            done = put(path, directory, partial, version)
            if done and self._fsync and os.path.isdir(directory):  # noqa: PTH112
                sync_directory(directory)
        except OSError as error:
            raise self._failed(key, "cannot store the value", error) from error
        finally:
            if partial is not None and not done:
                with contextlib.suppress(OSError):
                    os.unlink(partial)  # noqa: PTH108
        return done

    def delete(self, key: str) -> None:
        """Delete a key; its directory stays."""
        path, directory = self._path_to_write(key)
        try:
            # of ours: the plan of a client that takes over at this moment stays
            with contextlib.nullcontext() if _is_intent(key) else locked(directory):
                remove(path)
            if self._fsync:
                sync_directory(directory)
        except OSError as error:
            if not (isinstance(error, _ABSENT) or os.path.isdir(path)):  # noqa: PTH112 - not a key
                raise self._failed(key, "cannot delete", error) from error

    def delete_prefix(self, prefix: str) -> None:
        """Delete a directory and all below it; of a symbolic link, the link."""
        path = self._directory(prefix)
        self._was_there = self._was_there and bool(prefix)
        self._remove_own_link(prefix)
        try:
            if os.path.islink(path):  # noqa: PTH114
                os.unlink(path)  # noqa: PTH108
            remove_tree(path)
            if self._fsync and os.path.isdir(above := os.path.dirname(path)):  # noqa: PTH112, PTH120
                sync_directory(above)
        except NotADirectoryError:
            return  # a file: the key without the slash, which is not below the prefix
        except OSError as error:
            raise self._failed(prefix, "cannot delete", error) from error

    def sync(self) -> None:
        """Make all that was written to the store's file system, by any process of this machine, survive a crash."""
        try:
            sync_file_system(self._root)
        except OSError as error:
            raise self._failed("", "cannot sync", error) from error

    def _write(self, partial: str, parts: Iterable[bytes | bytearray | memoryview], *, fsync: bool) -> None:
        fd = create(partial, fsync=self._fsync)
        try:
            for part in parts:
                write_all(fd, part)
                del part  # before the next one is made, so that it gets the same memory
            stamp(fd, partial)
            if fsync:
                os.fsync(fd)
        finally:
            os.close(fd)

    # --- listing

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key below `prefix`, one directory in memory at a time."""
        todo = [(prefix, self._directory(prefix))]
        while todo:
            keys, path = todo.pop()
            for name, is_directory in self._scan(keys, path):
                if is_directory:
                    todo.append((f"{keys}{name}/", f"{path}{os.sep}{name}"))
                else:
                    yield keys + name

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`; directories, empty ones too, end with ``/``."""
        found = self._scan(prefix, self._directory(prefix))
        return sorted(name + "/" if is_directory else name for name, is_directory in found)

    def _scan(self, prefix: str, path: str) -> Iterator[tuple[str, bool]]:
        """Yield names, and whether they are directories; without links up the tree, which would never end."""
        is_own = _is_own(prefix)
        if is_own and self._own_link(prefix):
            return
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name.endswith(PARTIAL_SUFFIX):
                        continue
                    is_directory = entry.is_dir(follow_symlinks=not (is_own or entry.name.startswith(JOURNAL)))
                    if not (is_directory and entry.is_symlink() and leads_up(entry.path, path)):
                        yield entry.name, is_directory
        except _ABSENT:
            self._check_root(prefix)
            return
        except OSError as error:
            raise self._failed(prefix, "cannot list", error) from error

    def sweep(self, prefix: str = "", *, remove: bool = True, recursive: bool = True) -> list[str]:
        """Remove partial files and directories of killed writers below `prefix`, and return their keys.

        Only those directly below `prefix` unless `recursive`; of the whole store also those next to its directory.
        Those of processes that are alive, or that run on other machines and are younger than an hour, stay.
        """
        if self._own_link(prefix):
            return []
        found = sweep(self._directory(prefix), remove=remove, recursive=recursive)
        if recursive and not prefix:
            above, name = os.path.split(self._root)
            found += sweep(above, remove=remove, of=name)
        return sorted(os.path.relpath(path, self._root).replace(os.sep, "/") for path in found)

    # --- directories

    def remove_folder(self, prefix: str) -> bool:
        """Remove the directory of a prefix if it is empty, which the system looks at itself.

        Return whether there is none left.
        """
        try:
            self._remove_own_link(prefix)
            os.rmdir(path := self._directory(prefix))  # noqa: PTH106
            if self._fsync:
                sync_directory(os.path.dirname(path))  # noqa: PTH120
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def is_link(self, prefix: str) -> bool:
        """Return whether the directory of a prefix is a symbolic link; the store's own one does not count."""
        return bool(prefix) and os.path.islink(self._directory(prefix))  # noqa: PTH114

    def can_replace(self, prefix: str) -> bool:
        """Return whether `replace_prefix` can."""
        return can_exchange(self._directory(prefix), self._root if prefix else "")

    def replace_prefix(self, prefix: str, staged: str, proof: str) -> None:
        """Replace all below `prefix` by what is below the prefix `staged`, once (see `exchange_once`)."""
        try:
            self._remove_own_link(staged)
            exchange_once(self._directory(staged), self._directory(prefix), proof, root=self._root, fsync=self._fsync)
        except OSError as error:
            raise self._failed(prefix, "cannot put the new directory in place", error) from error

    # --- names

    def _path(self, key: str) -> str:
        return self._base + check_key(key)

    def _path_to_write(self, key: str) -> tuple[str, str]:
        """Return the path of a key, and its directory."""
        if key.endswith(PARTIAL_SUFFIX):
            msg = f"{key!r} is not a store key: the suffix {PARTIAL_SUFFIX} is kept for values that are being written"
            raise ValueError(msg)
        check_name(key)
        path = self._path(key)
        self._remove_own_link(key)
        return path, os.path.dirname(path)  # noqa: PTH120

    def _own_link(self, key: str) -> str | None:
        """Return the path of the first link on the way to a key, or a prefix, at or below a name of ours."""
        if not _is_own(key):
            return None
        names = key.rstrip("/").split("/")
        first = next(n for n, name in enumerate(names) if name.startswith(JOURNAL))
        paths = (self._base + "/".join(names[: n + 1]) for n in range(first, len(names)))
        return next(filter(os.path.islink, paths), None)

    def _remove_own_link(self, key: str) -> None:
        """Remove the link on the way to a key that is about to be written or deleted."""
        if (link := self._own_link(key)) is not None:
            LOG.warning("%s is a symbolic link where chunkmill keeps its own files, and is removed", link)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link)  # noqa: PTH108

    def _directory(self, prefix: str) -> str:
        return self._base + check_prefix(prefix)[:-1] if prefix else self._root

    def _failed(self, key: str, what: str, error: OSError) -> StoreError:
        return self.failed(key, f"{what}: {error.strerror or error} ({type(error).__name__})", error)
