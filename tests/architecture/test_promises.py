"""Each promise of the page is kept by code that names it, and proved by tests that name it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
PROMISES = {f"P{n}" for n in range(1, 15)}
NAMED = re.compile(r"\bP(?:1[0-4]|[1-9])\b")

PACKAGE = ROOT / "src" / "chunkmill"
ROOMS = ("jobs", "journal", "runtime")  # which do nothing but keep promises, but for these of their modules:
OTHERS = {"__init__", "computed", "plan", "scheduler", "stage"}
MODULES = ("nodes/delete", "nodes/documents", "nodes/target", "stores/conflicts", "xarray/publication")


def named(paths):
    return {name for path in paths for name in NAMED.findall(path.read_text("utf-8"))}


def test_the_page_has_each_promise_once():
    assert re.findall(r"^\| \*\*(P\d+)\*\* \|", PAGE, re.MULTILINE) == sorted(PROMISES, key=lambda name: int(name[1:]))


def test_each_promise_is_named_where_it_is_kept():
    assert named((ROOT / "src").rglob("*.py")) == PROMISES


def test_each_promise_has_a_test():
    others = (path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__))
    assert named(others) == PROMISES


def test_each_module_of_guards_names_its_promise():
    guards = [path for room in ROOMS for path in (PACKAGE / room).glob("*.py") if path.stem not in OTHERS]
    assert len(guards) > 15
    guards += [PACKAGE / f"{name}.py" for name in MODULES]
    assert not [path.name for path in guards if not NAMED.search(path.read_text("utf-8"))]
