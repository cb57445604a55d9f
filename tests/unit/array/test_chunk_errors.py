"""A chunk that fails says which store, which key, which chunk and at which step, wherever the failure happens and is seen."""

import pickle

import dask.array as da
import numcodecs
import numpy as np
import pytest
from distributed.core import error_message
from support.arrays import filled
from support.cases import cases
from support.recording import FailingStore

import chunkmill as cm
from chunkmill.errors import ChunkError, NodeNotFound, StoreError
from chunkmill.nodes.array import Array
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore


def flip(at):
    """Flip a bit of the value; `at` counts from the end when negative."""

    def change(value):
        changed = bytearray(value)
        changed[at] ^= 0x10
        return bytes(changed)

    return change


def cut(n):
    return lambda value: value[:-n]


CAUSES = {
    "gzip, no such stream": "gzip", "gzip, cut": "ended|truncated|incomplete|unexpected end|end-of-stream",
    "crc32c": "[0-9a-f]{6}", "bytes, short": "31 bytes, expected 32", "n5, raw and short": "30 bytes, expected 32",
    "lz4": "2147483647",
}  # fmt: skip


# what is wrong with the chunk -> format, codecs and other options, what happens to its bytes, the step that must be named
BROKEN = {
    "bytes, short": ("zarr3", {"codecs": "raw"}, cut(1), "bytes"),
    "bytes, long": ("zarr2", {"codecs": "raw"}, lambda v: v + bytes(4), "bytes"),
    "gzip, cut": ("zarr3", {"codecs": "gzip"}, cut(9), "gzip"),
    "gzip, no such stream": ("zarr3-draft", {"codecs": "gzip"}, lambda _: b"not gzip", "gzip"),
    "zstd, cut": ("zarr3", {"codecs": "zstd"}, cut(4), "zstd"),
    "blosc, cut": ("zarr3", {"codecs": "blosc"}, cut(4), "blosc"),
    "crc32c": ("zarr3", {"codecs": ["crc32c"]}, flip(3), "crc32c"),
    "zlib": ("zarr2", {"codecs": numcodecs.Zlib(1)}, flip(-1), "numcodecs.zlib"),
    "lz4": ("zarr2", {"codecs": numcodecs.LZ4()}, lambda v: b"\xff\xff\xff\x7f" + v[4:], "numcodecs.lz4"),
    "vlen-utf8": ("zarr3", {"dtype": str, "codecs": [{"name": "vlen-utf8"}]}, cut(1), "vlen-utf8"),
    "sharding, its index": ("zarr3", {"shards": (4, 4), "codecs": "raw"}, flip(-9), "sharding_indexed"),
    "sharding, an inner chunk": ("zarr3", {"shards": (4, 4), "codecs": "gzip"}, flip(14), "gzip"),
    "n5, no header": ("n5", {"codecs": "gzip"}, lambda v: v[:5], "n5_block"),
    "n5, gzip": ("n5", {"codecs": "gzip"}, cut(9), "gzip"),
    "n5, dimensions": ("n5", {"codecs": "raw"}, flip(3), "n5_block"),
    "n5, lz4": ("n5", {"codecs": numcodecs.LZ4()}, flip(-30), "n5_lz4"),
    "n5, raw and short": ("n5", {"codecs": "raw"}, cut(2), "bytes"),
}  # fmt: skip


VALUES = np.arange(1, 65).reshape(8, 8)


def broken(store, name, path="a/b"):
    """Write an array, break the chunk that is last in both axes, and return the array, its key, its coords and the step."""
    fmt, options, change, step = BROKEN[name]
    options = {"dtype": "i4", "chunks": (2, 4)} | options
    values = VALUES.astype(str) if options["dtype"] is str else VALUES
    array = filled(values, store, path, format=fmt, **options)
    coords = (1, 1) if array.shards else (3, 1)
    key = array.write_layout.locator.key(coords)
    array.store.set(key, change(array.store.get(key)))
    return array, key, coords, step


def check(error, array, key, coords, step):
    """`coords` are those of the store key; inner chunks of a shard have their own."""
    assert isinstance(error, ChunkError)
    assert isinstance(error, RuntimeError)
    assert error.url == array.url
    assert error.key == key
    assert error.step == step
    if array.shards is None:
        assert error.coords == coords
    text = str(error)
    assert all(part in text for part in (array.url, repr(key), str(error.coords), repr(step)))
    assert error.reason
    assert error.reason in text


@cases("name", BROKEN)
def test_wherever_it_is_met_it_says_all(name):
    """And changes nothing: what cannot be decoded cannot be changed in part, but is mended by writing the whole chunk."""
    array, key, *where = broken(MemoryStore(), name)
    before = array.store.get(key)
    for meet in (
        lambda: array[...],
        lambda: array[(4, 4) if array.shards else (7, 7)],  # the broken inner chunk is the first of its shard
        lambda: array.to_dask().compute(scheduler="threads"),
        lambda: array.__setitem__((-1, -1), array.dtype.type(5)),
    ):
        with pytest.raises(ChunkError, match=f"(?is){CAUSES.get(name, '')}") as caught:
            meet()
        assert str(caught.value.__cause__)
        check(caught.value, array, key, *where)
        check(pickle.loads(pickle.dumps(caught.value)), array, key, *where)
    error_message(caught.value)  # from here on pickles hold causes and contexts too: distributed sees to it
    check(pickle.loads(pickle.dumps(caught.value)), array, key, *where)
    assert array.store.get(key) == before
    assert array[0, 0] in {1, "1"}  # the other chunks are well
    array[4:, 4:] = VALUES[4:, 4:].astype(str) if array.dtype.kind == "T" else VALUES[4:, 4:]
    np.testing.assert_array_equal(np.asarray(array[...]).astype(int), VALUES)


# ----------------------------------------------------------------------------------------------------------------------
# Stores that fail


RAW = {"dtype": "i4", "chunks": (2, 4), "codecs": "raw"}


READS = [
    lambda array: array[...], lambda array: array[0:2, 0:4], lambda array: array[3, 3], lambda array: array[:, 5],
    lambda array: array.to_dask().compute(scheduler="threads"),
]  # fmt: skip


@cases("options", [{}, {"shards": (4, 4)}])
def test_get(options):
    below = MemoryStore()
    filled(VALUES, below, "a", **RAW | options)
    stored = cm.open_array(below, "a").stored
    array = Array(stored.with_store(FailingStore(below, 1, ("get",), reason="the wire is cut")))
    for read in READS:
        with pytest.raises(ChunkError, match="the wire is cut") as caught:
            read(array)
        error = caught.value
        assert (error.step, error.url) == ("get", below.url)
        assert error.key in set(below.list_prefix("a/"))
        assert error.key == array.write_layout.locator.key(error.coords) or array.shards
        assert isinstance(error.__cause__, StoreError)
        assert error.__cause__.errno is not None
    with pytest.raises(ChunkError) as caught:  # the second of those that are asked for at once
        Array(stored.with_store(FailingStore(below, 2, ("get",))))[1:7, 1:3]
    assert (caught.value.step, caught.value.key) == ("get", "a/c/1/0")


WRITES = {
    "set": (lambda array: array.__setitem__((slice(0, 2), slice(0, 4)), 7), "set", "set"),
    "set_if": (lambda array: array.__setitem__((0, 0), 7), "set_if", "set"),
    "get_versioned": (lambda array: array.__setitem__((0, 0), 7), "get_versioned", "get"),
    "delete": (lambda array: array.__setitem__((slice(0, 2), slice(0, 4)), 0), "delete", "set"),
    "store": (lambda array: cm.store(da.ones((8, 8), dtype="i4", chunks=4), array), "set", "set"),
}


@cases("how", WRITES)
def test_set(how):
    write, method, step = WRITES[how]
    below = MemoryStore()
    array = filled(VALUES, below, "a", **RAW)
    array = Array(array.stored.with_store(FailingStore(below, 1, (method,), reason="disk full")))
    with pytest.raises(ChunkError, match="disk full") as caught:
        write(array)
    assert caught.value.step == step
    assert caught.value.url == below.url
    assert caught.value.key == array.write_layout.locator.key(caught.value.coords)
    assert isinstance(caught.value.__cause__, StoreError)


def test_documents():
    """A store that fails under a document is a `StoreError` that names the key, not a missing node."""
    below = MemoryStore()
    filled(VALUES, below, "a", **RAW)
    with pytest.raises(StoreError, match=r"zarr\.json") as caught:
        cm.open(FailingStore(below, 1, ("get",)), "a")
    assert not isinstance(caught.value, NodeNotFound)
    with pytest.raises(StoreError, match=r"zarr\.json"):
        cm.create_array(FailingStore(below, 1, ("set", "set_if"), times=1), "b", shape=(2,), dtype="i4", chunks=(1,))


def test_present_but_unreadable_is_not_absent(tmp_path):
    """A link to itself is there, and cannot be read: no fill value."""
    array = filled(VALUES, LocalStore(tmp_path), "a", **RAW)
    chunk = tmp_path / "a" / "c" / "0" / "0"
    chunk.unlink()
    chunk.symlink_to(chunk)
    with pytest.raises(ChunkError) as caught:
        array[0, 0]
    assert (caught.value.key, caught.value.coords, caught.value.step) == ("a/c/0/0", (0, 0), "get")


TEXTS = {
    "one for all": ("U4", "cdefg"), "objects": ("U4", np.array(["ab", "cdefg"], object)),
    "bytes": ("S4", [b"ab", b"cdefg"]),
}  # fmt: skip


@cases(("dtype", "values"), TEXTS.values())
def test_text_is_never_cut(dtype, values):
    array = cm.create_array(MemoryStore(), shape=(2,), dtype=dtype, chunks=(1,))
    with pytest.raises(ValueError, match=r"5 characters, as .*cdefg"):
        array[...] = values
    x = da.from_array(np.broadcast_to(np.asarray(values), (2,)), chunks=2)
    with pytest.raises(ValueError, match=r"5 characters, as .*cdefg"):
        cm.store(x, array)
    short = array.dtype.type("abcd" if dtype == "U4" else b"abcd")
    array[0] = short
    cm.store(da.full((1,), short, dtype="U9" if dtype == "U4" else "S9"), array, regions=(slice(1, 2),))
    assert list(array[...]) == [short, short]


def test_encoding_names_the_codec():
    text = cm.create_array(MemoryStore(), shape=(2,), dtype="O", codecs=[numcodecs.JSON()], format="zarr2")
    with pytest.raises(ChunkError) as caught:
        text[...] = np.array([{1, 2}, object()], dtype=object)
    assert (caught.value.step, caught.value.coords) == ("numcodecs.json2", (0,))
    assert "encode" in str(caught.value) or "JSON" in str(caught.value)
