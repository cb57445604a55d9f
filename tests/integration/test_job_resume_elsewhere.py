"""An unfinished job resumes on other workers, from the same call or from what is stored with it."""

import dask
import numpy as np
import pytest
from click.testing import CliRunner

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.errors import JobError
from chunkmill.runtime import task

SHAPE = (32, 256, 256)
CHUNKS = (32, 32, 32)


@pytest.fixture
def source(tmp_path):
    array = cm.create_array(tmp_path / "source.zarr", shape=SHAPE, dtype="f8", chunks=(1, 256, 256))
    array[...] = np.random.default_rng(0).random(SHAPE)
    return array


def begin(source, target, monkeypatch, max_mem="9 MB", **options):
    """Begin to rechunk on one thread, and fail after four tasks."""
    run, ran = task.run_task, []

    def failing(*args, **more):
        ran.append(args)
        if len(ran) > 4:
            raise InterruptedError
        return run(*args, **more)

    with monkeypatch.context() as patched, dask.config.set(scheduler="threads", num_workers=1):
        patched.setattr("chunkmill.runtime.stage_runner.run_task", failing)
        with pytest.raises(InterruptedError):
            cm.rechunk(source, target, chunks=CHUNKS, max_mem=max_mem, **options)


def check_is_whole(source, target):
    assert np.array_equal(cm.open_array(target)[...], source[...])
    assert not cm.jobs(target)


@pytest.mark.parametrize(("n_threads", "max_mem"), [(4, "60 MB"), (4, "20 MB"), (1, "80 MB")])
def test_the_same_call_resumes_on_other_workers(source, tmp_path, monkeypatch, n_threads, max_mem):
    target = tmp_path / "target.zarr"
    begin(source, target, monkeypatch)
    with dask.config.set(scheduler="threads", num_workers=n_threads):
        plan = cm.plan_rechunk(source, target, chunks=CHUNKS, max_mem=max_mem)
        assert plan.at_target() == "an unfinished job of this plan, which will be resumed"
        report = plan.run()
    assert report.n_resumed == 4
    check_is_whole(source, target)


def test_defaults_of_another_cluster_resume(source, tmp_path, monkeypatch):
    target = tmp_path / "target.zarr"
    with dask.config.set({"chunkmill.max-mem": "9 MB"}):
        begin(source, target, monkeypatch, max_mem=None)
    with dask.config.set({"chunkmill.max-mem": "30 MB", "scheduler": "threads", "num_workers": 3}):
        assert cm.rechunk(source, target, chunks=CHUNKS).n_resumed == 4
    check_is_whole(source, target)


def test_no_more_tasks_run_at_once_than_memory_holds(source, tmp_path, monkeypatch):
    """Eight threads, and memory for the tasks of one: the plan was made for one thread."""
    target = tmp_path / "target.zarr"
    begin(source, target, monkeypatch)
    entered, most, enter, leave = [0], [0], task.AtOnce.__enter__, task.AtOnce.__exit__

    def entering(self):
        enter(self)
        entered[0] += 1
        most[0] = max(most[0], entered[0])

    def leaving(self, *error):
        entered[0] -= 1
        leave(self, *error)

    monkeypatch.setattr(task.AtOnce, "__enter__", entering)
    monkeypatch.setattr(task.AtOnce, "__exit__", leaving)
    with dask.config.set(scheduler="threads", num_workers=8):
        assert cm.resume(target).n_resumed == 4
    assert most == [1]
    check_is_whole(source, target)


def test_a_worker_that_holds_no_task_nor_part_of_one_names_the_memory(source, tmp_path, monkeypatch):
    target = tmp_path / "target.zarr"
    begin(source, target, monkeypatch)
    with pytest.raises(
        JobError, match=r"a task of the unfinished job holds [\d,]+ bytes, planned with max_mem 9,000,000"
    ):
        cm.rechunk(source, target, chunks=CHUNKS, max_mem="500 kB")


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"chunks": (32, 16, 32)}, r"chunks \(32, 32, 32\) where this call has \(32, 16, 32\)"),
        ({"temp_codec": "lz4"}, "temp_codec raw where this call has lz4"),
        ({"format": "zarr2"}, "format zarr3 where this call has zarr2"),
    ],
)
def test_an_error_names_the_argument_that_differs(source, tmp_path, monkeypatch, options, differs):
    target = tmp_path / "target.zarr"
    begin(source, target, monkeypatch)
    with pytest.raises(JobError, match=differs):
        cm.rechunk(source, target, max_mem="60 MB", **({"chunks": CHUNKS} | options))


def test_a_job_resumes_without_its_arguments(source, tmp_path, monkeypatch):
    target = tmp_path / "target.zarr"
    begin(source, target, monkeypatch, shards=(32, 64, 64), codecs="gzip", region=(slice(0, 32), ...))
    with dask.config.set(scheduler="threads", num_workers=2):
        assert cm.resume(target).n_resumed == 4
    assert cm.open_array(target).shards == (32, 64, 64)
    check_is_whole(source, target)


def test_the_command_resumes(source, tmp_path, monkeypatch):
    target = tmp_path / "target.zarr"
    begin(source, target, monkeypatch)
    done = CliRunner().invoke(main, ["resume", str(target), "--no-progress"], catch_exceptions=False)
    assert (done.exit_code, "rechunk: done" in done.output) == (0, True)
    check_is_whole(source, target)


def test_what_cannot_be_resumed_without_arguments(source, tmp_path, monkeypatch):
    target = tmp_path / "target.zarr"
    with pytest.raises(JobError, match="there is no unfinished job"):
        cm.resume(target)
    begin(source, target, monkeypatch, shards=lambda array: None)
    with pytest.raises(JobError, match=r"are not stored: a plan cannot hold <function .*; the same call resumes it"):
        cm.resume(target)


def test_running_jobs_show_stage_and_rate(source, tmp_path, monkeypatch):
    target, seen = tmp_path / "target.zarr", []
    run = task.run_task

    def looking(*args, **more):
        seen.append(cm.jobs(target))
        return run(*args, **more)

    monkeypatch.setattr("chunkmill.runtime.stage_runner.run_task", looking)
    with dask.config.set(scheduler="threads", num_workers=1):
        cm.rechunk(source, target, chunks=CHUNKS, max_mem="9 MB")
    (job,) = seen[-1]
    assert job.state == "running"
    assert job.client.startswith("process ")
    assert "<table" in seen[-1]._repr_html_()
    assert cm.jobs(target)._repr_html_() == "no unfinished jobs"
