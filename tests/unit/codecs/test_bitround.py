# ruff: noqa: RUF012 - the class attributes are tables of cases
import numpy as np
import pytest
from contracts.codec_contract import CodecContract, pipeline_of, spec_of
from hypothesis import given
from hypothesis import strategies as st

from chunkmill.codecs.base import ChunkSpec
from chunkmill.errors import MetadataError

LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
FLOATS = np.array([0, 0.1, 1.2, 12.3, 123.4, 1234.5, np.nan, np.inf, -np.inf], "f4")
INTEGERS = np.array([0, 1, 10, 11, 100, 123, 200, 208, 209, 255], "u1")


def bitround(keepbits, name="bitround"):
    return {"name": name, "configuration": {"keepbits": keepbits}}


def rounded(values, keepbits, name="bitround"):
    pipeline = pipeline_of([bitround(keepbits, name), LITTLE], spec_of(values))
    return pipeline.decode(bytes(pipeline.encode(values, spec_of(values))), spec_of(values))


class TestContract(CodecContract):
    chain = [bitround(3), LITTLE]
    arrays = [FLOATS, INTEGERS, np.arange(-12, 12, dtype="i8").reshape(2, 3, 4), np.array(7.3), np.zeros((0, 2), "f2")]
    fixed_size = True
    exact = False
    # the tables of the specification's sample data
    frozen = [
        (np.array([0, 0.1015625, 1.25, 12, 120, 1280, np.nan, np.inf, -np.inf], "f4"),
         "00000000 0000d03d 0000a03f 00004041 0000f042 0000a044 0000c07f 0000807f 000080ff"),
        (np.array([0, 1, 10, 12, 96, 128, 192, 192, 224, 224], "u1"), "00 01 0a 0c 60 80 c0 c0 e0 e0"),
    ]  # fmt: skip

    def test_the_specification_s_sample_data(self):
        assert np.array_equal(rounded(FLOATS, 3), self.frozen[0][0], equal_nan=True)
        assert rounded(INTEGERS, 3).tolist() == self.frozen[1][0].tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_floats_are_rounded_as_by_numcodecs(dtype):
    from numcodecs import BitRound

    values = np.random.default_rng(3).normal(size=500).astype(dtype)
    assert rounded(values, 4).tobytes() == BitRound(4).decode(BitRound(4).encode(values)).tobytes()


def test_complex_numbers_are_rounded_by_part():
    values = np.array([0.1 + 12.3j, np.nan + 1j], "c8")
    assert rounded(values, 3).view("f4").tolist()[:2] == [0.1015625, 12]


@pytest.mark.parametrize("bits", [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001])
def test_every_nan_stays_one(bits):
    assert np.isnan(rounded(np.array([bits], "u4").view("f4"), 1)).all()


@given(st.sampled_from(["i1", "u1", "i2", "u4", "i8", "u8"]), st.integers(1, 70), st.data())
def test_integers_keep_bits_from_the_first_one_set(dtype, keepbits, data):
    info = np.iinfo(dtype)
    value = data.draw(st.integers(0, int(info.max)))
    found = int(rounded(np.array([value], dtype), keepbits)[0])
    step = 1 << max(value.bit_length() - keepbits, 0)
    down = value // step * step
    up = down + step if down + step <= info.max else down  # what would wrap around is cut
    nearest = min((down, up), key=lambda n: (abs(n - value), n // step % 2))
    assert found == nearest if up != down else found == down


def test_times_are_integers():
    values = np.array([1000, -5], "M8[s]")
    assert rounded(values, 2).astype("i8")[0] == 1024
    assert np.isnat(rounded(np.array(["NaT"], "M8[s]"), 1)).all()


@pytest.mark.parametrize("keepbits", [0, -1, 2.5, "3", None, True])
def test_bad_configurations(keepbits):
    with pytest.raises(MetadataError):
        pipeline_of([bitround(keepbits), LITTLE], ChunkSpec((1,), np.dtype("f4"), None))


@pytest.mark.parametrize("dtype", ["?", "S3", "U3", "V2", [("a", "i4")]])
def test_other_dtypes(dtype):
    with pytest.raises(MetadataError, match="bitround needs numbers"):
        pipeline_of([bitround(3), "bytes"], ChunkSpec((1,), np.dtype(dtype), None))


@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_zarr_v2_has_it_under_numcodecs_name(tmp_path, dtype):
    import zarr

    import chunkmill as cm

    codecs = [{"name": "bitround", "configuration": {"keepbits": 3}}]
    array = cm.create_array(tmp_path, shape=(10,), chunks=(5,), dtype=dtype, format="zarr2", codecs=codecs)
    array[...] = np.arange(100, 110).astype(dtype)
    assert len(set(array[...].tolist())) < 4  # of ten
    assert zarr.open_array(tmp_path, mode="r")[...].tolist() == array[...].tolist()
