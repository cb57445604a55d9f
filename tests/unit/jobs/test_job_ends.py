"""What another client does while a job ends, or begins: at one request, always the same."""

from contextlib import ExitStack, suppress

import dask
import dask.array as da
import numpy as np
import pytest
from support.cases import cases
from support.recording import DeletingStore, Died, RecordingStore

import chunkmill as cm
from chunkmill.errors import JobError, NodeNotFound
from chunkmill.journal import heartbeat, journal
from chunkmill.journal.lease import leased
from chunkmill.stores import conflicts
from chunkmill.stores.memory import MemoryStore

OLD, NEW = np.arange(20).reshape(4, 5), np.arange(20).reshape(4, 5) + 100


class Meanwhile(RecordingStore):
    """Calls `act` with the store below, once, before the first request that `when` says; or dies there."""

    def __init__(self, below, when, act=None):
        super().__init__(below)
        self.when, self.act, self.done = when, act, False

    def _before(self, method, key, byte_range=None):
        if self.act is None and (self.done or self.when(method, key)):
            self.done = True
            raise Died
        if not self.done and self.when(method, key):
            self.done = True
            self.act(self.below)


@pytest.fixture(autouse=True)
def everybody_who_died_is_dead(monkeypatch):
    """Heartbeats of this process are taken for those of one that has ended."""
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    monkeypatch.setattr(journal, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(conflicts, "pause", lambda _: None)
    with dask.config.set(scheduler="sync"):
        yield


def replace(store, values):
    x = da.from_array(values, chunks=(2, 5))
    cm.to_store(x, store, "a", format="zarr2", mode="w", resume=True, attributes={"sum": int(values.sum())})


def whole(store):
    array = cm.open_array(store, "a", consolidated=False)
    assert array.attributes["sum"] == array[...].sum()
    return array[...]


@cases("format_", ["n5", "zarr3"])
def test_a_job_goes_on_where_another_client_joined_it_and_died(format_, monkeypatch):
    """The first client took the group for somebody else's, and deleted the journal: its attributes were never stored."""
    monkeypatch.setattr(heartbeat, "is_live", lambda _: True)  # the first client is
    source, store = MemoryStore(), MemoryStore()
    cm.create_group(source, format=format_, attributes={"made": "for this"})
    cm.to_store(OLD, source, "a", chunks=(2, 5), format=format_)
    entry = {"n5": "attributes.json", "zarr2": ".zgroup", "zarr3": "zarr.json"}[format_]

    def join(below):
        with pytest.raises(Died):
            cm.convert(
                source, (Meanwhile(below, lambda m, key: m == "set_if" and key == f"g/{entry}"), "g"), format=format_
            )

    def has_begun(method, key):
        return method == "list_dir" and not key and any(key.endswith("plan.json") for key in store.list_prefix(""))

    first = Meanwhile(store, has_begun, join)
    cm.convert(source, (first, "g"), format=format_)
    assert first.done
    assert cm.open_group(store, "g").attributes == {"made": "for this"}
    assert np.array_equal(cm.open_array(store, "g/a")[...], OLD)
    assert not [key for key in store.list_prefix("") if "chunkmill" in key]


def test_a_write_that_replaces_looks_for_others_when_it_has_begun(monkeypatch):
    """Another one had reserved the place above in between: both exchanged their nodes, and the values were gone."""
    store, held = DeletingStore(), ExitStack()
    cm.to_store(OLD, store, "a", format="zarr2", attributes={"sum": int(OLD.sum())})

    def reserve_the_place_above(below):
        held.enter_context(leased(below, "", "replace ''", run="9"))

    first = Meanwhile(store, lambda method, key: method == "set_if" and "/running-" in key, reserve_the_place_above)
    monkeypatch.setattr(heartbeat, "is_live", lambda _: True)
    with held, pytest.raises(JobError, match="a job that writes there is running"):
        replace(first, NEW)
    assert first.done
    np.testing.assert_array_equal(whole(store), OLD)


def test_attributes_of_a_group_that_others_have_deleted_make_no_group():
    """A folder is a group in N5: the deleted one was there again, with these attributes alone."""
    store = MemoryStore()
    cm.create_group(store, "g", format="n5", attributes={"made": "before"})
    group = cm.open_group(store, "g", mode="r+")
    cm.delete(store, "g")
    with pytest.raises(NodeNotFound, match="deleted or replaced after it was opened"):
        group.update_attributes({"x": 1})
    assert "g" not in cm.open_group(store)


@cases("n_steps", [1, 6, None])
def test_who_marks_late_does_not_replace_what_another_client_has_put_in_place(n_steps, monkeypatch):
    """It marked what is staged when all was done, and put that in place again: its documents had been deleted by then."""
    monkeypatch.setattr(heartbeat, "is_live", lambda _: True)  # the first client is
    store = MemoryStore()
    cm.to_store(NEW, store, "source", format="zarr2", chunks=(2, 5), attributes={"sum": int(NEW.sum())})
    cm.to_store(OLD, store, "a", format="zarr2", attributes={"sum": int(OLD.sum())})

    def rechunk(target):
        cm.rechunk((store, "source"), (target, "a"), chunks=(4, 5), overwrite=True)

    def join(below):
        asked = iter(range(99))  # twice for each request

        def dies(method, key):
            plan = below.get("".join(key for key in below.list_prefix("") if key.endswith("plan.json"))) or b""
            return b'"over": true' in plan and next(asked) == 2 * n_steps

        if n_steps is None:
            rechunk(below)
        else:
            with pytest.raises(Died):
                rechunk(Meanwhile(below, dies))
        assert np.array_equal(whole(below), NEW)
        cm.open_array(below, "a", mode="r+").update_attributes({"sum": int(NEW.sum()) + 1})
        cm.open_array(below, "a", mode="r+")[0, 0] = NEW[0, 0] + 1

    first = Meanwhile(store, lambda method, key: method == "set_if" and "/new-" in key, join)
    with suppress(JobError):
        rechunk(first)
    assert first.done
    assert whole(store)[0, 0] == NEW[0, 0] + 1
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    rechunk(store)  # and the repetition replaces it again, or finds it done
    assert whole(store)[0, 1] == NEW[0, 1]
