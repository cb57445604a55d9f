import sys
from functools import partial

import numpy as np
import pytest
from contracts.codec_contract import codec, contract, pipeline_of
from support.cases import cases
from support.codecs import chunks_of, not_built, not_decoded, not_encoded

from chunkmill.codecs.zfp import longest_stream
from chunkmill.errors import UnknownCodec

pytest.importorskip("zfpy")


def zfp(mode="reversible", **parameters):
    return codec("zfp", mode=mode, **parameters)


ROWS = np.array([[0, 1, 2, 3, 4, 5], [24, 25, 26, 27, 28, 29], [48, 49, 50, 51, 52, 53], [72, 73, 74, 75, 76, 77]])
# what zarrs 0.23 writes of them, and of their halves as floats
ZARRS = {
    "f4": "1522242210a910215185a80000000000", "f8": "1510412202910a88205185a800000000",
    "i1": "08890844101255880a00000000000000", "i2": "100089084420001255880a0000000000",
    "i4": "1f000040222000f90000001201054a02", "i8": "3f00000000000080444000f2030000000000004804142809",
    "M8[s]": "3f00000000000080444000f2030000000000004804142809",
    "u1": "68a18840042d1455880a000000000000", "u2": "700100a08840042e00001455880a0000",
    "u4": "1f000040222000f90000001201054a02", "u8": "3f00000000000080444000f2030000000000004804142809",
}  # fmt: skip


TestReversible = contract(
    [zfp()],
    [ROWS.astype(dtype) for dtype in ZARRS]
    + [np.array(3.5, "f2"), np.arange(24, dtype="f8").reshape(1, 2, 3, 4), np.zeros((0, 3), "i4")],
    [((ROWS / 2 if dtype in {"f4", "f8"} else ROWS).astype(dtype), text) for dtype, text in ZARRS.items()],
    detects=False,
)


lossy, RAMP = partial(contract, detects=False, exact=False), np.linspace(0, 1, 50, dtype="f4")
LINES = [RAMP, np.linspace(0, 9, 60).reshape(3, 4, 5)]


class TestAccuracy(lossy([zfp("fixed_accuracy", tolerance=0.05)], LINES)):
    def test_it_is_kept(self):
        for array, spec, pipeline in self.cases():
            assert np.abs(pipeline.decode(bytes(pipeline.encode(array, spec)), spec) - array).max() <= 0.05


TestRate = lossy([zfp("fixed_rate", rate=10)], LINES)
TestPrecision = lossy([zfp("fixed_precision", precision=20)], [RAMP])


def test_streams_are_bounded():
    spec = chunks_of("f4", 4, 6)
    assert [longest_stream((64, 63), np.dtype(t)) for t in ("i4", "i8", "f4", "f8")] == [17032, 33448, 17352, 33864]
    for data in (b"", bytes(1000)):
        not_decoded([zfp()], data, spec)
    not_decoded([zfp()], b"x", chunks_of("f4", 0, 6), "without elements")
    # the rest is read as zeros, not beyond the buffer
    assert pipeline_of([zfp()], spec).decode(b"\xff", spec).shape == (4, 6)


def test_numbers_that_zfp_has_not():
    for dtype, greatest in (("u4", 2**31 - 1), ("u8", 2**63 - 1)):
        spec = chunks_of(dtype, 1)
        held = pipeline_of([zfp()], spec).encode(np.array([greatest], dtype), spec)
        assert pipeline_of([zfp()], spec).decode(held, spec).tolist() == [greatest]
        not_encoded([zfp()], np.array([greatest + 1], dtype), "greatest integer of zfp")


@cases(
    ("mode", "parameters", "reason"),
    [
        (None, {}, "mode is None"), ("lossy", {}, "mode is 'lossy'"), ([], {}, "mode is .., expected one of"),
        ("fixed_rate", {}, "got the parameters .., expected rate for fixed_rate"),
        ("fixed_rate", {"rate": 0}, "rate is 0, which"),
        ("fixed_rate", {"rate": 1e300}, "rate is 1e.300"), ("fixed_rate", {"rate": float("nan")}, "rate is nan"),
        ("fixed_rate", {"rate": True}, "rate is True"), ("fixed_rate", {"rate": 200}, "864 bits for each 4 numbers"),
        ("fixed_accuracy", {"tolerance": "x"}, "tolerance is 'x'"),
        ("fixed_precision", {"precision": 65}, "precision is 65"),
        ("fixed_precision", {"precision": 2.0}, "precision is 2.0"), ("expert", {"minbits": 1}, "mode is 'expert'"),
        ("reversible", {"rate": 3}, "got the parameters .'rate'., expected None"),
        ("reversible", {"write_header": True}, "write_header is set"),
        ("fixed_rate", {"rate": 128 + 1 / 4}, "577 bits .*, expected at most 576"),
    ],
)  # fmt: skip
def test_bad_configurations(mode, parameters, reason):
    not_built([zfp(mode, **parameters)], chunks_of("f4", 4), reason)
    for most in (zfp("fixed_precision", precision=64), zfp("fixed_rate", rate=128), zfp(write_header=False)):
        pipeline_of([most], chunks_of("f4", 4))


@cases(("shape", "dtype"), [((2,) * 5, "f4"), ((2,), "c8"), ((2,), "?"), ((2,), "S3"), ((2,), "V2")])
def test_arrays_that_zfp_has_not(shape, dtype):
    not_built([zfp()], chunks_of(dtype, *shape), "needs numbers, not" if len(shape) == 1 else "at most 4 axes, not 5")


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "zfpy", None)
    not_built([zfp()], chunks_of("f4", 4), r"zfp.*chunkmill\[codecs\]", UnknownCodec)
