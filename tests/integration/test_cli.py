"""The command line: a few commands in processes of their own, the rest through click's runner."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.cli.options import plain

BIN = Path(sys.executable).parent


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


def test_info_of_an_array(archive):
    text = run("info", archive, "--path", "stack").stdout
    for line in ("(8, 6, 6)", "int16", "chunks           (2, 6, 6)", "units: [K]", "t, y, x", "zstd"):
        assert line in text


def test_info_counts_what_is_stored(archive):
    facts = run_json("info", archive, "--path", "stack", "--missing")
    assert facts["missing_chunks"] == 2
    assert facts["compression_ratio"] == round(facts["bytes"] / facts["stored_bytes"], 2)
    assert "missing_chunks" not in run_json("info", archive, "--path", "stack")


def test_info_of_a_group(archive):
    facts = run_json("info", archive, "--missing")
    assert facts["children"] == ["deep", "stack"]
    assert (facts["n_arrays"], facts["missing_chunks"]) == (2, 3)
    assert facts["attributes"] == {"title": "[bold]x[/]", "limit": "NaN"}
    assert "[bold]x[/]" in run("info", archive).stdout  # nothing is taken for markup


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


def test_text_that_is_no_unicode(tmp_path):
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    (tmp_path / ".zattrs").write_text('{"half": "\\ud800"}')
    assert "half: \\ud800" in run("info", tmp_path).stdout


def test_info_counts_inner_chunks_of_shards(tmp_path):
    url = str(tmp_path / "sharded.zarr")
    array = cm.create_array(url, shape=(8, 8), dtype="u1", chunks=(2, 2), shards=(4, 8))
    array[:2, :3] = 1
    facts = run_json("info", url, "--missing")
    assert (facts["missing_store_keys"], facts["missing_chunks"]) == (1, 14)


def test_ls_draws_the_tree(archive):
    assert run("ls", archive).stdout.splitlines() == [
        "/",
        "├── deep",
        "│   └── time (8,) datetime64[s]",
        "└── stack (8, 6, 6) int16",
    ]


def test_ls_as_table_and_as_json(archive):
    table = run("ls", "--long", archive).stdout
    assert [line.split()[0] for line in table.splitlines()] == ["group", "path", "deep/time", "stack"]
    assert [node["path"] for node in run_json("ls", archive)] == ["", "deep", "deep/time", "stack"]


def test_json_has_nothing_but_what_json_has():
    value = {"a": np.float32("-inf"), "b": (np.int8(1), b"x"), "c": np.datetime64("NaT", "s"), "d": np.void(b"12")}
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == {
        "a": "-Infinity",
        "b": [1, "b'x'"],
        "c": "NaT",
        "d": "b'12'",
    }


# --------------------------------------------------------------------------------------------------------------------
# Jobs


def test_dry_run_writes_nothing(archive, tmp_path):
    target = tmp_path / "new.zarr"
    plan = run_json("convert", archive, target, "--dry-run")
    assert plan["operation"] == "convert"
    assert plan["actions"] == {"copy": 5}
    assert plan["at_target"] == ""
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


def test_refs(archive, tmp_path):
    report = run_json("refs", "make", archive, tmp_path / "set.json")
    assert (report["n_references"], report["n_absent"]) == (2, 3)
    assert report["kind"] == "json"
    run("verify", archive, tmp_path / "set.json")
    assert "StoreError" in run("refs", "make", archive, tmp_path / "set.json", code=3).stderr


def test_check(archive):
    assert run_json("check", archive)["ok"]
    torn = Path(archive) / "stack" / "0.0.0"
    torn.write_bytes(torn.read_bytes()[:-3])
    (problem,) = run_json("check", archive, code=1)["problems"]
    assert (problem["kind"], problem["key"]) == ("short", "stack/0.0.0")


def test_overwrite_must_be_asked_for(archive, tmp_path):
    run("convert", archive, tmp_path / "new.n5", "--format", "n5", "--path", "stack", "--codecs", "gzip")
    again = ["convert", archive, tmp_path / "new.n5", "--format", "n5", "--path", "stack", "--codecs", "gzip"]
    assert "NodeExists" in run(*again, code=3).stderr
    run(*again, "--overwrite")


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


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["info", "x", "--option", "anon"], "is not KEY=VALUE"),
        (["convert", "a", "b", "--chunks", "1,two"], "is not a shape"),
        (["convert", "a", "b", "--codecs", "[{]"], "not JSON"),
        (["convert", "a", "b", "--max-mem", "much"], "is not a number of bytes"),
        (["convert", "a", "b", "--scheduler", "cluster"], "nor an address"),
        (["convert", "a", "b", "--format", "hdf5"], "'hdf5' is not one of"),
        (["verify", "a", "b", "--sample", "2"], "not in the range"),
        (["rechunk", "a", "b"], "Missing option '--chunks'"),
        (["fly"], "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_exit_with_2(args, message):
    assert message in run(*args, code=2).stderr


def test_errors_exit_with_3_and_one_message(tmp_path):
    result = run("info", tmp_path / "nothing.zarr", code=3)
    assert result.stderr.startswith("NodeNotFound: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        ("tcp://127.0.0.1:1", "refused"),
        ("tcp://no-such-host.invalid:8786", "not known|resolution"),
        ("foo://127.0.0.1:8786", "scheme 'foo'"),
    ],
)
def test_where_no_scheduler_is(archive, tmp_path, monkeypatch, scheduler, message):
    """At once, where Dask would try again and again."""
    monkeypatch.setattr("chunkmill.cli.options._PATIENCE", 250.0)
    begun = time.monotonic()
    result = run("convert", archive, tmp_path / "new.zarr", "--scheduler", scheduler, code=3)
    assert time.monotonic() - begun < 120
    assert re.search(f"JobError: --scheduler {scheduler}: .*({message}).*dask scheduler", result.stderr)


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


def test_interrupted_exits_with_130(archive, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cm, "plan_convert", interrupt)
    assert "to resume" in run("convert", archive, tmp_path / "i.zarr", code=130).stderr


@pytest.mark.parametrize("name", [None, *sorted(main.commands)])
def test_help_has_an_example_or_the_exit_codes(name):
    text = run(*([name] if name else []), "--help").stdout
    assert ("Exit codes:" if name is None else f"chunkmill {name} ") in text


# --------------------------------------------------------------------------------------------------------------------
# In processes of their own


def shell(*args):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, check=False, timeout=100)


def test_the_script(archive):
    done = shell(BIN / "chunkmill", "ls", archive)
    assert (done.returncode, done.stderr) == (0, "")
    assert "stack" in done.stdout


def test_as_a_command_of_dask(archive):
    done = shell(BIN / "dask", "chunkmill", "info", archive, "--json")
    assert json.loads(done.stdout)["format"] == "zarr2"


def test_shell_completion():
    done = subprocess.run(
        [BIN / "chunkmill"],
        env=os.environ
        | {
            "_CHUNKMILL_COMPLETE": "bash_complete",
            "COMP_WORDS": "chunkmill convert --scheduler t",
            "COMP_CWORD": "3",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.stdout.split() == ["plain,threads", "plain,tcp://"]


@pytest.mark.parametrize("arguments", ["info ", "convert a.n5 ", "refs combine a.json "], ids=str)
def test_shell_completion_of_places(arguments):
    """By files: the shell itself completes them."""
    words = f"chunkmill {arguments}x"
    environment = os.environ | {
        "_CHUNKMILL_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = subprocess.run([BIN / "chunkmill"], env=environment, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "file,x\n"


@pytest.mark.slow
def test_a_cluster_without_workers_is_said_to_be_one(archive, tmp_path):
    from distributed import LocalCluster

    command = [BIN / "chunkmill", "convert", archive, tmp_path / "new.zarr", "--scheduler"]
    patience = {"distributed.scheduler.no-workers-timeout": "7s"}
    with (
        dask.config.set(patience),
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster,
    ):
        done = shell(*command, cluster.scheduler_address)
        address = re.escape(cluster.scheduler_address)
        assert re.search(f"NoWorkers: the cluster at {address} has no workers.*`dask worker {address}`", done.stderr)
        assert "NoWorkerError: " in done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == 3
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="100ms")
        done = shell(*command, cluster.scheduler_address)
        assert "NoWorkers" not in done.stderr
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_schedulers(archive, tmp_path):
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        for name in (cluster.scheduler_address, "processes"):
            target = tmp_path / f"{name.partition(':')[0]}.zarr"
            done = shell(
                BIN / "chunkmill", "rechunk", archive, target, "--path=stack", "--chunks=-1,3,3", f"--scheduler={name}"
            )
            assert done.returncode == 0, done.stderr
        done = shell(
            BIN / "chunkmill", "verify", archive, target, "--path-a=stack", f"--scheduler={cluster.scheduler_address}"
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["convert", "SOURCE", "OTHER"], "group already; --overwrite replaces it"),
        (["convert", "SOURCE", "new", "--chunks", "2"], "--chunks=2 .*1 lengths for 2 axes"),
        (["rechunk", "SOURCE", "new", "--chunks", "1,2,3"], r"3 lengths for 2 axes"),
        (["info", "SOURCE", "--path", "nope"], "is the url right, and the path\\? Without --path its root is opened"),
        (
            ["convert", "SOURCE", "new", "--shards", "3,3"],
            "give --shards that are multiples of --chunks, or --shards=none",
        ),
        (["convert", "ZERO", "new", "--format", "n5"], r"n5 does not support arrays of 0 dimensions \(in 'a/attrib"),
        (["rechunk", "SOURCE", "new", "--chunks", "4,1", "--max-mem", "8"], r"give --max-mem=\d+ or more"),
        (["convert", "FILLED", "new", "--format", "n5", "--codecs", "raw"], "; --allow fill_value converts without"),
    ],
    ids=str,
)
def test_messages_are_in_the_words_of_the_command_line(tmp_path, args, expected):
    source = str(tmp_path / "in.zarr")
    cm.create_array(source, "g/a", shape=(4, 4), dtype="i4", chunks=(2, 2))[...] = 1
    cm.create_group(tmp_path / "other")
    cm.create_array(tmp_path / "filled", shape=(4,), dtype="i4", chunks=(2,), fill_value=7)
    cm.create_array(tmp_path / "zero", "a", shape=(), dtype="i4", chunks=())
    places = {
        "ZERO": tmp_path / "zero",
        "FILLED": tmp_path / "filled",
        "SOURCE": source,
        "OTHER": tmp_path / "other",
        "new": tmp_path / "new",
    }
    result = run(*(places.get(arg, arg) for arg in args), code=3)
    assert re.search(expected, result.stderr)
    assert not (tmp_path / "new").exists()
