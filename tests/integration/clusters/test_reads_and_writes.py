"""Reading and writing on a cluster of processes: what threads write, processes write, and nothing is lost between them.

The serial scheduler is the oracle. Locks and their holders' deaths are in ``test_locks``.
"""

import dask
import dask.array as da
import numpy as np
import pytest
from support.servers import WARNINGS

import chunkmill as cm
from chunkmill.stores.local import LocalStore

pytestmark = [pytest.mark.slow, *WARNINGS]


def values(shape, dtype="i4"):
    return (np.arange(np.prod(shape, dtype=int)) * 13 % 2551 + 1).astype(dtype).reshape(shape)


LAYOUTS = {
    "v3": {"chunks": (30, 20)},
    "sharded": {"chunks": (10, 10), "shards": (30, 20)},
    "rectilinear": {"chunks": ((31, 40, 29), (50, 30))},
    "n5": {"format": "n5", "chunks": (30, 20)},
}
SHAPE = (100, 80)


def by_key(folder, layout):
    """The store as the serial scheduler writes it: bytes by key."""
    with dask.config.set(scheduler="sync"):
        cm.to_store(da.from_array(values(SHAPE), chunks=SHAPE), folder, "a", **LAYOUTS[layout])
    store = LocalStore(folder)
    return {key: store.get(key) for key in store.list_prefix("")}


@pytest.mark.parametrize(
    ("layout", "blocks", "limit"),
    [
        ("v3", (100, 1), "1KiB"),
        ("sharded", (17, 23), "20KiB"),
        ("rectilinear", (30, 20), "128MiB"),
        ("n5", (17, 23), "1KiB"),
    ],
)
def test_any_blocks_and_any_chunk_size(client, tmp_path, layout, blocks, limit):
    """The same bytes under the same keys as one process alone writes, whatever dask's ``array.chunk-size``."""
    x = da.from_array(values(SHAPE), chunks=blocks)
    with dask.config.set({"array.chunk-size": limit}):
        report = cm.to_store(x, tmp_path / "store", "a", **LAYOUTS[layout])
    assert report.n_partial == 0
    store = LocalStore(tmp_path / "store")
    assert {key: store.get(key) for key in store.list_prefix("")} == by_key(tmp_path / "alone", layout)
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], values(SHAPE))


def test_from_store(client, tmp_path):
    by_key(tmp_path / "store", "sharded")
    x = da.from_array(cm.open_array(tmp_path / "store", "a")).persist()
    np.testing.assert_array_equal(x.T[3], values(SHAPE).T[3])
    x = cm.from_store(tmp_path / "store", "a", chunks=(33, 7))
    np.testing.assert_array_equal(x, values(SHAPE))


@pytest.mark.parametrize(("layout", "lock"), [("v3", None), ("sharded", "auto")])
def test_interleaved_regions_lose_nothing(client, tmp_path, layout, lock):
    """Stripes that all cut through the same keys, written at once from both processes."""
    array = cm.create_array(tmp_path / "store", "a", shape=SHAPE, dtype="i4", **LAYOUTS[layout])
    stripes = [(slice(i, min(i + 7, 100)), slice(None)) for i in range(0, 100, 7)]
    jobs = [
        cm.store(da.from_array(values(SHAPE)[stripe], chunks=(7, 33)), array, regions=stripe, lock=lock, compute=False)
        for stripe in stripes
    ]
    client.gather(client.compute(jobs))
    np.testing.assert_array_equal(array[...], values(SHAPE))


def test_s3(client, s3_server):
    """Every element is a job of its own, and all share one object."""
    url, options, lock = f"{s3_server.new_bucket()}/x", s3_server.storage_options, None
    array = cm.create_array(url, "a", shape=(32,), dtype="i4", chunks=(32,), storage_options=options)
    assert array.store.compares_versions
    jobs = [
        cm.store(da.full(1, i + 1, dtype="i4"), array, regions=(slice(i, i + 1),), lock=lock, compute=False)
        for i in range(32)
    ]
    client.gather(client.compute(jobs))
    np.testing.assert_array_equal(array[...], np.arange(32) + 1)
