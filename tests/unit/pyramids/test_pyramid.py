"""Pyramids as users make them: every format, methods, absent chunks, interruptions; levels in a group of others, too."""

import copy
import itertools
import time
from contextlib import suppress

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.recording import Died, DyingStore, Meanwhile, RecordingStore, reads_a_chunk

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, NodeExists, NodeNotFound, UnsupportedFeature
from chunkmill.journal import heartbeat
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


# --------------------------------------------------------------------------------------------------------------------
# Interruptions


def use_zstd(store):
    document = store.get("scan/s0/zarr.json")
    store.set("scan/s0/zarr.json", document.replace(b"gzip", b"zstd").replace(b'{"level": 5}', b"{}"))


@pytest.mark.parametrize(
    ("target", "change"),
    [(None, lambda store: store.delete("scan/s0/zarr.json")), ("image", use_zstd)],
    ids=["deleted", "replaced"],
)
def test_a_source_that_changes_meanwhile_publishes_nothing(values, target, change):
    store = Meanwhile(MemoryStore(), reads_a_chunk, change, n=3)
    make_source(values, store=store)
    with pytest.raises(JobError, match="nothing is published"):
        cm.pyramid((store, "scan/s0"), target and (store, target), levels=2)
    with pytest.raises(NodeNotFound):
        cm.open(store, "image" if target else "scan/s1")


@pytest.mark.parametrize(("target", "codecs"), [(None, "keep"), ("image", "raw")])
def test_a_chunk_that_appears_meanwhile_is_an_error(values, monkeypatch, target, codecs):
    """The file system said that it was absent; or somebody writes to the source."""
    store = MemoryStore()
    array = make_source(values, store=store)
    real = tasks.read_region

    def appearing(stored, region):
        block = real(stored, region)
        if all(cut.start == 0 for cut in region):
            array[0, 0, 0] = 7
        return block

    monkeypatch.setattr(tasks, "read_region", appearing)
    with pytest.raises(ChunkError, match="absent when it was read"):
        cm.pyramid((store, "scan/s0"), target and (store, target), levels=2, codecs=codecs)


# --------------------------------------------------------------------------------------------------------------------
# Errors


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


VALUES = np.arange(64, dtype="u2").reshape(8, 8)
FIRST = {"zarr2": "g/0", "zarr3": "g/0", "n5": "g/s0"}


@pytest.fixture(params=["zarr3", "n5"])
def format_(request):
    with dask.config.set(scheduler="sync"):
        yield request.param


@pytest.fixture
def store(format_):
    store = MemoryStore()
    cm.create_group(store, "g", format=format_, attributes={"made": "before"})
    cm.to_store(VALUES, store, FIRST[format_], format=format_, chunks=(4, 4))
    return store


def seen(store):
    group = cm.open_group(store, "g", consolidated=False)
    return group.attributes, {name: (a.attributes, a[...].tolist()) for name, a in group.arrays().items()}


def test_a_job_that_died_at_any_conditional_write_is_resumed(format_, store, monkeypatch):
    """In N5 it was refused after the attributes of the group, with those of the first level missing for ever."""
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    undisturbed = copy.copy(store)
    cm.pyramid((undisturbed, FIRST[format_]), levels=3)
    n_deaths = 0
    while True:
        mortal = DyingStore(copy.copy(store), n_deaths, ["set_if"], Died)
        try:
            cm.pyramid((mortal, FIRST[format_]), levels=3)
            break
        except Died:
            n_deaths += 1
        with suppress(NodeExists, JobError):  # all was there, and its journal was not told
            cm.pyramid((mortal.below, FIRST[format_]), levels=3)
        assert seen(mortal.below) == seen(undisturbed), n_deaths
    assert n_deaths > 5


@pytest.mark.parametrize("format_", ["zarr3"], indirect=True)
def test_what_the_group_says_of_other_images_stays(store):
    """The member ``ome`` was replaced as a whole by the image's."""
    axes = [{"name": name, "type": "space"} for name in "yx"]
    level = {"path": "other/0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0]}]}
    other = {"axes": axes, "datasets": [level]}
    ome = {"version": "0.5", "labels": ["cells"], "multiscales": [other]}
    cm.open_group(store, "g", mode="r+").update_attributes({"ome": ome})
    cm.create_array(store, "g/other/0", shape=(8, 8), dtype="u2", format="zarr3")
    cm.pyramid((store, "g/0"), levels=2)
    stored = cm.open_group(store, "g").attributes["ome"]
    assert stored["labels"] == ["cells"]
    assert [[level["path"] for level in each["datasets"]] for each in stored["multiscales"]] == [
        ["0", "1"],
        ["other/0"],
    ]
    cm.pyramid((store, "g/0"), levels=3, overwrite=True)
    levels = [len(each["datasets"]) for each in cm.open_group(store, "g").attributes["ome"]["multiscales"]]
    assert levels == [3, 1]


def test_attributes_that_others_set_meanwhile_stay(format_, store):
    """Attributes of a group with an image were written as they were when the job was planned."""
    cm.pyramid((store, FIRST[format_]), levels=2)
    plan = cm.plan_pyramid((store, FIRST[format_]), levels=3, overwrite=True)
    cm.open_group(store, "g", mode="r+").update_attributes({"made": "meanwhile"})
    plan.run()
    assert cm.open_group(store, "g").attributes["made"] == "meanwhile"
    assert len(list(cm.open_group(store, "g").arrays())) == 3


@pytest.mark.parametrize("format_", ["zarr2"], indirect=True)
def test_each_level_is_the_old_or_the_new_wherever_the_job_dies(format_, monkeypatch):
    """One that was in place was replaced by nothing, where the job had died between two of them."""
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    first, found, store = FIRST[format_], [], MemoryStore()
    cm.create_group(store, "g", format=format_)
    cm.to_store(VALUES, store, first, format=format_, chunks=(4, 4))
    cm.pyramid((store, first), levels=3)
    paths = [f"{first[:-1]}{i}" for i in (1, 2)]
    for n in itertools.count():
        mortal = DyingStore(copy.copy(store), n, error=Died)
        with suppress(Died):
            cm.pyramid((mortal, first), levels=3, chunks=(2, 2), overwrite=True)
            break
        if n % 2:
            cm.check(mortal.below, repair=True)
        assert seen(mortal.below) == seen(store), n
        found.append([cm.open_array(mortal.below, path).chunks == (2, 2) for path in paths])
        cm.pyramid((mortal.below, first), levels=3, chunks=(2, 2), overwrite=True)
        assert seen(mortal.below) == seen(store), n
        assert [cm.open_array(mortal.below, path).chunks for path in paths] == [(2, 2)] * 2
        assert cm.check(mortal.below).ok
        assert not [key for key in mortal.below.list_prefix("") if "chunkmill" in key]
    assert len(found) > 20
    # the first, which the journal is named after, comes last
    assert [which for which, _ in itertools.groupby(found)] == [[False, False], [False, True], [True, True]]


@pytest.mark.parametrize("format_", ["zarr3"], indirect=True)
def test_a_0d_array_has_no_levels(store):
    cm.to_store(np.float32(1), store, "point/0", format="zarr3")
    with pytest.raises(UnsupportedFeature, match="OME-Zarr does not support 0-d arrays"):
        cm.pyramid((store, "point/0"))


@pytest.mark.parametrize("format_", ["n5"], indirect=True)
@pytest.mark.parametrize("what", ["nothing", "group"])
def test_levels_that_others_have_deleted_or_replaced_are_made_again(format_, store, what):
    """The group's attributes name a level that is none: the error named no way out."""
    cm.pyramid((store, FIRST[format_]), levels=3)
    undisturbed = seen(store)
    second = FIRST[format_].replace("0", "1")
    cm.delete(store, second)
    if what == "group":
        cm.create_group(store, second, format=format_)
    cm.pyramid((store, FIRST[format_]), levels=3, overwrite=True)
    assert seen(store) == undisturbed


def test_in_a_zip_file_a_death_after_publishing_blocks_nothing(tmp_path, monkeypatch):
    """The levels are there, and the group has changed: the plan of the same call is another one."""
    store = str(tmp_path / "i.zip")
    cm.to_store(VALUES, store, "0", format="zarr3", chunks=(4, 4))

    def die(*_):
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("chunkmill.journal.journal.Journal.finish", die)
        with pytest.raises(Died):
            cm.pyramid((store, "0"), None, levels=2)
    with pytest.raises(NodeExists, match="overwrite=True"):
        cm.pyramid((store, "0"), None, levels=2)
    cm.pyramid((store, "0"), None, levels=2, overwrite=True)
    assert cm.open_array(store, "1").shape == (4, 4)
    assert cm.check(store).ok
