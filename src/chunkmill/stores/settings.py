"""Settings shared by all stores and jobs, read from dask's config through a lookup function.

`chunkmill` sets that function when it is imported, since stores do not import dask. Options of a single
store are its arguments instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["look_up_in", "setting"]

_lookup: list[Callable[[str], Any]] = []


def look_up_in(lookup: Callable[[str], Any]) -> None:
    """Set the function that looks up a setting by its name in the section ``chunkmill:``."""
    _lookup[:] = [lookup]


def setting(name: str) -> Any:
    """Return the value of a setting.

    Raises
    ------
    ValueError
        The value in dask's config is not one that the setting takes.

    Examples
    --------
    >>> import chunkmill
    >>> setting("fsync")
    False
    """
    value = _lookup[0](name)
    fits, expected = _VALUES[name]
    if not fits(value):
        msg = f"chunkmill.{name} is {value!r} in dask's config: expected {expected}"
        raise ValueError(msg)
    return value


_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "fsync": (lambda value: value in (True, False), "true or false"),
    "guess-zarr": (lambda value: value in (True, False, "auto"), "auto, true or false"),
    "progress": (lambda value: value in (True, False, "auto"), "auto, true or false"),
    "remote-requests": (lambda value: str(value).isdecimal() and int(value) > 0, "a whole number above 0"),
    "retry-seconds": (lambda value: type(value) in (int, float) and value >= 0, "seconds, or 0 for no retries"),
}
