import re
from math import prod

import numpy as np
from contracts.codec_contract import BIG, LITTLE, codec, contract, fixed, pipeline_of
from support.arrays import filled
from support.cases import cases
from support.codecs import chunks_of, not_built, not_decoded

import chunkmill as cm
from chunkmill.codecs.n5_block import write_header


def turn(ndim):
    return codec("transpose", order=list(range(ndim))[::-1])


def n5_default(ndim, *compressors):
    return codec("n5_default", codecs=[turn(ndim), BIG, *compressors])


# mode 0, two axes of 2 and 3, the first of them fastest
TestRaw = fixed(
    [n5_default(2)],
    [np.arange(6, dtype="i4").reshape(2, 3), np.array([[1.5, -2.5]])],
    [(np.arange(6, dtype="u2").reshape(2, 3), "0000 0002 00000002 00000003 0000 0003 0001 0004 0002 0005")],
)
GZIP = n5_default(1, codec("gzip", level=1))
TestCompressed = contract([GZIP], [np.arange(6, dtype="i4"), np.array([1, 2], "u1")], detects=False)


def test_blocks_of_other_shapes_are_cropped_and_filled():
    spec = chunks_of("u1", 2, 3, fill_value=np.uint8(9))
    pipeline = pipeline_of([n5_default(2)], spec)
    short = write_header((2, 1)) + b"\1\2"  # 1 along the first axis, 2 along the second
    assert pipeline.decode(short, spec).tolist() == [[1, 2, 9], [9, 9, 9]]
    long = write_header((3, 4)) + bytes(range(12))
    assert pipeline.decode(long, spec).tolist() == [[0, 4, 8], [1, 5, 9]]


def test_blocks_are_no_longer_than_those_that_writers_pad(monkeypatch):
    """At an end, or in a chunk that is large itself: 12 bytes."""
    monkeypatch.setattr("chunkmill.codecs.n5_block._MAX_LONGER_BYTES", 4)
    spec, small = chunks_of("u2", 2, 3), chunks_of("u2", 1, 1)
    for of, held, refused in ((spec, [(3, 2), (1, 4)], (2, 4)), (small, [(2, 1)], (3, 1))):
        decode = pipeline_of([n5_default(2)], of).decode
        assert all(decode(write_header(shape[::-1]) + bytes(2 * prod(shape)), of).shape == of.shape for shape in held)
        reason = re.escape(f"a block of shape {refused} for a chunk of {of.shape}")
        not_decoded([n5_default(2)], write_header(refused[::-1]) + bytes(2 * prod(refused)), of, reason)


@cases(
    ("data", "reason"),
    [
        (b"", "0 bytes are too few"), (b"\0", "1 bytes are too few"),
        (b"\0\1" + write_header((2, 3))[2:] + bytes(6), "block mode 1, expected 0"), (b"\0\2", "block mode 2,"),
        (write_header((2,)) + bytes(2), "1 dimensions, the dataset 2"),
        (write_header((3, 2)) + bytes(5), "5 bytes, expected 6"), (write_header((0, 2)), "does not fit"),
        (write_header((1 << 31, 1 << 31)) + bytes(6), "does not fit"),
        (write_header((1 << 20, 1 << 20)) + bytes(6), "for a chunk of"),
    ],
)  # fmt: skip
def test_wrong_blocks(data, reason):
    not_decoded([n5_default(2)], data, chunks_of("u1", 2, 3), reason)


FIRST, MANY = "must be a transpose of order .1, 0.", "expected 'codecs': a transpose, bytes and at most one compressor"


@cases(
    ("codecs", "reason"),
    [
        (None, MANY), ([], "exactly one"), ([BIG], FIRST), ([turn(2)], "exactly one"),
        ([turn(2), LITTLE], "must be bytes, big endian"), ([turn(2), BIG, "gzip", "crc32c"], MANY),
        ([turn(2), 3], "got 3"),
        ([codec("transpose", order=[0, 1]), BIG], FIRST), ([BIG, "gzip"], FIRST), ([turn(2), turn(2), BIG], FIRST),
        ([turn(2), "vlen-utf8"], "needs variable"), ([turn(2), "packbits"], "must be bytes"),
    ],
)  # fmt: skip
def test_other_chains(codecs, reason):
    not_built([codec("n5_default", codecs=codecs)], chunks_of("i4", 2, 3), reason)
    not_built([codec("n5_default", codecs=[turn(2), BIG], extra=codecs)], chunks_of("i4", 2, 3), MANY)


@cases(("dtype", "ndim"), [("?", 1), ("f2", 1), ("c8", 1), ("M8[s]", 1), ("S2", 1), ("f4", 0)])
def test_types_that_n5_has_not(dtype, ndim):
    not_built([n5_default(ndim)], chunks_of(dtype, *(3,) * ndim), f"N5 has no arrays of {ndim} axes of")


@cases("target", ["n5", "zarr2", "zarr3"])
def test_conversion(tmp_path, target):
    values = np.arange(35, dtype="i2").reshape(5, 7)
    source = filled(values, chunks=(2, 3), codecs=[n5_default(2, codec("gzip", level=6))])
    cm.convert(source, tmp_path / "copy", format=target)
    copy = cm.open_array(tmp_path / "copy", format=target)
    assert copy[...].tolist() == values.tolist()
    assert (copy.metadata.codecs[0].name == "n5_default") == (target == "zarr3")
