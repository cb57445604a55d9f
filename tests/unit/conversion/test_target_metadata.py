"""Metadata of targets: chunks and shards, codecs, fill values, attributes; what would be lost."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.conversion.target_metadata import check_losses, describe_target
from chunkmill.errors import AlignmentError, StoreError, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import inner_grid
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")


def array_of(**options):
    return cm.create_array(MemoryStore(), "a", **{"shape": (8, 6), "chunks": (4, 3), "dtype": "i4"} | options)


def test_shards_that_are_kept_are_named():
    array, documents_format = array_of(chunks=(2, 3), shards=(4, 6)), get_format("zarr3")
    with pytest.raises(AlignmentError, match="'a' keeps"):
        describe_target(array.stored, documents_format, "b", chunks=(3, 3))
    with pytest.raises(AlignmentError, match="or shards=None") as caught:
        describe_target(array.stored, documents_format, "b", chunks=(3, 3), shards=(4, 6))
    assert "keeps" not in str(caught.value)


@cases("kind", ["zarr2", "zarr3", "sharded", "n5"])
def test_another_fill_value_for_reading(kind):
    options = {"format": "zarr3", "shards": (4, 2)} if kind == "sharded" else {"format": kind}
    stored = cm.create_array(store := MemoryStore(), "a", shape=(4, 4), chunks=(2, 2), dtype="f4", **options)
    stored[:2, :2] = 7
    array = cm.open_array(store, "a").with_fill_value(-1)
    expected = np.full((4, 4), -1, "f4")
    expected[:2, :2] = 7
    for found in (array, pickle.loads(pickle.dumps(array)), array.to_dask().compute(scheduler="sync"), array[...]):
        np.testing.assert_array_equal(found, expected)
    assert cm.open_array(store, "a").to_dask().name != array.to_dask().name
    cm.convert(array, target := MemoryStore(), format="zarr3")
    assert cm.open_array(target).fill_value == -1
    np.testing.assert_array_equal(cm.open_array(target)[...], expected)
    with pytest.raises(StoreError, match="reading only"):
        array[0] = 1
    cm.delete(store, "a")
    with pytest.raises(StoreError, match="deleted"):
        array.to_dask().compute(scheduler="sync")


def described(source, name, **options):
    return describe_target(source.stored, get_format(name), "a", **options)


@cases(
    ("options", "keys", "chunks"),
    [
        ({}, (4, 6), (2, 3)),
        ({"chunks": (4, 3)}, (4, 6), (4, 3)),
        ({"shards": None}, (2, 3), (2, 3)),
        ({"shards": (8, 6)}, (8, 6), (2, 3)),
        ({"shards": lambda _: {0: 8}}, (8, 6), (2, 3)),
        ({"chunks": lambda a: a.shape, "shards": None}, (8, 6), (8, 6)),
        ({"chunks": (1, 2, 3)}, (4, 6), (2, 3)),
    ],
)
def test_chunks_and_shards(options, keys, chunks):
    source = array_of(chunks=(2, 3), shards=(4, 6))
    found = described(source, "zarr3", **options)
    assert (found.chunk_grid.chunk_shape, inner_grid(found).chunk_shape) == (keys, chunks)


def test_missing_elements_stay_marked_for_xarray():
    source = array_of(format="zarr2", dimension_names=("y", "x"), fill_value=-1)
    assert described(source, "zarr3").attributes["_FillValue"] is not None
    assert "_FillValue" not in described(source, "zarr2").attributes
    assert np.int32(-1) == described(source, "zarr3").fill_value


SHUFFLED = ["numcodecs.shuffle", "numcodecs.zlib"]


def names_of(metadata):
    return [codec.name for codec in metadata.codecs]


def test_codecs_that_zarr_3_does_not_specify_are_kept_where_bytes_move_and_replaced_where_chunks_are_encoded():
    source = array_of(codecs=SHUFFLED)
    assert names_of(described(source, "zarr3"))[-1] == "numcodecs.zlib"
    assert names_of(described(source, "zarr3", chunks=(2, 6))) == ["bytes", "zstd"]
    assert names_of(described(source, "zarr2", chunks=(2, 6)))[-1] == "numcodecs.zlib"
    asked = described(source, "zarr3", chunks=(2, 6), codecs=["numcodecs.lz4"])
    assert names_of(asked)[-1] == "numcodecs.lz4"
    (packing,) = described(source, "zarr3", chunks=(2, 3), shards=(4, 6)).codecs
    assert "numcodecs" not in repr(packing)


def test_a_plan_says_which_codecs_are_replaced():
    source = array_of(codecs=SHUFFLED)
    plan = cm.plan_convert(source, MemoryStore(), format="zarr3", chunks=(2, 6))
    assert "bytes → numcodecs.shuffle → numcodecs.zlib becomes bytes → zstd" in plan.reason
    assert not plan.not_read_by
    group = cm.open_group(source.store)
    assert "becomes bytes → zstd" in cm.plan_rechunk(group, MemoryStore(), chunks=(2, 6)).reason


@cases("options", [{}, {"chunks": (5, 3)}])
@cases("shards", [None, (8, 6)])
def test_no_chunk_is_absent_where_the_fill_value_becomes_undefined(options, shards):
    source = array_of(dimension_names=("t", "v"), fill_value=0, shards=shards)
    source[:4, :3] = 5
    store = MemoryStore()
    plan = cm.plan_convert(source, store, format="zarr2", shards=None, **options)
    plan.run()
    copy = cm.open_array(store)
    keys = [key for key in store.list_prefix("") if not key.startswith(".z")]
    assert copy.fill_value is None
    assert len(keys) == copy.nchunks
    assert "absent chunks are written out" in plan.reason
    np.testing.assert_array_equal(copy[...], source[...])


def test_levels_keep_their_fill_value_where_chunks_stay_absent():
    source = array_of(dimension_names=("y", "x"), fill_value=0)
    cm.pyramid(source, store := MemoryStore(), format="zarr2", levels=2)
    assert [cm.open_array(store, name).fill_value for name in "01"] == [0, 0]


ABOUT = {"shape": (4,), "dtype": "f4", "chunks": (2,), "dimension_names": ("x",)}


def many(n, **about):
    store = MemoryStore()
    wanted = {f"a{i:02}": {**ABOUT, "attributes": {"i": i}, **about} for i in range(n)}
    cm.create_arrays(store, wanted, format="zarr2")
    return store


@pytest.mark.parametrize("fmt", ["zarr3", "n5", "zarr3-draft"])
def test_many_are_described_as_if_alone(fmt):
    source, target, alone = many(20, fill_value=0), MemoryStore(), MemoryStore()
    cm.create_array(source, "b", **{**ABOUT, "dimension_names": ("y",)})
    options = {"format": fmt, "codecs": "gzip", "chunks": (4,), "allow": ["dimension_names"]}
    cm.convert(source, target, **options)
    for name in cm.open_group(source):
        cm.convert((source, name), (alone, name), **options)
    documents = {key: target.get(key) for key in target.list_prefix("") if "/" in key}
    assert documents == {key: alone.get(key) for key in documents}
    assert cm.open_array(target, "a07").attributes["i"] == 7


def test_attributes_that_the_format_cannot_hold_are_refused_or_lost_in_theirs_alone():
    source = many(3)
    cm.create_group(source, "g", format="zarr2", attributes={"title": "x", "n5": "4.0.0"})
    with pytest.raises(UnsupportedFeature, match="named 'n5'"):
        cm.plan_convert((source, "g"), MemoryStore(), format="n5")
    cm.create_array(source, "b", **ABOUT, attributes={"i": 3, "blockSize": [7]})
    with pytest.raises(UnsupportedFeature, match="blockSize"):
        cm.plan_convert(source, MemoryStore(), format="n5", allow=["fill_value"])
    cm.convert(source, target := MemoryStore(), format="n5", allow=["attributes", "fill_value"])
    attributes = {name: dict(array.attributes) for name, array in cm.open_group(target).arrays().items()}
    assert {name: each.get("i") for name, each in attributes.items()} == {"a00": 0, "a01": 1, "a02": 2, "b": 3}
    assert "blockSize" not in attributes["b"]
    assert dict(cm.open_group(target, "g").attributes) == {"title": "x"}


def test_zeros_of_both_signs_and_nan():
    store = MemoryStore()
    cm.create_arrays(store, {f"a{i}": {**ABOUT, "fill_value": fill} for i, fill in enumerate([0.0, -0.0, np.nan])})
    plan = cm.plan_convert(store, MemoryStore(), format="zarr2")
    # xarray would take zeros of both signs for missing in Zarr v2
    assert [str(array.fill_value) for array in plan.job.target.arrays] == ["None", "None", "nan"]


@cases(
    ("change", "lost"),
    [
        ({"dtype": np.dtype("i2")}, r"dtype int32 and shape \(8, 6\)"), ({"fill_value": np.int32(7)}, r"fill value .*0"),
        ({"dimension_names": ("y", None)}, r"dimension names \('y', 'x'\)"), ({"attributes": {"b": 2}}, r"attributes \['a'\]"),
    ],
)  # fmt: skip
def test_what_documents_do_not_say_is_lost(change, lost):
    wanted = array_of(dimension_names=("y", "x"), attributes={"a": 1}).metadata
    check_losses(wanted, wanted, get_format("zarr3"), "a")
    with pytest.raises(UnsupportedFeature, match=lost):
        check_losses(wanted, replace(wanted, **change), get_format("zarr3"), "a")


def test_a_node_that_has_the_name_of_a_document_is_refused():
    store = MemoryStore()
    cm.create_group(store, format="zarr2")
    cm.create_array(store, "zarr.json", shape=(2,), dtype="i4", format="zarr2")
    with pytest.raises(UnsupportedFeature, match=r"zarr3 does not support a node at 'zarr\.json'"):
        cm.convert(store, MemoryStore(), format="zarr3")
