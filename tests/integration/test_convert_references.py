"""Virtual netCDF becomes real Zarr: convert, rechunk and verify over reference sets, in threads, processes and on a cluster."""

import json
import pickle
from itertools import pairwise
from pathlib import Path

import dask
import numpy as np
import pytest
from support.clusters import cluster_of
from support.servers import FORK_WARNING

import chunkmill as cm
from chunkmill.conversion.convert_tasks import ArrayTransfer, transfer_group, transfer_reads
from chunkmill.errors import ChunkError, StoreError
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.references.write import to_references
from chunkmill.runtime import task as stage_task
from chunkmill.runtime.reference_shipping import ReferenceSender, references_in_scope
from chunkmill.runtime.stage import Stage
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.reference import ReferenceStore

GOLDEN = Path(__file__).parents[1] / "golden" / "references"
AIR = (np.arange(5 * 4 * 6).reshape(5, 4, 6) * 37 % 500 - 250).astype("i2")
SETS = ["kerchunk.json", "kerchunk-inlined.json", "kerchunk-4.parquet"]
NAMED = {"storage_options": {"base": str(GOLDEN)}}

pytestmark = FORK_WARNING


def twice(array):
    """Shards of two chunks along each axis."""
    return tuple(2 * n for n in array.chunks) if array.ndim else None


def check(target):
    group = cm.open_group(target)
    air = group["air"]
    np.testing.assert_array_equal(air[...], AIR)
    assert air.shards == tuple(2 * n for n in air.chunks)
    assert [codec.name for codec in air.codecs] == ["sharding_indexed"]
    inner = [codec["name"] for codec in air.codecs[0].configuration["codecs"]]
    assert inner == ["bytes", "numcodecs.shuffle", "numcodecs.zlib"]
    assert air.dimension_names == ("time", "lat", "lon")
    assert (air.attributes["units"], air.attributes["scale_factor"]) == ("K", 0.5)
    np.testing.assert_array_equal(group["sparse"][...], [-9, -9, 20, 30, -9, -9])
    np.testing.assert_array_equal(group["deep/er/air"][...], AIR[:, :, 0] % 200)
    assert group["crs"][...] == 7


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_virtual_netcdf_becomes_sharded_zarr(name, scheduler, tmp_path):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with dask.config.set(scheduler=scheduler):
        plan = cm.plan_convert(GOLDEN / name, tmp_path / "real.zarr", format="zarr3", shards=twice, **NAMED)
        actions = {row["array"]: row["action"] for row in plan.arrays}
        assert actions.pop("crs") == "copy"  # 0-d: no shards
        assert set(actions.values()) == {"repack"}  # ranges are fetched and put into shards: nothing is decoded
        report = plan.run()
        assert report.actions["absent"] == 2  # of `sparse`
        assert "recode" not in report.actions
        check(tmp_path / "real.zarr")
        assert cm.verify(GOLDEN / name, tmp_path / "real.zarr", **NAMED).equal


def test_without_shards_ranges_are_copied(tmp_path):
    plan = cm.plan_convert(GOLDEN / "kerchunk.json", tmp_path / "real.zarr", format="zarr3", **NAMED)
    assert {row["action"] for row in plan.arrays} == {"copy"}
    plan.run()
    assert cm.verify(GOLDEN / "kerchunk.json", tmp_path / "real.zarr", **NAMED).equal
    # and back to references, over what was made
    to_references(tmp_path / "real.zarr", tmp_path / "again.json")
    assert cm.verify(GOLDEN / "kerchunk.json", tmp_path / "again.json", **NAMED).equal


def test_kerchunk_s_sets_of_real_files(tmp_path):
    """References to netCDF-4 files of iris-sample-data, converted, against the files themselves."""
    kerchunk_hdf = pytest.importorskip("kerchunk.hdf")
    iris = pytest.importorskip("iris_sample_data")
    h5py = pytest.importorskip("h5py")
    path = Path(iris.path) / "A1B_north_america.nc"
    with path.open("rb") as file:
        refs = kerchunk_hdf.SingleHdf5ToZarr(file, str(path), inline_threshold=50).translate()
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    report = cm.convert(tmp_path / "refs.json", tmp_path / "real.zarr", format="zarr3", shards=twice)
    assert "recode" not in report.actions
    group = cm.open_group(tmp_path / "real.zarr")
    with h5py.File(path) as file:
        assert len(group.arrays()) > 3
        for name, array in group.arrays().items():
            np.testing.assert_array_equal(array[...], file[name][...])


# --------------------------------------------------------------------------------------------------------------------
# What tasks in other processes are sent


def ranges(path, n):
    """A set of one array of `n` chunks of 4 bytes of a file; chunk 1 is absent."""
    builder = ReferenceBuilder()
    document = {"zarr_format": 2, "shape": [4 * n], "chunks": [4], "dtype": "|u1", "order": "C"}
    builder.add_data(
        "a/.zarray", json.dumps(document | dict.fromkeys(["filters", "compressor", "fill_value"])).encode()
    )
    builder.add_data(".zgroup", b'{"zarr_format": 2}')
    numbers = np.array([i for i in range(n) if i != 1])
    ids = np.full(len(numbers), builder.url_id(str(path)))
    builder.add_table("a/", ".", numbers.reshape(-1, 1), ids, 4 * numbers, np.full(len(numbers), 4))
    return ReferenceStore(builder.build(), url="memory://refs.json")


@pytest.fixture
def stage(tmp_path):
    """A stage that copies 1000 chunks in tasks of 10, and its target."""
    (tmp_path / "all.bin").write_bytes(bytes(range(200)) * 20)
    source = cm.open_array(ranges(tmp_path / "all.bin", 1000), "a")
    target = cm.create_array(tmp_path / "target", shape=(4000,), chunks=(4,), dtype="u1", codecs="raw")
    conversion = cm.plan_convert(source, MemoryStore(), format="zarr3").job.stages("")[0].common[0].action
    transfers = (ArrayTransfer(source.stored, target.stored, conversion, fresh=True),)
    n_tasks = -(-1000 // conversion.group[0])
    return Stage("t", transfer_group, transfers, [(0, i) for i in range(n_tasks)], transfer_reads), target


def test_a_task_is_sent_what_it_reads(stage):
    stage, target = stage
    sender = ReferenceSender(stage.reads, stage.common)
    packed = sender.pack(stage.common)
    assert len(packed) < len(pickle.dumps(stage.common)) - 2000
    tasks = list(sender.with_references([(i, [spec]) for i, spec in enumerate(stage.tasks)]))
    assert max(len(pickle.dumps(task)) for task in tasks[:10]) < 3000
    common = pickle.loads(packed)
    for _, specs, references in tasks[:]:
        with references_in_scope(pickle.loads(pickle.dumps(references))):
            stage.function(common, specs[0])
    values = np.frombuffer(bytes(range(200)) * 20, "u1").copy()
    values[4:8] = 0
    np.testing.assert_array_equal(target[...], values)


def test_what_was_not_sent_is_an_error_and_not_absent(stage):
    stage, _ = stage
    sender = ReferenceSender(stage.reads, stage.common)
    common = pickle.loads(sender.pack(stage.common))
    tasks = list(sender.with_references([(i, [spec]) for i, spec in enumerate(stage.tasks)]))
    with references_in_scope(tasks[0][2]):
        assert common[0].source.store.get("a/1") is None  # absent, and known to be
        with pytest.raises(ChunkError, match="not sent"):
            stage.function(common, stage.tasks[1])
    with pytest.raises(StoreError, match="not sent"):
        common[0].source.store.get("a/1")


def test_a_set_in_a_stage_that_does_not_say_what_it_reads_travels_whole(stage):
    stage, _ = stage
    common = pickle.loads(pickle.dumps(stage.common))
    assert len(common[0].source.store.references) == 1001


def watch_sets():
    """In a worker: return how many references the largest set had that came here, since this was called first."""
    from chunkmill.model.references import ReferenceSet

    if not hasattr(ReferenceSet, "largest"):
        ReferenceSet.largest = 0
        original = ReferenceSet.__setstate__

        def setstate(self, state):
            original(self, state)
            ReferenceSet.largest = max(ReferenceSet.largest, len(self))

        ReferenceSet.__setstate__ = setstate
    return ReferenceSet.largest


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["processes", "cluster"])
def test_other_processes(scheduler, tmp_path, monkeypatch):
    """Convert, rechunk, verify and make references, with no reference set in any worker."""
    (tmp_path / "all.bin").write_bytes(bytes(range(200)) * 20)
    store = ranges(tmp_path / "all.bin", 1000)
    sent = []
    original = stage_task.PackedStage.of

    def spy(*args):
        packed = original(*args)
        sent.append(len(packed.stage) + len(packed.needs))
        return packed

    monkeypatch.setattr(stage_task.PackedStage, "of", spy)

    cases = {
        "copy.zarr": lambda url: cm.convert(store, url, format="zarr3", shards=lambda _: (40,)),
        "direct.zarr": lambda url: cm.rechunk(store, url, chunks=(100,)),
        "spill.zarr": lambda url: cm.rechunk(store, url, chunks=(100,), strategy="spill"),
        "refs.json": lambda url: to_references(store, url),
    }
    if scheduler == "cluster":
        with cluster_of(2) as client:
            client.run(watch_sets)
            for name, make in cases.items():
                make(tmp_path / name)
                assert cm.verify(store, tmp_path / name).equal
            array = cm.open_array(store, "a")
            x = array.to_dask(chunks=40)
            np.testing.assert_array_equal(x.compute(), array[...])
            assert int((x + 1)[::3].sum().compute()) == int((array[...] + 1)[::3].sum(dtype="u8"))
            largest = client.run(watch_sets)
            assert 0 < max(largest.values()) < 500
    else:
        with dask.config.set(scheduler="processes", num_workers=2):
            cases["copy.zarr"](tmp_path / "copy.zarr")
        assert cm.verify(store, tmp_path / "copy.zarr").equal
    assert sent
    assert max(sent) < 12_000
    assert len(pickle.dumps(store)) > 5_000


@pytest.mark.slow
def test_virtual_netcdf_on_a_cluster(tmp_path):
    with cluster_of(2):
        for i, name in enumerate(SETS):
            cm.convert(GOLDEN / name, tmp_path / f"{i}.zarr", format="zarr3", shards=twice, **NAMED)
            check(tmp_path / f"{i}.zarr")
            assert cm.verify(GOLDEN / name, tmp_path / f"{i}.zarr", **NAMED).equal


@pytest.mark.slow
def test_shard_indexes_and_n5_headers_are_read_on_a_cluster(tmp_path):
    for name, options in {"sharded": {"shards": (20, 20)}, "n5": {"format": "n5", "codecs": "gzip"}}.items():
        cm.create_group(tmp_path / name, format=options.get("format", "zarr3"))
        a = cm.create_array(tmp_path / name, "a", shape=(95, 93), chunks=(5, 10), dtype="i4", **options)
        a[...] = np.arange(95 * 93).reshape(95, 93)
    with cluster_of(2):
        reports = [to_references(tmp_path / name, tmp_path / f"{name}.json") for name in ("sharded", "n5")]
        assert all(report.n_tasks > 1 for report in reports)
        assert [report.n_inline for report in reports] == [0, 19]
        for name in ("sharded", "n5"):
            assert cm.verify(tmp_path / name, tmp_path / f"{name}.json").equal
        assert all(a.n_absent == b.n_absent == 0 for a, b in pairwise(reports))
