"""Squaring: its result, in threads and in processes, over a reference set, and after an interruption."""

from itertools import count
from unittest import mock

import dask
import numpy as np
import pytest
from chunkmill.squaring import job
from chunkmill.squaring.job import square

import chunkmill as cm

X = np.arange(60.0).reshape(6, 10)


@pytest.fixture
def source(tmp_path):
    cm.to_store(X, tmp_path / "s", "a", chunks=(1, 5))
    return tmp_path / "s", "a"


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_it_squares(source, tmp_path, scheduler):
    with dask.config.set(scheduler=scheduler, num_workers=2):
        report = square(source, (tmp_path / "t", "b"))
    assert (report.n_tasks, report.n_resumed, report.n_keys) == (3, 0, 12)
    np.testing.assert_array_equal(cm.open_array(tmp_path / "t", "b")[...], X**2)
    assert cm.check(tmp_path / "t").ok
    assert repr(report).startswith("square: done\n")


def test_it_reads_references_in_processes(source, tmp_path):
    cm.to_references(tmp_path / "s", tmp_path / "s.json")
    with dask.config.set(scheduler="processes", num_workers=2):
        square((tmp_path / "s.json", "a"), (tmp_path / "t", "b"))
    np.testing.assert_array_equal(cm.open_array(tmp_path / "t", "b")[...], X**2)


def test_it_is_resumed(source, tmp_path):
    write_chunk, n_written = job.write_chunk, count()

    def write_eight(*arguments):
        if next(n_written) == 8:
            raise OSError("the disk is full")
        return write_chunk(*arguments)

    with dask.config.set(scheduler="sync"):
        with mock.patch.object(job, "write_chunk", write_eight), pytest.raises(OSError, match="full"):
            square(source, (tmp_path / "t", "b"))
        assert not cm.check(tmp_path / "t").ok
        report = square(source, (tmp_path / "t", "b"))
    assert report.n_resumed == 2
    np.testing.assert_array_equal(cm.open_array(tmp_path / "t", "b")[...], X**2)
    assert cm.check(tmp_path / "t").ok
