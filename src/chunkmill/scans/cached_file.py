"""A file that is scanned, read in blocks that stay in memory: its kind, a parser and its coordinates read them once.

Small files come with the first request. The blocks are read outside of h5py, whose lock would let one file at a time
wait for its server. Not here: what the bytes mean.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import fsspec

from chunkmill.errors import ScanError

__all__ = ["CachedFile"]

_BLOCK = 1 << 20
_MOST_BLOCKS = 64


class CachedFile(io.RawIOBase):
    """A file for reading; sends no request until it is read.

    Parameters
    ----------
    url
        Of the file: a path, or a url that fsspec opens.
    storage_options
        For its filesystem, as in fsspec.

    Examples
    --------
    >>> with fsspec.open("memory://doc-cached/x", "wb") as file:
    ...     _ = file.write(b"0123456789")
    >>> file = CachedFile("memory://doc-cached/x")
    >>> file.size, file.range(2, 5)
    (10, b'234')
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self._fs, self._path = fsspec.url_to_fs(url, **(storage_options or {}))
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._at = 0
        self._info: Mapping[str, Any] | None = None
        self._size: int | None = None

    @property  # no `cached_property`: in Python 3.11 its lock is one of all files, which would wait for each other
    def info(self) -> Mapping[str, Any]:
        """Facts of the filesystem about the file; `ScanError` where there is none."""
        if self._info is None:
            try:
                self._info = self._fs.info(self._path)
            except FileNotFoundError as error:
                raise ScanError(url=self.url, reason="there is no such file") from error
        return self._info

    @property
    def size(self) -> int:
        """Size in bytes; of a file of which the filesystem says none, after reading it."""
        if self._size is None and (size := self.info.get("size")) is not None:
            self._size = int(size)
        if self._size is None:
            self._keep(0, whole := self._fs.cat_file(self._path))
            self._size = len(whole)
        return self._size

    def range(self, start: int, stop: int) -> bytes:
        """Return bytes of the file, fewer where it ends."""
        stop = min(stop, self.size)
        if start >= stop:
            return b""
        numbers = range(start // _BLOCK, -(-stop // _BLOCK))
        if missing := [number for number in numbers if number not in self._blocks]:
            first, end = missing[0] * _BLOCK, min((missing[-1] + 1) * _BLOCK, self.size)
            data = self._fs.cat_file(self._path, start=first, end=end)  # S3's second argument is a version
            if len(data) == self.size:  # a server that knows no ranges
                first, end = 0, self.size
            if len(data) != end - first:
                raise ScanError(url=self.url, reason=f"{len(data)} bytes came, not {end - first} from {first} on")
            self._keep(first, data)
        found = b"".join(self._blocks[number] for number in numbers)
        while len(self._blocks) > _MOST_BLOCKS:
            self._blocks.popitem(last=False)
        return found[start - numbers.start * _BLOCK : stop - numbers.start * _BLOCK]

    def _keep(self, first: int, data: bytes) -> None:
        for at in range(0, len(data), _BLOCK):
            self._blocks[(first + at) // _BLOCK] = bytes(data[at : at + _BLOCK])

    # ----------------------------------------------------------------------------------------------------------------
    # As a file of Python: for h5py

    def readinto(self, buffer: Any) -> int:
        """Read bytes from the current position on."""
        data = self.range(self._at, self._at + len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Change the position."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def close(self) -> None:
        """Stay open: the next reader uses the same blocks."""
