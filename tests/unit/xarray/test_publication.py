"""The attribute that records an unfinished append."""

from support.cases import cases

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.publication import ATTRIBUTE, UnfinishedAppend


@cases("shape", [(5,), (9, 2), (8, 3)])
def test_marks_of_another_array_count_for_nothing(shape):
    one = cm.create_array(MemoryStore(), "v", shape=(8, 2), dtype="i4", chunks=(4, 2)).stored
    assert UnfinishedAppend("t", {"v": shape}).arrays_before({"v": one})["v"] is one


@cases(
    "value", [None, 3, {"dim": "t"}, {"dim": 1, "shapes": {}}, {"dim": "t", "shapes": {"v": "5"}},
              {"dim": "t", "shapes": {"v": [-1]}}, {"dim": "t", "shapes": {"v": [True]}}],
)  # fmt: skip
def test_what_is_no_mark(value):
    assert not UnfinishedAppend.of({ATTRIBUTE: value}).shapes
    assert not UnfinishedAppend.of({}).shapes


def test_marks_of_groups_above_count_more():
    above, own = UnfinishedAppend("t", {"g/v": (5,), "w": (1,)}), UnfinishedAppend("t", {"v": (6,), "x": (2,)})
    assert above.below("g").joined(own).shapes == {"v": (5,), "x": (2,)}


def test_the_attribute_is_not_shown_as_one_of_the_users():
    append = UnfinishedAppend("t", {"v": (5, 2)})
    group = cm.create_group(MemoryStore(), attributes={ATTRIBUTE: append.to_json(), "title": "t"})
    assert group.attributes == {"title": "t"}
    assert UnfinishedAppend.of(group.metadata.attributes) == append
    group.update_attributes({"more": 1})
    assert ATTRIBUTE in cm.open_group(group.store).metadata.attributes


def test_marks_that_do_not_say_the_new_shapes_stay():
    """As earlier versions wrote them: a repair cannot tell how long the arrays were to be."""
    store, mark = MemoryStore(), {"dim": "t", "shapes": {"v": [5]}}
    cm.create_group(store, attributes={ATTRIBUTE: mark})
    cm.create_array(store, "v", shape=(8,), dtype="i4", chunks=(4,), dimension_names=["t"])
    (problem,) = cm.check(store, repair=True).problems
    assert (problem.kind, problem.repaired) == ("unfinished", False)
    assert problem.reason.endswith("repeat it")
    assert cm.open_group(store).metadata.attributes == {ATTRIBUTE: mark}
