"""Chunk numbers of reference keys: the array of each key, and the number of its chunk in C order.

Parquet sets and combining need that; sets in JSON do not. Of the metadata documents inside a set only shape, chunk
shape and the spelling of chunk keys are read here: the formats proper (`zarr_v2`, `zarr_v3`) read the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import MAX_SIZE, check_chunk_shape, check_shape, get_member, parse_json
from chunkmill.formats.zarr_v3 import parse_chunk_keys
from chunkmill.model.grid import ChunkCoords, Shape
from chunkmill.model.metadata import JSON, ChunkKeyEncoding
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import ReferenceSet, ReferenceTable

ROOT_KEY = ".zmetadata"


def is_reference_root(document: bytes | None) -> bool:
    """Return whether a ``.zmetadata`` document is that of a reference set, not of consolidated Zarr metadata.

    Examples
    --------
    >>> is_reference_root(b'{"metadata": {}, "record_size": 10000}')
    True
    >>> is_reference_root(b'{"metadata": {}, "zarr_consolidated_format": 1}'), is_reference_root(None)
    (False, False)
    """
    if document is None or b'"record_size"' not in document:  # most are long, and need not be parsed for this
        return False
    try:
        members = parse_json(ROOT_KEY, document)
    except MetadataError:  # reading it as consolidated metadata will say what is wrong
        return False
    return "record_size" in members and "metadata" in members


DOCUMENT_NAMES = frozenset({".zarray", ".zattrs", ".zgroup", "zarr.json"})
"""Last segments of the keys of metadata documents."""


@dataclass(frozen=True, slots=True)
class ArrayKeys:
    """Numbering and keys of the chunks of the array at `path`."""

    path: str
    grid_shape: Shape
    encoding: ChunkKeyEncoding

    @property
    def prefix(self) -> str:
        """Prefix of the chunk keys."""
        return f"{self.path}/" if self.path else ""

    @property
    def n_chunks(self) -> int:
        """Number of chunks; 1 for a 0-d array."""
        return prod(self.grid_shape)

    def coords(self, key: str) -> ChunkCoords | None:
        """Return the coords that `key`, below the array, spells, also past the grid's end; ``None`` of no chunk key."""
        return self.encoding.decode(key[len(self.prefix) :], len(self.grid_shape))

    def number(self, coords: ChunkCoords) -> int | None:
        """Return the number of a chunk in C order, or ``None`` when the grid has no such chunk.

        Examples
        --------
        >>> keys = ArrayKeys("x", (3, 4), ChunkKeyEncoding("", ".", "0"))
        >>> keys.number((2, 1)), keys.number((3, 0)), keys.key(9)
        (9, None, 'x/2.1')
        """
        number = 0
        for index, n in zip(coords, self.grid_shape, strict=True):
            if index >= n:
                return None
            number = number * n + index
        return number

    def key(self, number: int) -> str:
        """Return the key of the chunk with that number."""
        coords = []
        for n in reversed(self.grid_shape):
            number, index = divmod(number, n)
            coords.append(index)
        return self.prefix + self.encoding.encode(tuple(reversed(coords)))

    def coords_of(self, numbers: NDArray[np.integer]) -> NDArray[np.int64]:
        """Return the coords of chunks: shape (rows, axes)."""
        coords = np.empty((len(numbers), len(self.grid_shape)), np.int64)
        for axis, n in reversed(list(enumerate(self.grid_shape))):
            numbers, coords[:, axis] = np.divmod(numbers, n)
        return coords

    def add_to(self, builder: ReferenceBuilder, coords: NDArray[np.int64], *columns: NDArray[Any]) -> None:
        """Add references to chunks: their coords (rows, axes), and their columns as of a `ReferenceTable`."""
        if self.grid_shape:
            builder.add_table(self.prefix + self.encoding.prefix, self.encoding.separator, coords, *columns)
        else:
            builder.add_many([self.prefix + self.encoding.scalar] * len(coords), *columns)

    def numbers(self, table: ReferenceTable) -> NDArray[np.int64] | None:
        """Return the number of each row of `table`, -1 past the grid's end; ``None`` when it is not this array's.

        For tables of millions of rows, which are never spelt out.
        """
        own, separator, n_coords = table.form
        is_own = (
            own == self.prefix + self.encoding.prefix
            and n_coords == len(self.grid_shape)
            and (n_coords == 1 or separator == self.encoding.separator)
        )
        if not is_own:
            return None
        coords = table.coords()
        inside = (coords < np.array(self.grid_shape)).all(axis=1)
        numbers = np.zeros(len(coords), dtype=np.int64)
        for axis, n in enumerate(self.grid_shape):
            numbers = numbers * n + coords[:, axis]
        return np.where(inside, numbers, -1)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRows:
    """References to chunks of one array, in columns.

    Attributes
    ----------
    numbers
        Of the chunks, in C order.
    url_ids, offsets, lengths
        As in a `ReferenceTable`.
    """

    numbers: NDArray[np.int64]
    url_ids: NDArray[Any]
    offsets: NDArray[Any]
    lengths: NDArray[Any]

    def take(self, rows: NDArray[Any] | slice) -> ChunkRows:
        """Return some of the rows."""
        return ChunkRows(self.numbers[rows], self.url_ids[rows], self.offsets[rows], self.lengths[rows])

    def sorted(self) -> ChunkRows:
        """Return the rows by ascending numbers."""
        if bool((self.numbers[1:] > self.numbers[:-1]).all()):
            return self
        return self.take(np.argsort(self.numbers, kind="stable"))


def split_by_array(
    references: ReferenceSet,
) -> tuple[dict[str, bytes], dict[str, ArrayKeys], dict[str, ChunkRows]]:
    """Return documents by key, arrays by path and references by path of the array that they are chunks of.

    Raises
    ------
    MetadataError
        For keys that are neither documents nor chunks inside an array, and documents that are not in the set itself.
    """
    documents: dict[str, bytes] = {}
    chunks: list[tuple[str, tuple[int, int, int]]] = []
    for key, entry in references.named.items():
        if key.rpartition("/")[2] in DOCUMENT_NAMES:
            reference = references.locate(key)
            if reference is None or reference.data is None:
                raise MetadataError(key=key, field="reference", got=reference, expected="a document inside the set")
            documents[key] = reference.data
        elif key != ROOT_KEY:  # says again what the documents say
            chunks.append((key, entry))
    paths = sorted({key.rpartition("/")[0] for key in documents})
    arrays = {path: array for path in paths if (array := parse_array_keys(path, documents)) is not None}
    pieces: dict[str, list[ChunkRows]] = {}
    _split_keys(chunks, arrays, pieces)
    for table in references.tables.values():
        _split_table(table, arrays, pieces)
    names = ("numbers", "url_ids", "offsets", "lengths")
    rows = {
        path: ChunkRows(*(np.concatenate([getattr(piece, name) for piece in own]) for name in names)).sorted()
        for path, own in pieces.items()
    }
    return documents, arrays, rows


def _split_keys(
    entries: Iterable[tuple[str, tuple[int, int, int]]],
    arrays: Mapping[str, ArrayKeys],
    pieces: dict[str, list[ChunkRows]],
) -> None:
    found: dict[str, list[tuple[int, int, int, int]]] = {}
    for key, entry in entries:
        path, number = _owner(key, arrays)
        found.setdefault(path, []).append((number, *entry))
    for path, rows in found.items():
        pieces.setdefault(path, []).append(ChunkRows(*(np.array(column) for column in zip(*rows, strict=True))))


def _split_table(table: ReferenceTable, arrays: Mapping[str, ArrayKeys], pieces: dict[str, list[ChunkRows]]) -> None:
    for path in find_array(table.form[0] + "0", arrays):
        if (numbers := arrays[path].numbers(table)) is not None:
            if (outside := np.flatnonzero(numbers < 0)).size:
                raise _no_chunk(next(table.keys(int(outside[0]))))
            pieces.setdefault(path, []).append(ChunkRows(numbers, table.url_ids, table.offsets, table.lengths))
            return
    # coords of several arrays in one table: their names are numbers too, as those of multiscale levels
    columns = (column.tolist() for column in (table.url_ids, table.offsets, table.lengths))
    _split_keys(zip(table.keys(), zip(*columns, strict=True), strict=True), arrays, pieces)


def _owner(key: str, arrays: Mapping[str, ArrayKeys]) -> tuple[str, int]:
    for path in find_array(key, arrays):
        array = arrays[path]
        if (coords := array.coords(key)) is not None and (number := array.number(coords)) is not None:
            return path, number
    raise _no_chunk(key)


def _no_chunk(key: str) -> MetadataError:
    return MetadataError(
        key=key, field="key", got=key, expected="keys of documents and of chunks inside arrays of the set, no others"
    )


def find_array(key: str, paths: Mapping[str, object]) -> Iterator[str]:
    """Yield those of `paths` that are above `key`, the longest first; ``""`` is the root.

    Examples
    --------
    >>> list(find_array("a/b/0/1", {"a/b": 1, "c": 2}))
    ['a/b']
    """
    head, slash, _ = key.rpartition("/")
    while slash:
        if head in paths:
            yield head
        head, slash, _ = head.rpartition("/")
    if "" in paths:
        yield ""


def parse_array_keys(path: str, documents: Mapping[str, bytes]) -> ArrayKeys | None:
    """Parse how the array at `path` is cut; ``None`` when the documents describe none.

    Raises
    ------
    MetadataError
        When they describe one wrongly; `UnsupportedFeature` for a grid that is not regular.
    """
    prefix = f"{path}/" if path else ""
    if (value := documents.get(key := f"{prefix}.zarray")) is not None:
        document = parse_json(key, value)
        if (separator := document.get("dimension_separator", ".")) not in (".", "/"):  # a tuple: may be unhashable
            raise MetadataError(key=key, field="dimension_separator", got=separator, expected="'.' or '/'")
        encoding = ChunkKeyEncoding("", separator, "0")
        return ArrayKeys(path, _grid_shape(key, document.get("shape"), document.get("chunks")), encoding)
    if (value := documents.get(key := f"{prefix}zarr.json")) is not None:
        document = parse_json(key, value)
        if document.get("node_type") != "array":
            return None
        grid = get_member(key, document, "chunk_grid", dict)
        if grid.get("name") != "regular":
            feature, hint = f"chunk grid {grid.get('name')!r}", "write the set as JSON (a url that ends in .json)"
            raise UnsupportedFeature(format="parquet references", feature=feature, key=key, hint=hint)
        chunk_shape = get_member(key, grid, "configuration", dict).get("chunk_shape")
        return ArrayKeys(path, _grid_shape(key, document.get("shape"), chunk_shape), parse_chunk_keys(key, document))
    return None


def _grid_shape(key: str, shape: JSON, chunk_shape: JSON) -> Shape:
    sizes = check_shape(shape, key=key)
    chunks = check_chunk_shape(chunk_shape, sizes, key=key, field="chunk shape")
    grid_shape = tuple(-(-n // chunk) for n, chunk in zip(sizes, chunks, strict=True))
    if prod(grid_shape) > MAX_SIZE:
        raise MetadataError(key=key, field="chunk shape", got=chunk_shape, expected="at most 2**63-1 chunks")
    return grid_shape
