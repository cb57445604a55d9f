"""Copy values into an array of equal tiles, each contiguous in memory, with one copy for all whole tiles.

With a copy for each tile the threads would hand the interpreter's lock over each time, and one source chunk may overlap
thousands of tiles.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from numpy.typing import NDArray

from chunkmill.codecs.rows import copy_rows
from chunkmill.model.grid import MOST_AXES, Region

__all__ = ["MAX_TILED_AXES", "put_in_tiles"]

MAX_TILED_AXES = MOST_AXES // 2
"""Tiles have two axes for each of the array."""


def put_in_tiles(tiles: NDArray[Any], at: Region, values: NDArray[Any]) -> None:
    """Copy `values` into the tiles, to the region `at` counted from the start of the first tile.

    Parameters
    ----------
    tiles
        Of shape ``(*number along each axis, *shape of a tile)``.

    Examples
    --------
    >>> import numpy as np
    >>> tiles = np.zeros((2, 2, 1, 3), int)
    >>> put_in_tiles(tiles, (slice(0, 2), slice(2, 6)), np.arange(8).reshape(2, 4))
    >>> tiles[0, 1], tiles[1, 0]
    (array([[1, 2, 3]]), array([[0, 0, 4]]))
    """
    ndim = len(at)
    axes = [_split(cut, size) for cut, size in zip(at, tiles.shape[ndim:], strict=True)]
    for parts in product(*axes):
        which, inside, taken, shape = zip(*parts, strict=True) if parts else ((), (), (), ())
        place = tiles[(*which, *inside, ...)].transpose([axis for i in range(ndim) for axis in (i, ndim + i)])
        copy_rows(place, values[(*taken, ...)].reshape([n for pair in shape for n in pair]))


def _split(cut: slice, size: int) -> list[tuple[slice, slice, slice, tuple[int, int]]]:
    """Divide a slice of an axis into its overlaps with the first tile, with whole ones, and with the last.

    Of each: the tiles, the slice inside them, the slice of the values, and its shape in tiles and elements.
    """
    found = []
    start = cut.start
    while start < cut.stop:
        tile, skipped = divmod(start, size)
        whole = (cut.stop - start) // size if skipped == 0 else 0
        length = whole * size or min(size - skipped, cut.stop - start)
        inside = slice(0, size) if whole else slice(skipped, skipped + length)
        taken = slice(start - cut.start, start - cut.start + length)
        shape = (whole, size) if whole else (1, length)
        found.append((slice(tile, tile + max(whole, 1)), inside, taken, shape))
        start += length
    return found
