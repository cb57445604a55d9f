"""The bytes of a file that is scanned: read in blocks that stay."""

import os

import fsspec
import pytest
from support.servers import serve_files

from chunkmill.errors import ScanError
from chunkmill.scans.parse import ScannedFile

DATA = os.urandom(1000)


@pytest.fixture
def server(tmp_path):
    pytest.importorskip("aiohttp")
    (tmp_path / "x").write_bytes(DATA)
    with serve_files(tmp_path) as found:
        yield found


def test_ranges_and_the_end_of_a_file(server):
    file = ScannedFile(f"{server.url}/x")
    assert file.range(100, 110) == DATA[100:110]
    assert file.range(990, 5000) == DATA[990:]
    assert file.range(1000, 1001) == file.range(5, 5) == b""


def test_what_was_read_is_not_asked_again(server):
    file = ScannedFile(f"{server.url}/x")
    assert file.range(10, 20) == DATA[10:20]
    n_asked = len(server.log)
    assert file.range(500, 600) == DATA[500:600]
    assert file.opened.seek(-10, os.SEEK_END) == 990
    assert file.opened.read() == DATA[990:]
    assert len(server.log) == n_asked


def test_the_version_of_a_file_that_is_not_there():
    with fsspec.open("memory://scanned-file/x", "wb") as file:
        file.write(DATA)
    assert ScannedFile("memory://scanned-file/x").info()["size"] == 1000
    with pytest.raises(ScanError, match="there is no such file"):
        ScannedFile("memory://scanned-file/none").info()
