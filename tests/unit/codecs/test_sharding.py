import re
import struct

import numpy as np
import pytest
from contracts.codec_contract import BIG, LITTLE, codec, contract, pipeline_of, same, spec_of
from support.arrays import filled
from support.cases import cases
from support.codecs import chunks_of, not_built, not_decoded
from support.memory import peak_below

import chunkmill as cm
from chunkmill.codecs.registry import build_pipeline, parse_codecs, sharded

NO = "ff" * 16
MISSING = (1 << 64) - 1


def sharding(chunk_shape, codecs=(LITTLE,), index_codecs=(LITTLE, "crc32c"), **rest):
    chains = {"codecs": [*codecs], "index_codecs": [*index_codecs]}
    return codec("sharding_indexed", **{"chunk_shape": chunk_shape, "index_location": "end", **chains, **rest})


def entry(offset, size):
    return struct.pack("<QQ", offset, size).hex()


# Shards of shards, of texts, with other codecs inside and behind: tests/properties/test_codecs.py and the golden stores shard-*.
SPARSE = np.array([[1, 2, 0, 0], [3, 4, 0, 0]], "u1")  # two inner chunks, one of them fill


TestEnd = contract(
    [sharding([2, 2], index_codecs=[LITTLE])],
    [
        SPARSE, np.arange(24, dtype="i4").reshape(4, 6), np.zeros((4, 4)),
        np.arange(8, dtype="u1").reshape(4, 2).T[:, ::2],
    ],
    frozen=[(SPARSE, "01020304" + entry(0, 4) + NO), (np.zeros((2, 4), "u1"), NO + NO)],
)  # fmt: skip
AT_START = [sharding([2, 2], index_codecs=[BIG], index_location="start")]
FROZEN = [(SPARSE, struct.pack(">QQ", 32, 4).hex() + NO + "01020304")]
TestStart = contract(AT_START, TestEnd.arrays, FROZEN, detects=False)


TURNED = codec("transpose", order=[2, 0, 1])
INDEXES = {  # codecs of the index -> bytes of one of 2 x 3 entries
    "plain": ([LITTLE], 96),
    "twice checked": ([BIG, "crc32c", "crc32c"], 104),
    "turned": ([TURNED, LITTLE, "crc32c"], 100),
    **{
        name: ([LITTLE, f"numcodecs.{name}"], 100)
        for name in ("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3")
    },
}


@cases("location", ["start", "end"])
@cases(("index_codecs", "n_bytes"), INDEXES.values())
def test_index_codecs_of_a_fixed_size(index_codecs, n_bytes, location):
    values = np.arange(24, dtype="u1").reshape(4, 6)
    chain = [sharding([2, 2], index_codecs=index_codecs, index_location=location)]
    store = filled(values, chunks=(4, 6), codecs=chain).store
    assert store.size("c/0/0") == n_bytes + 24
    again = cm.open_array(store)
    np.testing.assert_array_equal(again[...], values)
    assert [int(again[y, x]) for y in (1, 2) for x in (1, 3, 5)] == [7, 9, 11, 13, 15, 17]  # by the index alone


def pipeline_and_spec(fill_value=None, **rest):
    spec = chunks_of("u1", 2, 4, fill_value=fill_value)
    return pipeline_of([sharding([2, 2], **rest)], spec), spec


def test_missing_chunks_are_fill_value_and_fill_value_is_missing():
    pipeline, spec = pipeline_and_spec(fill_value=9, index_codecs=[LITTLE])
    assert pipeline.decode(bytes.fromhex(NO + NO), spec).tolist() == [[9] * 4] * 2
    assert bytes(pipeline.encode(np.full((2, 4), 9, "u1"), spec)).hex() == NO + NO
    assert len(pipeline.encode(np.zeros((2, 4), "u1"), spec)) == 40
    array = np.array([[9, 9, 0, 1], [9, 9, 2, 3]], "u1")
    assert bytes(pipeline.encode(array, spec)).hex() == "00010203" + NO + entry(0, 4)
    assert same(pipeline.decode(pipeline.encode(array, spec), spec), array)


@cases(
    ("index", "message"),
    [
        (entry(37, 0) + NO, "outside"), (entry(MISSING - 1, 4) + NO, "outside"),  # the sum wraps around
        (entry(4, MISSING - 3) + NO, "outside"), (entry(1 << 63, 1 << 63) + NO, "outside"),
        (entry(MISSING, 4) + NO, "half missing"), (entry(0, MISSING) + NO, "half missing"),
        (NO + entry(0, 3), r"inner chunk \(0, 1\): 3 bytes"), (entry(0, 3) + NO, r"inner chunk \(0, 0\): 3 bytes"),
        (entry(0, 0) + NO, r"inner chunk \(0, 0\): 0 bytes"),
        (entry(0, 4), "cannot hold an index|half missing|outside"), ("", "cannot hold an index"),
    ],
)  # fmt: skip
def test_hostile_indexes(index, message):
    data = bytes.fromhex("01020304" + index)
    not_decoded([sharding([2, 2], index_codecs=[LITTLE])], data, chunks_of("u1", 2, 4), message)


def test_parse_index():
    pipeline, spec = pipeline_and_spec(index_codecs=[LITTLE])
    codec = pipeline.serializer
    assert (codec.index_bytes(spec), codec.inner_grid_shape(spec)) == (32, (1, 2))
    assert codec.inner_spec(spec) == chunks_of("u1", 2, 2)
    index = codec.parse_index(bytes.fromhex(entry(0, 4) + NO), spec, 36)
    assert index.dtype == np.uint64
    assert index.tolist() == [[[0, 4], [MISSING, MISSING]]]
    assert codec.parse_index(bytes.fromhex(entry(1 << 40, 4) + NO), spec).tolist()[0][0] == [1 << 40, 4]
    for bad in (entry(1 << 40, 4) + NO, entry(MISSING, 4) + NO):
        with pytest.raises(ValueError):
            codec.parse_index(bytes.fromhex(bad), spec, 36)
    last = bytes.fromhex(entry(MISSING - 5, 4) + NO)  # to the end of the longest shard
    assert codec.parse_index(last, spec).tolist()[0][0] == [MISSING - 5, 4]
    for bad in (entry(MISSING - 1, 2) + NO, entry(MISSING - 4, 4) + NO):
        with pytest.raises(ValueError, match="points outside the shard"):
            codec.parse_index(bytes.fromhex(bad), spec)


def test_pack_and_unpack_move_encoded_chunks_unopened():
    for location in ("end", "start"):
        pipeline, spec = pipeline_and_spec(index_location=location)
        codec = pipeline.serializer
        entries = {(0, 1): b"second", (0, 0): b"1"}
        shard = codec.pack(entries, spec)
        assert {coords: bytes(data) for coords, data in codec.unpack(shard, spec)} == entries
        assert next(codec.unpack(shard, spec))[0] == (0, 0)
        body = shard[36:] if location == "start" else shard[:-36]
        assert body == b"1second"
        assert list(codec.unpack(codec.pack({}, spec), spec)) == []
        for absent in ((1, 0), (0, 2), (-1, 0), (0,), (0, 0, 0)):
            with pytest.raises(ValueError, match=re.escape(f"there is no inner chunk {absent} in a grid of (1, 2)")):
                codec.pack({absent: b""}, spec)


@cases(
    ("codec", "reason"),
    [
        (sharding([2, 3]), "does not divide the shard .2, 4."), (sharding([2]), "has another rank than"),
        (sharding([2, 0]), "expected lengths of at least 1"), (sharding([2, -2]), "of at least 1"),
        (sharding([2, 2.0]), "chunk_shape is .2, 2.0., expected a list of integers"),
        (sharding("ab"), "chunk_shape is 'ab'"),
        (sharding([2, 2], index_location="middle"), "index_location is 'middle'"),
        (sharding([2, 2], index_codecs=[LITTLE, "gzip"]), "do not have a fixed size"),
        (sharding([2, 2], index_codecs=[]), "exactly one"), (sharding([2, 2], codecs=[]), "exactly one"),
        (sharding([2, 2], codecs=["gzip"]), "exactly one"), (sharding([2, 2], extra=1), "unknown members .'extra'."),
        (codec("sharding_indexed", chunk_shape=[2, 2]), "codecs are None, expected a list"),
    ],
)  # fmt: skip
def test_wrong_configurations(codec, reason):
    not_built([codec], chunks_of("i4", 2, 4), f"expected .*{reason}")
    pipeline_of([sharding([1, 1])], chunks_of("i4", 2, 4))


def test_an_index_of_more_axes_than_numpy_has():
    """Creating such an array succeeded, and no shard of it could be written."""
    not_built([sharding([1] * 64)], chunks_of("u1", *[1] * 64), "shards of 64 axes")


def test_index_codecs_that_are_absent_are_the_usual_ones():
    codec = sharding([2, 2])
    del codec["configuration"]["index_codecs"]
    spec = spec_of(SPARSE)
    one, other = (bytes(pipeline_of([each], spec).encode(SPARSE, spec)) for each in (codec, sharding([2, 2])))
    assert one == other


def test_chains_without_end():
    codec = LITTLE
    for _ in range(2000):
        codec = sharding([1], [codec])
    not_built([codec], chunks_of("u1", 1), "fewer codecs")


def test_one_output_array():
    array = np.ones((1024, 1024), "f4")
    spec = spec_of(array)
    pipeline = build_pipeline([sharded(parse_codecs("lz4", array.dtype), (256, 256))], spec)
    data = pipeline.encode(array, spec)
    with peak_below(1.4 * array.nbytes):
        decoded = pipeline.decode(data, spec)
    assert same(decoded, array)


@pytest.mark.parametrize(("location", "asked"), [("end", [1, 2, 2]), ("start", [2, 2, 2])])
def test_parts_with_the_index_at_the_end_need_one_chunk_at_a_time(location, asked):
    def entries():
        for coords in [(0, 0), (0, 1)]:
            made.append(coords)
            yield coords, b"data"

    spec = chunks_of("u1", 2, 4, fill_value=0)
    codec = pipeline_of([sharding([2, 2], index_location=location)], spec).serializer
    made = []
    parts = [(bytes(part), len(made)) for part in codec.parts(entries(), spec)]
    assert [n for _, n in parts] == asked
    assert b"".join(part for part, _ in parts) == codec.pack({(0, 0): b"data", (0, 1): b"data"}, spec)
