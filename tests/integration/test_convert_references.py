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
from chunkmill.formats.references.json import emit_reference_json
from chunkmill.model.reference_builder import ReferenceBuilder
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.write import to_references
from chunkmill.runtime import task as stage_task
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
    return builder.build()


@pytest.mark.slow
@pytest.mark.parametrize("is_file", [True, False], ids=["file", "memory"])
@pytest.mark.parametrize("scheduler", ["processes", "cluster"])
def test_other_processes(scheduler, is_file, tmp_path, monkeypatch):
    """Convert, rechunk, verify and make references: workers open a set by its url, one in memory is sent to them."""
    (tmp_path / "all.bin").write_bytes(bytes(range(200)) * 20)
    references = ranges(tmp_path / "all.bin", 1000)
    (tmp_path / "set.json").write_bytes(emit_reference_json(references))
    store = open_reference_store(tmp_path / "set.json") if is_file else ReferenceStore(references)
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
        with cluster_of(2):
            for name, make in cases.items():
                make(tmp_path / name)
                assert cm.verify(store, tmp_path / name).equal
            array = cm.open_array(store, "a")
            x = array.to_dask(chunks=40)
            np.testing.assert_array_equal(x.compute(), array[...])
            assert int((x + 1)[::3].sum().compute()) == int((array[...] + 1)[::3].sum(dtype="u8"))
    else:
        with dask.config.set(scheduler="processes", num_workers=2):
            cases["copy.zarr"](tmp_path / "copy.zarr")
        assert cm.verify(store, tmp_path / "copy.zarr").equal
    assert sent
    assert max(sent) < 12_000 or not is_file
    assert (len(pickle.dumps(store)) < 1_000) is is_file


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
