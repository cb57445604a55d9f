"""`sync` of pyramids: all levels are as those of a pyramid that is made anew."""

import random

import dask
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import JobError
from chunkmill.syncs import tasks


def made(folder, shape=(45, 52), **options):
    a = cm.create_array(folder / "a.zarr", "0", shape=shape, dtype="u2", chunks=(8, 10), **options)
    a[...] = np.random.default_rng(1).integers(0, 60000, shape)
    return a


def levels(store, path=""):
    return [level.array[...] for level in cm.open_group(store, path).multiscales[0]]


def same(folder, store, path, **options):
    cm.pyramid((folder / "a.zarr", "0"), folder / "anew", overwrite=True, **options)
    found, wanted = levels(store, path), levels(folder / "anew")
    return len(found) == len(wanted) and all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


WAYS = {
    "mean": {"factors": 2, "levels": 4},
    "into shards": {"factors": 2, "levels": 3, "chunks": (8, 8), "shards": (16, 32)},
    "mode by axis": {"factors": [(1, 3), (2, 2)], "method": "mode"},
    "to n5": {"factors": 2, "levels": 3, "format": "n5", "chunks": (9, 7)},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2))
def test_random_edits_growth_and_deletions(tmp_path, way, seed):
    a, options, rng = made(tmp_path), WAYS[way], random.Random(seed)
    cm.pyramid((tmp_path / "a.zarr", "0"), tmp_path / "image", **options, lineage=True)
    for _ in range(6):
        for _ in range(rng.randrange(1, 4)):
            what = rng.choice(["edit", "edit", "grow", "delete", "longer"])
            if what == "edit":
                i, j = (rng.randrange(n) for n in a.shape)
                a[i : i + rng.randrange(1, 9), j] = rng.randrange(1000)
            elif what == "grow":
                a.append(np.full((rng.randrange(1, 9), a.shape[1]), rng.randrange(99)), axis=0)
            elif what == "longer":
                a.resize((a.shape[0], a.shape[1] + 1))
            elif keys := sorted((tmp_path / "a.zarr").rglob("c/*/*")):
                rng.choice(keys).unlink()
        with dask.config.set(scheduler=rng.choice(["sync", "threads"])):
            cm.sync((tmp_path / "a.zarr", "0"), tmp_path / "image")
        assert same(tmp_path, tmp_path / "image", "", **options)
        assert cm.plan_sync((tmp_path / "a.zarr", "0"), tmp_path / "image").n_keys == 0


def test_levels_next_to_their_source(tmp_path):
    a = made(tmp_path)
    cm.pyramid(a, factors=2, levels=3, lineage=True)
    a[3:20, 7] = 9
    a.append(np.ones((3, 52), "u2"))
    assert cm.sync(a, tmp_path / "a.zarr").actions.keys() == {"reduce"}
    assert same(tmp_path, tmp_path / "a.zarr", "", factors=2, levels=3)


def test_an_interrupted_sync_is_repeated(tmp_path, monkeypatch):
    a = made(tmp_path)
    cm.pyramid(a, tmp_path / "image", factors=2, levels=3, lineage=True)
    n_keys = cm.plan_sync(a, tmp_path / "image").n_keys
    for last in (3, 36, 41, 50):
        a.append(np.full((2, 52), last), axis=0)
        a[...] = last * np.arange(a.size).reshape(a.shape) % 60000
        written = []

        def failing(*arguments, last=last, written=written, write=tasks.write_region):
            if len(written) == last:
                raise KeyboardInterrupt
            written.append(arguments)
            return write(*arguments)

        monkeypatch.setattr(tasks, "write_region", failing)
        with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
            cm.sync(a, tmp_path / "image")
        monkeypatch.undo()
        a[3, 3] = last
        cm.sync(a, tmp_path / "image")
        assert same(tmp_path, tmp_path / "image", "", factors=2, levels=3)
        assert cm.plan_sync(a, tmp_path / "image").n_keys == n_keys == 0


def test_values_are_compared_in_all_levels(tmp_path):
    a = made(tmp_path)
    cm.pyramid(a, tmp_path / "image", factors=2, levels=3, lineage=True)
    damaged = cm.open_array(tmp_path / "image", "1", mode="r+")
    damaged[5, 5] += 1
    a[0, 0] = 0
    cm.sync(a, tmp_path / "image", compare="values")
    assert same(tmp_path, tmp_path / "image", "", factors=2, levels=3)


def test_what_lineage_cannot_hold_is_named(tmp_path):
    a = made(tmp_path)
    cm.pyramid(a, tmp_path / "image", factors=2, levels=2, method=np.max, lineage=True)
    a[0, 0] = 1
    with pytest.raises(JobError, match=r"the call that made the target is not stored: a lineage cannot hold .*max"):
        cm.sync(a, tmp_path / "image")
