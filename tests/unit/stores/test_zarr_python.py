"""Stores of zarr-python as ours."""

import gc

import fsspec
import numpy as np
import pytest
import xarray as xr
from contracts.store_contract import KEYS, ContractOfSlowStores, ReadContract
from dask.base import tokenize

import chunkmill as cm
from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.stores.zarr_python import ZarrPythonStore

zarr = pytest.importorskip("zarr")
pytest.importorskip("zarr.storage")


class TestZipStore(ReadContract):
    """One that is being written, which nobody else may open."""

    @pytest.fixture
    def filled(self, tmp_path):
        with zarr.storage.ZipStore(tmp_path / "x.zip", mode="w") as below:
            store = ZarrPythonStore(below)
            for key, value in KEYS.items():
                store.set(key, value)
            yield store

    def test_leases_which_would_stay_are_refused(self, filled):
        with pytest.raises(StoreError, match="the store deletes nothing"):
            filled.set(".chunkmill-job-0/plan.json", b"{}")

    test_no_prefix_leads_out = test_pickle = None  # it deletes nothing, and another process cannot write on


class TestWrapper(ContractOfSlowStores):
    """A store of a user's own, derived from zarr-python's."""

    @pytest.fixture
    def store(self):
        return ZarrPythonStore(zarr.storage.WrapperStore(zarr.storage.MemoryStore()))


class TestMapping(ContractOfSlowStores):
    @pytest.fixture
    def store(self):
        return MemoryStore({})


def test_a_dictionary_keeps_the_kind_of_its_values():
    values = {}
    zarr.create_array(values, name="a", shape=(4,), dtype="i4")
    store = MemoryStore(values)
    store.set("b/zarr.json", store.get("a/zarr.json"))
    assert type(values["b/zarr.json"]) is type(values["a/zarr.json"])
    assert zarr.open_array(values, path="b", mode="r").shape == (4,)


def test_a_range_does_not_fetch_the_whole_value():
    asked = []

    class Counting(zarr.storage.MemoryStore):
        async def get(self, key, prototype, byte_range=None):
            asked.append(byte_range)
            return await super().get(key, prototype, byte_range)

    store = ZarrPythonStore(Counting())
    store.set("a", bytes(100))
    assert store.get("a", ByteRange(-4)) == bytes(4)
    assert store.get("a", ByteRange(10, 5)) == bytes(5)
    assert store.get("a", ByteRange(90)) == bytes(10)
    assert store.get("a", ByteRange(99, 1)) == bytes(1)
    assert None not in asked


class Strict(zarr.storage.WrapperStore):
    """It raises for what is absent, and for ranges that begin at the end."""

    async def get(self, key, prototype, byte_range=None):
        if (found := await super().get(key, prototype)) is None or getattr(byte_range, "offset", 0) >= len(found):
            raise FileNotFoundError(key) if found is None else IndexError("416")
        return await super().get(key, prototype, byte_range)

    def list_dir(self, prefix):
        raise FileNotFoundError(prefix)


def test_what_a_store_raises_for_what_is_not_there():
    store = ZarrPythonStore(Strict(zarr.storage.MemoryStore()))
    store.set("k", bytes(10))
    assert (store.get("k", ByteRange(10)), store.get("absent"), store.list_dir("absent/")) == (b"", None, [])
    with pytest.raises(StoreError, match="expected 1 bytes from 11"):
        store.get("k", ByteRange(11, 1))


def test_a_store_of_fsspec_is_opened_by_its_filesystem():
    store = open_store(zarr.storage.FsspecStore.from_url("memory://of-zarr/x"))
    store.set("k", b"1")
    assert (store.url, fsspec.filesystem("memory").cat_file("/of-zarr/x/k")) == ("memory://of-zarr/x", b"1")


def test_a_store_for_reading_refuses_to_write(tmp_path):
    with pytest.raises(StoreError, match="for reading only"):
        open_store(zarr.storage.LocalStore(tmp_path, read_only=True)).set("a", b"")
    store = ZarrPythonStore(zarr.storage.MemoryStore(read_only=True))
    assert {store} == {ZarrPythonStore(store.below_zarr)}
    with pytest.raises(StoreError, match="for reading only"):
        store.set("a", b"")


class KnowsItsKeys(zarr.storage.MemoryStore):
    """As VirtualiZarr's ManifestStore: it takes keys that cannot be for a mistake, and lists folders alone."""

    async def get(self, key, prototype, byte_range=None):
        if key not in self._store_dict and not key.endswith("zarr.json"):
            raise ValueError("the key does not end in zarr.json")
        return await super().get(key, prototype, byte_range)

    async def exists(self, key):
        raise NotImplementedError

    def list_prefix(self, prefix):
        raise NotImplementedError


def test_a_store_that_takes_absent_keys_for_a_mistake():
    below = KnowsItsKeys()
    zarr.create_array(below, name="t", data=np.array([1, 2, 3, 4]), chunks=(2,))
    zarr.create_group(below, path="g")
    below = zarr.storage.WrapperStore(below)  # not taken for one in memory
    store = ZarrPythonStore(below)
    assert store.list_dir("") == ["g/", "t/", "zarr.json"]
    assert sorted(store.list_prefix("")) == ["g/zarr.json", "t/c/0", "t/c/1", "t/zarr.json", "zarr.json"]
    assert cm.open(below)["t"][...].tolist() == [1, 2, 3, 4]
    assert xr.open_dataset(below, engine="chunkmill", format="zarr3").sizes == {"t_dim_0": 4}
    with pytest.raises(cm.errors.NodeNotFound):
        cm.open_array(below, "no")


def test_a_value_error_of_a_value_that_is_there_names_the_key():
    class Broken(zarr.storage.MemoryStore):
        async def get(self, key, prototype, byte_range=None):
            raise ValueError("damaged")

    below = Broken()
    below._store_dict["k"] = below._store_dict["l"] = None
    with pytest.raises(StoreError, match=r"'k'.*damaged"):
        ZarrPythonStore(below).get("k")


@pytest.mark.filterwarnings("error")
def test_a_store_that_cannot_be_opened_leaves_no_coroutine():
    class Unreachable(zarr.storage.MemoryStore):
        async def _ensure_open(self):
            raise ConnectionError("no answer")

    with pytest.raises(StoreError, match="no answer"):
        ZarrPythonStore(Unreachable()).get("k")
    gc.collect()


def test_a_dictionary_that_others_change_has_another_token():
    """Dask would compute once, and return old values."""
    values = {"a": b"1"}
    before = tokenize(MemoryStore(values))
    assert tokenize(MemoryStore(values)) == before
    values["a"] = b"2"
    assert tokenize(MemoryStore(values)) != before
