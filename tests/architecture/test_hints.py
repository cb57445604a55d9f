"""Errors recommend what there is: each argument, option, function and command that a message or its hint names exists."""

import ast
import functools
import re
from inspect import signature
from pathlib import Path

import click
from support.code_lines import parse

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

ARGUMENTS_OF_OTHERS = {
    "names", "encoding", "engine", "decode_times", "decode_cf", "group", "combine", "compat", "drop_variables",  # xarray
    "anon", "token", "connection_string", "allowed_protocols", "c",  # storage options; a quotation
}  # fmt: skip
FUNCTIONS_OF_OTHERS = {
    "slice", "len", "load", "persist", "compute", "to_thread", "filled", "astype", "open_dataset", "drop_vars", "sel",
    "reset_index", "to_dataset", "rename", "isin", "within", "decode_cf",
}  # fmt: skip


@functools.cache
def parameters(*names):
    """Names of the arguments of public functions; of all, and of the methods of what they return, without names."""
    called = [getattr(cm, name) for name in names or cm.__all__]
    called += [method for kind in (cm.Array, cm.Group, cm.Plan) for method in vars(kind).values() if callable(method)]
    return {name for f in called if callable(f) and not isinstance(f, type) for name in signature(f).parameters}


def messages():
    """Yield the place, the text, and the arguments of each hint and message of the source, whole or in a variable."""
    for file in sorted(SRC.rglob("*.py")):
        place = file.relative_to(SRC).as_posix()
        nodes = list(ast.walk(parse(file.read_text(encoding="utf-8"))))
        given = [k.value for node in nodes if isinstance(node, ast.Call) for k in node.keywords if k.arg == "hint"]
        variables = {each.id for each in given if isinstance(each, ast.Name)}
        for node in nodes:
            if isinstance(node, ast.Raise) and node.exc is not None:
                yield place, *said(node.exc)
            elif isinstance(node, ast.Call) and re.search(r"Error|Hint\b|\balso$", ast.unparse(node.func)):
                yield place, *said(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if variables & {each.id for each in targets if isinstance(each, ast.Name)}:
                    yield place, *said(node.value)


def said(node):
    """Return the line, the literal texts in an expression, and the names of the arguments of a `Hint` in it."""
    texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    pairs = [n.elts[0] for n in ast.walk(node) if isinstance(n, ast.Tuple) and len(n.elts) == 2]
    named = [n.value for n in pairs if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return node.lineno, " ".join(texts), named


@functools.cache
def options(command):
    found = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    return found.union(*map(options, command.commands.values())) if isinstance(command, click.Group) else found


def test_what_a_message_names_exists():
    found, wrong = list(messages()), []
    functions = {*cm.__all__, *FUNCTIONS_OF_OTHERS}.union(*map(dir, (cm.Array, cm.Group, cm.Plan, cm.Report)))
    for place, line, text, names in found:
        words = set(re.findall(r"(?<![\w.'\"-])([a-z][a-z_]+)=(?!=)", text))
        strange = {*words, *names} - ARGUMENTS_OF_OTHERS - parameters(*ROOMS.get(place.partition("/")[0], ()))
        strange |= set(re.findall(r"(?<![\w-])--[a-z-]+", text)) - options(main)
        strange |= set(re.findall(r"(?<!\w)(?:\w+\.)*([A-Za-z_]+)\(", text)) - functions
        strange |= set(re.findall(r"`chunkmill ([a-z-]+)", text)) - main.commands.keys()
        wrong += [f"{place}:{line}: {name}" for name in sorted(strange)]
    assert len(found) > 1000
    assert not wrong


def test_a_hint_has_a_place_for_each_of_its_arguments():
    calls = [
        (file.name, node)
        for file in sorted(SRC.rglob("*.py"))
        for node in ast.walk(parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and re.search(r"^Hint$|\.also$", ast.unparse(node.func))
    ]
    literal = [each for each in calls if isinstance(each[1].args[0], (ast.Constant, ast.JoinedStr))]
    assert len(literal) > 25
    wrong = [(name, node.lineno) for name, node in literal if said(node.args[0])[1].count("{}") != len(node.args) - 1]
    assert not wrong
