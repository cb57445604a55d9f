"""Jobs that write to a repository of Icechunk, killed at several places: the same call resumes, and there is one commit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr
from interop.environments import interpreter
from support.clusters import cluster_of, kill_worker

import chunkmill as cm
from chunkmill.errors import StoreError

TESTS = Path(__file__).parents[1]
X = np.arange(600 * 100, dtype="i4").reshape(600, 100)

CHILD = """
import importlib, json, os, signal, sys
import dask
from distributed import Client
import chunkmill as cm

def dies(module, name, at, after):
    where = importlib.import_module(module)
    *outer, name = name.split(".")
    for each in outer:
        where = getattr(where, each)
    function, calls = getattr(where, name), []

    def call(*args, **kwargs):
        calls.append(1)
        if len(calls) == at and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(where, name, call)

if __name__ == "__main__":
    folder, place, scheduler = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    cluster = Client(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") if scheduler == "cluster" else None
    with cluster or dask.config.set(scheduler=scheduler):
        dies(*place)
        cm.convert(f"{folder}/x.zarr", (f"{folder}/repository|icechunk:", "g"), format="zarr3", codecs="gzip")
"""

SESSIONS = "chunkmill.stores.icechunk_session"
PLACES = {
    "transaction kept": ("chunkmill.journal.journal", "Journal.keep_transaction", 1, True),
    "first task": (SESSIONS, "Transaction.merge", 1, False),
    "some tasks": (SESSIONS, "Transaction.merge", 10, True),
    "all tasks": (SESSIONS, "Transaction.end", 1, False),
    "committed": (SESSIONS, "commit", 1, True),
}


@pytest.fixture
def folder(tmp_path):
    cm.to_store(X, tmp_path / "x.zarr", "a", chunks=(5, 5))
    cm.create_group(f"{tmp_path}/repository|icechunk:")
    return tmp_path


def messages(folder):
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder / "repository")))
    return [commit.message for commit in repository.ancestry(branch="main")][:-1]


def killed(folder, place, scheduler="cluster"):
    (folder / "child.py").write_text(CHILD)
    command = [sys.executable, "-W", "ignore", folder / "child.py", folder, json.dumps(place), scheduler]
    environment = os.environ | {"PYTHONPATH": str(Path(cm.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def convert(folder):
    return cm.convert(folder / "x.zarr", (f"{folder}/repository|icechunk:", "g"), format="zarr3", codecs="gzip")


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_job_that_was_killed_resumes(folder, place):
    killed(folder, PLACES[place])
    assert len(messages(folder)) == 1 + (place == "committed")
    report = convert(folder)
    assert len(messages(folder)) == 2
    assert cm.verify(folder / "x.zarr", (f"{folder}/repository|icechunk:", "g")).equal
    assert not (folder / "repository.chunkmill").exists()
    if place in {"some tasks", "all tasks", "committed"}:
        assert report.n_resumed >= (10 if place == "some tasks" else report.n_tasks)


@pytest.mark.slow
@pytest.mark.parametrize("at", [*range(1, 41, 3), "commit"])
def test_a_job_in_threads_that_was_killed_resumes(folder, at):
    """After each third of the changes that tasks bring, and before the commit."""
    place = (SESSIONS, "commit", 1, False) if at == "commit" else (SESSIONS, "Transaction.merge", at, True)
    killed(folder, place, "threads")
    assert len(messages(folder)) == 1
    report = convert(folder)
    assert len(messages(folder)) == 2
    assert cm.verify(folder / "x.zarr", (f"{folder}/repository|icechunk:", "g")).equal
    assert not (folder / "repository.chunkmill").exists()
    assert report.n_resumed == report.n_tasks or at != "commit"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["b", "g"])
def test_others_commit_before_it_is_resumed(folder, path):
    killed(folder, PLACES["some tasks"])
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(folder / "repository")))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name=path, data=X)
    session.commit("others")
    if path == "g":
        with pytest.raises(StoreError, match="others have changed 'g'"):
            convert(folder)
    else:
        convert(folder)
        assert cm.verify(folder / "x.zarr", (f"{folder}/repository|icechunk:", "g")).equal
    assert np.array_equal(cm.open_array(f"{folder}/repository|icechunk:", path)[...], X)
    assert len(messages(folder)) == 3 - (path == "g")


@pytest.mark.slow
def test_a_worker_that_is_killed_takes_no_changes_with_it(folder):
    with cluster_of(2) as client:
        target = f"{folder}/repository|icechunk:", "g"
        running = cm.plan_convert(folder / "x.zarr", target, format="zarr3", codecs="gzip").start()
        while running.status().n_tasks_done < 5:
            time.sleep(0.01)
        kill_worker(next(iter(client.run(os.getpid).values())))
        running.result()
    assert len(messages(folder)) == 2
    assert cm.verify(folder / "x.zarr", target).equal


def test_what_cannot_be_kept_begins_again(folder, monkeypatch):
    kept = "chunkmill.stores.icechunk_session.Transaction.kept"
    monkeypatch.setattr(kept, lambda _: None)  # as where the options have credentials
    with monkeypatch.context() as patched:
        patched.setattr("chunkmill.stores.icechunk_session.commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            convert(folder)
    assert convert(folder).n_resumed == 0
    assert cm.verify(folder / "x.zarr", (f"{folder}/repository|icechunk:", "g")).equal


def test_to_store_does_not_resume(folder):
    with pytest.raises(ValueError, match="nothing is left of an interrupted to_store to Icechunk; convert resumes"):
        cm.to_store(X, f"{folder}/repository|icechunk:", "g", resume=True)


@pytest.mark.slow
def test_all_of_this_holds_with_icechunk_2():
    """It needs Python 3.12."""
    python = interpreter("icechunk2", demanded=False)
    chosen = "some or committed or others or worker or kept or not_resume or 4"
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", TESTS.parent, "-o", f"pythonpath={TESTS}"]
    command = [python, "-m", "pytest", *options, __file__, "-k", f"({chosen}) and not icechunk_2"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_", "PYTEST"))
    }
    environment["PYTHONPATH"] = str(Path(cm.__file__).parents[1])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "passed" in done.stdout
