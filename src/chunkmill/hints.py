"""Ways out of an error, in which arguments are named: as data, so that each door can say them in its own words.

Not here: errors (`chunkmill.errors`), how the command line writes arguments (`chunkmill.cli.options`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeAlias

__all__ = ["Hint", "Spell"]

Spell: TypeAlias = Callable[[str, Any], str | None]
"""Name and value of an argument -> how to write them; ``None``: there is no such argument where one is."""


class Hint(str):
    """Ways out in which arguments are named: text in the words of Python, and, by `worded`, in those of other doors.

    Parameters
    ----------
    *ways
        With arguments in braces, the value that is meant behind a colon: ``"give {overwrite:True}"``.
    **values
        Those that are not known before.

    Examples
    --------
    >>> hint = Hint("give {max_mem} or more", "{mode:'w'} is another way", max_mem=1024)
    >>> hint
    "give max_mem=1024 or more; mode='w' is another way"
    >>> hint.worded(lambda name, value: f"--max-mem {value}" if name == "max_mem" else None)
    'give --max-mem 1024 or more'
    """

    __slots__ = ("values", "ways")

    ways: tuple[str, ...]
    values: dict[str, Any]

    def __new__(cls, *ways: str, **values: Any) -> Self:  # noqa: D102 - as the class says
        arguments = _Arguments(values, _in_python)
        self = super().__new__(cls, "; ".join(way.format_map(arguments) for way in ways))
        self.ways, self.values = ways, values
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str, ...], dict[str, Any]]:
        return self.ways, self.values

    def worded(self, spell: Spell) -> str:
        """Return the ways that there are where arguments are written as `spell` does; all, in Python's, if none is."""
        found = []
        for way in self.ways:
            try:
                found.append(way.format_map(_Arguments(self.values, spell)))
            except _NoSuchArgument:
                continue
        return "; ".join(found) or str(self)


class _NoSuchArgument(Exception):
    pass


class _Arguments(dict[str, Any]):
    """Any name -> what `str.format` asks for its text, and tells the value behind the colon."""

    def __init__(self, values: dict[str, Any], spell: Spell) -> None:
        super().__init__({name: _Argument(name, spell, value) for name, value in values.items()})
        self.spell = spell

    def __missing__(self, name: str) -> _Argument:
        return _Argument(name, self.spell, _FROM_TEXT)


class _Argument:
    def __init__(self, name: str, spell: Spell, value: Any) -> None:
        self.name = name
        self.spell = spell
        self.value = value

    def __format__(self, text: str) -> str:
        spelt = self.spell(self.name, _Literal(text) if self.value is _FROM_TEXT else self.value)
        if spelt is None:
            raise _NoSuchArgument
        return spelt


class _Literal(str):
    """A value as it is written in Python; empty: any."""

    __slots__ = ()

    __repr__ = str.__str__


_FROM_TEXT = object()


def _in_python(name: str, value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        return f"{name}={{{', '.join(map(repr, sorted(value)))}}}"
    return f"{name}={value!r}"
