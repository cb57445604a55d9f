"""Jobs of transforms that died: of several targets, of another function, of a source that was written since."""

import numpy as np
import pytest
from support.arrays import filled
from support.recording import Died, DyingStore

import chunkmill as cm
from chunkmill.errors import JobError, NodeNotFound
from chunkmill.journal import heartbeat
from chunkmill.journal.lease import leased
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("all_died", "one_thread")


@pytest.fixture
def source():
    values = np.arange(240, dtype="i4").reshape(24, 10)
    return filled(values, path="a", chunks=(4, 5)), values


def read(store, path):
    return cm.open_array(store, path, consolidated=False)[...]


def left_over(*stores):
    return [key for store in stores for key in store.list_prefix("") if "chunkmill" in key]


def both(block):
    return block + 1, (block % 2).astype("u1")


@pytest.mark.parametrize("formats", [["zarr3", "zarr3"], ["zarr3", "n5"]], ids=["stores", "formats"])
def test_targets_of_several_stores_or_formats_are_refused(source, formats):
    array, _ = source
    first, second = MemoryStore(), MemoryStore()
    places = [(first, "x"), (second if formats[0] == formats[1] else first, "y")]
    with pytest.raises(ValueError, match=r"of one store and format, not .* and .*: call it for each"):
        cm.transform(both, array, places, format=formats, dtype=["i4", "u1"])
    assert not list(first.list_prefix(""))


def test_values_of_the_second_target_that_are_gone_are_written_again(source, tmp_path):
    array, values = source
    store = LocalStore(tmp_path / "a")
    calls = []

    def function(block, block_id=None):
        calls.append(block_id)
        if len(calls) == 3:
            raise Died
        return both(block)

    function.__dask_tokenize__ = lambda: "both"

    def run():
        places = [(store, "x"), (store, "y")]
        return cm.transform(function, array, places, dtype=["i4", "u1"], block=(8, 10))

    with pytest.raises(Died):
        run()
    done = calls[:2]
    (tmp_path / f"a/y/c/{2 * done[0][0]}/0").unlink()
    run()
    assert sorted(calls[3:]) == sorted([calls[2], done[0]])
    np.testing.assert_array_equal(read(store, "y"), values % 2)


def test_another_writer_of_the_second_target_is_refused(source, monkeypatch):
    array, _ = source
    store, refused = MemoryStore(), []
    monkeypatch.setattr(heartbeat, "is_live", lambda _: True)

    def function(block):
        if not refused:
            with pytest.raises(JobError) as caught:
                cm.to_store(np.ones(3), store, "y")
            refused.append(str(caught.value))
        return both(block)

    function.__dask_tokenize__ = lambda: "both"

    cm.transform(function, array, [(store, "x"), (store, "y")], dtype=["i4", "u1"])
    assert "is running: 'transform to" in refused[0]
    with leased(store, "v", "somebody"), pytest.raises(JobError, match="somebody"):
        cm.transform(both, array, [(store, "z"), (store, "v")], dtype=["i4", "u1"])
    assert not left_over(store)
    with pytest.raises(NodeNotFound):
        read(store, "z")


# --------------------------------------------------------------------------------------------------------------------
# Functions


def test_a_job_of_another_function_is_refused_by_its_name(source):
    array, values = source
    store = MemoryStore()

    def plan(n, store=store, **options):
        return cm.plan_transform(lambda b, **_: b * n, array, (store, "b"), dtype="i4", block=(4, 10), **options)

    with pytest.raises(Died):
        plan(2, DyingStore(store, 11, error=Died)).run()
    with pytest.raises(JobError, match=r"another plan.*with function .*lambda.* where this call has .*lambda"):
        plan(3).run()
    other = plan(2, params={"unused": 1})
    with pytest.raises(JobError, match=r"with function"):
        other.run()
    assert plan(3).at_target().startswith("an unfinished job of another plan")
    plan(3).run(resume=False)
    np.testing.assert_array_equal(read(store, "b"), values * 3)


def test_a_source_that_was_written_since_is_read_again(source):
    array, values = source
    store = MemoryStore()
    with pytest.raises(Died):
        cm.transform(np.negative, array, (DyingStore(store, 13, error=Died), "b"), dtype="i4", block=(4, 10))
    cm.open_array(array.store, "a", mode="r+")[0:4] = 1000
    cm.transform(np.negative, array, (store, "b"), dtype="i4", block=(4, 10))
    values[0:4] = 1000
    np.testing.assert_array_equal(read(store, "b"), -values)
