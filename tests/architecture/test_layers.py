"""Layers of the package: imports in one direction, formats and stores known in one place."""

import ast
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from support.code_lines import parse

from chunkmill.jobs.job import Job
from chunkmill.jobs.work import Work
from chunkmill.journal.journal import Journal

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "chunkmill").rglob("*.py"))


def test_imports_go_downwards_only():
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


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


def _asked_classes(source):
    """Names in the second argument of `isinstance`, and in comparisons with `type(…)`."""
    for node in ast.walk(parse(source)):
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
        for each in parse(path.read_text()).body
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
