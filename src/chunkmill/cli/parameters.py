"""Make the arguments and options of commands from the signatures of public functions.

A parameter becomes the option of its name: the annotation gives the type, the first sentence of the parameter's
documentation the help text. Both are read from the source, since importing it would import dask, for which help texts
and completion do not wait. Not here: options that no function has (`chunkmill.cli.options`).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

import chunkmill as cm
from chunkmill.formats import registry as formats

Command = Callable[..., Any]

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic from click 8.4 on only


@dataclass(eq=False)
class Text(ParamType):
    """Type of a value that a function reads from text, where it raises `ValueError` for what it cannot read.

    Attributes
    ----------
    name
        Of the type, in help texts.
    parse
        Function from text to value.
    written
        Examples of texts.
    wrong
        What a text that cannot be read is; empty: no text of this type, and how one is written.
    """

    name: str
    parse: Callable[[str], Any]
    written: str = ""
    wrong: str = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that a text stands for."""
        try:
            return self.parse(value) if isinstance(value, str) else value
        except ValueError:
            wrong = self.wrong or f"is not a {self.name}: write it as {self.written}"
            self.fail(f"{value!r} {wrong}", param, ctx)


class _Literal(click.Choice):  # type: ignore[type-arg] # generic from click 8.2 on only
    """One of the values of a ``Literal``, written as text."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = {"none" if value is None else str(value): value for value in values}
        super().__init__(list(self.values))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.values[super().convert(str(value), param, ctx)]


# --------------------------------------------------------------------------------------------------------------------
# Values as text


def _listed(value: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a parser of values between commas: a tuple, or a dict by dimension (``y=2,x=2``)."""

    def parse(text: str) -> Any:
        items = [item.strip() for item in text.strip("()[] ").split(",") if item.strip()]
        if any("=" in item for item in items):
            named = (item.rsplit("=", 1) for item in items)
            return {name.strip(): value(one.strip()) for name, one in named}
        return tuple(map(value, items))

    return parse


def _shape(text: str) -> Any:
    if text in {"keep", "none", "auto"} or text[-1:] in "bB":  # a size such as 16MiB
        return None if text == "none" else text
    return _listed(lambda length: length if length == "auto" else int(length))(text)


def _by_axis(number: type[int | float]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        found = text if text == "isotropic" else _listed(number)(text)
        return found[0] if isinstance(found, tuple) and len(found) == 1 else found

    return parse


def _slice(text: str) -> Any:
    if text == "...":
        return ...
    start, stop = (int(each) if each.strip() else None for each in text.split(":"))
    return slice(start, stop)


def _names(text: str) -> tuple[str | None, ...]:
    return tuple(name.strip() or None for name in text.split(","))


def _codecs(text: str) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        return text
    chain = json.loads(text)
    return chain if isinstance(chain, list) else [chain]


def _n_bytes(text: str) -> int:
    from dask.utils import parse_bytes  # noqa: PLC0415 - slow to import

    return int(parse_bytes(text))


def _key_value(text: str) -> tuple[str, Any]:
    name, value = text.split("=", 1)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


_AXIS = "is not by axis: write it as 1,2,2, or as y=2,x=2"
_SHAPE = Text("shape", _shape, "1,512,512, time=-1,lat=32 or 16MiB")
KEY_VALUE = Text("key=value", _key_value, "anon=true", "is not KEY=VALUE")
PLACE = click.Path()  # or a url; shells complete paths

TYPES: Mapping[str, ParamType] = {
    "chunks": _SHAPE,
    "shards": _SHAPE,
    "codecs": Text("codecs", _codecs, "zstd or JSON", "is not JSON"),
    "region": Text("region", _listed(_slice), "0:10,20:30 (start:stop for each axis) or time=0:10,lat=5:"),
    "dimension_names": Text("names", _names, "time,lat,lon"),
    "channels": Text("names", _names, "dapi,gfp"),
    "factors": Text("by axis", _by_axis(int), "2, 1,2,2, y=2,x=2 or isotropic", _AXIS),
    **dict.fromkeys(("scale", "translation"), Text("by axis", _by_axis(float), "40,4,4 or z=40,y=4,x=4", _AXIS)),
    "allow": click.Choice(["fill_value", "codecs", "dimension_names", "attributes", "coordinate_systems"]),
    "max_mem": Text("memory", _n_bytes, "2GiB", "is not a number of bytes: write it as 2GiB"),
    "sample": click.FloatRange(0, 1, min_open=True),
    "method": click.Choice(["mean", "median", "min", "max", "mode", "stride"]),
    **dict.fromkeys(("label_of", "records"), PLACE),
    "WritableFormatName": click.Choice(sorted(f.name for f in formats.FORMATS if f.name not in formats.READ_ONLY)),
}
"""Types by name of parameter, or by annotation, where the annotation alone does not say how a value is written."""

_FLAGS = {
    "storage_options": "--option",
    "target_storage_options": "--target-option",
    "source_storage_options": "--source-option",
    "concat_dim": "--concat",
    "drop_variables": "--drop",
}
"""Options that are not named like their parameters."""


# --------------------------------------------------------------------------------------------------------------------
# Options


def options_of(
    function: str, *arguments: str, only: Collection[str] | None = None, without: Collection[str] = (), **flags: str
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the parameters of a public function.

    Parameters
    ----------
    function
        Name of the function.
    *arguments
        Parameters that are places, given without the name of an option.
    only, without
        Parameters that become options, where others do not; those that do not.
    **flags
        Options of parameters that have another name in this command.
    """
    parameters, texts = _described(function)
    chosen = [name for name in parameters if name not in {*arguments, *without, "progress"}]

    def decorate(command: Command) -> Command:
        for name in reversed(chosen if only is None else [*only]):
            flag = flags.get(name, _FLAGS.get(name, f"--{name.replace('_', '-')}"))
            command = _option(name, flag, *parameters[name], _sentence(name, texts))(command)
        for name in reversed(arguments):
            annotation, default = parameters[name]
            n_args = -1 if re.search(r"(Iterable|Sequence)\[", annotation) else 1
            command = click.argument(name, type=PLACE, nargs=n_args, required=default is ...)(command)
        return command

    return decorate


def _option(name: str, flag: str, annotation: str, default: Any, text: str) -> Callable[[Command], Command]:
    """Return the option of a parameter; `default` is ``...`` where it must be given."""
    if "storage_options" in name:
        of = f" of the {name.partition('_')[0]}" * (name != "storage_options")
        collect: Any = lambda _, __, pairs: dict(pairs) or None  # noqa: E731
        text = f"Option of the filesystem{of}, as in fsspec, such as anon=true (repeatable)."
        return click.option(flag, name, multiple=True, type=KEY_VALUE, callback=collect, help=text)
    if annotation == "bool":
        return click.option(flag, name, is_flag=True, default=default, help=f"{text}.")
    if annotation == "bool | None":
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=default, help=f"{text}.")
    literal = re.search(r"Literal\[([^\]]*)\]", annotation)
    kind: Any = TYPES.get(name, TYPES.get(annotation.partition(" ")[0]))
    if kind is None and literal is not None:
        values = ast.literal_eval(f"({literal[1]},)")
        kind = _Literal([*values, None] if "| None" in annotation and default is not None else values)
    elif kind is None:
        kind = float if "float" in annotation else int if annotation.startswith("int") else str
    if written := getattr(kind, "written", ""):
        text += f", such as {written}"
    if re.match(r"(str \| )?(Collection|Sequence)\[str\]", annotation) and kind is not TYPES["channels"]:
        several: Any = lambda _, __, values: list(values) or default  # noqa: E731
        return click.option(flag, name, type=kind, multiple=True, callback=several, help=f"{text} (repeatable).")
    unless = {"required": True} if default is ... else {"default": default, "show_default": default is not None}
    return click.option(flag, name, type=kind, help=f"{text}.", **unless)


@cache
def _described(function: str) -> tuple[dict[str, tuple[str, Any]], dict[str, str]]:
    """Return annotation and default of each parameter of a public function, and the texts on them."""
    module = Path(cm.__file__).parent.joinpath(*cm._MODULES[function].split(".")[1:])  # noqa: SLF001
    source = module.with_suffix(".py").read_text("utf-8").partition(f"\ndef {function}(")[2]
    body = re.split(r"\n(?=[\w@#])", source, maxsplit=1)[0]  # up to the next line that is not indented
    node = cast("ast.FunctionDef", ast.parse(f"def {function}({body}").body[0])
    names = [*node.args.args, *node.args.kwonlyargs]
    values = [*node.args.defaults, *node.args.kw_defaults]
    parameters = {
        each.arg: (ast.unparse(cast("ast.expr", each.annotation)), ... if value is None else ast.literal_eval(value))
        for each, value in zip(names, [None] * (len(names) - len(values)) + values, strict=True)
    }
    section = (ast.get_docstring(node) or "").partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    found = re.findall(r"^(\S.*)((?:\n    .*)+)", section, re.MULTILINE)
    return parameters, {name: text for head, text in found for name in head.partition(" : ")[0].split(", ")}


def _sentence(name: str, texts: Mapping[str, str]) -> str:
    """Return the first sentence on a parameter, or what is before a colon or semicolon, without quotes."""
    text = " ".join(texts[name].split())
    if same := re.match(r"As in `(?:chunkmill\.)?(\w+)`", text):
        return _sentence(name, _described(same[1])[1])
    return re.sub(r"[`\"]", "", re.split(r"[.;:](?:\s|$)", text)[0])
