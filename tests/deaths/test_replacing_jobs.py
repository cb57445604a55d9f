"""Jobs that replace a node: what was there stays until the new one is whole, wherever the job dies."""

import itertools
import json
import re
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import settings
from support.recording import CHANGES, DeletingStore, Died, DyingStore

import chunkmill as cm
from chunkmill.errors import NodeNotFound
from chunkmill.journal import heartbeat, journal
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

OLD, NEW = np.arange(20).reshape(4, 5), np.arange(24).reshape(4, 6) + 100
NEW_BLOCKS = da.from_array(NEW, chunks=(4, 3))

EVERY = 1 if settings().max_examples > 25 else 3
"""How many requests lie between two deaths: none at night."""


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
    cm.to_store(NEW_BLOCKS, store, "s/x", format="zarr2", codecs="raw", attributes={"new": 1})
    return store


JOBS = {
    "convert": lambda source, store, path, fmt: cm.convert(
        (source, "s/x"), (store, path), format=fmt, codecs="gzip", overwrite=True
    ),
    "rechunk": lambda source, store, path, fmt: cm.rechunk(
        (source, "s/x"), (store, path), chunks=(2, 6), format=fmt, strategy="spill", overwrite=True
    ),
    "to_store": lambda source, store, path, fmt: cm.to_store(
        NEW_BLOCKS, store, path, format=fmt, attributes={"new": 1}, mode="w", resume=True
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


@pytest.mark.parametrize(
    ("kind", "job", "fmt", "path", "old"),
    [
        (MemoryStore, "rechunk", "zarr2", "", ""),
        (MemoryStore, "to_store", "n5", "a", ""),
        (MemoryStore, "tree", "zarr3-draft", "", ""),
        (DeletingStore, "rechunk", "zarr3", "g/a", ""),  # there is no node until it is done
        (DeletingStore, "tree", "zarr2", "", ""),
        (DeletingStore, "to_store", "zarr3-draft", "g/a", ""),
        (MemoryStore, "convert", "n5", "g/a", "zarr3-draft"),  # the old is deleted first
        (MemoryStore, "convert", "zarr3", "g/a", "damaged zarr2"),
    ],
)
def test_a_job_that_dies_anywhere_in_memory(source, kind, job, *, fmt, path, old):
    die_anywhere(kind, source, job, fmt, path, old=old, deletes=kind is DeletingStore or old == "zarr3-draft")


def test_a_job_that_dies_anywhere_in_a_directory(source, tmp_path):
    numbers = itertools.count()
    make = lambda: LocalStore(tmp_path / f"{next(numbers)}" / "store")  # noqa: E731
    die_anywhere(make, source, "convert", "zarr3", "g/a")


DAMAGED = b'{"zarr_format": 2, "shape'


def is_damaged(store, path):
    """Return whether a damaged node is there, whole."""
    n_keys = sum("chunkmill" not in key for key in store.list_prefix(f"{path}/"))
    return store.get(f"{path}/.zarray") == DAMAGED and n_keys == 2 + 2


def seen_or_deleted(store, path, job):
    """Return which is there; where there is none, opening it must name the job."""
    try:
        return seen(store, path, job)
    except NodeNotFound as error:
        found = re.search(r"a job that writes .* was interrupted: ['\"]", str(error))
    assert found
    return "none"


def die_anywhere(make_store, source, job, fmt, path, *, old="", deletes=False):
    both, resumed = [], 0
    for n in itertools.count(len(job + fmt) % EVERY, EVERY):
        store = make_store()
        options = {"chunks": (4, 3), "codecs": "gzip", "attributes": {"old": 1}}
        cm.to_store(OLD, store, path, format=old.removeprefix("damaged ") or fmt, **options)
        if old.startswith("damaged"):
            store.set(f"{path}/.zarray", DAMAGED)
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
    assert seen(store, path, job) == "new"
    assert resumed > 0
    # the old, and from some step on the new
    assert [name for name, _ in itertools.groupby(both)] == ["old", *(["none"] if deletes else []), "new"]
