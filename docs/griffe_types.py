"""Extension of Griffe: types, options and links of the reference that the text of a docstring does not have.

- Where a docstring describes several parameters at once, Griffe gives all of them the type of the first: each gets its
  own, and those of one type stay one entry. ``Any`` says nothing that the description does not, and defaults are in the
  signature: both are left out.
- A function with the options of another, such as ``convert`` with those of ``plan_convert``, gets their signature, and
  descriptions for "as in".
- A public name in backticks becomes a link to its page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import chunkmill
import griffe

SECTIONS = ("Parameters", "Returns", "Raises", "Examples")  # of what is public
OPTIONS_OF = re.compile(r"with_options_of\((\w+)\)")
# aliases that several functions share, as a reader wants them
SAID = {
    "NodeLocation": "Url | tuple[Url, str] | Array | Group",
    "ChunksOption": "int | str | Sequence | Mapping | Callable | None",
    "RegionOption": "slice | Sequence[slice] | Mapping[str, slice] | None",
    "WritableFormatName": "'zarr2' | 'zarr3' | 'zarr3-draft' | 'n5'",
    "FormatName": "'zarr2' | 'zarr3' | 'zarr3-draft' | 'zarr3-experimental' | 'n5'",
    "ReadMissing": "'fill' | 'error'",
}
ALIAS = re.compile(rf"\b({'|'.join(SAID)})\b")
NAMES = "|".join(sorted(chunkmill.__all__, key=len, reverse=True))
NAME = re.compile(rf"(?<![`\w\[])`(?:chunkmill\.)?({NAMES})`(?!`)")


class OwnTypes(griffe.Extension):
    """Complete the docstrings of public functions, and link the names in all of them."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Link public names, before the docstring is parsed."""
        if obj.docstring:
            obj.docstring.value = NAME.sub(
                r"[`\1`][chunkmill.\1]", obj.docstring.value
            )

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Look parameters up in the function, or in the one whose options it has."""
        text = func.docstring.value if func.docstring else ""
        if not all(f"{section}\n---" in text for section in SECTIONS):
            return
        if model := options_of(func):
            named = [
                each
                for each in func.parameters
                if each.kind is griffe.ParameterKind.keyword_only
            ]
            func.parameters = griffe.Parameters(*model.parameters, *named)
        texts = {
            each.name: each.description
            for each in (described(model) if model else ())
        }
        for parameter in described(func):
            name = parameter.name.lstrip("*")
            if name in func.parameters:
                parameter.annotation = func.parameters[name].annotation
            text = str(parameter.annotation)
            if text == "Any":
                parameter.annotation = None
            elif ALIAS.search(text):
                parameter.annotation = ALIAS.sub(
                    lambda alias: SAID[alias[1]], text
                )
            if parameter.description.startswith("As in ["):
                parameter.description = texts.get(
                    parameter.name, parameter.description
                )
            parameter.value = None
        join_equal(func)


def options_of(func: griffe.Function) -> griffe.Function | None:
    """Return the function whose options this one takes."""
    for decorator in func.decorators:
        if (found := OPTIONS_OF.match(str(decorator.value))) and func.parent:
            model = func.parent.members.get(found[1])
            return model if isinstance(model, griffe.Function) else None
    return None


def join_equal(func: griffe.Function) -> None:
    """Join neighbours of one type and description: ``chunks, shards``."""
    last: griffe.DocstringParameter | None = None
    for section in func.docstring.parsed if func.docstring else ():
        if section.kind is not griffe.DocstringSectionKind.parameters:
            continue
        for parameter in list(section.value):
            if (
                last
                and last.description == parameter.description
                and str(last.annotation) == str(parameter.annotation)
            ):
                last.name += f", {parameter.name}"
                section.value.remove(parameter)
            else:
                last = parameter


def described(
    func: griffe.Function,
) -> Iterator[griffe.DocstringParameter]:
    """Yield the parameters that a docstring describes."""
    for section in func.docstring.parsed if func.docstring else ():
        if section.kind is griffe.DocstringSectionKind.parameters:
            yield from section.value
