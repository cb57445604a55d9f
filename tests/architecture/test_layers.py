"""The structure that the design promises: one-way imports, small files, a public face that is a list."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import chunkmill

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "chunkmill").rglob("*.py"))

# Files over the budget, each with its reason.
LONG_FILES = {}
MAX_LINES = 500


def test_there_are_sources():
    assert len(SOURCES) > 30


def test_imports_go_downwards_only():
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_no_file_is_longer_than_one_can_read(path):
    name = str(path.relative_to(ROOT / "src" / "chunkmill"))
    n_lines = len(path.read_text().splitlines())
    assert n_lines <= (MAX_LINES if name in LONG_FILES else 400)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_no_names_that_say_nothing(path):
    assert path.name not in {"utils.py", "helpers.py", "common.py", "core.py"}


def test_nothing_is_left_for_later():
    left = re.compile(r"NotImplementedError|\bTODO\b|\bFIXME\b|\bXXX\b")
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
        "CheckReport",
        "ChunkmillError",
        "Difference",
        "Group",
        "Problem",
        "ReferencesReport",
        "VerifyReport",
        "check",
        "concat_references",
        "consolidate",
        "convert",
        "create_array",
        "create_group",
        "errors",
        "from_store",
        "open",
        "open_array",
        "open_group",
        "plan_convert",
        "plan_rechunk",
        "rechunk",
        "store",
        "to_references",
        "to_store",
        "verify",
        "write_dataset",
    ]
    assert all(hasattr(chunkmill, name) for name in chunkmill.__all__)
