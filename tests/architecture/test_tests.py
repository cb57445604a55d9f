"""Tests stand where one looks for them: a file of the same name in the same folder, helpers in ``tests/support``."""

import ast
import functools
import pkgutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chunkmill"
UNITS = ROOT / "tests" / "unit"


def test_tests_stand_in_the_same_tree_as_the_code():
    """Each file of unit tests tests the module of that name, or a subject of its package."""
    folders = {str(path.parent.relative_to(UNITS)) for path in UNITS.rglob("test_*.py")}
    assert folders
    assert not {folder for folder in folders if not (PACKAGE / folder).is_dir()}


def test_helpers_of_tests_are_in_packages():
    """In ``tests/`` itself, a module would take a name that any other package may have."""
    assert [path.name for path in (ROOT / "tests").glob("*.py")] == ["conftest.py"]


def test_what_tests_import_of_the_package_exists():
    """Found in a second, where it would take a minute to collect every test."""
    missing = set()
    for path in [*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]:
        if "recipes" in path.parts:  # import what they make
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "chunkmill":
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                missing |= {(path.relative_to(ROOT).as_posix(), name) for name in names if not exists(name)}
    assert not missing


@functools.cache
def exists(name):
    """Whether a dotted name leads to a module, to a name in one, or to a field of a class."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, ValueError):
        return False
    except AttributeError:
        above, _, last = name.rpartition(".")
        return exists(above) and last in getattr(pkgutil.resolve_name(above), "__annotations__", {})
    return True
