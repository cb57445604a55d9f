"""After a crash of the machine nothing is silently wrong, and nothing is lost that was stored before the call (P11)."""

import contextlib
import os
import shutil
import sys
from itertools import product
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.errors import ChunkmillError, MetadataError, NodeExists
from chunkmill.stores import directories, local, posix_file

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the folders of open files are in /proc")

OLD = np.arange(1, 65, dtype="i4").reshape(8, 8)
NEW = OLD + 1000


@pytest.fixture(params=[False, True], ids=["fsync-false", "fsync-true"])
def fsync(request):
    with dask.config.set({"chunkmill.fsync": request.param, "scheduler": "synchronous"}):
        yield request.param


@pytest.fixture
def folder(tmp_path, all_died, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # `Disk` knows what would be durable
    for module in (local, directories, posix_file):
        monkeypatch.setattr(module, "sync_file_system", lambda *_: None)
    folder = tmp_path / "disk"
    folder.mkdir()
    return folder


class Disk:
    """A folder, what of it is durable, and `states`: copies of it as a crash of the machine may leave it.

    The model is a file system that keeps the order of changes to names (ext4, XFS, btrfs): after a crash the first n of
    them are there, for some n, and the content of files that were not synced is there, or only that of the last, or of
    none: they are empty, or `with_zeros` (where the size was stored before the blocks; what no checksum covers cannot be
    told from a value). `pending` are the folders with names that no sync has made durable: what a file system that
    POSIX alone describes may lose.
    """

    def __init__(self, folder, with_zeros):
        self.folder, self.with_zeros, self.states = folder, with_zeros, []
        self.synced, self.pending = set(), set()  # inodes whose content is durable

    def files(self):
        return (path for path in self.folder.rglob("*") if path.is_file())

    def sync_all(self, *_):
        self.synced |= {path.stat().st_ino for path in self.files()}
        self.pending.clear()

    def fsync(self, fd):
        self.synced.add(os.fstat(fd).st_ino)
        self.pending.discard(os.path.realpath(f"/proc/self/fd/{fd}"))

    def snapshot(self):
        unsynced = [path for path in self.files() if path.stat().st_ino not in self.synced]
        unsynced.sort(key=lambda path: path.stat().st_ctime_ns)
        lost = [[], *([unsynced] if unsynced else []), *([unsynced[:-1]] if unsynced[1:] else [])]
        for paths, zeros in [*product(lost, [False]), *([(unsynced, True)] if unsynced and self.with_zeros else [])]:
            state = self.folder.with_name("states") / f"{len(self.states):04d}"
            shutil.copytree(self.folder, state, symlinks=True)
            self.states.append(state)
            for path in paths:
                (state / path.relative_to(self.folder)).write_bytes(bytes(path.stat().st_size if zeros else 0))


@contextlib.contextmanager
def recorded_crashes(folder, *, with_zeros=False):
    """Record every state of `folder`, whose content now is durable, until the end of the block."""
    disk = Disk(folder, with_zeros)
    disk.sync_all()
    with pytest.MonkeyPatch.context() as patch:

        def changing(name, module=os):
            own = getattr(module, name)

            def call(*args, **kwargs):
                result = own(*args, **kwargs)
                paths = [Path(os.fsdecode(each)) for each in args if isinstance(each, (str, bytes, Path))]
                above = {str(path.parent.resolve()) for path in paths}  # perhaps by way of an open folder
                inside = {each for each in above if each == str(folder) or each.startswith(f"{folder}{os.sep}")}
                if inside and result is not False:
                    disk.pending |= inside
                    disk.snapshot()
                return result

            patch.setattr(module, name, call)

        for name in ("replace", "unlink", "rename", "mkdir", "rmdir"):
            changing(name)
        changing("_renamed", posix_file)
        patch.setattr(os, "fsync", disk.fsync)
        for module in (local, directories, posix_file):
            patch.setattr(module, "sync_file_system", disk.sync_all)
        yield disk
        disk.snapshot()
    assert disk.states[1:]


def old_array(folder, **options):
    cm.to_store(OLD, folder / "x.zarr", chunks=(4, 4), codecs=[], **options)


def check_states(disk, fsync, *wanted, is_new=False, may_be_torn=False):
    """Each chunk of each state is as wanted, or an error where it may be torn; one of a node only where it is new."""
    n_opened = 0
    for state in disk.states:
        array = None
        with contextlib.suppress(*[ChunkmillError] * is_new):
            array = cm.open_array(state / "x.zarr", format="zarr3")
            n_opened += 1
        for i, j in product(() if array is None else range(0, array.shape[0], 4), (0, 4)):
            chunk = np.s_[i : i + 4, j : j + 4]
            with contextlib.suppress(*[ChunkmillError] * may_be_torn):
                found = array[chunk]
                assert any(np.array_equal(found, each[chunk]) for each in wanted), (state, chunk, found)
    assert n_opened
    if fsync:
        assert not {each for each in disk.pending if Path(each).exists()}


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
def test_what_is_written_is_the_old_or_the_new(folder, tmp_path, fsync, name):
    """23 of 44 states of a part had no chunk to read; under fsync: true old values came back, where fill was written."""
    write, wanted = WRITES[name]
    old_array(folder)
    with recorded_crashes(folder) as disk:
        write(folder / "x.zarr")
    check_states(disk, fsync, OLD, wanted)


def days(first, last):
    at = np.arange(first, last)
    return xr.Dataset({"v": ("t", at * 10.0)}, {"t": at}).chunk(t=4)


@pytest.mark.parametrize("fsync", [False], indirect=True)
def test_after_an_append_the_next_one_works(folder, tmp_path, fsync):
    """Where the document says that there are more days, their chunks are there, and are not empty."""
    encoding = {name: {"chunks": (4,)} for name in "tv"}
    cm.write_dataset(days(0, 5), folder / "d.zarr", encoding=encoding)
    with recorded_crashes(folder) as disk:
        cm.write_dataset(days(5, 9), folder / "d.zarr", append_dim="t")
    for state in disk.states:
        with xr.open_dataset(state / "d.zarr", engine="chunkmill") as ds:
            again = {"region": "auto"} if ds.sizes["t"] > 5 else {"append_dim": "t"}
        cm.write_dataset(days(5, 9), state / "d.zarr", **again)
        cm.write_dataset(days(9, 11), state / "d.zarr", append_dim="t")
        with xr.open_dataset(state / "d.zarr", engine="chunkmill") as ds:
            assert ds.t.values.tolist() == list(range(11)), state
            assert ds.v.values.tolist() == [10.0 * day for day in range(11)], state


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


def test_a_new_array_is_whole_or_an_error(folder, tmp_path, fsync):
    with recorded_crashes(folder) as disk:
        old_array(folder)
    check_states(disk, fsync, OLD, is_new=True, may_be_torn=True)


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


@pytest.mark.parametrize("fsync", [False], indirect=True)
@pytest.mark.parametrize("name", RUNS)
def test_a_job_is_complete_where_its_document_is_and_resumes(folder, tmp_path, fsync, name):
    """Intermediate files of zeros, of the right length, were taken for values: 64 of 64 wrong, "done"."""
    cm.to_store(OLD, tmp_path / "source.zarr", chunks=(4, 8))

    def run(at):
        return RUNS[name](tmp_path / "source.zarr", at / "x.zarr")

    with recorded_crashes(folder, with_zeros=True) as disk:
        run(folder)
    assert name != "spill" or any([*state.rglob("*intermediate*")] for state in disk.states)
    check_states(disk, fsync, OLD, is_new=True)
    check_resumed(disk, run)


@pytest.mark.slow
@pytest.mark.usefixtures("fsync")
@pytest.mark.parametrize("fsync", [False], indirect=True)
@pytest.mark.parametrize(("fmt", "options"), [("zarr3", {"overwrite": True}), ("n5", {})], ids=["overwriting", "new"])
def test_documents_that_were_lost_are_written_by_the_run_that_resumes(folder, tmp_path, fmt, options):
    """Of groups above, groups and arrays: each was an error that named no way out, with all chunks stored."""
    cm.to_store(OLD, tmp_path / "source.zarr", "g/a", codecs=[])

    def run(at):
        target = (at / "x.zarr", "above")
        return cm.convert((tmp_path / "source.zarr", "g"), target, format=fmt, codecs="raw", **options)

    with recorded_crashes(folder) as disk:
        run(folder)
    check_resumed(disk, run, "above/a")


def test_a_zip_file_is_replaced_by_a_synced_one(folder, tmp_path, fsync):
    cm.to_store(OLD, folder / "x.zip", chunks=(4, 4))
    with recorded_crashes(folder) as disk:
        cm.open_array(folder / "x.zip", mode="r+")[2:6, 2:6] = NEW[2:6, 2:6]
    for state in disk.states:
        assert cm.open_array(state / "x.zip")[7, 7] == OLD[7, 7]
