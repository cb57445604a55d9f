"""A web server that is far away: prepared answers, each after a wait.

In a process of its own, on asyncio's bare protocol: 40 µs of processor a request, a tenth of what a framework takes, so
that on a machine with two processors the wait is measured and not the server. GET and HEAD of small whole files, and
of folders as pages of links.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

__all__ = ["far_away"]

_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def far_away(folder: Path, latency: float) -> Iterator[str]:
    """Serve the files below `folder` as they are now, each answer after `latency` seconds; yield the url."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(str(folder), latency, theirs), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _serve(folder: str, latency: float, pipe: Any) -> None:
    asyncio.run(_run(_answers(Path(folder)), latency, pipe))


async def _run(answers: dict[bytes, tuple[bytes, bytes]], latency: float, pipe: Any) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(answers, latency), "127.0.0.1", 0, backlog=1024)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _answers(folder: Path) -> dict[bytes, tuple[bytes, bytes]]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data)
            found[b"/" + path.relative_to(folder).as_posix().encode()] = head, data
        else:  # a page of links, as web servers list folders
            names = sorted(f"{each.name}/" if each.is_dir() else each.name for each in path.iterdir())
            data = "".join(f'<a href="{name}">{name}</a>' for name in names).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(data)
            found[b"/" + path.relative_to(folder).as_posix().encode() + b"/"] = head, data
    return found


class _Connection(asyncio.Protocol):
    def __init__(self, answers: dict[bytes, tuple[bytes, bytes]], latency: float) -> None:
        self.answers = answers
        self.latency = latency
        self.received = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.received += data
        while (end := self.received.find(b"\r\n\r\n")) >= 0:
            method, path, _ = self.received[: self.received.index(b"\r\n")].split(b" ", 2)
            self.received = self.received[end + 4 :]
            head, body = self.answers.get(path, (_MISSING, b""))
            self.loop.call_later(self.latency, self.transport.write, head if method == b"HEAD" else head + body)


def test_a_far_server_is_slow(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"there")
    with far_away(tmp_path, 0.05) as url:
        start = time.perf_counter()
        with urlopen(f"{url}/a/b") as answer:
            assert answer.read() == b"there"
        assert time.perf_counter() - start > 0.05
        with pytest.raises(HTTPError) as caught:
            urlopen(f"{url}/a/c")
        assert caught.value.code == 404
        caught.value.close()
