"""Errors recommend what there is: each argument and option that a hint names belongs to the functions it is for."""

import ast
import functools
import re
from inspect import signature
from pathlib import Path

import click

import chunkmill as cm
from chunkmill.cli.main import main

SRC = Path(cm.__file__).parent
ROOMS = {
    "conversion": ["convert", "rechunk", "suggest_chunks"],
    "pyramids": ["pyramid"],
    "transforms": ["transform"],
    "scans": ["scan", "convert"],
    "references": ["to_references", "concat_references", "scan"],
    "checks": ["check", "verify"],
    "xarray": ["write_dataset"],
    "dask_arrays": ["to_store", "store", "from_store"],
}
"""Public functions by the room whose errors only they raise; errors of other rooms are raised by any of them."""

NOT_OURS = {"names", "encoding", "engine", "decode_times", "decode_cf", "group", "combine", "compat"}
"""Arguments of xarray's functions."""


@functools.cache
def parameters(*names):
    """Names of the arguments of public functions; of all, and of the methods of what they return, without names."""
    called = [getattr(cm, name) for name in names or cm.__all__]
    called += [method for kind in (cm.Array, cm.Group, cm.Plan) for method in vars(kind).values() if callable(method)]
    return {
        name for each in called if callable(each) and not isinstance(each, type) for name in signature(each).parameters
    }


def hints():
    """Yield the place, the text, and the arguments of each hint of the source."""
    for file in sorted(SRC.rglob("*.py")):
        place = file.relative_to(SRC).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if called in {"Hint", "also"}:
                yield place, node.lineno, *said(node)
            for keyword in node.keywords:
                if keyword.arg == "hint":
                    yield place, node.lineno, *said(keyword.value)


def said(node):
    """Return the literal texts in an expression, and the names of the arguments of a `Hint` in it."""
    texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    pairs = [n.elts[0] for n in ast.walk(node) if isinstance(n, ast.Tuple) and len(n.elts) == 2]
    return " ".join(texts), [n.value for n in pairs if isinstance(n, ast.Constant) and isinstance(n.value, str)]


@functools.cache
def options(command):
    found = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    return found.union(*map(options, command.commands.values())) if isinstance(command, click.Group) else found


def test_what_a_hint_names_is_an_argument():
    found, wrong = list(hints()), []
    for place, line, text, names in found:
        words = set(re.findall(r"(?<![\w.'\"-])([a-z][a-z_]+)=(?!=)", text)) - NOT_OURS
        strange = {*words, *names} - parameters(*ROOMS.get(place.partition("/")[0], ()))
        strange |= set(re.findall(r"(?<![\w-])--[a-z-]+", text)) - options(main)
        wrong += [f"{place}:{line}: {name}" for name in sorted(strange)]
    assert len(found) > 100
    assert not wrong
