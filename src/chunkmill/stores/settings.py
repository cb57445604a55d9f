"""What users may set of all stores at once, and of jobs; the values are in dask's config, which stores know nothing of.

`chunkmill.config` tells where to look when chunkmill is imported. Not here: what is given to one store alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["look_up_in", "setting"]

_lookup: list[Callable[[str], Any]] = []


def look_up_in(lookup: Callable[[str], Any]) -> None:
    """Say where settings are looked up, by their name in the section ``chunkmill:``."""
    _lookup[:] = [lookup]


def setting(name: str) -> Any:
    """Return what users have set.

    Raises
    ------
    ValueError
        It is none of the values that the setting has.

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
    "progress": (lambda value: value in (True, False, "auto"), "auto, true or false"),
    "remote-requests": (lambda value: str(value).isdecimal() and int(value) > 0, "a whole number above 0"),
}
