"""Reading and writing on a cluster of processes: what threads write, processes write, and nothing is lost between them.

The serial scheduler is the oracle. Locks and their holders' deaths are in ``test_locks``.
"""

import dask
import dask.array as da
import numcodecs
import numpy as np
import pytest
from support.arrays import filled
from support.clusters import cluster_of
from support.recording import contents
from support.servers import WARNINGS

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, StoreError
from chunkmill.runtime.cluster_tasks import machine, sync_other_machines
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

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
    return contents(LocalStore(folder))


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
    assert contents(store) == by_key(tmp_path / "alone", layout)
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], values(SHAPE))


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


# --------------------------------------------------------------------------------------------------------------------
# Errors of chunks that workers meet: they cross processes, with all that they say, which pickling alone does not show


@pytest.mark.parametrize("scheduler", ["client", "other_process"])
def test_reading(tmp_path, request, scheduler):
    array = filled(np.ones((8, 8), "i4"), tmp_path, "a", chunks=(2, 4), codecs="raw")
    (tmp_path / "a" / "c" / "3" / "1").write_bytes(b"x" * 31)
    request.getfixturevalue(scheduler)
    with pytest.raises(ChunkError, match="31 bytes, expected 32") as caught:
        (array.to_dask() + 1).compute()
    error = caught.value
    assert (error.url, error.key, error.coords, error.step) == (array.url, "a/c/3/1", (3, 1), "bytes")


# --------------------------------------------------------------------------------------------------------------------
# Arrays that the client replaces: workers have seen the old one, in memory of their own


def test_workers_see_at_once_what_the_client_replaced(url, client):
    values = np.arange(16, dtype="i4").reshape(4, 4)
    x = filled(values, url, "a", chunks=(4, 1), codecs=None).to_dask()
    np.testing.assert_array_equal(x.compute(), values)
    cm.create_array(url, "a", shape=(4, 4), chunks=(2, 2), dtype="i4", codecs=None, overwrite=True)
    with pytest.raises(StoreError, match="it has been replaced"):
        x.compute()


# --------------------------------------------------------------------------------------------------------------------
# Workers that cannot run a job are told of before anything is written: they are processes without what the client has


class ClientOnly(numcodecs.abc.Codec):
    """A codec that is registered in this process alone."""

    codec_id = "client-only"

    def encode(self, buf):
        return bytes(buf)

    def decode(self, buf, out=None):
        return buf


def test_what_workers_lack_is_named_once_for_all(client, tmp_path):
    numcodecs.register_codec(ClientOnly)
    options = {"shape": (4, 3), "chunks": (2, 3), "dtype": "i4", "format": "zarr2"}
    cm.create_array(tmp_path / "a", codecs=[{"id": "client-only"}], **options)
    with pytest.raises(JobError, match=r"worker tcp://.*cannot run the tasks.*client-only") as caught:
        cm.convert(tmp_path / "a", tmp_path / "b", format="zarr2", codecs="zstd")
    assert "(so do 1 more)" in str(caught.value)  # both workers, in one line
    assert not (tmp_path / "b").exists()


# --------------------------------------------------------------------------------------------------------------------
# Workers of other machines, as which processes take themselves

X = np.arange(1600).reshape(40, 40)
PRELOAD = """
import os

from chunkmill.runtime import cluster_tasks as machines
from chunkmill.stores import local, posix_file


def logged(directory):
    posix_file.sync_file_system(directory)
    with open({log!r}, "a") as file:
        file.write(f"{{os.getpid()}}|{{directory}}|{{os.path.exists({document!r})}}\\n")


machines.origin = lambda: (f"machine-{{os.getpid()}}", "", "")
local.sync_file_system = logged
"""
"""Lets workers take themselves for processes of other machines, and say when they sync what, and what was there."""


def test_each_machine_syncs_before_the_documents_are_published(tmp_path):
    """The client's `syncfs` reached its own machine alone."""
    cm.to_store(X, tmp_path / "source.zarr", chunks=(10, 10))
    document = tmp_path / "target" / "attributes.json"
    log = tmp_path / "synced"

    def synced():
        return [line.split("|") for line in log.read_text().splitlines()]

    with cluster_of(2, preload=PRELOAD.format(log=str(log), document=str(document))) as client:
        cm.convert(tmp_path / "source.zarr", tmp_path / "target", format="n5", chunks=(10, 10))
        found = synced()
        assert len({pid for pid, _, _ in found}) == 2, found
        assert {place for _, place, _ in found} == {str(tmp_path / "target")}
        assert {was_published for *_, was_published in found} == {"False"}, found
        np.testing.assert_array_equal(cm.open_array(tmp_path / "target")[...], X)
        blocks = da.from_array(X, chunks=(10, 40))
        cm.to_store(blocks, tmp_path / "written", chunks=(10, 10), format="n5", resume=True)
        resumed = synced()[len(found) :]
        assert {place for _, place, _ in resumed} == {str(tmp_path / "written")}
        # workers of one host, of which one is asked
        cm.to_store(-blocks, tmp_path / "written", chunks=(10, 10), format="n5", mode="w")
        assert [place for _, place, _ in synced()[len(found) + len(resumed) :]] == [str(tmp_path / "written")]
        np.testing.assert_array_equal(cm.open_array(tmp_path / "written")[...], -X)
        # a machine that has no worker any more is named
        (worker, name), *_ = client.run(machine).items()
        ran, before = {name: {worker}, "third": {"tcp://gone:1"}}, len(synced())
        stores = [LocalStore(tmp_path), MemoryStore(), LocalStore(tmp_path / "other")]
        with pytest.warns(UserWarning, match=r"^convert: what workers wrote to .* that are gone \(tcp://gone:1\) was"):
            sync_other_machines(stores, client, "convert", ran)
        assert len(synced()) - before == 2  # of each store that has files
