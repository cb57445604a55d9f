"""The lock of a key in a process, and when a cluster's is asked for instead (P3)."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.servers import FORK_WARNING

from chunkmill.array.threads import N_STRIPES, local_lock, stripe
from chunkmill.runtime.locks import automatic_lock, lock_factory

KEY = "file:///data/x.zarr/a/c/0/0"


def test_outside_a_cluster_it_is_the_automatic_one():
    assert lock_factory("auto") is automatic_lock
    assert automatic_lock(KEY) is automatic_lock(KEY, True) is local_lock(KEY)


def test_stripes_are_few_and_the_same_everywhere():
    found = {stripe(f"file:///x/c/{i}") for i in range(20 * N_STRIPES)}
    assert found == set(range(N_STRIPES))
    assert stripe(KEY) == 367


def test_one_thread_at_a_time():
    n_inside, most = 0, 0

    def work():
        nonlocal n_inside, most
        for _ in range(50):
            with local_lock(KEY):
                n_inside += 1
                most = max(most, n_inside)
                time.sleep(0)
                n_inside -= 1

    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(lambda _: work(), range(4)))
    assert most == 1


def test_released_on_errors():
    with pytest.raises(MemoryError), local_lock(KEY):
        raise MemoryError
    with local_lock(KEY):
        pass


@FORK_WARNING
def test_a_forked_child_does_not_wait_for_threads_that_it_has_not():
    inside, done = threading.Event(), threading.Event()

    def hold():
        with local_lock(KEY):
            inside.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)  # a child that hangs dies
        with local_lock(KEY):
            os._exit(0)
    done.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
