"""Pyramids beside the first level: of jobs that die, and of groups that others change meanwhile."""

import copy
import itertools
import time
from contextlib import suppress

import numpy as np
import pytest
from support.recording import Died, DyingStore

import chunkmill as cm
from chunkmill.errors import JobError, NodeExists
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("one_thread")

VALUES = np.arange(64, dtype="u2").reshape(8, 8)
FIRST = {"zarr2": "g/0", "zarr3": "g/0", "n5": "g/s0"}


@pytest.fixture(params=["zarr3", "n5"])
def format_(request):
    return request.param


@pytest.fixture
def store(format_):
    store = MemoryStore()
    cm.create_group(store, "g", format=format_, attributes={"made": "before"})
    cm.to_store(VALUES, store, FIRST[format_], format=format_, chunks=(4, 4))
    return store


def seen(store):
    group = cm.open_group(store, "g", consolidated=False)
    return group.attributes, {name: (a.attributes, a[...].tolist()) for name, a in group.arrays().items()}


def test_a_job_that_died_at_any_conditional_write_is_resumed(format_, store, all_died):
    """In N5 it was refused after the attributes of the group, with those of the first level missing for ever."""
    cm.pyramid((done := copy.copy(store), FIRST[format_]), levels=2)
    undisturbed, n_deaths = seen(done), 0
    while True:
        mortal = DyingStore(copy.copy(store), n_deaths, ["set_if"], Died)
        try:
            cm.pyramid((mortal, FIRST[format_]), levels=2)
            break
        except Died:
            n_deaths += 1
        with suppress(NodeExists, JobError):  # all was there, and its journal was not told
            cm.pyramid((mortal.below, FIRST[format_]), levels=2)
        assert seen(mortal.below) == undisturbed, n_deaths
    assert n_deaths > 5


@pytest.mark.parametrize("format_", ["zarr3"], indirect=True)
def test_what_the_group_says_of_other_images_stays(store):
    """The member ``ome`` was replaced as a whole by the image's."""
    axes = [{"name": name, "type": "space"} for name in "yx"]
    level = {"path": "other/0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0]}]}
    other = {"axes": axes, "datasets": [level]}
    ome = {"version": "0.5", "labels": ["cells"], "multiscales": [other]}
    cm.open_group(store, "g", mode="r+").update_attributes({"ome": ome})
    cm.create_array(store, "g/other/0", shape=(8, 8), dtype="u2", format="zarr3")
    cm.pyramid((store, "g/0"), levels=2)
    stored = cm.open_group(store, "g").attributes["ome"]
    assert stored["labels"] == ["cells"]
    paths = [[level["path"] for level in each["datasets"]] for each in stored["multiscales"]]
    assert paths == [["0", "1"], ["other/0"]]
    cm.pyramid((store, "g/0"), levels=3, overwrite=True)
    levels = [len(each["datasets"]) for each in cm.open_group(store, "g").attributes["ome"]["multiscales"]]
    assert levels == [3, 1]


def test_attributes_that_others_set_meanwhile_stay(format_, store):
    """Attributes of a group with an image were written as they were when the job was planned."""
    cm.pyramid((store, FIRST[format_]), levels=2)
    plan = cm.plan_pyramid((store, FIRST[format_]), levels=3, overwrite=True)
    cm.open_group(store, "g", mode="r+").update_attributes({"made": "meanwhile"})
    plan.run()
    assert cm.open_group(store, "g").attributes["made"] == "meanwhile"
    assert len(list(cm.open_group(store, "g").arrays())) == 3


@pytest.mark.parametrize("format_", ["zarr2"], indirect=True)
def test_each_level_is_the_old_or_the_new_wherever_the_job_dies(format_, all_died, monkeypatch):
    """One that was in place was replaced by nothing, where the job had died between two of them."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    first, found, store = FIRST[format_], [], MemoryStore()
    cm.create_group(store, "g", format=format_)
    cm.to_store(VALUES, store, first, format=format_, chunks=(4, 4))
    cm.pyramid((store, first), levels=3)
    paths, expected = [f"{first[:-1]}{i}" for i in (1, 2)], seen(store)
    for n in itertools.count():
        mortal = DyingStore(copy.copy(store), n, error=Died)
        with suppress(Died):
            cm.pyramid((mortal, first), levels=3, chunks=(2, 2), overwrite=True)
            break
        if n % 2:
            cm.check(mortal.below, repair=True)
        assert seen(mortal.below) == expected, n
        found.append([cm.open_array(mortal.below, path).chunks == (2, 2) for path in paths])
        cm.pyramid((mortal.below, first), levels=3, chunks=(2, 2), overwrite=True)
        assert seen(mortal.below) == expected, n
        assert [cm.open_array(mortal.below, path).chunks for path in paths] == [(2, 2)] * 2
        assert cm.check(mortal.below).ok
        assert not [key for key in mortal.below.list_prefix("") if "chunkmill" in key]
    assert len(found) > 20
    # the first, which the journal is named after, comes last
    assert [which for which, _ in itertools.groupby(found)] == [[False, False], [False, True], [True, True]]


@pytest.mark.parametrize("format_", ["n5"], indirect=True)
@pytest.mark.parametrize("what", ["nothing", "group"])
def test_levels_that_others_have_deleted_or_replaced_are_made_again(format_, store, what):
    """The group's attributes name a level that is none: the error named no way out."""
    cm.pyramid((store, FIRST[format_]), levels=3)
    undisturbed = seen(store)
    second = FIRST[format_].replace("0", "1")
    cm.delete(store, second)
    if what == "group":
        cm.create_group(store, second, format=format_)
    cm.pyramid((store, FIRST[format_]), levels=3, overwrite=True)
    assert seen(store) == undisturbed


def test_in_a_zip_file_a_death_after_publishing_blocks_nothing(tmp_path, monkeypatch):
    """The levels are there, and the group has changed: the plan of the same call is another one."""
    store = str(tmp_path / "i.zip")
    cm.to_store(VALUES, store, "0", format="zarr3", chunks=(4, 4))

    def die(*_):
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("chunkmill.journal.journal.Journal.finish", die)
        with pytest.raises(Died):
            cm.pyramid((store, "0"), None, levels=2)
    with pytest.raises(NodeExists, match="overwrite=True"):
        cm.pyramid((store, "0"), None, levels=2)
    cm.pyramid((store, "0"), None, levels=2, overwrite=True)
    assert cm.open_array(store, "1").shape == (4, 4)
    assert cm.check(store).ok
