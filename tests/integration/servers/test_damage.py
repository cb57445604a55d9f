"""What is damaged is named in the same words on every store: the store, the key, the chunk and the step."""

import numpy as np
import pytest
from support.servers import WARNINGS, http_server  # noqa: F401

import chunkmill as cm
from chunkmill.errors import ChunkError
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = WARNINGS

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
CODECS = [BYTES, {"name": "crc32c"}]
VALUES = np.arange(1, 65, dtype="i4").reshape(8, 8)


DAMAGE = {"cut": (lambda value: value[:-3], "crc32c"), "emptied": (lambda _: b"", "crc32c")}


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

    def opened(self):
        target = self.folder.with_name("refs.json")
        if not target.exists():
            cm.to_references((str(self.folder), "a/b"), str(target))
        return cm.open_array(str(target))


PLACES = {each.__name__: each for each in (Memory, Http, S3, References)}


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
