"""The one description of an array that every format parses to and emits from.

Not here: JSON keys of any format (`chunkmill.formats`), codec behaviour (`chunkmill.codecs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from chunkmill.model.chunk_keys import ChunkKeyEncoding
from chunkmill.model.grid import ChunkGrid

__all__ = ["JSON", "ArrayMetadata", "GroupMetadata", "NamedConfig"]

JSON = Any  # a recursive alias buys nothing under mypy when every use narrows by isinstance


@dataclass(frozen=True, slots=True)
class NamedConfig:
    """A codec, named as data: what a document says before anything is built.

    Names and configurations are Zarr v3's (``"blosc"``, ``"zstd"``, ``"numcodecs.delta"``, …), in every format.
    """

    name: str
    configuration: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """Description of an array in Zarr v3's vocabulary, whatever its format.

    Attributes
    ----------
    dtype
        In native byte order; the byte order of storage belongs to the ``bytes`` codec.
        Variable-length strings are numpy's ``StringDType``; other variable-length values are ``object``.
    chunk_grid
        The grid of store keys: of shards, when the array is sharded. Knows the array's shape.
    codecs
        The whole chain in encode order: filters, one serializer, compressors.
    fill_value
        A numpy scalar of ``dtype`` (a ``str`` or ``bytes`` for variable-length values), or ``None`` where the
        format leaves the content of absent chunks undefined (they read as zeros).
    edge_chunks
        ``"padded"``: chunks that overhang the array are stored whole. ``"truncated"``: cropped (N5).
    """

    dtype: np.dtype[Any]
    chunk_grid: ChunkGrid
    chunk_keys: ChunkKeyEncoding
    codecs: tuple[NamedConfig, ...]
    fill_value: Any
    edge_chunks: Literal["padded", "truncated"] = "padded"
    dimension_names: tuple[str | None, ...] | None = None
    attributes: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis, slowest first."""
        return self.chunk_grid.shape

    @property
    def identity(self) -> str:
        """A text that differs when anything differs that the elements depend on which are read."""
        parts = self.dtype, self.chunk_grid, self.chunk_keys, self.codecs, self.fill_value, self.edge_chunks
        return repr(parts)


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Description of a group: its attributes."""

    attributes: Mapping[str, JSON] = field(default_factory=dict)
