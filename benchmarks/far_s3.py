"""An S3 service that is far away: in memory, in a process of its own, each answer after a wait, with a log.

On asyncio's bare protocol, as `benchmarks.far_server`, so that the wait is measured and not the service. It knows what
obstore, zarr-python and TensorStore ask for: values, ranges, conditions (If-Match, If-None-Match), deletions in bulk,
listings with delimiters. Signatures are not checked, and uploads in parts are not known.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote
from urllib.request import urlopen
from xml.sax.saxutils import escape, unescape

__all__ = ["FarS3", "Request", "far_s3"]

BUCKET = "bucket"
_CONTROL = "/control/"


class Request(NamedTuple):
    """A request as the service saw it; times of its clock, in seconds."""

    method: str
    key: str
    query: str
    status: int
    begin: float
    end: float


@dataclass(frozen=True)
class FarS3:
    """The service, as its clients see it."""

    endpoint: str

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}"

    @property
    def storage_options(self) -> dict[str, Any]:
        client = {"endpoint_url": self.endpoint, "region_name": "us-east-1"}
        return {"key": "testing", "secret": "testing", "client_kwargs": client}

    def requests(self) -> list[Request]:
        """Return the requests since the last call, in the order of their beginnings."""
        return sorted((Request(*each) for each in json.loads(self._control("log"))), key=lambda each: each.begin)

    def wait(self, seconds: float) -> None:
        """Answer after so long from now on."""
        self._control(f"latency/{seconds}")

    def _control(self, what: str) -> bytes:
        with urlopen(f"{self.endpoint}{_CONTROL}{what}") as answer:
            return bytes(answer.read())


@contextmanager
def far_s3(latency: float) -> Iterator[FarS3]:
    """Run the service with one empty bucket, each answer after `latency` seconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(latency, theirs), daemon=True)
    process.start()
    try:
        yield FarS3(f"http://127.0.0.1:{ours.recv()}")
    finally:
        process.terminate()
        process.join()


def _serve(latency: float, pipe: Any) -> None:
    asyncio.run(_run(_Bucket(latency), pipe))


async def _run(bucket: _Bucket, pipe: Any) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(bucket), "127.0.0.1", 0, backlog=1024)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


class _Value(NamedTuple):
    data: bytes
    etag: str
    attributes: dict[str, str]


class _Bucket:
    def __init__(self, latency: float) -> None:
        self.latency = latency
        self.values: dict[str, _Value] = {}
        self.n_written = 0
        self.log: list[tuple[Any, ...]] = []

    def answer(self, method: str, key: str, query: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, Any]:
        """Return status, body and headers."""
        if not key:
            return 200, self.deleted(body) if method == "POST" else self.listing(parse_qs(query)), {}
        if method in {"GET", "HEAD"}:
            return self.read(key, headers)
        if method == "DELETE":
            self.values.pop(key, None)
            return 204, b"", {}
        there, wanted = self.values.get(key), headers.get("if-match")
        if (headers.get("if-none-match") == "*" and there) or (wanted and (not there or there.etag != wanted)):
            return 412, _error("PreconditionFailed"), {}
        return 200, b"", {"ETag": self.store(key, body, headers)}

    def read(self, key: str, headers: dict[str, str]) -> tuple[int, bytes, Any]:
        there = self.values.get(key)
        if there is None:
            return 404, _error("NoSuchKey"), {}
        known = {"ETag": there.etag, "Last-Modified": _MOMENT, **there.attributes}
        if (asked := re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", ""))) is None:
            return 200, there.data, known
        first, last = asked.groups()
        size = len(there.data)
        start = int(first) if first else max(0, size - int(last))
        stop = min(size, int(last) + 1) if first and last else size
        if start >= size:
            return 416, _error("InvalidRange"), {}
        return 206, there.data[start:stop], {**known, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}

    def store(self, key: str, data: bytes, headers: dict[str, str]) -> str:
        self.n_written += 1
        etag = f'"{self.n_written:032x}"'
        attributes = {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}
        self.values[key] = _Value(data, etag, attributes)
        return etag

    def deleted(self, body: bytes) -> bytes:
        keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
        for key in keys:
            self.values.pop(unescape(key), None)
        done = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return f"<DeleteResult>{done}</DeleteResult>".encode()

    def listing(self, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter, after = ((query.get(name) or [""])[0] for name in ("prefix", "delimiter", _AFTER))
        most = int((query.get("max-keys") or ["1000"])[0])
        names: dict[str, None] = {}
        for key in sorted(self.values):
            if key.startswith(prefix):
                head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key[len(prefix) :], "", "")
                names[prefix + head + cut] = None
        page = [name for name in names if name > after]
        entries = "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            if delimiter and name.endswith(delimiter)
            else f"<Contents><Key>{escape(name)}</Key><Size>{len(self.values[name].data)}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(self.values[name].etag)}</ETag></Contents>"
            for name in page[:most]
        )
        more = len(page) > most
        token = f"<NextContinuationToken>{escape(page[most - 1])}</NextContinuationToken>" if more else ""
        head = f"<Name>{BUCKET}</Name><KeyCount>{len(page[:most])}</KeyCount>"
        head += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        return f"<ListBucketResult>{head}{token}{entries}</ListBucketResult>".encode()


_AFTER = "continuation-token"
_MOMENT = "Thu, 01 Jan 2026 00:00:00 GMT"


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()


class _Connection(asyncio.Protocol):
    def __init__(self, bucket: _Bucket) -> None:
        self.bucket = bucket
        self.received = bytearray()
        self.asked: tuple[str, str, dict[str, str], int, float] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.received += data
        while True:
            if self.asked is None:
                end = self.received.find(b"\r\n\r\n")
                if end < 0:
                    return
                line, *fields = bytes(self.received[:end]).decode("latin-1").split("\r\n")
                del self.received[: end + 4]
                method, target, _ = line.split(" ", 2)
                headers = {name.lower(): value.strip() for name, _, value in (f.partition(":") for f in fields)}
                self.asked = method, target, headers, int(headers.get("content-length") or 0), time.perf_counter()
                if headers.get("expect"):
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            method, target, headers, length, begin = self.asked
            if len(self.received) < length:
                return
            body = bytes(self.received[:length])
            del self.received[:length]
            self.asked = None
            if target.startswith(_CONTROL):
                self.transport.write(_response(method, 200, self.control(target.removeprefix(_CONTROL)), {}))
            else:  # what is asked for happens half way
                wait = self.bucket.latency / 2
                self.loop.call_later(wait, self.answer, method, target, headers, body, begin)

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes, begin: float) -> None:
        path, _, query = target.partition("?")
        key = unquote(path).lstrip("/").removeprefix(BUCKET).lstrip("/")
        status, data, known = self.bucket.answer(method, key, query, headers, body)
        response = _response(method, status, data, known)
        self.loop.call_later(self.bucket.latency / 2, self.send, response, (method, key, query, status, begin))

    def send(self, response: bytes, logged: tuple[Any, ...]) -> None:
        self.bucket.log.append((*logged, time.perf_counter()))
        self.transport.write(response)

    def control(self, what: str) -> bytes:
        name, _, value = what.partition("/")
        if name == "latency":
            self.bucket.latency = float(value)
            return b""
        log, self.bucket.log = self.bucket.log, []
        return json.dumps(log).encode()


def _response(method: str, status: int, data: bytes, headers: dict[str, str]) -> bytes:
    length = {} if status == 204 else {"Content-Length": str(len(data))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**headers, **length}.items())
    return f"HTTP/1.1 {status} OK\r\n{lines}\r\n".encode() + (b"" if method == "HEAD" else data)
