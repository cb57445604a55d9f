"""Which action the planner takes, and how store keys are grouped into tasks."""

import numpy as np
from support.cases import cases

from chunkmill.conversion.actions import choose_action, group_keys, same_fill
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, InnerLayout, NamedConfig

V2, V3, N5 = (
    ChunkKeyEncoding("", ".", "0"),
    ChunkKeyEncoding("c/", "/", "c"),
    ChunkKeyEncoding("", "/", "0", reverse=True),
)
LITTLE, BIG = NamedConfig("bytes", {"endian": "little"}), NamedConfig("bytes", {"endian": "big"})
GZIP, GZIP_9 = NamedConfig("gzip", {"level": 5}), NamedConfig("gzip", {"level": 9})
CRC = NamedConfig("crc32c")
TRANSPOSE = NamedConfig("transpose", {"order": [1, 0]})
IDENTITY = NamedConfig("transpose", {"order": [0, 1]})
DELTA = NamedConfig("numcodecs.delta", {"dtype": "<i4", "astype": "<i4"})
DELTA_2 = NamedConfig("numcodecs.delta", {"dtype": "<i4", "astype": "<i2"})


def named(codec):
    return {"name": codec.name, "configuration": dict(codec.configuration)}


def shards(chunk_shape, *codecs, location="end"):
    index = [named(LITTLE), named(CRC)]
    configuration = {"chunk_shape": list(chunk_shape), "codecs": [named(c) for c in codecs]}
    return NamedConfig("sharding_indexed", {**configuration, "index_codecs": index, "index_location": location})


def metadata(*codecs, shape=(7, 5), chunks=(3, 2), dtype="i4", fill=0, keys=V2, edge="padded"):
    dtype = np.dtype(dtype)
    fill = None if fill is None else dtype.type(fill)
    return ArrayMetadata(dtype, ChunkGrid.regular(shape, chunks), keys, tuple(codecs), fill, edge)


def n5(*codecs, **kwargs):
    block = NamedConfig("n5_block", {"codecs": [named(codec) for codec in codecs]})
    return metadata(block, keys=N5, edge="truncated", **kwargs)


def plan(source, target, **kwargs):
    return choose_action(source, target, max_bytes=1 << 20, max_keys=100, **kwargs)


SHARDED = shards((3, 2), LITTLE, GZIP)

CASES = {
    "same chain": (metadata(LITTLE, GZIP), metadata(LITTLE, GZIP, keys=V3), {"copy": 9}),
    "levels steer encoding only": (metadata(LITTLE, GZIP), metadata(LITTLE, GZIP_9), {"copy": 9}),
    "two names of one codec": (
        metadata(LITTLE, NamedConfig("numcodecs.zstd", {"level": 1})),
        metadata(LITTLE, NamedConfig("zstd", {"level": 3, "checksum": False})),
        {"copy": 9},
    ),
    "filters decide what is decoded": (metadata(DELTA, LITTLE), metadata(DELTA_2, LITTLE), {"recode": 9}),
    "byte order": (metadata(LITTLE), metadata(BIG), {"recode": 9}),
    "one byte has no order": (metadata(NamedConfig("bytes"), dtype="u1"), metadata(BIG, dtype="u1"), {"copy": 9}),
    "layout": (metadata(TRANSPOSE, LITTLE), metadata(LITTLE), {"recode": 9}),
    "a transpose that does nothing": (metadata(IDENTITY, LITTLE), metadata(LITTLE), {"copy": 9}),
    "two transposes that undo each other": (metadata(TRANSPOSE, TRANSPOSE, LITTLE), metadata(LITTLE), {"copy": 9}),
    "other chunks": (metadata(LITTLE), metadata(LITTLE, chunks=(4, 5)), {"rechunk": 2}),
    "chunks that overhang alike are not the same": (
        metadata(LITTLE, shape=(5, 5), chunks=(5, 5)),
        metadata(LITTLE, shape=(5, 5), chunks=(8, 5)),
        {"rechunk": 1},
    ),
    "from n5": (n5(BIG, GZIP), metadata(BIG, GZIP), {"reframe": 4, "recode": 5}),
    "from n5, nothing cropped": (n5(BIG, GZIP, shape=(6, 4)), metadata(BIG, GZIP, shape=(6, 4)), {"reframe": 4}),
    "to n5": (metadata(BIG, GZIP), n5(BIG, GZIP), {"reframe": 4, "recode": 5}),
    "to n5, other byte order": (metadata(LITTLE, GZIP), n5(BIG, GZIP), {"recode": 9}),
    "n5 to n5": (n5(BIG, GZIP), n5(BIG, GZIP_9), {"copy": 9}),
    "n5's lz4 is framed otherwise": (
        n5(BIG, NamedConfig("n5_lz4", {"blockSize": 65536})),
        metadata(BIG, NamedConfig("numcodecs.lz4", {"acceleration": 1})),
        {"recode": 9},
    ),
    "checksum comes off": (metadata(LITTLE, GZIP, CRC), metadata(LITTLE, GZIP), {"reframe": 9}),
    "checksum goes around": (metadata(LITTLE), metadata(LITTLE, CRC), {"reframe": 9}),
    "into shards": (metadata(LITTLE, GZIP), metadata(SHARDED, chunks=(6, 4)), {"repack": 9}),
    "out of shards": (metadata(SHARDED, chunks=(6, 4)), metadata(LITTLE, GZIP), {"repack": 9}),
    "other shards": (metadata(SHARDED, chunks=(6, 4)), metadata(SHARDED, chunks=(3, 6)), {"repack": 9}),
    "the same shards": (metadata(SHARDED, chunks=(6, 4)), metadata(SHARDED, chunks=(6, 4)), {"copy": 4}),
    "index elsewhere": (
        metadata(SHARDED, chunks=(6, 4)),
        metadata(shards((3, 2), LITTLE, GZIP, location="start"), chunks=(6, 4)),
        {"repack": 9},
    ),
    "n5 into shards": (n5(BIG, GZIP), metadata(shards((3, 2), BIG, GZIP), chunks=(6, 4)), {"repack": 4, "recode": 5}),
    "shards of other codecs": (metadata(LITTLE), metadata(SHARDED, chunks=(6, 4)), {"recode": 9}),
    "shards of other chunks": (metadata(LITTLE, chunks=(2, 2)), metadata(SHARDED, chunks=(6, 4)), {"rechunk": 4}),
    "a shard's transpose is the chunks'": (
        metadata(TRANSPOSE, LITTLE),
        metadata(TRANSPOSE, shards((2, 3), LITTLE), chunks=(6, 4)),
        {"repack": 9},
    ),
    "compressed shards are opaque": (
        metadata(SHARDED, GZIP, chunks=(6, 4)),
        metadata(SHARDED, GZIP, chunks=(6, 4)),
        {"copy": 4},
    ),
    "no elements": (metadata(LITTLE, shape=(0, 5)), metadata(LITTLE, shape=(0, 5)), {"copy": 0}),
    "no axes": (metadata(LITTLE, shape=(), chunks=()), metadata(LITTLE, shape=(), chunks=(), keys=V3), {"copy": 1}),
}


@cases("case", CASES)
def test_action(case):
    source, target, actions = CASES[case]
    planned = plan(source, target)
    assert planned.counts == actions
    assert planned.name == next(iter(actions))
    assert planned.reason


def test_given_codecs_are_kept_to_the_letter():
    same, other = metadata(LITTLE, GZIP), metadata(LITTLE, GZIP_9)
    assert plan(same, other, exact=True).name == "recode"
    assert plan(same, same, exact=True).name == "copy"


@cases(
    ("old", "new", "same"),
    [
        (metadata(LITTLE, fill=None), metadata(LITTLE, fill=0), True),
        (metadata(LITTLE, fill=1), metadata(LITTLE, fill=0), False),
        (metadata(LITTLE, dtype="f4", fill=-0.0), metadata(LITTLE, dtype="f4", fill=0.0), False),
        (metadata(LITTLE, dtype="f4", fill=np.nan), metadata(LITTLE, dtype="f4", fill=np.nan), True),
    ],
)
def test_fill_values_are_compared_by_bits(old, new, same):
    assert same_fill(old, new) is same
    assert plan(old, new).materialize is not same


def test_another_fill_value_opens_shards():
    target = metadata(SHARDED, chunks=(6, 4), fill=1)  # chunks missing in a shard read as another value
    assert plan(metadata(SHARDED, chunks=(6, 4)), target).counts == {"repack": 9}
    assert plan(metadata(LITTLE), metadata(LITTLE, fill=1)).counts == {"copy": 9}
    opaque = metadata(SHARDED, GZIP, chunks=(6, 4))
    assert plan(opaque, metadata(SHARDED, GZIP, chunks=(6, 4), fill=1)).counts == {"recode": 4}


SMALL, LARGE = ChunkGrid.regular((60, 60), (5, 6)), ChunkGrid.regular((60, 60), (10, 12))

GROUPS = [
    (SMALL, SMALL, 10_000, 100, (10, 10)),  # everything fits
    (SMALL, SMALL, 10_000, 7, (1, 7)),  # the last axis first
    (SMALL, SMALL, 100, 100, (1, 3)),  # 30 bytes each
    (SMALL, SMALL, 1, 1, (1, 1)),  # at least one
    (LARGE, SMALL, 1_000, 100, (2, 10)),  # whole source chunks
    (LARGE, SMALL, 1_000, 1, (2, 2)),  # though that be more keys than were wanted
    (LARGE, SMALL, 100, 100, (1, 2)),  # as far as bytes allow
    (SMALL, LARGE, 1_000, 100, (1, 5)),
]


@cases(("old", "new", "max_bytes", "max_keys", "group"), GROUPS)
def test_groups(old, new, max_bytes, max_keys, group):
    layouts = InnerLayout(old, old, ()), InnerLayout(new, new, ())
    assert group_keys(*layouts, 1, max_bytes=max_bytes, max_keys=max_keys) == group


def test_shards_are_read_whole_though_tasks_be_small():
    layouts = InnerLayout(LARGE, LARGE, ()), InnerLayout(SMALL, SMALL, ())
    assert group_keys(*layouts, 1, max_bytes=1, max_keys=1, align_bytes=200) == (2, 2)
    assert group_keys(*layouts, 1, max_bytes=1, max_keys=1, align_bytes=100) == (1, 2)
