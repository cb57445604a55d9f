"""zarr-python's own tests of stores, on the store that shows nodes: all that a store for reading only can pass.

Left out are those that write through the store: they make keys that no node has. Keys and values of that kind are
skipped in the others.
"""

import asyncio
import functools
import inspect
import re

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore
from chunkmill.zarr_python.zarr_store import zarr_store

zarr = pytest.importorskip("zarr")
pytest.importorskip("zarr.storage")
from zarr.core.buffer import cpu  # noqa: E402
from zarr.core.sync import sync  # noqa: E402
from zarr.testing.store import StoreTests  # noqa: E402

from chunkmill.zarr_python.view import NodeStore  # noqa: E402

REFUSALS = {"test_read_only_store_raises"}
_WRITES = re.compile(
    r"store\w*\.(set|_set_many|delete\w*|clear|set_if_not_exists)\(|(set|delete)ter|assert not store\.read_only"
)
_CHUNK = re.compile(r"c((?:/\d+)+)")


def _run(test):
    @functools.wraps(test)
    def run(*args, **options):
        asyncio.run(test(*args, **options))

    return run


class ReadTests(StoreTests[NodeStore, cpu.Buffer]):
    """Their tests; ``format_`` is that of the node, and those that run say so in ``ran``."""

    store_cls = NodeStore
    buffer_cls = cpu.Buffer
    format_: str

    @pytest.fixture
    def store_kwargs(self):
        below = MemoryStore()
        array = cm.create_array(below, shape=(40,), dtype="u1", chunks=(4,), format=self.format_, codecs="raw")
        return {"node": array.stored}

    @pytest.fixture
    def store(self, store_kwargs):
        return sync(NodeStore.open(**store_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        return NodeStore(**store_kwargs)

    async def set(self, store, key, value):
        """Store a chunk in the node, which gets the axes and the chunk length that this takes."""
        data = value.to_bytes()
        if key == "zarr.json" and data == b"zarr.json":  # a test that compares two ways of reading it
            return
        if (match := _CHUNK.fullmatch(key)) is None or not data:
            pytest.skip("no node has such a key or value")
        coords = tuple(map(int, match[1].split("/")[1:]))
        chunks = (1,) * (len(coords) - 1) + (len(data),)
        array = store._node
        if array.chunks != chunks:
            shape = tuple(10 * n for n in chunks)
            options = {"dtype": "u1", "chunks": chunks, "format": self.format_, "codecs": "raw", "overwrite": True}
            array = cm.create_array(array.store, shape=shape, fill_value=0, **options).stored
            store._node = array
            store._found.clear()
        region = tuple(slice(i * n, (i + 1) * n) for i, n in zip(coords, chunks, strict=True))
        cm.open_array(array.store, mode="r+")[region] = np.frombuffer(data, "u1").reshape(chunks)

    async def get(self, store, key):
        raise NotImplementedError  # it is asked after writing alone

    def test_store_repr(self, store):
        assert repr(store) == f"NodeStore('{store}')"

    def test_store_supports_writes(self, store):
        assert store.supports_writes
        assert store.supports_deletes

    def test_store_supports_listing(self, store):
        assert store.supports_listing

    test_is_empty = None  # begins with an empty store: no node is one
    test_with_read_only_store = None  # writes keys that no node has


RUN = [
    name
    for name, test in inspect.getmembers(ReadTests, inspect.isfunction)
    if name.startswith("test_") and (name in REFUSALS or not _WRITES.search(inspect.getsource(test)))
]


def _tests_of(format_):
    every = {name: getattr(ReadTests, name) for name in dir(ReadTests) if name.startswith("test_")}
    run = {name: _run(test) if inspect.iscoroutinefunction(test) else test for name, test in every.items()}
    return type(f"Test_{format_}", (ReadTests,), {"format_": format_} | {n: run[n] if n in RUN else None for n in run})


TestZarr3, TestN5 = map(_tests_of, ["zarr3", "n5"])


def test_most_of_what_reads_is_run():
    assert REFUSALS.issubset(RUN)
    assert {"test_get", "test_getsize", "test_get_partial_values", "test_get_raises", "test_store_eq"}.issubset(RUN)
    assert len(RUN) >= 20


@pytest.fixture
def shown(tmp_path):
    """Return a hierarchy as it is shown, and as zarr-python shows it itself."""
    cm.to_store(np.arange(70).reshape(7, 10), tmp_path / "x", "g/a", chunks=(3, 4))
    cm.to_store(np.arange(70).reshape(7, 10), tmp_path / "x", "g/sharded", chunks=(3, 4), shards=(6, 8))
    cm.to_store(np.array(7.5), tmp_path / "x", "scalar")
    sparse = cm.create_array(tmp_path / "x", "g/h/sparse", shape=(100,), dtype="i4", chunks=(10,))
    sparse[50:60] = 1
    cm.create_group(tmp_path / "x", "empty")
    return zarr_store(tmp_path / "x"), zarr.storage.LocalStore(tmp_path / "x", read_only=True)


async def _listed(listing):
    return sorted([each async for each in listing])


@pytest.mark.parametrize(
    "prefix", ["", "g", "g/", "g/a", "g/a/", "g/a/c/1", "g/a/c/1/", "g/h/sparse/", "scalar", "empty/c", "no", "g/ax"]
)
def test_keys_are_those_of_zarr_python(shown, prefix):
    ours, theirs = shown
    for method in ("list_prefix", "list_dir"):
        if method == "list_dir" or not prefix or prefix.endswith("/"):  # a LocalStore takes others for folders
            found = [sync(_listed(getattr(store, method)(prefix))) for store in (ours, theirs)]
            assert found[0] == found[1], method
    assert sync(ours.is_empty(prefix)) == sync(theirs.is_empty(prefix))


def test_values_are_those_of_zarr_python(shown):
    ours, theirs = shown
    keys = sync(_listed(theirs.list()))
    assert sync(_listed(ours.list())) == keys
    for key in [*keys, "g/c/0", "g/a/c/9/9", "x/zarr.json"]:
        assert sync(ours.exists(key)) == sync(theirs.exists(key))
        if not key.endswith("zarr.json") and sync(theirs.exists(key)):
            assert sync(ours.getsize(key)) == sync(theirs.getsize(key))
            assert sync(ours.get(key)).to_bytes() == sync(theirs.get(key)).to_bytes()


def test_what_is_written_later_is_found(shown, tmp_path):
    ours, _ = shown
    assert not sync(ours.exists("late/zarr.json"))
    cm.to_store(np.arange(3), tmp_path / "x", "late")
    assert zarr.open_array(ours, path="late", mode="r")[:].tolist() == [0, 1, 2]
