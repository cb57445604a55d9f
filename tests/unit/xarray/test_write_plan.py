"""Plans of dataset writes: nothing is written."""

import numpy as np
import pytest
import xarray as xr
from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.errors import DatasetError
from chunkmill.formats.registry import get_format
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.write_plan import DatasetPlan, labelled_groups, plan_write

SMALL = xr.Dataset({"v": (("t", "x"), np.ones((3, 2))), "m": ("x", [1, 2])}, coords={"t": [0, 1, 2]}, attrs={"a": 1})


def test_groups_of_a_tree():
    tree = xr.DataTree.from_dict({"/": SMALL, "/below": xr.Dataset({"w": ("x", [1, 2])})})
    groups = labelled_groups(tree, "top", {"/below": {"w": {"chunks": (1,)}}}, "")
    assert [group.path for group in groups] == ["top", "top/below"]
    assert [group.asked for group in groups] == [{}, {"w": {"chunks": (1,)}}]


@cases(
    ("data", "encoding", "error", "message"),
    [
        (SMALL, {"none": {}}, DatasetError, "unknown variables"),
        (xr.DataTree(SMALL), {"v": {}}, DatasetError, "unknown groups"),
        (xr.Dataset({"a/b": 1}), None, DatasetError, "rename it"),
        (SMALL.v, None, TypeError, "to_dataset"),
    ],
)
def test_arguments_that_are_refused(data, encoding, error, message):
    with pytest.raises(error, match=message):
        labelled_groups(data, "", encoding, "")


def test_a_new_group_is_described_and_nothing_written():
    store = RecordingStore(MemoryStore())
    plan = DatasetPlan(store, "g", get_format("zarr3"))
    plan_write(plan, labelled_groups(SMALL, "g", None, ""))
    assert sorted(planned.array.path for planned in plan.variables) == ["g/m", "g/t", "g/v"]
    assert list(plan.new_groups) == ["g"]
    assert len(plan.new_arrays) == 3
    assert not store.keys("set", "set_if")


@pytest.fixture
def root():
    store = MemoryStore()
    cm.write_dataset(SMALL, store)
    return cm.open_group(store, mode="r+")


def planned(root, ds, **options):
    plan = DatasetPlan(root.stored.store, "", root.stored.documents, **{"adds": False} | options)
    plan_write(plan, labelled_groups(ds, "", None, ""), root.stored)
    return plan


def test_an_append_plans_the_new_elements_alone(root):
    plan = planned(root, SMALL.assign_coords(t=[3, 4, 5]), append_dim="t", adds=True)
    regions = {each.array.path: each.region for each in plan.variables}
    assert regions == {"v": (slice(3, 6), slice(0, 2)), "t": (slice(3, 6),)}
    assert plan.unchanged == ["m"]
    assert {each.path: (each.before, each.after) for each in plan.growth} == {"v": ((3, 2), (6, 2)), "t": ((3,), (6,))}


def test_a_region_plans_what_it_covers(root):
    plan = planned(root, SMALL.isel(t=slice(1, 3)), region={"t": slice(1, 3)})
    assert {each.array.path: each.region for each in plan.variables} == {"v": (slice(1, 3), slice(0, 2))}
    assert sorted(plan.unchanged) == ["m", "t"]
    assert not plan.growth
