# ruff: noqa: RUF012 - the class attributes are tables of cases
import math

import numpy as np
import pytest
from contracts.codec_contract import CodecContract, pipeline_of, spec_of
from hypothesis import given
from hypothesis import strategies as st

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.scale_offset import ScaleOffset
from chunkmill.errors import CodecError, MetadataError

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


def scale_offset(**configuration):
    return {"name": "scale_offset", "configuration": configuration}


class TestIntegers(CodecContract):
    chain = [scale_offset(offset=5, scale=2), LITTLE]
    fixed_size = True
    detects = False  # any multiple of the scale is a number
    arrays = [
        np.arange(5, 60, dtype="u1").reshape(5, 11),
        np.array([-(2**60), 2**60]),
        np.array(2**62, "u8"),
        np.zeros((0, 2), "i4"),
    ]
    frozen = [(np.array([5, 6, 4], "i2"), "0000 0200 feff")]

    def test_truncated_data_raise(self):
        for array, spec, pipeline in self.cases():
            if array.size:
                with pytest.raises(CodecError):
                    pipeline.decode(bytes(pipeline.encode(array, spec))[:-1], spec)


class TestFloats(CodecContract):
    chain = [scale_offset(offset=1.5, scale=2), LITTLE]
    fixed_size = True
    arrays = [np.arange(12, dtype="f4").reshape(3, 4), np.array([np.inf, -np.inf, 0.25]), np.array(1, "f2")]
    frozen = [(np.array([1.5, 2], "f4"), "00000000 0000803f")]


class TestNothing(CodecContract):
    chain = ["scale_offset", LITTLE]
    fixed_size = True
    arrays = [np.arange(5), np.array([np.inf, 3.0])]


def test_the_fill_value_is_scaled():
    codec = ScaleOffset(offset=10, scale=0.5)
    after = codec.spec_after(ChunkSpec((2,), np.dtype("f4"), np.float32(14)))
    assert (after.fill_value, after.dtype) == (2, np.dtype("f4"))
    assert math.isnan(codec.spec_after(ChunkSpec((2,), np.dtype("f4"), np.float32("nan"))).fill_value)


@given(st.sampled_from(["i1", "u1", "i4", "u8", "i8"]), st.data())
def test_integers_are_exact_or_refused(dtype, data):
    info = np.iinfo(dtype)
    numbers = st.integers(int(info.min), int(info.max))
    offset, scale, value = data.draw(numbers), data.draw(numbers.filter(bool)), data.draw(numbers)
    spec = ChunkSpec((1,), np.dtype(dtype), None)
    pipeline = pipeline_of([scale_offset(offset=offset, scale=scale), LITTLE], spec)
    moved = value - offset
    held = all(info.min <= n <= info.max for n in (moved, moved * scale))
    if not held:
        with pytest.raises(CodecError, match="do not fit"):
            pipeline.encode(np.array([value], dtype), spec)
        return
    encoded = bytes(pipeline.encode(np.array([value], dtype), spec))
    assert int(np.frombuffer(encoded, np.dtype(dtype).newbyteorder("<"))[0]) == moved * scale
    assert int(pipeline.decode(encoded, spec)[0]) == value


def test_what_is_no_multiple_is_refused():
    spec = ChunkSpec((2,), np.dtype("u1"), None)
    with pytest.raises(CodecError, match="3 is not a multiple of the scale 2"):
        pipeline_of([scale_offset(scale=2), "bytes"], spec).decode(b"\2\3", spec)


def test_floats_that_overflow_are_refused():
    values = np.array([1, 1e38], "f4")
    with pytest.raises(CodecError, match="not a finite float32"):
        pipeline_of([scale_offset(scale=1000), LITTLE], spec_of(values)).encode(values, spec_of(values))


@pytest.mark.parametrize(
    ("configuration", "dtype"),
    [
        ({"scale": 0}, "i4"), ({"scale": 0.0}, "f4"), ({"scale": 0.5}, "i4"), ({"offset": "x"}, "f4"), ({"offset": 300}, "u1"), ({"offset": None}, "f4"), ({"factor": 1}, "f4"),
        ({"scale": 2}, "?"), ({"scale": 2}, "c8"), ({"scale": 2}, "M8[s]"), ({"scale": 2}, "S2"), ({"scale": [1]}, "f4"),
    ],
)  # fmt: skip
def test_bad_configurations(configuration, dtype):
    with pytest.raises(MetadataError):
        pipeline_of([scale_offset(**configuration), LITTLE], ChunkSpec((1,), np.dtype(dtype), None))


def test_a_fill_value_that_does_not_fit_is_refused():
    with pytest.raises(MetadataError, match="do not fit"):
        pipeline_of([scale_offset(offset=10), LITTLE], ChunkSpec((1,), np.dtype("u1"), np.uint8(3)))
