"""Conversion between all formats, of arrays, trees and tasks: values, presence, which bytes move unopened, places (P5)."""

import inspect
import pickle
import struct
import warnings
from dataclasses import replace
from itertools import pairwise

import dask
import numpy as np
import pytest
import xarray as xr
from support import rechunks
from support.arrays import filled
from support.cases import cases
from support.conversions import CHUNKS, KINDS, SHAPE, encoded, make
from support.memory import peak_below
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.conversion import target_metadata
from chunkmill.conversion.convert import intermediate_store
from chunkmill.conversion.convert_job import Settings
from chunkmill.errors import ChunkError, NodeNotFound, UnsupportedFeature
from chunkmill.journal.plans import JOB_PREFIX
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.zip import ZipStore

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("plan", "run"), [(cm.plan_convert, cm.convert), (cm.plan_rechunk, cm.rechunk)])
def test_signatures_are_spelled_out_and_alike(plan, run):
    planned, ran = inspect.signature(plan).parameters, dict(inspect.signature(run).parameters)
    assert not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in ran.values())
    assert list(ran) == [*planned]
    for name, parameter in planned.items():
        assert (ran[name].default, ran[name].kind) == (parameter.default, parameter.kind)


def test_where_intermediate_files_are_stored(tmp_path):
    """Next to the target, but not in a zip file; or where an argument or the setting says."""
    own, settings = MemoryStore(), Settings(Worker(1, 1, 1))
    assert settings.separate_store(own) is None
    with ZipStore(str(tmp_path / "x.zip")) as target:
        assert settings.separate_store(target).url == f"file://{tmp_path}"
        assert replace(settings, intermediate=own).separate_store(target) is own
    with dask.config.set({"chunkmill.temp": str(tmp_path)}):
        assert intermediate_store(None, None).url == f"file://{tmp_path}"
        assert intermediate_store(own, None) is own


JOBS = {
    "spill": lambda a, b: cm.plan_rechunk(a, b, chunks=(6, 7, 4), strategy="spill"),
    "copy": lambda a, b: cm.plan_convert(a, b, format="zarr2"),
    "repack": lambda a, b: cm.plan_convert(a, b, format="zarr3", shards=(6, 15, 10)),
}


@pytest.mark.parametrize("job", JOBS)
def test_a_plan_is_run_after_unpickling(job, tmp_path):
    array, values = rechunks.make(str(tmp_path / "a"), shape=(6, 15, 10), chunks=(3, 15, 10))
    recording = RecordingStore(MemoryStore())
    JOBS[job](array, recording)
    assert not recording.keys("list_dir", "list_prefix", "set", "set_if", "delete", "delete_prefix")
    plan = JOBS[job](array, str(tmp_path / "b"))
    copy = pickle.loads(pickle.dumps(plan))
    assert repr(copy) == repr(plan)
    assert copy.job.fingerprint == plan.job.fingerprint
    assert copy.run().n_tasks == plan.n_tasks
    rechunks.check(str(tmp_path / "b"), values, "")


# --------------------------------------------------------------------------------------------------------------------
# Values and presence


MOVES = {
    "zarr2 to zarr3": ("zarr2", "zarr3", {"copy": 8, "absent": 1}),
    "zarr3-draft to zarr3": ("zarr3-draft", "zarr3", {"copy": 8, "absent": 1}),
    "n5 to zarr3": ("n5", "zarr3", {"reframe": 3, "recode": 5, "absent": 1}),
    "zarr3 to n5": ("zarr3", "n5", {"reframe": 3, "recode": 5, "absent": 1}),
    "zarr2 to sharded": ("zarr2", "zarr3 sharded", {"repack": 8, "absent": 1}),
    "n5 to sharded": ("n5", "zarr3 sharded", {"repack": 3, "recode": 5, "absent": 1}),
    "sharded to zarr2": ("zarr3 sharded", "zarr2", {"repack": 7, "absent": 2}),
    "sharded to n5": ("zarr3 sharded", "n5", {"repack": 2, "recode": 5, "absent": 2}),
}


OTHER_CODECS = [("n5 to zarr3", "zstd"), ("zarr2 to sharded", "blosc"), ("zarr3 to n5", "raw")]


@cases(("case", "codecs"), [*((case, "gzip") for case in MOVES), *OTHER_CODECS])
def test_bytes_move_unopened(case, codecs):
    old, new, actions = MOVES[case]
    source, _ = make(old, codecs=codecs)
    report = cm.convert(source, target := MemoryStore(), shards=KINDS[new].get("shards"), format=KINDS[new]["format"])
    assert dict(report.actions) == actions
    before, after = encoded(cm.open_array(source, "g/a")), encoded(cm.open_array(target, "g/a"))
    header = 4 + 4 * 2
    whole = {c for c in before if all((i + 1) * n <= size for i, n, size in zip(c, CHUNKS, SHAPE, strict=True))}
    for coords in before if "n5" not in case else whole:
        unframed_before = before[coords][header if old == "n5" else 0 :]
        assert bytes(after[coords][header if new == "n5" else 0 :]) == bytes(unframed_before)


def test_a_shard_s_index_is_kept_as_it_is():
    index = {"index_location": "start", "index_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}
    inner = {"chunk_shape": list(CHUNKS), "codecs": ["bytes", "zstd"], **index}
    codecs = [{"name": "sharding_indexed", "configuration": inner}]
    source, values = make("zarr3", chunks=(6, 4), codecs=codecs, dtype="u1")
    cm.convert(source, target := MemoryStore(), format="zarr3", shards=(3, 6), chunks="keep")
    b = cm.open_array(target, "g/a")
    assert b.codecs[0].configuration["index_location"] == "start"
    assert [codec["name"] for codec in b.codecs[0].configuration["index_codecs"]] == ["bytes"]
    np.testing.assert_array_equal(b[...], values)


def test_codecs_that_are_given_are_those_of_every_chunk():
    array = filled(np.arange(6), codecs=[{"name": "gzip", "configuration": {"level": 9}}])
    plans = [cm.plan_convert(array, MemoryStore(), format="zarr2", codecs=codecs) for codecs in ("keep", "gzip")]
    assert [plan.strategy for plan in plans] == ["copy", "recode"]


def test_what_an_older_job_left_does_not_shine_through():
    source, values = make("zarr2")
    cm.convert(source, target := MemoryStore(), format="zarr3")
    target.delete("g/a/zarr.json")
    target.delete("zarr.json")
    target.set("g/a/c/0/0", b"rubbish")
    cm.convert(source, target, format="zarr3", overwrite=True)
    assert target.get("g/a/c/0/0") is None
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], values)


# --------------------------------------------------------------------------------------------------------------------
# What a format cannot hold


@cases(
    ("kind", "options", "new", "lost", "allow"),
    [
        ("zarr2", {"fill_value": 7}, "n5", "fill value", {"fill_value"}),
        ("zarr3", {"codecs": [{"name": "gzip"}, {"name": "crc32c"}]}, "n5", "codec chain", {"codecs"}),
        ("zarr3", {"dimension_names": ("y", None)}, "zarr2", "dimension names", {"dimension_names"}),
        ("zarr2", {"attributes": {"units": "K", "dataType": "x"}}, "n5", "attributes", {"attributes"}),
    ],
)
def test_what_would_be_lost(kind, options, new, lost, allow):
    source, values = make(kind, **options)
    target = RecordingStore(MemoryStore())
    with pytest.raises(UnsupportedFeature, match=lost) as caught:
        cm.plan_convert(source, target, format=new)
    assert not target.keys("set", "delete")
    assert all(repr(name) in str(caught.value) for name in allow)
    assert "g/a" in str(caught.value)
    cm.convert(source, target, format=new, allow=allow)
    b = cm.open_array(target, "g/a")
    np.testing.assert_array_equal(b[...], values)
    assert dict(b.attributes).get("units") == "K"


def test_values_are_never_lost():
    for dtype in ("?", "c8", "M8[s]"):
        array = cm.create_array(MemoryStore(), shape=(4,), chunks=(2,), dtype=dtype, format="zarr2")
        with pytest.raises(UnsupportedFeature):
            cm.plan_convert(array, MemoryStore(), format="n5", allow=target_metadata.ALLOWABLE)


def test_layout_is_near_what_it_was():
    for dtype, serializer in (("u1", "bytes"), (np.dtypes.StringDType(), "vlen-utf8")):
        chain = [{"name": "transpose", "configuration": {"order": [1, 2, 0]}}, serializer, "zstd"]
        values = np.arange(60, dtype="u1").reshape(3, 4, 5).astype(dtype)
        array = filled(values, chunks=(2, 2, 2), codecs=chain)
        cm.convert(array, target := MemoryStore(), format="zarr2")  # which knows orders C and F
        assert [codec.name for codec in cm.open_array(target).codecs] == [serializer, "zstd"]
        np.testing.assert_array_equal(cm.open_array(target)[...], values)


# --------------------------------------------------------------------------------------------------------------------
# Plans


def test_a_plan_writes_nothing_and_says_what_it_would():
    source, _ = make()
    target = RecordingStore(MemoryStore())
    plan = cm.plan_convert(source, target, format="zarr3")
    assert not target.keys("set", "set_if", "delete", "delete_prefix")
    assert (plan.strategy, plan.n_keys, plan.n_requests) == ("copy", 9, 18)
    assert "chunks and codecs are the same: bytes → gzip" in repr(plan)
    assert plan.to_dict()["arrays"][0]["array"] == "g/a"
    report = plan.run()
    assert report.n_requests == 17  # nothing is set for the chunk that is absent
    assert abs(report.bytes_read - plan.bytes_read) < plan.bytes_read  # estimated from a few keys


def test_a_plan_of_a_group_says_what_is_done_for_how_many_and_draws_the_largest_that_changes():
    source = make_tree()
    plan = cm.plan_convert(source, MemoryStore(), format="zarr3", chunks={"a": (7, 5)}, shards={"deep/c": (6, 4)})
    assert plan.strategy == "direct + repack + copy"
    assert plan.reason == "4 arrays in 4 groups: direct 1, repack 1, copy 2"
    rows = {row["array"]: row for row in plan.arrays}
    assert (rows["a"]["chunks"], rows["deep/c"]["chunks"]) == ("(3, 2) → (7, 5)", (3, 2))
    assert (rows["a"]["shards"], rows["deep/c"]["shards"]) == (None, "none → (6, 4)")
    assert [array.path for array in plan.drawn] == ["a", "a"]
    assert plan._repr_html_().count("<svg") == 2
    assert cm.plan_convert(source, MemoryStore(), format="zarr3").drawn is None
    empty = cm.plan_convert((source, "empty"), MemoryStore(), format="zarr3")
    assert (empty.strategy, empty.reason) == ("metadata only", "0 arrays in 1 group: nothing to move")


def test_a_dataset_of_v2_decodes_to_the_same_in_v3(tmp_path):
    """In v2 xarray takes the fill value for missing data, in v3 the attribute: elements of 0 and of -9999, and NaN."""
    pytest.importorskip("zarr")
    values = np.arange(-8, 8).reshape(4, 4)
    ds = xr.Dataset(
        {
            "packed": (("y", "x"), values.astype("i2"), {"scale_factor": 0.5, "units": "K"}),
            "real": (("y", "x"), np.where(values == 3, np.nan, values).astype("f4")),
            "plain": (("y", "x"), values.astype("i4")),
        },
        {"x": [0, 1, 2, 3], "time": ("y", np.array(["2020-01-01", "2020-01-02", "NaT", "2020-01-04"], "M8[ns]"))},
    )
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    encoding = {"packed": {"_FillValue": -8}, "real": {"_FillValue": -9999.0}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ds.to_zarr(old, zarr_format=2, encoding=encoding)
    options = {"chunks": (2, 2), "format": "zarr2", "dimension_names": ["y", "x"]}
    zero = cm.create_array(old, "zero", shape=(4, 4), dtype="f4", **options)
    zero[0] = 1  # what is 0 is missing for xarray, whoever meant it
    cm.consolidate(old)
    cm.convert(old, new, format="zarr3", shards=(lambda a: (4, 4) if a.ndim == 2 else None))
    assert cm.verify(old, new).equal
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = xr.open_dataset(old, engine="zarr").load()
        for engine in ("zarr", "chunkmill"):
            with xr.open_dataset(new, engine=engine) as found:
                xr.testing.assert_identical(found.load(), expected)
    assert expected["packed"].isnull().sum() == 1
    assert expected["zero"].isnull().sum() == 12


def test_chunks_go_into_a_shard_one_by_one(tmp_path):
    values = np.random.default_rng(0).integers(0, 1 << 16, (16, 1 << 17), "u2")
    cm.to_store(values, tmp_path / "a", chunks=(1, 1 << 17), codecs="raw")
    plan = cm.plan_convert(tmp_path / "a", tmp_path / "b", format="zarr3", shards=(16, 1 << 17))
    with peak_below(1 << 20):  # the shard has 4 MiB
        report = plan.run()
    assert report.actions == {"repack": 16}
    np.testing.assert_array_equal(cm.open_array(tmp_path / "b")[...], values)


@cases(("dtype", "fill", "marker"), [("f4", np.nan, float(np.float32(1e20))), ("i2", 0, -1)])
def test_missing_elements_stay_missing_in_zarr2(tmp_path, dtype, fill, marker):
    """xarray takes the fill value of Zarr v2 for missing, whatever the attribute ``_FillValue`` says."""
    pytest.importorskip("zarr")
    about = {"dimension_names": ("x",), "attributes": {"_FillValue": marker}, "fill_value": fill}
    group = cm.create_group(tmp_path / "a.zarr", format="zarr3")
    array = group.create_array("v", shape=(12,), dtype=dtype, chunks=(4,), **about)
    array[2:7] = np.array([1, marker, 3, 4, marker], dtype)  # and one chunk is absent
    cm.convert(tmp_path / "a.zarr", tmp_path / "b.zarr", format="zarr2")
    assert cm.verify(tmp_path / "a.zarr", tmp_path / "b.zarr").equal
    before, after = (xr.load_dataset(tmp_path / name, engine="chunkmill") for name in ("a.zarr", "b.zarr"))
    xr.testing.assert_equal(before, after)
    xr.testing.assert_equal(before, xr.load_dataset(tmp_path / "b.zarr", engine="zarr", consolidated=False))


# --------------------------------------------------------------------------------------------------------------------
# Hierarchies


def make_tree(kind="zarr2"):
    store = MemoryStore()
    cm.create_group(store, format=kind, attributes={"title": "tree"})
    cm.create_group(store, "empty", format=kind, attributes={"e": 1})
    options = {"format": kind, "chunks": (3, 2), "codecs": "gzip"}
    values = np.arange(35, dtype="i2").reshape(7, 5)
    for i, path in enumerate(["a", "deep/er/b", "deep/c"]):
        filled(values + i, store, path, dimension_names=("y", "x"), attributes={"i": i}, **options)
    cm.create_array(store, "line", shape=(4,), dtype="i2", **options | {"chunks": (2,)})
    return store


@cases(("old", "new"), list(pairwise(["zarr2", "n5", "zarr3-draft", "zarr3", "zarr2"])))
def test_trees(old, new):
    source = make_tree(old)
    report = cm.convert(source, target := MemoryStore(), format=new)
    assert cm.verify(source, target).equal
    b = cm.open_group(target)
    assert list(b) == ["a", "deep", "empty", "line"]
    assert b["deep/er/b"].dimension_names == ("y", "x")
    assert dict(b["empty"].attributes) == {"e": 1}
    assert dict(b.attributes) == {"title": "tree"}
    assert report.n_keys == 3 * 9 + 2
    cm.convert(target, back := MemoryStore(), format=old)
    differences = cm.verify(source, back).differences
    if new == "zarr2":  # where the fill value marks missing elements for xarray: then it does so ever after
        differences = [d for d in differences if "_FillValue" not in d.text]
    assert not differences


@cases(("kind", "root"), [("zarr2", ".zmetadata"), ("zarr3", "zarr.json")])
def test_documents_come_after_all_chunks_and_last_those_of_all_nodes(kind, root):
    cm.convert(make_tree("n5"), target := RecordingStore(MemoryStore()), format=kind)
    keys = [key for key in target.keys("set", "set_if") if not key.startswith(JOB_PREFIX)]
    documents = [key.rpartition("/")[2] in {"zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata"} for key in keys]
    assert documents == sorted(documents)
    assert keys[-1] == root
    target.clear()
    g = cm.open_group(target, consolidated=True)
    assert g["deep/er/b"].shape == (7, 5)
    assert not target.keys("list_dir", "list_prefix")


def test_below_and_beside():
    source, target = make_tree(), MemoryStore()
    cm.create_array(target, "other", shape=(1,), dtype="i1", chunks=(1,))
    cm.consolidate(target)
    cm.convert((source, "deep"), (target, "x/y"), format="zarr3")
    assert cm.verify((source, "deep"), (target, "x/y")).equal
    assert list(cm.open_group(target, consolidated=True)) == ["other", "x"]  # brought up to date
    assert list(cm.open_group(target, "x/y")) == ["c", "er"]
    cm.convert((source, "a"), (target, "x/a"), format="zarr3")
    assert cm.verify((source, "a"), (target, "x/a")).equal


# --------------------------------------------------------------------------------------------------------------------
# Targets


@pytest.mark.filterwarnings("ignore:Failed to open Zarr store with consolidated metadata")
@cases("dtype", ["i4", "f8"])
def test_zeros_of_a_dataset_are_not_missing_in_zarr_v2(dtype, tmp_path):
    """There xarray takes a fill value for missing data, which an array of Zarr v3 without ``_FillValue`` has not."""
    pytest.importorskip("zarr")
    values = np.arange(6).reshape(2, 3).astype(dtype)
    data = xr.DataArray(values, dims=("y", "x"), name="v").chunk(x=1).to_dataset()
    data.to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False, encoding={"v": {"_FillValue": None}})
    (key,) = (tmp_path / "a.zarr").rglob("c/0/0")  # zeros, and stored or absent by the writer
    key.unlink()
    expected = xr.load_dataset(tmp_path / "a.zarr", engine="zarr", consolidated=False)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b.zarr", format="zarr2")
    cm.convert(tmp_path / "b.zarr", tmp_path / "c.zarr", format="zarr3")
    # null, which leaves absent chunks undefined, where none is absent
    assert (tmp_path / "b.zarr" / "v" / "0.0").exists() == (dtype != "f8")
    assert cm.verify(tmp_path / "a.zarr", tmp_path / "b.zarr").equal
    for store in ("b.zarr", "c.zarr"):
        for engine in ("zarr", "chunkmill"):
            found = xr.load_dataset(tmp_path / store, engine=engine)
            assert found["v"].dtype == values.dtype
            xr.testing.assert_equal(found, expected)


@cases(
    ("dtype", "fill", "attributes"),
    [
        ("i2", 5, {}), ("i2", 0, {"_FillValue": 1.5}), ("i2", 5, {"_FillValue": 70_000}), ("bool", True, {}),
        ("f4", -0.0, {}), ("f4", 5, {"_FillValue": 1e20}), ("f4", np.nan, {"_FillValue": 1e20}), ("c8", 5, {}),
    ],
)  # fmt: skip
def test_fill_values_that_stand_for_no_missing_data_do_not_in_zarr_v2(dtype, fill, attributes):
    """No element equals such a marker; absent chunks are written out, except those of NaN, which is missing anyway."""
    options = {"fill_value": fill, "attributes": attributes, "chunks": (3,), "dimension_names": ("x",)}
    source = filled(np.array([0, 5, 1, -1, 3, 2], dtype), path="v", **options)
    source.store.delete("v/c/1")
    cm.convert(source.store, target := MemoryStore(), format="zarr2")
    assert ("v/1" in target.list_prefix("v/")) is not np.isnan(fill)
    before, after = (xr.load_dataset(store, engine="chunkmill")["v"] for store in (source.store, target))
    np.testing.assert_array_equal(before, after)
    assert after.isnull().sum() == 3 * np.isnan(fill)


def n5_header(shape, mode=0, count=None):
    sizes = struct.pack(f">HH{len(shape)}I", mode, len(shape), *shape)
    return sizes if count is None else sizes + struct.pack(">I", count)


SUM, RAW, N5 = {"codecs": ["crc32c"]}, {"format": "zarr2", "codecs": "raw"}, {"format": "n5", "codecs": "gzip"}
SHARDED = {"format": "zarr3", "codecs": [], "shards": (4, 4)}
DAMAGES = {  # how the source is created, how it is converted, the damage of the last value, what the error says
    "short": ({"codecs": []}, {"format": "zarr3"}, lambda v: v[:-1], "15 bytes, expected 16"),
    "long": ({"codecs": []}, {"format": "zarr2"}, lambda v: v + b"\0", "17 bytes, expected 16"),
    "checksum": (SUM, RAW, lambda v: b"x" + v[1:], "step 'reframe'.*checksum mismatch"),
    "before crc32c": (SUM, SHARDED, lambda v: v[1:], "19 bytes, expected 20"),
    "n5": ({"format": "n5", "codecs": []}, {"format": "n5"}, lambda v: v[:-2], "26 bytes, expected 28"),
    "n5 that lies": (N5, {"format": "n5"}, lambda v: n5_header((4, 2), 1, 9) + v[12:], "varlength block of 9 elements"),
    "n5 too large": (N5, {"format": "n5"}, lambda v: n5_header((4, 3)) + v[12:], "does not fit the block size"),
    "recoded": ({"codecs": "gzip"}, {"format": "zarr3", "codecs": "raw"}, lambda v: v[:9], "gzip"),
    "shard": ({"shards": (4, 4)}, {"format": "zarr3"}, lambda v: v[40:], "points outside the shard"),
}


@cases("case", DAMAGES)
def test_damaged_chunks_are_named_also_where_they_are_not_decoded(case):
    """They were copied as they are, and the job was done: `verify` found them too late."""
    creation, conversion, damage, words = DAMAGES[case]
    array = filled(np.arange(16, dtype="u2").reshape(4, 4) + 1, path="a", chunks=(2, 4), **creation)
    key = max(array.stored.stored_keys())
    array.store.set(key, damage(array.store.get(key)))
    plan = cm.plan_convert(array, target := MemoryStore(), **conversion)
    assert plan.arrays[0]["action"] in ({"recode"} if case == "recoded" else {"copy", "reframe", "repack"})
    with pytest.raises(ChunkError, match=words) as caught:
        plan.run()
    assert caught.value.key == key
    with pytest.raises(NodeNotFound):
        cm.open_array(target)
