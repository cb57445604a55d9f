"""Plain arrays: a document ``plain.json`` for each node, chunks of raw little-endian numbers that begin at zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import Format, check_chunk_shape, check_shape, emit_json, get_member, parse_json
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NamedConfig

__all__ = ["Plain"]

_DTYPES = {"i4": np.dtype("i4"), "f4": np.dtype("f4"), "f8": np.dtype("f8")}
_CODECS = (NamedConfig("bytes", {"endian": "little"}),)


@dataclass(frozen=True, slots=True)
class Plain(Format):
    """A format with one document a node, and nothing that an array could leave out."""

    name: ClassVar[str] = "plain"
    default_codecs: ClassVar[str] = "raw"
    has_bool: ClassVar[bool] = False
    has_fill_value: ClassVar[bool] = False
    default_chunk_keys: ClassVar[ChunkKeyEncoding] = ChunkKeyEncoding("", ".", "0")

    def array_keys(self, path: str) -> tuple[str, ...]:
        """Return the one key; arrays and groups share it."""
        return (f"{self.chunk_prefix(path)}plain.json",)

    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse an array; ``None`` without a document, and for a group's."""
        (key,) = self.array_keys(path)
        if (value := documents.get(key)) is None or "shape" not in (document := parse_json(key, value)):
            return None
        shape = check_shape(get_member(key, document, "shape", list), key=key)
        chunks = check_chunk_shape(get_member(key, document, "chunks", list), shape, key=key)
        if (name := get_member(key, document, "dtype", str)) not in _DTYPES:
            raise MetadataError(key=key, field="dtype", got=name, expected=f"one of {', '.join(_DTYPES)}")
        return ArrayMetadata(
            dtype=_DTYPES[name],
            chunk_grid=ChunkGrid.regular(shape, chunks),
            chunk_keys=self.default_chunk_keys,
            codecs=_CODECS,
            fill_value=_DTYPES[name].type(0),
            attributes=get_member(key, document, "attributes", dict),
        )

    def emit_array(self, path: str, metadata: ArrayMetadata) -> dict[str, bytes]:
        """Return the document; `UnsupportedFeature` for what it cannot hold."""
        (key,) = self.array_keys(path)
        document = {
            "shape": list(metadata.shape),
            "chunks": list(metadata.chunk_grid.chunk_shape) if metadata.chunk_grid.is_regular else None,
            "dtype": metadata.dtype.str[1:],
            "attributes": dict(metadata.attributes),
        }
        documents = {key: emit_json(key, document)}
        try:
            again = self.parse_array(path, documents)
        except MetadataError as error:
            raise UnsupportedFeature(format=self.name, feature=f"{error.field} {error.got!r}", key=key) from None
        if again != metadata:
            feature = "arrays other than of numbers with regular chunks, without codecs, fill value and names of axes"
            raise UnsupportedFeature(format=self.name, feature=feature, key=key)
        return documents

    def adapt(self, metadata: ArrayMetadata, path: str = "") -> ArrayMetadata:
        """Return the description with this format's chunk keys, whole chunks at the edges, and zero for no value."""
        fill_value = metadata.dtype.type(0) if metadata.fill_value is None else metadata.fill_value
        adapted = replace(metadata, chunk_keys=self.default_chunk_keys, edge_chunks="padded", fill_value=fill_value)
        self.emit_array(path, adapted)
        return adapted

    def parse_group(self, path: str, documents: Mapping[str, bytes]) -> GroupMetadata | None:
        """Parse a group; ``None`` without a document, and for an array's."""
        (key,) = self.group_keys(path)
        if (value := documents.get(key)) is None or "shape" in (document := parse_json(key, value)):
            return None
        return GroupMetadata(get_member(key, document, "attributes", dict))

    def emit_group(self, path: str, metadata: GroupMetadata) -> dict[str, bytes]:
        """Return the document of a group."""
        (key,) = self.group_keys(path)
        return {key: emit_json(key, {"attributes": dict(metadata.attributes)})}
