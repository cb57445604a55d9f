"""zarr-python 3 decodes what we encode, and we what it encodes, in memory."""

import asyncio
import warnings

import numcodecs
import numpy as np
import pytest
from contracts.codec_contract import same
from support.cases import cases

from chunkmill.codecs.base import ChunkSpec
from chunkmill.codecs.registry import build_pipeline, parse_codecs, sharded
from chunkmill.errors import MetadataError

zarr = pytest.importorskip("zarr")

ARRAY = (np.arange(64).reshape(4, 4, 4) % 50).astype("i4")
F8 = ARRAY.astype("f8")
CASES = [
    pytest.param(ARRAY, ["blosc", "crc32c", "gzip"], id="three"),
    pytest.param(F8, {"name": "numcodecs.fixedscaleoffset", "configuration": {"offset": 0, "scale": 10, "dtype": "<f8", "astype": "<i4"}}, id="fixedscaleoffset"),
    pytest.param(ARRAY, zarr.codecs.ZstdCodec(level=5), id="object"),
    pytest.param(ARRAY, ["bytes", zarr.codecs.GzipCodec(level=2), zarr.codecs.Crc32cCodec()], id="name and objects"),
    pytest.param(ARRAY, [zarr.codecs.TransposeCodec(order=(2, 0, 1)), zarr.codecs.BytesCodec(endian="big"), zarr.codecs.BloscCodec()], id="objects"),
    pytest.param(ARRAY, zarr.codecs.ShardingCodec(chunk_shape=(2, 2, 2), codecs=[zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()]), id="shards"),
    pytest.param(ARRAY.astype(str).astype(np.dtypes.StringDType()), "zstd", id="strings"),
]  # fmt: skip


def write_with_zarr(array, chain):
    """Return the bytes of the one store key that `array` makes under `chain`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = {}
        metadata = {
            "zarr_format": 3, "node_type": "array", "shape": list(array.shape),
            "data_type": "string" if array.dtype.kind == "T" else array.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(array.shape)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": "" if array.dtype.kind == "T" else False if array.dtype.kind == "b" else 0,
            "codecs": [{"name": codec.name, "configuration": dict(codec.configuration)} for codec in chain], "attributes": {},
        }  # fmt: skip
        target = zarr.Array(
            zarr.AsyncArray(metadata, zarr.storage.StorePath(memory := zarr.storage.MemoryStore(store)))
        )
        target[...] = array
        key = "c/" + "/".join("0" * array.ndim)
        return target, memory, key, store[key].to_bytes()


@cases(("array", "codecs"), CASES)
@cases("in_shards", [False, True])
def test_both_ways(array, codecs, in_shards):
    chain = parse_codecs(codecs, array.dtype, ndim=array.ndim)
    if in_shards:
        chain = (sharded(chain, (2, 2, 2)),)
    spec = ChunkSpec(array.shape, array.dtype, "" if array.dtype.kind == "T" else array.dtype.type(0))
    pipeline = build_pipeline(chain, spec)
    target, memory, key, theirs = write_with_zarr(array, chain)
    assert same(pipeline.decode(theirs, spec), array)
    ours = bytes(pipeline.encode(array, spec))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(memory.set(key, zarr.core.buffer.cpu.Buffer.from_bytes(ours)))
        read = target[...]
    assert read.tolist() == array.tolist()
    if not any(
        codec.name in {"gzip", "numcodecs.zlib"}
        or "gzip" in str(codec.configuration)
        or "zlib" in str(codec.configuration)
        for codec in chain
    ):
        if chain[0].name == "sharding_indexed":
            # zarr-python orders inner chunks along a Morton curve
            assert len(ours) == len(theirs)
        else:
            assert ours == theirs


def test_what_zarrs_codec_takes_from_the_dtype_is_taken_from_it():
    given = zarr.codecs.BloscCodec(cname="lz4")
    written = zarr.create_array({}, shape=(4,), dtype="i4", compressors=given).metadata.to_dict()["codecs"][-1]
    (_, blosc) = parse_codecs(given, np.dtype("i4"))
    assert {"name": blosc.name, "configuration": blosc.configuration} == written


def test_a_class_is_no_codec(subtests):
    for kind in (zarr.codecs.ZstdCodec, numcodecs.Zstd):
        with subtests.test(kind.__module__), pytest.raises(MetadataError, match="expected a name"):
            parse_codecs(kind, np.dtype("i4"))
