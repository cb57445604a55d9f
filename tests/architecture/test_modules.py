"""Modules that one can read at a sitting and tell apart by name, in rooms of few floors."""

import ast
import functools
import graphlib
import re
import tomllib
from pathlib import Path

import pytest
from support.code_lines import code_lines

grimp = pytest.importorskip("grimp", reason="comes with import-linter, of the group `check`")

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chunkmill"
SOURCES = sorted(PACKAGE.rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]

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

# room -> floors and files that it may have; the aim was 8 and 20: figures that only shrink
MOST_FLOORS_AND_FILES = {"journal": (8, 20), "nodes": (8, 19), "runtime": (8, 20)}


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


@functools.cache
def imports():
    """Module -> the modules that it imports, of the package, deferred ones included unless the contract names them."""
    graph = grimp.build_graph("chunkmill")
    for exempt in CONTRACTS[0]["ignore_imports"]:
        importer, imported = exempt.split(" -> ")
        graph.remove_import(importer=importer, imported=imported)
    modules = graph.modules - {"chunkmill"}
    return {module: graph.find_modules_directly_imported_by(module) & modules for module in modules}


def floors_of(imported):
    """Name -> floor, one above the highest that it imports; `graphlib.CycleError` where they import each other."""
    floors = {}
    for each in graphlib.TopologicalSorter(imported).static_order():
        floors[each] = 1 + max((floors[below] for below in imported[each]), default=0)
    return floors


def test_the_house_has_at_most_fourteen_floors_and_no_circle():
    """A room is a package or module directly below ``chunkmill``; the package's own face counts as a floor."""
    rooms = {}
    for module, imported in imports().items():
        rooms.setdefault(module.split(".")[1], set()).update(found.split(".")[1] for found in imported)
    floors = floors_of({room: below - {room} for room, below in rooms.items()})
    assert max(floors.values()) + 1 <= 14, floors


def test_no_module_is_in_a_circle():
    floors_of(imports())


@pytest.mark.parametrize("room", MOST_FLOORS_AND_FILES)
def test_rooms_have_few_floors_and_files(room):
    inside = {module for module in imports() if module.startswith(f"chunkmill.{room}.")}
    floors = floors_of({module: imports()[module] & inside for module in inside})
    most_floors, most_files = MOST_FLOORS_AND_FILES[room]
    assert max(floors.values()) <= most_floors, sorted(floors.items(), key=lambda item: item[1])
    assert len(list((PACKAGE / room).glob("*.py"))) <= most_files
