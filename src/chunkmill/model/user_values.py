"""Convert user input to numpy arrays that a store can hold.

Not here: what a dtype is in a format (`chunkmill.model.dtypes`), dask's arrays (`chunkmill.dask_arrays.as_dask`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chunkmill.errors import UnsupportedFeature
from chunkmill.model.dtypes import complex_part, float_range, integer_range, is_small, widened


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
    array = _as_array(values, None)
    if array.dtype.kind not in "OT" or (array.size and all(issubclass(kind, bytes) for kind in _kinds(array))):
        return array
    return as_dtype(array, np.dtype(np.dtypes.StringDType()))


def as_dtype(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return values in another dtype, exactly: only floats, which have fewer digits there, are rounded (P1).

    Every value that a store gets passes here: of assignments and appends, of blocks of Dask arrays, of transforms.

    Raises
    ------
    UnsupportedFeature
        A value does not fit: it is out of range, a fraction among integers, NaN or missing where there is none, an
        integer beyond the digits of floats, a time between two units, complex where the dtype is not, longer than a
        text may be; or values of one kind would become those of another, as numbers text.

    Examples
    --------
    >>> as_dtype(np.array(["a", "bcd"], dtype=object), np.dtype(np.dtypes.StringDType()))
    array(['a', 'bcd'], dtype=StringDType())
    >>> as_dtype([1.0, 2.0], np.dtype("i2")), as_dtype(0.1, np.dtype("f4"))
    (array([1, 2], dtype=int16), array(0.1, dtype=float32))
    """
    array = _as_array(values, dtype)
    if array.dtype == dtype:
        return array
    try:
        with np.errstate(all="ignore"):
            cast, wrong = _cast(array, dtype)
    except (TypeError, ValueError, OverflowError) as error:  # of numpy: no cast between the two, or no such date
        if isinstance(error, UnsupportedFeature):
            raise
        raise _unfit(array, dtype, str(error)) from error
    if wrong.any():
        raise _unfit(array[wrong][:1], dtype)
    return cast


Cast = tuple[NDArray[Any], NDArray[np.bool_] | np.bool_]
"""Values in another dtype, and which of them are others there; false of all."""


def _as_array(values: Any, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    """Return values as an array: text among numbers stays what it is, tuples are elements of structured dtypes."""
    if hasattr(values, "dtype"):
        return np.asarray(values)
    of_objects: Any = object if dtype is not None and dtype.kind in "OTSU" else None
    if dtype is not None and dtype.names is not None:
        of_objects = [(name, object, dtype[name].shape) for name in dtype.names]
    try:
        return np.asarray(values, of_objects)
    except (TypeError, ValueError) as error:  # lists of several lengths
        raise ValueError(f"cannot make an array{'' if dtype is None else f' of {dtype}'}: {error}") from None


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> Cast:
    if is_text(dtype) or dtype.names is not None:
        return (_text if is_text(dtype) else _structured)(array, dtype), np.False_
    if array.dtype.kind == "O" and dtype.kind != "O":
        return _of_inferred(array, dtype)
    if array.dtype.kind in "mM" or dtype.kind in "mM":
        return _times(array, dtype)
    if _is_number(dtype) and _is_number(array.dtype):
        return _numbers(array, dtype)
    is_raw = dtype.kind == "V" and array.dtype.kind in "VS" and not _is_number(dtype) and not _is_number(array.dtype)
    fits = dtype.kind == "O" or (is_raw and array.itemsize <= dtype.itemsize)
    return array.astype(dtype) if fits else array, np.full(array.shape, not fits)


def _structured(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    names = dtype.names or ()
    if array.dtype.names is not None and len(array.dtype.names) != len(names):
        raise _unfit(array, dtype, "it has other fields")
    cast = np.empty(array.shape, dtype)
    for i, name in enumerate(names):
        own = array if array.dtype.names is None else array[array.dtype.names[i]]
        cast[name] = as_dtype(own, dtype[name].base)
    return cast


def _of_inferred(array: NDArray[Any], dtype: np.dtype[Any]) -> Cast:
    """Cast Python's objects: as what numpy takes them for, else one by one."""
    missing = np.array([value is None for value in array.flat], np.bool_).reshape(array.shape)
    if missing.any():
        return array, missing
    inferred = array.astype("M8") if dtype.kind == "M" else np.array(array.tolist())
    if inferred.shape == array.shape and inferred.dtype.kind in "biufcmM":
        return as_dtype(inferred, dtype), np.False_
    cast = array.astype(dtype)
    return cast, np.asarray(cast.astype(object) != array)


def _times(array: NDArray[Any], dtype: np.dtype[Any]) -> Cast:
    if array.dtype.kind in "SUT" and dtype.kind == "M":
        array = array.astype("U").astype("M8")
    cast = array.astype(dtype)
    if array.dtype.kind != dtype.kind:
        return cast, np.ones(array.shape, np.bool_)
    return cast, (cast.astype(array.dtype) != array) & ~(np.isnat(array) & np.isnat(cast))


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or is_small(dtype)


def _numbers(array: NDArray[Any], dtype: np.dtype[Any]) -> Cast:
    array = np.asarray(array, widened(array.dtype))
    if (part := complex_part(dtype)) is not None:
        return array.astype(dtype), _numbers(array.real, part)[1] | _numbers(array.imag, part)[1]
    if array.dtype.kind == "c":
        cast, wrong = _numbers(array.real, dtype)
        return cast, wrong | (array.imag != 0)
    if array.dtype.kind == "b":
        array = array.view(np.uint8)
    cast = array.astype(dtype)
    bounds = (0, 1) if dtype.kind == "b" else integer_range(dtype)
    if not array.size:
        return cast, np.False_
    return cast, _wrong_floats(array, cast) if bounds is None else _wrong_integers(array, *bounds)


def _wrong_integers(array: NDArray[Any], low: int, high: int) -> Any:
    """Return which numbers are others as integers within bounds."""
    if array.dtype.kind == "f":
        return ~((array >= float(low)) & (array < float(high + 1)) & (np.rint(array) == array))
    if int(array.min()) >= low and int(array.max()) <= high:
        return np.False_
    return (array < low) | (array > high)


def _wrong_floats(array: NDArray[Any], cast: NDArray[Any]) -> Any:
    """Return which numbers are others as floats, but for the digits of floats."""
    known: Any = float_range(cast.dtype)
    if array.dtype.kind == "f":
        if not is_small(cast.dtype):
            return np.isfinite(array) & ~np.isfinite(cast)
        is_beyond = np.isfinite(array) & ((array > known.greatest) | (array < known.least))
        lost = (np.isinf(array) & (not known.has_infinity)) | (np.isnan(array) & (not known.has_nan))
        return is_beyond | lost
    exact = min(1 << known.precision, known.greatest)  # up to there all integers are held
    if known.has_zero and array.max() <= exact and array.min() >= max(-exact, known.least):
        return np.False_
    back = cast.astype("f4") if is_small(cast.dtype) else cast
    fits = np.isfinite(back) & (back < float(np.iinfo(array.dtype).max + 1))
    return ~(fits & (back.astype(array.dtype) == array))


def _text(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "OTSU":
        raise _unfit(array.reshape(-1)[:1], dtype, "no value becomes text by itself")
    strange = {kind for kind in _kinds(array) if not issubclass(kind, (str, bytes) if dtype.kind != "T" else str)}
    if strange:
        names = ", ".join(sorted(kind.__name__ for kind in strange))
        hint = "fill what is missing; for bytes give codecs=['vlen-bytes'], for numbers x.astype(dtype)"
        raise UnsupportedFeature(format="", feature=f"{names} among strings", hint=hint)
    cast = array.astype(dtype)
    if dtype.kind != "T":
        _check_width(array, cast)
    return cast


def _unfit(array: NDArray[Any], dtype: np.dtype[Any], reason: str = "") -> UnsupportedFeature:
    value = f"{array.reshape(-1)[0]!s:.80} does" if array.size == 1 else "the values do"
    hint = f"{reason}; round or convert the values first, or write to an array of another dtype".removeprefix("; ")
    return UnsupportedFeature(format="", feature=f"{value} not fit {dtype} (the values are {array.dtype})", hint=hint)


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return whether values are text or bytes of fixed width, which the casts of numpy and dask truncate."""
    return dtype.kind in "TSU"


def _check_width(values: NDArray[Any], cast: NDArray[Any]) -> None:
    """Raise `UnsupportedFeature` where elements of fixed width lack characters, or zeros at the end, of the values."""
    is_object = values.dtype.kind == "O"
    lengths = np.array([*map(len, values.flat)], np.intp) if is_object else np.strings.str_len(values).reshape(-1)
    cut = np.where(np.strings.str_len(cast).reshape(-1) != lengths, lengths, 0)
    if cut.any():
        longest = str(values.reshape(-1)[int(cut.argmax())])
        feature = f"{cut.max()} characters, as {longest!r:.80} has, in elements of {cast.dtype}"
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


def checked_block(block: Any, index: Sequence[int], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return what the task of a block has computed, as NumPy's array (P1).

    Raises
    ------
    UnsupportedFeature
        It has another shape than its dask array declares, or is masked.

    Examples
    --------
    >>> checked_block([[1], [2, 3]], (0,), (2,))
    Traceback (most recent call last):
    ...
    chunkmill.errors.UnsupportedFeature: block (0,) of the dask array is a list, not an array of NumPy...
    """
    check_unmasked(block)  # dask's metadata do not always show it
    try:
        values: NDArray[Any] = np.asarray(block)
    except (TypeError, ValueError, RuntimeError) as error:  # of sparse arrays and the like
        feature = f"block {tuple(index)} of the dask array is a {type(block).__name__}, not an array of NumPy"
        raise UnsupportedFeature(format="", feature=feature, hint=str(error)) from error
    if values.shape != shape:
        feature = f"block {tuple(index)} has shape {values.shape}, the dask array declares {shape}"
        hint = "say which shapes blocks have where the array is made: chunks= of map_blocks, shape= of from_delayed"
        raise UnsupportedFeature(format="", feature=feature, hint=hint)
    return values


def block_as_dtype(values: NDArray[Any], dtype: np.dtype[Any], index: Sequence[int]) -> NDArray[Any]:
    """Return values of a block in the dtype of an array, as `as_dtype`; an error names the block, too."""
    if values.dtype == dtype:
        return values
    try:
        return as_dtype(values, dtype)
    except UnsupportedFeature as error:
        feature = f"block {tuple(index)} of the dask array: {error.feature}"
        raise UnsupportedFeature(format="", feature=feature, hint=error.hint) from None


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


def zero(dtype: np.dtype[Any], serializer: str = "") -> Any:
    """Return what absent chunks read as where no fill value is defined: zeros, or nothing.

    Examples
    --------
    >>> zero(np.dtype("i4")), zero(np.dtypes.StringDType()), zero(np.dtype(object), "vlen-bytes")
    (np.int32(0), '', b'')
    """
    if dtype.kind == "O":
        return b"" if serializer == "vlen-bytes" else None
    return np.zeros((), dtype)[()]


def scalar_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as a scalar of `dtype`, or its zero for ``None``; as `as_dtype`, but for numbers of times.

    Raises
    ------
    UnsupportedFeature
        The dtype does not hold the value.
    """
    if value is None:
        return zero(dtype, "vlen-bytes")
    if isinstance(dtype, np.dtypes.StringDType) or dtype.kind == "O":
        return value
    if dtype.kind in "mM" and np.asarray(value).dtype.kind in "iu":  # as documents say it
        return np.asarray(value, dtype)[()]
    try:
        scalar, reason = as_dtype(value, dtype), "it is not a scalar"
        if scalar.shape == ():
            return scalar[()]
    except ValueError as error:
        reason = str(error)
    raise UnsupportedFeature(format="", feature=f"fill value {value!r:.60} is none of dtype {dtype}", hint=reason)
