"""Values of JSON documents: comparison, and attributes that only their node changes."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

__all__ = ["Attributes", "same_json"]


class Attributes(dict[str, Any]):
    """Attributes of a node: a dictionary that cannot be changed, since a change would not be stored.

    Examples
    --------
    >>> attributes = Attributes({"units": "K"})
    >>> attributes == {"units": "K"}
    True
    >>> attributes["units"] = "m"
    Traceback (most recent call last):
    TypeError: attributes are read-only here; update_attributes({...}) of the node writes them to the store
    """

    def _refuse(self, *_: object, **__: object) -> Any:
        msg = "attributes are read-only here; update_attributes({...}) of the node writes them to the store"
        raise TypeError(msg)

    __setitem__ = __delitem__ = update = pop = popitem = setdefault = clear = __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Attributes, (dict(self),)


def same_json(a: Any, b: Any) -> bool:
    """Compare values of attributes: ``1`` is not ``true``, and NaN is itself, also where it is spelled ``"NaN"``.

    Examples
    --------
    >>> same_json({"valid": [float("nan"), 1]}, {"valid": ["NaN", 1.0]}), same_json(1, True)
    (True, False)
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_json, a, b))
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return bool(a == b) or (_spelled(a) is not None and _spelled(a) == _spelled(b))


def _spelled(value: Any) -> str | None:
    """Return the name of a float that JSON cannot hold; ``None`` for other values."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    return value if value in ("NaN", "Infinity", "-Infinity") else None
