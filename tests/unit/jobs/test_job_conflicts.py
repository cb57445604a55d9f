"""Jobs and other writers at one place, at one request, or late (P10): an error names the job (P4), nothing is lost."""

import json
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.kills import wait_for
from support.recording import DeletingStore, Died, FailingStore, Meanwhile, SlowStore, contents, copy_keys
from support.small_jobs import stages_of

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, NodeExists, StoreError
from chunkmill.journal import heartbeat, journal
from chunkmill.journal.lease import leased
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.nodes.target import Target
from chunkmill.stores import conflicts
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.write import write_dataset

VALUES = np.random.default_rng(0).integers(1, 1000, (16, 8)).astype("i4")
OTHER = -VALUES


def make_source(path="a", values=VALUES, chunks=(2, 2)):
    store = MemoryStore()
    cm.create_array(store, path, shape=values.shape, dtype="i4", chunks=chunks, format="zarr2")[...] = values
    return store


def convert(target, source=None, **kwargs):
    return cm.convert(source or make_source("g/a"), target, format="zarr3", **kwargs)


def interrupt(target, source=None):
    with pytest.raises((StoreError, ChunkError)):
        convert(FailingStore(target, every=20, methods=["set", "set_if"]), source)
    assert len([job for job in unfinished_jobs(target) if not job.is_lease]) == 1


def interrupt_block_write(target, x=None, **kwargs):
    failing = FailingStore(target, every=9, methods=["set", "set_if"])
    x = da.from_array(VALUES, (2, 2)) if x is None else x
    with dask.config.set(scheduler="sync"), pytest.raises((StoreError, ChunkError)):
        cm.to_store(x, failing, "g/a", resume=True, **kwargs)
    assert len(unfinished_jobs(target)) == 1


WRITERS = {
    "to_store": lambda store: cm.to_store(da.from_array(OTHER, (2, 2)), store, "g/a"),
    "to_store delayed": lambda store: cm.to_store(da.from_array(OTHER, (2, 2)), store, "g/a", compute=False),
    "create_array": lambda store: cm.create_array(store, "g/a", shape=(4,), dtype="i4", chunks=(2,)),
    "create_array beside": lambda store: cm.create_array(store, "g/b", shape=(4,), dtype="i4", chunks=(2,)),
    "create_group": lambda store: cm.create_group(store, "g"),
    "write_dataset": lambda store: write_dataset(xr.Dataset({"a": (("x", "y"), OTHER)}), store, path="g"),
    "convert below": lambda store: cm.convert(make_source(), (store, "g"), format="zarr3"),
    "rechunk below": lambda store: cm.rechunk(make_source(), (store, "g"), format="zarr3", chunks=(4, 4)),
}


@cases("writer", WRITERS)
def test_an_interrupted_conversion_is_kept(writer):
    """It was thrown away: its records, and with them the way to finish it."""
    source, target = make_source("g/a"), MemoryStore()
    interrupt(target, source)
    before = contents(target)
    with pytest.raises(
        JobError, match=r"was interrupted: 'convert to .*begun .*run it again to finish it.*resume=False"
    ):
        WRITERS[writer](target)
    assert contents(target) == before
    assert convert(target, source).n_resumed > 0
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], VALUES)


def test_onto_an_array_that_an_interrupted_write_overwrites(store):
    a = cm.create_array(store, "g/a", shape=VALUES.shape, dtype="i4", chunks=(2, 2))
    x = da.from_array(VALUES, (2, 2))
    interrupt_block_write(store, x, mode="r+")
    ones = da.ones((2, 2), dtype="i4")
    region = (slice(0, 2), slice(0, 2))
    for write in (
        lambda: cm.store(ones, a, regions=region),
        lambda: cm.to_store(ones, store, "g/a", region=region),
        lambda: cm.convert(make_source(), (store, "g/a/b"), format="zarr3"),
    ):
        with pytest.raises(JobError, match=r"was interrupted: .write to 'g/a'"):
            write()
    assert cm.to_store(x, store, "g/a", mode="r+", resume=True).n_resumed > 0
    cm.store(ones, a, regions=region)


def test_overwriting_discards_an_interrupted_job(store):
    interrupt(store)
    cm.create_group(store, "", format="zarr3", overwrite=True)
    assert list(store.list_prefix("")) == ["zarr.json"]
    interrupt_block_write(store)
    cm.create_array(store, "g/a", shape=(4,), dtype="i4", chunks=(2,), overwrite=True)
    assert not unfinished_jobs(store)
    assert not [key for key in store.list_prefix("g/a/") if not key.endswith("zarr.json")]
    interrupt_block_write(store, mode="w")
    cm.to_store(da.from_array(OTHER, (2, 2)), store, "g/a", mode="w")
    assert not unfinished_jobs(store)
    np.testing.assert_array_equal(cm.open_array(store, "g/a")[...], OTHER)


@cases("layout", [{"format": "zarr2"}, {"shards": (4, 4), "chunks": (2, 2)}])
def test_what_an_interrupted_write_left_is_no_value_of_a_new_array(store, layout):
    """49 of 64 elements of the write that died were shown."""
    cm.create_group(store, "g", format=layout.get("format", "zarr3"))
    written = MemoryStore()
    cm.to_store(da.from_array(VALUES, (4, 4)), written, "g/a", **layout)
    for key in written.list_prefix("g/a/"):
        if "." not in key.rpartition("/")[2] or key.endswith("0.0"):  # chunks, and no document: its writer was killed
            store.set(key, written.get(key))
    assert list(store.list_prefix("g/a/"))
    a = cm.create_array(store, "g/a", shape=VALUES.shape, dtype="i4", **({"chunks": (4, 4)} | layout))
    assert not a[...].any()
    assert cm.check(store).ok


def die(store):
    raise StoreError(url=store.url, key="", reason="died")


def dies_while_it_publishes(source, target, path, format_="zarr3", entry="{}/zarr.json"):
    """A conversion of a group with an array, which publishes the array, and dies before it publishes the group."""

    dying = Meanwhile(target, ("set_if", entry.format(path)), die)
    with pytest.raises(StoreError, match="died"):
        cm.convert(source, (dying, path), format=format_)
    assert cm.open_array(target, f"{path}/a").shape == (8,)


# the hierarchy of a draft has a document of its own at the root, which is no node
@cases(("path", "format_", "entry"), [("g", "zarr3", "{}/zarr.json"), ("", "zarr3-draft", "meta/group.json")])
def test_nodes_that_a_discarded_job_published_are_withdrawn(path, format_, entry):
    """Else the next run, of a source that was made again with other chunks, writes these under their keys."""
    source, target = MemoryStore(), MemoryStore()
    cm.to_store(np.arange(8), source, "a", chunks=(4,), codecs="gzip", format="zarr3")
    dies_while_it_publishes(source, target, path, format_, entry)
    cm.to_store(np.arange(8, 16), source, "a", chunks=(3,), codecs="raw", mode="w", format="zarr3")
    with pytest.raises(JobError, match="resume=False"):
        cm.convert(source, (target, path), format=format_)
    cm.plan_convert(source, (target, path), format=format_).run(resume=False)
    np.testing.assert_array_equal(cm.open_array(target, f"{path}/a")[...], np.arange(8, 16))
    assert not [key for key in target.list_prefix("") if "chunkmill" in key]


def test_a_job_that_resumes_writes_over_no_array_that_others_have_made():
    source, target = MemoryStore(), MemoryStore()
    cm.to_store(np.arange(8), source, "a", chunks=(4,), format="zarr3")
    dies_while_it_publishes(source, target, "g")
    others = MemoryStore()
    cm.to_store(np.arange(8), others, "g/a", chunks=(3,), format="zarr3")
    copy_keys(others, target, "g/a/")
    with pytest.raises(NodeExists, match="made by others"):
        cm.convert(source, (target, "g"), format="zarr3")
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], np.arange(8))
    assert len(unfinished_jobs(target)) == 1


def convert_or_reduce(what, source, target, format_):
    if what == "convert":
        cm.convert(source, (target, "g"), format=format_)
    else:
        cm.pyramid((source, "a"), (target, "g"), levels=2, format=format_)


@cases(
    ("format_", "what", "made"),
    [("n5", "convert", {"made": "by others"}), ("zarr3", "pyramid", {"made": 1}), ("zarr2", "pyramid", {})],
)
def test_a_job_that_resumes_puts_no_array_below_a_group_that_others_have_made(format_, what, made):
    """It died before its first look, and found only at its end whose group that is: its arrays were visible there."""
    source, target, others = MemoryStore(), MemoryStore(), MemoryStore()
    cm.to_store(np.arange(16).reshape(2, 8), source, "a", chunks=(2, 4), format=format_)
    dying = Meanwhile(target, lambda *_: any(key.endswith("plan.json") for key in target.list_prefix("")))
    with pytest.raises(Died):
        convert_or_reduce(what, source, dying, format_)
    heartbeat._ALIVE.clear()  # of the process that is gone
    assert len(unfinished_jobs(target)) == 1
    cm.create_group(others, "g", format=format_, attributes=made)
    copy_keys(others, target)
    with pytest.raises(NodeExists, match="made by others"):
        convert_or_reduce(what, source, target, format_)
    assert contents(target) == contents(others)


DOCUMENTS = {"zarr.json", ".zarray", ".zattrs", ".zgroup", "attributes.json"}


@cases("format_", ["zarr2", "zarr3"])
def test_an_equal_array_that_is_created_during_a_conversion_stays_that_of_its_creator(format_):
    """Both said done; the creator, who waits for the end of the job, deleted the chunks that it had left."""
    source, made = make_source("a"), MemoryStore()
    cm.convert((source, "a"), (made, "a"), format=format_)
    documents = {key: made.get(key) for key in made.list_prefix("") if key.rpartition("/")[2] in DOCUMENTS}

    class Created(MemoryStore):
        def sync(self):  # all tasks are done
            for key, value in documents.items():
                self.set(key, value)

    store = Created()
    with pytest.raises(NodeExists, match="made by others"):
        cm.convert((source, "a"), (store, "a"), format=format_)
    assert unfinished_jobs(store) == []
    assert {key: store.get(key) for key in documents} == documents


def test_what_is_deleted_for_a_later_write_is_leased():
    """A writer that began in between stored values that were deleted with the old ones."""
    held = []

    class Watched(DeletingStore):
        def delete_prefix(self, prefix):
            held.extend(job.path for job in unfinished_jobs(self) if prefix == "g/a/" and job.is_running)
            super().delete_prefix(prefix)

    store = Watched()
    x = da.from_array(VALUES, (2, 2))
    cm.to_store(x, store, "g/a")
    later = cm.to_store(x + 1, store, "g/a", mode="w", compute=False)
    assert held == ["g/a"]
    later.compute(scheduler="sync")
    np.testing.assert_array_equal(cm.open_array(store, "g/a")[...], VALUES + 1)
    assert not unfinished_jobs(store)


@pytest.mark.parametrize("format_", ["zarr3", "zarr3-draft", "n5"])
def test_a_later_write_is_not_published_in_a_group_that_was_replaced_since(format_, monkeypatch):
    """Its chunks had gone with the old group; zeros were published, and reported as done."""
    store = DeletingStore()
    x = da.from_array(VALUES, (2, 2))
    cm.to_store(x, store, "g/a", format=format_)
    later = cm.to_store(x + 1, store, "g/a", mode="w", compute=False, format=format_)
    (job,) = unfinished_jobs(store)
    assert (job.path, job.is_running, job.is_lease) == ("g/a", False, True)
    publish = Target.continued

    def replaced_first(self, *args):
        cm.create_group(store, "g", format=format_, overwrite=True)
        return publish(self, *args)

    monkeypatch.setattr(Target, "continued", replaced_first)
    with pytest.raises(JobError, match="another writer has taken the place since"):
        later.compute(scheduler="sync")
    assert list(cm.open_group(store, "g")) == []
    assert not unfinished_jobs(store)


def test_a_later_write_stores_no_values_where_a_job_has_begun_since(store):
    later = cm.to_store(da.from_array(VALUES, (2, 2)), store, "g/a", compute=False)
    interrupt(store)
    before = contents(store)
    with pytest.raises(JobError, match="a job that writes there was interrupted"):
        later.compute(scheduler="sync")
    assert contents(store) == before


OLD, NEW = np.arange(20).reshape(4, 5), np.arange(20).reshape(4, 5) + 100


@pytest.fixture
def everybody_is_alive(monkeypatch):
    """Heartbeats of this process, which stands for several clients, are those of one that is alive."""
    monkeypatch.setattr(heartbeat, "is_live", lambda _: True)
    monkeypatch.setattr(journal, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(conflicts, "pause", lambda _: None)
    with dask.config.set(scheduler="sync"):
        yield


def write_over(store, values):
    x = da.from_array(values, chunks=(2, 5))
    cm.to_store(x, store, "a", format="zarr2", mode="w", resume=True, attributes={"sum": int(values.sum())})


def whole(store):
    array = cm.open_array(store, "a", consolidated=False)
    assert array.attributes["sum"] == array[...].sum()
    return array[...]


@pytest.mark.usefixtures("everybody_is_alive")
@cases("format_", ["n5", "zarr3"])
def test_a_job_goes_on_where_another_client_joined_it_and_died(format_):
    """The first client took the group for somebody else's, and deleted the journal: its attributes were never stored."""
    source, store = MemoryStore(), MemoryStore()
    cm.create_group(source, format=format_, attributes={"made": "for this"})
    cm.to_store(OLD, source, "a", chunks=(2, 5), format=format_)
    entry = {"n5": "attributes.json", "zarr2": ".zgroup", "zarr3": "zarr.json"}[format_]

    def join(below):
        with pytest.raises(Died):
            cm.convert(source, (Meanwhile(below, ("set_if", f"g/{entry}")), "g"), format=format_)

    def has_begun(method, key):
        return method == "list_dir" and not key and any(key.endswith("plan.json") for key in store.list_prefix(""))

    first = Meanwhile(store, has_begun, join)
    cm.convert(source, (first, "g"), format=format_)
    assert first.done
    assert cm.open_group(store, "g").attributes == {"made": "for this"}
    assert np.array_equal(cm.open_array(store, "g/a")[...], OLD)
    assert not [key for key in store.list_prefix("") if "chunkmill" in key]


@pytest.mark.usefixtures("everybody_is_alive")
def test_a_write_that_replaces_looks_for_others_when_it_has_begun():
    """Another one had reserved the place above in between: both exchanged their nodes, and the values were gone."""
    store, held = DeletingStore(), ExitStack()
    cm.to_store(OLD, store, "a", format="zarr2", attributes={"sum": int(OLD.sum())})

    def reserve_the_place_above(below):
        held.enter_context(leased(below, "", "replace ''", run="9"))

    first = Meanwhile(store, lambda method, key: method == "set_if" and "/running-" in key, reserve_the_place_above)
    with held, pytest.raises(JobError, match="a job that writes there is running"):
        write_over(first, NEW)
    assert first.done
    np.testing.assert_array_equal(whole(store), OLD)


@pytest.mark.usefixtures("everybody_is_alive")
@cases("n_steps", [1, 6, None])
def test_who_marks_late_does_not_replace_what_another_client_has_put_in_place(store, n_steps, monkeypatch):
    """It marked what is staged when all was done, and put that in place again: its documents had been deleted by then."""
    cm.to_store(NEW, store, "source", format="zarr2", chunks=(2, 5), attributes={"sum": int(NEW.sum())})
    cm.to_store(OLD, store, "a", format="zarr2", attributes={"sum": int(OLD.sum())})

    def rechunk(target):
        cm.rechunk((store, "source"), (target, "a"), chunks=(4, 5), overwrite=True)

    def join(below):
        asked = iter(range(99))

        def dies(method, key):
            plan = below.get("".join(key for key in below.list_prefix("") if key.endswith("plan.json"))) or b""
            return b'"over": true' in plan and next(asked) == n_steps

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


LARGE = (64, 40)
BEFORE = np.random.default_rng(0).integers(1, 1000, LARGE).astype("i4")


def test_intermediate_files_of_another_run():
    """The source is corrected, the plan stays: tasks of the run before spill the values that were there then."""
    source, target = make_source(values=BEFORE, chunks=(4, 10)), MemoryStore()
    plan = cm.plan_rechunk(source, target, chunks=(64, 4), strategy="spill")
    with pytest.raises((ChunkError, StoreError)):
        cm.rechunk(source, FailingStore(target, every=3, methods=["set", "set_if"]), chunks=(64, 4), strategy="spill")
    (old,) = [key for key in target.list_prefix("") if key.endswith("plan.json")]
    spill, _ = stages_of(plan, json.loads(target.get(old))["run"])
    stale = tuple(
        replace(rechunk, source=rechunk.source.with_store(make_source(values=BEFORE, chunks=(4, 10))))
        for rechunk in spill.common
    )

    def spill_again(_):
        for spec in spill.tasks:
            spill.function(stale, spec)

    def begins_to_write(method, key):
        return "/intermediate/" in key or (method == "get" and "-intermediate/" in key)

    cm.open_array(source, "a", mode="r+")[...] = BEFORE + 1
    watched = Meanwhile(target, begins_to_write, spill_again)
    cm.plan_rechunk(source, watched, chunks=(64, 4), strategy="spill").run(resume=False)
    assert watched.done
    np.testing.assert_array_equal(cm.open_array(target, "a")[...], BEFORE + 1)


def test_a_run_that_is_replaced_stops_with_one_error(monkeypatch):
    """What it writes before it learns of that, where its successor writes nothing, is met by nobody."""
    source, target, errors = make_source(values=BEFORE, chunks=(4, 10)), MemoryStore(), []

    def first():
        try:
            cm.convert(source, SlowStore(target, 0.1, ["set_if"]), format="zarr3")
        except JobError as error:
            errors.append(str(error))

    thread = threading.Thread(target=first)
    thread.start()
    wait_for(lambda: sum(1 for _ in target.list_prefix("a/c/")) >= 3)
    cm.open_array(source, "a", mode="r+")[...] = 0  # all chunks are absent now
    running = r"a job with another plan .* is running: 'convert to .*', begun .* s ago, with codecs .*gzip.*; wait"
    with pytest.raises(JobError, match=running):
        cm.plan_convert(source, target, format="zarr3", codecs="gzip", overwrite=True).run(resume=False)
    # of a client that was suspended for a minute
    monkeypatch.setattr("chunkmill.journal.heartbeat.is_live", lambda _: False)
    cm.plan_convert(source, target, format="zarr3", overwrite=True).run(resume=False)
    thread.join()
    (error,) = errors
    assert error.endswith(
        "the job has ended, was interrupted, or was replaced by another one; this result is discarded"
    )
    assert not cm.open_array(target, "a")[...].any()
    assert [key for key in target.list_prefix("") if key.startswith(".")] == []
