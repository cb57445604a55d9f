"""What `check` and `verify` take: urls, stores, arrays and groups."""

import pytest

import chunkmill as cm
from chunkmill.errors import NodeNotFound
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def store():
    store = MemoryStore()
    for path in ("g/a", "g/b", "c"):
        cm.create_array(store, path, shape=(4,), dtype="i4", chunks=(2,))[...] = 1
    cm.consolidate(store)
    return store


def test_below_a_group_or_a_path(store):
    whole, part = cm.check(store), cm.check(store, "g")
    assert (whole.n_arrays, part.n_arrays, part.path) == (3, 2, "g")
    group = cm.open_group(store)
    assert cm.check(group).n_arrays == 3
    assert cm.check(group["g"]).n_arrays == cm.check(group, "/g/").n_arrays == 2
    assert cm.check(group["g/a"]).n_keys == 2


def test_a_group_opened_by_consolidated_metadata_is_checked_by_its_documents(store):
    group = cm.open_group(store, consolidated=True)
    store.delete("c/zarr.json")
    assert [(problem.kind, problem.key) for problem in cm.check(group).problems] == [("metadata", "c/zarr.json")]


def test_nothing_to_check(tmp_path):
    with pytest.raises(NodeNotFound):
        cm.check(tmp_path / "nothing")


def test_verify_takes_a_path_beside_the_url(store):
    assert cm.verify((store, "g/a"), (store, "c")).equal
    assert cm.verify(cm.open_array(store, "g/a"), (store, "g/b")).equal
    with pytest.raises(TypeError, match="expected a url"):
        cm.verify((store, "g", 1), store)
    with pytest.raises(NodeNotFound):
        cm.verify((store, "x"), store)
