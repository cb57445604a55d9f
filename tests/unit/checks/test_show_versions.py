"""Versions for reports: every package that chunkmill requires or can use, by name."""

import io
import tomllib
from pathlib import Path

import chunkmill as cm
from chunkmill.checks.doctor import environment

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]


def test_every_requirement_is_shown():
    packages = environment()["packages"]
    names = {each.partition("[")[0].partition(">")[0].partition("=")[0] for each in PROJECT["dependencies"]}
    assert names <= {name for name, found in packages.items() if found}
    assert {"boto3", "obstore", "pyarrow"} <= packages.keys()


def test_lines():
    lines = io.StringIO()
    cm.show_versions(lines)
    names = [line.split()[0] for line in lines.getvalue().splitlines()]
    assert names[:3] == ["chunkmill", "python", "system"]
    assert "numcodecs" in names
