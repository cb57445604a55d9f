"""What is stored next to chunks and documents, mutated: journals, reference sets, zip files, chunks with checksums.

The outcome is a right value, or a `ChunkmillError`, soon. Every mutation has its own seed: a failure names it, and the
same test gives it again. `CHUNKMILL_FUZZ` says how many there are: more every night.
"""

from __future__ import annotations

import copy
import os
import random
import re
import time
from contextlib import suppress

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.mutations import mutate_bytes, mutate_json
from support.recording import DeletingStore, deaths
from support.small_jobs import journal_keys

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

N_MUTATIONS = 40 * int(os.environ.get("CHUNKMILL_FUZZ", "3"))
MAX_SECONDS = 5.0  # of the processor
VALUES = np.arange(64, dtype="i4").reshape(8, 8) + 1
OLD = np.full((8, 8), 7, "i4")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def _alone(all_died, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with dask.config.set({"scheduler": "sync", "chunkmill.progress": False}):
        yield


def try_each(name, case):
    """Try a case with a source of chance for each number; a failure tells its seed, and so does one that takes long."""
    for number in range(N_MUTATIONS):
        seed, begun = f"{name}#{number}", time.process_time()
        try:
            case(random.Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        assert time.process_time() - begun < MAX_SECONDS, seed


def mutated(value, chance):
    change = mutate_json if value[:1] in {b"{", b"["} and chance.random() < 0.8 else mutate_bytes
    return change(value, chance)


def result_of(action):
    """Return what comes of it: ``None`` where one of our errors does."""
    with suppress(cm.ChunkmillError):
        return action()


# --------------------------------------------------------------------------------------------------------------------
# Journals: plans, heartbeats, records, intent records, intermediate files


def rechunk(source, store):
    cm.rechunk((source, "a"), (store, "b"), chunks=(8, 1), strategy="spill", max_mem="8 MiB")


def replace(source, store):
    cm.convert((source, "a"), (store, "b"), format="zarr3", overwrite=True)


JOBS = {"rechunk": (rechunk, MemoryStore), "replace": (replace, MemoryStore), "deletions": (replace, DeletingStore)}


def interrupted(job, kind):
    """Return the source of a job, and what each death leaves in its target."""
    source, target = MemoryStore(), kind()
    filled(VALUES, source, "a", chunks=(4, 4), format="zarr2")
    if job is replace:
        filled(OLD, target, "b", chunks=(4, 4))
    states = deaths(lambda: copy.copy(target), lambda dying: job(source, dying))
    return source, [state for state in states if any(journal_keys(state))]


@pytest.mark.parametrize("name", JOBS)
def test_journals(name):
    job, kind = JOBS[name]
    source, states = interrupted(job, kind)
    assert len(states) > 8
    outcomes = []

    def case(chance):
        store = copy.copy(chance.choice(states))
        # chunks and documents that are staged, and intermediate values, have no other checksums than those of their codecs
        own = [key for key in journal_keys(store) if store.get(key) and not re.search("/(new-|intermediate/)", key)]
        key = chance.choice(own)
        store.set(key, mutated(store.get(key), chance))
        result_of(lambda: [repr(each) for each in cm.jobs(store)])
        result_of(lambda: repr(cm.check(store)))
        repaired = copy.copy(store)
        result_of(lambda: repr(cm.check(repaired, repair=True)))
        for each in (store, repaired):
            done = result_of(lambda each=each: job(source, each) or True)
            found = result_of(lambda each=each: cm.open_array(each, "b")[...])
            assert found is None or (found == VALUES).all() or ((found == OLD).all() and not done), key
            outcomes.append(done)

    try_each(name, case)
    assert outcomes.count(True) > N_MUTATIONS // 10


# --------------------------------------------------------------------------------------------------------------------
# Chunks with checksums


CHECKSUMMED = {
    "crc32c": {"codecs": ["crc32c"]}, "gzip, crc32c": {"codecs": ["gzip", "crc32c"]},
    "shards": {"shards": (8, 8), "codecs": ["crc32c"]},
    "zarr2, adler32": {"format": "zarr2", "codecs": [{"id": "adler32"}]},
    "zarr2, crc32": {"format": "zarr2", "codecs": [{"id": "crc32"}]},
    "zarr2, fletcher32": {"format": "zarr2", "codecs": [{"id": "fletcher32"}]},
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKSUMMED)
def test_chunks_with_checksums(name):
    array = filled(VALUES, store := MemoryStore(), chunks=(4, 4), **CHECKSUMMED[name])
    keys = list(array.stored.stored_keys())

    def case(chance):
        changed, key = copy.copy(store), chance.choice(keys)
        changed.set(key, mutate_bytes(store.get(key), chance))
        found = result_of(lambda: cm.open_array(changed)[...])
        if found is not None:
            np.testing.assert_array_equal(found, VALUES)

    try_each(name, case)


# --------------------------------------------------------------------------------------------------------------------
# Zip files


def test_zip_files(tmp_path):
    """A chunk whose name is changed is absent: no checksum is of names."""
    path = tmp_path / "x.zip"
    cm.to_store(VALUES, path, chunks=(4, 4))
    data = path.read_bytes()
    assert data.startswith(b"PK")
    parts = [(slice(i, i + 4), slice(j, j + 4)) for i in (0, 4) for j in (0, 4)]

    def case(chance):
        path.write_bytes(mutate_bytes(data, chance))
        found = result_of(lambda: cm.open_array(path)[...])
        assert found is None or all((found[p] == VALUES[p]).all() or not found[p].any() for p in parts)
        result_of(lambda: repr(cm.check(path)))

    try_each("zip", case)


# --------------------------------------------------------------------------------------------------------------------
# Reference sets, which have no checksums


@pytest.mark.parametrize("layout", ["json", "parquet"])
def test_reference_sets(layout, tmp_path):
    if layout == "parquet":
        pytest.importorskip("pyarrow")
    source, place = tmp_path / "source", tmp_path / ("set.json" if layout == "json" else "set")
    filled(VALUES, source, chunks=(4, 4), format="zarr2")
    cm.to_references(source, place, format=layout)
    files = [place] if layout == "json" else sorted(path for path in place.rglob("*") if path.is_file())
    before = {path: path.read_bytes() for path in files}

    def use():
        node = cm.open(place)
        repr(node)
        return node[...] if node.nbytes < 1 << 20 else None

    def case(chance):
        path = chance.choice(files)
        path.write_bytes(mutated(before[path], chance))
        result_of(use)
        result_of(lambda: repr(cm.check(place)))
        path.write_bytes(before[path])

    assert (use() == VALUES).all()
    try_each(layout, case)
