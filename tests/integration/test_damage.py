"""What is damaged is named in the same words on every store: the store, the key, the chunk and the step."""

import multiprocessing
import os
import shutil
import zipfile

import numpy as np
import pytest
from support.servers import WARNINGS, http_server, s3_server  # noqa: F401

import chunkmill as cm
from chunkmill.errors import ChunkError, StoreError
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = WARNINGS

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
CODECS = [BYTES, {"name": "crc32c"}]
VALUES = np.arange(1, 65, dtype="i4").reshape(8, 8)


def flip(value):
    return value[:5] + bytes([value[5] ^ 1]) + value[6:]


DAMAGE = {
    "a bit flipped": (flip, "crc32c"),
    "cut": (lambda value: value[:-3], "crc32c"),
    "emptied": (lambda _: b"", "crc32c"),
    "longer": (lambda value: value + b"\0\0\0\0", "crc32c"),
}


class Memory:
    """Values by key in this process."""

    def __init__(self, *_):
        self.store = MemoryStore()

    def opened(self):
        return cm.open_array(self.store, "a/b")

    def change(self, key, change):
        self.store.set(key, change(self.store.get(key)))


class Local(Memory):
    def __init__(self, folder, *_):
        self.folder = folder / "x.zarr"
        self.store = LocalStore(self.folder)


class Zip(Local):
    """A zip file made of the same files."""

    def opened(self):
        url = self.folder.with_suffix(".zip")
        url.unlink(missing_ok=True)
        with zipfile.ZipFile(url, "w") as archive:
            for path in sorted(p for p in self.folder.rglob("*") if p.is_file()):
                archive.write(path, path.relative_to(self.folder).as_posix())
        return cm.open_array(str(url), "a/b")


class Http(Local):
    def __init__(self, folder, server, _):
        super().__init__(server.folder)
        self.url = f"{server.url}/x.zarr"

    def opened(self):
        return cm.open_array(self.url, "a/b")


class S3(Memory):
    def __init__(self, _, __, server):
        options = {"storage_options": server.storage_options}
        self.store = cm.create_group(f"{server.new_bucket()}/x.zarr", **options).store


class References(Local):
    """A reference set that points into the same files, made before they are damaged."""

    name = "refs.json"

    def opened(self):
        target = self.folder.with_name(self.name)
        if not target.exists():
            cm.to_references((str(self.folder), "a/b"), str(target))
        return cm.open_array(str(target))


class ParquetReferences(References):
    name = "refs.parquet"


PLACES = {each.__name__: each for each in (Memory, Local, Zip, Http, S3, References, ParquetReferences)}


@pytest.fixture(params=PLACES)
def place(request, tmp_path, http_server, s3_server):  # noqa: F811
    made = PLACES[request.param](tmp_path, http_server, s3_server)
    array = cm.create_array(made.store, "a/b", shape=(8, 8), chunks=(2, 4), dtype="i4", codecs=CODECS)
    array[...] = VALUES
    np.testing.assert_array_equal(made.opened()[...], VALUES)
    return made


READS = {
    "whole": lambda array: array[...],
    "element": lambda array: array[7, 7],
    "dask": lambda array: array.to_dask().compute(scheduler="threads"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_chunk(place, how):
    change, step = DAMAGE[how]
    place.change("a/b/c/3/1", change)
    array = place.opened()
    assert array[0, 0] == 1  # the others are well
    if isinstance(place, References) and how == "longer":
        assert array[7, 7] == 64  # the range that is referred to is whole
        return
    for read in READS.values():
        with pytest.raises(ChunkError) as caught:
            read(array)
        error = caught.value
        is_reference = isinstance(place, References)
        assert error.key == ("3.1" if is_reference else "a/b/c/3/1")
        assert error.coords == (3, 1)
        assert error.url == array.url
        # that a range runs past the end of its target, the store knows before any codec
        assert error.step == ("get" if is_reference and how in {"cut", "emptied"} else step)
        assert all(part in str(error) for part in (array.url, repr(error.key), "(3, 1)", repr(error.step)))


def as_nobody(function, *args):
    """Run in a process to which permissions mean something, root's or not; return what it returns."""
    queue = multiprocessing.get_context("fork").SimpleQueue()
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            queue.put(function(*args))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return queue.get()


def caught_by(action):
    try:
        return repr(action())
    except Exception as error:  # noqa: BLE001
        return error


def read(url):
    return caught_by(lambda: cm.open_array(url, "a/b")[...])


@pytest.fixture
def readable(tmp_path):
    """A store that everybody may reach: pytest's own folders are for their owner."""
    folder = tmp_path.parent / f"{tmp_path.name}-shared"
    shared = LocalStore(f"/tmp/chunkmill-{os.getpid()}-{folder.name}/x.zarr")
    array = cm.create_array(shared, "a/b", shape=(8, 8), chunks=(2, 4), dtype="i4", codecs=CODECS)
    array[...] = VALUES
    yield array
    shutil.rmtree(os.path.dirname(shared._root))  # noqa: PTH120


def path_of(array, key):
    return os.path.join(array.store._root, key)  # noqa: PTH118


def test_readable_by_all(readable):
    assert as_nobody(read, readable.url) == repr(VALUES)


@pytest.mark.parametrize("what", ["chunk", "its folder"])
def test_a_chunk_that_may_not_be_read(readable, what):
    """No fill value: it is there."""
    os.chmod(path_of(readable, "a/b/c/3/1" if what == "chunk" else "a/b/c/3"), 0)  # noqa: PTH101
    error = as_nobody(read, readable.url)
    os.chmod(path_of(readable, "a/b/c/3"), 0o755)  # noqa: PTH101
    assert isinstance(error, ChunkError)
    assert error.url == readable.url
    assert error.key in {"a/b/c/3/0", "a/b/c/3/1"}
    assert error.step == "get"
    assert "Permission denied" in str(error)


@pytest.mark.parametrize("key", ["a/b/zarr.json", "a/b"])
def test_a_document_that_may_not_be_read(readable, key):
    """Not: there is no array."""
    os.chmod(path_of(readable, key), 0)  # noqa: PTH101
    error = as_nobody(read, readable.url)
    os.chmod(path_of(readable, key), 0o755)  # noqa: PTH101
    assert isinstance(error, StoreError)
    assert (error.url, error.key) == (readable.url, "a/b/zarr.json")
    assert "Permission denied" in str(error)


def write(url):
    def change():
        cm.open_array(url, "a/b", mode="r+")[7, 7] = 5

    return caught_by(change)


def test_a_chunk_that_may_not_be_written(readable):
    error = as_nobody(write, readable.url)
    assert isinstance(error, ChunkError)
    assert (error.key, error.coords, error.step) == ("a/b/c/3/1", (3, 1), "set")
    assert "Permission denied" in str(error)


def test_a_chunk_in_whose_place_is_a_folder(readable):
    """A prefix is no key, as on object stores: reading finds nothing, writing says what is in the way."""
    os.unlink(path_of(readable, "a/b/c/3/1"))  # noqa: PTH108
    os.mkdir(path_of(readable, "a/b/c/3/1"))  # noqa: PTH102
    assert readable[7, 7] == 0
    for change in (lambda: readable.__setitem__((7, 7), 1), lambda: readable.__setitem__(..., VALUES)):
        with pytest.raises(ChunkError) as caught:
            change()
        assert (caught.value.key, caught.value.coords, caught.value.step) == ("a/b/c/3/1", (3, 1), "set")
        assert "irectory" in str(caught.value)
