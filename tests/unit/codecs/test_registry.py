import pickle
import subprocess
import sys
from contextlib import suppress

import numcodecs
import numpy as np
import pytest
from contracts.codec_contract import spec_of
from support.cases import cases

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.registry import (
    _CODECS,
    build_pipeline,
    default_serializer,
    known_kind,
    parse_codecs,
    parse_numcodecs,
    sharded,
)
from chunkmill.errors import ChunkmillError, MetadataError, UnknownCodec
from chunkmill.model.metadata import CODECS, NamedConfig

I4 = np.dtype("i4")
STRING = np.dtypes.StringDType()
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}


def as_dicts(chain):
    return [{"name": codec.name, "configuration": dict(codec.configuration)} for codec in chain]


def blosc(cname="lz4", clevel=5, shuffle="shuffle", typesize=4):
    parameters = {"cname": cname, "clevel": clevel, "shuffle": shuffle, "typesize": typesize, "blocksize": 0}
    return {"name": "blosc", "configuration": parameters}


@cases(
    ("codecs", "dtype", "expected"),
    [
        pytest.param("default", "i4", [LITTLE, ZSTD], id="default"),
        pytest.param("default", "u1", [{"name": "bytes", "configuration": {}}, ZSTD], id="default of one byte"),
        pytest.param("default", ">i4", [{"name": "bytes", "configuration": {"endian": "big"}}, ZSTD], id="default big-endian"),
        pytest.param("default", STRING, [{"name": "vlen-utf8", "configuration": {}}, ZSTD], id="default of strings"),
        pytest.param("default", object, [{"name": "vlen-utf8", "configuration": {}}, ZSTD], id="default of objects"),
        pytest.param("raw", "i4", [LITTLE], id="raw"),
        pytest.param([], "i4", [LITTLE], id="empty"),
        pytest.param(None, "i4", [LITTLE], id="None"),
        pytest.param("zstd", "i4", [LITTLE, {"name": "zstd", "configuration": {"level": 0, "checksum": False}}], id="zstd"),
        pytest.param("blosc", "i4", [LITTLE, blosc()], id="blosc"),
        pytest.param("gzip", "i4", [LITTLE, {"name": "gzip", "configuration": {"level": 1}}], id="gzip"),
        pytest.param("lz4", "i4", [LITTLE, {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}], id="lz4"),
        pytest.param(["blosc", "crc32c"], "f8", [LITTLE, blosc(typesize=8), {"name": "crc32c", "configuration": {}}], id="names"),
        pytest.param("bytes", ">i4", [{"name": "bytes", "configuration": {"endian": "big"}}], id="serializer"),
        pytest.param(["bytes", "crc32c"], "i4", [LITTLE, {"name": "crc32c", "configuration": {}}], id="whole chain of names"),
        pytest.param(
            [numcodecs.Delta("i4", "u1"), "bytes"],
            "i4",
            [{"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "|u1"}}, {"name": "bytes", "configuration": {}}],
            id="serializer of bytes",
        ),
        pytest.param([{"name": "gzip", "configuration": {"level": 9}}], "i4", [LITTLE, {"name": "gzip", "configuration": {"level": 9}}], id="compressors"),
        pytest.param([{"name": "bytes", "configuration": {"endian": "big"}}], "i4", [{"name": "bytes", "configuration": {"endian": "big"}}], id="whole chain"),
        pytest.param(
            [{"name": "transpose", "configuration": {"order": [1, 0]}}, "zstd"],
            "i4",
            [{"name": "transpose", "configuration": {"order": [1, 0]}}, LITTLE, {"name": "zstd", "configuration": {"level": 0, "checksum": False}}],
            id="around the serializer",
        ),
        pytest.param(numcodecs.Blosc("zstd", 3, -1), "u1", [{"name": "bytes", "configuration": {}}, blosc("zstd", 3, "bitshuffle", 1)], id="numcodecs object"),
        pytest.param({"id": "zlib", "level": 3}, "i4", [LITTLE, {"name": "numcodecs.zlib", "configuration": {"level": 3}}], id="numcodecs configuration"),
        pytest.param(
            [numcodecs.Delta("i4", "i2"), numcodecs.Blosc()],
            "i4",
            [{"name": "numcodecs.delta", "configuration": {"dtype": "<i4", "astype": "<i2"}}, LITTLE, blosc(typesize=2)],
            id="numcodecs filter",
        ),
        pytest.param(
            [numcodecs.Categorize(["a"], object)],
            STRING,
            [{"name": "numcodecs.categorize", "configuration": {"labels": ["a"], "dtype": "|O", "astype": "|u1"}}, {"name": "bytes", "configuration": {}}],
            id="serializer of what the filter yields",
        ),
        pytest.param([numcodecs.VLenUTF8()], object, [{"name": "vlen-utf8", "configuration": {}}], id="object codec"),
        pytest.param([numcodecs.CRC32C()], "i4", [LITTLE, {"name": "crc32c", "configuration": {}}], id="crc32c"),
        pytest.param(NamedConfig("crc32c"), "i4", [LITTLE, {"name": "crc32c", "configuration": {}}], id="NamedConfig"),
    ],
)  # fmt: skip
def test_parse_codecs(codecs, dtype, expected):
    assert as_dicts(parse_codecs(codecs, np.dtype(dtype))) == expected


def test_parse_codecs_completes_what_is_inside_a_shard():
    inner = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [2, 2],
            "codecs": [{"name": "transpose", "configuration": {"order": "F"}}, "blosc"],
        },
    }
    (codec,) = parse_codecs([inner], I4)
    assert codec == sharded(
        [NamedConfig("transpose", {"order": [1, 0]}), NamedConfig(**LITTLE), NamedConfig(**blosc())], (2, 2)
    )
    assert parse_codecs([codec], I4) == (codec,)


def test_parse_codecs_is_idempotent():
    chain = parse_codecs([numcodecs.Delta("i4"), numcodecs.Shuffle(), numcodecs.LZMA()], I4)
    assert parse_codecs(chain, I4) == chain


@pytest.mark.parametrize("ndim", [None, 3])
def test_old_orders_need_the_number_of_axes(ndim):
    codecs = [{"name": "transpose", "configuration": {"order": "F"}}]
    if ndim is None:
        with pytest.raises(MetadataError, match="list of axes"):
            parse_codecs(codecs, I4)
    else:
        assert parse_codecs(codecs, I4, ndim=ndim)[0].configuration == {"order": [2, 1, 0]}


@cases("codecs", ["zip", ["zstd", "nonsense"], "keep", {"id": "nonsense"}, {"name": "numcodecs.nonsense"}])
def test_unknown_names(codecs):
    with pytest.raises(UnknownCodec, match="known are"):
        parse_codecs(codecs, I4)


@cases(
    "codecs",
    [
        5, [5], {"level": 3}, {"id": 5}, {"name": "zstd", "configuration": 3}, [["zstd"]],
        {"name": "zstd", "configuration": {"level": "high"}},
    ],
)  # fmt: skip
def test_what_is_no_codec(codecs):
    with pytest.raises(MetadataError):
        parse_codecs(codecs, I4)


@cases(
    "chain",
    [
        [], ["zstd"], ["transpose"], ["bytes", "bytes"], ["zstd", "bytes"], ["numcodecs.zlib", "bytes"],
        ["numcodecs.shuffle", "bytes"], ["bytes", "transpose"], ["bytes", "numcodecs.delta"], ["bytes", "vlen-utf8"],
        ["bytes", "sharding_indexed"],
    ],
)  # fmt: skip
def test_other_arrangements(chain):
    with pytest.raises(MetadataError, match="exactly one array -> bytes codec") as caught:
        build_pipeline([NamedConfig(name) for name in chain], ChunkSpec((1,), np.dtype("u1"), None))
    assert isinstance(caught.value, ValueError)


def test_kinds():
    names = ["transpose", "numcodecs.packbits", "n5_block", "numcodecs.json2", "crc32c", "n5_lz4", "numcodecs.who"]
    kinds = [known_kind(NamedConfig(name)) for name in names]
    assert kinds == ["array-array"] * 2 + ["array-bytes"] * 2 + ["bytes-bytes"] * 3
    with pytest.raises(UnknownCodec, match="sharding_indexed"):
        known_kind(NamedConfig("who"))
    assert set(_CODECS) == CODECS


@cases(
    ("config", "name"),
    [
        ({"id": "gzip", "level": 1}, "gzip"), ({"id": "crc32c"}, "crc32c"),
        ({"id": "crc32c", "location": "start"}, "numcodecs.crc32c"), ({"id": "vlen-bytes"}, "vlen-bytes"),
        ({"id": "bz2"}, "numcodecs.bz2"),
    ],
)  # fmt: skip
def test_parse_numcodecs(config, name):
    assert parse_numcodecs(config).name == name


def test_default_serializer():
    assert [default_serializer(np.dtype(t)).configuration for t in ("S3", "V3", "bool", [("a", "i2")])] == [
        {},
        {},
        {},
        {"endian": "little"},
    ]


def test_a_pipeline_serves_specs_in_turn():
    pipeline = build_pipeline([NamedConfig(**LITTLE), NamedConfig(**ZSTD)], ChunkSpec((2,), I4, None))
    for shape in ((2,), (3,), (2,), (1, 4)):
        array = np.ones(shape, "i4")
        assert pipeline.decode(pipeline.encode(array, spec_of(array)), spec_of(array)).shape == shape


def test_tokens_do_not_change_with_use():
    from dask.base import tokenize

    spec = ChunkSpec((2, 2), I4, 0)
    pipeline = build_pipeline([sharded(parse_codecs([numcodecs.Delta("i4")], I4), (1, 2))], spec)
    before = tokenize(pipeline)
    pipeline.decode(pipeline.encode(np.ones((2, 2), "i4"), spec), spec)
    assert tokenize(pipeline) == before == tokenize(pickle.loads(pickle.dumps(pipeline)))
    assert isinstance(pipeline, CodecPipeline)


@cases("name", sorted(_CODECS))
def test_every_name_leads_to_a_factory(name):
    """The modules are imported by name, so that nothing but a call sees a name that is wrong."""
    with suppress(ValueError, TypeError, ChunkmillError):
        _CODECS[name][1]({}, ChunkSpec((2,), np.dtype("f4"), None))


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
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "\n"
