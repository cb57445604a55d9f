"""What a crash of the machine may leave of a folder: each state after each change of a name, as copies."""

import contextlib
import os
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import ChunkmillError
from chunkmill.stores import directories, local, posix_file

OLD = np.arange(1, 65, dtype="i4").reshape(8, 8)


def prepare(parent, monkeypatch):
    """Return a new folder; jobs do not wait for tasks of the dead, nor for a disk."""
    monkeypatch.setattr("chunkmill.journal.journal.CHECK_SECONDS", 0)
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # `Disk` knows what would be durable
    for module in (local, directories, posix_file):
        monkeypatch.setattr(module, "sync_file_system", lambda *_: None)
    folder = parent / "disk"
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


def check_states(disk, *wanted, fsync=False, is_new=False, may_be_torn=False):
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
