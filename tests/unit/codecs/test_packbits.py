from functools import partial
from pathlib import Path

import numpy as np
import pytest
from contracts.codec_contract import codec, fixed, pipeline_of, same, spec_of
from support.cases import cases
from support.codecs import chunks_of, not_built, not_decoded

import chunkmill as cm
from chunkmill.nodes.array import Array
from chunkmill.nodes.target import put_array
from chunkmill.stores.memory import MemoryStore

BITS = np.array([1, 0, 1, 1, 0, 0, 0, 0, 1, 1], bool)


packbits = partial(codec, "packbits")


TestNumbers = fixed(
    [packbits()],
    [BITS, np.arange(24, dtype="i4").reshape(2, 3, 4), np.array([-1.5, np.nan]), np.array(3, "u2"), np.zeros((0, 3))],
    [(BITS, "0d 03"), (np.array([-2, 258], "i2"), "fe ff 02 01")],
)
# Bits 1 to 5: what lies outside is lost, and the sign comes back.
TestSomeBits = fixed(
    [packbits(first_bit=1, last_bit=5, padding_encoding="first_byte")],
    [
        np.arange(0, 32, 2, dtype="i4"),
        np.arange(0, 64, 2, dtype="u2"),
        np.arange(-32, 32, 2, dtype="i1").reshape(4, 8),
        np.zeros((0,), "i2"),
    ],
    [(np.array([0, 2, -2], "i2"), "01 20 7c")],
)
TestLastByte = fixed([packbits(padding_encoding="last_byte")], [BITS, np.zeros((3, 0), bool)], [(BITS, "0d 03 06")])


ZARRS = Path(__file__).parents[2] / "golden" / "zarr_v3" / "zarrs-0.2.3"


def test_chunks_are_those_of_zarrs():
    """Of all small types, and of padding in front and behind."""
    pytest.importorskip("ml_dtypes")
    stores = [*ZARRS.glob("type-*-packbits.zarr"), *ZARRS.glob("codec-packbits-*.zarr")]
    n_same = 0
    for golden in stores:
        array, written = cm.open_array(golden), MemoryStore()
        Array(put_array(written, "", array.metadata, format="zarr3", overwrite=False))[...] = array[...]
        for chunk in golden.glob("c/*/*"):
            ours = written.get(chunk.relative_to(golden).as_posix())
            assert ours in {chunk.read_bytes(), None}, chunk  # what is all fill value is not stored
            n_same += ours is not None
    assert n_same > 50


def test_long_chunks_are_unpacked_in_blocks():
    values = np.random.default_rng(0).integers(-4, 4, 50_001).astype("i2")
    pipeline = pipeline_of([packbits(last_bit=2)], spec_of(values))
    encoded = bytes(pipeline.encode(values, spec_of(values)))
    assert len(encoded) == -(-3 * values.size // 8)
    assert same(pipeline.decode(encoded, spec_of(values)), values)


def test_wrong_padding_is_refused():
    chain = [packbits(padding_encoding="first_byte")]
    not_decoded(chain, b"\x03\x0d\x03", spec_of(BITS), "3 bits of padding, expected 6")


@cases(
    ("configuration", "reason"),
    [
        ({"padding_encoding": "both"}, "padding_encoding is 'both'"),
        ({"padding_encoding": ["none"]}, "padding_encoding is"), ({"first_bit": -1}, "bits -1 to 31 of 32"),
        ({"last_bit": 32}, "bits 0 to 32 of 32"), ({"first_bit": 5, "last_bit": 4}, "bits 5 to 4 of 32"),
        ({"first_bit": 1.0}, r"are \(1.0, None\), expected integers"), ({"first_bit": True}, "expected integers"),
        ({"bits": 3}, "unknown members"),
    ],
)  # fmt: skip
def test_bad_configurations(configuration, reason):
    not_built([packbits(**configuration)], chunks_of("i4", 1), reason)


@cases("dtype", ["S3", "U3", "V2", object, [("a", "i4")]])
def test_other_dtypes(dtype):
    not_built([packbits()], chunks_of(dtype, 1), "packbits needs numbers")
