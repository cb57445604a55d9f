"""Which keys of a reference set are chunks of which array, and their numbers in C order.

Parquet sets and combining need that; sets in JSON do not. Of the metadata documents inside a set only shape, chunk
shape and the spelling of chunk keys are read here: the formats proper (`zarr_v2`, `zarr_v3`) read the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import get_member, parse_json
from chunkmill.model.grid import ChunkCoords, Shape
from chunkmill.model.keys import ChunkKeyEncoding
from chunkmill.model.metadata import JSON
from chunkmill.model.references import ReferenceTable

__all__ = ["DOCUMENT_NAMES", "ArrayKeys", "find_array", "parse_array_keys"]

DOCUMENT_NAMES = frozenset({".zarray", ".zattrs", ".zgroup", "zarr.json"})
"""Last segments of the keys of metadata documents."""


@dataclass(frozen=True, slots=True)
class ArrayKeys:
    """How the chunks of the array at `path` are counted and spelt."""

    path: str
    grid_shape: Shape
    encoding: ChunkKeyEncoding

    @property
    def prefix(self) -> str:
        """What stands before the chunk key."""
        return f"{self.path}/" if self.path else ""

    @property
    def n_chunks(self) -> int:
        """Number of chunks; 1 for a 0-d array."""
        return prod(self.grid_shape)

    def coords(self, key: str) -> ChunkCoords | None:
        """Return the coords that `key` spells, also past the grid's end; ``None`` when it is no chunk key."""
        if not key.startswith(self.prefix):
            return None
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

    def numbers(self, table: ReferenceTable) -> NDArray[np.int64] | None:
        """Return the number of each row of `table`, -1 past the grid's end; ``None`` when it is not this array's.

        For tables of millions of rows, which are never spelt out.
        """
        own, separator, n_coords = table.form
        is_own = (
            own == self.prefix + self.encoding.prefix
            and n_coords == len(self.grid_shape)
            and (n_coords == 1 or separator == self.encoding.separator)
            and not self.encoding.reverse
        )
        if not is_own or self.n_chunks >= 2**63:
            return None
        coords = table.coords()
        inside = (coords < np.array(self.grid_shape)).all(axis=1)
        numbers = np.zeros(len(coords), dtype=np.int64)
        for axis, n in enumerate(self.grid_shape):
            numbers = numbers * n + coords[:, axis]
        return np.where(inside, numbers, -1)


def find_array(key: str, paths: Mapping[str, object]) -> Iterator[str]:
    """Yield those of `paths` that `key` lies below, the longest first; ``""`` is the root.

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
        separator = document.get("dimension_separator", ".")
        encoding = ChunkKeyEncoding("", _separator(key, separator), "0")
        return ArrayKeys(path, _grid_shape(key, document.get("shape"), document.get("chunks")), encoding)
    if (value := documents.get(key := f"{prefix}zarr.json")) is not None:
        document = parse_json(key, value)
        if document.get("node_type") != "array":
            return None
        grid = get_member(key, document, "chunk_grid", dict)
        if grid.get("name") != "regular":
            raise UnsupportedFeature(format="parquet references", feature=f"chunk grid {grid.get('name')!r}", key=key)
        chunk_shape = get_member(key, grid, "configuration", dict).get("chunk_shape")
        return ArrayKeys(path, _grid_shape(key, document.get("shape"), chunk_shape), _encoding(key, document))
    return None


def _encoding(key: str, document: Mapping[str, JSON]) -> ChunkKeyEncoding:
    encoding = get_member(key, document, "chunk_key_encoding", (dict, str))
    if isinstance(encoding, str):
        encoding = {"name": encoding}
    name, configuration = encoding.get("name"), encoding.get("configuration") or {}
    if name not in {"default", "v2"}:
        raise UnsupportedFeature(format="parquet references", feature=f"chunk key encoding {name!r}", key=key)
    separator = _separator(key, configuration.get("separator", "/" if name == "default" else "."))
    if name == "v2":
        return ChunkKeyEncoding("", separator, "0")
    return ChunkKeyEncoding(f"c{separator}", separator, "c")


def _separator(key: str, separator: JSON) -> Literal[".", "/"]:
    if separator == ".":
        return "."
    if separator == "/":
        return "/"
    raise MetadataError(key=key, field="separator of chunk keys", got=separator, expected="'.' or '/'")


def _grid_shape(key: str, shape: JSON, chunk_shape: JSON) -> Shape:
    for name, value in (("shape", shape), ("chunk shape", chunk_shape)):
        if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
            raise MetadataError(key=key, field=name, got=value, expected="a list of integers that are not negative")
    if len(shape) != len(chunk_shape):
        raise MetadataError(key=key, field="chunk shape", got=chunk_shape, expected=f"{len(shape)} integers")
    # chunks of length 0 stand on axes of length 0: old zarr-python wrote them
    return tuple(-(-n // max(chunk, 1)) for n, chunk in zip(shape, chunk_shape, strict=True))
