"""Each promise of the page is kept by code that names it, and proved by tests that name it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
PROMISES = {f"P{n}" for n in range(1, 15)}
NAMED = re.compile(r"\bP(?:1[0-4]|[1-9])\b")

GUARDS = [  # rooms and modules that do nothing but keep a promise
    *sorted((ROOT / "src" / "chunkmill" / "journal").glob("[a-z]*.py")),
    *(
        ROOT / "src" / "chunkmill" / f"{name}.py"
        for name in (
            "array/threads",
            "array/staleness",
            "checks/inventory",
            "conversion/stages",
            "dask_arrays/hazards",
            "dask_arrays/resumable_write",
            "jobs/job",
            "jobs/resume",
            "jobs/sources",
            "jobs/stored_jobs",
            "nodes/delete",
            "nodes/documents",
            "nodes/target",
            "references/files",
            "runtime/cancellation",
            "runtime/locks",
            "runtime/cluster_tasks",
            "runtime/preflight",
            "runtime/task",
            "runtime/worker_memory",
            "scans/records",
            "stores/conflicts",
            "xarray/publication",
        )
    ),
]


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
    assert len(GUARDS) > 15
    assert not [path.name for path in GUARDS if not NAMED.search(path.read_text("utf-8"))]
