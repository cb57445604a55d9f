import struct

import numpy as np
from contracts.codec_contract import codec, contract, pipeline_of
from support.cases import cases
from support.codecs import chunks_of, not_built, not_decoded, not_encoded
from support.memory import peak_below

from chunkmill.codecs.base import fill_array

STRING = np.dtypes.StringDType()
WORDS = [["", "a"], ["höh", "日本\0"]]
# count; then length and bytes of each
WORDS_HEX = "04000000 00000000 01000000 61 04000000 68c3b668 07000000 e697a5e69cac00"


def objects(values):
    out = np.empty(len(values), object)
    out[:] = values
    return out


TestUtf8 = contract(
    ["vlen-utf8"],
    [
        np.array(WORDS, STRING), np.array(WORDS, object), np.array("x", STRING), np.zeros((0, 2), STRING),
        np.full(999, "é" * 300, STRING),
    ],
    frozen=[(np.array(WORDS, STRING), WORDS_HEX), (np.array(WORDS, object), WORDS_HEX)],
)  # fmt: skip
FROZEN_BYTES = [(objects([b"", b"a\0"]), "02000000 00000000 02000000 6100")]
TestBytes = contract(["vlen-bytes"], [objects([b"", b"a\0", b"\xff" * 300]), objects([])], FROZEN_BYTES)
TestArray = contract(
    [codec("numcodecs.vlen-array", dtype="<i2")],
    [objects([np.array([1, 2], "i2"), np.array([], "i2")]), objects([])],
    [(objects([np.array([1, -1], "i2"), np.array([], "i2")]), "02000000 04000000 0100ffff 00000000")],
)


@cases("name", ["vlen-utf8", "vlen-bytes", codec("numcodecs.vlen-array", dtype="i4")])
def test_what_numpy_fills_with_is_empty(name):
    spec = chunks_of(object, 2)
    pipeline = pipeline_of([name], spec)
    nothing = "02000000 00000000 00000000".replace(" ", "")
    assert bytes(pipeline.encode(np.empty(2, object), spec)).hex() == nothing
    assert bytes(pipeline.encode(fill_array(spec), spec)).hex() == nothing


@cases(
    ("name", "values", "message"),
    [
        ("vlen-utf8", [["a", None]], r"element \(0, 1\) is a NoneType, expected str"),
        ("vlen-utf8", [["a", 0]], r"element \(0, 1\) is a int, expected str"),
        ("vlen-utf8", [["a", b"b"]], "is a bytes, expected str"), ("vlen-utf8", [["a", float("nan")]], "is a float"),
        ("vlen-bytes", [[b"a", "b"]], r"element \(0, 1\) is a str, expected bytes"),
        ("vlen-utf8", [["a", "\ud800"]], "surrogates"),
    ],
)  # fmt: skip
def test_wrong_elements(name, values, message):
    not_encoded([name], np.array(values, object), message, fill_value="")


BIG = 0xFFFFFFFF


@cases(
    "data",
    [
        struct.pack("<I", BIG), struct.pack("<II", BIG, 0) + bytes(100), struct.pack("<III", 3, 0, 0),
        struct.pack("<IIII", 2, 0, 0, 0), struct.pack("<III", 2, 0, BIG),
        struct.pack("<III", 2, BIG, 0), struct.pack("<III", 2, 0, 1), struct.pack("<III", 1, 0, 0),
        struct.pack("<III", 2, 1, 0) + b"\xff", b"", b"\2\0\0",
    ],
)  # fmt: skip
@cases("name", ["vlen-utf8", "vlen-bytes", "numcodecs.vlen-array"])
def test_hostile_counts_and_lengths(name, data):
    chain = [codec(name, **({"dtype": "u1"} if "array" in name else {}))]
    with peak_below(1 << 20):
        not_decoded(chain, data, chunks_of(object, 2))


WITHOUT_OBJECTS = [("vlen-utf8", "i4"), ("vlen-bytes", STRING), ("vlen-utf8", "U3"), ("numcodecs.json2", "i4")]


@cases(("name", "dtype"), [*WITHOUT_OBJECTS, ("numcodecs.vlen-array", "O")])  # the last says not what is in its arrays
def test_dtypes_of_fixed_size_are_refused(name, dtype):
    not_built([name], chunks_of(dtype, 2), "needs")
