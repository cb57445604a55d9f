# ruff: noqa: RUF012 - the class attributes are tables of cases
import numpy as np
import pytest
from contracts.codec_contract import CodecContract, pipeline_of, spec_of

from chunkmill.codecs.base import ChunkSpec
from chunkmill.errors import ChunkmillError, CodecError

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
ZEROS = np.zeros(1000, "u1")
NOISE = np.random.default_rng(0).integers(0, 256, 1000).astype("u1")


def conditional(*codecs, **more):
    return {"name": "conditional", "configuration": {"codecs": list(codecs), **more}}


class TestContract(CodecContract):
    chain = [
        LITTLE,
        conditional("numcodecs.shuffle", {"name": "zstd", "configuration": {"level": 1, "checksum": True}}),
    ]
    arrays = [ZEROS, NOISE, np.arange(300, dtype="i4").reshape(3, 100)]
    frozen = [(np.array([1, 2, 3], "u1"), "00 01 02 03")]


class TestLongHeader(CodecContract):
    chain = [LITTLE, conditional("gzip", header_bits=16), "crc32c"]
    arrays = [ZEROS, NOISE]


class TestNothingInside(CodecContract):
    chain = [LITTLE, conditional()]
    fixed_size = True
    arrays = [NOISE]


def test_what_grows_is_stored_as_it_is():
    pipeline = pipeline_of([LITTLE, conditional("zstd")], spec_of(NOISE))
    assert bytes(pipeline.encode(NOISE, spec_of(NOISE))) == b"\0" + NOISE.tobytes()
    encoded = bytes(pipeline.encode(ZEROS, spec_of(ZEROS)))
    assert encoded[0] == 1
    assert len(encoded) < 100


@pytest.mark.parametrize("mask", range(4))
def test_each_codec_has_a_bit(mask):
    import numcodecs

    values = np.arange(256, dtype="i4")
    data = values.astype("<i4").tobytes()
    if mask & 1:
        data = bytes(numcodecs.Shuffle(4).encode(data))
    if mask & 2:
        data = bytes(numcodecs.Zlib(1).encode(data))
    codec = conditional({"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}, "numcodecs.zlib")
    pipeline = pipeline_of([LITTLE, codec], spec_of(values))
    assert np.array_equal(pipeline.decode(bytes([mask]) + data, spec_of(values)), values)


@pytest.mark.parametrize("data", [b"", b"\2abc", b"\x81" + ZEROS.tobytes()])
def test_headers_that_are_wrong(data):
    with pytest.raises(CodecError):
        pipeline_of([LITTLE, conditional("zstd")], spec_of(ZEROS)).decode(data, spec_of(ZEROS))


@pytest.mark.parametrize(
    "configuration",
    [
        {}, {"codecs": "zstd"}, {"codecs": ["bytes"]}, {"codecs": ["transpose"]}, {"codecs": ["nothing"]}, {"codecs": [5]}, {"codecs": ["zstd"], "header_bits": 4},
        {"codecs": ["zstd"], "header_bits": 0}, {"codecs": ["zstd"] * 9, "header_bits": 8}, {"codecs": [], "header_bits": 10**9}, {"codecs": [], "x": 1},
        {"codecs": ["pickle"]}, {"codecs": ["numcodecs.pickle"]},
    ],
)  # fmt: skip
def test_bad_configurations(configuration):
    with pytest.raises(ChunkmillError):
        pipeline_of(
            [LITTLE, {"name": "conditional", "configuration": configuration}], ChunkSpec((1,), np.dtype("u1"), None)
        )


def test_bombs_inside_are_bounded():
    import zlib

    spec = ChunkSpec((10,), np.dtype("u1"), None)
    pipeline = pipeline_of([LITTLE, conditional("numcodecs.zlib")], spec)
    with pytest.raises(CodecError):
        pipeline.decode(b"\1" + zlib.compress(bytes(10**7)), spec)
