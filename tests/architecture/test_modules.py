"""Modules that one can read at a sitting and tell apart by name."""

from pathlib import Path

from support.code_lines import code_lines

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "chunkmill"
SOURCES = sorted(PACKAGE.rglob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").glob("*.py"))


MOST_LINES = 400


def test_files_are_no_longer_than_one_can_read():
    lines = {str(path.relative_to(ROOT)): code_lines(path.read_text("utf-8")) for path in [*SOURCES, *BENCHMARKS]}
    assert len(lines) > 100
    assert not {path: n for path, n in lines.items() if n > MOST_LINES}


def test_names_say_something():
    assert not [path for path in SOURCES if path.stem in {"utils", "helpers", "common", "core"}]
