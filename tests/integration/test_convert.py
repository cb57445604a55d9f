"""Conversion between all formats: values, presence, whole hierarchies, and which bytes move unopened."""

import json
import tracemalloc
import warnings
from itertools import product

import dask
import numpy as np
import pytest
from recording import RecordingStore

import chunkmill as cm
from chunkmill.array import chunk_io
from chunkmill.conversion import target_metadata
from chunkmill.errors import AlignmentError, JobError, NodeExists, UnsupportedFeature
from chunkmill.runtime.journal import JOB_PREFIX
from chunkmill.stores.memory import MemoryStore

KINDS = {
    "zarr2": {"format": "zarr2"},
    "zarr3": {"format": "zarr3"},
    "zarr3 sharded": {"format": "zarr3", "shards": (6, 4)},
    "zarr3-draft": {"format": "zarr3-draft"},
    "n5": {"format": "n5"},
}

SHAPE, CHUNKS = (7, 5), (3, 2)


@pytest.fixture(autouse=True)
def scheduler():
    with dask.config.set(scheduler="sync"):
        yield


def make(kind="zarr2", codecs="gzip", dtype=">i4", fill_value=0, **kwargs):
    """A store with one array ``g/a``: chunk (0, 0) absent, (1, 1) present and of fill value, the others random."""
    store = MemoryStore()
    options = {"shape": SHAPE, "chunks": CHUNKS, "dtype": dtype, "codecs": codecs, "fill_value": fill_value}
    cm.create_group(store, format=KINDS[kind]["format"], attributes={"title": "x"})
    cm.create_array(store, "g/a", **options | {"attributes": {"units": "K"}} | KINDS[kind] | kwargs)
    a = cm.open_array(store, "g/a", mode="r+")
    values = np.random.default_rng(0).integers(1, 99, a.shape).astype(a.dtype)
    values[:3, :2] = values[3:6, 2:4] = fill_value
    grid = a.write_layout.grid
    for coords in grid.all_coords():
        if a.shards is None:
            chunk_io.write_chunk(a, coords, values[grid.region(coords)], write_empty=coords != (0, 0))
            if coords == (0, 0):
                store.delete(a.write_layout.locator.key(coords))
        else:
            chunk_io.write_chunk(a, coords, values[grid.region(coords)])
    return store, values


def present(array):
    """Coords of the chunks that are there."""
    layout = array.read_layout
    coords = list(layout.grid.all_coords())
    spans = layout.locator.locate(array.store, coords)
    found = array.store.get_many(spans)
    return {c for c, data in zip(coords, found, strict=True) if data is not None}


def encoded(array):
    """Encoded bytes of every chunk that is there."""
    layout = array.read_layout
    coords = list(layout.grid.all_coords())
    found = array.store.get_many(layout.locator.locate(array.store, coords))
    return {c: data for c, data in zip(coords, found, strict=True) if data is not None}


def leftovers(store):
    return [key for key in store.list_prefix("") if "chunkmill" in key]


# --------------------------------------------------------------------------------------------------------------------
# Values and presence


@pytest.mark.parametrize(("old", "new"), list(product(KINDS, KINDS)))
@pytest.mark.parametrize("codecs", ["keep", "blosc"])
def test_every_format_to_every_other(old, new, codecs):
    source, values = make(old)
    target = MemoryStore()
    options = {"shards": None} | KINDS[new]
    report = cm.convert(source, target, codecs=codecs, **options)
    a, b = cm.open_array(source, "g/a"), cm.open_array(target, "g/a")
    np.testing.assert_array_equal(b[...], values)
    assert (b.chunks, b.shards, b.format) == (CHUNKS, options["shards"], options["format"])
    assert dict(b.attributes) == {"units": "K"}
    assert dict(cm.open_group(target).attributes) == {"title": "x"}
    # all-fill inner chunks are left out when a shard is written, so they are absent in the source already
    assert present(b) == present(a)
    assert report.n_keys == b.write_layout.grid.n_chunks
    assert not leftovers(target)
    assert cm.verify(source, target).equal


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


@pytest.mark.parametrize("case", MOVES)
@pytest.mark.parametrize("codecs", ["gzip", "zstd", "blosc", "raw"])
def test_bytes_move_unopened(case, codecs):
    old, new, actions = MOVES[case]
    if "draft" in old and codecs == "zstd":
        pytest.skip("the draft has no zstd")
    source, _ = make(old, codecs=codecs)
    target = MemoryStore()
    report = cm.convert(source, target, shards=KINDS[new].get("shards"), format=KINDS[new]["format"])
    assert dict(report.actions) == actions
    before, after = encoded(cm.open_array(source, "g/a")), encoded(cm.open_array(target, "g/a"))
    header = 4 + 4 * 2
    whole = {c for c in before if all((i + 1) * n <= size for i, n, size in zip(c, CHUNKS, SHAPE, strict=True))}
    for coords in before if "n5" not in case else whole:
        unframed_before = before[coords][header if old == "n5" else 0 :]
        assert bytes(after[coords][header if new == "n5" else 0 :]) == bytes(unframed_before)


def test_checksums_come_and_go():
    crc = [{"name": "gzip", "configuration": {"level": 1}}, {"name": "crc32c"}]
    source, values = make("zarr3", codecs=crc, dtype="<i4")
    report = cm.convert(source, target := MemoryStore(), format="zarr2", codecs=crc[:1])
    assert set(report.actions) == {"reframe", "absent"}
    report = cm.convert(target, back := MemoryStore(), format="zarr3", codecs=crc)
    assert set(report.actions) == {"reframe", "absent"}
    np.testing.assert_array_equal(cm.open_array(back, "g/a")[...], values)
    assert encoded(cm.open_array(back, "g/a")) == encoded(cm.open_array(source, "g/a"))


def test_a_checksum_that_is_wrong_stops_the_move():
    source, _ = make("zarr3", codecs=[{"name": "crc32c"}], dtype="<i4")
    key = cm.open_array(source, "g/a").write_layout.locator.key((1, 0))
    source.set(key, b"x" + source.get(key)[1:])
    with pytest.raises(cm.errors.ChunkError, match="checksum mismatch") as caught:
        cm.convert(source, MemoryStore(), format="zarr2", codecs="raw")
    assert (caught.value.coords, caught.value.step) == ((1, 0), "reframe")


def test_shards_are_repacked_into_others():
    source, values = make("zarr3 sharded")
    report = cm.convert(source, target := MemoryStore(), format="zarr3", shards=(3, 6))
    assert set(report.actions) == {"repack", "absent"}
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], values)
    report = cm.convert(source, target := MemoryStore(), format="zarr3")
    assert report.actions == {"copy": 4}


def test_a_shard_s_index_is_kept_as_it_is():
    index = {"index_location": "start", "index_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}
    inner = {"chunk_shape": list(CHUNKS), "codecs": ["bytes", "zstd"], **index}
    source, values = make(
        "zarr3", chunks=(6, 4), codecs=[{"name": "sharding_indexed", "configuration": inner}], dtype="u1"
    )
    cm.convert(source, target := MemoryStore(), format="zarr3", shards=(3, 6), chunks="keep")
    b = cm.open_array(target, "g/a")
    assert b.codecs[0].configuration["index_location"] == "start"
    assert [codec["name"] for codec in b.codecs[0].configuration["index_codecs"]] == ["bytes"]
    np.testing.assert_array_equal(b[...], values)


def test_absent_chunks_cost_no_request_of_the_target():
    source, _ = make("zarr2")
    recording = RecordingStore(MemoryStore())
    cm.convert(source, recording, format="zarr3")
    assert not [key for key in recording.keys("delete") if not key.startswith(JOB_PREFIX)]


def test_what_an_older_job_left_does_not_shine_through():
    source, values = make("zarr2")
    target = MemoryStore()
    cm.convert(source, target, format="zarr3")
    target.delete("g/a/zarr.json")
    target.delete("zarr.json")
    target.set("g/a/c/0/0", b"rubbish")
    cm.convert(source, target, format="zarr3", overwrite=True)
    assert target.get("g/a/c/0/0") is None
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], values)


@pytest.mark.parametrize(
    ("kind", "dtype", "shape", "chunks"),
    [
        ("zarr2", "f8", (), ()),
        ("zarr3", "i2", (0, 5), (3, 2)),
        ("zarr2", "M8[s]", (7,), (3,)),
        ("zarr3", "S3", (7,), (3,)),
        ("zarr2", "?", (7,), (7,)),
        ("zarr2", "U4", (4,), (9,)),
        ("zarr2", [("x", "i2"), ("y", "f8")], (7,), (3,)),
    ],
    ids=["0-d", "no elements", "datetime", "bytes", "bool", "text, one overhanging chunk", "structured"],
)
@pytest.mark.parametrize("codecs", ["keep", "gzip"])
def test_shapes_and_dtypes(kind, dtype, shape, chunks, codecs):
    store = MemoryStore()
    cm.create_array(store, shape=shape, chunks=chunks, dtype=dtype, codecs="zstd", **KINDS[kind])
    a = cm.open_array(store, mode="r+")
    a[...] = (
        np.arange(1, a.size + 1).astype("i8").astype(a.dtype).reshape(shape) if a.dtype.names is None else np.ones(7)
    )
    cm.convert(store, target := MemoryStore(), format="zarr3" if kind == "zarr2" else "zarr2", codecs=codecs)
    b = cm.open_array(target)
    assert (b.dtype, b.shape, b.chunks) == (a.dtype, a.shape, a.chunks)
    np.testing.assert_array_equal(b[...], a[...])
    assert cm.verify(store, target).equal


def test_strings_of_variable_length_are_copied():
    store = MemoryStore()
    cm.create_array(store, shape=(5,), chunks=(2,), dtype=str, format="zarr2", codecs="zstd")
    cm.open_array(store, mode="r+")[...] = ["a", "", "ccc", "ü", "e"]
    report = cm.convert(store, target := MemoryStore(), format="zarr3")
    assert report.actions == {"copy": 3}
    assert cm.open_array(target)[...].tolist() == ["a", "", "ccc", "ü", "e"]
    assert cm.verify(store, target).equal


def test_chunks_and_shards_change():
    source, values = make("zarr2")
    plan = cm.plan_convert(source, target := MemoryStore(), format="zarr3", chunks=(2, 5), shards=(4, 5))
    assert plan.actions == {"rechunk": 2}
    assert plan.operation == "convert"
    plan.run()
    b = cm.open_array(target, "g/a")
    assert (b.chunks, b.shards) == ((2, 5), (4, 5))
    np.testing.assert_array_equal(b[...], values)
    assert not leftovers(target)


def test_shards_that_do_not_fit():
    source, _ = make("zarr3 sharded")
    with pytest.raises(AlignmentError, match="shards="):
        cm.plan_convert(source, MemoryStore(), format="zarr3", chunks=(4, 4))


# --------------------------------------------------------------------------------------------------------------------
# What a format cannot hold


@pytest.mark.parametrize(
    ("kind", "options", "new", "lost", "allow"),
    [
        ("zarr2", {"fill_value": 7}, "n5", "fill value", {"fill_value"}),
        ("zarr3", {"codecs": [{"name": "gzip"}, {"name": "crc32c"}]}, "n5", "codec chain", {"codecs"}),
        ("zarr3", {"dimension_names": ("y", None)}, "zarr2", "dimension names", {"dimension_names"}),
        ("zarr2", {"attributes": {"units": "K", "dataType": "x"}}, "n5", "attributes", {"attributes"}),
        ("zarr2", {"codecs": "zstd", "fill_value": 7}, "n5", "fill value", {"fill_value"}),
        ("zarr2", {"codecs": "zstd"}, "zarr3-draft", "zstd", {"codecs"}),
    ],
    ids=["fill value", "checksum", "dimension names", "attributes", "fill value with zstd", "zstd"],
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


def test_absent_chunks_are_written_out_where_fill_values_differ():
    source, values = make("zarr2", fill_value=7)
    report = cm.convert(source, target := MemoryStore(), format="n5", allow={"fill_value"})
    assert report.actions == {"reframe": 3, "recode": 6}
    assert len(present(cm.open_array(target, "g/a"))) == 9
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], values)


@pytest.mark.parametrize("dtype", ["?", "c8", "M8[s]"])
def test_values_are_never_lost(dtype):
    store = MemoryStore()
    cm.create_array(store, shape=(4,), chunks=(2,), dtype=dtype, format="zarr2")
    with pytest.raises(UnsupportedFeature):
        cm.plan_convert(store, MemoryStore(), format="n5", allow=target_metadata.ALLOWABLE)


def test_layout_is_near_what_it_was():
    chain = [{"name": "transpose", "configuration": {"order": [1, 2, 0]}}, "bytes", "zstd"]
    store = MemoryStore()
    cm.create_array(store, shape=(3, 4, 5), chunks=(2, 2, 2), dtype="u1", codecs=chain)
    values = np.arange(60, dtype="u1").reshape(3, 4, 5)
    cm.open_array(store, mode="r+")[...] = values
    cm.convert(store, target := MemoryStore(), format="zarr2")  # which knows orders C and F
    assert [codec.name for codec in cm.open_array(target).codecs] == ["bytes", "zstd"]
    np.testing.assert_array_equal(cm.open_array(target)[...], values)


def test_unknown_allowances():
    source, _ = make()
    with pytest.raises(ValueError, match="'values'"):
        cm.plan_convert(source, MemoryStore(), format="n5", allow={"values"})


# --------------------------------------------------------------------------------------------------------------------
# Hierarchies


def make_tree(kind="zarr2"):
    store = MemoryStore()
    cm.create_group(store, format=kind, attributes={"title": "tree"})
    cm.create_group(store, "empty", format=kind, attributes={"e": 1})
    names = ("y", "x")
    options = {"format": kind, "chunks": (3, 2), "dtype": "i2", "shape": (7, 5), "codecs": "gzip"}
    for i, path in enumerate(["a", "deep/er/b", "deep/c"]):
        cm.create_array(store, path, dimension_names=names, attributes={"i": i}, **options)
        cm.open_array(store, path, mode="r+")[...] = np.arange(35).reshape(7, 5) + i
    cm.create_array(store, "line", **options | {"shape": (4,), "chunks": (2,)})
    return store


@pytest.mark.parametrize(("old", "new"), list(product(["zarr2", "zarr3", "zarr3-draft", "n5"], repeat=2)))
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
    back = MemoryStore()
    cm.convert(target, back, format=old)
    differences = cm.verify(source, back).differences
    if new == "zarr2":  # where the fill value marks missing elements for xarray: then it does so ever after
        differences = [d for d in differences if "_FillValue" not in d.text]
    assert not differences


@pytest.mark.parametrize("kind", ["zarr2", "zarr3"])
def test_the_target_is_consolidated(kind):
    source = make_tree("n5")
    cm.convert(source, target := RecordingStore(MemoryStore()), format=kind)
    last = [key for key in target.keys("set", "set_if") if not key.startswith(JOB_PREFIX)][-1]
    assert last == {"zarr2": ".zmetadata", "zarr3": "zarr.json"}[kind]
    target.clear()
    g = cm.open_group(target, consolidated=True)
    assert g["deep/er/b"].shape == (7, 5)
    assert not target.keys("list_dir", "list_prefix")


def test_below_and_beside():
    source = make_tree()
    target = MemoryStore()
    cm.create_array(target, "other", shape=(1,), dtype="i1", chunks=(1,))
    cm.consolidate(target)
    cm.convert((source, "deep"), (target, "x/y"), format="zarr3")
    assert cm.verify((source, "deep"), (target, "x/y")).equal
    assert list(cm.open_group(target, consolidated=True)) == [
        "other",
        "x",
    ]  # consolidated metadata are brought up to date
    assert list(cm.open_group(target, "x/y")) == ["c", "er"]
    cm.convert((source, "a"), (target, "x/a"), format="zarr3")
    assert cm.verify((source, "a"), (target, "x/a")).equal


def test_options_by_array():
    source = make_tree()
    plan = cm.plan_convert(source, target := MemoryStore(), format="zarr3", chunks={"a": (7, 5), "line": (4,)})
    assert plan.actions == {"copy": 18, "rechunk": 2}
    plan.run()
    assert [cm.open_array(target, path).chunks for path in ("a", "deep/c", "line")] == [(7, 5), (3, 2), (4,)]
    assert cm.verify(source, target).equal

    plan = cm.plan_convert((source, "deep"), MemoryStore(), format="zarr3", chunks={"er/b": (7, 5)})
    assert plan.actions == {"copy": 9, "rechunk": 1}
    with pytest.raises(ValueError, match=r"chunks= names \['deep/c'\]"):
        cm.plan_convert((source, "deep"), MemoryStore(), format="zarr3", chunks={"deep/c": (7, 5)})
    with pytest.raises(cm.errors.RegionError, match="3 lengths for 2 axes"):
        cm.plan_convert((source, "a"), MemoryStore(), format="zarr3", chunks=(1, 2, 3))

    def series(array):
        return (array.shape[0],) + (1,) * (array.ndim - 1)

    cm.convert(source, target := MemoryStore(), format="zarr3", chunks=series)
    assert cm.open_array(target, "deep/c").chunks == (7, 1)
    cm.convert(source, target := MemoryStore(), format="zarr3", chunks=(6, 4), shards=(6, 4))
    assert [cm.open_array(target, path).shards for path in ("a", "line")] == [(6, 4), None]


def test_nothing_is_seen_before_all_is_done():
    source = make_tree()
    target = RecordingStore(MemoryStore())
    cm.convert(source, target, format="zarr3")
    keys = [key for key in target.keys("set", "set_if") if not key.startswith(JOB_PREFIX)]
    first_document = next(i for i, key in enumerate(keys) if key.endswith("zarr.json"))
    assert all(key.endswith("zarr.json") for key in keys[first_document:])
    assert keys[-1] == "zarr.json"  # the root


# --------------------------------------------------------------------------------------------------------------------
# Targets


def test_what_is_there_is_not_replaced_unasked():
    source, values = make()
    target = MemoryStore()
    cm.create_array(target, "g/a", shape=(3,), dtype="i1", chunks=(1,))
    cm.open_array(target, "g/a", mode="r+")[...] = 5
    for asked in (source, (source, "g"), (source, "g/a")):
        with pytest.raises(NodeExists):
            cm.convert(asked, target, format="zarr3")
    assert cm.open_array(target, "g/a")[0] == 5
    assert not leftovers(target)
    cm.convert(source, target, format="zarr3", overwrite=True)
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], values)


@pytest.mark.parametrize(("source", "target"), [("", ""), ("g", "g/"), ("g/a", "g"), ("g/a", "g/a/b"), ("g/a", "")])
def test_source_and_target_are_the_same_place(source, target):
    store, _ = make()
    with pytest.raises((JobError, NodeExists)):
        cm.convert((store, source), (store, target), format="zarr3", overwrite=True)
    assert cm.open_array(store, "g/a")[0, 4] > 0


def test_within_one_store():
    store, values = make("zarr3")
    cm.convert((store, "g/a"), (store, "copies/b"), format="zarr3", codecs="zstd")
    np.testing.assert_array_equal(cm.open_array(store, "copies/b")[...], values)


def test_into_a_zip_file(tmp_path):
    source, values = make()
    path = str(tmp_path / "x.zip")
    cm.convert(source, path, format="zarr3")
    np.testing.assert_array_equal(cm.open_array(path, "g/a")[...], values)
    import zipfile

    names = zipfile.ZipFile(path).namelist()
    assert "zarr.json" in names
    assert not [name for name in names if "chunkmill" in name]


def test_nodes_whose_names_a_format_cannot_hold():
    store = MemoryStore()
    cm.create_group(store, "größe", format="zarr3")
    with pytest.raises(UnsupportedFeature, match="größe"):
        cm.plan_convert(store, MemoryStore(), format="zarr3-draft")


def test_references_are_fetched(tmp_path):
    source, values = make("zarr2")
    chunks = {key: source.get(key) for key in source.list_prefix("") if "/.z" not in f"/{key}"}
    (tmp_path / "all").write_bytes(b"".join(chunks.values()))
    offset, refs = 0, {key: source.get(key).decode() for key in source.list_prefix("") if key not in chunks}
    for key, value in chunks.items():
        refs[key] = [str(tmp_path / "all"), offset, len(value)]
        offset += len(value)
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    report = cm.convert(str(tmp_path / "refs.json"), target := MemoryStore(), format="zarr3")
    assert report.actions == {"copy": 8, "absent": 1}
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], values)
    assert not leftovers(target)


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


def test_too_little_memory():
    source, _ = make()
    with pytest.raises(JobError, match="max_mem=") as caught:
        cm.plan_convert(source, MemoryStore(), format="zarr3", max_mem="10 B")
    needed = int(str(caught.value).partition("max_mem=")[2].split(maxsplit=1)[0])
    cm.plan_convert(source, MemoryStore(), format="zarr3", max_mem=needed)


def test_small_jobs_are_cut_fine():
    store = MemoryStore()
    cm.create_array(store, shape=(512, 512), chunks=(16, 16), dtype="i4", format="zarr2")
    plan = cm.plan_convert(store, MemoryStore(), format="zarr3")
    assert 32 <= plan.n_tasks <= 128


@pytest.mark.slow
def test_a_thousand_arrays():
    store = MemoryStore()
    cm.create_group(store, format="zarr2")
    for i in range(1000):
        documents = cm.formats.registry.get_format("zarr2").emit_array(f"a{i}", _tiny())
        for key, value in documents.items():
            store.set(key, value)
        store.set(f"a{i}/0", bytes(8))
    recording = RecordingStore(MemoryStore())
    report = cm.convert(store, recording, format="zarr3")
    assert report.actions == {"copy": 1000}
    assert len(cm.open_group(recording, consolidated=True)) == 1000
    assert len(recording.keys("list_dir", "list_prefix")) < 20  # not one for each


def _tiny():
    source = MemoryStore()
    return cm.create_array(source, shape=(4,), chunks=(4,), dtype="<i2", codecs="raw", format="zarr2").metadata


@pytest.mark.parametrize("shards", [None, (4, 4)])
def test_a_dataset_of_v2_decodes_to_the_same_in_v3(shards, tmp_path):
    """In v2 xarray takes the fill value for missing data, in v3 the attribute: elements of 0 and of -9999, and NaN."""
    xr = pytest.importorskip("xarray")
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
    zero = cm.create_array(
        old, "zero", shape=(4, 4), dtype="f4", chunks=(2, 2), format="zarr2", dimension_names=["y", "x"]
    )
    zero[0] = 1  # what is 0 is missing for xarray, whoever meant it
    cm.consolidate(old)
    cm.convert(old, new, format="zarr3", shards=(lambda a: shards if a.ndim == 2 else None))
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
    values = np.random.default_rng(0).integers(0, 1 << 16, (32, 1 << 19), "u2")
    cm.to_store(values, tmp_path / "a", chunks=(1, 1 << 19), codecs="raw")
    plan = cm.plan_convert(tmp_path / "a", tmp_path / "b", format="zarr3", shards=(32, 1 << 19))
    tracemalloc.start()
    report = plan.run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.actions == {"repack": 32}
    assert peak < 8 << 20  # the shard has 32 MiB
    np.testing.assert_array_equal(cm.open_array(tmp_path / "b")[...], values)
