"""Jobs that replace a node: what was there stays until the new one is whole, wherever the job dies."""

import itertools
import json
import re
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from support.recording import CHANGES, DeletingStore, Died, DyingStore

import chunkmill as cm
from chunkmill.errors import JobError, NodeNotFound
from chunkmill.journal import heartbeat, journal
from chunkmill.stores import posix_file
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

OLD, NEW = np.arange(20).reshape(4, 5), np.arange(24).reshape(4, 6) + 100


CLIENTS = [0]
"""All that have been, of which the last one is alive."""


class Dying(DyingStore):
    """Dies before the n-th request that changes the store: another client is alive then."""

    def __init__(self, below, n):
        super().__init__(below, n, (*CHANGES, "replace_prefix"), Died)

    def _before(self, method, key, byte_range=None):
        try:
            super()._before(method, key, byte_range)
        except Died:
            CLIENTS.append(len(CLIENTS))
            raise

    def replace_prefix(self, prefix, staged, proof):
        self._before("replace_prefix", prefix)
        self.below.replace_prefix(prefix, staged, proof)


@pytest.fixture(autouse=True)
def everybody_who_died_is_dead(monkeypatch):
    """Heartbeats tell by which client they are: one that repeats what a dead one began is alive itself."""

    def beat(*_):
        return json.dumps({"client": CLIENTS[-1]}).encode()

    monkeypatch.setattr(heartbeat, "_heartbeat", beat)
    monkeypatch.setattr(heartbeat, "is_live", lambda found: found == beat())
    monkeypatch.setattr(journal, "CHECK_SECONDS", 0.0)
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture(scope="module")
def source():
    store = MemoryStore()
    cm.create_group(store, "s", format="zarr2", attributes={"new": 1})
    cm.to_store(da.from_array(NEW, chunks=(2, 3)), store, "s/x", format="zarr2", codecs="raw", attributes={"new": 1})
    return store


JOBS = {
    "convert": lambda source, store, path, fmt: cm.convert(
        (source, "s/x"), (store, path), format=fmt, codecs="gzip", overwrite=True
    ),
    "rechunk": lambda source, store, path, fmt: cm.rechunk(
        (source, "s/x"), (store, path), chunks=(4, 2), format=fmt, strategy="spill", overwrite=True
    ),
    "to_store": lambda source, store, path, fmt: cm.to_store(
        da.from_array(NEW, chunks=(2, 3)),
        store,
        path,
        format=fmt,
        codecs="gzip",
        attributes={"new": 1},
        mode="w",
        resume=True,
    ),
    "tree": lambda source, store, path, fmt: cm.convert((source, "s"), (store, path), format=fmt, overwrite=True),
}


def seen(store, path, job):
    """Return which of both is there; it must be one of them, whole."""
    node = cm.open(store, path, consolidated=False)
    if isinstance(node, cm.Group) and not node.attributes:  # a folder is a group, in some formats
        raise NodeNotFound(url=store.url, path=path)
    array = node["x"] if isinstance(node, cm.Group) else node
    assert array.path == (f"{path}/x".strip("/") if job == "tree" and "new" in node.attributes else path)
    expected = NEW if "new" in array.attributes else OLD
    np.testing.assert_array_equal(array[...], expected)
    return "new" if "new" in array.attributes else "old"


PLACES = [("zarr3", "g/a"), ("zarr2", ""), ("n5", "a"), ("zarr3-draft", "")]


@pytest.mark.parametrize(("job", "place"), [*zip(JOBS, PLACES, strict=True)], ids=JOBS)
def test_a_job_that_dies_anywhere_in_memory(source, job, place):
    die_anywhere(MemoryStore, source, job, *place)


@pytest.mark.parametrize(
    ("job", "fmt", "path"), [("rechunk", "zarr3", "g/a"), ("tree", "zarr2", ""), ("to_store", "zarr3-draft", "g/a")]
)
def test_a_job_that_dies_anywhere_where_the_old_is_deleted_first(source, job, fmt, path):
    """Until it is done there is no node, and opening it says which job writes."""
    die_anywhere(DeletingStore, source, job, fmt, path, deletes=True)


@pytest.fixture(params=["exchanged", "renamed twice"])
def exchanges(request, monkeypatch):
    if request.param == "renamed twice":
        monkeypatch.setattr(posix_file, "_renamed", lambda *_: False)


@pytest.mark.usefixtures("exchanges")
def test_a_job_that_dies_anywhere_in_a_directory(source, tmp_path):
    numbers = itertools.count()

    def make():
        folder = tmp_path / f"{next(numbers)}"
        folder.mkdir()
        return LocalStore(folder / "store")

    die_anywhere(make, source, "convert", "zarr3", "g/a")


@pytest.mark.parametrize(("old", "fmt"), [("zarr3-draft", "n5"), ("damaged zarr2", "zarr3")])
def test_a_job_that_dies_anywhere_beside_another_format(source, old, fmt):
    """Or beside a node that does not open."""
    die_anywhere(MemoryStore, source, "convert", fmt, "g/a", old=old, deletes=old == "zarr3-draft")


def damaged(store, path):
    """Damage the array's document."""
    store.set(f"{path}/.zarray", b'{"zarr_format": 2, "shape')


def is_damaged(store, path):
    """Return whether what `damaged` left is there, whole."""
    n_keys = sum("chunkmill" not in key for key in store.list_prefix(f"{path}/"))
    return store.get(f"{path}/.zarray") == b'{"zarr_format": 2, "shape' and n_keys == 2 + 6


def seen_or_deleted(store, path, job):
    """Return which is there; where there is none, opening it must name the job."""
    try:
        return seen(store, path, job)
    except NodeNotFound as error:
        found = re.search(r"a job that writes .* was interrupted: ['\"]", str(error))
    assert found
    return "none"


def die_anywhere(make_store, source, job, fmt, path, *, old="", deletes=False):
    n, both, resumed = 0, [], 0
    while True:
        store = make_store()
        options = {"chunks": (2, 2), "codecs": "gzip", "attributes": {"old": 1}}
        cm.to_store(OLD, store, path, format=old.removeprefix("damaged ") or fmt, **options)
        if old.startswith("damaged"):
            damaged(store, path)
        try:
            JOBS[job](source, Dying(store, n), path, fmt)
        except Died:
            problems = cm.check(store).problems
            is_old = old.startswith("damaged") and is_damaged(store, path)
            both.append("old" if is_old else seen_or_deleted(store, path, job) if deletes else seen(store, path, job))
            # leftover: the last requests delete the journal, of which records are ignored where its plan is gone
            assert is_old or {problem.kind for problem in problems} <= {"unfinished", "leftover"}, problems
        else:
            break
        report = JOBS[job](source, store, path, fmt)
        resumed += report.n_resumed > 0
        assert seen(store, path, job) == "new"
        assert cm.check(store, repair=True).ok
        assert not [key for key in store.list_prefix("") if "chunkmill" in key]
        if isinstance(store, LocalStore):
            assert not list(Path(store.url.removeprefix("file://")).parent.rglob("*chunkmill*"))
        n += 1
    assert seen(store, path, job) == "new"
    assert n > 6
    assert resumed > 3
    # the old, and from some step on the new
    assert [name for name, _ in itertools.groupby(both)] == ["old", *(["none"] if deletes else []), "new"]


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
