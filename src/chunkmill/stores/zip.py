"""Store over one local zip file: keys are member names.

Reading is safe from many threads. Writing is for one process: values go to a hidden copy next to the file, which
replaces it when the store is closed. What is to replace a node goes to a hidden directory next to the file first. Zip
files elsewhere (``zip://::s3://…``) are read through `FsspecStore`.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterable, Iterator
from copy import copy
from functools import partial
from typing import Any, Self

from chunkmill.errors import StoreError
from chunkmill.model.references import Reference
from chunkmill.stores.base import ByteRange, ByteSpan, Store, check_key, check_prefix, range_bounds
from chunkmill.stores.capabilities import RecordVersion
from chunkmill.stores.directories import hidden_name
from chunkmill.stores.local import LocalStore
from chunkmill.stores.partial_files import sweep_copies
from chunkmill.stores.zip_archive import Archive, shared_archive, version_of

__all__ = ["ZipStore"]

_MAX_MEMBER_BYTES = 8 * 2**30  # of a compressed member, decompressed
_MAX_UNLIMITED_BYTES = 2**28  # where the reader says nothing (`limited_to`), of a document; more where more is stored
_MAX_RATIO = 200  # to what is stored of it; consolidated metadata of alike arrays: 58, indented 95


class ZipStore:
    """The members of a zip file.

    Of two members of one name the last wins, as archivers mean it. Members with absolute names or ``..`` are not keys.

    What is written is stored uncompressed (chunks are compressed already) and seen at once by every `ZipStore` of the
    path in this process; the file changes when one of them is closed, or the process ends. Other processes can read
    only: to write from many, write a directory store and zip it. Of a symbolic link, the file that it leads to changes.

    Parameters
    ----------
    path
        The zip file; made by the first `close` after a write when there is none.
    prefix
        Directory in the archive that is the root of the store.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, ZipStore(f"{folder}/x.zip") as store:
    ...     store.set("a/zarr.json", b"{}")
    ...     store.get("a/zarr.json"), store.list_dir("")
    (b'{}', ['a/'])
    """

    is_remote = False
    replaces_atomically = True
    compares_versions = False

    def __init__(self, path: str | os.PathLike[str], prefix: str = "") -> None:
        self._path = os.path.abspath(os.path.expanduser(os.fspath(path)))  # noqa: PTH100, PTH111
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        check_prefix(self._prefix)
        self.url = f"zip://{self._prefix[:-1]}::file://{self._path}"
        self._pid = os.getpid()  # the only process that may write
        self._archive: Archive | None = None
        self._max_member_bytes: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_archive": None}

    def __repr__(self) -> str:
        return f"ZipStore({self._path!r}{', ' + repr(self._prefix[:-1]) if self._prefix else ''})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZipStore) and other.url == self.url

    def __hash__(self) -> int:
        return hash(self.url)

    def __dask_tokenize__(self) -> tuple[str, str]:
        return "chunkmill.ZipStore", self.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Put what was written in place of the file. The store can be used again."""
        if self._pid == os.getpid():
            with self._failing(""):
                self._open().publish()

    def limited_to(self, n_bytes: int) -> ZipStore:
        """Return the store, such that it decompresses no member to more than `n_bytes`."""
        other = copy(self)
        other._max_member_bytes = min(n_bytes, self._max_member_bytes or n_bytes)  # noqa: SLF001
        return other

    def flush(self) -> None:
        """Put what was written in place of the file, as `close` does."""
        self.close()

    def scratch_store(self) -> Store:
        """Return the directory of the file: what is deleted from a zip file leaves its bytes there."""
        return LocalStore(os.path.dirname(self._path))  # noqa: PTH120

    # --- reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a member, or a range of it."""
        return self._get(key, byte_range)[0]

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order."""
        for span in spans:
            yield None if span is None else self.get(span.key, span.byte_range)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a member, and its place and checksum in the archive."""
        return self._get(key, None)

    def get_noting(self, key: str, byte_range: ByteRange | None, record: RecordVersion) -> bytes | None:
        """Return a member, or a range of it, and record its place and checksum."""
        data, version = self._get(key, byte_range)
        if version is not None:
            record(key, version)
        return data

    def version(self, key: str) -> str | None:
        """Return the place and checksum of a member."""
        member = self._member(key)
        return None if member is None else version_of(member)

    def _get(self, key: str, byte_range: ByteRange | None) -> tuple[bytes | None, str | None]:
        name = self._prefix + check_key(key)
        with self._failing(key):
            archive = self._open()
            if (member := archive.members().get(name)) is None:
                return None, None
            unlimited = max(_MAX_UNLIMITED_BYTES, _MAX_RATIO * member.compress_size)
            n_most = min(_MAX_MEMBER_BYTES, self._max_member_bytes or unlimited)
            if member.compress_type != zipfile.ZIP_STORED and member.file_size > n_most:
                reason = f"the member decompresses to {member.file_size} bytes, expected at most "
                reason += f"{n_most}: it is damaged, or was made to fill memory"
                raise StoreError(url=self.url, key=key, reason=reason)
            start, stop = 0, member.file_size
            if byte_range is not None:
                start, stop = range_bounds(byte_range, member.file_size, url=self.url, key=key)
            data = archive.read(member, start, stop)
        if data is None:
            return self._get(key, byte_range)
        if len(data) != stop - start:
            reason = f"expected {stop - start} bytes from {start}, got {len(data)}: the zip file is truncated or wrong"
            raise StoreError(url=self.url, key=key, reason=reason)
        return data, version_of(member)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes."""
        member = self._member(key)
        return None if member is None else member.file_size

    def _member(self, key: str) -> zipfile.ZipInfo | None:
        name = self._prefix + check_key(key)
        with self._failing(key):
            return self._open().members().get(name)

    def locate(self, key: str) -> Reference | None:
        """Return the range of the zip file that holds a value; ``None`` when there is no such key.

        Raises
        ------
        StoreError
            The member is compressed or encrypted: no range of the file is its value; or it is not in the file yet.
        """
        name = self._prefix + check_key(key)
        with self._failing(key):
            archive = self._open()
            if (member := archive.members().get(name)) is None:
                return None
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                reason = "the member is compressed, so that no byte range of the zip file is its value: "
                reason += "zip without compression (zip -0), or unpack the file"
                raise StoreError(url=self.url, key=key, reason=reason)
            return Reference(f"file://{self._path}", archive.data_offset(member), member.file_size)

    # --- writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Add a member, in place of one of that name."""
        name = self._prefix + check_key(key)
        with self._writing(key) as archive:
            archive.write(name, bytes(value))

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store (or delete) if the member still has `version`: atomic among the threads of this process."""
        name = self._prefix + check_key(key)
        with self._writing(key) as archive:
            member = archive.members().get(name)
            if (None if member is None else version_of(member)) != version:
                return False
            if value is not None:
                archive.write(name, bytes(value))
            elif member is not None:
                archive.remove([name])
            return True

    def delete(self, key: str) -> None:
        """Take a member out of the directory; its bytes stay in the file."""
        name = self._prefix + check_key(key)
        with self._writing(key) as archive:
            archive.remove([name])

    def delete_prefix(self, prefix: str) -> None:
        """Take all members below `prefix` out of the directory."""
        check_prefix(prefix)
        with self._writing(prefix) as archive:
            archive.remove([name for name in archive.members() if name.startswith(self._prefix + prefix)])

    def sweep(self, prefix: str, *, remove: bool, recursive: bool) -> list[str]:
        """Remove the copies of the file that killed writers left next to it, and return their names."""
        found = [] if prefix or not recursive else sweep_copies(self._path, remove=remove)
        return sorted(f"../{os.path.basename(path)}" for path in found)  # noqa: PTH119

    # --- replacing

    def stage(self, prefix: str) -> Store:  # noqa: ARG002 - the signature of the capability
        """Return a hidden directory next to the file, for what is to replace all below `prefix` (see `swap_in`).

        What is written there and deleted leaves no bytes in the file.
        """
        return LocalStore(hidden_name(self._path))

    def swap_in(self, prefix: str, staged: Store) -> None:
        """Replace all below `prefix` by what `staged` holds, at once; the file changes when the store is closed."""
        check_prefix(prefix)
        with self._writing(prefix) as archive:
            new = [(self._prefix + prefix + key, partial(staged.get, key)) for key in staged.list_prefix("")]
            archive.exchange(lambda name: None if name.startswith(self._prefix + prefix) else name, new)
        staged.delete_prefix("")

    def can_replace(self, prefix: str) -> bool:
        """Return whether there is something below `prefix` that `replace_prefix` can replace."""
        return bool(self._keys(prefix))

    def replace_prefix(self, prefix: str, staged: str, proof: str) -> None:
        """Replace all below `prefix` by what is below `staged`, the key `proof` included; once."""
        old, new = self._prefix + check_prefix(prefix), self._prefix + check_prefix(staged)

        def renamed(name: str) -> str | None:
            if name.startswith(new):
                return old + name[len(new) :]
            return None if name.startswith(old) else name

        with self._writing(prefix) as archive:
            members = archive.members()
            if old + proof in members:
                archive.remove([name for name in members if name.startswith(new)])
            elif new + proof in members and members[new + proof].file_size:
                archive.exchange(renamed)
            else:
                reason = "there is nothing to put in place: others have ended this"
                raise StoreError(url=self.url, key=staged, reason=reason)

    # --- listing

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        yield from self._keys(prefix)

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        split = (key[len(prefix) :].partition("/") for key in self._keys(prefix))
        return sorted({name + slash for name, slash, _ in split})

    def _keys(self, prefix: str) -> list[str]:
        full = self._prefix + check_prefix(prefix)
        with self._failing(prefix):
            members = self._open().members()
        return [name[len(self._prefix) :] for name in members if name.startswith(full)]

    # --- errors

    @contextlib.contextmanager
    def _writing(self, key: str) -> Iterator[Archive]:
        if self._pid != os.getpid():
            reason = "a zip file is written by one process: write a directory store, then zip it"
            raise StoreError(url=self.url, key=key, reason=reason)
        archive = self._open()
        with archive.lock, self._failing(key):
            yield archive

    @contextlib.contextmanager
    def _failing(self, key: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # of zipfile, and of every module that decompresses
            raise StoreError(url=self.url, key=key, reason=f"{type(error).__name__}: {error}") from error

    def _open(self) -> Archive:
        if self._archive is None or self._archive.pid != os.getpid():
            self._archive = shared_archive(os.path.realpath(self._path))
        return self._archive
