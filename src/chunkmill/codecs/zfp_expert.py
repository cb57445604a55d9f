"""Compression by zfp in expert mode, which zfpy only decompresses: the functions of the library that zfpy has loaded.

Not here: the other modes, and decompression (`chunkmill.codecs.zfp`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int, c_size_t, c_uint, c_void_p
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["compress"]

_RANKS = (1, 2, 3, 4)
_FUNCTIONS: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "stream_open": (c_void_p, (c_void_p, c_size_t)),
    "stream_close": (None, (c_void_p,)),
    "zfp_stream_open": (c_void_p, (c_void_p,)),
    "zfp_stream_close": (None, (c_void_p,)),
    "zfp_stream_set_bit_stream": (None, (c_void_p, c_void_p)),
    "zfp_stream_set_params": (c_int, (c_void_p, c_uint, c_uint, c_uint, c_int)),
    "zfp_stream_maximum_size": (c_size_t, (c_void_p, c_void_p)),
    "zfp_compress": (c_size_t, (c_void_p, c_void_p)),
    "zfp_field_free": (None, (c_void_p,)),
    **{f"zfp_field_{n}d": (c_void_p, (c_void_p, c_int, *[c_size_t] * n)) for n in _RANKS},
}


@cache
def _library(path: str) -> dict[str, Any] | None:
    """Return the functions; ``None`` where the system does not find them by the module that is linked to them."""
    try:
        library = ctypes.CDLL(path)
        found = {name: getattr(library, name) for name in _FUNCTIONS}
    except (OSError, AttributeError):  # Windows looks no further than the module
        return None
    for name, (result, arguments) in _FUNCTIONS.items():
        found[name].restype, found[name].argtypes = result, arguments
    return found


def compress(path: str, values: NDArray[Any], ztype: int, parameters: Mapping[str, Any]) -> bytes:
    """Return the stream of contiguous `values`, without a header.

    Parameters
    ----------
    path
        File of zfpy's module, which is linked to the library.
    ztype
        zfp's number of the data type.
    parameters
        Members of the expert mode.
    """
    zfp = _library(path)
    if zfp is None:
        raise ValueError("zfpy writes no expert mode, and its library is not found here")
    stream = zfp["zfp_stream_open"](None)
    field = zfp[f"zfp_field_{values.ndim}d"](values.ctypes.data, ztype, *values.shape[::-1])
    bits = None
    try:
        names = ("minbits", "maxbits", "maxprec", "minexp")
        if not zfp["zfp_stream_set_params"](stream, *(parameters[name] for name in names)):
            raise ValueError(f"zfp does not take {dict(parameters)}")
        out = np.empty(zfp["zfp_stream_maximum_size"](stream, field), np.uint8)
        bits = zfp["stream_open"](out.ctypes.data, out.nbytes)
        zfp["zfp_stream_set_bit_stream"](stream, bits)
        if not (size := zfp["zfp_compress"](stream, field)):
            raise ValueError("zfp does not compress these values")
        return out[:size].tobytes()
    finally:
        zfp["zfp_field_free"](field)
        zfp["zfp_stream_close"](stream)
        if bits is not None:
            zfp["stream_close"](bits)
