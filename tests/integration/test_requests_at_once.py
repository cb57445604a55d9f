"""Stores whose requests cost latency: jobs have many requests under way on two threads, and make each once."""

import threading
import time
from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.clusters import cluster_of, kill_worker, worker_pids
from support.recording import FarStore, SlowStore
from support.servers import WARNINGS, serve_files

import chunkmill as cm
from chunkmill.stores.local import LocalStore

pytestmark = WARNINGS

VALUES = np.arange(60 * 40).reshape(60, 40)  # 15 x 10 chunks
SECONDS = 0.01


@pytest.fixture(autouse=True)
def two_threads():
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


@pytest.fixture
def source():
    far = FarStore()
    cm.to_store(da.from_array(VALUES, chunks=(4, 4)), far.below)
    far.seconds = SECONDS
    return far


@pytest.mark.parametrize(
    ("job", "options", "n_keys"),
    [
        (cm.convert, {"format": "zarr2"}, 150),
        (cm.convert, {"format": "zarr3", "codecs": "gzip"}, 150),
        (cm.convert, {"format": "zarr3", "shards": (8, 8)}, 40),
        (cm.rechunk, {"chunks": (5, 5)}, 96),
        (cm.rechunk, {"chunks": (60, 1)}, 40),
    ],
    ids=["copy", "recode", "shards", "rechunk", "lines"],
)
def test_jobs(source, job, options, n_keys):
    target = FarStore(seconds=SECONDS)
    job(source, target, **options)
    np.testing.assert_array_equal(cm.open_array(target.below)[...], VALUES)
    assert set(source.chunks("get").values()) == {1}
    if options.get("format") != "zarr2":  # whose keys the log does not tell from others
        stored = target.chunks("set", "set_if")
        assert len(stored) == n_keys
        assert set(stored.values()) == {1}
    assert source.most_at_once >= 8
    assert target.most_at_once >= 8  # of 16 to 32, as the machine is busy


@pytest.fixture(scope="module")
def client():
    with cluster_of(2, 1) as client:
        yield client


@pytest.mark.slow
class TestCluster:
    @pytest.mark.parametrize(
        "read",
        [cm.from_store, lambda url: xr.open_dataset(url, engine="chunkmill", chunks={}).data.data],
        ids=["from_store", "xarray"],
    )
    def test_each_key_is_requested_once(self, client, tmp_path, read):
        """As far as the blocks' tasks run where their requests were begun: all but those that the cluster moves."""
        cm.to_store(da.from_array(VALUES, chunks=(2, 2)), tmp_path / "a")
        with serve_files(tmp_path, latency=SECONDS) as server:
            x = read(f"{server.url}/a")
            assert x.sum().compute(scheduler=client) == VALUES.sum()
            keys = [path for method, path, _ in server.log if "/c/" in path]
            assert len(set(keys)) == 600
            assert len(keys) < 700
            assert server.most_at_once >= 16

    def test_values_of_a_worker_that_dies_are_written_by_another(self, client, tmp_path):
        far = SlowStore(LocalStore(tmp_path / "x"), 0.1, ["set"])
        far.is_remote = True
        with dask.config.set(scheduler=client):
            writing = threading.Thread(target=cm.to_store, args=(da.from_array(VALUES, chunks=(4, 4)), far))
            writing.start()
            deadline = time.monotonic() + 20
            while len(list((tmp_path / "x").rglob("*"))) < 30 and time.monotonic() < deadline:
                time.sleep(0.02)
            kill_worker(next(iter(worker_pids(client).values())))
            writing.join(60)
        np.testing.assert_array_equal(cm.open_array(tmp_path / "x")[...], VALUES)


@pytest.mark.parametrize(("n_rows", "most_requests"), [(400, 1), (4000, 10)])
@pytest.mark.parametrize("selection", [np.s_[10:-10], np.s_[:, 10:40], np.s_[-200:]], ids=str)
def test_no_byte_of_a_shard_is_read_twice(tmp_path, n_rows, most_requests, selection):
    """Its inner chunks lie in Morton's order, and threads read neighbours of each other's."""
    zarr = pytest.importorskip("zarr")
    values = np.random.default_rng(0).random((n_rows, 50), dtype="f4")
    chunks = (n_rows // 8, 10)
    zarr.create_array(tmp_path / "x", data=values, chunks=chunks, shards=values.shape, compressors=None)
    with serve_files(tmp_path) as server, dask.config.set(num_workers=2):
        array = cm.open_array(f"{server.url.rstrip('/')}/x")
        server.log.clear()
        np.testing.assert_array_equal(array[selection], values[selection])
        ranges = [each[2] for each in server.log]
    assert len(ranges) <= most_requests
    spans = sorted(
        tuple(map(int, each.removeprefix("bytes=").split("-"))) for each in ranges if each and "=-" not in each
    )
    assert all(first[1] < second[0] for first, second in pairwise(spans))
