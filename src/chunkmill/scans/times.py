"""Rewrite times of several files in one unit: each keeps its date, or is refused.

Times are compared in whole nanoseconds, fractions of floats in whole microseconds, which is what they hold. Not here:
which arrays are times, and which share units (`chunkmill.scans.join`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NANOSECONDS = {
    86_400_000_000_000: ("days", "day", "d"),
    3_600_000_000_000: ("hours", "hour", "hrs", "hr", "h"),
    60_000_000_000: ("minutes", "minute", "mins", "min"),
    1_000_000_000: ("seconds", "second", "secs", "sec", "s"),
    1_000_000: ("milliseconds", "millisecond", "millisecs", "millisec", "msecs", "msec", "ms"),
    1_000: ("microseconds", "microsecond", "microsecs", "microsec", "us"),
    1: ("nanoseconds", "nanosecond", "nanosecs", "nanosec", "ns"),
}
_STEPS = {word: step for step, words in _NANOSECONDS.items() for word in words}
_CALENDARS = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}


@dataclass(frozen=True)
class Times:
    """Stored times of one array of one file.

    Attributes
    ----------
    values, units, calendar
        As CF has them.
    missing
        Values that are no times.
    dtype
        Of the array in the first file, which is kept where it holds the times.
    """

    values: NDArray[Any]
    units: str
    calendar: str
    missing: Sequence[Any]
    dtype: np.dtype[Any]

    @property
    def is_missing(self) -> NDArray[np.bool_]:
        """Return where elements are no times."""
        return np.asarray(np.isin(self.values, self.fill_values(self.values.dtype)) | ~np.isfinite(self.values))

    def fill_values(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the values that are no times as elements of another dtype."""
        return np.array([*self.missing], self.values.dtype).astype(dtype)


def is_time(units: Any) -> bool:
    """Return whether units are those of dates: ``"days since 2000-01-01"``."""
    return isinstance(units, str) and " since " in units


def calendar_of(name: Any) -> Any:
    """Return the first of several names of a calendar; of none, the standard one.

    Examples
    --------
    >>> calendar_of(None), calendar_of("365_day"), calendar_of("360_day")
    ('standard', 'noleap', '360_day')
    """
    return _CALENDARS.get(name, name) if name else "standard"


def in_one_unit(parts: Sequence[Times]) -> tuple[str, list[NDArray[Any]]]:
    """Return times in the unit of the first part, or in a finer one where that holds some of them inexactly.

    Raises
    ------
    ValueError
        The units of a part are not understood, or no unit holds all times.

    Examples
    --------
    >>> days = Times(np.array([0, 1]), "days since 2000-01-01", "standard", (), np.dtype("i4"))
    >>> hours = Times(np.array([48, 60]), "hours since 2000-01-01", "standard", (), np.dtype("i4"))
    >>> units, values = in_one_unit([days, hours])
    >>> units, [each.tolist() for each in values]
    ('days since 2000-01-01', [[0.0, 1.0], [2.0, 2.5]])
    """
    first = parts[0]
    _, _, reference = first.units.partition(" since ")
    step = _step(first.units)
    offsets = {units: _offset(units, first.units, first.calendar) for units in {each.units for each in parts}}
    masks = [each.is_missing for each in parts]
    nanoseconds = [
        _nanoseconds(each.values[~mask], _step(each.units)) + offsets[each.units]
        for each, mask in zip(parts, masks, strict=True)
    ]
    finer = [(f"{words[0]} since {reference}", each) for each, words in _NANOSECONDS.items() if each < step]
    for units, each in [(first.units, step), *finer]:
        for as_floats in (False, True):
            found = [
                _stored(part, mask, ns, each, as_floats=as_floats)
                for part, mask, ns in zip(parts, masks, nanoseconds, strict=True)
            ]
            if all(values is not None for values in found):
                return units, [values for values in found if values is not None]
    raise ValueError(f"no unit since {reference} holds all of them exactly in {first.dtype}")


def _step(units: str) -> int:
    word = units.partition(" since ")[0].strip().lower()
    if word not in _STEPS:
        raise ValueError(f"{word!r} of {units!r} have no fixed length")
    return _STEPS[word]


def _nanoseconds(values: NDArray[Any], step: int) -> NDArray[Any]:
    """Return values as Python's integers."""
    if values.dtype.kind != "f":
        return np.asarray(values.astype(object) * step)
    whole = np.floor(values.astype("f8"))
    rest = np.rint((values - whole) * (step / 1000)).astype("i8") * 1000
    return np.asarray(_integers(whole) * step + rest.astype(object))


def _integers(values: NDArray[Any]) -> NDArray[Any]:
    return np.array([int(each) for each in values.tolist()], object)


def _stored(
    times: Times, mask: NDArray[np.bool_], nanoseconds: NDArray[Any], step: int, *, as_floats: bool
) -> NDArray[Any] | None:
    """Return times in another unit; ``None`` where it does not hold them."""
    dtype, is_whole = times.dtype, not (nanoseconds % step).any()
    if dtype.kind == "f":
        dtypes = [dtype, np.dtype("f8")]
    elif as_floats:
        dtypes = [] if times.missing else [np.dtype("f8")]
    else:
        dtypes = [dtype, np.dtype("i8")] if is_whole else []
    exact = nanoseconds // step if is_whole else nanoseconds / step
    for each in dtypes:
        if (
            each.kind != "f"
            and exact.size
            and not np.iinfo(each).min <= exact.min() <= exact.max() <= np.iinfo(each).max
        ):
            continue
        values = exact.astype(each)
        read = _integers(values) * step if is_whole else np.rint(values.astype("f8") * step)
        if (read != nanoseconds).any() or np.isin(values, times.fill_values(each)).any():
            continue
        found = np.empty(times.values.shape, each)
        found[mask], found[~mask] = times.values[mask], values
        return found
    return None


def _offset(units: str, others: str, calendar: str) -> int:
    """Return the nanoseconds from the reference date of `others` to that of `units`."""
    if units.partition(" since ")[2] == others.partition(" since ")[2]:
        return 0
    try:
        own, other = (_date(each, calendar) for each in (units, others))
        if isinstance(own, np.datetime64) != isinstance(other, np.datetime64):
            own, other = (_date(each, calendar, use_cftime=True) for each in (units, others))
        difference = own - other
    except (ValueError, OverflowError, ImportError, TypeError) as error:
        raise ValueError(f"{units!r} and {others!r} in the calendar {calendar!r}: {error}") from error
    if isinstance(difference, np.timedelta64):
        return int(difference.astype("m8[us]").astype("i8")) * 1000
    return int((difference.days * 86_400 + difference.seconds) * 1_000_000 + difference.microseconds) * 1000


def _date(units: str, calendar: str, *, use_cftime: bool | None = None) -> Any:
    from xarray.coding.times import CFDatetimeCoder  # noqa: PLC0415 - pandas: only where units differ
    from xarray.core.variable import Variable  # noqa: PLC0415

    coder = CFDatetimeCoder(use_cftime=use_cftime)
    return coder.decode(Variable(("x",), np.array([0]), {"units": units, "calendar": calendar})).values[0]
