"""Urls of targets, computed when they are asked for: every chunk of a plain array is a target of its own.

Ten million urls cost gigabytes as strings, and tens of megabytes as the numbers that they are spelt from.
Not here: the references (`chunkmill.model.references`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload
from urllib.parse import quote

from numpy.typing import NDArray

from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import ChunkKeyEncoding

__all__ = ["KeyUrls", "UrlTable", "url_of_key"]


def url_of_key(store_url: str, key: str) -> str:
    """Return the url of the object under a store key.

    Examples
    --------
    >>> url_of_key("file:///data/x.zarr", "a/0.0"), url_of_key("https://host/x", "a b/0")
    ('file:///data/x.zarr/a/0.0', 'https://host/x/a%20b/0')
    """
    key = quote(key) if store_url.startswith(("http://", "https://")) else key
    return f"{store_url.rstrip('/')}/{key}"


@dataclass(frozen=True, slots=True, eq=False)
class KeyUrls:
    """Urls of some store keys of one array.

    Attributes
    ----------
    store_url, prefix, encoding, grid
        How the url of a chunk is spelt.
    numbers
        Of the chunks, in C order.

    Examples
    --------
    >>> import numpy as np
    >>> grid = ChunkGrid.regular((3, 4), (1, 1))
    >>> KeyUrls("s3://bucket/x", "a/", ChunkKeyEncoding("", ".", "0"), grid, np.array([0, 9]))[1]
    's3://bucket/x/a/2.1'
    """

    store_url: str
    prefix: str
    encoding: ChunkKeyEncoding
    grid: ChunkGrid
    numbers: NDArray[Any]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: int) -> str:
        coords = self.grid.coords_of(int(self.numbers[row]))
        return url_of_key(self.store_url, self.prefix + self.encoding.encode(coords))


class UrlTable(Sequence[str | None]):
    """The urls of a set, of several arrays one after the other.

    Examples
    --------
    >>> urls = UrlTable()
    >>> urls.extend(["s3://bucket/a.nc"]), urls.extend(["s3://bucket/b.nc", "s3://bucket/c.nc"])
    (0, 1)
    >>> urls[2], len(urls)
    ('s3://bucket/c.nc', 3)
    """

    def __init__(self) -> None:
        self._parts: list[KeyUrls | Sequence[str]] = []
        self._starts: list[int] = []
        self._n = 0
        self._last: tuple[int, str | None] = (-1, None)  # neighbouring chunks are often in one target

    def extend(self, urls: KeyUrls | Sequence[str]) -> int:
        """Add urls and return the number of the first."""
        first = self._n
        if len(urls):
            self._parts.append(urls)
            self._starts.append(first)
            self._n += len(urls)
        return first

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, number: int) -> str | None: ...
    @overload
    def __getitem__(self, number: slice) -> list[str | None]: ...
    def __getitem__(self, number: int | slice) -> str | list[str | None] | None:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(self._n))]
        if not 0 <= number < self._n:
            raise IndexError(number)
        last, url = self._last
        if number != last:
            part = bisect_right(self._starts, number) - 1
            url = self._parts[part][number - self._starts[part]]
            self._last = number, url
        return url
