"""`transform` as users call it: on clusters, from reference sets, started and cancelled."""

import functools
import subprocess
import sys
import threading
import time
import traceback

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import chunkmill as cm
from chunkmill.errors import JobCancelled, NodeNotFound, TransformError
from chunkmill.runtime.stage_runner import JobMonitor
from chunkmill.stores.memory import MemoryStore
from chunkmill.transforms.blocks import Space
from chunkmill.transforms.transform import halo_by_axis

pytest.importorskip("scipy")
from scipy import ndimage


def noise(shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def test_a_reference_set_is_a_source(tmp_path):
    values = noise((20, 12))
    cm.to_store(values, str(tmp_path / "a.zarr"), "v", chunks=(5, 4), format="zarr2")
    cm.to_references(str(tmp_path / "a.zarr"), str(tmp_path / "a.json"))
    cm.transform(np.exp, (str(tmp_path / "a.json"), "v"), (str(tmp_path / "b.zarr"), "v"))
    np.testing.assert_array_equal(cm.open_array(str(tmp_path / "b.zarr"), "v")[...], np.exp(values))


def test_a_group_is_no_source(tmp_path):
    cm.create_group(str(tmp_path / "a.zarr"))
    with pytest.raises(NodeNotFound, match="a transform reads arrays"):
        cm.plan_transform(np.exp, str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr"))


def test_a_function_that_fails_for_the_small_block_names_the_way_out():
    a = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4))

    def picky(block):
        if block.max() == 1:
            raise ValueError("all ones")
        return block

    with pytest.raises(TransformError, match="all ones") as caught:
        cm.plan_transform(picky, a, (MemoryStore(), "b"))
    assert "give dtype=" in caught.value.__notes__[0]


def test_what_the_function_returns_for_the_small_block_is_named_without_that_hint():
    a = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4))
    with pytest.raises(TransformError, match="2 blocks for 1 targets") as caught:
        cm.plan_transform(lambda block: (block, block), a, (MemoryStore(), "b"))
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("function", "n_sources", "params", "said"),
    [
        (lambda block: block, 2, {}, r"cannot be called with 2 blocks, one of each source: too many positional"),
        (lambda a, b: a + b, 1, {}, r"\(a, b\) cannot be called with 1 block, one of each source: missing a required"),
        (lambda block: block, 1, {"sigma": 1}, r"and params \['sigma'\]: got an unexpected keyword argument 'sigma'"),
        (lambda block, sigma: block, 1, {}, "missing a required argument: 'sigma'"),
        (np.exp, 1, 3, "params=3 is int, where Mapping"),
    ],
    ids=["too many sources", "too few sources", "unknown parameter", "parameter left out", "no dict"],
)
def test_a_function_that_does_not_take_these_arguments_is_refused_when_planned(function, n_sources, params, said):
    a = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4))
    with pytest.raises(TypeError, match=said):
        cm.plan_transform(function, [a] * n_sources, (MemoryStore(), "b"), params=params, dtype="f4")


@pytest.mark.parametrize("function", [
    lambda block, **more: block + len(more), lambda *blocks, block_id: blocks[0] + block_id[0],
    lambda block, block_info=None: block, functools.partial(np.add, 1.0), np.vectorize(abs), np.abs,
], ids=["any keywords", "any blocks", "block_info", "partial", "vectorize", "ufunc"])  # fmt: skip
def test_functions_of_every_kind_are_called(function):
    store = MemoryStore()
    cm.to_store(noise((8, 8)), store, "a", chunks=(4, 4))
    assert cm.transform(function, (store, "a"), (store, "b")).n_keys == 4


@pytest.mark.parametrize(("arguments", "error", "said"), [
    (([], "b"), ValueError, r"sources=\[\]: expected at least one place"),
    (((("a", "x"), ("a", "y")), "b"), TypeError, "sources=.*or a list of them for several"),
    (("a", (("b", "x"), ("b", "y"))), TypeError, "target=.*or a list of them for several"),
], ids=["no source", "tuple of sources", "tuple of targets"])  # fmt: skip
def test_several_places_are_a_list(arguments, error, said, tmp_path):
    cm.create_array(str(tmp_path / "a"), shape=(8, 8), dtype="f4", chunks=(4, 4))
    sources, target = arguments
    with pytest.raises(error, match=said):
        cm.plan_transform(np.exp, str(tmp_path / "a") if sources == "a" else sources, target)


def test_a_function_that_cannot_be_pickled_runs_in_threads_and_has_a_token(tmp_path):
    cm.to_store(noise((8, 8)), str(tmp_path / "a"), chunks=(4, 4))
    lock = threading.Lock()

    def locked(block):
        with lock:
            return block + 1

    locked.__dask_tokenize__ = lambda: "plus one"

    def planned(place):
        return cm.plan_transform(locked, str(tmp_path / "a"), str(tmp_path / place), dtype="f4")

    with dask.config.set(scheduler="threads"):
        assert planned("b").run().n_keys == 4
    with dask.config.set(scheduler="processes"), pytest.raises(TypeError) as caught:
        planned("c").run()
    assert "locked, what it closes over, or params cannot be pickled" in str(caught.value)
    assert "scheduler='threads'" in str(caught.value)
    with dask.config.set(scheduler="threads"):
        assert planned("c").run().n_keys == 4


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first)
        self.lock = threading.Lock()


class Picky(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def raises_odd(block):
    raise Odd("no convergence", 2)


def raises_picky(block):
    raise Picky("no convergence", 2)


def exits(block):
    sys.exit("no convergence")


@pytest.mark.parametrize("function", [raises_odd, raises_picky, exits], ids=lambda each: each.__name__)
@pytest.mark.parametrize("scheduler", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
def test_what_a_function_raises_arrives_whatever_it_is(function, scheduler, tmp_path):
    cm.to_store(noise((8, 8)), str(tmp_path / "a"), chunks=(4, 4))
    with dask.config.set(scheduler=scheduler, num_workers=1):
        with pytest.raises(TransformError, match=rf"no convergence \(line \d+ of {function.__name__}\)") as caught:
            cm.transform(function, str(tmp_path / "a"), str(tmp_path / "b"), dtype="f4")
        assert function.__name__ in "".join(traceback.format_exception(caught.value.__cause__ or caught.value))


KILLED = """
import time
import chunkmill as cm

def slow(block, block_id):
    time.sleep(0.05)
    with open("called", "a") as file:
        file.write(f"{block_id[0]} ")
    return block + 1

if __name__ == "__main__":
    report = cm.plan_transform(slow, "a.zarr", "b.zarr", dtype="f4", block=(2, 8)).run(progress=False)
    print(report.n_resumed)
"""


@pytest.mark.slow
def test_a_killed_process_is_resumed_by_another_without_its_finished_blocks(tmp_path):
    values = noise((160, 8))
    cm.to_store(values, str(tmp_path / "a.zarr"), chunks=(2, 8))
    (tmp_path / "job.py").write_text(KILLED)
    called = tmp_path / "called"

    def calls():
        return called.read_text().split() if called.exists() else []

    killed = subprocess.Popen([sys.executable, "job.py"], cwd=tmp_path)
    try:
        give_up = time.monotonic() + 60
        while len(calls()) < 40 and killed.poll() is None and time.monotonic() < give_up:
            time.sleep(0.02)
    finally:
        killed.kill()  # SIGKILL
        killed.wait()
    assert 40 <= len(calls()) < 80
    with pytest.raises(NodeNotFound):
        cm.open_array(str(tmp_path / "b.zarr"))
    ended = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(ended.stdout) >= 25
    assert set(calls()) == {str(i) for i in range(80)}
    # under way, one a thread, and those whose records waited, which took 0.25 s
    assert len(calls()) <= 80 + 15
    np.testing.assert_array_equal(cm.open_array(str(tmp_path / "b.zarr"))[...], values + 1)


def test_a_job_is_cancelled_and_resumed(monkeypatch):
    store, values = MemoryStore(), noise((64, 8))
    cm.to_store(values, store, "a", chunks=(2, 8))
    monitors, calls, begin = [], [], JobMonitor.begin
    monkeypatch.setattr(JobMonitor, "begin", lambda self, *o, **n: (monitors.append(self), begin(self, *o, **n)))

    def slow(block):
        calls.append(1)
        if len(calls) == 5:
            monitors[0].cancel()
        return block + 1

    with dask.config.set(scheduler="threads", num_workers=1):
        plan = cm.plan_transform(slow, (store, "a"), (store, "b"), dtype="f4", block=(2, 8))
        with pytest.raises(JobCancelled):
            plan.run()
        report = plan.run()
    assert report.n_resumed > 0
    np.testing.assert_array_equal(cm.open_array(store, "b")[...], values + 1)


@pytest.mark.slow
def test_workers_of_a_cluster_run_a_function_of_a_script(tmp_path):
    values = noise((40, 30))
    cm.to_store(values, str(tmp_path / "a.zarr"), "v", chunks=(8, 30))
    weight = 3.0

    def filtered(block, sigma):
        return weight * ndimage.gaussian_filter(block, sigma)

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster):
        report = cm.transform(
            filtered, (str(tmp_path / "a.zarr"), "v"), (str(tmp_path / "b.n5"), "v"), format="n5", halo=8,
            params={"sigma": 2}, block=(8, 30),
        )  # fmt: skip
        assert report.n_tasks == 5

        def fails(block):
            raise ValueError("on a worker")

        with pytest.raises(TransformError, match="on a worker") as caught:
            cm.transform(fails, (str(tmp_path / "a.zarr"), "v"), str(tmp_path / "c.zarr"), dtype="f4")
        assert caught.value.keys
    np.testing.assert_array_equal(
        cm.open_array(str(tmp_path / "b.n5"), "v")[...], 3 * ndimage.gaussian_filter(values, 2)
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"block": "auto"}, "block='auto': expected the length of a block"),
        ({"block": (4.0, 4)}, "expected the length of a block"),
        ({"source_region": (4, 4)}, r"source_region=\(4, 4\): expected a function"),
    ],
    ids=["text", "float", "no function"],
)
def test_options_of_another_kind_are_refused(options, said):
    a = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4))
    with pytest.raises(TypeError, match=said):
        cm.plan_transform(np.exp, a, (MemoryStore(), "b"), dtype="f4", **options)


@pytest.mark.parametrize(
    ("halo", "expected"),
    [
        (2, ((2, 2), (2, 2))),
        ((1, 0), ((1, 1), (0, 0))),
        (((1, 2), 0), ((1, 2), (0, 0))),
        ({"x": 3}, ((0, 0), (3, 3))),
        ({0: (0, 4)}, ((0, 4), (0, 0))),
    ],
    ids=str,
)
def test_halos_are_by_axis_or_by_name(halo, expected):
    assert halo_by_axis(halo, Space(("t", "x"), (9, 9))) == expected


@pytest.mark.parametrize("halo", [-1, (1, 2, 3), {"z": 1}, 1.5, True, ((1, 2, 3), 0)], ids=str)
def test_other_halos_are_refused(halo):
    with pytest.raises(ValueError, match="halo="):
        halo_by_axis(halo, Space(("t", "x"), (9, 9)))
