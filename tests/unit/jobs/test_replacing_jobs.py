"""Jobs that replace a node: the plan tells how, and where nothing can be copied nothing is deleted."""

import numpy as np
import pytest
from support.recording import DeletingStore

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.stores.memory import MemoryStore

OLD, NEW = np.arange(20).reshape(4, 5), np.arange(24).reshape(4, 6) + 100


@pytest.fixture
def source():
    cm.to_store(NEW, store := MemoryStore(), "s/x", format="zarr2", codecs="raw")
    return store


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (MemoryStore, "an array of format zarr3, which will be replaced when the new one is complete"),
        (DeletingStore, "an array of format zarr3, which will be replaced: it is deleted first, since the store"),
    ],
)
def test_the_plan_tells_whether_the_old_stays(source, kind, said):
    cm.to_store(OLD, store := kind(), "a", chunks=(2, 2))
    plan = cm.plan_convert((source, "s/x"), (store, "a"), format="zarr3", overwrite=True)
    assert plan.at_target().startswith(said)


def test_a_source_that_is_gone_deletes_nothing_where_the_old_goes_first(source):
    store, gone = DeletingStore(), MemoryStore()
    cm.to_store(OLD, store, "a", chunks=(2, 2))
    cm.to_store(NEW, gone, "x", chunks=(2, 3))
    plan = cm.plan_convert((gone, "x"), (store, "a"), format="zarr3", overwrite=True)
    gone.delete_prefix("x/")
    with pytest.raises(JobError, match="deleted after this job was planned"):
        plan.run()
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], OLD)
    cm.convert((source, "s/x"), (store, "a"), format="zarr3", overwrite=True)
    np.testing.assert_array_equal(cm.open_array(store, "a")[...], NEW)
    assert cm.check(store).ok
