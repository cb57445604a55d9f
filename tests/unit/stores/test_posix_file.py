"""System calls for plain files, as the store of them makes them."""

import os
from pathlib import Path

import pytest

from chunkmill.stores import posix_file


@pytest.mark.skipif(posix_file._renameat2() is None, reason="PINS ARE NOT TESTED: this system has no renameat2")
def test_files_below_an_open_directory_are_created_and_renamed_in_it(tmp_path, monkeypatch):
    """Whatever has its name by then, and without a look at /proc for each file."""
    (tmp_path / "a").mkdir()
    below = os.open(tmp_path / "a", os.O_RDONLY)
    (tmp_path / "a").rename(tmp_path / "b")
    opened, plain_open = [], os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **named: opened.append(path) or plain_open(path, *rest, **named)
    )
    pinned = f"/proc/self/fd/{below}"
    for name in ("x", "new/y"):
        path = f"{pinned}/{name}"
        os.close(posix_file.create(str(Path(path).parent), f"{path}.partial"))
        assert posix_file.rename_new(f"{path}.partial", path)
        assert (tmp_path / "b" / name).is_file()
    os.close(below)
    assert not [path for path in opened if path.startswith("/proc")]
