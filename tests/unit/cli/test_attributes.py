"""``chunkmill attrs``: attributes printed and changed."""

import json

import pytest
from click.testing import CliRunner
from support.cases import cases

import chunkmill as cm
from chunkmill.cli.main import attrs


def run(*args, code=0):
    result = CliRunner().invoke(attrs, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


@cases("kind", ["zarr2", "zarr3", "zarr3-draft", "n5"])
def test_attributes_are_changed_in_the_store(tmp_path, kind):
    url = tmp_path / "a"
    cm.create_group(url, format=kind, attributes={"title": "x", "old": 1})
    cm.create_array(url, "v", shape=(4,), dtype="i4", format=kind)
    changed = run(url, "--set", "range=[1, 2.5]", "--set", "title=two words", "--unset", "old", "--json")
    assert json.loads(changed.stdout) == dict(cm.open(url).attributes) == {"title": "two words", "range": [1, 2.5]}
    run(url, "--path", "v", "--set", "units=K")
    assert run(url, "--path", "v").stdout == 'units = "K"\n'
    assert list(cm.open_group(url)) == ["v"]


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--unset", "b"), r"--unset names ['b'], where the attributes are ['a']"), (("--set", "a"), "is not KEY=VALUE")],
)
def test_wrong_usage_changes_nothing(tmp_path, options, message):
    cm.create_group(tmp_path / "a", attributes={"a": 0})
    assert message in run(tmp_path / "a", *options, code=2).stderr
    assert dict(cm.open(tmp_path / "a").attributes) == {"a": 0}


def test_a_conversion_of_chosen_nodes(tmp_path):
    from chunkmill.cli.main import main

    group = cm.create_group(tmp_path / "a", format="zarr2")
    for path in ("t2m", "mask", "level/v"):
        group.create_array(path, shape=(4, 3), chunks=(1, 3), dtype="f4")[:2] = 1
    command = ["convert", str(tmp_path / "a"), str(tmp_path / "b"), "--format", "zarr2"]
    command += ["--include", "t2m", "--include", "level", "--dimension-names", "y,x", "--chunks", "y=-1"]
    result = CliRunner().invoke(main, [*command, "--chunk-key-encoding", "/"])
    assert result.exit_code == 0, result.output
    found = cm.open_group(tmp_path / "b")
    assert (list(found), found["t2m"].chunks, found["t2m"].dimension_names) == (["level", "t2m"], (4, 3), ("y", "x"))
    assert (tmp_path / "b" / "t2m" / "0" / "0").exists()
