"""Sources that are deleted, replaced or misread during a job (P9): an error that names them; nothing is published."""

import numpy as np
import pytest
from support.rechunks import check, make
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import ChunkError, JobError, NodeNotFound
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


class Watched(RecordingStore):
    """A store that calls `event` when as many chunks as `after` were asked for."""

    def __init__(self, below, after=3, event=lambda: None):
        super().__init__(below)
        self.after, self.event, self.n_reads = after, event, 0

    def _count(self, key):
        if "/c/" in f"/{key}":
            self.n_reads += 1
            if self.n_reads == self.after:
                self.event()

    def get(self, key, byte_range=None):
        self._count(key)
        return self.below.get(key, byte_range)

    def get_many(self, spans):
        for span in spans:
            yield None if span is None else self.get(span.key, span.byte_range)


class Misreading(Watched):
    """A network file system that answers "no such file" now and then."""

    def get(self, key, byte_range=None):
        self._count(key)
        return None if "/c/" in f"/{key}" and self.n_reads % 5 == 0 else self.below.get(key, byte_range)


JOBS = {
    "copy": lambda a, b: cm.plan_convert(a, b, format="zarr3"),
    "recode": lambda a, b: cm.plan_convert(a, b, format="zarr3", codecs="gzip"),
    "repack": lambda a, b: cm.plan_convert(a, b, format="zarr3", shards=(40, 10)),
    "direct": lambda a, b: cm.plan_rechunk(a, b, chunks=(10, 10), strategy="direct"),
    "spill": lambda a, b: cm.plan_rechunk(a, b, chunks=(40, 1), strategy="spill"),
}
SOURCE = {"shape": (40, 10), "chunks": (1, 10)}


@pytest.fixture
def below():
    return MemoryStore()


def unpublished(target):
    with pytest.raises(NodeNotFound):
        cm.open_array(target)


@pytest.mark.parametrize("job", JOBS)
def test_a_source_that_is_deleted(job, below):
    make(below, **SOURCE)
    source = Watched(below, event=lambda: below.delete_prefix("a/"))
    plan = JOBS[job](cm.open_array(source, "a"), target := MemoryStore())
    with pytest.raises(JobError, match=r"the source 'a' .*was deleted after this job was planned.*resume=False"):
        plan.run()
    unpublished(target)


@pytest.mark.parametrize("job", JOBS)
def test_a_source_that_is_made_again_alike(job, below):
    array, values = make(below, **SOURCE)

    def replace():
        below.delete_prefix("a/")
        make(below, **SOURCE)[0][...] = -values

    source = Watched(below, after=20, event=replace)
    plan = JOBS[job](cm.open_array(source, "a"), target := MemoryStore())
    with pytest.raises(JobError, match=r"'a' .*was (replaced|deleted) after"):
        plan.run()
    unpublished(target)
    with pytest.raises(JobError, match="another plan"):  # what was written has the old values
        JOBS[job](array, target).run()
    JOBS[job](array, target).run(resume=False)
    np.testing.assert_array_equal(cm.open_array(target)[...], -values)


@pytest.mark.parametrize("job", JOBS)
def test_a_file_system_that_misses_files_now_and_then(job, below):
    array, values = make(below, **SOURCE, absent=[(7, 0)])
    plan = JOBS[job](cm.open_array(Misreading(below), "a"), target := MemoryStore())
    with pytest.raises(ChunkError, match="absent when it was read, and is present now") as caught:
        plan.run()
    assert caught.value.key.startswith("a/c/")
    unpublished(target)
    JOBS[job](array, target).run()
    check(target, values, "")


class BeforeListing(RecordingStore):
    """Calls `event` before what is below a prefix is listed, once."""

    def __init__(self, below, prefix, event):
        super().__init__(below)
        self.prefix, self.event = prefix, event

    def _before(self, method, key, byte_range=None):
        if (method, key) == ("list_dir", self.prefix) and self.event is not None:
            event, self.event = self.event, None
            event()


@pytest.mark.parametrize("fmt", ["zarr3", "n5"])  # where a folder is a group
def test_a_group_that_is_deleted_between_its_document_and_what_is_in_it(below, fmt):
    """It would be converted to a group in which nothing is."""
    cm.create_group(below, "g", format=fmt, attributes={"of": "g"}).create_array("a", shape=(4,), dtype="i4")
    source = BeforeListing(below, "g/", lambda: below.delete_prefix("g/"))
    with pytest.raises(JobError, match=r"the source group 'g' in .* was deleted while it was read"):
        cm.convert((source, "g"), target := MemoryStore(), format="zarr3")
    assert not list(target.list_prefix(""))


def test_a_group_that_consolidated_metadata_of_another_root_do_not_know(below):
    """The root was replaced between reading the document of the group and that of the root."""
    cm.create_group(below, "g", attributes={"of": "g"}).create_array("a", shape=(4,), dtype="i4")

    class Replaced(RecordingStore):
        def _before(self, method, key, byte_range=None):
            if key == "zarr.json" and below.get("g/zarr.json") is not None:
                below.delete_prefix("")
                cm.create_group(below)
                cm.consolidate(below)

    with pytest.raises(NodeNotFound, match="'g'"):
        cm.convert((Replaced(below), "g"), target := MemoryStore(), format="zarr3")
    assert not list(target.list_prefix(""))


@pytest.mark.parametrize("job", JOBS)
def test_chunks_that_change_under_an_equal_document_are_old_or_new_and_whole(job, below):
    """The only change of a source that is not noticed, as the documentation says."""
    _, values = make(below, **SOURCE)

    def change():
        cm.open_array(below, "a", mode="r+")[...] = values + 1

    target = MemoryStore()
    source = cm.open_array(Watched(below, 17, change), "a")
    JOBS[job](source, target).run()
    found = cm.open_array(target)[...]
    is_new = found != values
    np.testing.assert_array_equal(found[is_new], (values + 1)[is_new])
    assert is_new.any()
    assert not is_new.all()
    if job != "direct":  # of which several tasks read the same chunks
        assert all(row.all() or not row.any() for row in is_new)
    assert not cm.verify((below, "a"), target).equal


class Forgetful(Watched):
    """A network disk that lists files, and says "no such file" for some of them, however often it is asked."""

    def __init__(self, below, lost, *, is_remote):
        super().__init__(below)
        self.lost, self.is_remote = lost, is_remote

    def get(self, key, byte_range=None):
        return None if key in self.lost else self.below.get(key, byte_range)

    def get_versioned(self, key):
        return (None, None) if key in self.lost else self.below.get_versioned(key)

    def size(self, key):
        return None if key in self.lost else self.below.size(key)


LOST = {"a/c/3/0", "a/c/9/0", "a/c/27/0"}


@pytest.mark.parametrize(("job", "is_remote"), [*((job, True) for job in JOBS), ("copy", False), ("direct", False)])
def test_keys_that_are_listed_and_said_to_be_absent(job, below, is_remote):
    """They became fill values: what is asked twice by name is answered twice alike."""
    array, values = make(below, **SOURCE, absent=[(7, 0)])
    source = Forgetful(below, LOST, is_remote=is_remote)
    plan = JOBS[job](cm.open_array(source, "a"), target := MemoryStore())
    with pytest.raises(ChunkError, match="the store lists it") as caught:
        plan.run()
    assert caught.value.key in LOST
    unpublished(target)
    JOBS[job](array, target).run(resume=False)
    check(target, values, "")


def test_a_store_that_may_not_be_listed_is_believed(below):
    _, values = make(below, **SOURCE, absent=[(7, 0)])

    class Unlisted(Forgetful):
        def list_prefix(self, prefix):
            raise PermissionError("AccessDenied")

    source = cm.open_array(Unlisted(below, (), is_remote=True), "a")
    cm.rechunk(source, target := MemoryStore(), chunks=(10, 10), strategy="direct")
    check(target, values, "")
