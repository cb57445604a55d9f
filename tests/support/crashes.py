"""States that a crash of the machine may leave on the disk, recorded while an operation runs.

The model is a file system that keeps the order of changes to names (ext4, XFS, btrfs): after a crash the first n of them
are there, for some n, and the content of each file that was not synced is there, or is not: the file is empty, or
holds zeros (where its size was stored before its blocks). `Disk.pending` are the
changes that no sync of a file or folder has made durable: what a file system that POSIX alone describes may lose.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chunkmill.stores import directories, local, posix_file


@dataclass
class Disk:
    """What is durable of a folder, and copies of it as crashes may leave it."""

    folder: Path
    states: Path
    synced: set[int] = field(default_factory=set)
    """Inodes whose content is durable."""
    pending: set[str] = field(default_factory=set)
    """Folders with names that are not durable."""
    n_states: int = 0
    with_zeros: bool = False
    """Whether files of zeros are states, too: what no checksum covers cannot be told from a value."""

    def files(self) -> Iterator[Path]:
        return (path for path in self.folder.rglob("*") if path.is_file())

    def sync_all(self) -> None:
        self.synced |= {path.stat().st_ino for path in self.files()}
        self.pending.clear()

    def snapshot(self) -> None:
        """Keep what is there if the machine crashes now: with the content of unsynced files, of the last, or of none."""
        unsynced = [path for path in self.files() if path.stat().st_ino not in self.synced]
        unsynced.sort(key=lambda path: path.stat().st_ctime_ns)
        kinds = [
            "kept",
            *(["empty"] if unsynced else []),
            *(["last"] if unsynced[1:] else []),
            *(["zeros"] if unsynced and self.with_zeros else []),
        ]
        for kind in kinds:
            state = self.states / f"{self.n_states:04d}"
            shutil.copytree(self.folder, state, symlinks=True)
            self.n_states += 1
            for path in {"kept": (), "last": unsynced[:-1]}.get(kind, unsynced):
                n_zeros = path.stat().st_size if kind == "zeros" else 0
                (state / path.relative_to(self.folder)).write_bytes(bytes(n_zeros))


@contextmanager
def recorded_crashes(folder: Path, states: Path, *, with_zeros: bool = False) -> Iterator[Disk]:
    """Record every state of `folder`, whose content now is durable, until the end of the block."""
    disk = Disk(folder, states, with_zeros=with_zeros)
    states.mkdir()
    disk.sync_all()
    with pytest.MonkeyPatch.context() as patch:

        def changing(name: str, module: Any = os) -> None:
            own = getattr(module, name)

            def call(*args: Any, **kwargs: Any) -> Any:
                result = own(*args, **kwargs)
                paths = [Path(os.fsdecode(each)) for each in args if isinstance(each, (str, bytes, Path))]
                above = {str(path.parent.resolve()) for path in paths}  # perhaps by way of an open folder
                inside = {each for each in above if each == str(folder) or each.startswith(f"{folder}{os.sep}")}
                if inside and result is not False:
                    disk.pending |= inside
                    disk.snapshot()
                return result

            patch.setattr(module, name, call)

        def fsync(fd: int) -> None:
            disk.synced.add(os.fstat(fd).st_ino)
            disk.pending.discard(os.path.realpath(f"/proc/self/fd/{fd}"))

        def sync_file_system(directory: str, own: int = -1) -> None:
            disk.sync_all()

        for name in ("replace", "unlink", "rename", "mkdir", "rmdir"):
            changing(name)
        changing("_renamed", posix_file)
        patch.setattr(os, "fsync", fsync)
        for module in (local, directories, posix_file):
            patch.setattr(module, "sync_file_system", sync_file_system)
        yield disk
        disk.snapshot()
