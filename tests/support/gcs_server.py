"""A server of Google Cloud Storage's XML API as far as stores use it: generations, conditions, ranges, listings.

It follows the reference of that API, and is no judge of it. Of the emulators on PyPI, fake-gcs-server refuses the API's
PUT, and gcp-storage-emulator knows no conditions: neither can judge what two writers do to each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.sax.saxutils import escape

import pytest
from obstore.store import GCSStore

from support.servers import serving

__all__ = ["gcs_server"]


class GcsServer:
    """Objects in memory, by bucket and name: value, generation and metadata."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[tuple[str, str], tuple[bytes, int, dict[str, str]]] = {}
        self.generations = itertools.count(1_700_000_000_000_000)
        self.lock = threading.Lock()

    def new_store(self, prefix: str) -> GCSStore:
        """Return obstore's store of a prefix in an empty bucket (without a token it would ask Google for one)."""
        bucket, client = f"bucket-{uuid4().hex[:12]}", {"allow_http": True}
        return GCSStore(bucket, prefix=prefix, base_url=self.url, bearer_token="testing", client_options=client)


def _handler(server: GcsServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_): ...

        def place(self):
            parts = urlsplit(self.path)
            bucket, _, name = unquote(parts.path.lstrip("/")).partition("/")
            return (bucket, name), {key: values[0] for key, values in parse_qs(parts.query).items()}

        def do_PUT(self):
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:  # of a client that died: nothing is stored
                self.close_connection = True
                return None
            place, _ = self.place()
            wanted = self.headers.get("x-goog-if-generation-match")
            with server.lock:
                found = server.objects.get(place)
                if wanted is not None and int(wanted) != (0 if found is None else found[1]):
                    return self.reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                meta = {k: v for k, v in self.headers.items() if k.lower().startswith("x-goog-meta-")}
                stored = server.objects[place] = body, next(server.generations), meta
            return self.reply(200, b"", self.about(stored))

        def do_GET(self):
            place, query = self.place()
            if not place[1]:
                return self.reply_listing(place[0], query)
            found = server.objects.get(place)
            if found is None:
                return self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            body, headers = found[0], self.about(found)
            if self.headers.get("If-Match") not in {None, headers["ETag"]}:
                return self.reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
            if match is None:
                return self.reply(200, body, headers)
            first, last = match.groups()
            start = int(first) if first else max(0, len(body) - int(last))
            stop = min(len(body), int(last) + 1) if first and last else len(body)
            if start >= len(body):
                return self.reply(416, b"<Error><Code>InvalidRange</Code></Error>")
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(body)}"
            return self.reply(206, body[start:stop], headers)

        do_HEAD = do_GET  # noqa: N815, the name that http.server calls

        def do_DELETE(self):
            place, _ = self.place()
            gone = server.objects.pop(place, None)
            return self.reply(404 if gone is None else 204, b"")

        def about(self, stored):
            """Return the headers of one state of an object, which another request may replace meanwhile."""
            body, generation, meta = stored
            return {
                **meta,
                "ETag": f'"{hashlib.md5(body).hexdigest()}"',
                "x-goog-generation": str(generation),
                "Last-Modified": formatdate(usegmt=True),
            }

        def reply_listing(self, bucket, query):
            prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
            contents, prefixes = [], []
            for (own, name), (body, _, _) in sorted(server.objects.items()):
                if own != bucket or not name.startswith(prefix):
                    continue
                head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
                if found:
                    prefixes.append(prefix + head + delimiter)
                else:
                    contents.append(
                        f"<Contents><Key>{escape(name)}</Key><Size>{len(body)}</Size>"
                        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                    )
            found = [f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in dict.fromkeys(prefixes)]
            body = f"<ListBucketResult>{''.join(contents + found)}</ListBucketResult>"
            return self.reply(200, body.encode(), {"Content-Type": "application/xml"})

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


@pytest.fixture(scope="module")
def gcs_server() -> Iterator[GcsServer]:
    """A server of the XML API."""
    state = GcsServer("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    with serving(server):
        yield state
