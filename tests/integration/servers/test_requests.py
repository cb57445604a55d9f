"""What is asked of a server, which counts it: each key once, and no byte of a shard twice."""

from itertools import pairwise

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.servers import WARNINGS, serve_files

import chunkmill as cm

pytestmark = WARNINGS


@pytest.mark.slow
def test_workers_of_a_cluster_request_each_key_once(client, tmp_path):
    """As far as the blocks' tasks run where their requests were begun: all but those that the cluster moves."""
    values = np.arange(60 * 40).reshape(60, 40)
    cm.to_store(da.from_array(values, chunks=(2, 2)), tmp_path / "a")
    with serve_files(tmp_path, latency=0.01) as server:
        x = xr.open_dataset(f"{server.url}/a", engine="chunkmill", chunks={}).data.data
        assert x.sum().compute(scheduler=client) == values.sum()
        keys = [path for method, path, _ in server.log if "/c/" in path]
        assert len(set(keys)) == 600
        assert len(keys) < 700
        assert server.most_at_once >= 16


@pytest.mark.parametrize(("n_rows", "most_requests"), [(400, 1), (4000, 10)])
def test_no_byte_of_a_shard_is_read_twice(tmp_path, n_rows, most_requests):
    """Its inner chunks lie in Morton's order, and threads read neighbours of each other's."""
    zarr = pytest.importorskip("zarr")
    values = np.random.default_rng(0).random((n_rows, 50), dtype="f4")
    zarr.create_array(tmp_path / "x", data=values, chunks=(n_rows // 8, 10), shards=values.shape, compressors=None)
    with serve_files(tmp_path) as server, dask.config.set(num_workers=2):
        array = cm.open_array(f"{server.url.rstrip('/')}/x")
        for selection in (np.s_[10:-10], np.s_[:, 10:40], np.s_[-200:]):
            server.log.clear()
            np.testing.assert_array_equal(array[selection], values[selection])
            ranges = [each[2] for each in server.log]
            assert len(ranges) <= most_requests
            spans = [each.removeprefix("bytes=").split("-") for each in ranges if each and "=-" not in each]
            spans = sorted((int(first), int(last)) for first, last in spans)
            assert all(first[1] < second[0] for first, second in pairwise(spans))
