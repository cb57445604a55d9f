"""Change one thing in the package, and see whether a test fails: how sharp the unit and contract tests are.

    python tests/support/mutants.py --seed 1 --number 40 [--room nodes]

Each mutant is one change of one expression in a copy of the tree (a comparison, a constant, a condition, a result, an
error that is not raised, two arguments exchanged). It is killed where the unit tests of its room, those of other rooms
that import its module, or contracts, golden stores and properties of its room, fail within `SECONDS` of the processor.
A survivor is equivalent, or shows a test that is missing: a reader decides which, and names the first in `HARMLESS`.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SECONDS = 30  # of the processor, for each run of tests: other processes take none of it
MAX_WAIT = 4 * SECONDS  # for a run of tests that waits instead
_GOLDEN = "tests/conformance/test_golden_stores.py"
CONTRACTS = {
    "stores": [
        "tests/contracts/test_stores.py",
        "-k",
        "not (S3 or Http or Azure or Gcs)",
    ],  # servers take most of the time
    "formats": [
        _GOLDEN,
        "tests/properties/test_formats.py",
        "tests/properties/test_n5.py",
        "tests/unit/nodes/test_attributes.py",
        "tests/interop/test_other_writers.py",
    ],
    "model": ["tests/unit/pyramids/test_images.py", "tests/unit/conversion/test_ome.py"],
    "array": ["tests/unit/nodes/test_array.py", "tests/unit/nodes/test_replaced_nodes.py"],
    "codecs": [_GOLDEN, "tests/properties/test_codecs.py"],
    "references": ["tests/properties/test_references.py"],
    "conversion": [
        "tests/properties/test_rechunk.py",
        "tests/properties/test_convert.py",
        "tests/unit/nodes/test_broken_nodes.py",
        "tests/unit/pyramids/test_images.py",
    ],
    "jobs": ["tests/unit/nodes/test_power_loss.py", "tests/unit/cli/test_commands.py"],
    "dask_arrays": ["tests/properties/test_writes.py"],
    "xarray": ["tests/unit/dask_arrays/test_expressions.py", "-k", "under_way or transposes"],
    "checks": [
        "tests/unit/nodes/test_consolidated_alone.py",
        "tests/unit/nodes/test_power_loss.py",
        "tests/unit/xarray/test_publication.py",
    ],
    "runtime": ["tests/unit/conversion/test_stages.py", "-k", "read_before or many_records"],
}
_NOTHING = 5  # pytest's, where no test was collected

HARMLESS = {
    ("dask_arrays/blocks.py", "return ()"): "compared with chunks alone, and equal to none of an array with axes",
    ("dask_arrays/blocks.py", "runs[1][0] < runs[0][0]"): "runs next to each other have different lengths",
    ("dask_arrays/regroup.py", "used <= x.dask.layers.keys()"): "all of them, where the two are equal, either way",
    ("formats/references/parquet.py", "{'offset', 'size'} <= set(names)"): "'path' is among the names, too",
}
"""Why a survivor changes nothing, by module and text."""

_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change of a module."""

    path: Path
    line: int
    kind: str
    source: str
    """the module, changed"""
    before: str
    after: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module; docstrings and annotations stay."""
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    for node, kind, changed in _changes(tree):
        before, after = ast.unparse(node), ast.unparse(changed) if changed is not None else "pass"
        lines = text.splitlines(keepends=True)
        line = getattr(node, "lineno", 0)
        start = _offset(lines, line, getattr(node, "col_offset", 0))
        stop = _offset(lines, getattr(node, "end_lineno", 0) or line, getattr(node, "end_col_offset", 0) or 0)
        data = text.encode()
        replaced = after if isinstance(node, ast.stmt) else f"({after})"
        source = (data[:start] + replaced.encode() + data[stop:]).decode()
        try:
            ast.parse(source)
        except SyntaxError:  # inside of an f-string, for example
            continue
        yield Mutant(path, line, kind, source, before, after)


def _offset(lines: list[str], line: int, column: int) -> int:
    """Return the offset in bytes of a place of `ast`, which counts columns in bytes too."""
    return sum(len(each.encode()) for each in lines[: line - 1]) + column


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, str, ast.AST | None]]:
    """Yield nodes, the kind of change, and what each becomes (``None``: nothing)."""
    for node in _code(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in _OPPOSITES:
            changed = deepcopy(node)
            changed.ops[0] = _OPPOSITES[type(node.ops[0])]()
            yield node, "comparison", changed
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "boolean", ast.Constant(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield node, "constant", ast.Constant(node.value + 1)
        elif isinstance(node, ast.BoolOp):
            changed_operation = deepcopy(node)
            changed_operation.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, "and, or", changed_operation
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "not", node.operand
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield node, "result", ast.Return(ast.Constant(None))
        elif isinstance(node, ast.Raise) and node.exc is not None:
            yield node, "raise", None
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield node, "call", None
        elif (
            isinstance(node, ast.Call)
            and len(node.args) > 1
            and not any(isinstance(a, ast.Starred) for a in node.args)
            and ast.unparse(node.func) not in {"max", "min"}  # the same in any order
            and ast.dump(node.args[0]) != ast.dump(node.args[1])
        ):
            changed_call = deepcopy(node)
            changed_call.args[:2] = changed_call.args[1::-1]
            yield node, "arguments", changed_call


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs when functions are called: no annotations, decorators, docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in node.body:
                yield from _expressions(statement)


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of `zip`, whose error shows a mistake of ours
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "args"} and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            is_code = isinstance(child, ast.AST) and not isinstance(
                child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.JoinedStr)
            )
            if is_code and not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                yield from _expressions(child)


def copied(folder: Path) -> Path:
    """Copy what tests need of the tree."""
    for name in ("src", "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def tests_of(module: Path) -> Iterator[list[str]]:
    """Yield arguments of pytest for a module: those that name it, where most mutants die, all of its room, others."""
    room = module.parts[0]
    units = ROOT / "tests" / "unit"
    yield [f"src/chunkmill/{module}", *_naming(module.stem, units / room)]
    yield [f"tests/unit/{room}"]
    if room in CONTRACTS:
        yield CONTRACTS[room]
    package = ".".join(["chunkmill", *module.parts[:-1]])
    imported = rf"{package}(\.{module.stem}| import .*\b{module.stem})"
    if importing := [each for each in _naming(imported, units) if not each.startswith(f"tests/unit/{room}/")]:
        yield importing


def _naming(name: str, folder: Path) -> list[str]:
    """Return the files of tests in a folder that name a module, which is a pattern."""
    found = re.compile(rf"\b{name}\b")
    tests = sorted(folder.rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in tests if found.search(f"{path.stem[5:]} {path.read_text('utf-8')}")]


def run(mutant: Mutant, tree: Path) -> str:
    """Return ``killed``, ``survived``, or ``out of time``."""
    place = tree / mutant.path.relative_to(ROOT)
    original = place.read_text("utf-8")
    place.write_text(mutant.source, "utf-8")
    try:
        for arguments in tests_of(mutant.path.relative_to(ROOT / "src" / "chunkmill")):
            verdict = _tested(arguments, tree)
            if verdict != "survived":
                return verdict
        return "survived"
    finally:
        place.write_text(original, "utf-8")


def _tested(arguments: list[str], tree: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *arguments]
    try:
        done = subprocess.run(
            ["bash", "-c", f'ulimit -t {SECONDS}; exec "$@"', "tests", *command],
            cwd=tree, env=environment, capture_output=True, timeout=MAX_WAIT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "out of time"
    if done.returncode in {-signal.SIGXCPU, -signal.SIGKILL}:
        return "out of time"
    return "survived" if done.returncode in {0, _NOTHING} else "killed"


def main() -> None:
    """Run some mutants, chosen by a seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=5)
    parser.add_argument("--room", default="", help="a folder of src/chunkmill; by default any that has unit tests")
    options = parser.parse_args()
    package = ROOT / "src" / "chunkmill"
    modules = [
        path
        for path in sorted(package.rglob(f"{options.room or '*'}/**/*.py"))
        if (ROOT / "tests" / "unit" / path.relative_to(package).parts[0]).is_dir()
    ]
    chosen = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = copied(Path(folder))
        counts: dict[str, int] = {}
        while sum(counts.values()) < options.number:
            mutants = list(mutants_of(chosen.choice(modules)))
            if not mutants:
                continue
            mutant = chosen.choice(mutants)
            verdict = run(mutant, tree)
            module = mutant.path.relative_to(package).as_posix()
            reason = HARMLESS.get((module, mutant.before), "") if verdict == "survived" else ""
            verdict = "harmless" if reason else verdict
            counts[verdict] = counts.get(verdict, 0) + 1
            where = f"{module}:{mutant.line} ({mutant.kind})"
            print(f"{verdict:11} {where}: {mutant.before!r} -> {mutant.after!r}", reason, flush=True)
        print(", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())))


if __name__ == "__main__":
    main()
