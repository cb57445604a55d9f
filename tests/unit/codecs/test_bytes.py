from dataclasses import replace

import numpy as np
import pytest
from contracts.codec_contract import BIG, LITTLE, NUMBERS, codec, fixed, pipeline_of, same, spec_of
from support.cases import cases
from support.codecs import chunks_of, not_built, not_decoded

from chunkmill.codecs.bytes import BytesCodec, check_claim
from chunkmill.errors import CodecError

NESTED = np.dtype([("a", "i2"), ("b", [("c", "f4"), ("d", "u2", (2,))]), ("s", "S3")])
TestLittle = fixed(
    [LITTLE],
    [
        *NUMBERS, np.array(["ab", "ü"], "U3"), np.array([b"ab", b""], "S3"), np.array([1, 2], "M8[ns]"),
        np.zeros(2, NESTED),
    ],
    [
        (np.array([1, -2], "i2"), "0100 feff"), (np.array([[True], [False]]), "01 00"),
        (np.array([1.5], "f4"), "0000c03f"), (np.array([1 + 2j], "c8"), "0000803f 00000040"),
        (np.array(["a"], "U2"), "61000000 00000000"), (np.array([b"a"], "S2"), "6100"),
        (np.array([(1, (1.5, (2, 3)), b"x")], NESTED), "0100 0000c03f 02000300 780000"),
    ],
)  # fmt: skip
TestBig = fixed(
    [BIG],
    TestLittle.arrays,
    [
        (np.array([1, -2], "i2"), "0001 fffe"), (np.array([True, False]), "01 00"), (np.array([1, -2], "i1"), "01 fe"),
        (np.array([1 + 2j], "c8"), "3f800000 40000000"),
        (np.array(["a"], "U2"), "00000061 00000000"), (np.array([-1, 1], "m8[s]"), "ffffffffffffffff 0000000000000001"),
        (np.array([(1, (1.5, (2, 3)), b"x")], NESTED), "0001 3fc00000 00020003 780000"),
    ],
)  # fmt: skip


def test_native_bytes_are_not_copied():
    array = np.arange(6, dtype="i4").reshape(2, 3)
    spec = spec_of(array)
    pipeline = pipeline_of([LITTLE], spec)
    assert np.shares_memory(pipeline.encode(array, spec), array)
    data = array.tobytes()
    assert np.shares_memory(pipeline.decode(data, spec), np.frombuffer(data, "u1"))


@cases("dtype", ["u2", "i4", "f8", "c16", "M8[s]"])
def test_what_a_compressor_made_is_swapped_in_place_and_nothing_else(dtype):
    values = np.arange(6).reshape(2, 3).astype(dtype)
    stored = values.astype(values.dtype.newbyteorder(">")).tobytes()
    spec, codec = spec_of(values), BytesCodec("big")
    own = np.frombuffer(stored, np.uint8).copy()
    held = own.copy()
    decoded = [codec.decode(data, spec) for data in (own, stored, held[:], bytearray(stored))]
    assert all(same(each, values) for each in decoded)
    assert [np.shares_memory(each, own) for each in decoded] == [True, False, False, False]
    assert held.tobytes() == stored


def test_frames_claim_what_fits_and_what_their_bytes_can_hold():
    check_claim(40, 40, 10, 4)
    with pytest.raises(ValueError, match="the frame states 41 bytes, expected at most 40"):
        check_claim(41, 40, 11, 4)
    with pytest.raises(ValueError, match="the frame states 41 bytes, which 10 compressed bytes cannot"):
        check_claim(41, 41, 10, 4)


def test_bytes_that_are_no_booleans_are_true():
    decoded = pipeline_of(["bytes"], chunks_of("?", 3)).decode(b"\0\2\1", chunks_of("?", 3))
    assert decoded.view("u1").tolist() == [0, 1, 1]


@cases("dtype", ["U2", [("a", "u1"), ("b", [("c", "U2")])]])
def test_characters_beyond_unicode_are_refused(dtype):
    """Numpy fails on them later, with a `SystemError`."""
    spec = chunks_of(dtype, 1)
    stored = [bytes(spec.dtype.itemsize - 8) + b"a\0\0\0" + last.to_bytes(4, "little") for last in (0x10FFFF, 0x110000)]
    pipeline = pipeline_of([LITTLE], spec)
    for out in (None, np.empty(1, spec.dtype)):
        assert pipeline.decode(stored[0], spec, out).tobytes() == stored[0]
        with pytest.raises(CodecError, match="character 0x110000 is not a character of Unicode"):
            pipeline.decode(stored[1], spec, out)


ORDERS = [("big", "u1", None), ("big", "?", None), (None, "S2", None), (None, "V3", None), ("big", "S2", "big")]
ORDERS += [(None, [("a", "i2")], "little"), ("big", [("a", "i2")], "big")]


@cases(("endian", "dtype", "expected"), ORDERS)
def test_the_order_of_bytes_is_that_of_elements_of_several(endian, dtype, expected):
    found = BytesCodec.from_config({} if endian is None else {"endian": endian}, chunks_of(dtype, 2))
    assert found == BytesCodec(expected)


@cases(
    ("configuration", "dtype", "reason"),
    [
        ({}, "i4", "endian is required for int32"), ({}, "U2", "endian is required"),
        ({"endian": "middle"}, "i4", "endian is 'middle', expected 'little' or 'big'"),
        ({"endian": "little", "extra": 1}, "i4", "unknown members .'extra'."),
        ({"endian": "little"}, "O", "object has no fixed size"),
        ({"endian": "little"}, "S0", "elements of .S0 have no bytes"),
        ({"endian": "little"}, np.dtypes.StringDType(), ".* has no fixed size"),
        ({"endian": "little"}, "V0", ".* have no bytes"), ({"endian": "little"}, [("a", "O")], ".* has no fixed size"),
        ({"endian": "little", "dtype": "nope"}, "i4", "data type 'nope' not understood"),
    ],
)  # fmt: skip
def test_wrong_configurations(configuration, dtype, reason):
    not_built([codec("bytes", **configuration)], chunks_of(dtype, 2), f"another one: {reason}")


def test_a_chunk_that_does_not_fit_its_spec_is_not_encoded():
    spec = chunks_of("i4", 2)
    pipeline = pipeline_of([LITTLE], spec)
    for chunk in (np.zeros(3, "i4"), np.zeros(2, "i8"), np.zeros((2, 1), "i4")):
        with pytest.raises(CodecError, match=r"a chunk of \(.*expected \(2,\) int32"):
            pipeline.encode(chunk, spec)
    with pytest.raises(ValueError, match=r"a chunk of shape \(3,\), expected \(2,\)"):
        BytesCodec("little").encode(np.zeros(3, "i4"), spec)


class Cut:
    """A filter that loses an element."""

    name = "cut"
    spec_after = staticmethod(lambda spec: spec)
    encode = decode = staticmethod(lambda chunk, _: chunk[1:])


def test_a_filter_that_loses_an_element_is_an_error():
    pipeline = replace(pipeline_of([LITTLE], spec := chunks_of("i4", 3)), filters=(Cut(),))
    for each in (pipeline, replace(pipeline, filters=(), serializer=pipeline)):
        with pytest.raises(CodecError, match=r"^codec .bytes. cannot encode: a chunk of shape \(2,\), expected \(3,\)"):
            each.encode(np.zeros(3, "i4"), spec)
    with pytest.raises(CodecError, match=r"decoded to \(2,\) int32, expected \(3,\) int32"):
        pipeline.decode(bytes(12), spec)


def test_a_huge_chunk_is_refused_before_it_is_allocated():
    not_decoded(["bytes"], b"", chunks_of("u1", 1 << 40), "exceeds the limit")
