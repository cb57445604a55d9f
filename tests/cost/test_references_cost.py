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
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.reference import ReferenceStore, Targets

pytestmark = servers.WARNINGS

N = 20_000
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


def test_of_many_references_a_task_is_sent_the_url_of_the_set(tmp_path, monkeypatch):
    (tmp_path / "refs.json").write_bytes(emit_reference_json(ranges("s3://bucket/archive.nc").references))
    array = cm.open_array(tmp_path / "refs.json", "a")
    for x in (array.to_dask(chunks=40), (array.to_dask(chunks=40) + 1)[:200].sum()):
        (optimized,) = dask.optimize(x)
        sizes = [len(pickle.dumps(task)) for task in list(dict(optimized.dask).values())[:20]]
        assert max(sizes) < 4000
    monkeypatch.setattr(StoredArray, "keys", pytest.fail)  # nothing a chunk exists before
    assert array.to_dask().npartitions == N
    layers = array.to_dask().dask.layers
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


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("options", "requests"),
    [
        pytest.param({}, [], id="whole objects: a listing, of the store itself"),
        pytest.param({"shards": (4, 4)}, [("get", -(4 * 16 + 4), None)] * 2, id="a shard: its index"),
        pytest.param({"format": "n5", "codecs": "gzip"}, [("get", 0, 12)] * 8, id="an N5 block: its header"),
    ],
)
def test_requests_to_write_a_set(tmp_path, options, requests):
    store = RecordingStore(FsspecStore("memory://cost"))
    a = cm.create_array(store, "a", shape=(8, 8), chunks=(2, 2), dtype="i4", overwrite=True, **options)
    a[:4] = 1
    array = cm.open_array(store, "a")
    store.clear()
    report = to_references(array, tmp_path / "set.json")
    assert [(method, bounds.start, bounds.length) for method, _, bounds in store.log] == requests
    assert (report.n_references, report.n_tasks > 0) == (8, bool(requests))
