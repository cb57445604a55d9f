"""Write a reference set as parquet, one record file at a time.

Layout and specification: `references_parquet`. fsspec's LazyReferenceMapper finds Zarr v2 arrays with ``.`` between
chunk coords, and none at the root; what else chunkmill writes and reads here, it alone reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError
from chunkmill.formats.base import parse_json
from chunkmill.formats.references_grid import DOCUMENT_NAMES, ArrayKeys, find_array, parse_array_keys
from chunkmill.formats.references_parquet import ROOT_KEY, import_pyarrow
from chunkmill.model.references import INLINE, WHOLE, Reference, ReferenceSet, ReferenceTable

__all__ = ["emit_reference_parquet"]

_Columns = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""Chunk numbers, url ids, offsets, lengths."""


def emit_reference_parquet(references: ReferenceSet, *, record_size: int = 10_000) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the set in parquet by their names, ``.zmetadata`` last.

    Parameters
    ----------
    references
        The set; of each array with references it must hold the metadata document inline.
    record_size
        References a file.

    Raises
    ------
    MetadataError
        For keys that are no chunk of an array of the set, and references to the default target (``[null, …]``):
        parquet cannot hold them.

    Examples
    --------
    >>> from chunkmill.formats.references_json import parse_reference_json
    >>> document = b'{"x/.zarray": {"shape": [2], "chunks": [1]}, "x/0": ["a.nc", 8, 4], "x/1": ["a.nc", 12, 4]}'
    >>> [name for name, _ in emit_reference_parquet(parse_reference_json(document))]
    ['x/refs.0.parq', '.zmetadata']
    """
    if record_size < 1:
        raise MetadataError(key=ROOT_KEY, field="record_size", got=record_size, expected="1 or more")
    writer = _Writer(references, record_size)
    yield from writer.record_files()
    metadata = {key: parse_json(key, document) for key, document in writer.documents.items()}
    root = {"metadata": metadata, "record_size": record_size}
    yield ROOT_KEY, json.dumps(root, ensure_ascii=False).encode("utf-8")


class _Writer:
    def __init__(self, references: ReferenceSet, record_size: int) -> None:
        self._pa = import_pyarrow()
        self._references = references
        self._record_size = record_size
        self._urls = np.array([*references.urls, None], dtype=object)
        self.documents: dict[str, bytes] = {}
        chunks: list[str] = []
        for key in references.named:
            name = key.rsplit("/", 1)[-1]
            if name in DOCUMENT_NAMES:
                self.documents[key] = self._document(key)
            elif key != ROOT_KEY:  # made anew
                chunks.append(key)
        paths = {key.rpartition("/")[0] for key in self.documents}
        self._arrays = {
            path: array for path in sorted(paths) if (array := parse_array_keys(path, self.documents)) is not None
        }
        self._rows: dict[str, list[_Columns]] = {path: [] for path in self._arrays}
        self._take_named(chunks)
        for table in references.tables.values():
            self._take_table(table)

    def _document(self, key: str) -> bytes:
        reference = self._references.locate(key)
        if reference is None or reference.data is None:
            raise MetadataError(key=key, field="reference", got=reference, expected="a document inside the set")
        return reference.data

    def _take_named(self, keys: list[str]) -> None:
        found: dict[str, list[tuple[int, int, int, int]]] = {}
        for key in keys:
            array, number = self._number(key)
            found.setdefault(array.path, []).append((number, *self._references.named[key]))
        for path, rows in found.items():
            numbers, url_ids, offsets, lengths = (np.array(column) for column in zip(*rows, strict=True))
            self._rows[path].append((numbers, url_ids, offsets, lengths))

    def _take_table(self, table: ReferenceTable) -> None:
        for path in find_array(table.form[0] + "0", self._arrays):
            if (numbers := self._arrays[path].numbers(table)) is not None:
                if (numbers < 0).any():
                    row = int(np.flatnonzero(numbers < 0)[0])
                    coords = tuple(table.coords(row, row + 1)[0].tolist())
                    raise self._no_chunk(f"{table.form[0]}{table.form[1].join(map(str, coords))}")
                self._rows[path].append((numbers, table.url_ids, table.offsets, table.lengths))
                return
        # the coords of several arrays in one table: their names are numbers too, as of multiscale levels
        keys = list(table.keys())
        owners = [self._number(key) for key in keys]
        for path in {array.path for array, _ in owners}:
            rows = [row for row, (array, _) in enumerate(owners) if array.path == path]
            numbers = np.array([owners[row][1] for row in rows])
            self._rows[path].append((numbers, table.url_ids[rows], table.offsets[rows], table.lengths[rows]))

    def _number(self, key: str) -> tuple[ArrayKeys, int]:
        for path in find_array(key, self._arrays):
            array = self._arrays[path]
            if (coords := array.coords(key)) is not None and (number := array.number(coords)) is not None:
                return array, number
        raise self._no_chunk(key)

    @staticmethod
    def _no_chunk(key: str) -> MetadataError:
        expected = "keys of documents and of chunks inside arrays of the set: parquet holds no other; write JSON"
        return MetadataError(key=key, field="key", got=key, expected=expected)

    def record_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the record files that hold anything; what is not there has no references."""
        for path, pieces in self._rows.items():
            if not pieces:
                continue
            numbers, url_ids, offsets, lengths = (
                np.concatenate([piece[i] for piece in pieces]) if len(pieces) > 1 else pieces[0][i] for i in range(4)
            )
            if not bool((numbers[1:] > numbers[:-1]).all()):
                order = np.argsort(numbers, kind="stable")
                numbers, url_ids, offsets, lengths = (c[order] for c in (numbers, url_ids, offsets, lengths))
            records = numbers // self._record_size
            starts = np.flatnonzero(np.r_[True, records[1:] != records[:-1]])
            prefix = self._arrays[path].prefix
            for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(records)], strict=True):
                part = slice(start, stop)
                rows = numbers[part] % self._record_size
                file = self._file(rows, url_ids[part], offsets[part], lengths[part])
                yield f"{prefix}refs.{int(records[start])}.parq", file

    def _file(self, rows: NDArray[Any], url_ids: NDArray[Any], offsets: NDArray[Any], lengths: NDArray[Any]) -> bytes:
        pa = self._pa
        column_offsets, column_sizes = np.zeros((2, self._record_size), dtype=np.int64)
        is_range = (url_ids != INLINE) & (lengths != WHOLE)
        column_offsets[rows[is_range]] = offsets[is_range]
        column_sizes[rows[is_range]] = lengths[is_range]
        raw: list[bytes | None] = [None] * self._record_size
        # offset and size 0 mean the whole file, so that no bytes at all are written inline
        is_raw = (url_ids == INLINE) | (lengths == 0)
        for i in np.flatnonzero(is_raw).tolist():
            reference: Reference = self._references.reference(int(url_ids[i]), int(offsets[i]), int(lengths[i]))
            raw[int(rows[i])] = reference.data or b""
        used, numbers = np.unique(url_ids[~is_raw], return_inverse=True)
        urls = self._urls[used].tolist()
        if None in urls:
            raise MetadataError(
                key=ROOT_KEY, field="references", got="[null, …], the default target", expected="urls: name the target"
            )
        indices = np.full(self._record_size, -1, dtype=np.int32)
        indices[rows[~is_raw]] = numbers
        paths = pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), pa.array(urls, pa.string()))
        columns = {
            # a dictionary of one-off urls would only be in the way
            "path": paths if len(urls) * 10 < len(rows) else paths.cast(pa.string()),
            "offset": pa.array(column_offsets),
            "size": pa.array(column_sizes),
            "raw": pa.array(raw, pa.binary()),
        }
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(pa.table(columns), sink, compression="zstd", write_statistics=False)
        return bytes(sink.getvalue().to_pybytes())
