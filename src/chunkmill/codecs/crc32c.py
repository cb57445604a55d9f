"""The `crc32c` checksum: four bytes, little endian, after the data.

Spec: Zarr v3 codecs/crc32c (Castagnoli polynomial). numcodecs' ``crc32c`` writes the same unless its ``location`` is
``"start"``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import google_crc32c
import numpy as np

from chunkmill.codecs.base import Buffer, ChunkSpec, Configured
from chunkmill.codecs.bytes import byte_view, check_members
from chunkmill.model.metadata import JSON

_SIZE = 4


@dataclass(frozen=True, slots=True)
class Crc32c(Configured):
    """Append and verify a checksum."""

    name: str = "crc32c"

    @classmethod
    def from_config(cls, configuration: Mapping[str, JSON], spec: ChunkSpec) -> Crc32c:  # noqa: ARG003
        """Build the codec; it has nothing to configure."""
        check_members(configuration, set())
        return cls()

    def encoded_size(self, n_bytes: int) -> int:
        """Return four more."""
        return n_bytes + _SIZE

    def encode(self, data: Buffer) -> Buffer:
        """Append the checksum."""
        return b"".join((byte_view(data), checksum(data).to_bytes(_SIZE, "little")))

    def decode(self, data: Buffer, max_bytes: int) -> Buffer:
        """Verify the checksum and return a view of what stands before it."""
        view = byte_view(data)
        if (size := len(view) - _SIZE) < 0:
            raise ValueError(f"{len(view)} bytes cannot hold a checksum of {_SIZE}")
        if size > max_bytes:
            raise ValueError(f"{size} bytes, expected at most {max_bytes}")
        stored = int.from_bytes(view[size:], "little")
        if (found := checksum(view[:size])) != stored:
            raise ValueError(f"checksum mismatch: stored 0x{stored:08x}, computed 0x{found:08x}")
        return view[:size]


def checksum(data: Buffer) -> int:
    """Return the crc32c of `data`."""
    # google_crc32c takes bytes and arrays, and refuses views of writable memory
    value: int = google_crc32c.value(data if isinstance(data, bytes) else np.frombuffer(data, np.uint8))
    return value
