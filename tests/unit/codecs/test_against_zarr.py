"""Codecs that are given as objects of zarr-python; what it decodes and encodes, golden stores and their copies hold."""

import numcodecs
import numpy as np
import pytest

from chunkmill.codecs.registry import parse_codecs
from chunkmill.errors import MetadataError

zarr = pytest.importorskip("zarr")


def test_what_zarrs_codec_takes_from_the_dtype_is_taken_from_it():
    given = zarr.codecs.BloscCodec(cname="lz4")
    written = zarr.create_array({}, shape=(4,), dtype="i4", compressors=given).metadata.to_dict()["codecs"][-1]
    (_, blosc) = parse_codecs(given, np.dtype("i4"))
    assert {"name": blosc.name, "configuration": blosc.configuration} == written


def test_objects_are_taken_for_what_they_write():
    shards = zarr.codecs.ShardingCodec(chunk_shape=(2, 2), codecs=[zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()])
    given = [zarr.codecs.TransposeCodec(order=(1, 0)), shards, zarr.codecs.Crc32cCodec()]
    found = parse_codecs(given, np.dtype("i4"))
    assert [codec.name for codec in found] == ["transpose", "sharding_indexed", "crc32c"]
    inner = found[1].configuration
    assert (list(inner["chunk_shape"]), [each["name"] for each in inner["codecs"]]) == ([2, 2], ["bytes", "zstd"])


def test_a_class_is_no_codec(subtests):
    for kind in (zarr.codecs.ZstdCodec, numcodecs.Zstd):
        with subtests.test(kind.__module__), pytest.raises(MetadataError, match="expected a name"):
            parse_codecs(kind, np.dtype("i4"))
