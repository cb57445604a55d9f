"""Layers of the package: imports in one direction, formats and stores known in one place, a list of public names."""

import ast
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import chunkmill
from chunkmill.jobs.job import Job
from chunkmill.jobs.work import Work
from chunkmill.journal.journal import Journal

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "chunkmill").rglob("*.py"))


def test_there_are_sources():
    assert len(SOURCES) > 30


def test_imports_go_downwards_only():
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


UPWARDS = {  # what users hold draws itself, and becomes a dask array: imported inside the function
    ("nodes/array.py", "dask_arrays"),
    ("nodes/array.py", "display"),
    ("nodes/array.py", "runtime"),
    ("nodes/changes.py", "dask_arrays"),
    ("nodes/group.py", "dask_arrays"),
    ("nodes/group.py", "display"),
}


def _named_modules(path):
    """Yield the modules of the package that a file names: imports anywhere in it, for types too, and in strings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("chunkmill."):
            inside = [f"{node.module}.{each.name}" for each in node.names]
            yield from (each for each in inside if each in MODULES)
            yield node.module
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"import_module", "when_imported"}:
            yield from (a.value for a in node.args if isinstance(a, ast.Constant) and a.value in MODULES)


PACKAGE = ROOT / "src" / "chunkmill"
MODULES = {"chunkmill." + ".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in SOURCES}
NAMED = {path: {MODULES[n] for n in _named_modules(path) if n in MODULES} - {path} for path in MODULES.values()}


def _room(path):
    return path.relative_to(PACKAGE).parts[0]


def test_no_room_names_one_above_it_but_these():
    order = re.findall(
        r'^    "([a-z_ |]+)",$', (ROOT / "pyproject.toml").read_text().split("layers = [")[1], re.MULTILINE
    )
    floors = {room: i for i, floor in enumerate(order) for room in floor.split(" | ")}
    assert floors["cli"] == 0
    above = {
        (path.relative_to(PACKAGE).as_posix(), _room(other))
        for path, others in NAMED.items()
        for other in others
        if _room(path) in floors and _room(other) in floors and floors[_room(other)] < floors[_room(path)]
    }
    assert above == UPWARDS


def test_no_circle_of_modules():
    """Imports inside functions and for types included: who reads one module needs none that needs it."""
    left = {
        path: {o for o in others if (path.relative_to(PACKAGE).as_posix(), _room(o)) not in UPWARDS}
        for path, others in NAMED.items()
        if path.parent != PACKAGE
    }
    while free := [path for path, others in left.items() if not others & left.keys()]:
        for path in free:
            del left[path]
    assert not sorted(str(path.relative_to(PACKAGE)) for path in left)


@pytest.mark.parametrize("kind", [Journal, Job, Work])
def test_what_carries_a_job_is_small_and_has_no_flags(kind):
    known = [(each.name, str(each.type)) for each in fields(kind)]
    assert len(known) <= 7
    assert not [name for name, of in known if "bool" in of]


def test_nothing_is_left_for_later():
    left = re.compile(r"raise NotImplementedError|\bTODO\b|\bFIXME\b|\bXXX\b")
    assert not [p for p in SOURCES if left.search(p.read_text())]


def test_only_the_format_layer_knows_formats():
    """Formats end where the model begins: no question about a format outside ``formats/``."""
    names = r"[\"'](zarr2|zarr3|zarr3-draft|zarr3-experimental|n5)[\"']"
    question = re.compile(rf"[\"']zarr_format[\"']|\bzarr_format *[!=]=|(==|\bin\b|frozenset\() *[({{\[]*{names}")
    own = {"formats", "codecs"}
    package = ROOT / "src" / "chunkmill"
    asked = [p for p in SOURCES if p.relative_to(package).parts[0] not in own and question.search(p.read_text())]
    assert not asked


def test_public_names():
    assert sorted(chunkmill.__all__) == [
        "Array",
        "ChunkmillError",
        "Group",
        "Plan",
        "Report",
        "check",
        "concat_references",
        "consolidate",
        "convert",
        "create_array",
        "create_arrays",
        "create_group",
        "delete",
        "errors",
        "from_store",
        "jobs",
        "open",
        "open_array",
        "open_group",
        "plan_convert",
        "plan_pyramid",
        "plan_rechunk",
        "plan_scan",
        "plan_transform",
        "pyramid",
        "rechunk",
        "resume",
        "scan",
        "show_versions",
        "store",
        "suggest_chunks",
        "to_references",
        "to_store",
        "transform",
        "verify",
        "write_dataset",
        "zarr_store",
    ]
    assert all(hasattr(chunkmill, name) for name in chunkmill.__all__)
    assert dir(chunkmill) == sorted([*chunkmill.__all__, "__version__"])


def _asked_classes(source):
    """Names in the second argument of `isinstance`, and in comparisons with `type(…)`."""
    for node in ast.walk(ast.parse(source)):
        asked = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"isinstance", "issubclass"}:
            asked = node.args[1:]
        elif isinstance(node, ast.Compare) and any(getattr(call, "id", "") == "type" for call in _called(node)):
            asked = [node]
        yield from (name.id for each in asked for name in ast.walk(each) if isinstance(name, ast.Name))


def _called(node):
    return [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]


def test_only_the_stores_know_their_classes():
    """What a store can do is asked of itself: a store of a user's own is as good as ours."""
    package = ROOT / "src" / "chunkmill"
    stores = {
        each.name
        for path in (package / "stores").glob("*.py")
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.ClassDef) and each.name.endswith("Store") and each.name != "Store"
    }
    assert {"LocalStore", "MemoryStore", "ZipStore", "FsspecStore", "OverlayStore", "ReferenceStore"} <= stores
    assert stores & set(_asked_classes("isinstance(innermost(x.store), (ZipStore, str))"))
    assert stores & set(_asked_classes("type(x) is LocalStore"))
    asked = {
        (str(path.relative_to(package)), name)
        for path in SOURCES
        if path.relative_to(package).parts[0] != "stores"
        for name in _asked_classes(path.read_text())
    }
    assert not {(path, name) for path, name in asked if name in stores}
