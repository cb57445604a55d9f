"""Pyramids as users make them: every format, methods, absent chunks, figures of plans, sources that change."""

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.recording import Meanwhile, RecordingStore, reads_a_chunk

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, NodeExists, NodeNotFound, UnsupportedFeature
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.pyramids import tasks
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(scope="module")
def values():
    values = np.random.default_rng(0).integers(0, 60000, (70, 50, 45), dtype="u2")
    values[:32, :32] = 0  # absent
    return values


def make_source(values, name="zarr3", store=None, **options):
    options = {"chunks": (16, 16, 16), "codecs": "gzip", "format": name} | options
    return filled(values, store, "scan/s0", **options)


def expected_levels(values, factors, method="mean"):
    ts = pytest.importorskip("tensorstore")
    levels = [values]
    for each in factors:
        levels.append(ts.downsample(ts.array(levels[-1]), each, method).read().result())
    return levels


def check_levels(group, expected):
    names = sorted(group, key=lambda name: int(name.strip("s")))
    assert len(names) == len(expected)
    for name, level in zip(names, expected, strict=True):
        np.testing.assert_array_equal(group[name][...], level)


def plus(n):
    return lambda block, axis: block.min(axis) + n


def test_a_function_that_was_edited_is_another_job(values):
    source, target = make_source(values), MemoryStore()
    prints = [cm.plan_pyramid(source, target, method=plus(n)).job.fingerprint for n in (1, 1, 2)]
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
    ("source", "target", "options"),
    [
        ("zarr2", "zarr3", {}),
        ("zarr3", "n5", {"chunks": (20, 20, 20)}),
        ("n5", "zarr3-draft", {"codecs": "raw"}),
        ("zarr3-draft", "zarr2", {"max_mem": "9 MB"}),
    ],
)
def test_formats(values, source, target, options):
    array = make_source(values, source)
    store = MemoryStore()
    cm.pyramid(array, (store, "image"), format=target, factors=(2, 2, 1), levels=3, **options)
    check_levels(cm.open_group(store, "image"), expected_levels(values, [(2, 2, 1)] * 2))
    assert not unfinished_jobs(store)
    assert cm.check(store).ok


@pytest.mark.parametrize("shards", [(32, 32, 32), (48, 16, 32)])
def test_shards(values, shards):
    array = make_source(values, shards=shards)
    source, store = RecordingStore(array.store), MemoryStore()
    report = cm.pyramid((source, array.path), store, levels=4)
    reads = [key for key in source.keys("get") if "/c/" in key]
    assert (len(reads), report.read_amplification) == (len(set(reads)), 1), "a shard is read twice"
    group = cm.open_group(store)
    check_levels(group, expected_levels(values, [2 * np.ones(3, int)] * 3))
    assert {each.shards for each in group.arrays().values()} == {shards}
    cm.pyramid(array, (store, "plain"), levels=2, shards=None)
    assert cm.open_array(store, "plain/1").shards is None


def test_absent_stays_absent(values):
    store = MemoryStore()
    source = make_source(values)
    assert len(list(source.stored.stored_keys())) < source.nchunks
    report = cm.pyramid(source, store, levels=3)
    group = cm.open_group(store)
    stored = [set(each.stored.stored_keys()) for _, each in sorted(group.arrays().items())]
    assert len(stored[0]) == len(list(source.stored.stored_keys()))
    assert "1/c/0/0/0" not in stored[1]
    assert "1/c/1/1/1" in stored[1]
    assert report.actions["absent"] > 0
    for key in [key for key in store.list_prefix("") if key.endswith("zarr.json")]:
        store.delete(key)
    for key in ("0/c/0/0/0", "1/c/0/0/0"):  # of a job that has ended
        store.set(key, b"rubbish")
    cm.pyramid(source, store, levels=3, overwrite=True)
    assert [set(each.stored.stored_keys()) for _, each in sorted(cm.open_group(store).arrays().items())] == stored


def test_fill_values_of_floats():
    """Cells of nothing but absent elements are the fill value, however it is rounded."""
    store = MemoryStore()
    source = cm.create_array(store, "a", shape=(24,), dtype="f4", chunks=(4,), fill_value=0.1)
    source[12:] = np.arange(12)
    cm.pyramid(source, (store, "p"), factors=3, levels=2, ome=None)
    level = cm.open_array(store, "p/1")
    assert (level[:4] == np.float32(0.1)).all()
    np.testing.assert_array_equal(level[4:], [1, 4, 7, 10])


@cases(("target", "task_bytes", "stages", "actions"), [
    (None, 352, [("levels 1 to 2", 2, 720, 231, 23)], {"reduce": 8}),
    (None, 288, [("level 1", 6, 720, 180, 21), ("level 2", 2, 180, 51, 8)], {"reduce": 8}),
    ("image", 352, [("levels 0 to 2", 2, 720, 951, 38)], {"copy": 15, "reduce": 8}),
    ("image", 288, [("levels 0 to 1", 6, 720, 900, 36), ("level 2", 2, 180, 51, 8)], {"copy": 15, "reduce": 8}),
])  # fmt: skip
def test_figures_of_a_plan_are_those_of_its_run(target, task_bytes, stages, actions):
    store, max_mem = MemoryStore(), THREAD_OVERHEAD + task_bytes
    filled(np.arange(1, 281, dtype="u2").reshape(20, 14), store, "g/0", chunks=(4, 6), codecs="raw")
    with dask.config.set(scheduler="sync"):
        plan = cm.plan_pyramid((store, "g/0"), target and (store, target), levels=3, max_mem=max_mem)
        found = [tuple(each.values())[:5] for each in plan.to_dict()["stages"]]
        assert (found, plan.actions, plan.peak_memory_bytes) == (stages, actions, max_mem)
        assert plan.job.target.path == (target or "g/1")
        report = plan.run()
    for name in ("n_tasks", "n_requests", "n_keys", "actions", "read_amplification"):
        assert getattr(report, name) == getattr(plan, name), name


def test_the_text_of_a_plan_has_the_factors_of_all_levels(tmp_path):
    a = cm.create_array(tmp_path / "a", shape=(40, 512, 512), dtype="u1", chunks=32, dimension_names=tuple("zyx"))
    plan = cm.plan_pyramid(a, tmp_path / "p", factors="isotropic", scale={"z": 16, "y": 4, "x": 4})
    assert "5 levels in 1 stage by (1, 2, 2) x 2, then (2, 2, 2) x 2;" in str(plan)
    assert "1 level" in cm.plan_pyramid(a, tmp_path / "q", levels=1).reason


def test_metadata_of_the_source_are_taken():
    store = MemoryStore()
    voxels = {"pixelResolution": {"dimensions": [4, 4, 40], "unit": "nm"}}
    options = {"chunks": (8, 8, 8), "format": "n5"}
    filled(np.ones((8, 16, 16), "u1"), store, "scan/s0", attributes=voxels | {"mine": 1}, **options)
    filled(np.ones((8, 8, 8), "u1"), store, "scan/s1", attributes={"downsamplingFactors": [2, 2, 1]}, **options)
    cm.open_group(store, "scan", mode="r+").update_attributes(voxels)
    out = MemoryStore()
    cm.pyramid((store, "scan"), out, format="zarr3", factors="isotropic")  # of the group: its finest level
    (image,) = cm.open_group(out).multiscales
    assert [level.scale for level in image] == [(40, 4, 4), (40, 8, 8)]
    assert [level.translation for level in image] == [(0, 0, 0), (0, 2, 2)]
    assert {axis.unit for axis in image.axes} == {"nanometer"}
    assert cm.open_array(out, "0").attributes == {"mine": 1}
    again = MemoryStore()
    cm.pyramid((out, "0"), again, format="n5")  # back: of the array, whose group describes it
    (image,) = cm.open_group(again).multiscales
    assert image[0].scale == (40, 4, 4)


@pytest.mark.parametrize("name", ["zarr3", "n5", "zarr3-draft"])
def test_beside_the_first_level(values, name):
    store = MemoryStore()
    make_source(values, name, store)
    before = store.get("scan/s0/zarr.json")
    cm.pyramid((store, "scan/s0"), levels=3, scale=(4, 1, 1))
    group = cm.open_group(store, "scan")
    check_levels(group, expected_levels(values, [(2, 2, 2)] * 2))
    assert store.get("scan/s0/zarr.json") == before
    if name != "zarr3-draft":
        (image,) = group.multiscales
        assert [level.scale for level in image] == [(4, 1, 1), (8, 2, 2), (16, 4, 4)]
    if name == "n5":  # viewers read it of each level
        assert group["s0"].attributes["pixelResolution"]["dimensions"] == [1, 1, 4]
    with pytest.raises(NodeExists):
        cm.pyramid((store, "scan/s0"), levels=3)
    cm.pyramid((store, "scan/s0"), levels=3, method="max", overwrite=True)
    check_levels(cm.open_group(store, "scan"), expected_levels(values, [(2, 2, 2)] * 2, "max"))
    assert cm.check(store).ok


def test_beside_only_a_first_level(values):
    store = MemoryStore()
    make_source(values, store=store)
    cm.create_array(store, "scan/raw", shape=(4,), dtype="i4", chunks=(2,))
    cm.create_array(store, "scan/s10", shape=(4,), dtype="i4", chunks=(2,))
    for path in ("scan/raw", "scan/s10"):
        with pytest.raises(ValueError, match="ends with 0, its number"):
            cm.pyramid((store, path))
    with pytest.raises(ValueError, match="give a target"):
        cm.pyramid((store, "scan/s0"), format="n5")


def use_zstd(store):
    document = store.get("scan/s0/zarr.json")
    store.set("scan/s0/zarr.json", document.replace(b"gzip", b"zstd").replace(b'{"level": 5}', b"{}"))


@cases(("target", "change"), [(None, lambda store: store.delete("scan/s0/zarr.json")), ("image", use_zstd)])
def test_a_source_that_changes_meanwhile_publishes_nothing(values, target, change):
    store = Meanwhile(MemoryStore(), reads_a_chunk, change, n=3)
    make_source(values[:36, :36, :18], store=store)
    with pytest.raises(JobError, match="nothing is published"):
        cm.pyramid((store, "scan/s0"), target and (store, target), levels=2)
    with pytest.raises(NodeNotFound):
        cm.open(store, "image" if target else "scan/s1")


@pytest.mark.parametrize(("target", "codecs"), [(None, "keep"), ("image", "raw")])
def test_a_chunk_that_appears_meanwhile_is_an_error(values, monkeypatch, target, codecs):
    """The file system said that it was absent; or somebody writes to the source."""
    store = MemoryStore()
    array = make_source(values[:36, :36, :18], store=store)
    real = tasks.read_region

    def appearing(stored, region):
        block = real(stored, region)
        if all(cut.start == 0 for cut in region):
            array[0, 0, 0] = 7
        return block

    monkeypatch.setattr(tasks, "read_region", appearing)
    with pytest.raises(ChunkError, match="absent when it was read"):
        cm.pyramid((store, "scan/s0"), target and (store, target), levels=2, codecs=codecs)


def test_places(values):
    store = MemoryStore()
    array = make_source(values, store=store)
    with pytest.raises(JobError, match="inside the target"):
        cm.pyramid(array, (store, "scan"))
    with pytest.raises(JobError, match="inside the source"):
        cm.pyramid(array, (store, "scan/s0/levels"))
    with pytest.raises(ValueError, match=r"describes no multiscale image.*'s0'"):
        cm.pyramid((store, "scan"), MemoryStore())
    cm.create_group(store, "there")
    with pytest.raises(NodeExists):
        cm.pyramid(array, (store, "there"))
    cm.pyramid(array, (store, "there"), overwrite=True)
    assert len(cm.open_group(store, "there").multiscales[0]) == len(list(cm.open_group(store, "there")))


def test_a_0d_array_has_no_levels(store):
    cm.to_store(np.float32(1), store, "point/0", format="zarr3")
    with pytest.raises(UnsupportedFeature, match="OME-Zarr does not support 0-d arrays"):
        cm.pyramid((store, "point/0"))
