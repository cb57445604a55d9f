"""What the command line imports before it answers: help, completion and errors of usage are there at once."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner
from support.cases import cases

import chunkmill as cm
from chunkmill.cli.main import main

SLOW = {"dask", "distributed", "pandas", "xarray", "fsspec", "numcodecs", "rich"}

RUN = """
import json, sys
from chunkmill.cli.main import main
try:
    main(sys.argv[1:], prog_name="chunkmill")
except SystemExit as exit:
    code = exit.code
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def started(*words, **environment):
    """Run a command in a process of its own; return exit code, imported packages and output."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    code, packages = json.loads(done.stderr.splitlines()[-1])
    return code, set(packages), done.stdout + done.stderr


def commands(group=main, words=()):
    for name, command in group.commands.items():
        yield (*words, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))


def test_help_of_every_command_is_there_without_dask():
    """In one process: each of them with the modules that the ones before it imported."""
    every = [[*words, "--help"] for words in commands()]
    assert len(every) > 10
    script = f"""
import json, sys
from click.testing import CliRunner
from chunkmill.cli.main import main
print([CliRunner().invoke(main, words).exit_code for words in json.loads(sys.argv[1])])
print(sorted({SLOW!r} & set(sys.modules)))
"""
    command = [sys.executable, "-c", script, json.dumps(every)]
    codes, slow = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert (set(codes), slow) == (set(str([0] * len(every))), "[]")


@cases(
    ("words", "message"),
    [
        (["convrt"], "No such command 'convrt'"),
        (["convert", "a.n5", "b.zarr", "--chunkz", "1"], "--chunkz"),
        (["rechunk", "a", "b", "--chunks", "x"], "'x' is not a shape"),
        (["verify", "a"], "Missing argument 'B'"),
    ],
)
def test_errors_of_usage_import_nothing_slow(words, message):
    code, packages, output = started(*words)
    assert code == 2
    assert message in output
    assert not packages & SLOW


def test_completion_imports_nothing_slow():
    code, packages, output = started(
        _CHUNKMILL_COMPLETE="bash_complete", COMP_WORDS="chunkmill convert --format zarr3-", COMP_CWORD="3"
    )
    assert code == 0
    assert "zarr3-draft" in output
    assert not packages & SLOW


def test_version():
    assert CliRunner().invoke(main, ["--version"]).output == f"chunkmill, version {cm.__version__}\n"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("command", ["ls", "info"])
def test_warnings_are_one_line_of_ours(tmp_path, command):
    url = str(tmp_path / "a.zarr")
    cm.create_group(url, format="zarr2")
    cm.create_array(url, "x", shape=(2,), dtype="i4", format="zarr2")
    cm.consolidate(url)
    shutil.rmtree(tmp_path / "a.zarr" / "x")
    result = CliRunner().invoke(main, [command, url])
    assert result.exit_code == 0
    assert re.fullmatch(r"UserWarning: consolidated metadata name nodes [^\n]*\n", result.stderr)


def test_errors_are_one_json_object_where_json_is_asked_for(tmp_path):
    """A script need not take a sentence apart."""
    found = CliRunner().invoke(main, ["info", "--json", str(tmp_path / "nowhere")])
    assert found.exit_code == 3
    error = json.loads(found.stderr)
    assert (error["kind"], error["hint"]) == ("NodeNotFound", "the store has no keys there: is the url right?")
    assert error["message"].endswith("there is none")
    cm.create_array(tmp_path / "above" / "a", shape=(2,), dtype="i4")
    for place in ("nowhere", "above"):
        wrong = CliRunner().invoke(main, ["jobs", "--json", str(tmp_path / place)])
        assert (wrong.exit_code, json.loads(wrong.stderr)["kind"]) == (2, "UsageError")
        assert CliRunner().invoke(main, ["jobs", str(tmp_path / place)]).exit_code == 2
    assert CliRunner().invoke(main, ["jobs", str(tmp_path / "above" / "a")]).exit_code == 0


def test_verify_takes_one_path_for_both(tmp_path):
    for name in ("a", "b"):
        cm.create_array(tmp_path / name, "x/y", shape=(2,), dtype="i4")[...] = 1
    assert (
        CliRunner().invoke(main, ["verify", str(tmp_path / "a"), str(tmp_path / "b"), "--path", "x/y"]).exit_code == 0
    )
