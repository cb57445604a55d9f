"""Jobs and other writers at one place: an error that names the job, before anything is changed (P4)."""

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.recording import DeletingStore, FailingStore, RecordingStore

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, NodeExists, StoreError
from chunkmill.journal.unfinished import unfinished_jobs
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.write import write_dataset

VALUES = np.random.default_rng(0).integers(1, 1000, (16, 8)).astype("i4")
OTHER = -VALUES


def make_source(path="a"):
    store = MemoryStore()
    cm.create_array(store, path, shape=VALUES.shape, dtype="i4", chunks=(2, 2), format="zarr2")[...] = VALUES
    return store


def convert(target, source=None, **kwargs):
    return cm.convert(source or make_source("g/a"), target, format="zarr3", **kwargs)


def interrupt(target, source=None):
    with pytest.raises((StoreError, ChunkError)):
        convert(FailingStore(target, every=20, methods=["set", "set_if"]), source)
    assert len(unfinished_jobs(target)) == 1


def interrupt_block_write(target, x=None, **kwargs):
    failing = FailingStore(target, every=9, methods=["set", "set_if"])
    x = da.from_array(VALUES, (2, 2)) if x is None else x
    with dask.config.set(scheduler="sync"), pytest.raises((StoreError, ChunkError)):
        cm.to_store(x, failing, "g/a", resume=True, **kwargs)
    assert len(unfinished_jobs(target)) == 1


def content(store):
    return {key: store.get(key) for key in store.list_prefix("")}


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
    before = content(target)
    with pytest.raises(
        JobError, match=r"was interrupted: 'convert to .*begun .*run it again to finish it.*resume=False"
    ):
        WRITERS[writer](target)
    assert content(target) == before
    assert convert(target, source).n_resumed > 0
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], VALUES)


@cases("writer", ["to_store", "create_group", "convert below", "overwrite"])
def test_a_running_conversion_is_kept(writer):
    """It was killed: its tasks found that their job was gone."""
    source, target = make_source("g/a"), MemoryStore()
    write = (
        (lambda store: cm.create_array(store, "g", shape=(4,), dtype="i4", chunks=(2,), overwrite=True))
        if (writer == "overwrite")
        else WRITERS[writer]
    )
    errors = []

    class Meanwhile(RecordingStore):
        def _before(self, method, key, byte_range=None):
            if method == "set_if" and key.startswith("g/a/c/") and not errors:
                errors.append(None)
                with pytest.raises(JobError, match=r"is running: 'convert to .*wait until it is done") as caught:
                    write(target)
                errors.append(caught.value)

    convert(Meanwhile(target), source)
    assert len(errors) == 2
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], VALUES)


def test_onto_an_array_that_an_interrupted_write_overwrites():
    target = MemoryStore()
    a = cm.create_array(target, "g/a", shape=VALUES.shape, dtype="i4", chunks=(2, 2))
    x = da.from_array(VALUES, (2, 2))
    interrupt_block_write(target, x, mode="r+")
    ones = da.ones((2, 2), dtype="i4")
    region = (slice(0, 2), slice(0, 2))
    for write in (
        lambda: cm.store(ones, a, regions=region),
        lambda: cm.to_store(ones, target, "g/a", region=region),
        lambda: cm.convert(make_source(), (target, "g/a/b"), format="zarr3"),
    ):
        with pytest.raises(JobError, match=r"was interrupted: .write to 'g/a'"):
            write()
    assert cm.to_store(x, target, "g/a", mode="r+", resume=True).n_resumed > 0
    cm.store(ones, a, regions=region)


def test_overwriting_discards_an_interrupted_job():
    target = MemoryStore()
    interrupt(target)
    cm.create_group(target, "", format="zarr3", overwrite=True)
    assert list(target.list_prefix("")) == ["zarr.json"]
    interrupt_block_write(target)
    cm.create_array(target, "g/a", shape=(4,), dtype="i4", chunks=(2,), overwrite=True)
    assert not unfinished_jobs(target)
    assert not [key for key in target.list_prefix("g/a/") if not key.endswith("zarr.json")]
    interrupt_block_write(target, mode="w")
    cm.to_store(da.from_array(OTHER, (2, 2)), target, "g/a", mode="w")
    assert not unfinished_jobs(target)
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], OTHER)


@cases("layout", [{"format": "zarr2"}, {"shards": (4, 4), "chunks": (2, 2)}])
def test_what_an_interrupted_write_left_is_no_value_of_a_new_array(layout):
    """49 of 64 elements of the write that died were shown."""
    target = MemoryStore()
    cm.create_group(target, "g", format=layout.get("format", "zarr3"))
    written = MemoryStore()
    cm.to_store(da.from_array(VALUES, (4, 4)), written, "g/a", **layout)
    for key in written.list_prefix("g/a/"):
        if "." not in key.rpartition("/")[2] or key.endswith("0.0"):  # chunks, and no document: its writer was killed
            target.set(key, written.get(key))
    assert list(target.list_prefix("g/a/"))
    a = cm.create_array(target, "g/a", shape=VALUES.shape, dtype="i4", **({"chunks": (4, 4)} | layout))
    assert not a[...].any()
    assert cm.check(target).ok


def dies_while_it_publishes(source, target, path):
    """A conversion of a group with an array, which publishes the array, and dies before it publishes the group."""

    class Dying(RecordingStore):
        def set_if(self, key, value, version):
            if key == f"{path}/zarr.json":
                raise StoreError(url=self.url, key=key, reason="died")
            return super().set_if(key, value, version)

    with pytest.raises(StoreError, match="died"):
        cm.convert(source, (Dying(target), path), format="zarr3")
    assert target.get(f"{path}/a/zarr.json") is not None


def test_nodes_that_a_discarded_job_published_are_withdrawn():
    """Else the next run, of a source that was made again with other chunks, writes these under their keys."""
    source, target = MemoryStore(), MemoryStore()
    cm.to_store(np.arange(8), source, "a", chunks=(4,), format="zarr3")
    dies_while_it_publishes(source, target, "g")
    cm.to_store(np.arange(8, 16), source, "a", chunks=(3,), codecs="raw", mode="w", format="zarr3")
    with pytest.raises(JobError, match="resume=False"):
        cm.convert(source, (target, "g"), format="zarr3")
    cm.plan_convert(source, (target, "g"), format="zarr3").run(resume=False)
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], np.arange(8, 16))
    assert not [key for key in target.list_prefix("") if "chunkmill" in key]


def test_a_job_that_resumes_writes_over_no_array_that_others_have_made():
    source, target = MemoryStore(), MemoryStore()
    cm.to_store(np.arange(8), source, "a", chunks=(4,), format="zarr3")
    dies_while_it_publishes(source, target, "g")
    others = MemoryStore()
    cm.to_store(np.arange(8), others, "g/a", chunks=(3,), format="zarr3")
    for key in others.list_prefix("g/a/"):
        target.set(key, others.get(key))
    with pytest.raises(NodeExists, match="made by others"):
        cm.convert(source, (target, "g"), format="zarr3")
    np.testing.assert_array_equal(cm.open_array(target, "g/a")[...], np.arange(8))


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
    died = StoreError(url="", key="", reason="died")

    class Dying(RecordingStore):
        def set_if(self, key, value, version):
            if super().set_if(key, value, version) and key.endswith("plan.json"):
                raise died
            return True

    with pytest.raises(StoreError, match="died"):
        convert_or_reduce(what, source, Dying(target), format_)
    assert len(unfinished_jobs(target)) == 1
    cm.create_group(others, "g", format=format_, attributes=made)
    for key in others.list_prefix(""):
        target.set(key, others.get(key))
    with pytest.raises(NodeExists, match="made by others"):
        convert_or_reduce(what, source, target, format_)
    assert content(target) == content(others)


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


def test_a_later_write_stores_no_values_where_a_job_has_begun_since():
    store = MemoryStore()
    later = cm.to_store(da.from_array(VALUES, (2, 2)), store, "g/a", compute=False)
    interrupt(store)
    before = content(store)
    with pytest.raises(JobError, match="a job that writes there was interrupted"):
        later.compute(scheduler="sync")
    assert content(store) == before
