"""Jobs that are killed on one cluster and resume on another one, of other workers, threads and memory."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from support.clusters import cluster_of

import chunkmill as cm

pytestmark = pytest.mark.slow

JOB = """
import time

import dask
from distributed import Client, LocalCluster

import chunkmill as cm
from chunkmill.stores.local import LocalStore


class Slow(LocalStore):
    def set(self, key, value):
        super().set(key, value)
        time.sleep({seconds})

    def set_if(self, key, value, version):
        time.sleep({seconds})
        return super().set_if(key, value, version)


if __name__ == "__main__":
    options = dict(processes={processes}, n_workers={n_workers}, threads_per_worker=1, dashboard_address=None)
    with dask.config.set({{"chunkmill.max-mem": "8 MiB"}}), LocalCluster(**options) as cluster, Client(cluster):
        {call}
"""


def killed(folder, call, n_tasks, seconds=0.02, n_workers=1):
    """Run a job on workers of 8 MiB for tasks, and kill it when so many tasks are on record.

    Several workers are processes of their own, which the client leaves behind.
    """
    script = folder / "job.py"
    script.write_text(JOB.format(call=call, seconds=seconds, n_workers=n_workers, processes=n_workers > 1))
    with subprocess.Popen([sys.executable, script], stderr=subprocess.PIPE, text=True) as job:
        deadline = time.monotonic() + 60
        while sum(1 for _ in folder.glob("target.zarr/.chunkmill-job-*/[01]/*")) < n_tasks:
            assert job.poll() is None, job.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        job.send_signal(signal.SIGKILL)


@pytest.fixture
def source(tmp_path):
    array = cm.create_array(tmp_path / "source.zarr", shape=(64, 256, 128), dtype="f8", chunks=(2, 256, 128))
    array[...] = np.random.default_rng(0).random(array.shape)
    return array


def test_a_killed_job_resumes_on_fewer_and_larger_workers_by_the_same_call(source, tmp_path):
    """Worker processes that lost their client and their scheduler write nothing over what the next run has written."""
    target = tmp_path / "target.zarr"
    call = f"cm.rechunk({str(tmp_path / 'source.zarr')!r}, Slow({str(target)!r}), chunks=(64, 8, 8))"
    killed(tmp_path, call, 2, n_workers=2)
    with cluster_of(1, 4, {"chunkmill.max-mem": "64 MiB"}):
        report = cm.rechunk(source, target, chunks=(64, 8, 8))
    assert report.n_resumed >= 2
    assert np.array_equal(cm.open_array(target)[...], source[...])
    assert cm.check(target).ok
    assert not cm.jobs(target)
