"""File, folder or repository of Icechunk that a reference set is written to; in the last, as virtual chunks.

Not here: how chunks are located (`chunkmill.references.locate`), reading (`chunkmill.nodes.reference_sets`), encoding
(`chunkmill.formats.references`).
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Self, cast

import fsspec
from numcodecs.zstd import compress as zstd_compress

from chunkmill.errors import NodeExists, StoreError
from chunkmill.formats.references.chunk_numbers import ROOT_KEY, is_reference_root
from chunkmill.formats.references.json import HEAD_BYTES, emit_reference_json, is_reference_json
from chunkmill.formats.references.parquet import ParquetReferences, emit_reference_parquet
from chunkmill.formats.registry import get_format
from chunkmill.hints import Hint
from chunkmill.journal.lease import leased
from chunkmill.journal.plans import JOB_PREFIX, put_in_place, staged_prefix
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, is_within
from chunkmill.model.references import References, ReferenceSet
from chunkmill.nodes.api import url_and_path
from chunkmill.nodes.opening import array_at, find_stored, open_target_store
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.nodes.target import Target
from chunkmill.stores.base import REQUESTS_AT_ONCE, ByteRange, Store
from chunkmill.stores.conflicts import swap
from chunkmill.stores.open import is_store, may_be_reference_file, open_store
from chunkmill.stores.places import parse_url_pipeline
from chunkmill.stores.reference import split_url

_LEVEL = 3
_CANNOT = "cannot write the reference set"
_RECORDS = re.compile(r"refs\.\d+\.parq")
_AT_ONCE = 10_000  # references that are passed on together
_OVERWRITE = Hint("give another path, or {} to replace it", ("overwrite", True))
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # gzip, zstd


@dataclass(frozen=True, slots=True)
class SetFile:
    """Location and encoding of a set.

    Attributes
    ----------
    store, key
        Where it is written; the key is empty for parquet, whose folder is the store.
    kind
        ``"json"`` or ``"parquet"``.
    record_size
        References in one parquet file.
    """

    store: Store
    key: str
    kind: str
    record_size: int

    @classmethod
    def at(
        cls,
        url: Any,
        storage_options: Mapping[str, Any] | None,
        *,
        kind: str | None,
        record_size: int,
    ) -> Self:
        """Return the file or folder at `url`; sends no request."""
        if not isinstance(url, (str, os.PathLike)):
            raise TypeError(f"a reference set is written to a url, not to {type(url).__name__}")
        if parse_url_pipeline(os.fspath(url)) is not None:
            reason = "a reference set is a file or a folder, which the url names without adapters"
            raise StoreError(url=os.fspath(url), key="", reason=reason)
        if kind is None:
            kind = "json" if may_be_reference_file(url) else "parquet"
        if kind not in {"json", "parquet"}:
            raise ValueError(f"format={kind!r}: expected 'json' or 'parquet'")
        if record_size < 1:
            raise ValueError(f"record_size={record_size!r}: expected 1 or more")
        root, key = split_url(os.fspath(url)) if kind == "json" else (os.fspath(url), "")
        return cls(open_store(root, storage_options), key, kind, record_size)

    @property
    def url(self) -> str:
        """Url of the file or folder."""
        return f"{self.store.url.removesuffix('/')}/{self.key}" if self.key else self.store.url

    def check_free(self, *, overwrite: bool, source: str | None = None) -> str | None:
        """Return the version of the set that is to be replaced, ``None`` where nothing is there.

        Raises
        ------
        StoreError
            Something is there that must not be replaced.
        """
        if not (self.store.size(self.key) is not None if self.key else self._has_others()):
            return None
        reason: str | Hint = f"{_CANNOT}: the target is the source: give another url"
        if not self._is_set():
            reason = f"{_CANNOT}: what is there is not a reference set: give another url"
        elif not overwrite:
            text = f"{_CANNOT}: one is already there: give another url, or {{}} to replace it"
            reason = Hint(text, ("overwrite", True))
        elif source != self.url:
            return self._version()
        raise StoreError(url=self.store.url, key=self.key, reason=reason)

    def _is_set(self) -> bool:
        if self.key:
            head = self.store.get(self.key, ByteRange(0, min(self.store.size(self.key) or 0, HEAD_BYTES)))
            return head is not None and (head.startswith(_COMPRESSED) or is_reference_json(head))
        return is_reference_root(self.store.get(ROOT_KEY))

    def _version(self) -> str | None:
        return self.store.get_versioned(self.key or ROOT_KEY)[1]

    def _has_others(self) -> bool:
        """Return whether anything is in the folder besides journals, and files of a set whose writer was killed."""
        names = self.store.list_dir("")
        if not any(name.startswith(JOB_PREFIX) for name in names):
            return bool(names)
        return not all(_RECORDS.fullmatch(key.rpartition("/")[2]) for key in self._keys())

    def _keys(self) -> Iterator[str]:
        return (key for key in self.store.list_prefix("") if not key.startswith(JOB_PREFIX))

    def write(self, references: ReferenceSet, *, replaces: str | None) -> None:
        """Write the set while nothing but the version that it `replaces` is there (P3, see `check_free`).

        The file that makes a folder a set is written last. A set in a folder is staged and then renamed, where the
        store can (P6); else the old one is deleted first.

        Raises
        ------
        StoreError
            Others have written there since.
        JobError
            Another writer is at work in the folder.
        """
        if self.key:
            self._put(self.key, self._compressed(emit_reference_json(references)), replaces)
            folder = self.key[: self.key.rfind("/") + 1]
            self.store.sweep(folder, recursive=False)  # of a writer that was killed (P8)
            return
        job, stages = f"write the reference set {self.url}", replaces is not None and self.store.can_replace("")
        with leased(self.store, "", job, old_prefix="" if stages else None) as own:
            if self._version() != replaces or (replaces is None and self._has_others()):
                raise self._changed(ROOT_KEY)
            if stages:
                staged = staged_prefix("", own.run)
                try:
                    self._write_files(references, staged)
                    put_in_place(self.store, job, "", own.run, old_prefix="", staged=staged)
                except BaseException:
                    self.store.delete_prefix(staged)
                    raise
                return
            if replaces is not None and not swap(self.store, ROOT_KEY, None, replaces):
                raise self._changed(ROOT_KEY)
            self.store.delete_many(list(self._keys()))
            try:
                self._write_files(references, "")
            except BaseException:  # what is not a set yet must not look like somebody else's files to the next writer
                self.store.delete_many([key for key in self._keys() if _RECORDS.fullmatch(key.rpartition("/")[2])])
                raise

    def _write_files(self, references: ReferenceSet, prefix: str) -> None:
        files = emit_reference_parquet(references, record_size=self.record_size)
        root = b""
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            # in batches: files are generated as they are written, and the root, which comes last, is written last
            while batch := list(islice(files, REQUESTS_AT_ONCE)):
                if batch[-1][0] == ROOT_KEY:
                    root = batch.pop()[1]
                list(pool.map(lambda file: self.store.set(prefix + file[0], file[1]), batch))
        self._put(prefix + ROOT_KEY, root, None)

    def _put(self, key: str, value: bytes, replaces: str | None) -> None:
        if not swap(self.store, key, value, replaces):
            raise self._changed(key)

    def _changed(self, key: str) -> StoreError:
        reason = f"{_CANNOT}: others have written there since, and what they wrote stays"
        return StoreError(url=self.store.url, key=key, reason=reason)

    def _compressed(self, document: bytes) -> bytes:
        if self.key.endswith(".gz"):
            return gzip.compress(document, _LEVEL)
        return bytes(zstd_compress(document, _LEVEL)) if self.key.endswith(".zst") else document


@dataclass(frozen=True, slots=True)
class Repository:
    """Repository of Icechunk as the target of a reference set.

    Attributes
    ----------
    store
        Of the repository.
    path
        Of the topmost node; groups above it may be there.
    overwrite
        Whether a node that is there is deleted in the same commit.
    """

    store: Store
    path: str
    overwrite: bool
    kind = "icechunk"

    @property
    def url(self) -> str:
        """Url of the repository."""
        return self.store.url

    def check_free(self, *, overwrite: bool, source: str | None = None) -> None:  # noqa: ARG002 - as of `SetFile`
        """Raise `NodeExists` where there is a node that is not to be overwritten; an empty group may be at the root."""
        there = None if overwrite else find_stored(self.store, self.path)
        if there is not None and (self.path or not _is_empty(there)):
            raise NodeExists(url=self.url, path=self.path, found=_kind(there), hint=_OVERWRITE)

    def write(self, references: ReferenceSet, *, replaces: str | None = None) -> None:  # noqa: ARG002 - as of `SetFile`
        """Write documents and inline chunks as they are, and the other chunks as virtual ones.

        Raises
        ------
        NodeExists
            There is a node, and it is not to be overwritten.
        StoreError
            No virtual chunk container of the repository has the url of a chunk.
        UnsupportedFeature
            Icechunk 1 holds no rectilinear grid.
        """
        documents_format, there = get_format("zarr3"), find_stored(self.store, self.path)
        groups: dict[str, GroupMetadata] = {}
        found: dict[str, ArrayMetadata] = {}  # with the chunk keys of the set
        for key in references.keys():  # noqa: SIM118 - not a dict
            path, _, name = key.rpartition("/")
            if name == "zarr.json" and is_within(path, self.path):  # groups above are made where they are missing
                document = {key: _data(references, key)}
                if (metadata := documents_format.parse_array(path, document)) is not None:
                    found[path] = metadata
                elif (group := documents_format.parse_group(path, document)) is not None:
                    groups[path] = group
        arrays = [
            array_at(self.store, path, replace(metadata, chunk_keys=_KEYS), documents_format)
            for path, metadata in found.items()
        ]
        overwrite = self.overwrite or (not self.path and there is not None and _is_empty(there))
        new, job = Target(self.store, self.path, documents_format, arrays, groups, overwrite), "virtual chunks of "
        with self.store.transaction(f"{job}{self.path!r}"), new.held(f"{job}{self.path!r} in {self.url}") as target:
            target.publish(consolidates=False)
            for path, metadata in found.items():
                self._write_chunks(references, path, metadata)

    def _write_chunks(self, references: ReferenceSet, path: str, metadata: ArrayMetadata) -> None:
        prefix = get_format("zarr3").chunk_prefix(path)
        seen = datetime.now(UTC) + timedelta(seconds=1)  # Icechunk keeps whole seconds
        waiting: list[tuple[tuple[int, ...], str, int, int]] = []
        for key in references.keys(prefix):
            coords = metadata.chunk_keys.decode(key[len(prefix) :], len(metadata.shape))
            reference = references.locate(key)
            if coords is None or reference is None:
                continue
            if reference.url is None:
                self.store.set(prefix + _KEYS.encode(coords), _data(references, key))
                continue
            waiting.append((coords, reference.url, reference.offset, cast("int", reference.length)))  # located: known
            if len(waiting) == _AT_ONCE:
                self.store.refer(path, waiting, seen)
                waiting = []
        if waiting:
            self.store.refer(path, waiting, seen)


def set_target(
    target: Any,
    storage_options: Mapping[str, Any] | None,
    *,
    kind: str | None = None,
    record_size: int = 10_000,
    overwrite: bool,
) -> tuple[SetFile | Repository, str]:
    """Return the file, folder or repository that a set is written to, and the path of its topmost node there."""
    url, path = url_and_path(target, "target")
    if is_store(url) or (isinstance(url, (str, os.PathLike)) and "|" in os.fspath(url)):
        store = open_target_store(url, storage_options)
        if store.can_refer:
            return Repository(store, path, overwrite), path
    return SetFile.at(url, storage_options, kind=kind, record_size=record_size), path


_KEYS = ChunkKeyEncoding("c/", "/", "c")


def _kind(node: StoredNode) -> str:
    return "group" if isinstance(node, StoredGroup) else "array"


def _is_empty(node: StoredNode) -> bool:
    return isinstance(node, StoredGroup) and not (node.metadata.attributes or node.children())


def _data(references: ReferenceSet, key: str) -> bytes:
    reference = references.locate(key)
    return b"" if reference is None or reference.data is None else reference.data


def in_memory(references: References) -> ReferenceSet:
    """Return the set with all its references loaded; one in parquet is read whole."""
    return references.load() if isinstance(references, ParquetReferences) else cast("ReferenceSet", references)


def matching_urls(url: str, storage_options: Mapping[str, Any]) -> list[str] | None:
    """Return the urls that a pattern matches, in the order of names; ``None`` where `url` is none.

    Examples
    --------
    >>> import fsspec
    >>> for name in ("r1", "r2", "r10"):
    ...     fsspec.filesystem("memory").pipe(f"/doc-matching/{name}.json", b"{}")
    >>> matching_urls("memory://doc-matching/r?.json", {})
    ['memory:///doc-matching/r1.json', 'memory:///doc-matching/r2.json']
    """
    is_web = url.startswith(("http://", "https://"))  # there "?" begins a query
    if not set("*[" if is_web else "*?[") & set(url):
        return None
    fs, pattern = fsspec.url_to_fs(url, **storage_options)
    found = [str(fs.unstrip_protocol(path)).removeprefix("file://") for path in sorted(fs.glob(pattern))]
    return found or ([url] if fs.exists(pattern) else [])
