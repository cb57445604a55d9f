"""Chunk coords -> chunk key: one class covers every format.

Not here: the path of the node that the key is below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ChunkKeyEncoding"]


@dataclass(frozen=True, slots=True)
class ChunkKeyEncoding:
    """Encoding of chunk coords as the end of a store key.

    ``prefix`` stands before the first index as it is (``"c/"`` in Zarr v3, ``"c"`` in its draft, ``""`` in v2 and
    N5), ``scalar`` is the whole key of a 0-d array's chunk, ``reverse`` reverses the coords (N5).

    Examples
    --------
    >>> ChunkKeyEncoding("c/", "/", "c").encode((1, 0, 2))
    'c/1/0/2'
    >>> ChunkKeyEncoding("", "/", "0", reverse=True).encode((1, 0, 2))
    '2/0/1'
    """

    prefix: str
    separator: Literal["/", "."]
    scalar: str
    reverse: bool = False

    def encode(self, coords: tuple[int, ...]) -> str:
        """Return the chunk key of `coords`."""
        if not coords:
            return self.scalar
        ordered = reversed(coords) if self.reverse else coords
        return self.prefix + self.separator.join(map(str, ordered))

    def decode(self, chunk_key: str, ndim: int) -> tuple[int, ...] | None:
        """Return the coords that `chunk_key` encodes, or ``None`` when it is not a chunk key of rank `ndim`."""
        if ndim == 0:
            return () if chunk_key == self.scalar else None
        if not chunk_key.startswith(self.prefix):
            return None
        parts = chunk_key[len(self.prefix) :].split(self.separator)
        # int() would take "+1", " 1", "1_0" and "01", which no writer means
        if len(parts) != ndim or not all(p.isascii() and p.isdigit() and (p == "0" or p[0] != "0") for p in parts):
            return None
        coords = tuple(map(int, parts))
        return coords[::-1] if self.reverse else coords
