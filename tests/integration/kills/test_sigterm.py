"""SIGTERM, which batch systems send before the walltime, ends a job in order, by the batch script of the docs: it resumes."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.arrays import filled
from support.kills import wait_for

import chunkmill as cm

PAGE = Path(__file__).parents[3] / "docs" / "how_to" / "run_on.md"
JOB = """
import time

import dask
from distributed import Client

import chunkmill as cm
from chunkmill.conversion import convert_tasks

put = convert_tasks._put


def slowly(*args, **options):
    time.sleep(0.02)
    return put(*args, **options)


convert_tasks._put = slowly
if __name__ == "__main__":
    with {scheduler}:
        print(cm.convert("source.zarr", "target.n5", format="n5", codecs="gzip").n_resumed)
"""
SCHEDULERS = {
    "threads": 'dask.config.set(scheduler="threads", num_workers=2)',
    "cluster": "Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None)",
}


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix" or shutil.which("bash") is None, reason="signals of POSIX, a script of bash")
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_batch_script_submits_itself_again_and_the_job_resumes(tmp_path, scheduler):
    """SLURM's signal, upon which the job ends with 75; then a second allocation that finishes it."""
    (script,) = re.findall(r"```text\n(#!/bin/bash.*?)```", PAGE.read_text(), re.DOTALL)
    assert "#SBATCH --signal=B:TERM@" in script
    target = tmp_path / "target.n5"
    array = filled(np.arange(8000, dtype="i4").reshape(2000, 4), tmp_path / "source.zarr", chunks=(8, 4))
    (tmp_path / "job.sh").write_text(script)
    (tmp_path / "rechunk.py").write_text(JOB.format(scheduler=SCHEDULERS[scheduler]))
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, line in {"sbatch": 'echo "$@" >> submitted', "python": f'exec {sys.executable} "$@"'}.items():
        (commands / name).write_text(f"#!/bin/bash\n{line}\n")
        (commands / name).chmod(stat.S_IRWXU)
    search = f"{commands}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": search, "PYTHONPATH": os.pathsep.join(sys.path)}
    options = {"cwd": tmp_path, "env": environment, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(["bash", "job.sh"], **options) as job:
        wait_for(lambda: any(each.n_tasks_done for each in cm.jobs(target)))
        job.send_signal(signal.SIGTERM)
        _, errors = job.communicate(timeout=60)
    assert "ended by SIGTERM; what is done is on record" in errors
    assert f"the same call resumes it, or `chunkmill resume file://{target}`" in errors
    assert (tmp_path / "submitted").read_text() == "job.sh\n"
    (left,) = cm.jobs(target)
    assert (left.state, left.n_tasks_done > 0) == ("interrupted", True)
    assert not (target / "attributes.json").exists()
    again = subprocess.run(["bash", "job.sh"], **options, stdout=subprocess.PIPE, timeout=120, check=False)
    assert (again.returncode, again.stdout) == (0, f"{left.n_tasks_done}\n"), again.stderr
    assert (tmp_path / "submitted").read_text() == "job.sh\n"
    np.testing.assert_array_equal(cm.open_array(target)[...], array[...])
