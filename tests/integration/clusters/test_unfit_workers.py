"""Workers that cannot run a job are told of before anything is written: they are processes without what the client has."""

import numcodecs
import pytest

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.slow


class ClientOnly(numcodecs.abc.Codec):
    """A codec that is registered in this process alone."""

    codec_id = "client-only"

    def encode(self, buf):
        return bytes(buf)

    def decode(self, buf, out=None):
        return buf


def test_what_workers_lack_is_named_once_for_all(client, tmp_path):
    numcodecs.register_codec(ClientOnly)
    options = {"shape": (4, 3), "chunks": (2, 3), "dtype": "i4", "format": "zarr2"}
    cm.create_array(tmp_path / "a", codecs=[{"id": "client-only"}], **options)
    with pytest.raises(JobError, match=r"worker tcp://.*cannot run the tasks.*client-only") as caught:
        cm.convert(tmp_path / "a", tmp_path / "b", format="zarr2", codecs="zstd")
    assert "(so do 1 more)" in str(caught.value)  # both workers, in one line
    assert not (tmp_path / "b").exists()
    cm.create_array(tmp_path / "c", shape=(4,), dtype="i4")
    with pytest.raises(JobError, match=r"worker tcp://.*in the memory of another process"):
        cm.convert(tmp_path / "c", MemoryStore(), format="zarr3")
