"""A codec that holds the GIL while it encodes, as some do (`vlen`, `fletcher32`): nothing else of its process runs."""

from __future__ import annotations

import ctypes

import numcodecs
import numpy as np
from numcodecs.abc import Codec

__all__ = ["HoldsTheGil", "register"]


class HoldsTheGil(Codec):
    """Stores chunks as they are, after `seconds`; chunks of zeros at once."""

    codec_id = "chunkmill-test-gil"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def encode(self, buf):
        data = bytes(np.ascontiguousarray(buf).view("u1"))
        if any(data):
            ctypes.PyDLL(None).usleep(int(self.seconds * 1e6))  # PyDLL: without letting go of the GIL
        return data

    def decode(self, buf, out=None):
        if out is None:
            return bytes(buf)
        np.asarray(out).reshape(-1).view("u1")[:] = np.frombuffer(buf, "u1")
        return out


def register() -> None:
    """Make the codec known to this process."""
    numcodecs.register_codec(HoldsTheGil)


register()
