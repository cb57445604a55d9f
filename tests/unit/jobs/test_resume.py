"""An unfinished job resumes on other workers, from the same call or from what is stored with it."""

import json
from math import prod

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from support.arrays import filled
from support.recording import DyingStore
from support.small_jobs import dying_after

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.errors import JobError
from chunkmill.jobs.call import _location, _storable, argument
from chunkmill.journal import heartbeat
from chunkmill.runtime import task
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

SHAPE = (16, 256, 256)
CHUNKS = (16, 32, 32)


@pytest.fixture
def source(tmp_path):
    return filled(np.arange(prod(SHAPE), dtype="f8").reshape(SHAPE), tmp_path / "source.zarr", chunks=(1, 256, 256))


def begin(source, target, monkeypatch, max_mem="7 MB", **options):
    with dying_after(4, monkeypatch):
        cm.rechunk(source, target, chunks=CHUNKS, max_mem=max_mem, **options)


def check_is_whole(source, target):
    assert np.array_equal(cm.open_array(target)[...], source[...])
    assert not cm.jobs(target)


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


def test_a_job_resumes_without_its_arguments(source, tmp_path, monkeypatch):
    target = tmp_path / "target.zarr"
    begin(source, target, monkeypatch, shards=(16, 64, 64), codecs="gzip", region=(slice(0, 16), ...))
    with dask.config.set(scheduler="threads", num_workers=2):
        assert cm.resume(target).n_resumed == 4
    assert cm.open_array(target).shards == (16, 64, 64)
    check_is_whole(source, target)


def test_of_several_jobs_the_path_says_which_resumes(source, tmp_path, monkeypatch):
    store = tmp_path / "target.zarr"
    into = cm.create_array(store, "into", shape=SHAPE, dtype="f8", chunks=CHUNKS)
    begin(source, into, monkeypatch)
    begin(source, (store, "new"), monkeypatch)
    with pytest.raises(JobError, match=r"there are several: \['into', 'new'\]; give the path of one"):
        cm.resume(store)
    for path in ("into", "new"):
        assert cm.resume(store, path).n_resumed == 4
        np.testing.assert_array_equal(cm.open_array(store, path)[...], source[...])
    assert not cm.jobs(store)


def test_what_cannot_be_resumed_without_arguments(source, tmp_path, monkeypatch):
    target = tmp_path / "target.zarr"
    with pytest.raises(JobError, match="there is no unfinished job"):
        cm.resume(target)
    begin(source, target, monkeypatch, shards=lambda array: None)
    with pytest.raises(
        JobError, match=r"are not stored: a plan cannot hold <function .*; repeat the call of `rechunk`"
    ):
        cm.resume(target)


# --------------------------------------------------------------------------------------------------------------------
# Pyramids, and what is no job with a plan


@pytest.mark.parametrize("way", ["call", "command"])
def test_a_pyramid_that_ends_in_its_second_level_resumes_on_another_cluster(tmp_path, monkeypatch, way):
    """The division into tasks was other on a worker of other memory: the same call was refused."""
    target = tmp_path / "target.zarr"
    source = cm.create_array(tmp_path / "source.zarr", "image/s0", shape=(64, 32, 32), dtype="u2", chunks=(8, 8, 8))
    source[8:] = np.random.default_rng(0).integers(0, 60_000, (56, 32, 32), dtype="u2")
    monkeypatch.setattr("chunkmill.pyramids.pyramid.THREAD_OVERHEAD", 0)  # as of large chunks
    monkeypatch.setattr("chunkmill.pyramids.levels._FINE_TASK_BYTES", 1 << 10)  # as of large arrays
    monkeypatch.setattr("chunkmill.pyramids.pyramid.LEAST_TASKS", 16)
    with dask.config.set(scheduler="threads", num_workers=1):
        cm.pyramid(source, whole := MemoryStore(), levels=4, max_mem="1 MB")
        plan = cm.plan_pyramid(source, target, levels=4, max_mem="1 MB")
    first, second, *_ = plan.stages
    assert first.n_tasks < 17 < first.n_tasks + second.n_tasks
    with dying_after(17, monkeypatch):
        plan.run()
    with dask.config.set({"scheduler": "threads", "num_workers": 3, "chunkmill.max-mem": "40 MB"}):
        assert cm.plan_pyramid(source, target, levels=4).at_target() == (
            "an unfinished job of this plan, which will be resumed"
        )
        if way == "command":
            done = CliRunner().invoke(main, ["resume", str(target), "--json"], catch_exceptions=False)
            n_resumed = json.loads(done.stdout)["n_resumed"]
        else:
            n_resumed = cm.pyramid(source, target, levels=4).n_resumed
    assert n_resumed == 17
    for level in "0123":
        np.testing.assert_array_equal(cm.open_array(target, level)[...], cm.open_array(whole, level)[...])
    assert not cm.jobs(target)
    assert cm.check(target).ok


def test_levels_next_to_an_array_resume_without_arguments(tmp_path, monkeypatch):
    source = filled(np.arange(64 * 64, dtype="u2").reshape(64, 64), tmp_path / "image.zarr", "s0", chunks=(8, 8))
    with monkeypatch.context() as patched:
        patched.setattr("chunkmill.pyramids.tasks.write_region", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cm.pyramid(source, levels=3)
    assert cm.resume(tmp_path / "image.zarr").n_keys
    np.testing.assert_array_equal(cm.open_array(tmp_path / "image.zarr", "s1")[0, :2], [32, 34])


def test_sources_and_targets_of_other_kinds_resume_without_arguments(tmp_path, monkeypatch):
    """A source of several files, and a path without a scheme, were not found again."""
    pytest.importorskip("h5netcdf")
    monkeypatch.chdir(tmp_path)
    for part in range(2):
        values = xr.Dataset({"v": (("t", "x"), np.arange(8.0).reshape(2, 4) + part)}, {"t": [2 * part, 2 * part + 1]})
        values.to_netcdf(f"part-{part}.nc", engine="h5netcdf")
    with monkeypatch.context() as patched:
        patched.setattr("chunkmill.conversion.convert_tasks._put", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cm.convert("part-*.nc", "all.zarr", format="zarr3", concat_dim="t")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    cm.resume("../all.zarr")
    np.testing.assert_array_equal(cm.open_array("../all.zarr", "t")[...], range(4))


def test_what_has_values_that_are_computed_says_which_call_to_repeat(tmp_path, monkeypatch):
    def fails(block):
        raise ZeroDivisionError

    x = da.arange(8, chunks=2)
    with pytest.raises(ZeroDivisionError):
        cm.to_store(x.map_blocks(fails, dtype=x.dtype), tmp_path / "a.zarr", resume=True)
    with monkeypatch.context() as patched:
        patched.setattr("chunkmill.pyramids.tasks.write_region", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cm.pyramid(da.ones((4, 4), chunks=2), tmp_path / "b.zarr", levels=2)
    with pytest.raises(JobError, match=r"no store holds the graph; repeat .* `to_store\(..., resume=True\)`"):
        cm.resume(tmp_path / "a.zarr")
    with pytest.raises(JobError, match=r"a plan cannot hold a source of type dask.Array; repeat the call of `pyramid`"):
        cm.resume(tmp_path / "b.zarr")


def test_an_append_that_died_says_which_call_to_repeat(tmp_path, monkeypatch):
    url = tmp_path / "d.zarr"
    data = xr.Dataset({"v": (("t", "x"), np.arange(8.0).reshape(2, 4))})
    cm.write_dataset(data, url)
    with pytest.raises(Exception, match="injected death"):
        cm.write_dataset(data, DyingStore(LocalStore(url), 4), append_dim="t")
    monkeypatch.setattr(heartbeat, "is_live", lambda _: False)
    with pytest.raises(JobError, match=r"was interrupted.*; repeat the same call, such as `write_dataset\(..., append"):
        cm.resume(url)
    cm.write_dataset(data, url, append_dim="t")
    np.testing.assert_array_equal(xr.open_dataset(url, engine="chunkmill").v, np.concatenate([data.v, data.v]))


def test_arguments_come_back_from_json(tmp_path):
    cm.to_store(np.arange(6), tmp_path / "s", "g/a")
    places = {
        "array": cm.open_array(tmp_path / "s", "g/a"),
        "group": cm.open_group(tmp_path / "s", "g"),
        "path": tmp_path,
    }
    given = {**places, "region": (slice(1, 5, None), ...), "options": {"chunks": [2, None], "shards": True}}
    stored = json.loads(json.dumps(_storable(given)))
    found = {name: argument(value) for name, value in stored["dict"].items()}
    url = (tmp_path / "s").as_uri()
    assert found["array"] == (url, "g/a")
    assert found["group"] == (url, "g")
    assert found["path"] == str(tmp_path)
    assert found["region"] == (slice(1, 5, None), ...)
    assert found["options"] == {"chunks": [2, None], "shards": True}
    assert argument(_location([tmp_path, (url, "g")])) == [str(tmp_path), (url, "g")]


def test_what_json_cannot_hold_is_named():
    with pytest.raises(TypeError, match=r"array\(\[1\]\) \(ndarray\)"):
        _storable({"values": [np.array([1])]})
