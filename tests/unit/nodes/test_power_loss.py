"""After a crash of the machine nothing is silently wrong, and nothing is lost that was stored before the call (P11)."""

import sys

import dask
import numpy as np
import pytest
from support.power_loss import OLD, check_states, recorded_crashes

import chunkmill as cm
from chunkmill.errors import MetadataError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of open files are in /proc")

NEW = OLD + 1000


@pytest.fixture(params=[False, True], ids=["fsync-false", "fsync-true"])
def fsync(request):
    with dask.config.set({"chunkmill.fsync": request.param, "scheduler": "synchronous"}):
        yield request.param


def old_array(disk_folder, **options):
    cm.to_store(OLD, disk_folder / "x.zarr", chunks=(4, 4), codecs=[], **options)


def changed(region, values):
    wanted = OLD.copy()
    wanted[region] = values
    return wanted


PART, CHUNK = np.s_[2:6, 2:6], np.s_[0:4, 0:4]
WRITES = {  # what is written to an array, and what it holds then
    "a part": (lambda place: cm.open_array(place, mode="r+").__setitem__(PART, NEW[PART]), changed(PART, NEW[PART])),
    "fill": (lambda place: cm.open_array(place, mode="r+").__setitem__(CHUNK, 0), changed(CHUNK, 0)),
    "more": (lambda place: cm.open_array(place, mode="r+").append(NEW[:2]), np.concatenate([OLD, NEW[:2]])),
    "all": (lambda place: cm.to_store(NEW, place, chunks=(4, 4), codecs=[], mode="w"), NEW),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_is_the_old_or_the_new(disk_folder, fsync, name):
    """23 of 44 states of a part had no chunk to read; under fsync: true old values came back, where fill was written."""
    write, wanted = WRITES[name]
    old_array(disk_folder)
    with recorded_crashes(disk_folder) as disk:
        write(disk_folder / "x.zarr")
    check_states(disk, OLD, wanted, fsync=fsync)


@pytest.mark.parametrize(("key", "content"), [("zarr.json", b""), ("a/zarr.json", bytes(100))], ids=["empty", "zeros"])
def test_the_error_of_an_empty_document_names_the_way_out(tmp_path, key, content):
    cm.to_store(OLD, tmp_path / "d.zarr", "a", chunks=(4, 4), format="zarr3")
    (tmp_path / "d.zarr" / key).write_bytes(content)
    with pytest.raises(MetadataError, match="check with repair=True deletes it, then write the node again"):
        cm.open(tmp_path / "d.zarr", key.rpartition("/")[0])
    report = cm.check(tmp_path / "d.zarr", repair=True)
    assert [p.repaired for p in report.problems if p.key == key] == [True]
    cm.to_store(OLD, tmp_path / "d.zarr", "a", chunks=(4, 4), format="zarr3", mode="w" if key == "zarr.json" else "w-")
    assert cm.check(tmp_path / "d.zarr").ok
    np.testing.assert_array_equal(cm.open_group(tmp_path / "d.zarr")["a"][...], OLD)


def test_a_new_array_is_whole_or_an_error(disk_folder, fsync):
    with recorded_crashes(disk_folder) as disk:
        old_array(disk_folder)
    check_states(disk, OLD, fsync=fsync, is_new=True, may_be_torn=True)


def test_a_zip_file_is_replaced_by_a_synced_one(disk_folder, fsync):
    cm.to_store(OLD, disk_folder / "x.zip", chunks=(4, 4))
    with recorded_crashes(disk_folder) as disk:
        cm.open_array(disk_folder / "x.zip", mode="r+")[2:6, 2:6] = NEW[2:6, 2:6]
    for state in disk.states:
        assert cm.open_array(state / "x.zip")[7, 7] == OLD[7, 7]
