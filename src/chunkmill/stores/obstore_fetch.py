"""Read a value, or a range of it, from an obstore client: large ones by several requests at once, all of one version.

Absent keys leave as `FileNotFoundError`, other failures as obstore raises them.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

import obstore
from obstore.exceptions import BaseError, PreconditionError

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, range_bounds
from chunkmill.stores.filesystems import max_requests
from chunkmill.stores.fsspec_services import digest

__all__ = ["PIECE", "RUNTIME", "Fetched", "etag_from", "fetch", "part_size", "pieces"]
__all__ += ["version_of"]

PIECE = 8 * 2**20
"""Bytes of one request: one connection carries 50 to 90 MB/s."""

Fetched = tuple[bytes, str]


class _Runtime:
    """The process that obstore's threads run in, and the threads of Python that wait for them."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self._lock = threading.Lock()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._limit: threading.Semaphore | None = None

    def pool(self, name: str) -> ThreadPoolExecutor:
        with self._lock:
            if name not in self._pools:
                self._pools[name] = ThreadPoolExecutor(max_requests(), f"chunkmill-{name}")
            return self._pools[name]

    def limit(self) -> threading.Semaphore:
        """Return the limit of requests under way: tasks on many threads make them outside of our pools."""
        with self._lock:
            if self._limit is None:
                self._limit = threading.Semaphore(max_requests())
            return self._limit


RUNTIME = _Runtime()


def fetch(
    client: Any, kind: str, key: str, wanted: ByteRange | None, *, exact: bool, url: str, inside: bool = False
) -> Fetched:
    """Return bytes and version.

    Parameters
    ----------
    kind
        Of service: they differ in which ranges they know.
    exact
        Whether the bytes must be as many as were asked for.
    url
        Of the store: what errors name.
    inside
        Whether the range is known to be in the value: a server that refuses it knows no ranges.
    """
    if wanted is None:
        return _fetch_whole(client, kind, key)
    start, length = wanted.start, wanted.length
    if length == 0 or (start < 0 and (length is not None or kind == "az")):  # Azure has no suffixes
        return _fetch_inside(client, kind, key, wanted, url)
    asked: Any = {"suffix": -start} if start < 0 else {"offset": start}
    if length is not None:
        asked = (start, start + min(length, PIECE))
    try:
        data, meta = _get(client, key, asked)
    except FileNotFoundError:
        raise
    except BaseError as error:
        if inside or isinstance(error, PreconditionError) or not _may_be_outside(error):
            raise
        return _fetch_inside(client, kind, key, wanted, url)
    if length is not None and length > PIECE and start + length <= meta["size"]:
        data = _with_rest(client, key, data, start, start + length, meta=meta)
    if exact and length is not None and len(data) != length:
        range_bounds(wanted, meta["size"], url=url, key=key)
        reason = f"expected {length} bytes from {start}, got {len(data)}: the response is truncated"
        raise StoreError(url=url, key=key, reason=reason)
    return data, version_of(meta, data)


def _fetch_whole(client: Any, kind: str, key: str) -> Fetched:
    if kind in {"memory", "http"}:
        data, meta = _get(client, key, None)
        return data, version_of(meta, data)
    try:
        data, meta = _get(client, key, (0, PIECE))
    except BaseError as error:
        if not _may_be_outside(error):
            raise
        data, meta = _get(client, key, None)  # it is empty, or not stored as it is sent
    if meta["size"] > len(data):
        data = _with_rest(client, key, data, 0, meta["size"], meta=meta)
    return data, version_of(meta, data)


def _fetch_inside(client: Any, kind: str, key: str, wanted: ByteRange, url: str) -> Fetched:
    """Read a range after asking for the size: one that the service refused, or cannot be asked for."""
    meta = obstore.head(client, key)
    start, stop = range_bounds(wanted, meta["size"], url=url, key=key)
    if start == stop:
        return b"", version_of(meta, b"")
    return fetch(client, kind, key, ByteRange(start, stop - start), exact=True, url=url, inside=True)


def _with_rest(client: Any, key: str, first: bytes, start: int, stop: int, *, meta: Any) -> bytes:
    """Return a range that begins with `first`; `PreconditionError` when the value was replaced meanwhile."""
    match = {"if_match": meta["e_tag"]} if meta["e_tag"] else {}

    def get(begin: int) -> bytes:
        return _get(client, key, (begin, min(begin + PIECE, stop)), match)[0]

    pool = RUNTIME.pool("pieces")
    futures = [pool.submit(get, begin) for begin in range(start + len(first), stop, PIECE)]
    try:
        return b"".join([first, *(future.result() for future in futures)])
    finally:
        for future in futures:
            future.cancel()


def part_size(n_bytes: int) -> int:
    """Return the length of the parts of an upload: a service takes 10,000 at most.

    Examples
    --------
    >>> part_size(10 * PIECE) == PIECE, part_size(10**12)
    (True, 100000000)
    """
    return max(PIECE, -(-n_bytes // _MOST_PARTS))


def pieces(client: Any, key: str, meta: Any, size: int) -> Iterator[bytes]:
    """Yield a value of which `meta` tells size and version in order, the requests of the next pieces under way.

    `PreconditionError` when it was replaced meanwhile.
    """
    match = {"if_match": meta["e_tag"]} if meta["e_tag"] else {}
    begins = iter(range(0, meta["size"], size))
    pool = RUNTIME.pool("pieces")
    ahead: deque[Future[bytes]] = deque()
    try:
        while True:
            for begin in islice(begins, PIECES_AHEAD - len(ahead)):
                stop = min(begin + size, meta["size"])
                ahead.append(pool.submit(lambda span: _get(client, key, span, match)[0], (begin, stop)))
            if not ahead:
                return
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()


_MOST_PARTS = 10_000
PIECES_AHEAD = 4


def _get(client: Any, key: str, byte_range: Any, match: Any = None) -> tuple[bytes, Any]:
    options: Any = {**(match or {}), **({} if byte_range is None else {"range": byte_range})}
    with RUNTIME.limit():
        result = obstore.get(client, key, options=options)
        return result.bytes().to_bytes(), result.meta


def version_of(meta: Any, data: bytes) -> str:
    """Return ETag and generation, as JSON, as far as the service tells them; a digest where it tells none."""
    told = {name: meta[name] for name in ("e_tag", "version") if meta[name]}
    return json.dumps(told) if told else digest(data)


def etag_from(version: str) -> str:
    """Return the ETag in what `version_of` returned, as responses and listings alike spell it; else the digest.

    Examples
    --------
    >>> etag_from('{"e_tag": "0x8D", "version": "7"}'), etag_from("digest")
    ('0x8D', 'digest')
    """
    told = json.loads(version) if version.startswith("{") else {}
    return str(told.get("e_tag") or version).removeprefix("W/").strip('"')


def _may_be_outside(error: BaseException) -> bool:
    """Return whether an error may mean that there are no such bytes: each service says so in other words."""
    return any(words in str(error) for words in _OUTSIDE)


_OUTSIDE = ("416", "Invalid range", "Wanted range", "Range started at", "non-partial", "suffix")
