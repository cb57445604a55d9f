"""What stores of a user's own get: an ability for each method, a default without it, wrappers looked through."""

import zipfile

import numpy as np
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.stores import capabilities
from chunkmill.stores.base import ByteRange
from chunkmill.stores.capabilities import WritesParts
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.stores.posix_file import PARTIAL_SUFFIX, _place
from chunkmill.stores.remembered import OverlayStore
from chunkmill.stores.wrapper import Meter, MeteredStore
from chunkmill.stores.zip import ZipStore


class OwnStore(RecordingStore):
    """A user's: it wraps nothing that has an ability, inherits none, and has some by their names."""

    def __init__(self, can_list=True):
        super().__init__(MemoryStore())
        self.can_list = can_list
        self.n_flushed = 0
        self.swept = []

    def __getattribute__(self, name):
        if name == "below":
            raise AttributeError(name)
        return super().__getattribute__("below" if name == "held" else name)

    def flush(self):
        self.n_flushed += 1

    def sweep(self, prefix, *, remove, recursive):
        self.swept.append((prefix, remove, recursive))
        return ["a/half-written"]

    def explain_absence(self):
        return "the tape is not mounted"

    def list_sizes(self, prefix):
        yield prefix + "a", 7

    def set_parts(self, key, parts):
        self.held.set(key, b"<" + b"".join(parts) + b">")

    def list_dir(self, prefix):
        return self.held.list_dir(prefix)

    def get(self, key, byte_range=None):
        return self.held.get(key, byte_range)

    def get_many(self, spans):
        return self.held.get_many(spans)


def wrapped(store):
    return OverlayStore({}, MeteredStore(store, Meter()), frozenset({".none"}))


@pytest.mark.parametrize("around", [lambda store: store, wrapped], ids=["plain", "wrapped"])
def test_own_abilities(around):
    own = OwnStore()
    store = around(own)
    capabilities.flush(store)
    assert own.n_flushed == 1
    assert capabilities.sweep_partial_files(store, "a/", remove=False) == ["a/half-written"]
    assert own.swept == [("a/", False, True)]
    assert capabilities.explain_absence(store) == "the tape is not mounted"
    assert not capabilities.is_archive(store)
    assert list(capabilities.list_sizes(store, "x/")) == [("x/a", 7)]
    assert capabilities.can_list(store)
    assert not capabilities.can_list(around(OwnStore(can_list=False)))
    assert capabilities.innermost(store) is own


def test_without_abilities():
    store = MemoryStore()
    store.set("a/b", b"value")
    capabilities.flush(store)
    assert capabilities.sweep_partial_files(store) == []
    assert capabilities.explain_absence(store) is None
    assert not capabilities.is_archive(store)
    assert capabilities.is_archive(wrapped(ZipStore("x.zip")))
    assert capabilities.can_list(store)
    assert list(capabilities.list_sizes(store, "a/")) == [("a/b", None)]
    assert capabilities.innermost(store) is capabilities.uncached(store) is store
    capabilities.set_parts(store, "c", iter([b"1", b"2"]))
    assert store.get("c") == b"12"


def test_parts():
    own = OwnStore()
    assert isinstance(own, WritesParts)
    assert not isinstance(MemoryStore(), WritesParts)
    meter = Meter()
    MeteredStore(own, meter).set_parts("k", iter([b"1", b"2"]))
    assert own.get("k") == b"<12>"
    assert meter.bytes_written == 2


def test_absence_is_explained_to_users():
    with pytest.raises(cm.errors.NodeNotFound, match="the tape is not mounted"):
        cm.open(OwnStore())


def test_documents_from_memory_alone_ask_nothing_below():
    below = RecordingStore(MemoryStore())
    below.get_many = None  # would be called
    store = OverlayStore({"a/.zarray": b"{}"}, below, frozenset({".zarray"}))
    assert list(store.get_many([cm.stores.base.ByteSpan("a/.zarray"), None])) == [b"{}", None]
    assert below.log == []
    assert capabilities.uncached(store) is below


def test_files_below_a_wrapper_are_swept(tmp_path):
    store = LocalStore(tmp_path)
    store.set("a/b", b"")
    nobody = 2**22 + 1  # above the highest process id
    left = f"a/.b.{_place()}-{nobody}.{'0' * 32}{PARTIAL_SUFFIX}"
    (tmp_path / left).write_bytes(b"half")
    assert capabilities.sweep_partial_files(wrapped(store), remove=False) == [left]
    assert capabilities.sweep_partial_files(wrapped(store), "a/") == [left]
    assert not (tmp_path / left).exists()


def test_a_zip_file_below_consolidated_metadata_is_flushed(tmp_path):
    """What was written through an opened group was in no file before the store was closed."""
    cm.to_store(np.arange(4), tmp_path / "x.zip", "a", format="zarr2")
    group = cm.open_group(tmp_path / "x.zip", mode="r+")
    cm.consolidate(tmp_path / "x.zip")
    group = cm.open_group(ZipStore(tmp_path / "x.zip"), mode="r+")
    assert isinstance(group.store, OverlayStore)
    group.store.set("late", b"")
    capabilities.flush(group.store)
    assert "late" in zipfile.ZipFile(tmp_path / "x.zip").namelist()


def test_a_store_that_reads_into_no_array_gives_bytes(tmp_path):
    for store, kind in (
        (MemoryStore(), bytes),
        (LocalStore(tmp_path), np.ndarray),
        (wrapped(LocalStore(tmp_path)), bytes),
    ):
        store.set("k", b"12345678")
        found = capabilities.get_writable(store, "k", ByteRange(2, 3))
        assert isinstance(found, kind)
        assert bytes(found) == b"345"


class TestAStoreIsCheckedWhenItIsOpened:
    def test_a_method_of_every_store_that_is_missing(self):
        class Short:
            url, is_remote = "own://", False
            get = get_many = set = set_if = size = delete = delete_prefix = list_dir = staticmethod(lambda *_: None)
            get_versioned = staticmethod(lambda key: (None, None))

        with pytest.raises(TypeError, match="it has no list_prefix"):
            open_store(Short())

    @pytest.mark.parametrize(
        "store", [OwnStore(), MemoryStore(), LocalStore("x"), ZipStore("x.zip"), wrapped(OwnStore())]
    )
    def test_a_complete_one_is_returned(self, store):
        assert open_store(store) is store
