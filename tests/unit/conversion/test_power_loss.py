"""After a crash of the machine a job is complete where its document is, and is resumed elsewhere (P11, P12)."""

import contextlib
import sys

import dask.array as da
import numpy as np
import pytest
from support.power_loss import OLD, check_states, recorded_crashes

import chunkmill as cm
from chunkmill.errors import NodeExists

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of open files are in /proc")


def check_resumed(disk, run, path=""):
    """Run a job again in each state: the target is right, and some of the states are resumed."""
    n_resumed = 0
    for state in disk.states:
        with contextlib.suppress(NodeExists):  # it was over
            n_resumed += run(state).n_resumed > 0
        np.testing.assert_array_equal(cm.open_array(state / "x.zarr", path)[...], OLD, err_msg=str(state))
    assert n_resumed


RUNS = {
    "convert": lambda source, target: cm.convert(source, target, format="zarr3", chunks=(8, 4)),
    "spill": lambda source, target: cm.rechunk(source, target, chunks=(8, 4), strategy="spill"),
    "write": lambda _, target: cm.to_store(da.from_array(OLD, chunks=(4, 8)), target, mode="w", resume=True),
}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", RUNS)
def test_a_job_is_complete_where_its_document_is_and_resumes(disk_folder, tmp_path, name):
    """Intermediate files of zeros, of the right length, were taken for values: 64 of 64 wrong, "done"."""
    cm.to_store(OLD, tmp_path / "source.zarr", chunks=(4, 8))

    def run(at):
        return RUNS[name](tmp_path / "source.zarr", at / "x.zarr")

    with recorded_crashes(disk_folder, with_zeros=True) as disk:
        run(disk_folder)
    assert name != "spill" or any([*state.rglob("*intermediate*")] for state in disk.states)
    check_states(disk, OLD, is_new=True)
    check_resumed(disk, run)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("fmt", "options"), [("zarr3", {"overwrite": True}), ("n5", {})], ids=["overwriting", "new"])
def test_documents_that_were_lost_are_written_by_the_run_that_resumes(disk_folder, tmp_path, fmt, options):
    """Of groups above, groups and arrays: each was an error that named no way out, with all chunks stored."""
    cm.to_store(OLD, tmp_path / "source.zarr", "g/a", codecs=[])

    def run(at):
        target = (at / "x.zarr", "above")
        return cm.convert((tmp_path / "source.zarr", "g"), target, format=fmt, codecs="raw", **options)

    with recorded_crashes(disk_folder) as disk:
        run(disk_folder)
    check_resumed(disk, run, "above/a")
