"""A codec that holds the GIL while it encodes, as some do (`vlen`, `fletcher32`): nothing else of its process runs."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from pathlib import Path

import numcodecs
import numpy as np
from numcodecs.abc import Codec


class HoldsTheGil(Codec):
    """Stores chunks as they are; of two that encode one half of a chunk each, both wait until the other does so, too.

    Parameters
    ----------
    folder
        Has the FIFOs ``0`` and ``1`` (`make_fifos`), by which the two processes meet.
    """

    codec_id = "chunkmill-test-gil"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def encode(self, buf):
        data = bytes(np.ascontiguousarray(buf).view("u1"))
        middle = len(data) // 2
        halves = [any(data[:middle]), any(data[middle:])]
        if halves.count(True) == 1:
            self._meet(halves.index(True))
        return data

    def _meet(self, half):
        own, other = (os.open(f"{self.folder}/{i}", os.O_RDWR) for i in (half, 1 - half))
        os.write(own, b"x")
        asked = struct.pack("ihh", other, select.POLLIN, 0)
        if ctypes.PyDLL(None).poll(asked, 1, 120_000) != 1:  # PyDLL: without letting go of the GIL
            raise RuntimeError("the other one has not come")

    def decode(self, buf, out=None):
        if out is None:
            return bytes(buf)
        np.asarray(out).reshape(-1).view("u1")[:] = np.frombuffer(buf, "u1")
        return out


def make_fifos(folder: Path) -> str:
    """Make what two processes meet by, and return the folder."""
    for name in "01":
        os.mkfifo(folder / name)
    return str(folder)


def register() -> None:
    """Make the codec known to this process."""
    numcodecs.register_codec(HoldsTheGil)


register()
