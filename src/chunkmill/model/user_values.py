"""Convert user input to numpy arrays that a store can hold.

Not here: what a dtype is in a format (`chunkmill.model.dtypes`), dask's arrays (`chunkmill.dask_arrays.as_dask`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chunkmill.errors import UnsupportedFeature

__all__ = ["as_dtype", "check_unmasked", "is_text", "masked", "plain", "scalar_of", "spread"]


def plain(values: Any) -> NDArray[Any]:
    """Return `values` as a numpy array: strings as ``StringDType``, of Python objects no others than strings and bytes.

    Raises
    ------
    UnsupportedFeature
        Values are masked, or objects that a store has no place for.

    Examples
    --------
    >>> plain(np.array(["a", "bcd"], dtype=object))
    array(['a', 'bcd'], dtype=StringDType())
    """
    check_unmasked(values)
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "OT" or (array.size and all(issubclass(kind, bytes) for kind in _kinds(array))):
        return array
    return as_dtype(array, np.dtype(np.dtypes.StringDType()))


def as_dtype(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Cast as numpy does, but turn no other value into a string, and truncate none.

    Raises
    ------
    UnsupportedFeature
        Strings are wanted, and there are numbers or missing values: ``None`` would become ``"None"``. Or an element of
        `dtype` holds fewer characters than some of the values have.

    Examples
    --------
    >>> as_dtype(np.array(["a", "bcd"], dtype=object), np.dtype(np.dtypes.StringDType()))
    array(['a', 'bcd'], dtype=StringDType())
    """
    if dtype.kind in "SU":
        values = np.asarray(values)
        _check_width(values, dtype)
    if dtype.kind != "T":
        return np.asarray(values, dtype)
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind in "OT":
        strange = {kind for kind in _kinds(array) if not issubclass(kind, str)}
        if strange:
            names = ", ".join(sorted(kind.__name__ for kind in strange))
            hint = "fill what is missing; for bytes give codecs=['vlen-bytes'], for numbers x.astype(dtype)"
            raise UnsupportedFeature(format="chunkmill", feature=f"{names} among strings", hint=hint)
    return np.asarray(array, dtype)


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return whether values are text or bytes of fixed width, which the casts of numpy and dask truncate."""
    return dtype.kind in "TSU"


def _check_width(values: NDArray[Any], dtype: np.dtype[Any]) -> None:
    width = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    if values.dtype.kind == "O":
        lengths = np.array([len(each) if isinstance(each, (str, bytes)) else 0 for each in values.flat], np.intp)
    elif values.dtype.kind == "T" or (values.dtype.kind in "SU" and values.dtype != dtype):
        lengths = np.strings.str_len(values).reshape(-1)
    else:
        return
    if lengths.size and int(lengths.max()) > width:
        longest = str(values.reshape(-1)[int(lengths.argmax())])
        feature = f"{lengths.max()} characters, as {longest!r:.80} has, in elements of {dtype}"
        hint = "cut them before, or write to an array of dtype str, whose strings are of any length"
        raise UnsupportedFeature(format="chunkmill", feature=feature, hint=hint)


def _kinds(array: NDArray[Any]) -> set[type]:
    if array.dtype.kind == "T" and not hasattr(array.dtype, "na_object"):
        return {str}
    return {type(value) for value in array.flat}


def check_unmasked(values: Any) -> None:
    """Raise `UnsupportedFeature` where some of the values are masked: the values below the mask would be stored."""
    if np.ma.is_masked(values):
        raise masked()


def masked() -> UnsupportedFeature:
    """Return the error of values that are masked."""
    hint = "give x.filled(value), and say what the value means in an attribute"
    return UnsupportedFeature(format="chunkmill", feature="masked values", hint=hint)


def spread(values: ArrayLike, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Broadcast `values` as numpy does when it assigns: leading axes of length 1 more do not matter.

    Examples
    --------
    >>> spread([[1, 2]], np.dtype("i4"), (2,))
    array([1, 2], dtype=int32)
    """
    check_unmasked(values)
    array = as_dtype(values, dtype)
    n_more = max(0, array.ndim - len(shape))
    try:
        return np.broadcast_to(array.reshape(array.shape[n_more:]) if n_more else array, shape)
    except ValueError:
        msg = f"values of shape {array.shape} cannot be written to a region of shape {shape}"
        raise ValueError(msg) from None


def scalar_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return `value` as a scalar of `dtype`, or its zero; a value that the dtype cannot hold raises `ValueError`."""
    if value is None:
        if dtype.kind == "O":
            return b""
        return "" if isinstance(dtype, np.dtypes.StringDType) else np.zeros((), dtype)[()]
    if isinstance(dtype, np.dtypes.StringDType) or dtype.kind == "O":
        return value
    try:
        return np.asarray(value, dtype)[()] if dtype.kind in "VMmSU" else _exact(value, dtype)
    except (ValueError, TypeError, OverflowError) as error:
        if isinstance(error, UnsupportedFeature):
            raise
        raise ValueError(f"fill value {value!r:.60} is none of dtype {dtype}: {error}") from None


def _exact(value: Any, dtype: np.dtype[Any]) -> Any:
    asked = np.asarray(value)
    with np.errstate(all="ignore"):
        scalar = asked.astype(dtype)[()] if asked.dtype.kind in "biufc" else np.asarray(value, dtype)[()]
    inexact = dtype.kind in "iub" and asked.dtype.kind in "iufb" and scalar != asked
    if asked.shape != () or inexact:
        raise UnsupportedFeature(format="chunkmill", feature=f"fill value {value!r} for dtype {dtype}")
    return scalar
