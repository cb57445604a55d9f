"""Writes to Icechunk by tasks of a cluster, to whose processes the session is forked: still one commit."""

import dask.array as da
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import StoreError

icechunk = pytest.importorskip("icechunk")
zarr = pytest.importorskip("zarr")

pytestmark = pytest.mark.slow

X = np.arange(70.0).reshape(7, 10)


@pytest.fixture
def repository(tmp_path):
    return icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")))


def test_jobs_make_one_commit_each_and_failures_none(client, repository, tmp_path):
    url = f"{tmp_path}/repository|icechunk:"

    def fails(block, block_id=None):
        if block_id == (2, 1):
            raise RuntimeError("no values")
        return block

    written = da.from_array(X, chunks=(2, 5))  # no boundary is one of the chunks (3, 4)
    cm.to_store(written, url, "a", chunks=(3, 4))
    cm.open_array(url, "a", mode="r+").append(written)
    cm.rechunk((url, "a"), (url, "b"), chunks=(14, 2))
    with pytest.raises(RuntimeError, match="no values"):
        cm.to_store(da.from_array(X + 1, chunks=(3, 5)).map_blocks(fails, dtype=X.dtype), url, "a", mode="w")
    assert len(list(repository.ancestry(branch="main"))) == 1 + 3
    group = zarr.open_group(repository.readonly_session("main").store, mode="r")
    for name in "ab":
        np.testing.assert_array_equal(group[name][...], np.concatenate([X, X]))


def test_later_computation_elsewhere_loses_nothing_silently(client, repository):
    session = repository.writable_session("main")
    later = cm.to_store(da.ones(4, chunks=2), session, "a", compute=False)
    with pytest.raises(StoreError, match="a transaction that this process does not have"):
        later.compute()
