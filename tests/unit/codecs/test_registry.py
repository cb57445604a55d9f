import numcodecs
import numpy as np
import pytest
from contracts.codec_contract import BIG, LITTLE, codec, spec_of
from support.cases import cases
from support.codecs import chunks_of
from support.scripts import run_script

from chunkmill.codecs import registry
from chunkmill.codecs.registry import build_pipeline, default_serializer, parse_codecs
from chunkmill.errors import MetadataError, UnknownCodec
from chunkmill.model.metadata import CODECS, NamedConfig

I4 = np.dtype("i4")
STRING = np.dtypes.StringDType()


ONE_BYTE = codec("bytes")
ZSTD, CRC, STRINGS = codec("zstd", level=3, checksum=False), codec("crc32c"), codec("vlen-utf8")
FAST_ZSTD = codec("zstd", level=0, checksum=False)


def as_dicts(chain):
    return [{"name": codec.name, "configuration": dict(codec.configuration)} for codec in chain]


def blosc(cname="lz4", clevel=5, shuffle="shuffle", typesize=4):
    return codec("blosc", cname=cname, clevel=clevel, shuffle=shuffle, typesize=typesize, blocksize=0)


def delta(astype):
    return codec("numcodecs.delta", dtype="<i4", astype=astype)


CATEGORIES = codec("numcodecs.categorize", labels=["a"], dtype="|O", astype="|u1")
TURN, FLAT = codec("transpose", order=[1, 0]), codec("reshape", shape=[[0, 1], [2]])


@cases(
    ("codecs", "dtype", "expected"),
    [
        ("default", "i4", [LITTLE, ZSTD]), ("default", "u1", [ONE_BYTE, ZSTD]), ("default", ">i4", [BIG, ZSTD]),
        ("default", STRING, [STRINGS, ZSTD]),
        ("default", object, [STRINGS, ZSTD]), ("raw", "i4", [LITTLE]), (None, "i4", [LITTLE]),
        ("zstd", "i4", [LITTLE, FAST_ZSTD]), ("lz4", "i4", [LITTLE, codec("numcodecs.lz4", acceleration=1)]),
        (["blosc", "crc32c"], "f8", [LITTLE, blosc(typesize=8), CRC]),
        (codec("blosc", shuffle=-1), "i4", [LITTLE, blosc()]),
        (codec("blosc", shuffle=0, typesize=2), "f8", [LITTLE, blosc(shuffle="noshuffle", typesize=2)]),
        ("blosc", "V256", [ONE_BYTE, blosc(typesize=1)]), ("blosc", "V255", [ONE_BYTE, blosc(typesize=255)]),
        # more than blosc takes
        ("bytes", ">i4", [BIG]), ([numcodecs.Delta("i4", "u1"), "bytes"], "i4", [delta("|u1"), ONE_BYTE]),
        ([codec("gzip", level=9)], "i4", [LITTLE, codec("gzip", level=9)]), ([BIG], "i4", [BIG]),
        ([TURN, "zstd"], "i4", [TURN, LITTLE, FAST_ZSTD]), ([FLAT, TURN], "i4", [FLAT, TURN, LITTLE]),
        (numcodecs.Blosc("zstd", 3, -1), "u1", [ONE_BYTE, blosc("zstd", 3, "bitshuffle", 1)]),
        ({"id": "zlib", "level": 3}, "i4", [LITTLE, codec("numcodecs.zlib", level=3)]),
        ([numcodecs.Delta("i4", "i2"), numcodecs.Blosc()], "i4", [delta("<i2"), LITTLE, blosc(typesize=2)]),
        ([numcodecs.Categorize(["a"], object)], STRING, [CATEGORIES, ONE_BYTE]),
        ([numcodecs.VLenUTF8()], object, [STRINGS]), ([numcodecs.CRC32C()], "i4", [LITTLE, CRC]),
    ],
)  # fmt: skip
def test_parse_codecs(codecs, dtype, expected):
    assert as_dicts(parse_codecs(codecs, np.dtype(dtype))) == expected


def test_parse_codecs_completes_what_is_inside_a_shard():
    inner = {"chunk_shape": [2, 2], "codecs": [codec("transpose", order="F"), "blosc"]}
    (shards,) = parse_codecs([codec("sharding_indexed", **inner)], I4)
    assert shards == registry.sharded([NamedConfig(**each) for each in (TURN, LITTLE, blosc())], (2, 2))
    assert parse_codecs([shards], I4) == (shards,)


def test_parse_codecs_is_idempotent():
    chain = parse_codecs([numcodecs.Delta("i4"), numcodecs.Shuffle(), numcodecs.LZMA()], I4)
    assert parse_codecs(chain, I4) == chain


def test_old_orders_need_the_number_of_axes():
    codecs = [codec("transpose", order="F")]
    with pytest.raises(MetadataError, match="list of axes"):
        parse_codecs(codecs, I4)
    assert parse_codecs(codecs, I4, ndim=3)[0].configuration == {"order": [2, 1, 0]}


@cases("codecs", ["zip", ["zstd", "nonsense"], "keep", {"id": "nonsense"}, {"name": "numcodecs.nonsense"}])
def test_unknown_names(codecs):
    with pytest.raises(UnknownCodec, match="known are"):
        parse_codecs(codecs, I4)


@cases(
    "codecs",
    [
        5, [5], {"level": 3}, {"id": 5}, {"name": "zstd", "configuration": 3}, [["zstd"]],
        codec("zstd", level="high"), codec("sharding_indexed"), codec("sharding_indexed", chunk_shape=3),
    ],
)  # fmt: skip
def test_what_is_no_codec(codecs):
    with pytest.raises(MetadataError):
        parse_codecs(codecs, I4)


@cases(
    "chain",
    [
        [], ["zstd"], ["transpose"], ["bytes", "bytes"], ["zstd", "bytes"], ["numcodecs.zlib", "bytes"],
        ["numcodecs.shuffle", "bytes"], ["bytes", "transpose"],
        ["bytes", "numcodecs.delta"], ["bytes", "vlen-utf8"], ["bytes", "sharding_indexed"],
    ],
)  # fmt: skip
def test_other_arrangements(chain):
    with pytest.raises(MetadataError, match="exactly one array -> bytes codec") as caught:
        build_pipeline([NamedConfig(name) for name in chain], chunks_of("u1", 1))
    assert isinstance(caught.value, ValueError)


def test_kinds():
    names = ["transpose", "numcodecs.packbits", "n5_block", "numcodecs.json2", "crc32c", "n5_lz4", "numcodecs.who"]
    kinds = [registry.known_kind(NamedConfig(name)) for name in names]
    assert kinds == ["array-array"] * 2 + ["array-bytes"] * 2 + ["bytes-bytes"] * 3
    with pytest.raises(UnknownCodec, match="sharding_indexed"):
        registry.known_kind(NamedConfig("who"))
    assert set(registry._CODECS) == CODECS


@cases(
    ("config", "name"),
    [
        ({"id": "gzip", "level": 1}, "gzip"), ({"id": "crc32c"}, "crc32c"),
        ({"id": "crc32c", "location": "start"}, "numcodecs.crc32c"), ({"id": "vlen-bytes"}, "vlen-bytes"),
        ({"id": "bz2"}, "numcodecs.bz2"),
    ],
)  # fmt: skip
def test_parse_numcodecs(config, name):
    assert registry.parse_numcodecs(config).name == name


def test_default_serializer():
    found = [default_serializer(np.dtype(t)).configuration for t in ("S3", "V3", "bool", [("a", "i2")])]
    assert found == [{}, {}, {}, {"endian": "little"}]


def test_a_pipeline_serves_specs_in_turn():
    pipeline = build_pipeline([NamedConfig(**LITTLE), NamedConfig(**ZSTD)], chunks_of(I4, 2))
    for shape in ((2,), (3,), (2,), (1, 4)):
        array = np.ones(shape, "i4")
        assert pipeline.decode(pipeline.encode(array, spec_of(array)), spec_of(array)).shape == shape


def test_each_codec_may_yield_what_is_put_into_it():
    """Exactly, where that is known, or a little more than the most that a compressor makes of it; 2 GiB of text."""
    chain = [NamedConfig("crc32c"), NamedConfig("zstd"), NamedConfig("gzip")]
    for dtype, limits in ((np.dtype("f8"), [4190, 84, 80]), (STRING, [2717917696, 2415923200, 1 << 31])):
        pipeline = build_pipeline([default_serializer(dtype), *chain], spec := chunks_of(dtype, 2, 5))
        assert [limit for _, limit in pipeline._plan(spec).decompressors] == limits


@cases(
    ("codecs", "dtype", "plain"),
    [
        ("raw", "i4", True), ("raw", ">i4", False), ("zstd", "i4", False), ([TURN], "i4", False), ("raw", "U2", False),
        ("raw", "?", False), ("raw", STRING, False),
    ],
)  # fmt: skip
def test_chunks_are_plain_where_their_bytes_are_the_elements(codecs, dtype, plain):
    chain = parse_codecs(codecs, np.dtype(dtype))
    spec = chunks_of(dtype if dtype is STRING else np.dtype(dtype).newbyteorder("="), 2, 3)
    assert build_pipeline(chain, spec).is_plain(spec) is plain


def test_opening_needs_no_numcodecs():
    code = """
import sys
import numpy as np
from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.registry import build_pipeline
from chunkmill.model.metadata import CODECS, NamedConfig
import chunkmill.formats.registry, chunkmill.array.staleness

spec = ChunkSpec((4,), np.dtype("i4"), 0)
for compressor in ("zstd", "blosc", "gzip", "crc32c"):
    build_pipeline([NamedConfig("bytes", {"endian": "little"}), NamedConfig(compressor)], spec)
print(*(name for name in ("numcodecs", "ml_dtypes", "cramjam", "zfpy") if name in sys.modules))
"""
    assert run_script(code) == ""
