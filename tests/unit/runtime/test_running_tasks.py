"""Waiting for tasks of a cluster: for workers that went away, and for tasks that ended without a message."""

import threading
import time
import warnings

import pytest
from distributed import Client, LocalCluster, as_completed

from chunkmill.errors import NoWorkers
from chunkmill.runtime import running_tasks
from chunkmill.runtime.running_tasks import RunningTasks
from chunkmill.runtime.scheduler import Scheduler


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(running_tasks, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(running_tasks, "_ALONE_SECONDS", 0.3)
    with LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as it:
        yield it


def square(shared, number):
    return shared * number**2


def test_a_cluster_that_lost_its_workers_is_named_once(client):
    """Tasks of a job wait in silence, as dask does, for a worker that may never come."""
    results: list[int] = []
    job = threading.Thread(
        target=lambda: Scheduler().run("squares", square, 2, [(i,) for i in range(5)], results.append), daemon=True
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        job.start()
        deadline = time.monotonic() + 30
        while not told and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        client.cluster.scale(1)
        job.join(30)
    (warning,) = (each for each in told if each.category is NoWorkers)
    assert f"the cluster at {client.scheduler.address} has had no workers for" in str(warning.message)
    assert "5 tasks wait for one" in str(warning.message)
    assert sorted(results) == [0, 2, 8, 18, 32]


def test_a_task_whose_end_was_not_told(client, monkeypatch):
    client.cluster.scale(1)
    monkeypatch.setattr(as_completed, "update", lambda *_: None)
    running = RunningTasks(client, [client.submit(square, 1, 3)])
    (future,) = running.next_ended()
    assert future.result() == 9
    assert not running


def test_each_future_is_returned_once(client):
    client.cluster.scale(1)
    running = RunningTasks(client, client.map(square, [1] * 20, range(20)))
    found = []
    while running:
        found += running.next_ended()
    assert sorted(client.gather(found)) == [i**2 for i in range(20)]


def test_tasks_that_fail_and_tasks_that_are_cancelled_end(client):
    client.cluster.scale(1)
    failing, waiting = client.submit(square, 1, "x"), client.submit(time.sleep, 3)
    running = RunningTasks(client, [failing, waiting])
    assert running.next_ended() == [failing]
    running.cancel()
    assert running.next_ended() == [waiting]
    assert (failing.status, waiting.status) == ("error", "cancelled")
