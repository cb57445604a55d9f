"""Manifest of a target: each store key of its chunks, with size, crc32c and version, in a parquet file.

What a job has computed while it wrote, and drops with its journal, stays: values can be compared later without decoding
them. Not here: the comparison (`chunkmill.checks.manifest_check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import fsspec
import google_crc32c

from chunkmill.errors import ChunkmillError, StoreError
from chunkmill.formats.references.parquet import import_pyarrow
from chunkmill.stores.base import Store
from chunkmill.stores.read_versions import list_versions

__all__ = ["Manifest", "ManifestRow", "ManifestWriter"]

_ROWS = 1 << 16  # of a row group: some megabytes


class ManifestRow(NamedTuple):
    """Store key of a value, its size in bytes, its crc32c, and its ETag, where the store's listing tells one."""

    key: str
    size: int
    crc32c: int
    version: str | None


@dataclass(frozen=True)
class Manifest:
    """A manifest in parquet, with the columns of `ManifestRow`.

    Attributes
    ----------
    url
        Of the file.
    storage_options
        Of its filesystem, as in fsspec.
    """

    url: str
    storage_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def to_write(cls, url: str, storage_options: Mapping[str, Any] | None) -> Manifest:
        """Return a manifest; an error says now that pyarrow is missing, not when the job has ended."""
        import_pyarrow()
        return cls(url, storage_options or {})

    def write(self, rows: Iterable[ManifestRow]) -> None:
        """Store rows, some thousands in memory at a time.

        Raises
        ------
        StoreError
            It cannot be written there.
        """
        pa = import_pyarrow()
        columns = [("key", pa.string()), ("size", pa.uint64()), ("crc32c", pa.uint32()), ("version", pa.string())]
        schema, todo = pa.schema(columns), iter(rows)
        try:
            with (
                fsspec.open(self.url, "wb", **self.storage_options) as file,
                pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer,
            ):
                while batch := list(islice(todo, _ROWS)):
                    writer.write_table(pa.table(list(map(list, zip(*batch, strict=True))), schema=schema))
        except ChunkmillError:  # of the store that is read
            raise
        except (OSError, ValueError) as error:
            raise StoreError(url=str(self.url), key="", reason=f"the manifest cannot be written: {error}") from error

    def rows(self) -> Iterator[ManifestRow]:
        """Yield the rows.

        Raises
        ------
        StoreError
            There is no such file, or it is not a manifest.
        """
        pa = import_pyarrow()
        try:
            with fsspec.open(self.url, "rb", **self.storage_options) as file:
                for batch in pa.parquet.ParquetFile(file).iter_batches(_ROWS, columns=list(ManifestRow._fields)):
                    columns = [batch.column(name).to_pylist() for name in ManifestRow._fields]
                    yield from map(ManifestRow, *columns)
        except (OSError, ValueError, KeyError, TypeError, pa.lib.ArrowException) as error:
            raise StoreError(url=str(self.url), key="", reason=f"this is not a manifest of a job: {error}") from error


@dataclass(frozen=True)
class ManifestWriter:
    """Writes the manifest of what a job has stored; can be pickled.

    Attributes
    ----------
    manifest
        The file.
    store, prefixes
        Store of the target, and where the store keys of its arrays begin.
    """

    manifest: Manifest
    store: Store
    prefixes: Sequence[str]

    def __call__(self, written: Iterable[tuple[str, str, int, int | None]]) -> None:
        """Write it; values of which no crc32c is known are read for it, and staged ones have no version yet."""
        versions = {key: found for each in self.prefixes for key, found in list_versions(self.store, each) or ()}
        self.manifest.write(self._rows(written, versions))

    def _rows(
        self, written: Iterable[tuple[str, str, int, int | None]], versions: Mapping[str, str]
    ) -> Iterator[ManifestRow]:
        for there, key, size, crc32c in written:
            version = versions.get(key) if there == key else None
            if crc32c is not None:
                yield ManifestRow(key, size, crc32c, version)
            elif (value := self.store.get(there)) is not None:
                yield ManifestRow(key, len(value), google_crc32c.value(value), version)
