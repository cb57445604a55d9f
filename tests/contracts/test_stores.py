"""The store contract, for each implementation."""

from __future__ import annotations

import pickle
from typing import ClassVar
from uuid import uuid4

import obstore.store
import pytest
from contracts.store_contract import KEYS, ContractOfSlowStores, ReadContract, StoreContract
from support.azure_server import azure_server  # noqa: F401
from support.file_servers import ftp_server, sftp_server, webdav_server  # noqa: F401
from support.gcs_server import gcs_server  # noqa: F401
from support.servers import WARNINGS, http_server, s3_server  # noqa: F401

from chunkmill.errors import StoreError
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore, OverlayStore
from chunkmill.stores.obstore import ObstoreStore
from chunkmill.stores.open import open_store
from chunkmill.stores.zip import ZipStore

pytestmark = WARNINGS


class TestLocal(StoreContract):
    n_increments = 60

    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "not" / "yet there")


class TestMemory(StoreContract):
    n_increments = 200

    @pytest.fixture
    def store(self):
        return MemoryStore()


class TestFsspecMemory(StoreContract):
    @pytest.fixture
    def store(self):
        store = FsspecStore(f"memory://contract/{uuid4().hex}")
        yield store
        store.delete_prefix("")


class TestFsspecLocal(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return FsspecStore(f"local://{tmp_path}/root")


class OfServer(ContractOfSlowStores):
    server: ClassVar[str]
    new_place = "new_folder"

    @pytest.fixture
    def store(self, request):
        server = request.getfixturevalue(self.server)
        return open_store(getattr(server, self.new_place)() + "/some/root", server.storage_options)


class OfCloud(OfServer):
    def test_versions_are_compared(self, store):
        assert (type(store), store.compares_versions) == (ObstoreStore, True)


class TestObstoreS3(OfCloud):
    server, new_place = "s3_server", "new_bucket"


class TestObstoreAzure(OfCloud):
    server, new_place = "azure_server", "new_container"


class TestObstoreGcs(OfCloud):
    @pytest.fixture
    def store(self, gcs_server):  # noqa: F811
        return open_store(gcs_server.new_store("some/root"))


@pytest.mark.filterwarnings("ignore:.*guarded by a lock alone")
class OfFileServer(OfServer):
    n_listed, n_threads, n_increments, n_replaced = 20, 3, 4, 3


class TestSftp(OfFileServer):
    server = "sftp_server"


class TestWebdav(OfFileServer):
    server = "webdav_server"


class TestFtp(OfFileServer):
    server = "ftp_server"
    test_a_key_is_no_prefix = None  # servers list a file as a folder of itself
    test_absent_is_none = None  # nothing is asked for no bytes


class TestObstoreMemory(StoreContract):
    @pytest.fixture
    def store(self):
        return ObstoreStore(obstore.store.MemoryStore())

    def test_pickle(self, filled):
        """What is in memory is in no other process: nor in this one, unpickled."""
        other = pickle.loads(pickle.dumps(filled))
        with pytest.raises(StoreError, match="the memory of another process"):
            other.get("a/c/0/0")


class TestZip(StoreContract):
    n_increments = 30

    @pytest.fixture
    def store(self, tmp_path):
        with ZipStore(tmp_path / "x.zip") as store:
            yield store


class TestZipClosed(ReadContract):
    @pytest.fixture
    def filled(self, tmp_path):
        with ZipStore(tmp_path / "x.zip", "in/side") as store:
            for key, value in KEYS.items():
                store.set(key, value)
        return ZipStore(tmp_path / "x.zip", "in/side")


class TestOverlay(StoreContract):
    """With documents of nothing here: all goes below, and writes hold."""

    @pytest.fixture
    def store(self):
        store = OverlayStore({}, MemoryStore(), frozenset({"unused"}))
        store.set("unused", b"")  # from here on listings come from below
        store.delete("unused")
        return store


class TestHttp(ReadContract):
    @pytest.fixture(params=["url", "object"])
    def filled(self, http_server, request):  # noqa: F811
        writer = LocalStore(http_server.folder)
        for key, value in KEYS.items():
            writer.set(key, value)
        place = http_server.url
        if request.param == "object":
            place = obstore.store.HTTPStore.from_url(place, client_options={"allow_http": True})
        return open_store(place)

    def test_list_dir(self, filled):
        with pytest.raises(StoreError, match="list nothing"):
            filled.list_dir("")

    def test_list_prefix(self, filled):
        with pytest.raises(StoreError, match="list nothing"):
            list(filled.list_prefix("a/"))
