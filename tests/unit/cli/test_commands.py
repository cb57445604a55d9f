"""Commands, through click's runner: what they print, store and end with."""

import json
import re
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from support.cases import cases

import chunkmill as cm
from chunkmill.cli.main import main


@pytest.fixture
def archive(tmp_path):
    """A group with an image stack, half of it missing, and a time axis; the values of the stack."""
    url = str(tmp_path / "archive.zarr")
    values = np.random.default_rng(0).integers(0, 9, (8, 6, 6), dtype="i2")
    values[4:] = 0
    cm.create_group(url, format="zarr2", attributes={"title": "[bold]x[/]", "limit": "NaN"})
    x = da.from_array(values, chunks=(2, 6, 6))
    cm.to_store(x, url, "stack", format="zarr2", dimension_names=("t", "y", "x"), attributes={"units": "[K]"})
    cm.create_array(url, "deep/time", shape=(8,), dtype="M8[s]", chunks=(8,), format="zarr2")
    return url


def run(*args, code=0):
    result = CliRunner().invoke(main, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def run_json(*args, code=0):
    return json.loads(run(*args, "--json", code=code).stdout)


# --------------------------------------------------------------------------------------------------------------------
# info, ls


def test_info_counts_what_is_stored(archive):
    text = run("info", archive, "--path", "stack").stdout
    for line in ("(8, 6, 6)", "int16", "chunks           (2, 6, 6)", "units: [K]", "t, y, x", "zstd"):
        assert line in text
    facts = run_json("info", archive, "--path", "stack", "--missing")
    assert facts["missing_chunks"] == 2
    assert facts["compression_ratio"] == round(facts["bytes"] / facts["stored_bytes"], 2)
    assert "missing_chunks" not in run_json("info", archive, "--path", "stack")


def test_what_steers_a_terminal_is_shown(tmp_path):
    """Names and attributes come from others: a store must not clear screens, set titles, or write backwards."""
    url = str(tmp_path / "x.zarr")
    cm.create_group(url, attributes={"ti\x1b]0;tle\x07": "a\x1b[2Jb\u202ec", "caf\xe9": "\N{DEGREE SIGN}C"})
    cm.create_group(url, "no\x1b[31mde")
    for command in ("info", "ls", "check"):
        assert not set(run(command, url).stdout) & set("\x1b\x07\u202e")
    text = run("info", url).stdout
    assert "a\\x1b[2Jb\\u202ec" in text
    assert "caf\xe9: \N{DEGREE SIGN}C" in text
    assert "no\\x1b[31mde" in run("ls", url).stdout
    error = run("info", url, "--path", "\x1b[2J", code=3).stderr
    assert "\x1b" not in error


# --------------------------------------------------------------------------------------------------------------------
# Jobs


def test_dry_run_writes_nothing(archive, tmp_path):
    target = tmp_path / "new.zarr"
    plan = run_json("convert", archive, target, "--dry-run")
    assert (plan["operation"], plan["actions"], plan["at_target"]) == ("convert", {"copy": 5}, "")
    assert not target.exists()


def test_dry_run_says_what_is_at_the_target(archive, tmp_path):
    target = tmp_path / "new.zarr"
    command = ["convert", archive, target, "--codecs", "gzip", "--dry-run"]
    assert "at target" not in run(*command).stdout
    cm.create_group(target)
    for path in (tmp_path / "other.n5", tmp_path / "below.n5"):
        cm.create_array(path, "a/b", shape=(2,), dtype="u1", chunks=(2,), format="n5")
    there = "is there already, so that this fails; --overwrite replaces it"
    assert f"at target: a group of format zarr3 {there}\n" in run(*command).stdout
    assert run_json(*command, "--overwrite")["at_target"] == (
        "a group of format zarr3, which will be replaced when the new one is complete"
    )
    as_n5 = ["convert", archive, tmp_path / "other.n5", "--path=stack", "--format=n5", "--target-path", "--dry-run"]
    as_n5.insert(-1, "a/b")
    assert run_json(*as_n5)["at_target"] == f"an array of format n5 {there}"
    (target / "zarr.json").write_text("{")
    assert run_json(*command)["at_target"].startswith("a node that does not open")


def test_dry_run_says_that_a_job_is_unfinished(archive, tmp_path):
    target = tmp_path / "new.zarr"
    (tmp_path / "archive.zarr" / "stack" / "0.0.0").write_bytes(b"torn")
    command = ["convert", archive, target, "--codecs", "gzip"]
    run(*command, code=3)
    before = sorted(target.rglob("*"))
    assert "at target: an unfinished job of this plan, which will be resumed\n" in run(*command, "--dry-run").stdout
    assert run_json(*command, "--dry-run", "--restart")["at_target"] == ""
    other = run_json("convert", archive, target, "--codecs", "zstd", "--dry-run")
    assert other["at_target"] == "an unfinished job of another plan, so that this fails; --restart discards it"
    assert sorted(target.rglob("*")) == before


def test_convert_and_verify(archive, tmp_path):
    target = tmp_path / "new.zarr"
    report = run_json("convert", archive, target, "--shards", "4,6,6", "--codecs", '{"name": "gzip"}')
    assert report["seconds"] > 0
    assert cm.open_array(target, "stack").shards == (4, 6, 6)
    assert run_json("verify", archive, target)["equal"]
    cm.open_array(target, "stack", mode="r+")[0, 0, 0] = 77
    assert "values differ: 1 of" in run("verify", archive, target, code=1).stdout
    cm.open_array(target, "stack", mode="r+")[...] = 77  # wherever the sample looks
    assert run_json("verify", archive, target, "--sample", "0.5", code=1)["sampled"]


def test_rechunk_one_array(archive, tmp_path):
    target = tmp_path / "series.zarr"
    run("rechunk", archive, target, "--path", "stack", "--target-path", "a/b", "--chunks=-1,2,3", "--max-mem", "64MiB")
    series = cm.open_array(target, "a/b")
    assert (series.chunks, series.format) == ((8, 2, 3), "zarr2")
    run("verify", archive, target, "--path-a", "stack", "--path-b", "a/b")
    run("verify", target, target, "--path", "a/b")


def test_overwrite_must_be_asked_for(archive, tmp_path):
    run("convert", archive, tmp_path / "new.n5", "--format", "n5", "--path", "stack", "--codecs", "gzip")
    again = ["convert", archive, tmp_path / "new.n5", "--format", "n5", "--path", "stack", "--codecs", "gzip"]
    assert "NodeExists" in run(*again, code=3).stderr
    run(*again, "--overwrite")


def test_options_of_the_target_are_for_its_filesystem(archive):
    pytest.importorskip("obstore")
    told = run("convert", archive, "gs://bucket/x", "--target-option", "token=neither", "--dry-run", code=3).stderr
    assert "token= of Google is 'anon'" in told


def test_what_may_be_lost_is_named(archive, tmp_path):
    # N5 has no fill value
    cm.create_array(archive, "filled", shape=(4,), dtype="i4", chunks=(2,), format="zarr2", fill_value=7)
    args = ["convert", archive, tmp_path / "f.n5", "--path", "filled", "--format", "n5", "--codecs", "raw"]
    assert "fill" in run(*args, code=3).stderr
    run(*args, "--allow", "fill_value")
    assert cm.open_array(tmp_path / "f.n5")[...].tolist() == [7] * 4


def test_progress_goes_to_stderr(archive, tmp_path):
    result = run("convert", archive, tmp_path / "p.zarr", "--json", "--progress")
    assert json.loads(result.stdout)
    assert "tasks" in result.stderr


@cases(
    ("args", "message"),
    [
        (["convert", "a", "b", "--format", "hdf5"], "'hdf5' is not one of"),
        (["verify", "a", "b", "--sample", "2"], "not in the range"),
        (["rechunk", "a", "b"], "Missing option '--chunks'"),
    ],
)
def test_wrong_arguments_exit_with_2(args, message):
    assert message in run(*args, code=2).stderr


def test_what_is_no_store_is_named(archive, tmp_path):
    (tmp_path / "x.nc").write_bytes(b"CDF")
    assert "that is a file, and neither a zip file" in run("info", tmp_path / "x.nc", code=3).stderr
    chunk = Path(archive) / "stack" / "1.0.0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-3])
    again = ["convert", archive, tmp_path / "new.zarr", "--codecs", "gzip", "--scheduler", "synchronous"]
    run(*again, code=3)
    for path in ("", "stack"):
        assert "run it again to resume it" in run("info", tmp_path / "new.zarr", "--path", path, code=3).stderr
    chunk.write_bytes(whole)
    run(*again)
    assert cm.open_group(tmp_path / "new.zarr")


@cases(
    ("args", "expected"),
    [
        (["convert", "SOURCE", "OTHER"], "group already; --overwrite replaces it"),
        (["convert", "SOURCE", "new", "--chunks", "2"], "--chunks=2 .*1 lengths for 2 axes"),
        (["rechunk", "SOURCE", "new", "--chunks", "1,2,3"], r"3 lengths for 2 axes"),
        (["info", "SOURCE", "--path", "nope"], "is the url right, and the path\\? Without --path its root is opened"),
        (["convert", "SOURCE", "new", "--shards", "3,3"],
         "give --shards that are multiples of --chunks, or --shards=none"),
        (["convert", "ZERO", "new", "--format", "n5"], r"n5 does not support arrays of 0 dimensions \(in 'a/attrib"),
        (["rechunk", "SOURCE", "new", "--chunks", "4,1", "--max-mem", "8"], r"give --max-mem=\d+ or more"),
        (["convert", "FILLED", "new", "--format", "n5", "--codecs", "raw"], "; --allow fill_value converts without"),
    ],
)  # fmt: skip
def test_messages_are_in_the_words_of_the_command_line(tmp_path, args, expected):
    source = str(tmp_path / "in.zarr")
    cm.create_array(source, "g/a", shape=(4, 4), dtype="i4", chunks=(2, 2))[...] = 1
    cm.create_group(tmp_path / "other")
    cm.create_array(tmp_path / "filled", shape=(4,), dtype="i4", chunks=(2,), fill_value=7)
    cm.create_array(tmp_path / "zero", "a", shape=(), dtype="i4", chunks=())
    places = {
        "ZERO": tmp_path / "zero", "FILLED": tmp_path / "filled", "SOURCE": source, "OTHER": tmp_path / "other",
        "new": tmp_path / "new",
    }  # fmt: skip
    result = run(*(places.get(arg, arg) for arg in args), code=3)
    assert re.search(expected, result.stderr)
    assert not (tmp_path / "new").exists()
