"""TensorStore writes blosc with snappy; numcodecs' blosc is built without it."""

import struct
import sys

import numpy as np
import pytest
from contracts.codec_contract import LITTLE, codec, pipeline_of, spec_of
from support.cases import cases
from support.codecs import not_decoded

import chunkmill as cm
from chunkmill.codecs.blosc_snappy import is_snappy, unsnapped
from chunkmill.errors import ChunkError, CodecError


def written(folder, values, shuffle, blocksize=0):
    """Have TensorStore write `values` in one chunk; return its bytes."""
    tensorstore = pytest.importorskip("tensorstore")
    about = {"cname": "snappy", "clevel": 5, "shuffle": shuffle, "typesize": values.itemsize, "blocksize": blocksize}
    grid, chain = codec("regular", chunk_shape=values.shape), [LITTLE, codec("blosc", **about)]
    metadata = {"shape": values.shape, "data_type": values.dtype.name, "chunk_grid": grid, "codecs": chain}
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}, "metadata": metadata, "create": True}
    tensorstore.open(spec).result().write(values).result()
    return (folder / "c" / "0").read_bytes()


def walk(dtype, n):
    steps = np.random.default_rng(0).integers(-2, 3, n)
    return np.cumsum(steps).astype(dtype)


@cases("shuffle", ["noshuffle", "shuffle", "bitshuffle"])
@cases(
    ("dtype", "n", "blocksize"),
    [
        ("<i4", 50_000, 0), ("<f8", 4001, 0), ("<i8", 800, 0), ("<c16", 3000, 0), ("<i4", 30_000, 4096),
        ("<i4", 999, 512),
    ],
)  # fmt: skip
def test_frames_of_tensorstore(tmp_path, shuffle, dtype, n, blocksize):
    values = walk(dtype, n)
    assert is_snappy(written(tmp_path, values, shuffle, blocksize)[2])
    assert cm.open_array(str(tmp_path))[...].tobytes() == values.tobytes()


def frame(*, size=3, block_size=3, start=20, n_bytes=3, typesize=1, data=b"abc", end=None):
    return (struct.pack("<4B5i", 2, 1, 2 << 5 | 16, typesize, size, block_size, 27, start, n_bytes) + data)[:end]


@cases(
    ("wrong", "reason"),
    [
        ({"size": 4}, "a frame of 4 bytes in blocks of 3, expected 3"), ({"block_size": 0}, "in blocks of 0"),
        ({"block_size": 1}, "27 bytes cannot hold 3 blocks"), ({"typesize": 0}, "a frame of 3"),
        ({"start": 15}, "begins outside"), ({"start": 16}, "ends outside"), ({"start": 23}, "ends outside"),
        ({"start": 24}, "begins outside"), ({"n_bytes": 0}, "ends outside"),
        ({"n_bytes": 4}, "ends outside"), ({"end": 19}, "cannot hold 1 blocks"), ({"end": 20}, "begins outside"),
        ({"data": b"\1\0ab", "n_bytes": 4}, "does not hold 3 bytes"),
    ],
)  # fmt: skip
def test_frames_by_hand(wrong, reason):
    """One stored block, and what its header may state wrongly."""
    pytest.importorskip("cramjam")
    assert unsnapped(frame(), np.empty(3, "u1")).tobytes() == b"abc"
    assert unsnapped(frame(size=1, n_bytes=1), np.empty(1, "u1")).tobytes() == b"a"
    with pytest.raises(ValueError, match=reason):
        unsnapped(frame(**wrong), np.empty(3, "u1"))


def test_malformed_frames_are_refused_or_keep_the_shape(tmp_path):
    values = walk("<i4", 3000)
    data, spec = written(tmp_path, values, "shuffle"), spec_of(values)
    pipeline = pipeline_of([LITTLE, "blosc"], spec)
    assert np.array_equal(pipeline.decode(data, spec), values)
    refused = 0
    for i in range(0, len(data), 7):
        for bits in (0xFF, 0x80, 1):
            broken = bytearray(data)
            broken[i] ^= bits
            try:
                assert pipeline.decode(bytes(broken), spec).shape == values.shape
            except CodecError:
                refused += 1
    assert refused > 20
    for end in (0, 15, 16, 20, len(data) - 1):
        not_decoded([LITTLE, "blosc"], data[:end], spec)


def test_it_is_not_written_and_without_the_package_not_read(tmp_path, monkeypatch):
    written(tmp_path, walk("<i4", 3000), "shuffle")
    with pytest.raises(ChunkError, match="snappy"):
        cm.open_array(str(tmp_path), mode="r+")[:10] = 1
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(ChunkError, match="cramjam"):
        cm.open_array(str(tmp_path))[...]
