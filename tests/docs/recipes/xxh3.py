"""The `xxh3` checksum: eight bytes, little endian, after the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import xxhash

from chunkmill.codecs.base import Buffer, ChunkSpec, Configured
from chunkmill.codecs.bytes import byte_view
from chunkmill.model.metadata import JSON

__all__ = ["Xxh3"]

_SIZE = 8


@dataclass(frozen=True, slots=True)
class Xxh3(Configured):
    """Append and verify a checksum."""

    name: str = "xxh3"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Xxh3:
        """Build the codec; it has nothing to configure."""
        if configuration:
            raise ValueError(f"unknown members {sorted(configuration)}")
        return cls()

    def encoded_size(self, n_bytes: int) -> int:
        """Return eight more."""
        return n_bytes + _SIZE

    def encode(self, data: Buffer) -> Buffer:
        """Append the checksum."""
        view = byte_view(data)
        return b"".join((view, xxhash.xxh3_64_intdigest(view).to_bytes(_SIZE, "little")))

    def decode(self, data: Buffer, max_bytes: int) -> Buffer:
        """Verify the checksum and return a view of what stands before it."""
        view = byte_view(data)
        size = len(view) - _SIZE
        if not 0 <= size <= max_bytes:
            raise ValueError(f"{len(view)} bytes, expected {_SIZE} to {max_bytes + _SIZE}")
        if xxhash.xxh3_64_intdigest(view[:size]) != int.from_bytes(view[size:], "little"):
            raise ValueError("checksum mismatch")
        return view[:size]
