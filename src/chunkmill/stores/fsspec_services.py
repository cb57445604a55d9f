"""Requests to fsspec filesystems, by kind of service: S3, HTTP, archives, any other.

`FsspecStore` needs more than fsspec's common interface: a value and its version in one response, suffix
ranges in one request, a check that the range was honoured, conditional writes. Errors leave as the filesystem
raises them; only those of `ABSENT` mean that there is no such key. Not here: servers of files
(`chunkmill.stores.file_services`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from importlib import import_module
from typing import Any
from urllib.parse import quote

from chunkmill.config import setting
from chunkmill.stores.base import ByteRange

__all__ = [
    "ABSENT",
    "ARCHIVE_PROTOCOLS",
    "ATOMIC_PROTOCOLS",
    "CACHE_PROTOCOLS",
    "RENAMING_PROTOCOLS",
    "ArchiveService",
    "HttpService",
    "OutOfRange",
    "S3Service",
    "Service",
]

ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

Fetched = tuple[bytes, str | None]

ARCHIVE_PROTOCOLS = frozenset({"zip", "libarchive"})  # those that decompress, and tell sizes before
CACHE_PROTOCOLS = frozenset({"simplecache", "filecache", "blockcache", "cached"})  # those that keep what was read
RENAMING_PROTOCOLS = frozenset({"sftp", "ssh", "file", "local"})
ATOMIC_PROTOCOLS = RENAMING_PROTOCOLS | {"memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"}
"""Protocols whose values are replaced at once: object stores, and files that can be renamed over others."""

_MAX_IGNORED = 16 * 2**20  # of a value that a server without ranges may send whole, for a range of it to be used
_ATTEMPTS = 4  # at a body that ends early
_SILENCE = 120.0  # seconds, where nothing is to be tried again
_MOST = 1 << 31  # of a value whose length no server gave, or that is compressed on the way


class OutOfRange(Exception):
    """The service says that the value has no such range (HTTP 416)."""


class Service:
    """Any filesystem, through fsspec's common methods. Its versions are digests of the content."""

    def __init__(self, filesystem: Any) -> None:
        self.fs = filesystem
        self.one_at_a_time: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        # caches of fsspec before 2026.3 say so of the filesystem below, and have no coroutines
        self.is_async = filesystem.async_impl and hasattr(type(filesystem), "_cat_file")

    async def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the filesystem; fsspec documents an underscore before the name of its coroutine."""
        if self.is_async:
            return await getattr(self.fs, "_" + name)(*args, **kwargs)
        return getattr(self.fs, name)(*args, **kwargs)

    def entries(self, path: str) -> list[dict[str, Any]]:
        """Return what the filesystem tells of each file and folder directly below a path."""
        found: list[dict[str, Any]] = self.fs.ls(path, detail=True)
        return found

    async def fetch(self, path: str, byte_range: ByteRange | None) -> Fetched:
        """Return the bytes of a range, perhaps fewer, and the version of the whole value where it is known."""
        if byte_range is None:
            data = bytes(await self._run("cat_file", path))
            return data, digest(data)
        start, length = byte_range.start, byte_range.length
        if start < 0 or length is None or length == 0:
            # not every filesystem knows suffixes, or says when a start is past the end: one more request
            size = await self.size(path)
            if start > size:
                raise OutOfRange
            start = start if start >= 0 else max(0, size + start)
            length = size - start if length is None else length
            if length == 0:
                return b"", None
        return bytes(await self._run("cat_file", path, start=start, end=start + length)), None

    async def size(self, path: str) -> int:
        """Return the size of a value; `FileNotFoundError` where there is none."""
        self.fs.invalidate_cache()  # some filesystems remember sizes from listings
        info = await self._run("info", path)
        if info["type"] == "directory":
            raise FileNotFoundError(path)
        size: int | None = info["size"]
        return len((await self.fetch(path, None))[0]) if size is None else size

    async def put(self, path: str, value: bytes) -> bool:
        """Store a value; return true."""
        try:
            await self._run("pipe_file", path, value)
        except FileNotFoundError:
            if self.is_async:  # no directories in object stores: what is missing stays so
                raise
            await self._run("makedirs", path.rpartition("/")[0], exist_ok=True)
            await self._run("pipe_file", path, value)
        return True

    async def put_if(self, path: str, value: bytes | None, version: str | None) -> bool:
        """Store (or delete) a value if it has that version: compared, then written, with a gap between."""
        try:
            _, found = await self.fetch(path, None)
        except ABSENT:
            found = None
        if found != version:
            return False
        if value is not None:
            await self.put(path, value)
        elif version is not None:
            await self.delete(path)
        return True

    async def delete(self, path: str) -> None:
        """Delete a value; `FileNotFoundError` where there is none."""
        if not self.is_async:  # nor a folder, which WebDAV deletes with all that is in it
            await self.size(path)
        await self._run("rm_file", path)

    async def delete_many(self, paths: list[str]) -> None:
        """Delete values, which others may be deleting too."""
        for path in paths:
            with contextlib.suppress(*ABSENT):
                await self.delete(path)


class ArchiveService(Service):
    """An archive, whose members are read one after the other.

    All share one file: `zipfile` of Python 3.12 and 3.13.0 returns wrong bytes when several threads seek in it.
    """

    def __init__(self, filesystem: Any) -> None:
        super().__init__(filesystem)
        self._lock = threading.Lock()

    async def _run(self, name: str, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            try:
                return await super()._run(name, *args, **kwargs)
            except KeyError as error:  # `zipfile`'s own, from fsspec before 2026.6
                raise FileNotFoundError(*args) from error


class S3Service(Service):
    """S3, through s3fs, for options and credentials that obstore has not: plain, but for versions, the ETags."""

    async def fetch(self, path: str, byte_range: ByteRange | None) -> Fetched:
        """Return bytes and ETag of one GET (s3fs' own ``cat_file`` asks for the size first)."""
        if byte_range is not None and byte_range.length == 0:
            raise OutOfRange  # HTTP cannot ask for zero bytes
        bucket, s3_key, _ = self.fs.split_path(path)
        header = {} if byte_range is None else {"Range": range_header(byte_range)}
        broken = import_module("s3fs.core").S3_RETRYABLE_ERRORS
        attempt = 0
        while True:
            try:
                response = await self._run("call_s3", "get_object", Bucket=bucket, Key=s3_key, **header)
            except OSError as error:
                if s3_code(error) in {"InvalidRange", "416"}:
                    raise OutOfRange from error
                raise self._failed(error, bucket) from error
            try:
                async with response["Body"] as body:
                    return await body.read(), response["ETag"]
            except broken:  # s3fs repeats what has no answer; one whose body ends early is repeated here
                attempt += 1
                if attempt >= self.fs.retries:
                    raise
                await asyncio.sleep(min(0.1 * 1.7**attempt, 15))  # as s3fs

    async def put_if(self, path: str, value: bytes | None, version: str | None) -> bool:
        """PUT (or DELETE) with If-Match or If-None-Match."""
        bucket, s3_key, _ = self.fs.split_path(path)
        if value is None and version is None:
            return await super().put_if(path, value, version)
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        body = {} if value is None else {"Body": value}
        method = "delete_object" if value is None else "put_object"
        try:
            await self._run("call_s3", method, Bucket=bucket, Key=s3_key, **condition, **body)
        except OSError as error:
            # 404: If-Match, and the value is gone. 409: another conditional write was under way. It may be our own
            # first try, too, that a retry met, which the caller finds out by reading again
            if s3_code(error) in {"PreconditionFailed", "412", "ConditionalRequestConflict", "409", "NoSuchKey", "404"}:
                return False
            raise self._failed(error, bucket) from error
        finally:
            self.fs.invalidate_cache(path)
        return True

    @staticmethod
    def _failed(error: OSError, bucket: str) -> OSError:
        """Return the error to raise: a missing bucket is not an absent key."""
        if s3_code(error) != "NoSuchBucket":
            return error
        return OSError(f"there is no bucket {bucket!r}: create it, or correct the url")

    async def delete_many(self, paths: list[str]) -> None:
        """Delete a thousand values a request; raise where some are kept, over which s3fs passes."""
        for i in range(0, len(paths), 1000):
            bucket = self.fs.split_path(paths[i])[0]
            keys = [{"Key": self.fs.split_path(path)[1]} for path in paths[i : i + 1000]]
            wanted = {"Objects": keys, "Quiet": True}
            answer = await self._run("call_s3", "delete_objects", Bucket=bucket, Delete=wanted)
            if errors := answer.get("Errors"):
                first = ": ".join(str(errors[0].get(field)) for field in ("Key", "Code", "Message"))
                raise OSError(f"{len(errors)} of {len(keys)} values were not deleted, the first {first}")


class _Busy(OSError):
    """The server answers that it cannot answer now."""


class _ShortBodyError(Exception):
    """A body is shorter than its Content-Length: what came of it, and of which version."""

    def __init__(self, data: bytes, version: str | None) -> None:
        super().__init__()
        self.data, self.version = data, version


_BUSY = (429, 500, 502, 503, 504)


class HttpService(Service):
    """HTTP, through the session of fsspec's filesystem: it reads, and says what the server did."""

    async def fetch(self, path: str, byte_range: ByteRange | None) -> Fetched:
        """Return the bytes of one GET; where a body ends early, the rest by others, while its ETag stays the same."""
        wanted, data, version, failures = byte_range, b"", None, 0
        while True:
            try:
                rest, found = await self._fetch(path, wanted)
                is_short = False
            except _ShortBodyError as short:
                rest, found, is_short, broken = short.data, short.version, True, short.__cause__
            is_same = not data or found == version
            if is_same and not is_short:
                return data + rest, found
            start = 0 if byte_range is None else byte_range.start
            failures = 0 if is_same and data and rest else failures + 1
            data, version = (data + rest, found) if is_same and found is not None and start >= 0 else (b"", None)
            if failures == _ATTEMPTS or not float(setting("retry-seconds")):
                raise OSError(f"the body ended early, or changed, {max(failures, 1)} times: {broken}")
            if data:
                most = None if byte_range is None or byte_range.length is None else byte_range.length - len(data)
                wanted = ByteRange(start + len(data), most)
            else:
                wanted = byte_range
                await asyncio.sleep(0.1 * 2**failures)

    async def _fetch(self, path: str, byte_range: ByteRange | None) -> Fetched:
        if byte_range is not None and byte_range.length == 0:
            raise OutOfRange  # HTTP cannot ask for zero bytes
        headers = {} if byte_range is None else {"Range": range_header(byte_range)}

        async def read(response: Any) -> Fetched:
            version = response.headers.get("ETag")
            if byte_range is None:
                return await _body(response, _length(response)), version
            if response.status == HTTPStatus.OK:  # the server ignored the range
                return await _range_of_whole(response, byte_range), version
            _check_content_range(response, byte_range)
            most = -byte_range.start if byte_range.start < 0 else byte_range.length
            return await _body(response, _MOST if most is None else most), version

        fetched: Fetched = await self._get(path, headers, read)
        return fetched

    async def size(self, path: str) -> int:
        """Return the size that a GET of one byte tells (not all servers answer a HEAD, or rightly)."""

        async def read(response: Any) -> int:
            total = response.headers.get("Content-Range", "").rpartition("/")[2]
            if response.status == HTTPStatus.OK:
                total = response.headers.get("Content-Length", "")
            if not total.isdecimal():
                raise OSError("the server does not tell the size")
            response.close()  # without the body
            return int(total)

        try:
            size: int = await self._get(path, {"Range": "bytes=0-0"}, read)
        except OutOfRange:
            return 0
        return size

    async def _get(self, path: str, headers: dict[str, str], read: Callable[[Any], Awaitable[Any]]) -> Any:
        """Make a request, and again while it fails for a reason that may pass, until `retry-seconds` are over."""
        connection_error = import_module("aiohttp").ClientConnectionError
        begun, pause = time.monotonic(), 0.1
        while True:
            try:
                return await self._get_once(path, headers, read)
            except TimeoutError as error:
                raise OSError(f"the server sent nothing for {_silence():.0f} s") from error
            except (connection_error, _Busy):
                pause = min(2 * pause, 15.0)
                if time.monotonic() + pause - begun > float(setting("retry-seconds")):
                    raise
                await asyncio.sleep(pause)

    async def _get_once(self, path: str, headers: dict[str, str], read: Callable[[Any], Awaitable[Any]]) -> Any:
        options = dict(self.fs.kwargs)
        if "timeout" not in {*options, *(self.fs.client_kwargs or {})}:
            timeout = import_module("aiohttp").ClientTimeout
            options["timeout"] = timeout(total=None, sock_connect=_silence(), sock_read=_silence())
        # ranges are of the bytes as stored; so is the length that tells a short read
        headers = {**options.pop("headers", {}), "Accept-Encoding": "identity", **headers}
        session = await self.fs.set_session()
        async with session.get(self.fs.encode_url(path), headers=headers, **options) as response:
            if response.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
                raise FileNotFoundError(path)
            if response.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and "Range" in headers:
                raise OutOfRange
            if response.status not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
                raised = {403: PermissionError, **dict.fromkeys(_BUSY, _Busy)}.get(response.status, OSError)
                raise raised(f"the server answered {response.status} {response.reason or ''}".rstrip())
            return await read(response)


def _silence() -> float:
    """Return after how many seconds without a byte a server is given up: users set them, aiohttp waits for 300."""
    return float(setting("retry-seconds")) or _SILENCE


async def _body(response: Any, most: int) -> bytes:
    """Return the body; raise once it is longer than `most`: a server may send without end."""
    received: list[bytes] = []
    n_bytes = 0
    try:
        async for data in response.content.iter_any():
            n_bytes += len(data)
            if n_bytes > most:
                response.close()
                raise OSError(f"the server sends more than the {most} bytes that there can be")
            received.append(data)
    except import_module("aiohttp").ClientPayloadError as error:
        raise _ShortBodyError(b"".join(received), response.headers.get("ETag")) from error
    return received[0] if len(received) == 1 else b"".join(received)


def _length(response: Any) -> int:
    """Return the length of a body, or the limit where it is not given or the body is compressed in transit."""
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() and "Content-Encoding" not in response.headers else _MOST


async def _range_of_whole(response: Any, byte_range: ByteRange) -> bytes:
    """Cut the range out of a body that a server without ranges sent whole, if it is small."""
    length = int(response.headers.get("Content-Length", _MAX_IGNORED + 1))
    if length > _MAX_IGNORED:
        response.close()
        raise OSError(
            f"asked for {range_header(byte_range)}, got the whole body: the server does not support range requests; "
            "serve the files with one that does, or copy them"
        )
    try:
        body = await _body(response, _MAX_IGNORED)
    except _ShortBodyError as short:
        raise _ShortBodyError(b"", None) from short.__cause__
    start = byte_range.start if byte_range.start >= 0 else max(0, len(body) + byte_range.start)
    if start > len(body):
        raise OutOfRange
    return body[start : None if byte_range.length is None else start + byte_range.length]


def _check_content_range(response: Any, byte_range: ByteRange) -> None:
    header = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-\d+/(?:\d+|\*)", header.strip())
    if match is None or (byte_range.start >= 0 and int(match[1]) != byte_range.start):
        raise OSError(f"asked for {range_header(byte_range)}, got a response with Content-Range {header!r}")


def range_header(byte_range: ByteRange) -> str:
    """Return the value of HTTP's Range header.

    Examples
    --------
    >>> range_header(ByteRange(0, 10)), range_header(ByteRange(10)), range_header(ByteRange(-4))
    ('bytes=0-9', 'bytes=10-', 'bytes=-4')
    """
    if byte_range.start < 0:
        return f"bytes={byte_range.start}"
    stop = "" if byte_range.length is None else byte_range.start + byte_range.length - 1
    return f"bytes={byte_range.start}-{stop}"


def digest(data: bytes) -> str:
    """Return a version for filesystems that have none: a digest of the content."""
    return "blake2b-" + hashlib.blake2b(data, digest_size=16).hexdigest()


def s3_code(error: BaseException) -> str:
    """Return S3's own code of an error that s3fs translated."""
    response = getattr(error.__cause__, "response", None) or {}
    code: str = response.get("Error", {}).get("Code", "")
    return code


def http_url(root: str, key: str) -> str:
    """Return the url of a key: quoted, and before the query of the root.

    Examples
    --------
    >>> http_url("https://host/x.zarr?token=1", "a b/#0")
    'https://host/x.zarr/a%20b/%230?token=1'
    """
    base, question, query = root.partition("?")
    return base.rstrip("/") + "/" + quote(key) + question + query
