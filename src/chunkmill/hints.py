"""Hints in error messages that name arguments, rendered as Python keywords or as command-line options.

Not here: errors (`chunkmill.errors`), the renderer of options (`chunkmill.cli.options`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeAlias

Argument: TypeAlias = tuple[str, Any]
"""Name and value of an argument; ``...`` stands for any value."""

Renderer: TypeAlias = Callable[[str, Any], str | None]
"""Function of an argument's name and value that returns its text, or ``None`` for an unknown argument."""


class _Sentence(NamedTuple):
    """Text with a ``{}`` for each argument, and the arguments."""

    text: str
    arguments: tuple[Argument, ...]

    def rendered(self, renderer: Renderer) -> str | None:
        """Return the text with its arguments as `renderer` writes them; ``None`` where it does not know one."""
        rendered = [renderer(name, value) for name, value in self.arguments]
        if None in rendered:
            return None
        return self.text.format(*rendered) if rendered else self.text


class Hint(str):
    """Text that names arguments as Python keywords, and can be rendered again with other names for them.

    Parameters
    ----------
    text
        With ``{}`` for each argument.
    *arguments
        Pairs of name and value.

    Examples
    --------
    >>> hint = Hint("give {} or more", ("max_mem", 1024)).also("{} is another way", ("mode", "w"))
    >>> hint
    "give max_mem=1024 or more; mode='w' is another way"
    >>> hint.rendered(lambda name, value: f"--max-mem {value}" if name == "max_mem" else None)
    'give --max-mem 1024 or more'
    """

    __slots__ = ("_sentences",)

    _sentences: tuple[_Sentence, ...]

    def __new__(cls, text: str, *arguments: Argument) -> Self:  # noqa: D102 - see the class
        return cls._of(_Sentence(text, arguments))

    @classmethod
    def _of(cls, *sentences: _Sentence) -> Self:
        self = super().__new__(cls, "; ".join(one.rendered(as_keyword) or "" for one in sentences))
        self._sentences = sentences
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return self._of, self._sentences

    def also(self, text: str, *arguments: Argument) -> Self:
        """Return the hint with another sentence, which is left out where its arguments do not exist."""
        return self._of(*self._sentences, _Sentence(text, arguments))

    def rendered(self, renderer: Renderer) -> str:
        """Return the sentences all of whose arguments `renderer` knows; as Python keywords where there are none."""
        return "; ".join(filter(None, (one.rendered(renderer) for one in self._sentences))) or str(self)


_WITH_OWNER = {"resume": "{}={!r} (of plan.run, or to_store)"}
"""How arguments are written that most functions with such an error do not have."""


def as_keyword(name: str, value: Any) -> str:
    """Return an argument as Python writes it.

    Examples
    --------
    >>> as_keyword("mode", "w"), as_keyword("shards", ...), as_keyword("allow", {"b", "a"})
    ("mode='w'", 'shards=', "allow={'a', 'b'}")
    """
    if value is ...:
        return f"{name}="
    if isinstance(value, (set, frozenset)):
        return f"{name}={{{', '.join(map(repr, sorted(value)))}}}"
    return _WITH_OWNER.get(name, "{}={!r}").format(name, value)
