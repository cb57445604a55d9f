"""N5 blocks: the bytes that the specification prints, headers that lie, blocks smaller than their chunk."""

import struct

import numpy as np
import pytest
from contracts.codec_contract import BIG, codec
from support.cases import cases
from xxhash import xxh32_intdigest

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.n5_block import N5Lz4, write_header
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.registry import build_pipeline
from chunkmill.errors import CodecError, MetadataError
from chunkmill.model.metadata import NamedConfig

COMPRESSORS = {"raw": [], "gzip": [codec("gzip", level=5)], "lz4": [codec("n5_lz4", blockSize=65536)]}  # fmt: skip
# N5 README 4.0.0, "Chunks are stored in the following binary format": uint16, 1 x 2 x 3, values 1 to 6; with each compression
# in golden stores
HEADER = "0000 0003 00000001 00000002 00000003"
PRINTED = "0001 0002 0003 0004 0005 0006"
ONE_TO_SIX = np.arange(1, 7, dtype="u2").reshape(3, 2, 1)


def pipeline(compressor: str, spec: ChunkSpec) -> CodecPipeline:
    codecs = [BIG, *COMPRESSORS[compressor]]
    return build_pipeline([NamedConfig("n5_block", {"codecs": codecs})], spec)


def spec_of(shape: tuple[int, ...], dtype: str = "u2") -> ChunkSpec:
    return ChunkSpec(shape, np.dtype(dtype), np.dtype(dtype).type(0))


def test_bytes_of_the_specification() -> None:
    spec = spec_of((3, 2, 1))
    assert bytes(pipeline("raw", spec).encode(ONE_TO_SIX, spec)) == bytes.fromhex(HEADER + PRINTED)
    varlength = "0001" + HEADER[4:] + "00000006"  # with the right count, it is an ordinary block
    for header in (HEADER, varlength):
        chunk = pipeline("raw", spec).decode(bytes.fromhex(header + PRINTED), spec)
        np.testing.assert_array_equal(chunk, ONE_TO_SIX, strict=True)


@cases("compressor", ["raw", "gzip", "lz4"])
def test_block_at_the_end_of_an_axis(compressor: str) -> None:
    """Truncated when written, and put into a whole chunk of zeros when read."""
    spec, end = spec_of((4, 5), "i4"), spec_of((2, 5), "i4")
    chunk = np.arange(10, dtype="i4").reshape(2, 5) + 1
    codecs = pipeline(compressor, spec)
    data = bytes(codecs.encode(chunk, end))
    assert data[:12].hex() == "000000020000000500000002"  # 5 x 2, fastest first
    decoded = codecs.decode(data, spec)
    np.testing.assert_array_equal(decoded[:2], chunk)
    assert not decoded[2:].any()


def test_whole_block_is_not_copied() -> None:
    spec = spec_of((2, 3), "u1")
    codecs = pipeline("raw", spec)
    data = np.frombuffer(bytes(codecs.encode(np.arange(6, dtype="u1").reshape(2, 3), spec)), np.uint8)
    assert np.shares_memory(codecs.decode(data, spec), data)


@cases("rank", [0, 1, 2, 5])
def test_encoded_size(rank: int) -> None:
    spec = spec_of((3,) * rank)
    codecs = pipeline("raw", spec)
    assert codecs.encoded_size(spec) == len(bytes(codecs.encode(np.zeros(spec.shape, "u2"), spec)))
    assert pipeline("gzip", spec).encoded_size(spec) is None


LIES = {  # others are golden; header and raw payload of a 2 x 3 block of u2 (N5 order), to be read as a chunk of shape (3, 2)
    "header_cut": ("00000002 00000002 0000", "too few"), "rank_0": ("00000000" + "0000", "0 dimensions"),
    "turned_round": ("00000002 00000003 00000002" + "0000" * 6, "does not fit"),
    "no_elements": ("00000002 00000000 00000003", "does not fit"),
    "count_5": ("00010002 00000002 00000003 00000005" + "0000" * 6, "varlength block of 5"),
    "count_absent": ("00010002 00000002 00000003", "too few"),
}  # fmt: skip


@cases(("data", "reason"), LIES.values())
def test_headers_that_lie(data: str, reason: str) -> None:
    spec = spec_of((3, 2))
    with pytest.raises(CodecError, match=reason):
        pipeline("raw", spec).decode(bytes.fromhex(data), spec)


def test_chunks_longer_than_a_header_can_state() -> None:
    spec = spec_of((1 << 32, 0), "u1")
    with pytest.raises(CodecError, match=r"block of shape \(1, 1\) does not fit the block size \(4294967296, 0\)"):
        pipeline("raw", spec).decode(write_header((1, 1)) + b"a", spec)


@cases(
    ("configuration", "reason"),
    [
        ({}, "expected a list"), ({"codecs": "bytes"}, "are 'bytes', expected a list"), ({"codecs": [1]}, "got 1"),
        ({"codecs": [{}]}, "got {}"), ({"codecs": []}, "exactly one"),
    ],
)  # fmt: skip
def test_bad_configuration(configuration: dict, reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        build_pipeline([NamedConfig("n5_block", configuration)], spec_of((3, 2)))


SPEC = ChunkSpec((4,), np.dtype("u1"), np.uint8(0))


def frame(token: int, packed: bytes, n_raw: int, checksum: int) -> bytes:
    return b"LZ4Block" + struct.pack("<BiiI", token, len(packed), n_raw, checksum) + packed


def raw_frame(raw: bytes) -> bytes:
    return frame(0x16, raw, len(raw), xxh32_intdigest(raw, 0x9747B28C) & 0x0FFFFFFF)


END = frame(0x16, b"", 0, 0)


@cases(
    ("block_size", "level"),
    [(64, 0), (1024, 0), (1025, 1), (2048, 1), (65536, 6), (1 << 25, 15)],  # max(0, ceil(log2) - 10)
)
def test_token_states_the_block_size(block_size: int, level: int) -> None:
    assert N5Lz4(block_size).encode(b"x" * 100)[8] == 0x20 | level


def test_bytes_by_hand() -> None:
    """One stored block: magic, token 0x16, sizes, xxhash32 of b"abc" with lz4-java's seed and mask, data, end."""
    # 0x4d4cb222 is XXH32("abc", seed 0x9747b28c), the highest nibble of which Java drops
    assert xxh32_intdigest(b"abc", 0x9747B28C) == 0x4D4CB222
    expected = b"LZ4Block\x16\x03\0\0\0\x03\0\0\0\x22\xb2\x4c\x0dabc" + b"LZ4Block\x16\0\0\0\0\0\0\0\0\0\0\0\0"
    assert N5Lz4().encode(b"abc") == expected
    assert bytes(N5Lz4().decode(expected, 3)) == b"abc"


def test_z5_block_that_begins_like_a_size() -> None:
    """A bare block whose first four bytes happen to be the expected size is still read as one."""
    # token 0x3f: three literals (zeros), then a match at distance 1 of 15 + 29 + 4; token 0xc0: twelve literals.
    # Read as a number, the first four bytes are 63, which is the size.
    bare = b"\x3f\0\0\0" + b"\x01\0" + b"\x1d" + b"\xc0twelve bytes"
    assert bytes(N5Lz4().decode(bare, 63)) == b"\0" * 51 + b"twelve bytes"


def test_stream_without_its_end_is_read() -> None:
    assert bytes(N5Lz4().decode(raw_frame(b"abc") + raw_frame(b"de"), 5)) == b"abcde"


CHECK = xxh32_intdigest(b"abc", 0x9747B28C) & 0x0FFFFFFF
LZ4_LIES = {  # others are golden
    "cut_header": (raw_frame(b"abc")[:20], "header is truncated"),
    "method": (frame(0x36, b"abc", 3, CHECK), "unknown method"),
    "negative": (b"LZ4Block" + struct.pack("<BiiI", 0x16, -1, 3, 0), "beyond"),
    "beyond_its_block_size": (b"LZ4Block" + struct.pack("<BiiI", 0x20, 3, 1025, 0) + b"abc", "beyond"),
    "large": (b"LZ4Block" + struct.pack("<BiiI", 0x2F, 3, 1 << 25, 0) + b"abc", "more than the 3 bytes"),
    "raw_of_other_size": (b"LZ4Block" + struct.pack("<BiiI", 0x16, 3, 2, 0) + b"abc", "contradict"),
    "data_for_nothing": (b"LZ4Block" + struct.pack("<BiiI", 0x26, 3, 0, 0) + b"abc", "contradict"),
    "trailing": (raw_frame(b"abc") + END + b"\0", "1 bytes after"),
    "not_lz4": (frame(0x26, b"\xff\xff", 3, CHECK) + END, "no LZ4 block"), "nothing": (b"", "no LZ4 block"),
}  # fmt: skip


@cases(("data", "reason"), LZ4_LIES.values())
def test_lies(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        N5Lz4().decode(data, 3)


def test_config_is_what_it_was_built_from() -> None:
    assert N5Lz4.from_config({"blockSize": 1024}, SPEC).config().configuration == {"blockSize": 1024}
    assert N5Lz4.from_config({}, SPEC) == N5Lz4(65536)
