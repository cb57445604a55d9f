"""Byte order of dtypes: asked for, set, and left out.

In memory everything is native; the order of storage is a codec's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from chunkmill.model.small_dtypes import complex_part, is_small

__all__ = ["ByteOrder", "byte_order", "to_native", "with_byte_order"]

DType: TypeAlias = np.dtype[Any]
ByteOrder: TypeAlias = Literal["little", "big"]

_ORDERS: Mapping[ByteOrder, Literal["<", ">"]] = {"little": "<", "big": ">"}


def byte_order(dtype: DType) -> ByteOrder | Literal["none", "mixed"]:
    """Return the byte order of `dtype`: of all its fields, when it is structured.

    Examples
    --------
    >>> byte_order(np.dtype(">i4")), byte_order(np.dtype("S3"))
    ('big', 'none')
    >>> byte_order(np.dtype([("a", "<i4"), ("b", ">i4"), ("c", "?")]))
    'mixed'
    """
    found = set(_byte_orders(dtype))
    if not found:
        return "none"
    return found.pop() if len(found) == 1 else "mixed"


def _byte_orders(dtype: DType) -> list[ByteOrder]:
    if dtype.subdtype is not None:
        return _byte_orders(dtype.subdtype[0])
    if dtype.fields is not None:
        return [order for name in dtype.fields for order in _byte_orders(dtype[name])]
    if dtype.kind in "OT" or dtype.str[0] == "|" or (complex_part(dtype) or dtype).itemsize == 1:
        return []
    return ["big" if dtype.str[0] == ">" else "little"]


def with_byte_order(dtype: DType, order: ByteOrder) -> DType:
    """Return `dtype` with every multi-byte part in `order`.

    Examples
    --------
    >>> with_byte_order(np.dtype("<i4"), "big").str
    '>i4'
    """
    return dtype if _has_no_order(dtype) else dtype.newbyteorder(_ORDERS[order])


def _has_no_order(dtype: DType) -> bool:
    # a type of ml_dtypes in one byte would differ from itself in the other order
    return dtype.kind in "OT" or (is_small(dtype) and dtype.itemsize == 1)


def to_native(dtype: DType) -> DType:
    """Return `dtype` in native byte order and packed: the form that `ArrayMetadata` holds.

    Examples
    --------
    >>> to_native(np.dtype([("a", ">i2"), ("b", ">f8")], align=True)).itemsize
    10
    """
    if dtype.fields is not None:
        return np.dtype([(name, to_native(dtype[name])) for name in dtype.names or ()])
    if dtype.subdtype is not None:
        return np.dtype((to_native(dtype.subdtype[0]), dtype.subdtype[1]))
    return dtype if _has_no_order(dtype) else dtype.newbyteorder("=")
