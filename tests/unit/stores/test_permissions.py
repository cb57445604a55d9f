"""Files that may not be read or written: an error that names them, no fill value, and not that there is no array."""

import multiprocessing
import os
import shutil

import numpy as np
import pytest
from support.servers import FORK_WARNING

import chunkmill as cm
from chunkmill.errors import ChunkError, StoreError
from chunkmill.stores.local import LocalStore

pytestmark = FORK_WARNING

CODECS = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
VALUES = np.arange(1, 65, dtype="i4").reshape(8, 8)


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
