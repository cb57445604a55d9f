"""The template language of reference sets: what jinja-str means there, and nothing more.

Text with ``{{ … }}`` in it; inside the braces names, integers, ``+ - * // %``, parentheses, quoted strings and calls
of templates with keyword arguments. No attributes, no indexing, no filters, no statements: an expression is parsed to
a few node types of our own and never reaches Python's or jinja's evaluator. An expression also evaluates for many
values of its names at once, on numpy integers, when its bounds show that nothing can overflow.

Spec: references.txt, "Version 1". Not here: which strings of a set are templates (`json`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError

__all__ = ["Call", "Expression", "Name", "Operation", "TemplateText", "Value", "parse_template", "render"]

_MAX_TEXT = 10_000  # characters of one template
_MAX_EXPRESSION = 1_000  # characters between the braces
_MAX_TOKENS = 200  # of one expression: evaluation recurses on chains of operators
_MAX_RENDERED = 100_000  # characters: templates that double their argument grow fast
_MAX_DEPTH = 32  # parentheses and calls inside one another
_MAX_INT = 2**63  # results beyond are no offset, length or chunk coordinate
_TOKEN = re.compile(
    r"""\s*(?:(\d{1,18})(?![\w.])|([A-Za-z_]\w*)|("[^"\\{}]*"|'[^'\\{}]*')|(//|[-+*%(),=]))""", re.ASCII
)

Scope = Mapping[str, "int | str | TemplateText"]
"""Values of the names; a `TemplateText` is called."""


@dataclass(frozen=True, slots=True)
class Value:
    """An integer or a quoted string."""

    value: int | str


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or a plain template."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A template with arguments."""

    name: str
    arguments: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """Arithmetic; a unary minus is an operation on 0."""

    operator: str
    left: Expression
    right: Expression


Expression = Value | Name | Call | Operation


@dataclass(frozen=True, slots=True)
class TemplateText:
    """A parsed template: text and expressions in turn."""

    source: str
    parts: tuple[str | Expression, ...]

    @property
    def is_plain(self) -> bool:
        """Return whether there is nothing to render."""
        return all(isinstance(part, str) for part in self.parts)

    @property
    def names(self) -> frozenset[str]:
        """Names that the rendered text depends on."""
        return frozenset(name for part in self.parts if not isinstance(part, str) for name in _names(part))


@lru_cache(maxsize=4096)
def parse_template(text: str) -> TemplateText:
    """Parse a template; `MetadataError` for whatever the language does not have.

    Examples
    --------
    >>> parse_template("file_{{ i + 1 }}.nc").parts
    ('file_', Operation(operator='+', left=Name(name='i'), right=Value(value=1)), '.nc')
    """
    if len(text) > _MAX_TEXT:
        raise _error(text, f"templates of at most {_MAX_TEXT} characters")
    if "{%" in text or "{#" in text:
        raise _error(text, "no jinja statements or comments: only {{ expression }}")
    parts: list[str | Expression] = []
    at = 0
    while (opened := text.find("{{", at)) >= 0:
        closed = text.find("}}", opened)
        if closed < 0:
            raise _error(text, "a '}}' for every '{{'")
        if opened > at:
            parts.append(text[at:opened])
        parts.append(_Parser(text, text[opened + 2 : closed]).parse())
        at = closed + 2
    if at < len(text) or not parts:
        parts.append(text[at:])
    return TemplateText(text, tuple(parts))


def render(template: TemplateText, scope: Scope) -> str:
    """Return the text that `template` stands for; `MetadataError` for unknown names and wrong types.

    Examples
    --------
    >>> f = parse_template("{{c}}.org")
    >>> render(parse_template("http://{{u}}/{{ f(c='text') }}/{{ (i + 1) * 1000 }}"), {"u": "a", "f": f, "i": 2})
    'http://a/text.org/3000'
    """
    texts: list[str] = []
    size = 0
    for part in template.parts:
        texts.append(part if isinstance(part, str) else str(evaluate(part, scope, template.source)))
        size += len(texts[-1])
        if size > _MAX_RENDERED:
            raise _error(template.source, f"at most {_MAX_RENDERED} characters when rendered")
    return "".join(texts)


def evaluate(expression: Expression, scope: Scope, source: str) -> int | str:
    """Return the value of an expression; `source` is what an error shows."""
    if isinstance(expression, Value):
        return expression.value
    if isinstance(expression, Name):
        value = _look_up(expression.name, scope, source)
        if isinstance(value, TemplateText):
            raise _error(source, f"a call: template {expression.name!r} has parameters")
        return value
    if isinstance(expression, Call):
        called = _look_up(expression.name, scope, source)
        if not isinstance(called, TemplateText):
            raise _error(source, f"no call: {expression.name!r} has no parameters")
        arguments = {name: evaluate(argument, scope, source) for name, argument in expression.arguments}
        # only its own arguments are known in there, so that templates cannot call one another without end
        return render(called, arguments)
    left, right = (evaluate(operand, scope, source) for operand in (expression.left, expression.right))
    if isinstance(left, str) or isinstance(right, str):
        raise _error(source, "integers on both sides of an operator")
    return _calculate(expression.operator, left, right, source)


def evaluate_columns(
    expression: Expression, columns: Mapping[str, NDArray[np.int64]], source: str
) -> NDArray[np.int64] | None:
    """Return the values of an expression of integers for many values of its names at once.

    The columns broadcast against each other. ``None``: it has strings or calls in it, or might overflow; go row by
    row then.
    """
    result = _bounded(expression, columns, source)
    return None if result is None else result[0]


_Bounded = tuple[NDArray[np.int64], int, int]
"""Values, and bounds that they cannot leave whatever the rows are: Python's integers, which do not overflow."""


def _bounded(expression: Expression, columns: Mapping[str, NDArray[np.int64]], source: str) -> _Bounded | None:
    if isinstance(expression, Value):
        value = expression.value
        return None if isinstance(value, str) else (np.array(value), value, value)
    if isinstance(expression, Name):
        column = columns.get(expression.name)
        return None if column is None else (column, int(column.min()), int(column.max()))
    if isinstance(expression, Call):
        return None
    left, right = (_bounded(operand, columns, source) for operand in (expression.left, expression.right))
    return None if left is None or right is None else _combined(expression.operator, left, right)


def _combined(operator: str, left: _Bounded, right: _Bounded) -> _Bounded | None:
    (a, a_low, a_high), (b, b_low, b_high) = left, right
    function: np.ufunc
    match operator:
        case "+":
            bounds, function = [a_low + b_low, a_high + b_high], np.add
        case "-":
            bounds, function = [a_low - b_high, a_high - b_low], np.subtract
        case "*":
            bounds, function = [x * y for x in (a_low, a_high) for y in (b_low, b_high)], np.multiply
        case _:
            bounds, function = [a_low, a_high, 0, b_high], np.floor_divide if operator == "//" else np.remainder
            if b_low <= 0:  # a zero, which numpy would let pass, or negative numbers that turn the bounds round
                return None
    if max(map(abs, bounds)) >= _MAX_INT:
        return None
    return function(a, b), min(bounds), max(bounds)


def _calculate(operator: str, left: int, right: int, source: str) -> int:
    if operator in {"//", "%"} and right == 0:
        raise _error(source, "no division by zero")
    match operator:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case "//":
            result = left // right
        case _:
            result = left % right
    if not -_MAX_INT < result < _MAX_INT:
        raise _error(source, "results below 2**63")
    return result


def _look_up(name: str, scope: Scope, source: str) -> int | str | TemplateText:
    if name not in scope:
        raise _error(source, f"only known names; {name!r} is not one of {sorted(scope)[:20]}")
    return scope[name]


def _names(expression: Expression) -> frozenset[str]:
    if isinstance(expression, Value):
        return frozenset()
    if isinstance(expression, Name):
        return frozenset({expression.name})
    if isinstance(expression, Call):
        return frozenset({expression.name}).union(*(_names(argument) for _, argument in expression.arguments))
    return _names(expression.left) | _names(expression.right)


def _error(text: str, expected: str) -> MetadataError:
    return MetadataError(key="<references>", field="template", got=text[:200], expected=expected)


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._tokens: list[tuple[str, str]] = []
        self._at = 0
        self._depth = 0
        if len(text) > _MAX_EXPRESSION:
            raise _error(source, f"expressions of at most {_MAX_EXPRESSION} characters")
        at, text = 0, text.rstrip()
        while at < len(text):
            if (match := _TOKEN.match(text, at)) is None:
                raise self._wrong(f"cannot read {text[at : at + 20]!r}")
            kind = ("integer", "name", "string", "operator")[(match.lastindex or 1) - 1]
            self._tokens.append((kind, match[match.lastindex or 1]))
            at = match.end()
        if len(self._tokens) > _MAX_TOKENS:
            raise self._wrong(f"more than {_MAX_TOKENS} names, numbers and operators")

    def parse(self) -> Expression:
        """Return the expression; all of the text must belong to it."""
        result = self._sum()
        if self._at < len(self._tokens):
            raise self._wrong(f"{self._tokens[self._at][1]!r} is left over")
        return result

    def _wrong(self, what: str) -> MetadataError:
        return _error(
            self._source, f"names, integers, + - * // %, parentheses and template calls with keywords: {what}"
        )

    def _peek(self) -> Any:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _take(self, *operators: str) -> str | None:
        kind, text = self._peek()
        if kind == "operator" and text in operators:
            self._at += 1
            return str(text)
        return None

    def _expect(self, operator: str) -> None:
        if self._take(operator) is None:
            raise self._wrong(f"expected {operator!r} at {self._peek()[1] or 'the end'!r}")

    def _sum(self) -> Expression:
        result = self._product()
        while operator := self._take("+", "-"):
            result = Operation(operator, result, self._product())
        return result

    def _product(self) -> Expression:
        result = self._factor()
        while operator := self._take("*", "//", "%"):
            result = Operation(operator, result, self._factor())
        return result

    def _factor(self) -> Expression:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._wrong(f"deeper than {_MAX_DEPTH}")
        try:
            if self._take("-"):
                return Operation("-", Value(0), self._factor())
            if self._take("("):
                result = self._sum()
                self._expect(")")
                return result
            return self._atom()
        finally:
            self._depth -= 1

    def _atom(self) -> Expression:
        kind, text = self._peek()
        self._at += 1
        if kind == "integer":
            return Value(int(text))
        if kind == "string":
            return Value(text[1:-1])
        if kind != "name":
            self._at -= 1
            raise self._wrong(f"nothing to evaluate at {text or 'the end'!r}")
        if not self._take("("):
            return Name(text)
        arguments: dict[str, Expression] = {}
        while not self._take(")"):
            if arguments:
                self._expect(",")
            kind, name = self._peek()
            if kind != "name" or name in arguments:
                raise self._wrong(f"expected a new keyword at {name or 'the end'!r}")
            self._at += 1
            self._expect("=")
            arguments[name] = self._sum()
        return Call(text, tuple(arguments.items()))
