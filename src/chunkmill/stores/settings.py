"""What users may set of all stores at once; the values are in dask's config, which stores know nothing of.

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

    Examples
    --------
    >>> import chunkmill
    >>> setting("fsync")
    False
    """
    return _lookup[0](name)
