import bz2
import gzip
import lzma
import math
import re
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numcodecs
import numpy as np
import pytest
import zstandard
from contracts.codec_contract import LITTLE, NUMBERS, codec, contract, pipeline_of, spec_of
from support.cases import cases
from support.codecs import chunks_of, not_built, not_encoded
from support.memory import peak_below

from chunkmill.codecs import compressors
from chunkmill.errors import CodecError, MetadataError

SMOOTH = (1000 * np.sin(np.arange(5000) / 100)).astype("i2").reshape(50, 100)
ARRAYS = [*NUMBERS, SMOOTH]
ABC = np.frombuffer(b"abc", "u1")


def after_bytes(name, **configuration):
    return [LITTLE, codec(name, **configuration)]


# RFC 1952: header, a stored block (RFC 1951, 3.2.4), crc32 and size; then the same as two members
TestGzip = contract(
    after_bytes("gzip", level=5), ARRAYS,
    frozen=[
        (ABC, "1f8b0800000000000003 01 0300 fcff 616263 c2412435 03000000"),
        (ABC, "1f8b0800000000000003 01 0100 feff 61 43beb7e8 01000000 1f8b0800000000000003 01 0200 fdff 6263 382ba9c2 02000000"),
        (ABC, "1f8b0808000000000003 6e616d6500 01 0300 fcff 616263 c2412435 03000000 0000"),  # a name; padding
    ],
    reproduces=False,
)  # fmt: skip
TestZlib = contract(
    after_bytes("numcodecs.zlib", level=1), ARRAYS, [(ABC, "7801 01 0300 fcff 616263 024d0127")], reproduces=False
)
TestZstd = contract(
    after_bytes("zstd", level=3, checksum=True),
    ARRAYS,
    frozen=[
        # RFC 8878: magic, single segment and its size, a raw block that is the last one
        (ABC, "28b52ffd 20 03 190000 616263"),
        (ABC, "28b52ffd 00 50 190000 616263"),  # a window in place of the size
        (ABC, "28b52ffd 00 50 080000 61 110000 6263"),  # two blocks
        (ABC, "28b52ffd 20 01 090000 61 28b52ffd 00 50 110000 6263"),  # two frames
        *((ABC, f"5{i}2a4d18 02000000 ffff 28b52ffd 20 03 190000 616263") for i in "0f"),  # a skippable frame
        (np.full(1000, 97, "u1"), "28b52ffd 60 e802 431f00 61"),  # one byte a thousand times
    ],
    reproduces=False,
)
# version 2, lz4's format 1, flags 2: stored as it is; typesize 1, sizes 3, 3 and 19
TestBlosc = contract(
    after_bytes("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=2, blocksize=0),
    [a for a in ARRAYS if a.size],
    [(ABC, "02010201 03000000 03000000 13000000 616263")],
    reproduces=False,
)
TestLz4 = contract(after_bytes("numcodecs.lz4", acceleration=1), ARRAYS, [(ABC, "03000000 30 616263")])
TWO_STREAMS = bz2.compress(b"a") + bz2.compress(b"bc")
TestBzip2 = contract(after_bytes("numcodecs.bz2", level=1), ARRAYS, [(ABC, TWO_STREAMS.hex())], reproduces=False)
XZ = after_bytes("numcodecs.lzma", format=1, check=-1, preset=None, filters=None)
TWO_STREAMS = lzma.compress(b"ab") + lzma.compress(b"c") + bytes(4)
TestXz = contract(XZ, ARRAYS, [(ABC, TWO_STREAMS.hex())], reproduces=False)


def streamed_zstd(data, pieces):
    """Frame without content size, of raw blocks: what a streaming writer leaves."""
    blocks = [data[i : i + pieces] for i in range(0, len(data), pieces)]
    out = b"\x28\xb5\x2f\xfd\x00\x70"
    for i, block in enumerate(blocks):
        out += (len(block) << 3 | (i == len(blocks) - 1)).to_bytes(3, "little") + block
    return out


def test_small_zstd_frames_share_a_context(monkeypatch):
    """Making one took half the time of encoding 64 KiB."""
    made = []
    make = zstandard.ZstdCompressor
    monkeypatch.setattr(zstandard, "ZstdCompressor", lambda level, **rest: made.append(level) or make(level, **rest))
    spec = spec_of(SMOOTH)
    chains = [pipeline_of(after_bytes("zstd", level=level), spec) for level in (2, 4, 5)]

    def encode(_):
        return [bytes(chain.encode(SMOOTH, spec)) for chain in chains for _ in range(3)]

    with ThreadPoolExecutor(3) as pool:
        frames = [frame for found in pool.map(encode, range(9)) for frame in found]
    assert all(numcodecs.Zstd().decode(frame) == SMOOTH.tobytes() for frame in frames)
    assert set(made) == {2, 4}
    assert len(made) <= 2 * 9 < len(frames)


@cases("pieces", [10, 1000, 100_000])
@cases("after", [[], ["crc32c"]])
def test_zstd_without_content_size(pieces, after):
    spec = spec_of(SMOOTH)
    pipeline = pipeline_of([LITTLE, "zstd"], spec)
    assert pipeline.decode(streamed_zstd(SMOOTH.tobytes(), pieces), spec).tobytes() == SMOOTH.tobytes()
    twice = pipeline_of([LITTLE, "zstd", *after, {"name": "zstd"}], spec)  # the outer size is not known in advance
    inner = pipeline_of([LITTLE, "zstd", *after], spec).encode(SMOOTH, spec)
    assert twice.decode(streamed_zstd(bytes(inner), pieces), spec).tobytes() == SMOOTH.tobytes()


GIB = (1 << 30).to_bytes(4, "little")
ZEROS = bytes(64 << 20)
HOSTILE = {
    "gzip bomb": ("gzip", gzip.compress(ZEROS, 1)),
    "gzip bomb of members": ("gzip", gzip.compress(bytes(1 << 16), 1) * 1000),
    "zstd of none": ("zstd", b"nonsense"), "blosc cut": ("blosc", bytes(15)), "lz4 cut": ("numcodecs.lz4", bytes(4)),
    "zlib bomb": ("numcodecs.zlib", zlib.compress(ZEROS, 1)), "bz2 bomb": ("numcodecs.bz2", bz2.compress(ZEROS, 1)),
    "xz bomb": ("numcodecs.lzma", lzma.compress(ZEROS, preset=0)),
    "zstd bomb": ("zstd", numcodecs.Zstd(1).encode(ZEROS)),
    "zstd bomb without size": ("zstd", b"\x28\xb5\x2f\xfd\x00\x70" + (b"\x02\x00\x10\x00" * 400) + b"\x03\x00\x10\x00"),
    "zstd that claims 1 GiB": ("zstd", b"\x28\xb5\x2f\xfd\xa0" + GIB + b"\x01\x00\x00"),
    "zstd that claims 2^63": ("zstd", b"\x28\xb5\x2f\xfd\xe0" + (1 << 63).to_bytes(8, "little") + b"\x01\x00\x00"),
    "blosc that claims 1 GiB": ("blosc", b"\x02\x01\x21\x01" + GIB + GIB + struct.pack("<I", 20) + bytes(4)),
    "blosc of another size": ("blosc", b"\x02\x01\x02\x01" + struct.pack("<III", 8, 8, 1 << 20) + bytes(8)),
    "blosc without blocks": ("blosc", b"\x02\x01\x21\x01" + struct.pack("<III", 8, 0, 24) + bytes(8)),
    "lz4 that claims 1 GiB": ("numcodecs.lz4", GIB + bytes(20)),
    "lz4 that claims -1": ("numcodecs.lz4", b"\xff\xff\xff\xff" + bytes(20)),
    "lz4 that claims 0": ("numcodecs.lz4", bytes(24)),
}  # fmt: skip


@cases(("name", "data"), HOSTILE.values())
@cases("dtype", ["u1", np.dtypes.StringDType()])
def test_hostile_frames(name, data, dtype):
    """Claims are refused before they are allocated, bombs before they have gone off."""
    spec = chunks_of(dtype, 100)
    bounded = spec.dtype.kind != "T" or "claims" in name
    pipeline = pipeline_of(["bytes" if spec.dtype.kind == "u" else "vlen-utf8", name], spec)
    reason = (
        "expected (at most )?100|did not decompress|no zstd frame|blosc (decomp|header)|LZ4 decomp|cannot hold an lz4 header of 4"
        if spec.dtype.kind == "u"
        else None
    )
    with peak_below(1 << 20 if bounded else math.inf), pytest.raises(CodecError, match=reason):
        pipeline.decode(data, spec)


def test_thousands_of_gzip_members_are_joined():
    array = np.arange(5000, dtype="u1")
    members = b"".join(gzip.compress(bytes([b]), 1, mtime=0) for b in array)
    spec = spec_of(array)
    assert pipeline_of(["bytes", "gzip"], spec).decode(members, spec).tobytes() == array.tobytes()


@cases(
    ("name", "configuration", "reason"),
    [
        ("zstd", {"checksum": 1}, "checksum is 1, expected a boolean"),
        ("blosc", {"shuffle": "best"}, "shuffle is 'best'"),
        ("blosc", {"shuffle": 3}, "shuffle is 3, expected one of noshuffle, shuffle, bitshuffle"),
        ("blosc", {"shuffle": -2}, "shuffle is -2"), ("blosc", {"cname": 1}, "cname is 1"),
        ("blosc", {"shuffle": True}, "shuffle is True"),
        ("numcodecs.lzma", {"format": 3}, "lzma's raw format needs its filters"),
        ("numcodecs.lzma", {"format": 3, "filters": [{"id": 33, "dict_size": (1 << 30) + 1}]}, "an lzma dictionary of 1073741825 bytes exceeds 1073741824"),
    ],
)  # fmt: skip
def test_wrong_configurations(name, configuration, reason):
    not_built(after_bytes(name, **configuration), chunks_of("i4", 2), f"{re.escape(name)}: .*another one: {reason}")


@cases(
    ("name", "member", "low", "high", "default"),
    [
        ("gzip", "level", -1, 9, 1), ("zstd", "level", -131072, 22, 0), ("numcodecs.bz2", "level", 1, 9, 1),
        ("numcodecs.lz4", "acceleration", -(1 << 31), (1 << 31) - 1, 1), ("blosc", "clevel", 0, 9, 5),
        ("blosc", "typesize", 1, 1 << 31, 4), ("blosc", "blocksize", 0, 1 << 31, 0),
        ("numcodecs.lzma", "check", -1, 15, -1), ("numcodecs.lzma", "preset", 0, (1 << 32) - 1, None),
        ("n5_lz4", "blockSize", 64, 1 << 25, 1 << 16), ("numcodecs.lzma", "format", 0, 2, 1),
        ("bitround", "keepbits", 1, 1 << 10, None), ("numcodecs.bitround", "keepbits", 0, 1 << 10, None),
    ],
)  # fmt: skip
def test_numbers_of_a_configuration_have_bounds(name, member, low, high, default):
    def built(**configuration):
        chain = [codec(name, **configuration), LITTLE][:: -1 if "bitround" not in name else 1]
        pipeline = pipeline_of(chain, chunks_of("f4", 2))
        return (*pipeline.filters, *pipeline.compressors)[0].config().configuration[member]

    assert "bitround" in name or built() == default
    assert [built(**{member: value}) for value in (low, high)] == [low, high]
    for value in (low - 1, high + (2 if member == "format" else 1), "5", 5.0, True):  # format 3 is the raw one
        with pytest.raises(MetadataError, match=f"{member} is {value!r}, expected an integer from {low} to"):
            built(**{member: value})


@cases(("name", "limit"), [("blosc", "_BLOSC_MAX"), ("numcodecs.lz4", "_LZ4_MAX")])
def test_more_than_a_library_takes_is_not_given_to_it(name, limit, monkeypatch):
    monkeypatch.setattr(compressors, limit, 2)
    not_encoded(["bytes", name], ABC, "3 bytes are more than")
    assert pipeline_of(["bytes", name], spec_of(ABC)).encode(ABC[:2], spec_of(ABC[:2]))


def test_blosc_of_nothing_and_the_number_of_its_shuffle():
    """A frame of no bytes is decoded; numcodecs' metadata number the shuffles."""
    nothing = np.empty(0, "u1")
    pipeline = pipeline_of(after_bytes("numcodecs.blosc", shuffle=2), spec_of(nothing))
    assert pipeline.decode(pipeline.encode(nothing, spec_of(nothing)), spec_of(nothing)).shape == (0,)
    assert pipeline.compressors[0].config().configuration["shuffle"] == 2


@cases("n", [1, 1000])
def test_what_gzip_yields_is_writable_without_a_copy(n):
    pipeline = pipeline_of(["bytes", "gzip"], spec := chunks_of("u1", n))
    assert pipeline.decode(gzip.compress(bytes(n)), spec).flags.writeable


@pytest.mark.parametrize("name", ["blosc", "zstd"])
def test_a_large_chunk_is_decoded_where_it_is_to_end(name, monkeypatch):
    array = np.arange(100_000, dtype="i4")
    spec = spec_of(array)
    pipeline = pipeline_of([LITTLE, name], spec)
    encoded = pipeline.encode(array, spec)
    block = np.zeros((3, *array.shape), "i4")
    monkeypatch.setattr(np, "empty", None)  # nothing is allocated beside it
    assert np.shares_memory(found := pipeline.decode(encoded, spec, block[1]), block[1])
    assert (found.shape, found.dtype) == (array.shape, array.dtype)
    assert block[1].tolist() == array.tolist()
    assert not block[0].any()
    assert not block[2].any()
