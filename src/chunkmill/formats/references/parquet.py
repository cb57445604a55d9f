"""Reference sets in parquet: the layout of fsspec's LazyReferenceMapper.

``.zmetadata`` holds every metadata document and ``record_size``; the reference of chunk n of an array (C order) is row
``n % record_size`` of ``<array path>/refs.<n // record_size>.parq``. A set is opened by reading ``.zmetadata``; each
record file is read when a key in it is asked for.

Spec: references.txt, "Parquet references" (its example "refs.2.parquet" for reference 10,001 is wrong twice).
Checked against: sets written by kerchunk and fsspec. Needs pyarrow, the extra ``chunkmill[parquet]``.
fsspec's LazyReferenceMapper finds Zarr v2 arrays with ``.`` between chunk coords, and none at the root; what else is
written here, chunkmill alone reads. Not here: where files come from: they are asked of a function.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError
from chunkmill.formats.base import parse_json
from chunkmill.formats.references.chunk_numbers import (
    ROOT_KEY,
    ArrayKeys,
    ChunkRows,
    find_array,
    parse_array_keys,
    split_by_array,
)
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import INLINE, WHOLE, Reference, ReferenceSet, names_below, one_in_process

_MAX_ROWS = 4_000_000  # of record tables kept by one set in one process: about 100 MB
_MAX_FILES = 100_000  # asked for one by one where a set is listed or loaded
_BASE64 = b"base64:"


def import_pyarrow() -> Any:
    """Return ``pyarrow`` with its parquet module, or raise `ImportError` saying what to install."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("reference sets in parquet need pyarrow: pip install 'chunkmill[parquet]'") from error
    return pa


@dataclass(frozen=True, slots=True, eq=False)
class RecordTable:
    """One record file, decoded.

    Attributes
    ----------
    name
        What errors name.
    urls, url_numbers
        Each url once; for each row its number, -1 where there is none.
    offsets, sizes
        In bytes; both 0 for a whole file.
    raw
        Arrow array of inline bytes, null where there are none; ``None`` when the file has no such column.
    """

    name: str
    urls: list[str]
    url_numbers: NDArray[np.int64]
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    raw: Any

    def __len__(self) -> int:
        return len(self.url_numbers)

    def reference(self, row: int) -> Reference | None:
        """Return the reference in a row; ``None`` when it holds none."""
        data = None if self.raw is None else self.raw[row].as_py()
        if data is not None:
            return Reference(None, data=self._inline(data))
        number = int(self.url_numbers[row])
        if number < 0:
            return None
        url, offset, size = self.urls[number], int(self.offsets[row]), int(self.sizes[row])
        return Reference(url) if offset == size == 0 else Reference(url, offset, size)

    def _inline(self, data: bytes | str) -> bytes:
        data = data.encode("utf-8") if isinstance(data, str) else data
        if not data.startswith(_BASE64):
            return data
        try:
            return base64.b64decode(data[len(_BASE64) :], validate=True)  # as in JSON; fsspec decodes it here too
        except ValueError as error:
            raise MetadataError(key=self.name, field="raw", got=str(error), expected="base64") from None

    def present(self) -> NDArray[np.bool_]:
        """Return which rows hold a reference."""
        present = self.url_numbers >= 0
        if self.raw is not None:
            present = present | self.raw.is_valid().to_numpy(zero_copy_only=False)
        return present


def parse_records(key: str, value: bytes) -> RecordTable:
    """Parse one record file; whatever is wrong with it is a `MetadataError`, never a missing reference.

    Columns ``path`` and ``raw`` may be absent or null throughout, ``path`` may be dictionary-encoded.
    """
    pa = import_pyarrow()
    try:
        file = pa.parquet.ParquetFile(pa.BufferReader(value))
        names = [name for name in ("path", "offset", "size", "raw") if name in file.schema_arrow.names]
        # a thread pool costs more than it saves at this size, and tasks are parallel as it is
        table = file.read(columns=names, use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise MetadataError(key=key, field="file", got=str(error), expected="a parquet file") from None
    if not {"path", "raw"} & set(names):
        raise MetadataError(key=key, field="columns", got=names, expected="'path' or 'raw' among them")
    n_rows = table.num_rows
    urls, numbers = _urls(key, pa, table["path"]) if "path" in names else ([], np.full(n_rows, -1))
    if urls and not {"offset", "size"} <= set(names):
        raise MetadataError(key=key, field="columns", got=names, expected="'offset' and 'size' with 'path'")
    offsets, sizes = (
        _integers(key, pa, table[name], name) if name in names else np.zeros(n_rows, np.int64)
        for name in ("offset", "size")
    )
    raw = _cast(key, pa, table["raw"], "raw", pa.large_binary()) if "raw" in names else None
    return RecordTable(key, urls, numbers, offsets, sizes, raw)


def _urls(key: str, pa: Any, column: Any) -> tuple[list[str], NDArray[np.int64]]:
    if pa.types.is_null(column.type):
        return [], np.full(len(column), -1)
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(value_type) or pa.types.is_large_string(value_type)):
        raise MetadataError(key=key, field="path", got=str(column.type), expected="strings")
    encoded = _cast(key, pa, column, "path", pa.dictionary(pa.int64(), value_type))
    numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), numbers


def _integers(key: str, pa: Any, column: Any, name: str) -> NDArray[np.int64]:
    # floats are what pandas makes of integers with nulls among them; the cast refuses fractions
    result: NDArray[np.int64] = _cast(key, pa, column, name, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if len(result) and int(result.min()) < 0:
        raise MetadataError(key=key, field=name, got=int(result.min()), expected="integers that are not negative")
    return result


def _cast(key: str, pa: Any, column: Any, name: str, wanted: Any) -> Any:
    """Return a column as one Arrow array of the `wanted` type."""
    try:
        combined = column.cast(wanted).combine_chunks()
    except (pa.ArrowException, ValueError) as error:
        raise MetadataError(key=key, field=name, got=str(error), expected=f"values of {wanted}") from None
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


class ParquetReferences:
    """A set in parquet, opened lazily.

    Pickles to what reads its files and a digest: a worker opens it again, once a process, and reads the record files
    that its tasks need. It must not change during the job; where ``.zmetadata`` did, the worker says so.

    Parameters
    ----------
    read
        Returns a file of the set by its name, or ``None`` when there is none; the ``get`` of a store. Picklable.
    source
        What errors name: the url of the set.

    Examples
    --------
    >>> files = {".zmetadata": b'{"metadata": {".zgroup": {"zarr_format": 2}}, "record_size": 10000}'}
    >>> ParquetReferences(files.get, "memory://x").locate(".zgroup").data
    b'{"zarr_format": 2}'
    """

    def __init__(self, read: Callable[[str], bytes | None], source: str = "<references>") -> None:
        self._read = read
        self._source = source
        if (value := read(ROOT_KEY)) is None:
            raise MetadataError(key=f"{source}/{ROOT_KEY}", field="document", got="nothing", expected="a JSON object")
        self.fingerprint = hashlib.blake2b(value, digest_size=16).hexdigest()
        self.documents, self.record_size = _parse_root(f"{source}/{ROOT_KEY}", value)
        self._array_paths = {
            key.rpartition("/")[0]: None for key in self.documents if key.rpartition("/")[2] in {".zarray", "zarr.json"}
        }
        self._arrays: dict[str, ArrayKeys | None] = {}
        self._tables: OrderedDict[str, RecordTable | None] = OrderedDict()
        self._n_rows = 0  # of them, and one for each
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        key = f"{self._source}/{ROOT_KEY}"
        return one_in_process, (self.fingerprint, key, partial(ParquetReferences, self._read, self._source))

    def locate(self, key: str) -> Reference | None:
        """Return where the bytes of `key` are; ``None`` when the set has no such key."""
        if (document := self.documents.get(key)) is not None:
            return Reference(None, data=document)
        for path in find_array(key, self._array_paths):
            if (array := self.array(path)) is None or (coords := array.coords(key)) is None:
                continue
            if (number := array.number(coords)) is None:
                return None
            table = self._table(array, number // self.record_size)
            return None if table is None else table.reference(number % self.record_size)
        return None

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield every key that starts with `prefix`; reads all record files of the arrays there."""
        yield from (key for key in self.documents if key.startswith(prefix))
        for path in self._array_paths:
            if (array := self.array(path)) is None:
                continue
            if array.prefix.startswith(prefix):
                yield from self._chunk_keys(array)
            elif prefix.startswith(array.prefix):
                yield from (key for key in self._chunk_keys(array) if key.startswith(prefix))

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`; reads record files only inside of an array."""
        is_inside = next(find_array(prefix, self._array_paths), None) is not None
        return sorted(names_below(self.keys(prefix) if is_inside else self.documents, prefix))

    def load(self) -> ReferenceSet:
        """Return the set with all its references, in memory; reads every record file."""
        builder = ReferenceBuilder(self._source)
        for key, document in self.documents.items():
            builder.add_data(key, document)
        for path in self._array_paths:
            if (array := self.array(path)) is not None:
                for record in self._records(array):
                    table = self._read_table(array, record, f"{array.prefix}refs.{record}.parq")
                    if table is not None:
                        _add_records(builder, array, table, record * self.record_size)
        return builder.build()

    def array(self, path: str) -> ArrayKeys | None:
        """Return how the chunks of the array at `path` are counted; ``None`` when there is none."""
        if path not in self._arrays:
            self._arrays[path] = parse_array_keys(path, self.documents)
        return self._arrays[path]

    def _records(self, array: ArrayKeys) -> range:
        if (n := -(-array.n_chunks // self.record_size)) > _MAX_FILES:  # each is asked for, whether it is there or not
            key = f"{self._source}/{ROOT_KEY}"
            raise MetadataError(key=key, field="record_size", got=self.record_size, expected=f"not {n} files to list")
        return range(n)

    def _chunk_keys(self, array: ArrayKeys) -> Iterator[str]:
        for record in self._records(array):
            if (table := self._table(array, record)) is not None:
                first = record * self.record_size
                rows = np.flatnonzero(table.present()[: array.n_chunks - first])
                yield from (array.key(first + row) for row in rows.tolist())

    def _table(self, array: ArrayKeys, record: int) -> RecordTable | None:
        """Return a record file, decoded; ``None`` when there is none: then none of its chunks exists."""
        name = f"{array.prefix}refs.{record}.parq"
        with self._lock:  # tasks at the same time want the same file: one of them reads it
            if name in self._tables:
                self._tables.move_to_end(name)
                return self._tables[name]
            table = self._tables[name] = self._read_table(array, record, name)
            self._n_rows += 1 + len(table or ())
            while len(self._tables) > 1 and self._n_rows > _MAX_ROWS:
                self._n_rows -= 1 + len(self._tables.popitem(last=False)[1] or ())
        return table

    def _read_table(self, array: ArrayKeys, record: int, name: str) -> RecordTable | None:
        if (value := self._read(name)) is None:
            return None
        key = f"{self._source}/{name}"
        table, needed = parse_records(key, value), min(self.record_size, array.n_chunks - record * self.record_size)
        if len(table) < needed:
            raise MetadataError(key=key, field="rows", got=len(table), expected=f"{needed} or more")
        return table


def _add_records(builder: ReferenceBuilder, array: ArrayKeys, table: RecordTable, first: int) -> None:
    """Add all rows of a record table, whose first is chunk `first`."""
    ids = np.array([builder.url_id(url) for url in table.urls], np.int64)
    rows = np.flatnonzero(table.present()[: array.n_chunks - first])
    if table.raw is not None:
        is_raw = table.raw.is_valid().to_numpy(zero_copy_only=False)[rows]
        for row in rows[is_raw].tolist():
            data = table.reference(row)
            builder.add_data(array.key(first + row), b"" if data is None or data.data is None else data.data)
        rows = rows[~is_raw]
    lengths = np.where((table.offsets[rows] == 0) & (table.sizes[rows] == 0), WHOLE, table.sizes[rows])
    array.add_to(builder, array.coords_of(first + rows), ids[table.url_numbers[rows]], table.offsets[rows], lengths)


def _parse_root(key: str, value: bytes) -> tuple[dict[str, bytes], int]:
    document = parse_json(key, value)
    size, metadata = document.get("record_size"), document.get("metadata")
    if type(size) is not int or size < 1:
        raise MetadataError(key=key, field="record_size", got=size, expected="an integer of 1 or more")
    if not isinstance(metadata, dict):
        raise MetadataError(key=key, field="metadata", got=metadata, expected="an object")
    documents = {}
    for name, member in metadata.items():
        if any(part in {"", ".", ".."} for part in name.split("/")):
            raise MetadataError(key=key, field="metadata", got=name, expected="keys without '.' and '..' segments")
        if isinstance(member, str):  # as the specification says
            documents[name] = member.encode("utf-8", "surrogatepass")  # then not a document
        elif isinstance(member, dict):  # as fsspec and kerchunk write
            documents[name] = json.dumps(member).encode()
        else:
            raise MetadataError(key=key, field=f"metadata[{name!r}]", got=member, expected="an object or its text")
    return documents, size


# --------------------------------------------------------------------------------------------------------------------
# Writing


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
    import_pyarrow()
    documents, arrays, rows = split_by_array(references)
    yield from _record_files(references, arrays, rows, record_size)
    metadata = {key: parse_json(key, document) for key, document in documents.items()}
    root = {"metadata": metadata, "record_size": record_size}
    yield ROOT_KEY, json.dumps(root).encode()


def _record_files(
    references: ReferenceSet, arrays: Mapping[str, ArrayKeys], rows: Mapping[str, ChunkRows], record_size: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the record files that hold anything; what is not there has no references."""
    for path, chunks in rows.items():
        records = chunks.numbers // record_size
        starts = np.flatnonzero(np.r_[True, records[1:] != records[:-1]]).tolist()
        for start, stop in itertools.pairwise([*starts, len(records)]):
            name = f"{arrays[path].prefix}refs.{int(records[start])}.parq"
            yield name, _record_file(references, chunks.take(slice(start, stop)), record_size)


def _record_file(references: ReferenceSet, chunks: ChunkRows, record_size: int) -> bytes:
    pa = import_pyarrow()
    rows, url_ids = chunks.numbers % record_size, chunks.url_ids
    offsets, sizes = np.zeros((2, record_size), dtype=np.int64)
    is_range = (url_ids != INLINE) & (chunks.lengths != WHOLE)
    offsets[rows[is_range]] = chunks.offsets[is_range]
    sizes[rows[is_range]] = chunks.lengths[is_range]
    raw: list[bytes | None] = [None] * record_size
    # offset and size 0 mean the whole file, so that no bytes at all are written inline
    is_raw = (url_ids == INLINE) | (chunks.lengths == 0)
    for i in np.flatnonzero(is_raw).tolist():
        entry = int(url_ids[i]), int(chunks.offsets[i]), int(chunks.lengths[i])
        raw[int(rows[i])] = references.reference(*entry).data or b""
    used, numbers = np.unique(url_ids[~is_raw], return_inverse=True)
    urls = [references.urls[number] for number in used.tolist()]
    if None in urls:
        raise MetadataError(
            key=ROOT_KEY, field="references", got="[null, …], the default target", expected="urls: name the target"
        )
    indices = np.full(record_size, -1, dtype=np.int32)
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
