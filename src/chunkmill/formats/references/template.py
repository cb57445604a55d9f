"""Templates and ``gen`` of reference sets: jinja2's sandbox as fsspec uses it, with bounds (P13).

A few characters can stand for 10**12 references, or for a string of 10**12 characters. References are counted before
they are rendered, characters while they are. Of jinja2's language, expressions of names, numbers, strings and calls of
templates are left: no statements, attributes, items, filters or functions.

Spec: references.txt, "Version 1": variables form a cartesian product, the first slowest; ``stop`` is exclusive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np
from jinja2 import StrictUndefined, TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from numpy.typing import NDArray

from chunkmill.errors import MetadataError
from chunkmill.model.metadata import JSON
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.model.references import WHOLE

MAX_GENERATED = 10_000_000
"""Most references that one set may generate: a few hundred megabytes in columns."""
_MAX_TEXT = 10_000  # characters of one template
_MAX_DEPTH = 32  # operators and calls inside one another
_MAX_RENDERED = 100_000  # characters: templates that double their argument grow fast
_MAX_EXPANDED = 2**30  # characters of all strings of a set; each expression counts one more
_MAX_INT = 2**63  # results beyond are no offset, length or chunk coordinate
_BLOCK = 1 << 14
_PLAIN = re.compile(r"\{\{ ?([A-Za-z_][A-Za-z0-9_]*) ?\}\}")
_WIDE = re.compile(r"[0-9]{3}|\*")
_NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.Keyword, nodes.Call),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.FloorDiv, nodes.Mod, nodes.Neg, nodes.Pos),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.CondExpr),
)


class Templates:
    """The templates of one set, by name, and the number of characters that its strings may still have.

    Examples
    --------
    >>> Templates({"u": "a", "f": "{{c}}.org"}).render("http://{{u}}/{{ f(c='text') }}")
    'http://a/text.org'
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._left = _MAX_EXPANDED
        # with braces it has parameters and is called; without, it is the string itself
        self._strings = {name: text for name, text in texts.items() if "{{" not in text}
        self._called = {name: _Called(self, text) for name, text in texts.items() if "{{" in text}

    def render(self, text: str) -> str:
        """Return the string that `text` stands for; `MetadataError` for unknown names and refused expressions."""
        if not {"{", "\n", "\r"} & set(_PLAIN.sub("", text)) and self._strings.keys() >= set(_PLAIN.findall(text)):
            rendered = _PLAIN.sub(lambda name: self._strings[name[1]], text)  # compiling takes a hundred times as long
            return next(self.counted(text, [rendered]))
        return next(self.rows(text, [], [()]))

    def rows(self, text: str, variables: Sequence[str], rows: Iterable[tuple[int, ...]]) -> Iterator[str]:
        """Yield a string for each of `rows`, which hold the values of `variables`: one loop that is compiled once."""
        parsed = _parsed(text)
        name = "_".join(["rows", *names_of(parsed)])  # longer than any of them
        with _refused(text):
            targets = nodes.Tuple([nodes.Name(variable, "store") for variable in variables], "store")
            end = nodes.Output([nodes.TemplateData("\0")])
            loop = nodes.For(targets, nodes.Name(name, "load"), [*parsed.body, end], [], None, False)
            document = nodes.Template([loop])
            document.set_environment(_ENVIRONMENT).set_lineno(1)
            template = _ENVIRONMENT.from_string(document)
        scope, rows = {**self._strings, **self._called}, iter(rows)
        while block := list(islice(rows, _BLOCK)):
            with _refused(text):
                rendered = "".join(self.counted(text, template.generate({**scope, name: block}))).split("\0")
            if len(rendered) != len(block) + 1:
                raise _error(text, "no character NUL")
            yield from rendered[:-1]

    def counted(self, text: str, pieces: Iterable[str]) -> Iterator[str]:
        """Yield the pieces of strings that `text` is rendered to; one ends with ``NUL``, or with the last piece."""
        size = 0
        for piece in pieces:
            size += len(piece) + 1
            self._left -= len(piece) + 1
            if size > _MAX_RENDERED or self._left < 0:
                raise _error(text, f"at most {_MAX_RENDERED} characters when rendered, and {_MAX_EXPANDED} of a set")
            if piece.endswith("\0"):
                size = 0
            yield piece


class _Called:
    """A template with parameters. Only these are known in it, so that templates cannot call each other."""

    def __init__(self, templates: Templates, text: str) -> None:
        self._templates, self._text = templates, text
        with _refused(text):
            self._template = _ENVIRONMENT.from_string(_parsed(text))

    def __call__(self, **arguments: int | str) -> str:
        for argument in arguments.values():
            _of_a_set(argument)
        return "".join(self._templates.counted(self._text, self._template.generate(arguments)))


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "-", "*", "//", "%"])

    def is_safe_callable(self, obj: Any) -> bool:
        return isinstance(obj, _Called)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002 - jinja2 says the parameters
        if isinstance(left, str) or isinstance(right, str):
            if operator == "*" or (operator == "%" and _WIDE.search(str(left))):
                raise SecurityError("strings are not repeated, and padded to 99 characters at most")
            return self.binop_table[operator](left, right)
        result = self.binop_table[operator](left, right)
        if not -_MAX_INT < result < _MAX_INT:
            raise SecurityError("integers are below 2**63")
        return result


def _of_a_set(value: Any) -> Any:
    if not isinstance(value, (int, str, Undefined)):  # the last raises when it is used
        raise SecurityError("values are integers and strings; a template with parameters is called")
    return value


_ENVIRONMENT = _Environment(undefined=StrictUndefined, finalize=_of_a_set)
_ENVIRONMENT.globals.clear()


def names_of(parsed: nodes.Template) -> set[str]:
    """Return all names in a template."""
    return {node.name for node in parsed.find_all(nodes.Name)}


def _parsed(text: str) -> nodes.Template:
    if len(text) > _MAX_TEXT:
        raise _error(text, f"templates of at most {_MAX_TEXT} characters")
    with _refused(text):
        parsed = _ENVIRONMENT.parse(text)
        below: list[nodes.Node] = [parsed]
        for _ in range(_MAX_DEPTH + 1):
            for node in below:
                _check(node)
            below = [child for node in below for child in node.iter_child_nodes()]
            if not below:
                return parsed
        raise SecurityError(f"deeper than {_MAX_DEPTH}")


def _check(node: nodes.Node) -> None:
    if not isinstance(node, _NODES):
        raise SecurityError(f"no {type(node).__name__}: names, numbers, strings, operators and calls of templates")
    value = node.value if isinstance(node, nodes.Const) else ""
    if not (isinstance(value, str) or (isinstance(value, int) and value < _MAX_INT)):
        raise SecurityError("numbers are integers below 2**63")
    if isinstance(node, nodes.Call) and (node.args or node.dyn_args or node.dyn_kwargs):
        raise SecurityError("arguments have keywords")


@contextmanager
def _refused(text: str) -> Iterator[None]:
    try:
        yield
    except (TemplateError, ArithmeticError, TypeError, ValueError, SyntaxError, RecursionError) as error:
        raise _error(text, f"a template as in jinja2, without statements and filters: {error}") from None


def _error(text: str, expected: str) -> MetadataError:
    return MetadataError(key="<references>", field="template", got=text, expected=expected)


def add_generated(builder: ReferenceBuilder, gen: JSON, templates: Templates, source: str) -> None:
    """Add what ``gen`` stands for to `builder`.

    Raises
    ------
    MetadataError
        For entries that are not what the specification demands, and for products beyond `MAX_GENERATED`.
    """
    if not isinstance(gen, list) or not all(isinstance(entry, dict) for entry in gen):
        raise MetadataError(key=source, field="gen", got=gen, expected="a list of objects")
    generators = [_Generator(entry, templates, f"gen[{i}]", source) for i, entry in enumerate(gen)]
    n_references = sum(generator.size for generator in generators)
    if n_references > MAX_GENERATED:
        raise MetadataError(
            key=source,
            field="gen",
            got=f"{n_references} references",
            expected=f"at most {MAX_GENERATED}: write a set of this size as parquet, which is opened piece by piece",
        )
    for generator in generators:
        if generator.size:
            generator.add_to(builder)


class _Generator:
    """One entry of ``gen``, checked."""

    def __init__(self, entry: Mapping[str, JSON], templates: Templates, field: str, source: str) -> None:
        self._templates, self._field, self._source = templates, field, source
        dimensions = entry.get("dimensions")
        if not isinstance(dimensions, dict) or not dimensions:
            raise self._error("dimensions", dimensions, "an object with one or more variables")
        self._values = {name: self._dimension(name, value) for name, value in dimensions.items()}
        self.size = prod(map(len, self._values.values()))
        self._texts = dict[str, str]()
        for member in ("key", "url", "offset", "length"):
            text = entry.get(member)
            if type(text) is int and member in {"offset", "length"}:  # no jinja-str, but what people write
                text = str(text)
            if isinstance(text, str):
                self._texts[member] = text
            elif text is not None or member in {"key", "url"}:
                raise self._error(member, text, "a string")
        if ("offset" in self._texts) != ("length" in self._texts):
            raise self._error("offset", entry.get("offset"), "'offset' and 'length' both, or neither")

    def _dimension(self, name: str, value: JSON) -> range | list[int]:
        if isinstance(value, list) and all(type(item) is int and abs(item) < 2**62 for item in value):
            return value
        if not isinstance(value, dict):
            raise self._error(name, value, "a list of integers, or an object with 'stop'")
        start, stop, step = (
            value.get(member, default) for member, default in (("start", 0), ("stop", ""), ("step", 1))
        )
        if not all(type(item) is int and abs(item) < 2**62 for item in (start, stop, step)) or step == 0:
            raise self._error(name, value, "integers 'stop' and perhaps 'start' and 'step', which is not 0")
        return range(start, stop, step)

    def add_to(self, builder: ReferenceBuilder) -> None:
        """Add all references, a block of keys at a time."""
        used = names_of(_parsed(self._texts["key"]))
        # of a variable that is not in the key, the last value replaces the others
        values = {name: each if name in used else each[-1:] for name, each in self._values.items()}
        shape, keys = self._strings("key", values)
        columns = [
            np.broadcast_to(self._numbers(member, values, convert, absent), shape).flat
            for member, convert, absent in (
                ("url", builder.url_id, 0),
                ("offset", self._number, 0),
                ("length", self._number, WHOLE),
            )
        ]
        start = 0
        while block := list(islice(keys, _BLOCK)):
            stop = start + len(block)
            builder.add_many(block, *(column[start:stop] for column in columns))
            start = stop

    def _strings(self, member: str, values: Mapping[str, Sequence[int]]) -> tuple[list[int], Iterator[str]]:
        """Return what a member is rendered to, each string once, and their shape: 1 along variables not in it."""
        text = self._texts[member]
        used = [name for name in values if name in names_of(_parsed(text))]
        rows = product(*(values[name] for name in used))
        shape = [len(each) if name in used else 1 for name, each in values.items()]
        return shape, self._templates.rows(text, used, rows)

    def _numbers(
        self, member: str, values: Mapping[str, Sequence[int]], convert: Callable[[str], int], absent: int
    ) -> NDArray[np.int64]:
        if member not in self._texts:
            return np.array(absent)
        shape, strings = self._strings(member, values)
        return np.fromiter(map(convert, strings), np.int64, prod(shape)).reshape(shape)

    def _number(self, text: str) -> int:
        stripped = text.strip()
        if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 20) or int(stripped) >= _MAX_INT:  # noqa: PLR2004
            raise self._error("offset and length", text, "integers in 0..2**63-1 when rendered")
        return int(stripped)

    def _error(self, member: str, got: object, expected: str) -> MetadataError:
        return MetadataError(key=self._source, field=f"{self._field}: {member}", got=got, expected=expected)
