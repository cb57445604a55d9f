"""Blocks of a file that is scanned: read once, as few requests as there are gaps."""

import os

import fsspec
import pytest

from chunkmill.errors import ScanError
from chunkmill.scans import parse
from chunkmill.scans.parse import CachedFile

DATA = os.urandom(1000)


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(parse, "_BLOCK", 64)
    monkeypatch.setattr(parse, "_MOST_BLOCKS", 4)
    with fsspec.open("memory://cached-file/x", "wb") as file:
        file.write(DATA)
    found, asked = CachedFile("memory://cached-file/x"), []
    fetch = found._fs.cat_file

    def fetched(path, start=None, end=None):
        asked.append((start, end))
        return fetch(path, start, end)

    monkeypatch.setattr(found._fs, "cat_file", fetched)
    return found, asked


def test_what_was_read_is_not_asked_again(made):
    file, asked = made
    assert file.range(10, 20) == DATA[10:20]
    assert file.range(0, 64) == DATA[:64]
    assert asked == [(0, 64)]
    assert file.range(60, 200) == DATA[60:200]
    assert asked[1:] == [(64, 256)]


def test_the_end_of_a_file(made):
    file, asked = made
    assert file.range(990, 5000) == DATA[990:]
    assert asked == [(960, 1000)]
    assert file.range(1000, 1001) == b""


def test_few_blocks_stay_in_memory(made):
    file, _ = made
    assert file.range(0, 1000) == DATA
    assert len(file._blocks) == 4
    assert file.range(0, 1000) == DATA


def test_as_a_file_of_python(made):
    file, _ = made
    assert file.seek(-10, os.SEEK_END) == 990
    assert file.read(5) == DATA[990:995]
    assert file.tell() == 995
    file.close()
    assert file.read() == DATA[995:]
    assert file.seek(0) == 0
    assert file.read() == DATA


@pytest.mark.parametrize("answer", [DATA, DATA[:10]], ids=["whole", "ends early"])
def test_a_server_without_ranges_and_one_that_stops_early(made, monkeypatch, answer):
    file, _ = made
    monkeypatch.setattr(file._fs, "cat_file", lambda *_, **__: answer)
    if answer is DATA:
        assert file.range(100, 110) == DATA[100:110]
    else:
        with pytest.raises(ScanError, match="10 bytes came, not 64 from 64 on"):
            file.range(100, 110)


def test_a_file_that_is_not_there():
    with pytest.raises(ScanError, match="there is no such file"):
        _ = CachedFile("memory://cached-file/none").size
