"""Processes that run a job until the test ends them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chunkmill.stores.base import Store

TESTS = str(Path(__file__).parents[1])


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait until a condition holds, at most a minute, and no longer than the process runs."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_for_keys(store: Store, part: str, n: int, process: subprocess.Popen[Any] | None = None) -> None:
    """Wait until so many keys that contain `part` are there."""
    wait_for(lambda: sum(part in key for key in store.list_prefix("")) >= n, process)


@contextmanager
def script(folder: Path, call: str, *, n_workers: int = 0, max_mem: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run a call of chunkmill (`cm`) in a process, on threads, or on a cluster of so many worker processes of its own."""
    file = folder / "job.py"
    file.write_text(_SCRIPT.format(call=call, n_workers=n_workers, max_mem=max_mem))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, TESTS])}
    process = subprocess.Popen([sys.executable, str(file)], env=environment, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


_SCRIPT = """
from contextlib import nullcontext
import dask
import chunkmill as cm
from chunkmill.stores.local import LocalStore
from distributed import Client
from support.recording import SlowStore

if __name__ == "__main__":
    cluster = {{"n_workers": {n_workers}, "threads_per_worker": 1, "dashboard_address": ":0"}}
    options = {{"chunkmill.max-mem": {max_mem!r}}} if {max_mem!r} else {{}}
    with dask.config.set(options), Client(**cluster) if {n_workers} else dask.config.set(scheduler="threads", num_workers=2):
        {call}
"""
