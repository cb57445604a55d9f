"""Reading and writing on a cluster of processes: what threads write, processes write, and nothing is lost between them.

The serial scheduler is the oracle. Locks and their holders' deaths are in ``test_locks``.
"""

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from support.clusters import cluster_of
from support.servers import WARNINGS, s3_server  # noqa: F401 - a fixture

import chunkmill as cm
from chunkmill.errors import AlignmentError, ChunkError, NodeExists, NodeNotFound
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.local import LocalStore

pytestmark = [pytest.mark.slow, *WARNINGS]


@pytest.fixture(scope="module")
def cluster():
    with cluster_of(2, 2) as client:
        yield client.cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


def values(shape, dtype="i4"):
    return (np.arange(np.prod(shape, dtype=int)) * 13 % 2551 + 1).astype(dtype).reshape(shape)


LAYOUTS = {
    "v2": {"format": "zarr2", "chunks": (30, 20)},
    "v3": {"chunks": (30, 20)},
    "sharded": {"chunks": (10, 10), "shards": (30, 20)},
    "rectilinear": {"chunks": ((31, 40, 29), (50, 30))},
    "n5": {"format": "n5", "chunks": (30, 20)},
    "draft": {"format": "zarr3-draft", "chunks": (30, 20)},
}
SHAPE = (100, 80)


def by_key(folder, layout):
    """The store as the serial scheduler writes it: bytes by key."""
    with dask.config.set(scheduler="sync"):
        cm.to_store(da.from_array(values(SHAPE), chunks=SHAPE), folder, "a", **LAYOUTS[layout])
    store = LocalStore(folder)
    return {key: store.get(key) for key in store.list_prefix("")}


@pytest.mark.parametrize("limit", ["1KiB", "20KiB", "128MiB"])
@pytest.mark.parametrize("blocks", [(30, 20), (17, 23), (100, 1)], ids=["aligned", "misaligned", "columns"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_blocks_and_any_chunk_size(client, tmp_path, layout, blocks, limit):
    """The same bytes under the same keys as one process alone writes, whatever dask's ``array.chunk-size``."""
    x = da.from_array(values(SHAPE), chunks=blocks)
    with dask.config.set({"array.chunk-size": limit}):
        report = cm.to_store(x, tmp_path / "store", "a", **LAYOUTS[layout])
    assert report.n_partial == 0
    store = LocalStore(tmp_path / "store")
    assert {key: store.get(key) for key in store.list_prefix("")} == by_key(tmp_path / "alone", layout)
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], values(SHAPE))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_store(client, tmp_path, layout):
    by_key(tmp_path / "store", layout)
    for chunks in (None, "auto", (33, 7), -1):
        x = cm.from_store(tmp_path / "store", "a", chunks=chunks)
        np.testing.assert_array_equal(x, values(SHAPE))
        assert int((x[10:50, ::3] + 1).sum().compute()) == int((values(SHAPE)[10:50, ::3] + 1).sum())


def test_from_array_and_persisted(client, tmp_path):
    by_key(tmp_path / "store", "sharded")
    x = da.from_array(cm.open_array(tmp_path / "store", "a")).persist()
    np.testing.assert_array_equal(x.T[3], values(SHAPE).T[3])


def test_strings_and_times_travel(client, tmp_path):
    words = np.array(["", "snow", "rain ☂", "z" * 99], np.dtypes.StringDType())
    times = np.array(["2026-01-01", "NaT", "1969-12-31", "2500-06-01"], "M8[s]")
    cm.to_store(da.from_array(words, chunks=2), tmp_path / "store", "words")
    cm.to_store(da.from_array(times, chunks=3), tmp_path / "store", "times", format="zarr2")
    assert list(cm.from_store(tmp_path / "store", "words").compute()) == list(words)
    np.testing.assert_array_equal(cm.from_store(tmp_path / "store", "times"), times)


@pytest.mark.parametrize("lock", ["auto", None], ids=["auto", "none"])
@pytest.mark.parametrize("layout", ["v2", "sharded", "n5"])
def test_interleaved_regions_lose_nothing(client, tmp_path, layout, lock):
    """Stripes that all cut through the same keys, written at once from both processes."""
    array = cm.create_array(tmp_path / "store", "a", shape=SHAPE, dtype="i4", **LAYOUTS[layout])
    jobs = [
        cm.store(
            da.from_array(values(SHAPE)[i::1][:7], chunks=(7, 33)),
            array,
            regions=(slice(i, min(i + 7, 100)), slice(None)),
            lock=lock,
            compute=False,
        )
        for i in range(0, 98, 7)
    ] + [
        cm.store(
            da.from_array(values(SHAPE)[98:]), array, regions=(slice(98, 100), slice(None)), lock=lock, compute=False
        )
    ]
    client.gather(client.compute(jobs))
    np.testing.assert_array_equal(array[...], values(SHAPE))


@pytest.fixture
def bucket(s3_server):  # noqa: F811
    return f"{s3_server.new_bucket()}/x", s3_server.storage_options


@pytest.mark.parametrize("layout", ["v3", "sharded", "n5"])
def test_s3(client, bucket, layout):
    url, options = bucket
    x = da.from_array(values(SHAPE), chunks=(17, 23))
    cm.to_store(x, url, "a", storage_options=options, **LAYOUTS[layout])
    np.testing.assert_array_equal(cm.from_store(url, "a", storage_options=options), values(SHAPE))


@pytest.mark.parametrize("lock", ["auto", None], ids=["auto", "none"])
def test_interleaved_elements_on_s3(client, bucket, lock):
    """Every element is a job of its own, and all share one object."""
    url, options = bucket
    array = cm.create_array(url, "a", shape=(32,), dtype="i4", chunks=(32,), storage_options=options)
    assert array.store.compares_versions
    jobs = [
        cm.store(da.full(1, i + 1, dtype="i4"), array, regions=(slice(i, i + 1),), lock=lock, compute=False)
        for i in range(32)
    ]
    client.gather(client.compute(jobs))
    np.testing.assert_array_equal(array[...], np.arange(32) + 1)


def test_a_store_that_cannot_compare_versions(client, tmp_path):
    """Plain files through fsspec: the lock is all there is (that elements are lost without it, `test_locks` shows)."""
    store = FsspecStore(f"file://{tmp_path}")
    assert not store.compares_versions
    array = cm.create_array(store, "a", shape=(40,), dtype="i4", chunks=(40,))

    def jobs():
        return [
            cm.store(da.full(1, i + 1, dtype="i4"), array, regions=(slice(i, i + 1),), compute=False) for i in range(40)
        ]

    client.gather(client.compute(jobs()))
    np.testing.assert_array_equal(array[...], np.arange(40) + 1)


def test_two_clients_write_one_array(client, cluster, tmp_path):
    array = cm.create_array(tmp_path / "store", "a", shape=(60,), dtype="i4", chunks=(16,), shards=None)
    jobs = [
        cm.store(da.full(3, i + 1, dtype="i4"), array, regions=(slice(3 * i, 3 * i + 3),), compute=False)
        for i in range(20)
    ]
    with Client(cluster, set_as_default=False) as other:
        futures = client.compute(jobs[::2]), other.compute(jobs[1::2])
        client.gather(futures[0])
        other.gather(futures[1])
    np.testing.assert_array_equal(array[...], np.repeat(np.arange(20) + 1, 3))


def test_compute_later(client, tmp_path):
    """The array appears when the job ran, on the cluster or off it, and once only."""
    job = cm.to_store(
        da.from_array(values(SHAPE), chunks=(17, 23)), tmp_path / "store", "a", chunks=(30, 20), compute=False
    )
    with pytest.raises(NodeNotFound):
        cm.open(tmp_path / "store", "a")
    report = client.compute(job).result()
    assert report.n_keys == 16
    np.testing.assert_array_equal(cm.open_array(tmp_path / "store", "a")[...], values(SHAPE))


def test_several_targets_at_once(client, tmp_path):
    arrays = [
        cm.create_array(tmp_path / "store", name, shape=SHAPE, dtype="i4", **options)
        for name, options in LAYOUTS.items()
        if options.get("format", "zarr3") == "zarr3"
    ]
    x = da.from_array(values(SHAPE), chunks=(17, 23))
    reports = cm.store([x + n for n in range(len(arrays))], arrays)
    assert [report.n_partial for report in reports] == [0] * len(arrays)
    for n, array in enumerate(arrays):
        np.testing.assert_array_equal(array[...], values(SHAPE) + n)


def test_refusals_come_before_anything_is_written(client, tmp_path):
    x = da.arange(10, chunks=5)
    with pytest.raises(AlignmentError):
        cm.to_store(x[x > 3], tmp_path / "store", "a")
    cm.to_store(x, tmp_path / "store", "a")
    with pytest.raises(NodeExists):
        cm.to_store(x + 1, tmp_path / "store", "a")
    np.testing.assert_array_equal(cm.open_array(tmp_path / "store", "a")[...], np.arange(10))


def test_a_failing_task_leaves_no_array(client, tmp_path):
    def fail(block):
        if (block == 7).any():
            raise RuntimeError("no such luck")
        return block

    x = da.arange(12, chunks=2).map_blocks(fail, dtype=int, meta=np.empty(0, int))
    with pytest.raises(RuntimeError, match="no such luck"):
        cm.to_store(x, tmp_path / "store", "a")
    with pytest.raises(NodeNotFound):
        cm.open(tmp_path / "store", "a")


def test_a_worker_s_chunk_error_arrives_whole(client, tmp_path):
    by_key(tmp_path / "store", "n5")
    (tmp_path / "store" / "a" / "1" / "2").write_bytes(b"no block")
    with pytest.raises(ChunkError) as caught:
        cm.from_store(tmp_path / "store", "a").sum().compute()
    assert (caught.value.key, caught.value.coords, caught.value.step) == ("a/1/2", (2, 1), "n5_block")
