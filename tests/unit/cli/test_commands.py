"""Commands, through click's runner: what they print, store and end with."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.arrays import filled
from support.cases import cases
from support.commands import run, run_json

import chunkmill as cm
from chunkmill.cli.main import main


@pytest.fixture
def archive(tmp_path):
    """A group with an image stack, half of it missing, and a time axis; the values of the stack."""
    url = str(tmp_path / "archive.zarr")
    values = np.random.default_rng(0).integers(0, 9, (8, 6, 6), dtype="i2")
    values[4:] = 0
    cm.create_group(url, format="zarr2", attributes={"title": "[bold]x[/]", "limit": "NaN"})
    about = {"dimension_names": ("t", "y", "x"), "attributes": {"units": "[K]"}}
    filled(values, url, "stack", chunks=(2, 6, 6), format="zarr2", **about)
    cm.create_array(url, "deep/time", shape=(8,), dtype="M8[s]", chunks=(8,), format="zarr2")
    return url


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


def test_info_of_all_below(tmp_path):
    for above in ("", "below/it"):
        group = cm.create_group(tmp_path / "k.zarr", above, attributes={"title": "all"})
        group.create_array("t", shape=(3, 4), dtype="f4", dimension_names=("time", "x"), attributes={"units": "K"})
        group.create_array("time", shape=(3,), dtype="i8", dimension_names=("time",))
    shown = run("info", "-r", tmp_path / "k.zarr").output
    assert any(each.startswith("array") and "below/it/t\n" in each for each in shown.split("\n\n"))
    assert "K" in shown
    assert {each["path"] for each in run_json("info", "-r", tmp_path / "k.zarr")} >= {"", "t", "time", "below/it/t"}


def test_ls_draws_a_tree_or_a_table(archive):
    tree, table = run("ls", archive).stdout, run("ls", "--long", archive).stdout
    assert [name in tree for name in ("stack", "deep", "time")] == [True] * 3
    assert "codecs" not in tree
    assert re.search(r"stack +\(8, 6, 6\) +int16 ", table)
    assert "stack" in run("ls", archive, "--path", "stack").stdout
    assert {each["path"] for each in run_json("ls", archive)} == {"", "stack", "deep", "deep/time"}


@cases("command", ["info", "ls", "verify", "convert"])
def test_consolidated_metadata_are_used_as_asked(tmp_path, command):
    """Of a node that only documents have, and where there are none at all."""
    url, others = tmp_path / "a", {"verify": [tmp_path / "b"], "convert": [tmp_path / "c", "--dry-run"]}
    for each in (url, tmp_path / "b"):
        cm.create_array(each, "x", shape=(2,), dtype="i4", format="zarr2")
    words = [command, "--json", url, *others.get(command, [])]
    assert "consolidated" in run(*words, "--consolidated", code=3).stderr
    cm.consolidate(url)
    (url / "x" / ".zattrs").write_text('{"since": 1}')
    if command in {"info", "ls"}:
        words += ["--path", "x"]
    said, ignored = (CliRunner().invoke(main, [*map(str, words), it]) for it in ("--consolidated", "--no-consolidated"))
    assert said.exit_code == 0
    assert ("since" in ignored.stdout) is (command != "convert")
    assert "since" not in said.stdout


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


def test_dry_run_writes_nothing_and_says_what_is_at_the_target(archive, tmp_path):
    target = tmp_path / "new.zarr"
    plan = run_json("convert", archive, target, "--dry-run")
    assert (plan["operation"], plan["actions"], plan["at_target"]) == ("convert", {"copy": 5}, "")
    assert not target.exists()
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
    as_n5 = ["convert", archive, tmp_path / "other.n5", "--path=stack", "--format=n5", "--target-path=a/b", "--dry-run"]
    assert run_json(*as_n5)["at_target"] == f"an array of format n5 {there}"
    (target / "zarr.json").write_text("{")
    assert run_json(*command)["at_target"].startswith("a node that does not open")


def test_dry_run_says_that_a_job_is_unfinished(archive, tmp_path):
    target = tmp_path / "new.zarr"
    (tmp_path / "archive.zarr" / "stack" / "0.0.0").write_bytes(b"torn")
    assert "stack/0.0.0" in run("check", archive, code=1).stdout
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
    command = ["convert", archive, tmp_path / "new.n5", "--format", "n5", "--path", "stack", "--codecs", "gzip"]
    run(*command)
    assert "NodeExists" in run(*command, code=3).stderr
    run(*command, "--overwrite")


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
    places = {name: tmp_path / name for name in ("SOURCE", "OTHER", "FILLED", "ZERO", "new")}
    cm.create_array(places["SOURCE"], "g/a", shape=(4, 4), dtype="i4", chunks=(2, 2))[...] = 1
    cm.create_group(places["OTHER"])
    cm.create_array(places["FILLED"], shape=(4,), dtype="i4", chunks=(2,), fill_value=7)
    cm.create_array(places["ZERO"], "a", shape=(), dtype="i4", chunks=())
    result = run(*(places.get(arg, arg) for arg in args), code=3)
    assert re.search(expected, result.stderr)
    assert not (tmp_path / "new").exists()


def test_a_conversion_of_chosen_nodes(tmp_path):
    group = cm.create_group(tmp_path / "a", format="zarr2")
    for path in ("t2m", "mask", "level/v"):
        group.create_array(path, shape=(4, 3), chunks=(1, 3), dtype="f4")[:2] = 1
    command = ["convert", tmp_path / "a", tmp_path / "b", "--format", "zarr2"]
    command += ["--include", "t2m", "--include", "level", "--dimension-names", "y,x", "--chunks", "y=-1"]
    run(*command, "--chunk-key-encoding", "/")
    found = cm.open_group(tmp_path / "b")
    assert (list(found), found["t2m"].chunks, found["t2m"].dimension_names) == (["level", "t2m"], (4, 3), ("y", "x"))
    assert (tmp_path / "b" / "t2m" / "0" / "0").exists()


# --------------------------------------------------------------------------------------------------------------------
# attrs, doctor, refs


@cases("kind", ["zarr2", "zarr3", "zarr3-draft", "n5"])
def test_attributes_are_changed_in_the_store(tmp_path, kind):
    url = tmp_path / "a"
    cm.create_group(url, format=kind, attributes={"title": "x", "old": 1})
    cm.create_array(url, "v", shape=(4,), dtype="i4", format=kind)
    changed = run("attrs", url, "--set", "range=[1, 2.5]", "--set", "title=two words", "--unset", "old", "--json")
    assert json.loads(changed.stdout) == dict(cm.open(url).attributes) == {"title": "two words", "range": [1, 2.5]}
    run("attrs", url, "--path", "v", "--set", "units=K")
    assert run("attrs", url, "--path", "v").stdout == 'units = "K"\n'
    assert list(cm.open_group(url)) == ["v"]


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--unset", "b"), r"--unset names ['b'], where the attributes are ['a']"), (("--set", "a"), "is not KEY=VALUE")],
)
def test_attributes_that_cannot_be_changed_stay(tmp_path, options, message):
    cm.create_group(tmp_path / "a", attributes={"a": 0})
    assert message in run("attrs", tmp_path / "a", *options, code=2).stderr
    assert dict(cm.open(tmp_path / "a").attributes) == {"a": 0}


def test_doctor(tmp_path):
    assert run("doctor", tmp_path / "x.zarr").output.startswith("doctor: nothing found")
    assert run_json("doctor", tmp_path / "x.zarr")["store"]["compares_versions"] is True
    run("doctor")


@pytest.fixture
def virtual(tmp_path):
    url = str(tmp_path / "archive.n5")
    cm.create_group(url, format="n5")
    values = np.arange(-7, 21, dtype="i2").clip(0).reshape(7, 4)  # no chunk in the first two rows
    filled(values, url, "t", chunks=(2, 4), format="n5", codecs="gzip", dimension_names=["time", "x"])
    return url


def test_refs_make_and_info(virtual, tmp_path):
    report = json.loads(run("refs", "make", virtual, tmp_path / "set.json", "--json").stdout)
    assert (report["n_references"], report["n_inline"], report["n_absent"]) == (2, 1, 1)
    assert cm.verify(virtual, str(tmp_path / "set.json")).equal
    facts = json.loads(run("refs", "info", tmp_path / "set.json", "--json").stdout)
    assert facts["arrays"] == [{"path": "t", "n_chunks": 4, "n_references": 2, "n_inline": 1, "n_absent": 1}]
    assert facts["bytes_referenced"] == report["bytes_referenced"]
    assert facts["n_targets"] == len(facts["targets"]) == 2
    assert (facts["layout"], facts["n_references"], facts["n_inline"], facts["n_documents"]) == ("json", 2, 1, 4)
    assert 0 < facts["bytes_inline"] < facts["bytes_referenced"]
    shown = run("refs", "info", tmp_path / "set.json").stdout
    assert "t      4       2           1       1" in shown
    assert f"file://{tmp_path}/archive.n5/t/0/1" in shown


def test_refs_of_json_become_parquet(virtual, tmp_path):
    pytest.importorskip("pyarrow")
    run("refs", "make", virtual, tmp_path / "set.json")
    run("refs", "make", tmp_path / "set.json", tmp_path / "set.parquet", "--record-size", 3)
    assert json.loads(run("refs", "info", tmp_path / "set.parquet", "--json").stdout)["layout"] == "parquet"
    assert cm.verify(virtual, str(tmp_path / "set.parquet")).equal


def test_refs_combine(tmp_path):
    for i in range(2):
        about = {"chunks": (2,), "format": "zarr2", "dimension_names": ["time"]}
        filled(np.full(4, i + 1, "i4"), tmp_path / f"{i}.zarr", "t", **about)
        run("refs", "make", tmp_path / f"{i}.zarr", tmp_path / f"{i}.json")
    combine = ["refs", "combine", tmp_path / "0.json", tmp_path / "1.json"]
    run(*combine, tmp_path / "both.json", "--dim", "time")
    np.testing.assert_array_equal(cm.open_array(tmp_path / "both.json", "t")[...], [1, 1, 1, 1, 2, 2, 2, 2])
    error = run(*combine, tmp_path / "x.json", "--dim", "y", code=3).stderr
    assert "has a dimension 'y': they have 'time'" in error
    planned = run(*combine, tmp_path / "x.json", "--dim", "time", "--dry-run").stdout
    assert "t      4       4           0       0" in planned
    assert not (tmp_path / "x.json").exists()
