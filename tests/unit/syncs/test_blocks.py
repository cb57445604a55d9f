"""`sync` of transforms: the blocks whose sources have changed are made again."""

import random

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import JobError


def smoothed(block):
    return (np.roll(block, 1, 0) + block + np.roll(block, -1, 0)) / 3


def both(a, b):
    return a + b, a - b


def flipped(region):
    rows, columns = region
    return slice(40 - rows.stop, 40 - rows.start), columns


def upside_down(block):
    return block[::-1]


def scaled(block, factor):
    return block * factor


def made(folder, name="a", shape=(40, 36), dtype="f8"):
    a = cm.create_array(folder / f"{name}.zarr", shape=shape, dtype=dtype, chunks=(10, 6))
    a[...] = np.random.default_rng(len(name)).random(shape)
    return a


WAYS = {
    "halo": (smoothed, {"halo": (1, 0)}, {}),
    "halo of nearest, other chunks": (smoothed, {"halo": (1, 0), "boundary": "nearest", "chunks": (7, 12)}, {}),
    "absent chunks": (smoothed, {"halo": (1, 0), "skip_absent": True}, {}),
    "by region": (upside_down, {"source_region": flipped}, {"source_region": flipped}),
    "parameters": (scaled, {"params": {"factor": 3}, "shards": (20, 12)}, {}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(2))
def test_random_edits_growth_and_deletions(tmp_path, way, seed):
    function, options, again = WAYS[way]
    a, rng = made(tmp_path), random.Random(seed)
    cm.transform(function, a, tmp_path / "b.zarr", **options, lineage=True)
    for _ in range(6):
        for _ in range(rng.randrange(1, 4)):
            what = rng.choice(["edit", "edit", "delete"] + ["grow", "longer"] * (way != "by region"))
            if what == "edit":
                i, j = (rng.randrange(n) for n in a.shape)
                a[i : i + rng.randrange(1, 9), j] = rng.random()
            elif what == "grow":
                a.append(np.full((rng.randrange(1, 9), a.shape[1]), rng.random()), axis=0)
            elif what == "longer":
                a.resize((a.shape[0] + 1, a.shape[1] + 1))
            elif keys := sorted((tmp_path / "a.zarr").rglob("c/*/*")):
                rng.choice(keys).unlink()
        cm.sync(a, tmp_path / "b.zarr", function=function, options=again)
        cm.transform(function, a, tmp_path / "anew.zarr", **options, overwrite=True)
        found, wanted = cm.open_array(tmp_path / "b.zarr"), cm.open_array(tmp_path / "anew.zarr")
        np.testing.assert_array_equal(found[...], wanted[...])
        assert cm.plan_sync(a, tmp_path / "b.zarr", function=function, options=again).n_keys == 0


def test_one_block_of_one_key_and_its_halo(tmp_path):
    a = made(tmp_path)
    cm.transform(smoothed, a, tmp_path / "b.zarr", halo=(1, 0), block=(10, 6), lineage=True)
    a[15, 3] = 9  # no halo meets it
    plan = cm.plan_sync(a, tmp_path / "b.zarr", function=smoothed)
    assert (plan.n_changed, plan.n_keys) == (1, 3)  # versions are of store keys: the blocks above and below read it
    assert plan.run().n_keys == 3


def test_several_sources_and_targets(tmp_path):
    a, b = made(tmp_path, "a"), made(tmp_path, "bb")
    places = [(tmp_path / "c.zarr", "sum"), (tmp_path / "d.zarr", "difference")]
    cm.transform(both, [a, b], places, lineage=True)
    b[3, 3] = 7
    report = cm.sync([a, b], places[0], function=both)
    assert report.n_keys == 2
    a.append(np.ones((4, 36)))
    b.append(np.ones((4, 36)))
    cm.sync([a, b], places[0], function=both)
    np.testing.assert_array_equal(cm.open_array(*places[0])[...], a[...] + b[...])
    np.testing.assert_array_equal(cm.open_array(*places[1])[...], a[...] - b[...])


def test_others_are_refused(tmp_path):
    a, b = made(tmp_path), made(tmp_path, "bb")
    cm.transform(scaled, a, tmp_path / "c.zarr", params={"factor": 2}, lineage=True)
    with pytest.raises(JobError, match=r"lineage holds no code, and the target was made by .*scaled"):
        cm.sync(a, tmp_path / "c.zarr")
    with pytest.raises(JobError, match=r"made by .*scaled .*, and the function is .*scaled .* now"):
        cm.sync(a, tmp_path / "c.zarr", function=scaled, options={"params": {"factor": 3}})
    with pytest.raises(JobError, match=r"was made of .*a\.zarr/, and the source is .*bb\.zarr/"):
        cm.sync(b, tmp_path / "c.zarr", function=scaled)
    with pytest.raises(JobError, match="values of a transform are known when all of it is made again"):
        cm.sync(a, tmp_path / "c.zarr", function=scaled, compare="values")
    a.resize((20, 36))
    with pytest.raises(JobError, match="it can only grow"):
        cm.sync(a, tmp_path / "c.zarr", function=scaled)
    cm.convert(a, tmp_path / "d.zarr", format="zarr3", lineage=True)
    with pytest.raises(ValueError, match="function= and options= are those of a transform"):
        cm.sync(a, tmp_path / "d.zarr", function=scaled)
