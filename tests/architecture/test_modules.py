"""Modules that one can read at a sitting and tell apart by name."""

import ast
import re
from pathlib import Path

from support.code_lines import code_lines

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chunkmill"
SOURCES = sorted(PACKAGE.rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


MOST_LINES = 400
FEWEST_LINES = 40

# a codec is a file each, whatever its size, and these have been as they are for long
MAY_BE_SMALL = {
    "array/chunk_io", "array/layout", "array/selection", "conversion/rechunking/plan",
    "conversion/rechunking/strategies", "model/grid",
}  # fmt: skip

# not yet part of the module to which they belong: a list that only shrinks
STILL_SMALL = {
    "dask_arrays/as_dask",
    "hints",
    "log",
}  # fmt: skip


def name(path):
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def test_files_are_no_longer_than_one_can_read():
    lines = {str(path.relative_to(ROOT)): code_lines(path.read_text("utf-8")) for path in [*SOURCES, *BENCHMARKS]}
    assert len(lines) > 100
    assert not {path: n for path, n in lines.items() if n > MOST_LINES}


def is_small(path):
    """Whether a module is too small to be one: few lines of code, and no circle that it would take to join it."""
    if path.name == "__init__.py" or name(path).startswith("codecs/") or name(path) in MAY_BE_SMALL:
        return False
    text = path.read_text("utf-8")
    return code_lines(text) < FEWEST_LINES and not re.search(r"\bcircle\b", ast.get_docstring(ast.parse(text)) or "")


def test_small_modules_break_a_circle_and_say_so():
    assert {name(path) for path in SOURCES if is_small(path)} <= STILL_SMALL


def test_names_say_something():
    assert not [path for path in SOURCES if path.stem in {"utils", "helpers", "common", "core"}]
