"""What a cluster's dashboard shows: names and keys of tasks, and spans, by which it sums up times and bytes."""

from collections import defaultdict

import dask
import dask.array as da
import numpy as np
import pytest
from dask.utils import key_split
from distributed import get_task_stream
from distributed.diagnostics.plugin import SchedulerPlugin

import chunkmill as cm

pytestmark = pytest.mark.slow


class Watch(SchedulerPlugin):
    """Keeps the keys that were submitted, and the spans that they were annotated with."""

    def __init__(self):
        self.name = "watch"
        self.spans = defaultdict(set)

    def update_graph(self, scheduler, *, tasks, annotations, **_):
        for key in tasks:
            self.spans[key].add(annotations.get("span", {}).get(key, {}).get("name", ()))


@pytest.fixture
def seen(client):
    """Keys and spans of what a function submits; and what the task stream shows of it."""

    def watch(function):
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.add_plugin(Watch()))
        with get_task_stream(client) as stream:
            function()
        plugin = client.run_on_scheduler(lambda dask_scheduler: dict(dask_scheduler.plugins["watch"].spans))
        client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.remove_plugin("watch"))
        executed = {key_split(task["key"]) for task in stream.data}
        return plugin, executed

    return watch


@pytest.fixture
def store(tmp_path):
    url = tmp_path / "x.zarr"
    with dask.config.set(scheduler="sync"):
        cm.to_store(np.arange(1600).reshape(40, 40), url, "a/volume", chunks=(10, 10))
    return url


def test_a_job_s_keys_name_the_stage_and_the_store_key(seen, store, tmp_path):
    spans, executed = seen(lambda: cm.convert(store, tmp_path / "x.n5", format="n5"))
    keys = [key for key in spans if isinstance(key, tuple)]
    assert {key_split(key) for key in keys} == {"convert"} <= executed
    assert [number for _, number, _ in sorted(keys)] == list(range(len(keys)))
    written = {path.relative_to(tmp_path / "x.n5").as_posix() for path in (tmp_path / "x.n5").rglob("*")}
    assert {store_key for *_, store_key in keys} <= written
    assert {spans[key].pop() for key in keys} == {("chunkmill", f"convert to file://{tmp_path}/x.n5")}


def test_both_stages_of_a_rechunking(seen, store, tmp_path):
    target = tmp_path / "y.zarr"
    plan = cm.plan_rechunk((store, "a/volume"), target, chunks=(40, 2), strategy="spill")
    spans, executed = seen(plan.run)
    keys = [key for key in spans if isinstance(key, tuple)]
    assert {"rechunk-spill", "rechunk-write"} <= executed
    assert {key_split(key) for key in keys} == {"rechunk-spill", "rechunk-write"}
    assert {key[2] for key in keys if key[0].startswith("rechunk-spill")} <= {
        f"a/volume/c/{i}/{j}" for i in range(4) for j in range(4)
    }
    assert {tag for key in keys for name in spans[key] for tag in name} == {"chunkmill", plan.job.name}


@pytest.mark.parametrize(
    ("operation", "stage"),
    [
        (lambda url: cm.verify(url, url), "verify"),
        (cm.check, "check"),
        (lambda url: cm.to_references(url, f"{url}.json"), "references"),
    ],
    ids=["verify", "check", "references"],
)
def test_what_only_reads(seen, store, operation, stage):
    spans, executed = seen(lambda: operation(store))
    keys = [key for key in spans if isinstance(key, tuple)]
    assert stage in executed or not keys  # where the listing tells all, nobody is asked for references
    assert all(key_split(key) == stage and key[2].startswith("a/volume/c/") for key in keys)
    assert all("chunkmill" in name for key in keys for name in spans[key])


def test_blocks_are_read_and_written_under_their_numbers(seen, store, tmp_path):
    x = cm.from_store(store, "a/volume")
    spans, executed = seen(lambda: x.compute(optimize_graph=False))
    assert "read-volume" in executed
    assert {key[1:] for key in spans} >= set(np.ndindex(4, 4))

    source = da.ones((40, 40), chunks=(10, 10))
    spans, executed = seen(lambda: cm.to_store(source, tmp_path / "y.zarr", "b"))
    assert "write-b" in executed
    assert {key[1:3] for key in spans if key[0].startswith("write-b")} == set(np.ndindex(4, 4))
    shown = ("chunkmill", f"write to 'b' in file://{tmp_path}/y.zarr")
    assert {name for names in spans.values() for name in names} == {shown}


def test_names_do_not_keep_dask_from_fusing(store):
    """Layers with annotations of their own are not fused: reading and `+ 1` would be two tasks."""
    x = cm.from_store(store, "a/volume")
    (optimised,) = dask.optimize((x + 1).sum(axis=0))
    assert not [key for key in dict(optimised.dask) if isinstance(key, tuple) and key[0].startswith("read-")]
    (layer,) = x.dask.layers.values()
    assert layer.annotations is None
    assert layer.collection_annotations["url"] == f"file://{store}"
    assert layer.collection_annotations["path"] == "a/volume"
    assert "a/volume" in x.dask._repr_html_()
