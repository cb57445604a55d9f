"""Byte ranges of the chunks of one array, as columns: ten million rows take 160 MB.

Not here: looking them up (`chunkmill.references.locate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["ChunkTable", "Column"]

Column: TypeAlias = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Byte ranges of the chunks of one array: columns with one row per chunk, ordered by store key.

    Attributes
    ----------
    keys
        Number of the store key that holds the chunk (C order, in the grid of store keys).
    chunks
        Number of the chunk (C order, in the grid of chunks).
    offsets, lengths
        Byte range of the chunk in the value of its store key.
    inline
        Number and bytes of the chunks that the set itself holds; they have no row.

    Examples
    --------
    >>> table = ChunkTable.of(keys=[0, 0, 3], chunks=[0, 1, 6], offsets=[0, 20, 0], lengths=[20, 15, 20])
    >>> len(table), [column.tolist() for column in table.by_key()]
    (3, [[0, 3], [0, 0, 1]])
    """

    keys: Column
    chunks: Column
    offsets: Column
    lengths: Column
    inline: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        keys: Sequence[int] | Column = (),
        chunks: Sequence[int] | Column = (),
        offsets: Sequence[int] | Column = (),
        lengths: Sequence[int] | Column = (),
        inline: Sequence[tuple[int, bytes]] = (),
    ) -> Self:
        """Return a table whose columns take 4 bytes a row where they can: they travel."""
        narrowed = (
            _narrow(np.asarray(column, getattr(column, "dtype", np.int64)))
            for column in (keys, chunks, offsets, lengths)
        )
        return cls(next(narrowed), next(narrowed), next(narrowed), next(narrowed), list(inline))

    @classmethod
    def joined(cls, tables: Sequence[ChunkTable]) -> Self:
        """Return the rows of several tables, in their order."""
        return cls.of(
            np.concatenate([_EMPTY, *(table.keys for table in tables)]),
            np.concatenate([_EMPTY, *(table.chunks for table in tables)]),
            np.concatenate([_EMPTY, *(table.offsets for table in tables)]),
            np.concatenate([_EMPTY, *(table.lengths for table in tables)]),
            [entry for table in tables for entry in table.inline],
        )

    def __len__(self) -> int:
        return len(self.chunks)

    @property
    def n_chunks(self) -> int:
        """Chunks that are stored: by range or inline."""
        return len(self.chunks) + len(self.inline)

    def where(self, mask: NDArray[np.bool]) -> ChunkTable:
        """Return the rows that `mask` selects, and all inline chunks."""
        return ChunkTable(self.keys[mask], self.chunks[mask], self.offsets[mask], self.lengths[mask], self.inline)

    def by_key(self) -> tuple[Column, NDArray[np.int64]]:
        """Return the store keys, each once, and for every row the index of its own among them."""
        is_first = np.ones(len(self.keys), bool)
        is_first[1:] = self.keys[1:] != self.keys[:-1]
        return self.keys[is_first], np.cumsum(is_first) - 1


_EMPTY: NDArray[np.int64] = np.zeros(0, np.int64)


def _narrow(column: Column) -> Column:
    fits = column.itemsize > 4 and (not len(column) or int(column.max()) < 2**31)  # noqa: PLR2004 - bytes of int32
    return column.astype(np.int32) if fits else column
