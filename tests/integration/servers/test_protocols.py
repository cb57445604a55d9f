"""Every protocol that the README names, against a real server: two threads and two processes write, nothing is lost."""

import contextlib
import multiprocessing
import threading
import warnings

import dask
import dask.array as da
import numpy as np
import pytest
from support.servers import WARNINGS

import chunkmill as cm
from chunkmill.errors import ChunkmillError
from chunkmill.stores import conflicts

pytestmark = [*WARNINGS, pytest.mark.slow]

LOCK_ALONE = "by a lock alone, which other programs do not hold"
OF_FILES = ["sftp", "webdav", "ftp"]
X = np.arange(1, 24 * 24 + 1, dtype="i4").reshape(24, 24)


@pytest.fixture(params=[*OF_FILES, "s3", "azure", "gcs"])
def protocol(request):
    return request.param


@pytest.fixture
def place(request, protocol):
    """Url of a store that is not there yet, and its options."""
    if protocol == "gcs":
        return request.getfixturevalue("gcs_server").new_store("x.zarr"), None
    server = request.getfixturevalue(f"{protocol}_server")
    new = {"s3": "new_bucket", "azure": "new_container"}.get(protocol, "new_folder")
    return getattr(server, new)() + "/x.zarr", server.storage_options


@pytest.fixture
def lock_alone(protocol, monkeypatch):
    """The warning of a store that compares no versions is expected, once a process; and no other one."""
    monkeypatch.setattr(conflicts, "_answers", {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    texts = [str(each.message) for each in caught if LOCK_ALONE in str(each.message)]
    assert len(texts) == (protocol in OF_FILES), texts
    assert all(("half of a value" in text) == (protocol != "sftp") for text in texts)


def write_rows(array, rows):
    for row in rows:
        array[row] = -X[row]


@pytest.mark.usefixtures("lock_alone")
def test_two_threads(place):
    """Over SFTP each new array hung: its heartbeat and the main thread waited for one client."""
    url, options = place
    with dask.config.set(scheduler="threads", num_workers=2):
        report = cm.to_store(da.from_array(X, chunks=(8, 24)), url, chunks=(8, 12), storage_options=options)
        assert report.n_keys == 6
        np.testing.assert_array_equal(cm.from_store(url, storage_options=options).compute(), X)
        array = cm.open_array(url, mode="r+", storage_options=options)
        threads = [threading.Thread(target=write_rows, args=(array, range(i, 16, 2))) for i in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        np.testing.assert_array_equal(array[...], np.concatenate([-X[:16], X[16:]]))
        cm.to_store(da.from_array(2 * X, chunks=(5, 24)), array, region=...)  # cuts through chunks
        np.testing.assert_array_equal(cm.from_store(url, storage_options=options).compute(), 2 * X)


def write_half(place, half, is_guarded, barrier, queue):
    """Write whole chunks of the common array, rows of a common chunk, and a new array."""
    url, options = place
    try:
        with warnings.catch_warnings(record=True) as caught, dask.config.set(scheduler="threads", num_workers=2):
            warnings.simplefilter("always")
            barrier.wait(60)
            columns = slice(12 * half, 12 * half + 12)
            part = da.from_array(X[:, columns], chunks=(8, 12))
            cm.to_store(part, url, "common", region=(slice(None), columns), storage_options=options)
            cm.to_store(da.from_array(X + half, chunks=(8, 24)), url, f"own/{half}", storage_options=options)
            shared = cm.open_array(url, "shared", mode="r+", storage_options=options)
            barrier.wait(60)
            for n in range(12):  # wherever both rows are zero, the chunk is all fill value, which one deletes
                # where values are replaced in place, a half of one may be read, and is an error
                with contextlib.suppress(*() if is_guarded else (ChunkmillError,)):
                    shared[half] = n % 2 * n
        queue.put([str(each.message) for each in caught if LOCK_ALONE in str(each.message)])
    except BaseException as error:
        queue.put(f"{type(error).__name__}: {error}")
        barrier.abort()
        raise


@pytest.mark.parametrize("protocol", ["sftp", "s3", "azure", "gcs"], indirect=True)
def test_two_processes(place, protocol):
    """Whole chunks are never lost; parts of one chunk where versions are compared, and there is one warning elsewhere."""
    url, options = place
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".*{LOCK_ALONE}")
        cm.create_group(url, storage_options=options)
        cm.create_array(url, "common", shape=(24, 24), dtype="i4", chunks=(8, 12), storage_options=options)
        cm.create_array(url, "shared", shape=(2, 3), dtype="i4", chunks=(2, 3), storage_options=options)
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(2), context.Queue()
    is_guarded = protocol not in OF_FILES
    halves = [(place, half, is_guarded, barrier, queue) for half in (0, 1)]
    processes = [context.Process(target=write_half, args=half) for half in halves]
    for process in processes:
        process.start()
    said = [queue.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0], said
    np.testing.assert_array_equal(cm.open_array(url, "common", storage_options=options)[...], X)
    for half in (0, 1):
        np.testing.assert_array_equal(cm.open_array(url, f"own/{half}", storage_options=options)[...], X + half)
    assert [len(texts) for texts in said] == [not is_guarded] * 2, said
    if is_guarded:
        assert cm.open_array(url, "shared", storage_options=options)[...].tolist() == [[11] * 3] * 2


@pytest.mark.parametrize("protocol", ["ftp", "webdav"], indirect=True)
def test_two_worker_processes_share_the_clusters_lock(place, client):
    """Where no versions are compared, that lock is what keeps parts of one chunk."""
    url, options = place
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f".*{LOCK_ALONE}")
        array = cm.create_array(url, shape=(24, 24), dtype="i4", chunks=(24, 24), storage_options=options)
        regions = [slice(i, i + 2) for i in range(0, 24, 2)]
        writes = [cm.to_store(da.from_array(X[rows]), array, region=rows, compute=False) for rows in regions]
        reports = client.gather(client.compute(writes))
    assert {report.guard for report in reports} == {"lock"}
    np.testing.assert_array_equal(cm.open_array(url, storage_options=options)[...], X)
