"""What the command line imports before it answers: help, completion and errors of usage are there at once."""

import json
import re
import shutil

import pytest
from click.testing import CliRunner
from support.cases import cases
from support.scripts import run_script

import chunkmill as cm
from chunkmill.cli.main import main

SLOW = {"dask", "distributed", "pandas", "xarray", "fsspec", "numcodecs", "rich"}

USAGE = {
    ("convrt",): "No such command 'convrt'",
    ("convert", "a.n5", "b.zarr", "--chunkz", "1"): "--chunkz",
    ("rechunk", "a", "b", "--chunks", "x"): "'x' is not a shape",
    ("verify", "a"): "Missing argument 'B'",
}
COMPLETION = {
    "_CHUNKMILL_COMPLETE": "bash_complete", "COMP_WORDS": "chunkmill convert --format zarr3-", "COMP_CWORD": "3",
}  # fmt: skip


def commands(group=main, words=()):
    for name, command in group.commands.items():
        yield (*words, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))


def test_help_errors_of_usage_and_completion_import_nothing_slow():
    """In one process: each of them with the modules that the ones before it imported."""
    helped = [[*words, "--help"] for words in commands()]
    assert len(helped) > 10
    script = f"""
import json, sys
from click.testing import CliRunner
from chunkmill.cli.main import main
calls = [(words, {{}}) for words in {[*helped, *map(list, USAGE)]}] + [([], {COMPLETION})]
results = [CliRunner().invoke(main, words, env=variables, prog_name="chunkmill") for words, variables in calls]
print(json.dumps([[result.exit_code, result.output] for result in results]))
print(sorted({SLOW!r} & set(sys.modules)))
"""
    results, slow = run_script(script).splitlines()
    *answers, completed = json.loads(results)
    assert [code for code, _ in answers] == [0] * len(helped) + [2] * len(USAGE)
    for said, (_, output) in zip(USAGE.values(), answers[len(helped) :], strict=True):
        assert said in output
    assert completed[0] == 0
    assert "zarr3-draft" in completed[1]
    assert slow == "[]"


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


@cases(
    ("words", "kind", "message"),
    [
        (["convert", "a", "b", "--chunkz", "1"], "NoSuchOption", "No such option '--chunkz'"),
        (["convert", "a", "b", "--format", "zar"], "BadParameter", "Invalid value for '--format': 'zar'"),
        (
            ["verify", "a", "b", "--sample", "2"],
            "BadParameter",
            "Invalid value for '--sample': 2.0 is not in the range",
        ),
        (["verify", "a"], "MissingParameter", "Missing argument 'B'"),
        (["convrt", "a"], "NoSuchCommand", "No such command 'convrt'"),
        (["refs", "combine"], "MissingParameter", "Missing argument"),
    ],
)
def test_errors_of_arguments_are_json_too(words, kind, message):
    found = CliRunner().invoke(main, [*words, "--json"])
    error = json.loads(found.stderr)
    assert (found.exit_code, error["kind"]) == (2, kind)
    assert error["message"].startswith(message)
    assert CliRunner().invoke(main, words).stderr.startswith("Usage: ")
