"""The metadata of copies: what options ask for, what a format can hold, and what may be lost; alike arrays at once."""

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.conversion.target_metadata import describe_group_target, describe_target
from chunkmill.errors import RegionError, UnsupportedFeature
from chunkmill.formats.registry import get_format
from chunkmill.model.metadata import GroupMetadata, inner_grid
from chunkmill.stores.memory import MemoryStore


def array_of(**options):
    return cm.create_array(MemoryStore(), "a", **{"shape": (8, 6), "chunks": (4, 3), "dtype": "i4"} | options)


def described(source, name, **options):
    return describe_target(source.stored, get_format(name), "a", **options)


@cases(
    ("options", "keys", "chunks"),
    [
        ({}, (4, 6), (2, 3)),
        ({"chunks": (4, 3)}, (4, 6), (4, 3)),
        ({"shards": None}, (2, 3), (2, 3)),
        ({"shards": (8, 6)}, (8, 6), (2, 3)),
        ({"chunks": lambda a: a.shape, "shards": None}, (8, 6), (8, 6)),
        ({"chunks": (1, 2, 3)}, (4, 6), (2, 3)),
    ],
)
def test_chunks_and_shards(options, keys, chunks):
    source = array_of(chunks=(2, 3), shards=(4, 6))
    found = described(source, "zarr3", **options)
    assert (found.chunk_grid.chunk_shape, inner_grid(found).chunk_shape) == (keys, chunks)


def test_a_loss_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="'everything'"):
        described(array_of(), "n5", allow={"everything"})


def test_an_option_of_the_wrong_kind_is_refused():
    for name in ("chunks", "shards"):
        with pytest.raises(RegionError, match=f"{name}='big' for .* a size such as '16MiB'"):
            described(array_of(), "zarr3", **{name: "big"})


def test_attributes_of_a_group_are_kept_one_by_one():
    metadata = GroupMetadata({"title": "x", "n5": "4.0.0"})
    kept = describe_group_target(metadata, get_format("n5"), "g", allow={"attributes"})
    with pytest.raises(UnsupportedFeature, match="attributes"):
        describe_group_target(metadata, get_format("n5"), "g")
    assert dict(kept.attributes) == {"title": "x"}


def test_missing_elements_stay_marked_for_xarray():
    source = array_of(format="zarr2", dimension_names=("y", "x"), fill_value=-1)
    assert described(source, "zarr3").attributes["_FillValue"] is not None
    assert "_FillValue" not in described(source, "zarr2").attributes
    assert np.int32(-1) == described(source, "zarr3").fill_value


def shuffled(**options):
    codecs = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "numcodecs.shuffle"},
        {"name": "numcodecs.zlib"},
    ]
    return array_of(codecs=codecs, **options)


def names_of(metadata):
    return [codec.name for codec in metadata.codecs]


def test_codecs_that_zarr_3_does_not_specify_are_kept_where_bytes_move_and_replaced_where_chunks_are_encoded():
    source = shuffled()
    assert names_of(described(source, "zarr3"))[-1] == "numcodecs.zlib"
    assert names_of(described(source, "zarr3", chunks=(2, 6))) == ["bytes", "zstd"]
    assert names_of(described(source, "zarr2", chunks=(2, 6)))[-1] == "numcodecs.zlib"
    asked = described(source, "zarr3", chunks=(2, 6), codecs=["numcodecs.lz4"])
    assert names_of(asked)[-1] == "numcodecs.lz4"
    (packing,) = described(source, "zarr3", chunks=(2, 3), shards=(4, 6)).codecs
    assert "numcodecs" not in repr(packing)


def test_a_plan_says_which_codecs_are_replaced():
    source = shuffled()
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
    store = MemoryStore()
    cm.pyramid(source, store, format="zarr2", levels=2)
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
    cm.create_array(source, "b", **ABOUT, attributes={"i": 3, "blockSize": [7]})
    with pytest.raises(UnsupportedFeature, match="blockSize"):
        cm.plan_convert(source, MemoryStore(), format="n5", allow=["fill_value"])
    target = MemoryStore()
    cm.convert(source, target, format="n5", allow=["attributes", "fill_value"])
    attributes = {name: dict(array.attributes) for name, array in cm.open_group(target).arrays().items()}
    assert {name: each.get("i") for name, each in attributes.items()} == {"a00": 0, "a01": 1, "a02": 2, "b": 3}
    assert "blockSize" not in attributes["b"]


def test_zeros_of_both_signs_and_nan():
    store = MemoryStore()
    fills = [0.0, -0.0, np.nan]
    cm.create_arrays(store, {f"a{i}": {**ABOUT, "fill_value": fill} for i, fill in enumerate(fills)})
    plan = cm.plan_convert(store, MemoryStore(), format="zarr2")
    # xarray would take zeros for missing in Zarr v2: none stands for them, which reads as 0.0
    assert [str(array.fill_value) for array in plan.job.target.arrays] == ["None", "-0.0", "nan"]
