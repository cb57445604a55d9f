"""What reference sets cost: bytes that tasks are sent, requests for neighbouring ranges, requests to write a set."""

import pickle

import cloudpickle
import dask
import numpy as np
import pytest
from dask._task_spec import Task
from support import servers
from support.recording import RecordingStore
from support.servers import http_server  # noqa: F401

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.formats.references.json import emit_reference_json
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.references.write import to_references
from chunkmill.stores.reference import ReferenceStore, Targets

pytestmark = servers.WARNINGS

N = 100_000
ZARRAY = b"""{"zarr_format": 2, "shape": [%d], "chunks": [4], "dtype": "|u1", "order": "C", "fill_value": 0,
              "filters": null, "compressor": null}"""


def ranges(url, n=N, source="memory://refs.json"):
    """An array of `n` chunks of 4 bytes, one after the other in one file."""
    builder = ReferenceBuilder()
    builder.add_data("a/.zarray", ZARRAY % (4 * n))
    numbers = np.arange(n)
    ids = np.full(n, builder.url_id(url))
    builder.add_table("a/", ".", numbers.reshape(-1, 1), ids, 4 * numbers, np.full(n, 4))
    return ReferenceStore(builder.build(), Targets(source), url=source)


@pytest.fixture
def large(tmp_path):
    store = ranges("s3://bucket/archive.nc")
    path = tmp_path / "refs.json"
    path.write_bytes(emit_reference_json(store.references))
    return cm.open_array(path, "a")


def test_a_task_is_sent_the_url_of_the_set(large):
    for x in (large.to_dask(chunks=40), (large.to_dask(chunks=40) + 1)[:200].sum()):
        (optimized,) = dask.optimize(x)
        sizes = [len(pickle.dumps(task)) for task in list(dict(optimized.dask).values())[:20]]
        assert max(sizes) < 4000


def test_nothing_a_chunk_exists_before(large, monkeypatch):
    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(StoredArray, "keys", refuse)
    assert large.to_dask().npartitions == N
    layers = large.to_dask().dask.layers
    assert len(layers) == 2  # that of the blocks, and that of the runs of blocks whose requests are begun together
    assert not any(layer.is_materialized() for layer in layers.values())


class Sending:
    """A dask scheduler that treats every task as if it ran elsewhere, and keeps how many bytes went there."""

    def __init__(self):
        self.shared, self.tasks = [], []

    def get(self, dsk, keys, **_):
        sent = {}
        for key, task in dsk.items():
            sent[key] = cloudpickle.dumps(task)
            (self.tasks if isinstance(task, Task) else self.shared).append(len(sent[key]))
        return dask.get({key: cloudpickle.loads(task) for key, task in sent.items()}, keys)


@pytest.mark.parametrize(
    "job",
    {
        "convert": lambda array, folder: cm.convert(array, folder / "t", format="zarr3", shards=(400,)),
        "rechunk": lambda array, folder: cm.rechunk(array, folder / "t", chunks=(400,)),
        "spill": lambda array, folder: cm.rechunk(array, folder / "t", chunks=(400,), strategy="spill"),
        "verify": lambda array, _: cm.verify(array, array),
        "check": lambda array, _: cm.check(array),
        "to_references": lambda array, folder: to_references(array, folder / "refs.json"),
    }.items(),
    ids=lambda job: job[0],
)
def test_the_tasks_of_jobs_are_sent_the_url_of_the_set(job, tmp_path):
    """Of 10,000 references, which take 40 kB at their best."""
    n = 10_000
    (tmp_path / "all.bin").write_bytes(bytes(4 * n))
    store = ranges(str(tmp_path / "all.bin"), n)
    assert len(pickle.dumps(store)) > 40_000
    (tmp_path / "set.json").write_bytes(emit_reference_json(store.references))
    array = cm.open_array(tmp_path / "set.json", "a")
    sending = Sending()
    with dask.config.set(scheduler=sending.get):
        done = job[1](array, tmp_path)
    assert getattr(done, "equal", True)
    assert getattr(done, "ok", True)
    assert sending.tasks
    assert max(sending.shared, default=0) < 5_000
    assert max(sending.tasks) < 25_000
    assert sum(sending.tasks) < 600_000


# --------------------------------------------------------------------------------------------------------------------
# Requests


def test_neighbouring_ranges_are_one_request_a_task(http_server):  # noqa: F811
    pytest.importorskip("aiohttp")
    (http_server.folder / "all.bin").write_bytes(bytes(range(240)))
    array = cm.open_array(ranges(f"{http_server.url}/all.bin", 60), "a")
    np.testing.assert_array_equal(array.to_dask(chunks=80).compute(scheduler="sync"), np.arange(240))
    assert sorted(http_server.log) == [("GET", "all.bin", f"bytes={start}-{start + 79}") for start in (0, 160, 80)]


def test_ranges_far_apart_stay_apart(http_server):  # noqa: F811
    pytest.importorskip("aiohttp")
    (http_server.folder / "all.bin").write_bytes(bytes(300_000))
    builder = ReferenceBuilder()
    builder.add_data("a/.zarray", ZARRAY % 8)
    builder.add("a/0", f"{http_server.url}/all.bin", 0, 4)
    builder.add("a/1", f"{http_server.url}/all.bin", 299_996, 4)
    array = cm.open_array(ReferenceStore(builder.build(), url="memory://refs.json"), "a")
    array.to_dask(chunks=8).compute(scheduler="sync")
    assert sorted(entry[2] for entry in http_server.log) == ["bytes=0-3", "bytes=299996-299999"]


class TestWriting:
    @pytest.fixture(autouse=True)
    def scheduler(self):
        with dask.config.set(scheduler="sync"):
            yield

    def requests(self, tmp_path, name, **options):
        """Requests to write a set over a memory filesystem's store, below what counts them, without documents."""
        from chunkmill.stores.fsspec import FsspecStore

        store = FsspecStore(f"memory://cost-{name}")
        a = cm.create_array(store, "a", shape=(8, 8), chunks=(2, 2), dtype="i4", overwrite=True, **options)
        a[:4] = 1
        recording = RecordingStore(store)
        array = cm.open_array(recording, "a")
        recording.clear()
        report = to_references(array, tmp_path / f"{name}.json")
        return [(method, bounds) for method, key, bounds in recording.log], report

    def test_whole_objects_cost_a_listing(self, tmp_path):
        log, report = self.requests(tmp_path, "whole")
        assert log == []  # sizes come with the listing, which goes to the store itself
        assert (report.n_references, report.n_tasks) == (8, 0)

    def test_a_shard_costs_its_index(self, tmp_path):
        log, report = self.requests(tmp_path, "sharded", shards=(4, 4))
        assert [method for method, _ in log] == ["get"] * 2
        assert all(bounds.start == -(4 * 16 + 4) for _, bounds in log)
        assert report.n_references == 8

    def test_an_n5_block_costs_its_header(self, tmp_path):
        log, report = self.requests(tmp_path, "n5", format="n5", codecs="gzip")
        assert [(method, bounds.start, bounds.length) for method, bounds in log] == [("get", 0, 12)] * 8
        assert report.n_references == 8
