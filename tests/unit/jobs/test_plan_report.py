"""What plans and reports show."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.small_jobs import make_job

from chunkmill.jobs import plan as plan_module
from chunkmill.jobs.plan import Plan
from chunkmill.jobs.work import PlannedStage
from chunkmill.runtime.worker_memory import Worker
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


def make_plan(store):
    costs = {"bytes_read": 1 << 20, "bytes_written": 1 << 10, "n_requests": 9, "actions": {"copy": 4, "recode": 1}}
    about = {"operation": "convert", "source": "here", "target": "there", "strategy": "copy", "reason": "because"}
    stage = PlannedStage("put-0", 5, 1 << 20, 1 << 10, 9)
    rows = [{"array": f"<a{i}>", "action": "copy"} for i in range(50)]
    return Plan(**about, n_tasks=5, **costs, stages=(stage,), job=make_job(store), arrays=rows)


def test_a_plan_shows_itself(store):
    plan = make_plan(store)
    text = repr(plan)
    for part in (
        "here",
        "there",
        "copy: because",
        "1.00 MiB",
        "copy 4 (copied without decoding), recode 1 (decoded and encoded again)",
        "put-0",
        "<a0>",
        "… plan.explain()",
    ):
        assert part in text
    html = plan._repr_html_()
    assert "&lt;a0&gt;" in html
    assert "<a0>" not in html


def test_a_plan_is_drawn_when_somebody_looks_at_it(store, monkeypatch):
    calls = []
    monkeypatch.setattr(plan_module, "grid_svg", lambda grid: calls.append(grid) or f"<{grid}/>")
    drawn = tuple(SimpleNamespace(chunk_grid=name) for name in ("before", "after"))
    plan = replace(make_plan(store), drawn=drawn)
    assert (repr(plan), calls) == (repr(make_plan(store)), [])
    assert "<before/>" in plan._repr_html_()
    assert calls == ["before", "after"]


def test_columns_are_attributes(store):
    plan = make_plan(store)
    assert (plan.n_tasks, plan.n_requests, plan.actions["copy"]) == (5, 9, 4)
    with pytest.raises(AttributeError, match="'Plan' object has no attribute 'n_thinks'"):
        plan.n_thinks  # noqa: B018
    as_dict = plan.to_dict()
    assert as_dict["n_tasks"] == 5
    assert as_dict["stages"][0]["name"] == "put-0"
    assert not {"job", "drawn", "costs"} & as_dict.keys()
    json.dumps(as_dict)


def test_a_plan_says_for_which_workers_it_is(store):
    plan = replace(make_plan(store), peak_memory_bytes=71 << 20)
    plan = replace(plan, job=replace(plan.job, worker=Worker(1 << 30, 2, 3)))
    assert "memory       71.00 MiB for all tasks at once on a worker" in repr(plan)
    assert "planned for  3 workers of 2 threads, each with 1.00 GiB for its tasks" in repr(plan)
