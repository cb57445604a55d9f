"""Locks of partial writes: in a process, across a cluster, and when their holders die (P3)."""

import logging
import os
import signal
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import SerializableLock
from distributed import Client, get_worker
from support.clusters import cluster_of
from support.recording import UnfencedStore
from support.servers import FORK_WARNING

import chunkmill as cm
from chunkmill.array import chunk_io
from chunkmill.array.threads import N_STRIPES, local_lock, stripe
from chunkmill.errors import StoreError
from chunkmill.runtime import cluster_locks as locks
from chunkmill.runtime.cluster_locks import ClusterLock, automatic_lock, lock_factory, no_lock
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

KEY = "file:///data/x.zarr/a/c/0/0"


def plain_files(folder):
    """A store that cannot compare versions: local files, through fsspec."""
    return FsspecStore(f"file://{folder}")


class TestWhatIsMeant:
    def test_auto_outside_a_cluster(self):
        assert lock_factory("auto") is automatic_lock
        assert automatic_lock(KEY) is local_lock(KEY)
        assert automatic_lock(KEY, True) is local_lock(KEY)

    @pytest.mark.parametrize("lock", [None, False])
    def test_none(self, lock):
        assert lock_factory(lock) is no_lock
        with no_lock(KEY, True), no_lock(KEY, True):
            pass

    def test_an_object(self):
        lock = threading.Lock()
        assert lock_factory(lock)(KEY, False) is lock

    def test_nonsense(self):
        with pytest.raises(TypeError, match="neither 'auto' nor None"):
            lock_factory("yes")

    def test_stripes_are_few_and_the_same_everywhere(self):
        found = {stripe(f"file:///x/c/{i}") for i in range(20 * N_STRIPES)}
        assert found == set(range(N_STRIPES))
        assert stripe(KEY) == 367


class TestInAProcess:
    def test_one_thread_at_a_time(self):
        n_inside, most = 0, 0

        def work():
            nonlocal n_inside, most
            for _ in range(50):
                with local_lock(KEY):
                    n_inside += 1
                    most = max(most, n_inside)
                    time.sleep(0)
                    n_inside -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1

    def test_released_on_errors(self):
        with pytest.raises(MemoryError), local_lock(KEY):
            raise MemoryError
        with local_lock(KEY):
            pass

    @FORK_WARNING
    def test_a_forked_child_does_not_wait_for_threads_that_it_has_not(self):
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


@pytest.mark.slow
class TestUnguarded:
    """A store that cannot compare versions needs a lock, and says so before anything is written."""

    def region(self, store, **kwargs):
        return cm.to_store(da.ones(6, chunks=3, dtype="i4"), store, "a", region=(slice(2, 8),), **kwargs)

    @pytest.fixture
    def store(self, tmp_path):
        store = plain_files(tmp_path)
        cm.create_array(store, "a", shape=(12,), dtype="i4", chunks=(4,), fill_value=7)
        return store

    def test_auto_on_threads(self, store):
        report = self.region(store)
        assert (report.n_partial, report.guard) == (1, "lock")

    def test_the_report_of_a_store_that_can(self, url):
        cm.create_array(url, "a", shape=(12,), dtype="i4", chunks=(4,))
        assert self.region(url, lock=None).guard == "version"

    def test_without_lock(self, store):
        with pytest.raises(StoreError, match=r"lock=None leaves .* cannot compare|check versions; give lock='auto'"):
            self.region(store, lock=None)
        np.testing.assert_array_equal(cm.open_array(store, "a")[...], np.full(12, 7))

    def test_without_lock_and_aligned(self, store):
        report = cm.to_store(da.ones(8, chunks=3, dtype="i4"), store, "a", region=(slice(4, 12),), lock=None)
        assert (report.n_keys, report.n_partial) == (2, 0)

    @pytest.mark.parametrize("lock", ["auto", SerializableLock()], ids=["auto", "given"])
    def test_processes_have_no_lock_in_common(self, store, lock):
        with dask.config.set(scheduler="processes"), pytest.raises(StoreError, match="process"):
            self.region(store, lock=lock)

    def test_a_lock_of_the_user_that_processes_share(self, store):
        class FileLock:  # stands for one
            def __enter__(self): ...

            def __exit__(self, *_): ...

        with dask.config.set(scheduler="processes"):
            assert locks.check_guarded(store, "a", lock_factory(FileLock())) is None

    def test_memory_of_one_process(self):
        store = MemoryStore()
        cm.create_array(store, "a", shape=(12,), dtype="i4", chunks=(4,))
        assert self.region(store, lock=None).guard == "version"


# --------------------------------------------------------------------------------------------------------------------
# On a cluster


@pytest.fixture(scope="module")
def cluster():
    with cluster_of(2, 2) as client:
        yield client.cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


def interleaved(array, n, lock):
    """A job for each element, all in one chunk."""
    return [
        cm.store(da.full(1, i + 1, dtype="i4"), array, regions=(slice(i, i + 1),), lock=lock, compute=False)
        for i in range(n)
    ]


def write_slowly(array, i, lock):
    """Change one element, dawdling between reading and writing."""
    array = cm.open_array(array.store, array.path, mode="r+")
    get = array.store.get_versioned

    def slow(key):
        found = get(key)
        time.sleep(0.05)
        return found

    array.store.get_versioned = slow
    chunk_io.update_chunk(
        array.stored, next(array.write_layout.grid.overlaps((slice(i, i + 1),))), np.full(1, i + 1, "i4"), lock=lock
    )


@pytest.mark.slow
class TestOnACluster:
    @pytest.mark.parametrize("kind", ["versions", "no versions"])
    def test_nothing_is_lost(self, client, tmp_path, kind):
        store = UnfencedStore(LocalStore(tmp_path)) if kind == "no versions" else str(tmp_path)
        array = cm.create_array(store, shape=(40,), dtype="i4", chunks=(40,))
        client.gather(client.compute(interleaved(array, 40, "auto")))
        np.testing.assert_array_equal(array[...], np.arange(40) + 1)

    def test_without_a_lock_it_is(self, client, tmp_path):
        """So the test above tests something."""
        array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(12,), dtype="i4", chunks=(12,))
        client.gather([client.submit(write_slowly, array, i, no_lock) for i in range(12)])
        assert np.count_nonzero(array[...]) < 12
        client.gather([client.submit(write_slowly, array, i, automatic_lock) for i in range(12)])
        np.testing.assert_array_equal(array[...], np.arange(12) + 1)

    def test_setitem_in_tasks(self, client, tmp_path):
        array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(16,), dtype="i4", chunks=(16,))

        def work(array, i):
            array[i] = i + 1

        client.gather(client.map(work, [array] * 16, range(16), pure=False))
        np.testing.assert_array_equal(array[...], np.arange(16) + 1)

    def test_two_clients(self, client, cluster, tmp_path):
        array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(32,), dtype="i4", chunks=(32,))
        jobs = interleaved(array, 32, "auto")
        with Client(cluster, set_as_default=False) as other:
            futures = client.compute(jobs[::2])
            others = other.compute(jobs[1::2])
            other.gather(others)
            client.gather(futures)
        np.testing.assert_array_equal(array[...], np.arange(32) + 1)

    def test_few_names_are_left_on_the_scheduler_and_no_lease(self, client, tmp_path):
        array = cm.create_array(UnfencedStore(LocalStore(tmp_path)), shape=(3000,), dtype="i1", chunks=(2,))
        cm.store(da.ones(2900, chunks=200, dtype="i1"), array, regions=(slice(1, 2901),))

        def take(names):
            for name in names:
                with automatic_lock(name, True):
                    pass

        client.gather(client.map(take, [[f"k{i}" for i in range(j, 2000, 4)] for j in range(4)]))
        names, leases = client.run_on_scheduler(
            lambda dask_scheduler: (
                list(dask_scheduler.extensions["semaphores"].max_leases),
                sum(map(len, dask_scheduler.extensions["semaphores"].leases.values())),
            )
        )
        assert 0 < len(names) <= N_STRIPES
        assert leases == 0

    def test_threads_that_tasks_start_have_the_cluster_s_lock_too(self, client):
        def nested():
            found = []
            thread = threading.Thread(target=lambda: found.append(type(automatic_lock(KEY, True))))
            thread.start()
            thread.join()
            return found[0].__name__

        assert client.submit(nested).result() == "ClusterLock"

    def test_waiting_is_logged_with_the_key(self, client):
        first, second = client.scheduler_info()["workers"]

        def hold():
            with ClusterLock(get_worker(), KEY):
                time.sleep(4)

        def wait():
            records = []
            handler = logging.Handler()
            handler.emit = lambda record: records.append(record.getMessage())
            logging.getLogger("chunkmill").addHandler(handler)
            locks.PATIENCE, before = 1.0, locks.PATIENCE
            try:
                with ClusterLock(get_worker(), KEY):
                    return records
            finally:
                locks.PATIENCE = before
                logging.getLogger("chunkmill").removeHandler(handler)

        holding = client.submit(hold, workers=[first], pure=False)
        time.sleep(0.5)
        lines = client.submit(wait, workers=[second], pure=False).result()
        holding.result()
        assert len(lines) in {1, 2}
        assert KEY in lines[0]


def die_holding(name):
    ClusterLock(get_worker(), name).__enter__()
    os.kill(os.getpid(), signal.SIGKILL)


def take(name):
    with ClusterLock(get_worker(), name):
        pass


def hold_for(name, seconds):
    with ClusterLock(get_worker(), name):
        time.sleep(seconds)


def pid_of_waiter(name, folder):
    (folder / str(os.getpid())).touch()
    with ClusterLock(get_worker(), name):
        return True


@pytest.mark.slow
class TestTheDead:
    """Their leases end by themselves: here after two seconds, by default after half a minute (P3)."""

    @pytest.fixture
    def client(self):
        leases = {"lease-timeout": "2s", "lease-validation-interval": "500ms"}
        with cluster_of(3, config={"distributed.scheduler.locks": leases}) as client:
            yield client

    def test_the_lock_of_a_dead_holder_is_free_in_the_end(self, client):
        workers = list(client.scheduler_info()["workers"])
        with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
            dying = client.submit(die_holding, KEY, workers=[workers[0]], allow_other_workers=False, pure=False)
            time.sleep(1.0)
            client.submit(take, KEY, workers=[workers[1]], pure=False).result(timeout=120)
        dying.cancel(force=True)

    def test_so_does_one_who_died_waiting(self, client, tmp_path):
        workers = list(client.scheduler_info()["workers"])
        holding = client.submit(hold_for, KEY, 3.0, workers=[workers[0]], pure=False)
        time.sleep(0.5)
        waiting = client.submit(pid_of_waiter, KEY, tmp_path, workers=[workers[1]], pure=False)
        while not list(tmp_path.iterdir()):
            time.sleep(0.05)
        time.sleep(0.5)
        os.kill(int(next(tmp_path.iterdir()).name), signal.SIGKILL)
        waiting.cancel(force=True)
        third = client.submit(take, KEY, workers=[workers[2]], pure=False)
        holding.result(timeout=120)
        third.result(timeout=120)
