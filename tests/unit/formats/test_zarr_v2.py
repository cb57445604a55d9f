"""Zarr v2: documents written by hand; `FormatContract` besides, and the golden stores of `tests/conformance`."""

import json
from dataclasses import replace

import numpy as np
import pytest
from contracts.format_contract import FormatContract
from support.cases import cases, refusals

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.model.dtypes import STRING
from chunkmill.model.grid import ChunkGrid, RunsAxis
from chunkmill.model.metadata import ChunkKeyEncoding, NamedConfig

PLAIN = {
    "zarr_format": 2, "shape": [7, 5], "chunks": [3, 2], "dtype": "<i4", "compressor": None, "fill_value": -1,
    "order": "C", "filters": None,
}  # fmt: skip
LITTLE = NamedConfig("bytes", {"endian": "little"})
BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0, "typesize": 4}
MISSING = object()


def parse(attributes=None, fmt=None, **changes):
    document = {name: value for name, value in (PLAIN | changes).items() if value is not MISSING}
    documents = {"a/.zarray": json.dumps(document).encode()}
    if attributes is not None:
        documents["a/.zattrs"] = json.dumps(attributes).encode()
    return (fmt or ZarrV2()).parse_array("a", documents)


def emit(metadata):
    return json.loads(ZarrV2().emit_array("a", metadata)["a/.zarray"])


class TestContract(FormatContract):
    format = ZarrV2()
    arrays = (  # of all kinds: tests/conformance/test_documents.py
        parse(),
        parse(shape=[], chunks=[], dtype=">f8", fill_value="NaN"),
        parse(dtype="|O", fill_value={"a": [1]}, filters=[{"id": "json2", "encoding": "utf-8"}]),
        parse(dtype=[["x", ">i2"], ["y", "<f4"]], fill_value="AQIAAIA/"),
        parse({"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m"}),
    )
    refused = (
        replace(parse(), edge_chunks="truncated"),
        replace(parse(), chunk_grid=ChunkGrid((RunsAxis(7, ((3, 2), (1, 1))), RunsAxis(5, ((5, 1),))))),
        replace(parse(), chunk_keys=ChunkKeyEncoding("c/", "/", "c")),
        replace(parse(), chunk_keys=ChunkKeyEncoding("", "/", "0", reverse=True)),
        replace(parse(), fill_value=np.array(0x7FC12345, "u4").view("f4")[()], dtype=np.dtype("f4")),
    )


LE = ("bytes", {"endian": "little"})
CHAINS = [  # members of .zarray, dtype, chain; every codec is in golden stores
    ({"dtype": ">i4"}, "i4", [("bytes", {"endian": "big"})]), ({"dtype": "<i1"}, "i1", [("bytes", {})]),
    ({"order": "F", "shape": [7], "chunks": [3]}, "i4", [LE]),
    ({"filters": [{"id": "adler32"}], "compressor": {"id": "blosc", "shuffle": -1}}, "i4",
     [LE, ("numcodecs.adler32", {}), ("blosc", BLOSC | {"shuffle": "bitshuffle", "typesize": 1})]),
    ({"filters": [{"id": "crc32c", "location": "start"}]}, "i4", [LE, ("numcodecs.crc32c", {"location": "start"})]),
    ({"dtype": "<M8[s]", "fill_value": 0, "filters": [{"id": "delta", "dtype": "<i8"}], "compressor": {"id": "blosc"}},
     "M8[s]", [("numcodecs.delta", {"dtype": "<i8"}), LE, ("blosc", BLOSC | {"typesize": 8})]),
    ({"dtype": "<f8", "fill_value": 0, "filters": [{"id": "astype", "encode_dtype": ">i2", "decode_dtype": "<f8"}]},
     "f8", [("numcodecs.astype", {"encode_dtype": ">i2", "decode_dtype": "<f8"}), ("bytes", {"endian": "big"})]),
    ({"compressor": {"id": "pcodec", "level": 8}}, "i4", [("numcodecs.pcodec", {"level": 8})]),
    ({"dtype": "|O", "fill_value": "", "order": "F", "filters": [{"id": "vlen-utf8"}], "compressor": {"id": "blosc"}},
     STRING, [("transpose", {"order": [1, 0]}), ("vlen-utf8", {}), ("blosc", BLOSC | {"typesize": 1})]),
    ({"dtype": [["x", ">i2"], ["k", "|u1"]], "fill_value": None}, [("x", "i2"), ("k", "u1")],
     [("bytes", {"endian": "big"})]),
    ({"dtype": [["x", ">i2"], ["y", "<f4"]], "fill_value": None}, [("x", "i2"), ("y", "f4")],
     [("bytes", {"dtype": [["x", ">i2"], ["y", "<f4"]]})]),
    ({"compressor": {"id": "mystery", "x": 1}}, "i4", [LE, ("numcodecs.mystery", {"x": 1})]),
]  # fmt: skip


@cases(("members", "dtype", "chain"), CHAINS)
def test_chains(members, dtype, chain):
    metadata = parse(**members)
    assert metadata.dtype == np.dtype(dtype)
    assert [(codec.name, codec.configuration) for codec in metadata.codecs] == chain
    again = parse(**emit(metadata))
    assert (again.dtype, again.codecs) == (metadata.dtype, metadata.codecs)
    written = emit(metadata)["dtype"]
    assert written == ("|i1" if members.get("dtype") == "<i1" else (PLAIN | members)["dtype"])


REFUSED = [  # others are golden
    ("zarr_format: got 'nothing'", {"zarr_format": MISSING}), ("zarr_format: got True", {"zarr_format": True}),
    ("integers from 0 to 2**63-1", {"shape": [7, 2**63]}), ("fill_value: got 'nothing'", {"fill_value": MISSING}),
    ("a list of at most 64 integers", {"shape": [1] * 65, "chunks": [1] * 65}), ("order: got 'K'", {"order": "K"}),
    ("chunk lengths of at least 1", {"chunks": [0, 2]}),
    ("chunk lengths of at least 1", {"shape": [1, 5], "chunks": [0, 2]}),
    ("dimension_separator: got None", {"dimension_separator": None}),
    # chains
    ("expected an object codec for '|O'", {"dtype": "|O", "compressor": {"id": "zlib"}}),
    ("vlen-utf8 over data type int32", {"filters": [{"id": "vlen-utf8"}]}),
    ("'vlen-utf8' after a codec of bytes", {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, {"id": "vlen-utf8"}]}), (
     "'delta' after a codec of bytes",
     {"filters": [{"id": "shuffle", "elementsize": 4}, {"id": "delta", "dtype": "<i4"}]}),
    ("delta of >i4 over <i4", {"filters": [{"id": "delta", "dtype": ">i4"}]}),
    ("delta of int64 over int32", {"filters": [{"id": "delta", "dtype": "<i8"}]}),
    ("blosc.shuffle: got 3", {"compressor": {"id": "blosc", "shuffle": 3}}),
    ("blosc.shuffle: got -2", {"compressor": {"id": "blosc", "shuffle": -2}}),
    ("blosc.shuffle: got True", {"compressor": {"id": "blosc", "shuffle": True}}),
    ("got ['x'], expected the parameters of numcodecs", {"compressor": {"id": "blosc", "x": 1}}),
    ("got {'level': 1}, expected a codec with an id", {"compressor": {"level": 1}}),
    ("compressor: got 'zlib', expected dict or NoneType", {"compressor": "zlib"}),
    ("filters: got {'id': 'zlib'}, expected null or a list", {"filters": {"id": "zlib"}}),
    ("filters: got ['zlib'], expected null or a list", {"filters": ["zlib"]}),
]  # fmt: skip


test_refused = refusals(REFUSED, lambda members: parse(**members), key="a/.zarray")


def test_the_longest_and_the_most_axes():
    assert parse(shape=[2**63 - 1] + [1] * 63, chunks=[1] * 64).shape == (2**63 - 1, *[1] * 63)


def test_separators():
    assert parse(dimension_separator="/").chunk_keys.encode((1, 0)) == "1/0"
    assert parse().chunk_keys.encode((1, 0)) == "1.0"
    assert parse(fmt=ZarrV2(separator_override="/")).chunk_keys.encode((1, 0)) == "1/0"
    assert parse(fmt=ZarrV2(separator_override="/"), dimension_separator=".").chunk_keys.encode((1, 0)) == "1.0"
    assert emit(parse())["dimension_separator"] == "."


def test_dimension_names():
    metadata = parse({"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m"})
    assert (metadata.dimension_names, metadata.attributes) == (("y", "x"), {"units": "m"})
    written = json.loads(ZarrV2().emit_array("a", metadata)["a/.zattrs"])
    assert written == {"units": "m", "_ARRAY_DIMENSIONS": ["y", "x"]}
    for names in (["y"], ["y", 3], "yx", None):  # no names for every axis: an attribute like others
        assert parse({"_ARRAY_DIMENSIONS": names}).dimension_names is None
        assert parse({"_ARRAY_DIMENSIONS": names}).attributes == {"_ARRAY_DIMENSIONS": names}
    unnamed = replace(metadata, dimension_names=("y", None))
    assert "_ARRAY_DIMENSIONS" not in json.loads(ZarrV2().emit_array("a", unnamed)["a/.zattrs"])
    assert parse({"_ARRAY_DIMENSIONS": []}, shape=[], chunks=[]).dimension_names == ()


def test_dimension_names_of_netcdf_c():
    """Their right ones are golden."""
    assert parse(_nczarr_array={"dimrefs": ["/lat"]}).dimension_names is None
    for odd in ({"dimrefs": 2}, {"dimrefs": ["/lat", 1]}, {"dimrefs": "ab"}, {}, [], "x"):
        assert parse(_nczarr_array=odd).dimension_names is None


def test_transposes_that_v2_cannot_say():
    metadata = parse(shape=[2, 3, 4], chunks=[1, 1, 1])
    with pytest.raises(UnsupportedFeature, match="axes"):
        emit(replace(metadata, codecs=(NamedConfig("transpose", {"order": [2, 0, 1]}), LITTLE)))
    delta, turn = NamedConfig("numcodecs.delta", {"dtype": "<i4"}), NamedConfig("transpose", {"order": [2, 1, 0]})
    with pytest.raises(UnsupportedFeature, match="'transpose'"):
        emit(replace(metadata, codecs=(delta, turn, LITTLE)))
    with pytest.raises(UnsupportedFeature, match=r"little endian before bytes that are big.*a/\.zarray"):
        emit(replace(metadata, codecs=(delta, NamedConfig("bytes", {"endian": "big"}))))
    with pytest.raises(MetadataError, match="fields of int32"):
        emit(replace(metadata, codecs=(NamedConfig("bytes", {"dtype": "<f8"}),)))
    astype = NamedConfig("numcodecs.astype", {"encode_dtype": ">i2"})
    adapted = ZarrV2().adapt(replace(metadata, codecs=(astype, LITTLE)))
    assert adapted.codecs[1] == NamedConfig("bytes", {"endian": "big"})
    turns = [NamedConfig("transpose", {"order": order}) for order in ([1, 2, 0], [2, 0, 1])]
    assert emit(replace(metadata, codecs=(*turns, LITTLE)))["order"] == "C"  # they undo each other
    turns = [NamedConfig("transpose", {"order": order}) for order in ([1, 0, 2], [2, 0, 1])]
    assert emit(replace(metadata, codecs=(*turns, LITTLE)))["order"] == "F"


@cases("codec", ["sharding_indexed", "n5_block", "mystery"])
def test_codecs_that_v2_does_not_have(codec):
    chain = [NamedConfig(codec, {"codecs": []})]
    with pytest.raises(MetadataError):
        emit(replace(parse(), codecs=(LITTLE, *chain) if codec == "mystery" else tuple(chain)))


def test_written_as_numcodecs_wants_it():
    chain = (LITTLE, NamedConfig("crc32c", {}), NamedConfig("blosc", BLOSC))
    document = emit(replace(parse(), codecs=chain))
    assert document["filters"] == [{"id": "crc32c"}]
    assert document["compressor"] == {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
    document = emit(replace(parse(), codecs=(LITTLE, NamedConfig("zstd", {"level": 3, "checksum": False}))))
    assert (document["filters"], document["compressor"]) == (None, {"id": "zstd", "level": 3})
    document = emit(parse(dtype="|O", fill_value="", filters=[{"id": "vlen-utf8"}]))
    assert (document["dtype"], document["filters"], document["compressor"]) == ("|O", [{"id": "vlen-utf8"}], None)


def test_groups():
    assert ZarrV2().parse_group("g", {"g/.zattrs": b"{}"}) is None
    assert ZarrV2().parse_group("g", {"g/.zgroup": b'{"zarr_format": 2}'}).attributes == {}
    for bad in (b"{}", b'{"zarr_format": 3}'):
        with pytest.raises(MetadataError):
            ZarrV2().parse_group("g", {"g/.zgroup": bad})


def test_attributes_are_an_object():
    with pytest.raises(MetadataError):
        ZarrV2().parse_array("a", {"a/.zarray": json.dumps(PLAIN).encode(), "a/.zattrs": b"[]"})


def test_backslashes_separate():
    assert ZarrV2().normalize_path("a\\b\\") == "a/b"
    with pytest.raises(MetadataError):
        ZarrV2().normalize_path("a\\..\\b")
