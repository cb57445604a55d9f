"""Stages: which specs one task does, and what is shown and counted."""

import numpy as np
from support.cases import cases

from chunkmill.array.present_keys import NO_BLOCKS
from chunkmill.runtime import stage as stages
from chunkmill.runtime.stage import Stage, TaskSpecs, count_tasks, grouped


@cases(
    ("shares", "sizes"),
    [([], []), ([1, 1], [1, 1]), ([0.5] * 5, [2, 2, 1]), ([0.2, 3, 0.2, 0.2], [1, 1, 2]), ([0] * 9, [9])],
)
def test_neighbours_share_a_task_up_to_its_budget(shares, sizes):
    stage = Stage("x", print, shares, range(len(shares)), share=lambda shares, spec: shares[spec])
    groups = grouped(stage)
    assert [len(group) for group in groups] == sizes
    assert [spec for group in groups for spec in group] == list(range(len(shares)))


@cases("n", [4, 5, 8, 9])
def test_no_more_tasks_than_a_scheduler_bears(monkeypatch, n):
    """Whatever the shares say."""
    monkeypatch.setattr(stages, "MAX_TASKS", 4)
    groups = grouped(Stage("x", print, None, range(n), share=lambda *_: 1.0))
    assert len(groups) <= 4
    assert [spec for group in groups for spec in group] == list(range(n))


def test_groups_of_arrays_are_not_listed():
    """Small arrays share a task with what comes before them."""
    specs = TaskSpecs.counted([3, 10**15, 2, 1, 1])
    shares = [0.25, 0.5, 0.1, 0.3, 1.0]
    stage = Stage("x", print, shares, specs, share=lambda shares, spec: shares[spec[0]])
    assert count_tasks(stage) == len(grouped(stage)) <= 100_000
    small = Stage("x", print, shares, TaskSpecs.counted([3, 5, 2, 1, 1]), share=stage.share)
    groups = grouped(small)
    sizes = [len(group) for group in groups]
    listed = grouped(Stage("x", print, shares, list(small.tasks), share=stage.share))
    assert sizes == [len(group) for group in listed] == [3, 2, 2, 4, 1]
    assert [spec for group in groups for spec in group] == list(small.tasks)


def test_what_is_shown_of_a_task_is_its_first_spec():
    stage = Stage("x", print, "a/", range(9), shows=lambda common, spec: f"{common}{spec}")
    assert stage.show((1, [3, 4], "references")) == "a/3"
    assert Stage("x", print, "a/", range(9)).show((1, [3, 4])) == ""


@cases("n", [0, 1, 2, 7])
def test_tasks_of_which_something_is_left(n):
    groups = grouped(Stage("x", print, None, TaskSpecs.counted([n])))
    some = NO_BLOCKS.with_blocks(np.arange(0, n, 3))
    assert list(groups.left_by({0: some})) == [*range(0, n, 3)]
    assert list(groups.left_by({0: NO_BLOCKS})) == []
    assert list(groups.left_by({})) == [*range(n)]
