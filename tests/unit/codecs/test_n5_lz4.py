"""Three framings of LZ4 that N5 stores call ``lz4``."""

import random
import struct

import numcodecs.lz4
import numpy as np
import pytest
from xxhash import xxh32_intdigest

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.n5_lz4 import N5Lz4

SPEC = ChunkSpec((4,), np.dtype("u1"), np.uint8(0))


def frame(token: int, packed: bytes, n_raw: int, checksum: int) -> bytes:
    return b"LZ4Block" + struct.pack("<BiiI", token, len(packed), n_raw, checksum) + packed


def raw_frame(raw: bytes) -> bytes:
    return frame(0x16, raw, len(raw), xxh32_intdigest(raw, 0x9747B28C) & 0x0FFFFFFF)


END = frame(0x16, b"", 0, 0)


@pytest.mark.parametrize("block_size", [64, 1024, 1025, 65536, 1 << 25])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 5000, 200_000])
def test_round_trip(block_size: int, size: int) -> None:
    data = (np.arange(size) // 7 % 251).astype("u1").tobytes()
    codec = N5Lz4(block_size)
    assert bytes(codec.decode(codec.encode(data), size)) == data


def test_incompressible_blocks_are_stored() -> None:
    data = random.Random(1).randbytes(3000)
    encoded = N5Lz4(1024).encode(data)
    assert encoded[8] == 0x10
    assert len(encoded) == 3000 + 4 * 21  # three frames and the end
    assert bytes(N5Lz4().decode(encoded, 3000)) == data


@pytest.mark.parametrize(
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


def test_reads_zarr_python_2() -> None:
    data = bytes(range(200)) * 5
    assert bytes(N5Lz4().decode(numcodecs.lz4.compress(data), len(data))) == data


def test_reads_z5() -> None:
    data = bytes(range(200)) * 5
    assert bytes(N5Lz4().decode(numcodecs.lz4.compress(data)[4:], len(data))) == data


def test_z5_block_that_begins_like_a_size() -> None:
    """A bare block whose first four bytes happen to be the expected size is still read as one."""
    # token 0x3f: three literals (zeros), then a match at distance 1 of 15 + 29 + 4; token 0xc0: twelve literals.
    # Read as a number, the first four bytes are 63, which is the size.
    bare = b"\x3f\0\0\0" + b"\x01\0" + b"\x1d" + b"\xc0twelve bytes"
    assert bytes(N5Lz4().decode(bare, 63)) == b"\0" * 51 + b"twelve bytes"


def test_stream_without_its_end_is_read() -> None:
    assert bytes(N5Lz4().decode(raw_frame(b"abc") + raw_frame(b"de"), 5)) == b"abcde"


CHECK = xxh32_intdigest(b"abc", 0x9747B28C) & 0x0FFFFFFF
LIES = {
    "too_much": (raw_frame(b"abcde") + END, "more than the 3 bytes"),
    "too_much_in_two": (raw_frame(b"ab") + raw_frame(b"cd") + END, "more than the 3 bytes"),
    "checksum": (frame(0x16, b"abc", 3, CHECK ^ 1) + END, "checksum"),
    "checksum_not_masked": (frame(0x16, b"abc", 3, CHECK | 0x40000000) + END, "checksum"),
    "cut_header": (raw_frame(b"abc")[:20], "header is truncated"),
    "cut_data": (raw_frame(b"abc")[:-1], "truncated"),
    "second_magic": (raw_frame(b"abc") + b"lz4Block" + END[8:], "no LZ4Block at byte 24"),
    "method": (frame(0x36, b"abc", 3, CHECK), "unknown method"),
    "negative": (b"LZ4Block" + struct.pack("<BiiI", 0x16, -1, 3, 0), "beyond"),
    "negative_raw": (b"LZ4Block" + struct.pack("<BiiI", 0x26, 3, -1, 0), "beyond"),
    "beyond_its_block_size": (b"LZ4Block" + struct.pack("<BiiI", 0x20, 3, 1025, 0) + b"abc", "beyond"),
    "huge": (b"LZ4Block" + struct.pack("<BiiI", 0x26, 3, 2**31 - 1, 0) + b"abc", "beyond"),
    "large": (b"LZ4Block" + struct.pack("<BiiI", 0x2F, 3, 1 << 25, 0) + b"abc", "more than the 3 bytes"),
    "raw_of_other_size": (b"LZ4Block" + struct.pack("<BiiI", 0x16, 3, 2, 0) + b"abc", "contradict"),
    "data_for_nothing": (b"LZ4Block" + struct.pack("<BiiI", 0x26, 3, 0, 0) + b"abc", "contradict"),
    "trailing": (raw_frame(b"abc") + END + b"\0", "1 bytes after"),
    "not_lz4": (frame(0x26, b"\xff\xff", 3, CHECK) + END, "no LZ4 block"),
    "garbage": (b"\xff" * 30, "no LZ4 block"),
    "nothing": (b"", "no LZ4 block"),
}


@pytest.mark.parametrize("name", LIES)
def test_lies(name: str) -> None:
    data, reason = LIES[name]
    with pytest.raises(ValueError, match=reason):
        N5Lz4().decode(data, 3)


@pytest.mark.parametrize("block_size", [63, 0, -1, (1 << 25) + 1, "64", 64.0, True, None])
def test_bad_block_size(block_size: object) -> None:
    with pytest.raises(ValueError, match="blockSize"):
        N5Lz4.from_config({"blockSize": block_size}, SPEC)


def test_config_is_what_it_was_built_from() -> None:
    assert N5Lz4.from_config({"blockSize": 1024}, SPEC).config().configuration == {"blockSize": 1024}
    assert N5Lz4.from_config({}, SPEC) == N5Lz4(65536)


def test_mutated_streams() -> None:
    rng = random.Random(7)
    data = bytes(range(256)) * 8
    for good in (N5Lz4(1024).encode(data), numcodecs.lz4.compress(data), numcodecs.lz4.compress(data)[4:]):
        for _ in range(300):
            bad = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                bad[rng.randrange(len(bad))] = rng.randrange(256)
            try:
                decoded = N5Lz4().decode(bytes(bad[: rng.randint(0, len(bad))]), len(data))
            except ValueError:
                continue
            assert len(bytes(decoded)) <= len(data)
