from importlib.util import find_spec

import numpy as np
import pytest
from contracts.codec_contract import fixed, pipeline_of, same, spec_of
from interop.zarrs_codecs import zarrs_decodes, zarrs_encodes
from support.cases import cases

from chunkmill.codecs.base import ChunkSpec
from chunkmill.errors import CodecError, MetadataError
from chunkmill.model.dtypes import SMALL, cleared, emit_v3, n_bits, small_dtype

BITS = np.array([1, 0, 1, 1, 0, 0, 0, 0, 1, 1], bool)


def packbits(**configuration):
    return {"name": "packbits", "configuration": configuration}


TestNumbers = fixed(
    [packbits()],
    [BITS, np.arange(24, dtype="i4").reshape(2, 3, 4), np.array([-1.5, np.nan]), np.array(3, "u2"), np.zeros((0, 3))],
    [(BITS, "0d 03"), (np.array([-2, 258], "i2"), "fe ff 02 01")],
)
# Bits 1 to 5: what lies outside is lost, and the sign comes back.
TestSomeBits = fixed(
    [packbits(first_bit=1, last_bit=5, padding_encoding="first_byte")],
    [np.arange(0, 32, 2, dtype="i4"), np.arange(-32, 32, 2, dtype="i1").reshape(4, 8), np.zeros((0,), "i2")],
    [(np.array([0, 2, -2], "i2"), "01 20 7c")],
)
TestLastByte = fixed([packbits(padding_encoding="last_byte")], [BITS, np.zeros((3, 0), bool)], [(BITS, "0d 03 06")])


def everything():
    rng = np.random.default_rng(5)
    for name in ("bool", "int8", "uint16", "int32", "uint64", "float32", "float64", "complex64", "complex128"):
        dtype = np.dtype(name)
        raw = rng.integers(0, 2 if name == "bool" else 256, (3, 5 * dtype.itemsize), "u1")
        yield name, raw.view(dtype)
    for name in SMALL if find_spec("ml_dtypes") else ():
        dtype = small_dtype(name, format_name="", key="")
        raw = rng.integers(0, 1 << min(n_bits(dtype), 8), (3, 5 * dtype.itemsize)).astype("u1")
        yield name, raw.view(dtype)


@cases(("name", "values"), list(everything()))
@cases("padding", ["none", "first_byte", "last_byte"])
def test_zarrs_writes_and_reads_the_same(name, values, padding):
    pytest.importorskip("zarrs")
    if name == "float8_e4m3fn":
        pytest.skip("TensorStore's, not zarrs'")
    codec = packbits(padding_encoding=padding)
    fill = [0.0, 0.0] if name.startswith("complex") else False if name == "bool" else 1
    bits = (
        values
        if name in {"bool", "int8"}
        else values.view(f"u{min(values.dtype.itemsize, 8)}" if values.dtype.kind != "c" else values.dtype)
    )
    pipeline = pipeline_of([codec], spec_of(values))
    ours = bytes(pipeline.encode(values, spec_of(values)))
    data_type = emit_v3(values.dtype)
    theirs = zarrs_encodes(bits, data_type, [codec], fill)
    if padding != "none" and n_bits(values.dtype) % 8 == 0:  # where it leaves out the byte that the specification wants
        assert theirs == (ours[1:] if padding == "first_byte" else ours[:-1])
    else:
        assert theirs == ours
        found = zarrs_decodes(ours, bits, data_type, [codec], fill).view(values.dtype)
        assert same(found if n_bits(values.dtype) >= 8 or name == "bool" else cleared(found), values)
    assert same(pipeline.decode(ours, spec_of(values)), values)


def test_long_chunks_are_unpacked_in_blocks():
    values = np.random.default_rng(0).integers(-4, 4, 50_001).astype("i2")
    pipeline = pipeline_of([packbits(last_bit=2)], spec_of(values))
    encoded = bytes(pipeline.encode(values, spec_of(values)))
    assert len(encoded) == -(-3 * values.size // 8)
    assert same(pipeline.decode(encoded, spec_of(values)), values)


def test_wrong_padding_is_refused():
    spec = spec_of(BITS)
    with pytest.raises(CodecError, match="3 bits of padding, expected 6"):
        pipeline_of([packbits(padding_encoding="first_byte")], spec).decode(b"\x03\x0d\x03", spec)


@cases(
    "configuration",
    [
        {"padding_encoding": "both"}, {"first_bit": -1}, {"last_bit": 32}, {"first_bit": 5, "last_bit": 4}, {"first_bit": 1.0},
        {"first_bit": True}, {"bits": 3}, {"padding_encoding": ["none"]},
    ],
)  # fmt: skip
def test_bad_configurations(configuration):
    with pytest.raises(MetadataError):
        pipeline_of([packbits(**configuration)], ChunkSpec((1,), np.dtype("i4"), None))


@cases("dtype", ["S3", "U3", "V2", object, [("a", "i4")]])
def test_other_dtypes(dtype):
    with pytest.raises(MetadataError, match="packbits needs numbers"):
        pipeline_of([packbits()], ChunkSpec((1,), np.dtype(dtype), None))
