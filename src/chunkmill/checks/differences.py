"""Differences between two nodes, and the comparison of values bit for bit.

Not here: which values are compared (`chunkmill.checks.verify_job`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.model.grid import Region
from chunkmill.model.metadata import same_json

__all__ = ["Difference", "compare_values", "shown_region"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between two nodes.

    Attributes
    ----------
    path
        Path of the node, below the nodes that are compared.
    kind
        ``"missing"``, ``"shape"``, ``"dtype"``, ``"attributes"``, ``"dimension names"``, ``"values"``,
        ``"unreadable"``, or ``"no arrays"``: there is nothing to compare.
    text
        Description of the difference.
    region
        Start and stop, along each axis, of the block whose values differ.
    n_elements
        Elements that differ in the block.
    """

    path: str
    kind: str
    text: str
    region: tuple[tuple[int, int], ...] | None = None
    n_elements: int = 0

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.text}"


def compare_values(path: str, a: NDArray[Any], b: NDArray[Any], region: Region) -> Difference | None:
    """Compare the values of a region of two arrays, bit for bit; ``None`` when they are equal."""
    differs = _differing(a, b)
    n_elements = int(np.count_nonzero(differs))
    if not n_elements:
        return None
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(differs)), a.shape)) if a.ndim else ()
    at = tuple(cut.start + i for cut, i in zip(region, first, strict=True))
    found, other = a[first], b[first]
    values = f"{found} and {other}" if str(found) != str(other) else f"{_bits(found)} and {_bits(other)}"
    text = f"values differ: {n_elements:,} of {a.size:,} elements in [{shown_region(region)}], first at {at}: {values}"
    return Difference(path, "values", text, tuple((cut.start, cut.stop) for cut in region), n_elements)


def shown_region(region: Region) -> str:
    """Return a region as text: ``"0:4, 2:3"``."""
    return ", ".join(f"{cut.start}:{cut.stop}" for cut in region)


def _bits(value: Any) -> str:
    return f"{value!r} (bits 0x{value.tobytes()[::-1].hex()})" if isinstance(value, np.generic) else repr(value)


def _differing(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool]:
    """Return which elements differ in any bit, in C order."""
    dtype = a.dtype
    if dtype.hasobject or dtype.kind == "T":
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        return np.array([not _same_object(x, y) for x, y in pairs], bool)
    size = next(size for size in (8, 4, 2, 1) if dtype.itemsize % size == 0)
    words = [np.ascontiguousarray(each).reshape(-1).view(f"u{size}") for each in (a, b)]
    differs: NDArray[np.bool] = words[0] != words[1]
    n_words = dtype.itemsize // size
    if n_words > 1:
        differs = np.logical_or.reduce(differs.reshape(-1, n_words), axis=1)
    return differs


def _same_object(x: Any, y: Any) -> bool:
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        x, y = np.asarray(x), np.asarray(y)
        return bool(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes())
    return type(x) is type(y) and same_json(x, y)
