"""Zarr v3: documents written by hand; `FormatContract` besides, and the golden stores of `tests/conformance`."""

import json
from dataclasses import replace

import numpy as np
import pytest
from contracts.codec_contract import LITTLE, codec
from contracts.format_contract import FormatContract
from support.cases import cases, refusals

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.chains import with_defaults
from chunkmill.formats.zarr_v3 import ZarrV3
from chunkmill.formats.zarr_v3_codecs import for_peers
from chunkmill.model.dtypes import STRING
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import ChunkKeyEncoding, GroupMetadata, NamedConfig

CRC, TURN = codec("crc32c"), codec("transpose", order=[1, 0])
PLAIN = {
    "zarr_format": 3, "node_type": "array", "shape": [7, 5], "data_type": "int32",
    "chunk_grid": codec("regular", chunk_shape=[3, 2]), "chunk_key_encoding": codec("default", separator="/"),
    "fill_value": -1, "codecs": [LITTLE],
}  # fmt: skip
MISSING = object()


def grid(*lengths, name="rectilinear"):
    about = {"chunk_shape": list(lengths)} if name == "regular" else {"kind": "inline", "chunk_shapes": list(lengths)}
    return codec(name, **about)


def shard(*chunk_shape, codecs=(LITTLE,), **members):
    members = {"chunk_shape": list(chunk_shape), "codecs": list(codecs), "index_codecs": [LITTLE, CRC], **members}
    return codec("sharding_indexed", **{name: value for name, value in members.items() if value is not MISSING})


def parse(**changes):
    document = {name: value for name, value in (PLAIN | changes).items() if value is not MISSING}
    return ZarrV3().parse_array("a", {"a/zarr.json": json.dumps(document).encode()})


def emit(metadata):
    return json.loads(ZarrV3().emit_array("a", metadata)["a/zarr.json"])


class TestContract(FormatContract):
    format = ZarrV3()
    arrays = (  # of all kinds: tests/conformance/test_documents.py
        parse(),
        parse(shape=[], chunk_grid=grid(name="regular"), data_type="float64", fill_value="NaN"),
        parse(data_type=codec("struct", fields=[{"name": "a", "data_type": "int16"}]), fill_value={"a": 3}),
        parse(chunk_grid=grid([[3, 2], 4], 5), codecs=[TURN, LITTLE], dimension_names=["y", None]),
    )
    refused = (
        replace(parse(), edge_chunks="truncated"),
        replace(parse(), chunk_keys=ChunkKeyEncoding("", "/", "0", reverse=True)),
        replace(parse(), chunk_keys=ChunkKeyEncoding("c", "/", "c")),
        replace(parse(), codecs=(NamedConfig("n5_block", {"codecs": []}),)),
        replace(parse(), codecs=(NamedConfig("bytes", {"dtype": "<i4"}),)),
        replace(parse(), codecs=(NamedConfig("bytes", {}),)),
        replace(parse(), codecs=(NamedConfig("gzip", {"level": 1}),)),
        replace(parse(), dtype=np.dtype(object), fill_value=[], codecs=(NamedConfig("numcodecs.json2", {}),)),
        replace(
            parse(), dtype=STRING, fill_value="", codecs=(NamedConfig("numcodecs.categorize"), NamedConfig("bytes"))
        ),
        replace(parse(), codecs=(NamedConfig(**shard(3, 2, codecs=[LITTLE, codec("n5_lz4")])),)),
        replace(parse(), dtype=np.dtype([("m", "i4", (2,))]), fill_value=None),
    )


# --------------------------------------------------------------------------------------------------------------------
# Nodes and members


def test_other_nodes_are_no_arrays():
    fmt = ZarrV3()
    group = fmt.emit_group("a", GroupMetadata())
    array = fmt.emit_array("a", parse())
    draft = {"zarr.json": b'{"zarr_format": "https://purl.org/zarr/spec/core/3.0", "metadata_encoding": {}}'}
    assert fmt.parse_array("a", group) is None
    assert fmt.parse_group("a", array) is None
    assert fmt.parse_array("", draft) is None
    assert fmt.parse_group("", draft) is None


REFUSED = [  # others are golden
    ("zarr_format: got 'nothing'", {"zarr_format": MISSING}), ("zarr_format: got 3.0", {"zarr_format": 3.0}),
    ("node_type: got 'nothing'", {"node_type": MISSING}), ("shape: got 'nothing'", {"shape": MISSING}),
    ("integers from 0 to 2**63-1", {"shape": [7, 2**63]}), ("chunk_shape: got 'nothing'", {"chunk_grid": "regular"}),
    ("cover the 7 of the axis", {"chunk_grid": grid([], 5)}),
    ("got [0, 1], expected a length", {"chunk_grid": grid([0, 7], 5)}),
    ("got [7, 0], expected a length", {"chunk_grid": grid([[7, 0], 7], 5)}),
    ("got [7], expected a len", {"chunk_grid": grid([[7]], 5)}),
    ("lengths for each of 2 axes", {"chunk_grid": grid(3)}),
    ("2**63-1 altogether", {"chunk_grid": grid([[2**62, 2]], 5)}),
    ("chunks than 9223372036854775808 bytes", {"chunk_grid": grid([2**31], 2**30)}),
    ("chunk grid 'hex'", {"chunk_grid": "hex"}),
    ("grid that is not inline", {"chunk_grid": codec("rectilinear", kind="key", chunk_shapes=[3, 2])}),
    ("chunk_key_encoding: got None", {"chunk_key_encoding": MISSING}), ("encoding 'x'", {"chunk_key_encoding": "x"}),
    ("got {'separator': '-'}", {"chunk_key_encoding": codec("default", separator="-")}),
    ("'prefix': 'x'}", {"chunk_key_encoding": codec("default", separator="/", prefix="x")}),
    ("codecs: got 'nothing'", {"codecs": MISSING}), ("attributes: got []", {"attributes": []}),
    ("member 'extra'", {"extra": {"must_understand": True}}), ("storage transf", {"storage_transformers": [{}]}),
    ("storage transf", {"storage_transformers": {}}), ("for each of 2 axes", {"dimension_names": ["x"]}),
    ("for each of 2 axes", {"dimension_names": ["x", 1]}),
]  # fmt: skip


test_refused = refusals(REFUSED, lambda members: parse(**members), key="a/zarr.json")


def test_group_members():
    group = {"zarr_format": 3, "node_type": "group"}

    def parse_group(**members):
        return ZarrV3().parse_group("", {"zarr.json": json.dumps(group | members).encode()})

    assert parse_group(attributes={"n": 1}, consolidated_metadata=None) == GroupMetadata({"n": 1})
    for bad in ({"shape": [3]}, {"extra": 1}, {"attributes": None}, {"node_type": "Group"}, {"zarr_format": 4}):
        with pytest.raises(MetadataError):
            parse_group(**bad)


def test_dimension_names():
    assert parse(dimension_names=None).dimension_names is None
    both = parse(dimension_names=["a", "b"], attributes={"_ARRAY_DIMENSIONS": ["y", "x"]})
    assert (both.dimension_names, both.attributes) == (("a", "b"), {"_ARRAY_DIMENSIONS": ["y", "x"]})


# --------------------------------------------------------------------------------------------------------------------
# Grid


@cases(
    ("given", "axes"),
    [
        (grid([3, [3, 2], 3], 5), (RunsAxis(7, ((3, 4),)), RegularAxis(5, 5))),
        (grid([3, 4], 2, name="regular"), (RunsAxis(7, ((3, 1), (4, 1))), RegularAxis(5, 2))),  # zarr-python 3.2
        (grid(3, 2), (RegularAxis(7, 3), RegularAxis(5, 2))),
    ],
)
def test_rectilinear(given, axes):
    metadata = parse(chunk_grid=given)
    assert metadata.chunk_grid == ChunkGrid(axes)
    assert parse(chunk_grid=emit(metadata)["chunk_grid"]) == metadata


def test_zero_chunks_on_empty_axes():
    assert parse(shape=[0, 5], chunk_grid=grid(0, 2, name="regular")).chunk_grid == ChunkGrid.regular((0, 5), (1, 2))
    assert parse(shape=[0, 5], chunk_grid=grid([], 2)).chunk_grid.grid_shape == (0, 3)


# --------------------------------------------------------------------------------------------------------------------
# Codecs

NORMAL = [  # as read, as kept; every codec is in golden stores
    ([codec("bytes", endian="big")], "bool", [codec("bytes")]),  # void for single bytes
    ([codec("transpose", order="F"), LITTLE], "int32", [codec("transpose", order=[1, 0]), LITTLE]),
    ([LITTLE, codec("zstd", level=3)], "int32", [LITTLE, codec("zstd", level=3, checksum=False)]),
    ([LITTLE, codec("blosc", cname="lz4", clevel=5, shuffle="noshuffle", blocksize=0)], "int32",
     [LITTLE, codec("blosc", cname="lz4", clevel=5, shuffle="noshuffle", blocksize=0, typesize=4)]),
    (["bytes", {"name": "crc32c", "must_understand": True}], "int8", [codec("bytes"), CRC]),
    ([LITTLE, "mystery"], "int32", [LITTLE, codec("mystery")]),  # opening the array fails, its registry knows what there is
    (["mystery"], "int32", [codec("mystery")]),
    ([codec("numcodecs.astype", encode_dtype="int8", decode_dtype="int32"), "bytes"], "int32",
     [codec("numcodecs.astype", encode_dtype="int8", decode_dtype="int32"), codec("bytes")]),
    (["numcodecs.pcodec"], "int32", [codec("numcodecs.pcodec")]),
    ([codec("numcodecs.delta", dtype="<i4"), LITTLE], "int32", [codec("numcodecs.delta", dtype="<i4"), LITTLE]),
]  # fmt: skip


@cases(("given", "data_type", "kept"), NORMAL)
def test_codecs_are_normalised(given, data_type, kept):
    metadata = parse(codecs=given, data_type=data_type, fill_value=False if data_type == "bool" else 0)
    assert metadata.codecs == tuple(NamedConfig(item["name"], item["configuration"]) for item in kept)
    assert emit(metadata)["codecs"] == kept


def test_items_that_are_too_large_for_blosc_are_bytes_to_peers():
    sizes = {n: {"name": "blosc", "configuration": {"typesize": n}} for n in (1, 255, 256)}
    found = for_peers([NamedConfig(**each) for each in sizes.values()])
    assert [each.configuration["typesize"] for each in found] == [1, 255, 1]


BAD_CODECS = [
    ("got [], expected a list of codecs", []), ("name and configuration only", [LITTLE | {"id": "bytes"}]),
    ("exactly one array -> bytes codec", [LITTLE, TURN]),
    ("bytes: got {'endian': 'middle'}", [codec("bytes", endian="middle")]),
    ("bytes: got {'endian': 'little', 'dt", [codec("bytes", endian="little", dtype="<i4")]),
    ("got [0], expected a permutation of 2 axes", [codec("transpose", order=[0]), LITTLE]),
    ("got [1, 0], expected a permutation", [codec("transpose", order=[1, 0], x=1), LITTLE]),
    ("a serializer for int32", ["vlen-utf8"]), ("of int16 over int32", [codec("numcodecs.delta", dtype="<i2"), LITTLE]),
    ("of int64 over int32", [codec("numcodecs.delta", dtype="<i8"), LITTLE]), ("for each of 2 axes", [shard(3)]),
    ("codecs: got [], expected a list", [shard(3, 2, codecs=())]), ("got ['x'], expected no such", [shard(3, 2, x=1)]),
    ("index_location: got 'middle'", [shard(3, 2, index_location="middle")]),
    ("endian: got 'nothing'", [shard(3, 2, index_codecs=["bytes", CRC])]),
    ("endian: got 'nothing'", [shard(3, 2, codecs=["bytes"])]),
    ("whose output has a fixed size", [shard(3, 2, index_codecs=[shard(1, 1, 1)])]),
    ("divide those of the shard, (3, 2)", [shard(3, 2, codecs=[shard(2, 2)])]),
    ("divide those of the shard, (2, 3)", [TURN, shard(3, 2)]), ("at least 1", [shard(0, 2)]),
]  # fmt: skip


test_bad_codecs = refusals(BAD_CODECS, lambda codecs: parse(codecs=codecs), key="a/zarr.json")


def test_the_typesize_of_blosc_and_the_level_of_gzip():
    assert [with_defaults("blosc", {}, n)["typesize"] for n in (0, 2, 255, 256)] == [1, 2, 255, 1]
    for name, member, given, kept in (("blosc", "typesize", (255, 256), [255, 1]), ("gzip", "level", (5, -1), [5, 6])):
        chains = [(NamedConfig(**LITTLE), NamedConfig(name, {member: number})) for number in given]
        adapted = [ZarrV3().adapt(replace(parse(), codecs=chain)) for chain in chains]
        assert [each.codecs[1].configuration[member] for each in adapted] == kept


def test_shards():
    codecs = [TURN, shard(2, 3, codecs=[shard(1, 1, codecs=["endian"])]), CRC]
    metadata = parse(shape=[12, 8], chunk_grid=grid(6, 4, name="regular"), codecs=codecs, data_type="int8")
    inner = metadata.codecs[1].configuration
    assert metadata.chunk_grid.chunk_shape == (6, 4)
    assert (inner["chunk_shape"], inner["index_location"], inner["index_codecs"]) == ([2, 3], "end", [LITTLE, CRC])
    assert inner["codecs"][0]["configuration"]["codecs"] == [codec("bytes")]


def test_shards_of_unequal_length():
    with pytest.raises(MetadataError):
        parse(shape=[12, 4], chunk_grid=grid([3, 6, 3], [2, 2]), codecs=[shard(2, 2)])


def test_shards_within_shards_end_somewhere():
    nested = [LITTLE]
    for _ in range(50):
        nested = [shard(3, 2, codecs=nested)]
    with pytest.raises(UnsupportedFeature):
        parse(codecs=nested)


def test_structured_types_of_zarr_python_3_0_may_take_the_registered_name():
    fields = [["a", "int16"], ["b", "float32"]]
    with pytest.warns(UserWarning, match="no endian"):
        metadata = parse(data_type=codec("structured", fields=fields), fill_value="AQIAAIA/", codecs=["bytes"])
    document = emit(replace(metadata, struct_name="struct"))
    assert document["data_type"] == codec("struct", fields=[{"name": n, "data_type": t} for n, t in fields])
    assert document["fill_value"] == {"a": 513, "b": 1.0}
    big = [shard(3, 2, codecs=[codec("bytes", endian="big")])]
    inside = parse(data_type=codec("structured", fields=fields), fill_value="AQI/gAAA", codecs=big)
    assert inside.fill_value.item() == (258, 1.0)


def test_documents_that_differ_in_a_sign_are_not_taken_for_one():
    assert [str(parse(data_type="float64", fill_value=value).fill_value) for value in (0.0, -0.0)] == ["0.0", "-0.0"]


def test_what_cannot_be_written_is_not_adapted():
    with pytest.raises(UnsupportedFeature, match="zarr3"):
        ZarrV3().adapt(replace(parse(), dtype=np.dtype([("m", "i4", (2,))]), fill_value=None))


def test_undefined_fill_values_are_written_as_zeros():
    assert emit(replace(parse(), fill_value=None))["fill_value"] == 0
    text = parse(data_type="string", fill_value="x", codecs=["vlen-utf8"])
    assert emit(replace(text, fill_value=None))["fill_value"] == ""
    blobs = parse(data_type="bytes", fill_value=[1], codecs=["vlen-bytes"])
    assert emit(replace(blobs, fill_value=None))["fill_value"] == ""


# --------------------------------------------------------------------------------------------------------------------
# Paths


def test_names_that_are_barred():
    fmt = ZarrV3()
    assert fmt.normalize_path("a\\b") == "a\\b"  # an ordinary character
    assert fmt.normalize_path("Größe/.x/c") == "Größe/.x/c"
    assert fmt.normalize_path("a/__x/b") == "a/__x/b"  # reserved, and read with a warning
    for bad in ("...", "a/....", "a/zarr.json"):
        with pytest.raises(MetadataError):
            fmt.normalize_path(bad)


def test_children():
    fmt = ZarrV3()
    assert fmt.list_prefixes("") == ("",)
    listed = ["b/", "zarr.json", "zarr.json/", ".../", "__x/", "c/", ".x/", "/"]
    assert [fmt.child_name("", "", name) for name in listed] == ["b", None, None, None, "__x", "c", ".x", None]
    assert not fmt.implicit_groups
