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
