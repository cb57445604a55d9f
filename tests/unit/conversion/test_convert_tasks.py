"""One task of a conversion at a time."""

import struct

import numpy as np
import pytest
from support.cases import cases
from support.conversions import make
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.conversion.convert_tasks import transfer_group
from chunkmill.errors import ChunkError, NodeNotFound
from chunkmill.stores.memory import MemoryStore


def stage_of(source, **options):
    plan = cm.plan_convert(source, target := MemoryStore(), **options)
    return stages_of(plan, "1")[0], target


def run(stage):
    return [transfer_group(stage.common, spec) for spec in stage.tasks]


@pytest.mark.parametrize("codecs", ["keep", "blosc"])
def test_tasks_write_their_keys_and_say_so(codecs):
    source, _ = make()
    stage, target = stage_of(source, format="zarr3", codecs=codecs)
    results = run(stage)
    written = {key for result in results for key, value in result.writes.items() if value is not None}
    assert written == set(target.list_prefix(""))
    assert sum(result.counts["n_keys"] for result in results) == 9
    assert sum(result.counts.get("action_absent", 0) for result in results) == 1


def test_a_chunk_that_does_not_decode_names_itself():
    source, _ = make()
    source.set("g/a/1.1", b"torn")
    stage, _ = stage_of(source, format="zarr3", codecs="zstd")
    with pytest.raises(ChunkError) as caught:
        run(stage)
    assert (caught.value.key, caught.value.coords) == ("g/a/1.1", (1, 1))


def n5_header(shape, mode=0, count=None):
    sizes = struct.pack(f">HH{len(shape)}I", mode, len(shape), *shape)
    return sizes if count is None else sizes + struct.pack(">I", count)


RAW = {"shape": (4, 4), "dtype": "u2", "chunks": (2, 4)}
DAMAGES = {  # how the source is created, how it is converted, a chunk's key, the damage, what the error says
    "short": (RAW | {"codecs": []}, {"format": "zarr3"}, "c/1/0", lambda v: v[:-1], "15 bytes, expected 16"),
    "long": (RAW | {"codecs": []}, {"format": "zarr2"}, "c/1/0", lambda v: v + b"\0", "17 bytes, expected 16"),
    "checksum": (
        RAW | {"codecs": ["crc32c"]},
        {"format": "zarr2", "codecs": "raw"},
        "c/1/0",
        lambda v: b"x" + v[1:],
        "step 'reframe'.*checksum mismatch",
    ),
    "before crc32c": (
        RAW | {"codecs": ["crc32c"]},
        {"format": "zarr3", "codecs": [], "shards": (4, 4)},
        "c/1/0",
        lambda v: v[1:],
        "19 bytes, expected 20",
    ),
    "n5": (RAW | {"format": "n5", "codecs": []}, {"format": "n5"}, "0/1", lambda v: v[:-2], "26 bytes, expected 28"),
    "n5 that lies": (
        RAW | {"format": "n5", "codecs": "gzip"},
        {"format": "n5"},
        "0/1",
        lambda v: n5_header((4, 2), 1, 9) + v[12:],
        "varlength block of 9 elements",
    ),
    "n5 too large": (
        RAW | {"format": "n5", "codecs": "gzip"},
        {"format": "n5"},
        "0/1",
        lambda v: n5_header((4, 3)) + v[12:],
        "does not fit the block size",
    ),
    "shard": (RAW | {"shards": (4, 4)}, {"format": "zarr3"}, "c/0/0", lambda v: v[40:], "points outside the shard"),
}


@cases("case", DAMAGES)
def test_chunks_that_are_not_decoded_are_looked_at(case):
    """They were copied as they are, and the job was done: `verify` found them too late."""
    creation, conversion, key, damage, words = DAMAGES[case]
    source = MemoryStore()
    array = cm.create_array(source, "a", **creation)
    array[...] = np.arange(16).reshape(4, 4) + 1
    source.set(f"a/{key}", damage(source.get(f"a/{key}")))
    plan = cm.plan_convert(array, target := MemoryStore(), **conversion)
    assert plan.arrays[0]["action"] in {"copy", "reframe", "repack"}
    with pytest.raises(ChunkError, match=words) as caught:
        plan.run()
    assert caught.value.key == f"a/{key}"
    with pytest.raises(NodeNotFound):
        cm.open_array(target)


def test_the_report_says_what_was_not_decoded():
    source, _ = make()
    assert "(copied without decoding)" in str(cm.convert(source, MemoryStore(), format="zarr3"))
