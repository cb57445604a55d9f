"""`sync`: what has changed in the source is written again, and nothing else."""

import random

import dask
import numpy as np
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.stores.local import LocalStore


def made(folder, shape=(40, 36), chunks=(10, 6), **options):
    a = cm.create_array(folder / "a.zarr", "x", shape=shape, dtype="i4", chunks=chunks, **options)
    a[...] = np.arange(a.size).reshape(shape)
    return a


def equal(folder):
    return cm.verify(folder / "a.zarr", folder / "b").equal


WAYS = {
    "to n5": (cm.convert, {"format": "n5"}),
    "into shards": (cm.convert, {"format": "zarr3", "shards": (20, 12)}),
    "copied": (cm.convert, {"format": "zarr3"}),
    "rechunked": (cm.rechunk, {"chunks": (-1, 4)}),
    "of a region": (cm.convert, {"format": "zarr2", "region": (slice(5, 100), slice(3, 30))}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(4))
def test_random_edits_growth_and_deletions(tmp_path, way, seed):
    """After each sync the target equals the source."""
    function, options = WAYS[way]
    if "region" in options:
        a = made(tmp_path, shape=(110, 36))
        function((tmp_path / "a.zarr", "x"), tmp_path / "b", **options, lineage=True)
    else:
        a = made(tmp_path)
        function(tmp_path / "a.zarr", tmp_path / "b", **options, lineage=True)
    rng = random.Random(seed)
    source = (tmp_path / "a.zarr", "x") if "region" in options else tmp_path / "a.zarr"
    for _ in range(12):
        for _ in range(rng.randrange(4)):
            what = rng.choice(["edit", "edit", "grow", "delete", "longer"])
            if what == "edit":
                i, j = (rng.randrange(n) for n in a.shape)
                a[i : i + rng.randrange(1, 9), j] = rng.randrange(1000)
            elif what == "grow" and "region" not in options:
                a.append(np.full((rng.randrange(1, 9), a.shape[1]), rng.randrange(99)), axis=0)
            elif what == "longer" and "region" not in options:
                a.resize((a.shape[0], a.shape[1] + 1))
            elif what == "delete" and (keys := sorted((tmp_path / "a.zarr").rglob("c/*/*"))):
                rng.choice(keys).unlink()
        with dask.config.set(scheduler=rng.choice(["sync", "threads"])):
            cm.sync(source, tmp_path / "b")
        region = options.get("region")
        assert cm.verify(source, tmp_path / "b", region=region).equal


def test_only_what_changed_is_read_and_written(tmp_path):
    """One key in a hundred."""
    a = made(tmp_path, shape=(100, 100), chunks=(10, 10), codecs="raw")
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr3", lineage=True)
    a[33, 44] = -1
    plan = cm.plan_sync(tmp_path / "a.zarr", tmp_path / "b")
    assert (plan.n_changed, plan.n_keys, plan.bytes_read) == (1, 1, 400)
    report = plan.run()
    assert (report.n_keys, report.bytes_read, report.actions) == (1, 400, {"recode": 1})
    assert equal(tmp_path)


def test_nothing_changed_costs_listings_alone(tmp_path):
    a = made(tmp_path)
    store = RecordingStore(LocalStore(tmp_path / "a.zarr"))
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="n5", lineage=True)
    report = cm.sync(tmp_path / "a.zarr", tmp_path / "b")
    assert (report.n_keys, report.n_tasks, report.bytes_read, report.bytes_written) == (0, 0, 0, 0)
    assert a.shape == (40, 36)
    assert not store.log


def test_what_changes_between_plan_and_run_is_synced_later(tmp_path):
    a = made(tmp_path)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr2", lineage=True)
    plan = cm.plan_sync(tmp_path / "a.zarr", tmp_path / "b")
    a[0, 0] = -5
    plan.run()
    assert not equal(tmp_path)
    cm.sync(tmp_path / "a.zarr", tmp_path / "b")
    assert equal(tmp_path)


def test_values_need_no_lineage(tmp_path):
    a = made(tmp_path)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="n5")
    assert not (tmp_path / "b.lineage").exists()
    with pytest.raises(JobError, match="there is no lineage of the target"):
        cm.sync(tmp_path / "a.zarr", tmp_path / "b")
    a.append(np.ones((3, 36)))
    a[7, 7] = -1
    report = cm.sync(tmp_path / "a.zarr", tmp_path / "b", compare="values")
    assert equal(tmp_path)
    assert report.actions["equal"] > report.actions["recode"] > 0
    floats = cm.create_array(tmp_path / "a.zarr", "f", shape=(3,), dtype="f8", chunks=(3,))
    floats[...] = [np.nan, -0.0, 1]
    cm.convert((tmp_path / "a.zarr", "f"), tmp_path / "f", format="zarr3")
    assert cm.sync((tmp_path / "a.zarr", "f"), tmp_path / "f", compare="values").actions == {"equal": 1}
    floats[1] = 0.0  # equal, and another value
    assert cm.sync((tmp_path / "a.zarr", "f"), tmp_path / "f", compare="values").actions == {"recode": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a.resize((20, 36)), r"shape \(20, 36\) now, and the target \(40, 36\): it can only grow"),
        (
            lambda a: cm.create_array(a.store, "x", shape=(40, 36), dtype="i2", chunks=(10, 6), overwrite=True),
            "are others than they were",
        ),
        (lambda a: cm.create_array(a.store, "y", shape=(4,), dtype="i2"), "the target has no array 'y'"),
    ],
)
def test_what_cannot_be_synced_is_refused(tmp_path, change, says):
    a = made(tmp_path)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr3", lineage=True)
    change(a)
    with pytest.raises(JobError, match=says):
        cm.sync(tmp_path / "a.zarr", tmp_path / "b")


def test_another_source_is_refused(tmp_path):
    made(tmp_path)
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr3", lineage=True)
    (tmp_path / "a.zarr").rename(tmp_path / "c.zarr")
    with pytest.raises(JobError, match=r"was made of .*a.zarr/x, and the source is .*c.zarr/x"):
        cm.sync(tmp_path / "c.zarr", tmp_path / "b")
