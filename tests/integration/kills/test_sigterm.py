"""SIGTERM, which batch systems send before the walltime, ends a job in order: it resumes."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import chunkmill as cm

JOB = """
import time

from distributed import Client

import chunkmill as cm
from chunkmill.conversion import convert_tasks

put = convert_tasks._put


def slowly(*args, **options):
    time.sleep(0.05)
    return put(*args, **options)


convert_tasks._put = slowly
if __name__ == "__main__":
    with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None):
        print("begins", flush=True)
        cm.convert({source!r}, {target!r}, format="n5", codecs="gzip")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_sigterm_ends_a_job_with_75_and_it_resumes(tmp_path):
    """On a cluster in the process; the batch script of the docs (`test_job_on_clusters`) is ended on threads."""
    source, target = str(tmp_path / "source.zarr"), str(tmp_path / "target.n5")
    array = cm.create_array(source, shape=(4000, 4), dtype="i4", chunks=(8, 4), format="zarr2")
    array[...] = np.arange(16000).reshape(4000, 4)
    script = tmp_path / "job.py"
    script.write_text(JOB.format(source=source, target=target))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        assert job.stdout.readline() == "begins\n"
        deadline = time.monotonic() + 30
        while not any(each.n_tasks_done for each in cm.jobs(target)) and time.monotonic() < deadline:
            time.sleep(0.1)
        job.send_signal(signal.SIGTERM)
        _, errors = job.communicate(timeout=30)
    assert job.returncode == 75, errors
    assert "ended by SIGTERM; what is done is on record" in errors
    assert f"the same call resumes it, or `chunkmill resume file://{target}`" in errors
    (left,) = cm.jobs(target)
    assert left.state == "interrupted"
    assert left.n_tasks_done > 0
    report = cm.resume(target)
    assert report.n_resumed == left.n_tasks_done
    assert np.array_equal(cm.open_array(target)[...], array[...])
