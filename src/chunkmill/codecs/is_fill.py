"""Test whether a chunk holds nothing but its fill value, bit for bit, so that leaving it out loses nothing.

Not here: what an absent chunk reads as (`chunkmill.codecs.base.fill_array`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.codecs.rows import in_c_order

__all__ = ["is_fill"]

# Elements compared at a time: the temporaries stay in the cache, and a late difference ends the scan early.
_BLOCK = 1 << 15

_UNSIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


def is_fill(chunk: NDArray[Any], fill_value: Any) -> bool:
    """Tell whether every element of `chunk` has the bits of `fill_value`.

    NaNs with other payloads differ, and so do 0.0 and -0.0. Values of variable length are compared by equality.

    Parameters
    ----------
    chunk
        Any shape and dtype.
    fill_value
        A scalar of its dtype, or ``None``: zeros; empty strings; for ``object`` what numpy fills with, ``None`` and 0.

    Examples
    --------
    >>> is_fill(np.zeros(3), 0.0), is_fill(-np.zeros(3), 0.0)
    (True, False)
    """
    if chunk.size == 0:
        return True
    if chunk.dtype.hasobject or chunk.dtype.kind == "T":
        return _is_fill_by_value(chunk, fill_value)
    itemsize = chunk.dtype.itemsize
    fill = np.zeros(1, chunk.dtype)
    if fill_value is not None:
        fill[0] = fill_value
    if (first := np.atleast_1d(chunk)[(slice(0, 1),) * max(chunk.ndim, 1)]).tobytes() != fill.tobytes():
        return False
    if first.size == chunk.size:
        return True
    flat = in_c_order(chunk).reshape(-1)
    unit = next(size for size in (8, 4, 2, 1) if itemsize % size == 0)
    words = flat.view(_UNSIGNED[unit])
    wanted = fill.view(_UNSIGNED[unit])
    if wanted.size == 1:
        return all(bool((words[i : i + _BLOCK] == wanted).all()) for i in range(0, words.size, _BLOCK))
    pattern = np.tile(wanted, max(1, min(_BLOCK, words.size) // wanted.size))
    blocks = (words[i : i + pattern.size] for i in range(0, words.size, pattern.size))
    return all(bool((block == pattern[: block.size]).all()) for block in blocks)


def _is_fill_by_value(chunk: NDArray[Any], fill_value: Any) -> bool:
    values = chunk.ravel().tolist()
    if fill_value is None and chunk.dtype.kind == "T":
        return not any(values)
    if fill_value is None:  # what numpy puts into a new array; whether that is "" or b"" nobody knows here
        return all(value is None or (type(value) is int and value == 0) for value in values)
    return all(type(value) is type(fill_value) and value == fill_value for value in values)
