"""The tables of what other readers lack, which interop tests measure where those programs are there."""

import dask
import numpy as np
import pytest
from contracts.codec_contract import BIG, LITTLE, codec
from support.cases import cases

import chunkmill as cm
from chunkmill.formats.peers import is_specified, lacking, portable_chain, readers_text
from chunkmill.model.metadata import NamedConfig
from chunkmill.stores.memory import MemoryStore

BOTH = ("TensorStore", "zarrs")
ALL = ("zarr-python 3.1", *BOTH)
POINT = np.dtype([("x", "<i2")])
SHARD = codec("sharding_indexed", chunk_shape=[2], codecs=["bytes", "numcodecs.bz2"])


@cases(
    ("format", "dtype", "codecs", "expected"),
    [
        ("zarr3", "i4", "default", {}), ("zarr3", "i4", ["numcodecs.zlib"], {"numcodecs.zlib": ("TensorStore",)}),
        ("zarr2", "i4", ["numcodecs.zlib"], {}), ("zarr2", "i4", ["crc32c"], {"crc32c": BOTH}), ("zarr3", "i4", ["crc32c"], {}),
        ("zarr2", "i4", ["numcodecs.lz4"], {"numcodecs.lz4": BOTH}), ("n5", "i4", ["n5_lz4"], {}),
        ("zarr3", "i4", [codec("bitround", keepbits=3)], {"bitround": ALL[:2]}),
        ("zarr3", "u1", [SHARD], {"numcodecs.bz2": ("TensorStore",)}),
        ("zarr3", "M8[s]", "raw", {"text, bytes and times": BOTH}), ("zarr2", object, ["vlen-bytes"], {"objects": BOTH}),
        ("zarr2", POINT, "raw", {"structured types": BOTH}), ("zarr3", POINT, "raw", {"structured types": ALL}),
        ("zarr3", "V3", "raw", {"|V3": ALL}), ("zarr2", "V3", "raw", {"|V3": BOTH}),
    ],
)  # fmt: skip
def test_what_others_lack(format, dtype, codecs, expected):  # noqa: A002
    array = cm.create_array(MemoryStore(), shape=4, chunks=4, dtype=dtype, codecs=codecs, format=format)
    assert lacking(array.metadata, format) == expected
    avoided = any("." in what or what in {"crc32c", "bitround"} for what in expected)
    words = "".join(f"{', '.join(peers)} ({what} of '/'" for what, peers in expected.items())
    text = readers_text([("", array.metadata)], format)
    assert (text[: len(words)], text.endswith("; codecs='portable' avoids it)")) == (words, avoided)
    named = format == "zarr3" and any(name.startswith("numcodecs.") for name in expected)
    assert is_specified(array.metadata, format) is not named


@cases(
    ("layout", "peers"),
    [(LITTLE, BOTH), (BIG, ALL), (codec("sharding_indexed", chunk_shape=[2], codecs=[LITTLE]), ALL)],
)
def test_structured_types_as_zarr_python_has_them(layout, peers):
    with dask.config.set({"chunkmill.struct-name": "structured"}):
        metadata = cm.create_array(MemoryStore(), shape=4, chunks=4, dtype=POINT, codecs=[layout]).metadata
    assert lacking(metadata, "zarr3") == {"structured types": peers}
    text = readers_text([("a", metadata), ("b", metadata)], "zarr3")
    assert ("and 1 more" in text, "struct-name" in text, "portable" in text) == (True, peers == ALL, False)


@pytest.mark.parametrize(
    ("format", "names", "expected"),
    [
        ("zarr3", ["bytes", "crc32c"], ["bytes", "crc32c"]), ("zarr2", ["bytes", "crc32c"], ["bytes", "zstd"]),
        ("zarr2", ["bytes", "numcodecs.zlib"], ["bytes", "numcodecs.zlib"]), ("n5", ["bytes", "zstd"], ["bytes", "gzip"]),
        ("zarr3", ["numcodecs.delta", "bytes", "numcodecs.zlib"], ["bytes", "zstd"]),
        ("n5", ["transpose", "bytes", "numcodecs.bz2"], ["transpose", "bytes", "numcodecs.bz2"]),
    ],
)  # fmt: skip
def test_portable_chains(format, names, expected):  # noqa: A002
    chain = portable_chain([NamedConfig(name) for name in names], format)
    assert [codec.name for codec in chain] == expected
    best = {"zstd": {"level": 3, "checksum": False}, "gzip": {"level": 6}}
    assert all(codec.configuration == best[codec.name] for codec in chain if codec.name not in names)
