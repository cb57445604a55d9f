"""Commands that only a process of its own, or a scheduler elsewhere, can show: the script, `--scheduler`."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import dask
import numpy as np
import pytest
from click.testing import CliRunner
from distributed import LocalCluster

import chunkmill as cm
from chunkmill.cli.main import main

BIN = Path(sys.executable).parent


@pytest.fixture
def archive(tmp_path):
    url = tmp_path / "archive.zarr"
    cm.to_store(np.arange(288, dtype="i2").reshape(8, 6, 6), url, "stack", chunks=(2, 6, 6), format="zarr2")
    return url


def shell(*args, **environment):
    command = [str(a) for a in args]
    env = os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=env)


def test_the_script_and_the_command_of_dask(archive):
    done = shell(BIN / "chunkmill", "ls", archive)
    assert (done.returncode, done.stderr) == (0, "")
    assert "stack" in done.stdout
    done = shell(BIN / "dask", "chunkmill", "info", archive, "--json")
    assert json.loads(done.stdout)["format"] == "zarr2"


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
    result = CliRunner().invoke(main, ["convert", str(archive), str(tmp_path / "new.zarr"), "--scheduler", scheduler])
    assert time.monotonic() - begun < 120
    assert result.exit_code == 3
    assert re.search(f"JobError: --scheduler {scheduler}: .*({message}).*dask scheduler", result.stderr)


@pytest.mark.slow
def test_a_cluster_without_workers_is_said_to_be_one(archive, tmp_path):
    command = ["convert", str(archive), str(tmp_path / "new.zarr"), "--scheduler"]
    patience = {"distributed.scheduler.no-workers-timeout": "7s"}
    nobody = {"n_workers": 0, "threads_per_worker": 1, "dashboard_address": ":0"}
    with dask.config.set(patience), LocalCluster(**nobody) as cluster:
        done = CliRunner().invoke(main, [*command, cluster.scheduler_address])
        address = re.escape(cluster.scheduler_address)
        assert re.search(f"NoWorkers: the cluster at {address} has no workers.*`dask worker {address}`", done.stderr)
        assert "has had no worker for its tasks for too long" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.exit_code == 3
    with LocalCluster(**nobody) as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="100ms")
        done = CliRunner().invoke(main, [*command, cluster.scheduler_address])
        assert "NoWorkers" not in done.stderr
        assert done.exit_code == 0, done.stderr


@pytest.mark.slow
def test_a_scheduler_by_its_address(archive, tmp_path, shared_cluster):
    target = tmp_path / "new.zarr"
    command = ["rechunk", archive, target, "--path=stack", "--chunks=-1,3,3"]
    done = shell(BIN / "chunkmill", *command, f"--scheduler={shared_cluster.scheduler_address}")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(cm.open_array(target)[...], cm.open_array(archive, "stack")[...])
