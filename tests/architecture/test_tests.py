"""Tests stand where one looks for them: a file of the same name in the same folder, helpers in ``tests/support``."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chunkmill"
UNITS = ROOT / "tests" / "unit"

# room -> modules whose tests have another name: figures that only shrink
WITHOUT_TESTS_OF_THEIR_NAME = {
    "array": 10,
    "checks": 1,
    "cli": 5,
    "codecs": 6,
    "conversion": 4,
    "errors": 1,
    "formats": 12,
    "model": 8,
    "nodes": 15,
    "pyramids": 4,
    "runtime": 3,
    "stores": 15,
    "xarray": 2,
}


def test_tests_stand_in_the_same_tree_as_the_code():
    """Each file of unit tests tests the module of that name, or a subject of its package."""
    folders = {str(path.parent.relative_to(UNITS)) for path in UNITS.rglob("test_*.py")}
    assert folders
    assert not {folder for folder in folders if not (PACKAGE / folder).is_dir()}


def test_modules_have_unit_tests_of_their_name():
    tested = {path.with_name(path.name.removeprefix("test_")).relative_to(UNITS) for path in UNITS.rglob("test_*.py")}
    modules = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    assert len(modules & tested) > 50
    without = {}
    for path in sorted(modules - tested):
        without.setdefault(path.with_suffix("").parts[0], []).append(path.as_posix())
    assert not {room: paths for room, paths in without.items() if len(paths) > WITHOUT_TESTS_OF_THEIR_NAME.get(room, 0)}


def test_helpers_of_tests_are_in_packages():
    """In ``tests/`` itself, a module would take a name that any other package may have."""
    assert [path.name for path in (ROOT / "tests").glob("*.py")] == ["conftest.py"]
