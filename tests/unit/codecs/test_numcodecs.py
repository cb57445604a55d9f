import warnings

import numcodecs
import numcodecs.registry
import numpy as np
import pytest
from contracts.codec_contract import LITTLE, codec, contract, fixed, pipeline_of, same, spec_of
from support.cases import cases
from support.codecs import chunks_of, not_built, not_decoded, not_encoded

from chunkmill.codecs.numcodecs import NumcodecsBytes, build_numcodecs
from chunkmill.errors import UnknownCodec, UnsupportedFeature

STRING = np.dtypes.StringDType()


def named(codec_id, **configuration):
    return codec(f"numcodecs.{codec_id}", **configuration)


# Of each kind; all codecs of numcodecs are in golden stores, sizes of checksums in `test_sharding.INDEXES`.
TestDelta = fixed(
    [named("delta", dtype="<i4", astype="<i2"), LITTLE],
    [np.array([[100, 102], [101, 50]], "i4"), np.array([[1, 2, 3], [4, 5, 6]], "i4").T],
    "6400 0200 ffff cdff",
)
# numcodecs views the buffer as the dtype of its configuration.
TestDeltaOfDates = fixed(
    [named("delta", dtype="<i8"), LITTLE], [np.array([5, 7], "M8[ns]")], "0500000000000000 0200000000000000"
)


TestPackbits = fixed(
    [named("packbits"), "bytes"],
    [np.array([[True, False, False], [True, True, False]]), np.ones(16, bool), np.array(True)],
    "02 98",
)
TestCategorize = fixed(
    [named("categorize", labels=["b", "a"], dtype="|O", astype="|u1"), "bytes"],
    [np.array([["a", "b"], ["", "a"]], STRING), np.array(["b", ""], object), np.array(["a", "b"], "U3")],
    "02 01 00 02",
)
TestShuffle = fixed(
    [LITTLE, named("shuffle", elementsize=4)],
    [np.arange(6, dtype="i4").reshape(2, 3), np.zeros(2)],
    [(np.array([0x04030201, 0x08070605], "i4"), "01 05 02 06 03 07 04 08")],
)
MAN = np.frombuffer(b"Man", "u1")
TestBase64 = fixed(["bytes", named("base64")], [np.arange(n, dtype="u1") for n in (7, 5)], [(MAN, b"TWFu".hex())])
# it stops reading at its own end mark
TestPcodec = contract(
    [named("pcodec", level=8)],
    [np.arange(24, dtype="i4").reshape(2, 3, 4), np.array([0.0, -0.0, np.nan]), np.array(5, "u2")],
    detects=False,
    package="pcodec",
)


JSON_OBJECTS = np.array(["a", 1, None, {"k": 2.5}], object)
TestJson = contract(
    [named("json2")],
    [
        JSON_OBJECTS, JSON_OBJECTS.reshape(2, 2), np.array([["ü"]], STRING), np.array("x", object),
        np.empty((0, 2), object),
    ],
    [
        (JSON_OBJECTS, b'["a",1,null,{"k":2.5},"|O",[4]]'.hex()),
        (JSON_OBJECTS[:2].reshape(1, 2), b'[["a",1],"|O",[1,2]]'.hex()),
    ],
)  # fmt: skip


def test_objects_that_are_lists_stay_elements():
    array = np.empty(2, object)
    array[:] = [[1, 2], [3, 4]]
    for name in ("json2", "msgpack2"):
        pipeline, spec = pipeline_of([named(name)], spec_of(array)), spec_of(array)
        data = b'[[1,2],[3,4],"|O",[2]]' if name == "json2" else pipeline.encode(array, spec)
        assert pipeline.decode(data, spec).tolist() == [[1, 2], [3, 4]]


@cases(
    ("text", "reason"),
    [
        (b"[" * 100_000, "recursion"), (b"[" * 100_000 + b"]" * 100_000, "recursion"),
        (b"{}", "a list that ends with a dtype"), (b"[]", "a list that ends"), (b"[[2]]", "a list that ends"),
        (b'[1,2,"|O","ab"]', "a list that"), (b'["|O",[2]]', "0 values, expected 2"),
        (b'[1,2,3,"|O",[2]]', "3 values, expected 2"), (b'[1,2,"|O",[3]]', "of shape .3., expected .2."),
        (b'[1,2,"|O",[1000000000000]]', "shape"), (b'[1,2,"|O",[2.0]]', "shape .2.0"),
        (b'[1,2,"|O",[2,-1,-1]]', "not nested as .2, -1, -1. says"), (b'[["a","b"],"|O",[2,1]]', "not nested"),
        (b'["a","b","|O",[2,1]]', "not nested"), (b"\xff", "invalid start"), (b"", "Expecting"),
    ],
)  # fmt: skip
def test_hostile_json(text, reason):
    not_decoded([named("json2")], text, chunks_of(object, 2), reason)


def test_json_and_msgpack_are_read_as_configured():
    """By numcodecs' defaults control characters are refused, texts UTF-8, and of msgpack, decoded."""
    spec, text = chunks_of(object, 1), b'["a\nb","|O",[1]]'
    not_decoded([named("json2")], text, spec, "Invalid control character")
    assert pipeline_of([named("json2", strict=False)], spec).decode(text, spec).tolist() == ["a\nb"]
    assert pipeline_of([named("json2", encoding="latin-1")], spec).decode(b'["\xe9","|O",[1]]', spec).tolist() == ["é"]
    for raw, read in (({}, ["x"]), ({"raw": True}, [b"x"])):
        packed = b"\x93\xa1x\xa2|O\x91\x01"  # a list of three: "x", "|O", [1]
        assert pipeline_of([named("msgpack2", **raw)], spec).decode(packed, spec).tolist() == read


@cases(
    ("data", "reason"),
    [
        ("dd7fffffff", "exceeds max_array_len"),
        ("91" * 5000, "StackError|no reason given"),
        ("92 a27c4f 91ce7fffffff", "shape .2147483647., expected .2."),
        ("c0", "a list that ends with"),
        ("", "incomplete"),
    ],
)
def test_hostile_msgpack(data, reason):
    pytest.importorskip("msgpack")
    reason = f"codec 'numcodecs.msgpack2' cannot decode: .*({reason})"
    not_decoded([named("msgpack2")], bytes.fromhex(data), chunks_of(object, 2), reason)


def test_dtypes_that_the_configuration_lacks_are_the_chunks():
    array = np.array([4, 9], "i4")
    pipeline = pipeline_of([named("delta"), LITTLE, named("shuffle")], spec_of(array))
    assert pipeline.filters[0].config().configuration == {"dtype": "<i4", "astype": "<i4"}
    assert pipeline.compressors[0].config().configuration == {"elementsize": 4}


def test_lossy_casts_do_not_warn():
    array = np.array([np.nan, 1e30], "f4")
    scaled = named("fixedscaleoffset", offset=0, scale=1, dtype="<f4", astype="<i2")
    pipeline = pipeline_of([scaled, LITTLE], spec_of(array))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pipeline.decode(pipeline.encode(array, spec_of(array)), spec_of(array)).shape == (2,)


def test_unknown_categories_are_empty():
    spec = chunks_of(STRING, 3)
    pipeline = pipeline_of([named("categorize", labels=["x"], dtype="|O", astype="|u1"), "bytes"], spec)
    assert pipeline.decode(b"\1\0\7", spec).tolist() == ["x", "", ""]
    assert bytes(pipeline.encode(np.array(["x", "y", ""], STRING), spec)) == b"\1\0\0"


@cases(
    ("codec", "dtype", "reason"),
    [
        (named("delta", dtype="<i4"), "i2", "delta of int32 cannot apply to int16"),
        (named("delta", dtype="<i4"), "S6", "cannot apply to .S6"),
        (named("delta", dtype="<i4"), STRING, "cannot apply to StringDType"),
        (named("delta", dtype="|O"), "i2", "'.O' is not a dtype of numbers"),
        (named("delta", dtype="nonsense"), "i2", "'nonsense' is not a dtype"),
        (named("delta", level=1), "i2", "unexpected keyword argument 'level'"),
        (named("bitround", keepbits=3), "?", "bitround needs numbers, not bool"),
        (named("packbits"), "u1", "packbits needs booleans, not uint8"),
        (named("quantize", digits=1), "i4", "only floating point"),
        (named("categorize", labels=["a"]), "i4", "integers of strings, not uint8 of int32"),
        (named("categorize", labels=[1]), "U1", "labels are .1., expected"),
        (named("categorize", labels="a"), "U1", "labels are 'a'"),
        (named("categorize", labels=["a"], astype="<f4"), "U1", "not float32 of <U1"),
        (named("fixedscaleoffset"), "i4", "missing 2 required"),
        (named("delta", dtype="<i4"), object, "cannot apply to object"),
    ],
)  # fmt: skip
def test_filters_that_do_not_fit(codec, dtype, reason):
    not_built([codec, LITTLE], chunks_of(dtype, 2), f"another one: .*{reason}")


class Third(numcodecs.abc.Codec):
    codec_id = "chunkmill-test-third"

    def __init__(self, key=1):
        self.key = key

    def encode(self, buf):
        return np.asarray(buf) + np.uint8(self.key)

    def decode(self, buf, out=None):
        return np.asarray(buf) - np.uint8(self.key)


@pytest.mark.parametrize("position", [0, 1], ids=["filter", "compressor"])
def test_codecs_of_third_parties(position, monkeypatch):
    monkeypatch.setitem(numcodecs.registry.codec_registry, Third.codec_id, Third)
    array = np.array([[1, 2], [3, 4]], "u1")
    chain = ["bytes"]
    chain.insert(position, named(Third.codec_id, key=2))
    pipeline = pipeline_of(chain, spec_of(array))
    assert bytes(pipeline.encode(array, spec_of(array))) == b"\3\4\5\6"
    assert same(pipeline.decode(b"\3\4\5\6", spec_of(array)), array)
    not_built([*chain, named(Third.codec_id, nonsense=2)], spec_of(array), "nonsense")


def test_bits_of_another_number_are_refused():
    not_decoded([named("packbits"), "bytes"], b"\5\x98", chunks_of("?", 2, 3), "3 elements, expected 6")


def test_a_third_party_cannot_yield_more_than_fits(monkeypatch):
    monkeypatch.setitem(numcodecs.registry.codec_registry, Third.codec_id, Third)
    not_decoded(["bytes", named(Third.codec_id)], bytes(3), chunks_of("u1", 2), "expected")


class TestPickle:
    @cases("name", ["pickle", "numcodecs.pickle", "Pickle", "numcodecs.PICKLE", "numcodecs. pickle", "pickle5"])
    @cases("position", [0, 1])
    def test_every_spelling_is_refused(self, name, position):
        chain = ["bytes"]
        chain.insert(position, name)
        not_built(chain, chunks_of("u1", 1), "pickle", UnsupportedFeature)

    def test_under_another_id_too(self, monkeypatch):
        monkeypatch.setitem(numcodecs.registry.codec_registry, "innocent", numcodecs.Pickle)
        not_built(["bytes", "numcodecs.innocent"], chunks_of("u1", 1), "pickle", UnsupportedFeature)


def test_a_missing_package_comes_with_the_way_out(monkeypatch):
    monkeypatch.delitem(numcodecs.registry.codec_registry, "pcodec", raising=False)
    not_built([named("pcodec")], chunks_of("u4", 1), r"chunkmill\[codecs\]", UnknownCodec)


@cases(("codec", "size"), [("crc32", 3), ("adler32", 3), ("fletcher32", 4)])
def test_no_room_for_a_checksum(codec, size):
    not_decoded(["bytes", named(codec)], bytes(size), chunks_of("u1", 2), "cannot hold")


def test_more_labels_than_numbers():
    array = np.array(["126"], STRING)
    most, more = (named("categorize", labels=[str(i) for i in range(n)], astype="|i1") for n in (127, 128))
    assert bytes(pipeline_of([most, "bytes"], spec_of(array)).encode(array, spec_of(array))) == b"\x7f"
    not_encoded([more, "bytes"], array, "128 labels")


def test_pcodec_of_another_length_raises():
    pytest.importorskip("pcodec")
    chain, specs = [named("pcodec")], [chunks_of("i4", n) for n in (5, 6)]
    five, six = (pipeline_of(chain, each).encode(np.arange(*each.shape, dtype="i4"), each) for each in specs)
    not_decoded(chain, five, specs[1])
    not_decoded(chain, six, specs[0])


TestZfpy = contract(
    [named("zfpy", mode=4, tolerance=0.001)],
    [np.linspace(0, 1, 64).reshape(4, 4, 4), np.arange(10, dtype="f4")],
    exact=False,
    detects=False,
    package="zfpy",
)


def test_zfpy_of_another_shape_raises():
    pytest.importorskip("zfpy")
    chain, spec = [named("zfpy", mode=4, tolerance=0.1)], chunks_of("f8", 8)
    encoded = pipeline_of(chain, spec).encode(np.zeros(8), spec)
    not_decoded(chain, encoded, chunks_of("f8", 4), "states 8 numbers")
    not_built([named("zfpy", mode=4)], chunks_of("S8", 8), "needs numbers")


def test_a_codec_that_returns_objects_is_refused():
    """kerchunk's, for strings of HDF5 that it leaves out; zarr-python 3 reads them as the text ``None``."""
    numcodecs_bytes = NumcodecsBytes.from_named("numcodecs.vlen-bytes", {}, chunks_of("S4", 2))
    data = numcodecs.VLenBytes().encode(np.array([b"a", b"bc"], object))
    with pytest.raises(ValueError, match=r"numcodecs.vlen-bytes returned Python objects \(object\), expected bytes"):
        numcodecs_bytes.decode(data, 100)


def test_imagecodecs_are_named(monkeypatch):
    for known in (numcodecs.registry.entries, numcodecs.registry.codec_registry):
        monkeypatch.delitem(known, "imagecodecs_delta", raising=False)
    with pytest.raises(UnknownCodec, match=r"call imagecodecs.numcodecs.register_codecs\(\) first"):
        build_numcodecs("numcodecs.imagecodecs_delta", {})
