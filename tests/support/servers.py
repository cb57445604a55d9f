"""Servers in threads of the tests: S3 (moto) and HTTP files with byte ranges. Both log their requests.

Import the fixtures you use: ``from servers import http_server, s3_server  # noqa: F401``. Modules that talk to them need
``pytestmark = servers.WARNINGS`` (see there).
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import logging
import os
import re
import threading
import time
import unittest.mock
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import pytest

# Python 3.12 and later warn of forks while threads run, which is what these tests are about
FORK_WARNING = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

WARNINGS = [
    FORK_WARNING,
    # sessions of fsspec's filesystems live until the process ends, by fsspec's design
    pytest.mark.filterwarnings("ignore:[Uu]nclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:(aiobotocore|botocore|moto|werkzeug).*"),
]


@dataclass
class HttpServer:
    """A folder behind HTTP.

    Knobs may be turned while it serves: `latency` in seconds; `ranges` off, and Range headers are ignored; `status` by
    path answers that instead.
    """

    folder: Path
    url: str
    log: list[tuple[str, str, str | None]] = field(default_factory=list)
    """(method, path below the root as decoded, Range header)"""
    latency: float = 0.0
    ranges: bool = True
    suffix_ranges: bool = True
    listing: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with every answer."""
    absent: int = 404
    """Status of absent files; with 200 comes a page."""
    status: dict[str, int] = field(default_factory=dict)
    n_at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


_PAGE = b"<!doctype html><title>not found</title>"


def _handler(server: HttpServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # headers and body leave in two writes: with Nagle's algorithm each keep-alive answer would wait 40 ms
        disable_nagle_algorithm = True

        def log_message(self, *_):
            pass

        def do_GET(self):
            with server.lock:
                server.n_at_once += 1
                server.most_at_once = max(server.most_at_once, server.n_at_once)
            try:
                if server.latency:
                    time.sleep(server.latency)
            finally:  # before the answer: who has it may ask again before this thread goes on
                with server.lock:
                    server.n_at_once -= 1
            self.answer()

        do_HEAD = do_GET  # noqa: N815, the name that http.server calls

        def do_OPTIONS(self):
            self.reply(200, b"")

        def answer(self):
            path = unquote(self.path.partition("?")[0]).lstrip("/")
            with server.lock:
                server.log.append((self.command, path, self.headers.get("Range")))
            if path in server.status:
                return self.reply(server.status[path], b"status")
            target = server.folder / path
            if target.is_dir():
                return self.reply_listing(target)
            if not target.is_file():
                return self.reply(server.absent, _PAGE)
            return self.reply_file(target.read_bytes())

        def reply_listing(self, target):
            if not server.listing:
                return self.reply(server.absent, _PAGE)
            names = sorted(p.name + ("/" if p.is_dir() else "") for p in target.iterdir())
            body = "".join(f'<a href="{quote(name)}">{name}</a>\n' for name in names)
            return self.reply(200, body.encode(), {"Content-Type": "text/html; charset=utf-8"})

        def reply_file(self, body):
            headers = {"ETag": f'"{hash(body)}"', "Content-Type": "application/octet-stream"}
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
            if match is None or not server.ranges:
                return self.reply(200, body, headers)
            first, last = match.groups()
            start = int(first) if first else max(0, len(body) - int(last))
            stop = min(len(body), int(last) + 1) if first and last else len(body)
            if start >= len(body) or (not first and not server.suffix_ranges):
                return self.reply(416, b"", {"Content-Range": f"bytes */{len(body)}"})
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            return self.reply(206, body[start:stop], headers)

        def reply(self, status, body, headers=None):
            self.send_response(status)
            for name, value in {**server.headers, **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

    return Handler


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):  # a client that cancelled
        pass


@contextlib.contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """Run a server in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def serve_files(folder: str | os.PathLike[str], **knobs) -> Iterator[HttpServer]:
    """Serve a folder on a free port."""
    state = HttpServer(Path(folder), "", **knobs)
    server = _Quiet(("127.0.0.1", 0), _handler(state))
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    with serving(server):
        yield state


@dataclass
class S3Server:
    """moto's S3."""

    endpoint_url: str
    log: list[tuple[str, str]]
    """(method, path with query) as the server saw them"""

    @property
    def storage_options(self) -> dict:
        return {
            "key": "testing",
            "secret": "testing",
            "client_kwargs": {"endpoint_url": self.endpoint_url, "region_name": "us-east-1"},
        }

    def new_bucket(self) -> str:
        """Make an empty bucket and return its url."""
        name = f"bucket-{uuid4().hex[:12]}"
        request = urllib.request.Request(f"{self.endpoint_url}/{name}", method="PUT")
        urllib.request.urlopen(request).close()
        return f"s3://{name}"


class _RequestLog(logging.Handler):
    def __init__(self, log):
        super().__init__()
        self.requests = log

    def emit(self, record):
        message = re.sub(r"\x1b\[[0-9;]*m", "", record.getMessage())  # werkzeug colours all but 200
        if match := re.search(r'"([A-Z]+) (\S+) HTTP', message):
            self.requests.append((match[1], match[2]))


@contextlib.contextmanager
def _atomic_conditions() -> Iterator[None]:
    """Compare and store at once inside, as S3 does.

    moto compares If-Match, and then stores, in threads: of 64 elements one was lost by two writers who had both passed.
    """
    from moto.s3.responses import S3Response

    lock = threading.RLock()

    def locked(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            with lock:
                return method(*arguments, **options)

        return call

    with contextlib.ExitStack() as patched:
        for name in ("put_object", "delete_object"):
            method = locked(getattr(S3Response, name))
            patched.enter_context(unittest.mock.patch.object(S3Response, name, method))
        yield


@contextlib.contextmanager
def serve_s3() -> Iterator[S3Server]:
    """Run moto's S3 on a free port, in a thread."""
    from moto.server import ThreadedMotoServer

    log: list[tuple[str, str]] = []
    handler = _RequestLog(log)
    logger = logging.getLogger("werkzeug")
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=True)
    server.start()
    try:
        host, port = server.get_host_and_port()
        with _atomic_conditions():
            yield S3Server(f"http://{host}:{port}", log)
    finally:
        server.stop()
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@dataclass
class FlakyProxy:
    """Stands before a server, and answers some requests with 503 in its place.

    Of every `every` requests whose method is in `methods`, one is answered so; `after`: when the server has done what
    was asked, so that the client cannot know; `cut`: the server's own answer, without the end of its body.
    """

    url: str
    every: int = 1 << 60
    methods: tuple[str, ...] = ("GET", "PUT", "DELETE", "HEAD")
    after: bool = False
    cut: bool = False
    ignored: tuple[str, ...] = ()
    """Headers, in lower case, that are not passed on."""
    weakens: bool = False
    """Whether ETags are sent as weak ones, which no If-Match is satisfied by."""
    forbids: bool = False
    """Whether absent keys are answered with 403, as by a bucket that must not be listed."""
    conditions: tuple[int, str] | None = None
    """Status and S3's code that conditional requests are answered with, after `n_conditional` of which they pass."""
    n_conditional: int = 1 << 60
    n_requests: int = 0
    n_failures: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fails(self, method: str) -> bool:
        with self.lock:
            if method not in self.methods:
                return False
            self.n_requests += 1
            failing = self.n_requests % self.every == 0
            self.n_failures += failing
            return failing


@contextlib.contextmanager
def serve_flaky(endpoint_url: str, **knobs) -> Iterator[FlakyProxy]:
    """Pass requests on to `endpoint_url`, but for some."""
    proxy = FlakyProxy("", **knobs)
    host, port = endpoint_url.removeprefix("http://").split(":")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_): ...

        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if proxy.conditions is not None and self.is_refused():
                return self.reply_error(*proxy.conditions)
            failing = proxy.fails(self.command)
            if failing and not (proxy.after or proxy.cut):
                return self.reply_error(503, "SlowDown")
            connection = http.client.HTTPConnection(host, int(port), timeout=30)
            try:
                headers = {k: v for k, v in self.headers.items() if k.lower() not in proxy.ignored}
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                data = response.read()
            finally:
                connection.close()
            if failing and not proxy.cut:
                return self.reply_error(503, "SlowDown")
            if proxy.forbids and response.status == 404:
                return self.reply_error(403, "AccessDenied")
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in {"transfer-encoding", "connection", "content-length", "server", "date"}:
                    self.send_header(name, f"W/{value}" if name == "ETag" and proxy.weakens else value)
            length = response.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if failing else data)
            self.close_connection |= failing
            return None

        def is_refused(self):
            if self.headers.get("If-Match") is self.headers.get("If-None-Match") is None or proxy.n_conditional == 0:
                return False
            proxy.n_conditional -= 1
            return True

        do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815, the names that http.server calls

        def reply_error(self, status, code):
            body = f"<Error><Code>{code}</Code><Message>{code}.</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = _Quiet(("127.0.0.1", 0), Handler)
    proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
    with serving(server):
        yield proxy


@pytest.fixture
def http_server(tmp_path: Path) -> Iterator[HttpServer]:
    """A server of the folder ``tmp_path / "served"``."""
    folder = tmp_path / "served"
    folder.mkdir()
    with serve_files(folder) as server:
        yield server


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """moto's S3, for all tests of a module: make a bucket in each."""
    for name in ("moto", "flask", "obstore"):  # as of the environment `unit`
        pytest.importorskip(name)
    with serve_s3() as server:
        yield server
