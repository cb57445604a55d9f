"""Stores whose requests cost latency: jobs have many requests under way on two threads, and make each once."""

import dask.array as da
import numpy as np
import pytest
from support.recording import FarStore

import chunkmill as cm

pytestmark = pytest.mark.usefixtures("two_threads")

VALUES = np.arange(60 * 40).reshape(60, 40)  # 15 x 10 chunks
SECONDS = 0.01


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
        (cm.rechunk, {"chunks": (60, 1), "strategy": "spill", "max_mem": "16 MiB"}, 40),
    ],
    ids=["copy", "recode", "shards", "rechunk", "lines", "spill"],
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
