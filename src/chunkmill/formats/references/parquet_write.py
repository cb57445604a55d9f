"""Write a reference set as parquet, one record file at a time.

Layout and specification: `parquet`. fsspec's LazyReferenceMapper finds Zarr v2 arrays with ``.`` between
chunk coords, and none at the root; what else chunkmill writes and reads here, it alone reads.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import numpy as np

from chunkmill.errors import MetadataError
from chunkmill.formats.base import parse_json
from chunkmill.formats.references import ROOT_KEY
from chunkmill.formats.references.chunk_numbers import ChunkRows, split_by_array
from chunkmill.formats.references.parquet import import_pyarrow
from chunkmill.model.references import INLINE, WHOLE, ReferenceSet

__all__ = ["emit_reference_parquet", "record_files"]


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
    >>> from chunkmill.formats.references.json import parse_reference_json
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


def record_files(references: ReferenceSet, *, record_size: int = 10_000) -> Iterator[tuple[str, bytes]]:
    """Yield the files of `emit_reference_parquet` but the last."""
    return _Writer(references, record_size).record_files()


class _Writer:
    def __init__(self, references: ReferenceSet, record_size: int) -> None:
        self._pa = import_pyarrow()
        self._references = references
        self._record_size = record_size
        self.documents, self._arrays, self._rows = split_by_array(references)

    def record_files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the record files that hold anything; what is not there has no references."""
        for path, rows in self._rows.items():
            records = rows.numbers // self._record_size
            starts = np.flatnonzero(np.r_[True, records[1:] != records[:-1]]).tolist()
            for start, stop in itertools.pairwise([*starts, len(records)]):
                yield (
                    f"{self._arrays[path].prefix}refs.{int(records[start])}.parq",
                    self._file(rows.take(slice(start, stop))),
                )

    def _file(self, chunks: ChunkRows) -> bytes:
        pa = self._pa
        rows, url_ids = chunks.numbers % self._record_size, chunks.url_ids
        offsets, sizes = np.zeros((2, self._record_size), dtype=np.int64)
        is_range = (url_ids != INLINE) & (chunks.lengths != WHOLE)
        offsets[rows[is_range]] = chunks.offsets[is_range]
        sizes[rows[is_range]] = chunks.lengths[is_range]
        raw: list[bytes | None] = [None] * self._record_size
        # offset and size 0 mean the whole file, so that no bytes at all are written inline
        is_raw = (url_ids == INLINE) | (chunks.lengths == 0)
        for i in np.flatnonzero(is_raw).tolist():
            entry = int(url_ids[i]), int(chunks.offsets[i]), int(chunks.lengths[i])
            raw[int(rows[i])] = self._references.reference(*entry).data or b""
        used, numbers = np.unique(url_ids[~is_raw], return_inverse=True)
        urls = [self._references.urls[number] for number in used.tolist()]
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
            "offset": pa.array(offsets),
            "size": pa.array(sizes),
            "raw": pa.array(raw, pa.binary()),
        }
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(pa.table(columns), sink, compression="zstd", write_statistics=False)
        return bytes(sink.getvalue().to_pybytes())
