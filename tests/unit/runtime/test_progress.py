"""Progress bars."""

import dask
import pytest
from support.small_jobs import make_job

from chunkmill.jobs.job import run_job
from chunkmill.stores.memory import MemoryStore


@pytest.fixture
def store():
    return MemoryStore()


@pytest.mark.parametrize(
    ("configured", "given", "shown"),
    [("auto", None, False), (True, None, True), (True, False, False), (False, True, True)],
)
def test_progress_is_silent_unless_looked_at(store, capsys, configured, given, shown):
    with dask.config.set({"chunkmill.progress": configured}):
        run_job(make_job(store), progress=given)
    assert ("put-0" in capsys.readouterr().err) is shown
