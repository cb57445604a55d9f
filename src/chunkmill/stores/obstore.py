"""Store over obstore: S3, Google Cloud Storage, Azure, and web servers to read.

Requests run in Rust, outside the GIL; each waits in a thread of a pool that the process shares. Large values are read
by several requests at once, all of one version. Values are compared by ETag or generation, on all three services. Urls
are translated by `chunkmill.stores.obstore_clients`.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import fsspec.utils
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

from chunkmill.config import setting
from chunkmill.errors import StoreError
from chunkmill.stores.base import (
    READ_ONLY,
    ByteRange,
    HeldInMemory,
    PlacedStore,
    Store,
    check_key,
    check_prefix,
    digest,
    range_bounds,
)
from chunkmill.stores.conflicts import compares_versions, create_again, is_unsupported
from chunkmill.stores.obstore_clients import (
    FORKED,
    PIECE,
    Location,
    condition_of,
    etag_from,
    is_container_missing,
    kind_and_url,
    lacking,
    limit,
    may_be_outside,
    open_client,
    pieces,
    process_of_threads,
    reason_of,
)
from chunkmill.stores.read_ahead import ReadsAhead

Fetched = tuple[bytes, str]


def fetch(client: Any, kind: str, key: str, wanted: ByteRange | None, *, url: str, inside: bool = False) -> Fetched:
    """Return bytes and version.

    Parameters
    ----------
    kind
        Of service: they differ in which ranges they know.
    url
        Of the store: what errors name.
    inside
        Whether the range is known to be in the value: a server that refuses it knows no ranges.
    """
    if wanted is None:
        return _fetch_whole(client, kind, key)
    start, length = wanted.start, wanted.length
    # Azure has no suffixes, and objects of others may answer what is past the end by nothing
    if length == 0 or (start < 0 and (length is not None or kind == "az")) or (length is None and kind == "obspec"):
        return _fetch_inside(client, kind, key, wanted, url)
    asked: Any = {"suffix": -start} if start < 0 else {"offset": start}
    if length is not None:
        asked = (start, start + (length if kind == "obspec" else min(length, PIECE)))
    try:
        most = None if kind != "http" else -start if start < 0 else length
        data, meta = _get(client, key, asked, most=most)
    except NotSupportedError as error:
        return _range_of_whole(client, key, wanted, url=url, cause=error)
    except BaseError as error:
        if inside or isinstance(error, PreconditionError) or not may_be_outside(error):
            raise
        return _fetch_inside(client, kind, key, wanted, url)
    if length is not None and length > PIECE and start + length <= meta["size"]:
        data = _with_rest(client, key, data, start, start + length, meta=meta)
    if length is not None and len(data) != length:
        range_bounds(wanted, meta["size"], url=url, key=key)
        reason = f"expected {length} bytes from {start}, got {len(data)}: the response is truncated"
        raise StoreError(url=url, key=key, reason=reason)
    return data, version_of(meta, data)


def _fetch_whole(client: Any, kind: str, key: str) -> Fetched:
    if kind in {"memory", "http", "obspec"}:
        data, meta = _get(client, key, None)
        return data, version_of(meta, data)
    try:
        data, meta = _get(client, key, (0, PIECE))
    except BaseError as error:
        if not may_be_outside(error):
            raise
        data, meta = _get(client, key, None)  # it is empty, or not stored as it is sent
    if meta["size"] > len(data):
        data = _with_rest(client, key, data, 0, meta["size"], meta=meta)
    return data, version_of(meta, data)


def _meta(client: Any, kind: str, key: str) -> Any:
    """Return size and version of a value; of a web server by a GET, since not all answer a HEAD, or rightly."""
    if kind != "http":
        return client.head(key) if hasattr(client, "head") else client.get(key).meta
    with limit():
        try:
            return client.get(key, options={"range": (0, 1)}).meta
        except BaseError:  # it is empty, or the server knows no ranges
            return client.get(key).meta


def _range_of_whole(client: Any, key: str, wanted: ByteRange, *, url: str, cause: BaseException) -> Fetched:
    """Cut a range out of the value, where a web server knows no ranges and the value is small."""
    with limit():
        result = client.get(key)
        if result.meta["size"] > _MAX_IGNORED:
            reason = "the server does not support range requests: serve the files with one that does, or copy them"
            raise StoreError(url=url, key=key, reason=reason) from cause
        data, meta = bytes(result.buffer()), result.meta
    start, stop = range_bounds(wanted, len(data), url=url, key=key)
    return data[start:stop], version_of(meta, data)


def _fetch_inside(client: Any, kind: str, key: str, wanted: ByteRange, url: str) -> Fetched:
    """Read a range after asking for the size: one that the service refused, or cannot be asked for."""
    meta = _meta(client, kind, key)
    start, stop = range_bounds(wanted, meta["size"], url=url, key=key)
    if start == stop:
        return b"", version_of(meta, b"")
    return fetch(client, kind, key, ByteRange(start, stop - start), url=url, inside=True)


def _with_rest(client: Any, key: str, first: bytes, start: int, stop: int, *, meta: Any) -> bytes:
    """Return a range that begins with `first`; `PreconditionError` when the value was replaced in between."""
    match = {"if_match": meta["e_tag"]} if meta["e_tag"] else {}

    def get(begin: int) -> bytes:
        return _get(client, key, (begin, min(begin + PIECE, stop)), match)[0]

    futures = [pieces().submit(get, begin) for begin in range(start + len(first), stop, PIECE)]
    try:
        return b"".join([first, *(future.result() for future in futures)])
    finally:
        for future in futures:
            future.cancel()


def _get(client: Any, key: str, byte_range: Any, match: Any = None, *, most: int | None = None) -> tuple[bytes, Any]:
    """Return bytes and metadata; at most as many bytes as `most`, from servers that send what they like."""
    options: Any = {**(match or {}), **({} if byte_range is None else {"range": byte_range})}
    with limit():
        result = client.get(key, options=options)
        if most is None:
            return bytes(result.buffer()), result.meta
        received = bytearray()
        for part in result.stream(min_chunk_size=1 << 16):
            received += memoryview(part)
            if len(received) > most:
                raise OSError(f"the server sends more than the {most} bytes that were asked for")
        return bytes(received), result.meta


def version_of(meta: Any, data: bytes) -> str:
    """Return ETag and generation, as JSON, as far as the service tells them; a digest where it tells none."""
    known = {name: meta[name] for name in ("e_tag", "version") if meta[name]}
    return json.dumps(known) if known else digest(data)


_MAX_IGNORED = 16 * 2**20  # of a value that is read as a whole for a range of it


_ATTEMPTS = 10  # at reading a large value that others replace while it is read
_PAGE = 1000  # keys of a listing, or deleted by one call

T = TypeVar("T")


class ObstoreStore(ReadsAhead, HeldInMemory, PlacedStore):
    """The keys below a prefix of a bucket, or below one of obstore's own store objects.

    Parameters
    ----------
    place
        A `Location`, or an ``S3Store``, ``GCSStore``, ``AzureStore`` or ``MemoryStore`` of obstore.

    Notes
    -----
    `set_if` is atomic for writing (If-Match, If-None-Match, generations). Deleting has no condition: a version is
    compared, then the key deleted, so that `deletes_conditionally` is false. Values above 8 MiB are read in parallel
    ranges of one version, and written by multipart uploads.

    Examples
    --------
    >>> from obstore.store import MemoryStore
    >>> store = ObstoreStore(MemoryStore())
    >>> store.set("a/c/0", b"0123456789")
    >>> store.get("a/c/0", ByteRange(-3)), store.get("a/c/1"), store.list_dir("a/")
    (b'789', None, ['c/'])
    """

    deletes_conditionally = False

    def __init__(self, place: Location | Any) -> None:
        self._place = place
        self._kind, self.url = kind_and_url(place)
        self.is_remote = self._kind != "memory"
        self.can_list = self.has_versions = self._kind != "http"  # those of listings, and of each value
        self._client: Any = None

    def __getstate__(self) -> dict[str, Any]:
        elsewhere = {"_place": None, "home": "of the object"} if self._kind == "memory" else {}
        return self.__dict__ | {"_client": None} | elsewhere

    def identity(self) -> tuple[str, str, str]:
        """Return the url, and a digest of the options, which hold secrets."""
        return "chunkmill.ObstoreStore", self.url, fsspec.utils.tokenize(self._config())

    def _config(self) -> dict[str, Any]:
        return dict(getattr(self._place, "config", None) or {})

    @property
    def compares_versions(self) -> bool:
        """True when `set_if` is atomic against all others: found out once a process and bucket, by a scratch key."""
        if self._kind in {"memory", "http", "obspec"}:
            return self._kind == "memory"
        return compares_versions(self, f"{'/'.join(self.url.split('/')[:3])} {self._config().get('endpoint', '')}")

    # --- reading

    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it: one request, or several at once where it is large."""
        found = self._fetch(check_key(key), byte_range)
        return None if found is None else found[0]

    def _noted(self, key: str, byte_range: ByteRange | None) -> tuple[bytes | None, str | None]:
        found = self._fetch(check_key(key), byte_range)
        return (None, None) if found is None else (found[0], etag_from(found[1]))

    def version(self, key: str) -> str | None:
        """Return the ETag of a value."""
        found = self._call(check_key(key), lambda: self._open().head(key))
        return None if found is None else etag_from(version_of(found, b""))

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str]] | None:
        """Yield every key that starts with `prefix`, with its ETag."""
        return ((meta["path"], etag_from(version_of(meta, b""))) for page in self._listed(prefix) for meta in page)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version: ETag and generation, or a digest."""
        return self._fetch(check_key(key), None) or (None, None)

    def _fetch(self, key: str, wanted: ByteRange | None) -> Fetched | None:
        for _ in range(_ATTEMPTS):
            try:
                return self._call(key, lambda: fetch(self._open(), self._kind, key, wanted, url=self.url))
            except StoreError as error:
                if not isinstance(error.__cause__, PreconditionError):
                    raise
        reason = f"it was replaced {_ATTEMPTS} times while it was read, in several requests since it is large"
        raise StoreError(url=self.url, key=key, reason=reason)

    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes, without fetching it."""
        check_key(key)
        return self._call(key, lambda: int(_meta(self._open(), self._kind, key)["size"]))

    # --- writing

    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value in one request, or in parts of 8 MiB at once."""
        self._check_writable(key)
        data = self._sendable(value)
        stored = self._call(key, lambda: bool(self._open().put(key, data, chunk_size=PIECE)))
        if stored is None:
            raise StoreError(url=self.url, key=key, reason="cannot write: the place does not exist")

    def _check_writable(self, key: str) -> None:
        check_key(key)
        if self._kind == "http":
            raise StoreError(url=self.url, key=key, reason=READ_ONLY)

    def _sendable(self, value: bytes | bytearray | memoryview) -> bytes | memoryview:
        """Return what obstore sends as it is: a copy takes a tenth of storing 256 KiB. Memory keeps what it gets."""
        whole = memoryview(value)
        is_kept = self._kind in {"memory", "obspec"}
        return bytes(value) if is_kept or not (whole.nbytes and whole.c_contiguous) else whole.cast("B")

    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store (or delete, which has no condition) if the key still has `version`.

        False also where a response was lost, and the client, which asks again, has met its own write: it is known by
        its value (`chunkmill.stores.conflicts`).
        """
        self._check_writable(key)
        # of servers other than Amazon's some know no conditions
        if value is None or (self._kind == "s3" and self._config().get("endpoint") and not self.compares_versions):
            return Store.set_if(self, key, value, version)
        data = self._sendable(value)

        def put() -> bool:
            return self._put_if(self._open(), key, data, version)

        if put():
            return True
        return version is None and create_again(self, key, put, float(setting("retry-seconds")))

    def set_by_condition(self, key: str, value: bytes, version: str | None) -> bool:
        """Store `value` if the key still has `version`, in one request where the client is ours."""
        if isinstance(self._place, Location):
            try:
                return self._put_if(open_client(self._place, repeats=False), key, value, version)
            except StoreError as error:
                if is_unsupported(error):
                    raise  # what failed otherwise may pass
        return self._put_if(self._open(), key, value, version)

    def _put_if(self, client: Any, key: str, data: bytes | memoryview, version: str | None) -> bool:
        if (mode := condition_of(version)) is None:
            return False

        def put() -> bool:
            try:
                client.put(key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        return bool(self._call(key, put))

    def delete(self, key: str) -> None:
        """Delete a key."""
        self._check_writable(key)
        self._call(key, lambda: self._open().delete(key))

    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`, many at a time."""
        self._check_writable(check_prefix(prefix).rstrip("/") or "any")
        for page in self._listed(prefix):
            self.delete_many([meta["path"] for meta in page])

    def delete_many(self, keys: Sequence[str]) -> None:
        """Delete keys, many at a time, of which others may delete some; obstore makes a request for each."""
        for start in range(0, len(keys), _PAGE):
            page = list(keys[start : start + _PAGE])
            if not self._call(page[0], functools.partial(self._deleted, page)):  # others delete too
                for key in page:
                    self.delete(key)

    def _deleted(self, keys: list[str]) -> bool:
        self._open().delete(keys)
        return True

    # --- listing

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        return (meta["path"] for page in self._listed(prefix) for meta in page)

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int | None]]:
        """Yield every key that starts with `prefix`, with its size."""
        return ((meta["path"], int(meta["size"])) for page in self._listed(prefix) for meta in page)

    def _listed(self, prefix: str) -> Iterator[list[Any]]:
        self.check_listed(prefix)
        options = {} if self._kind == "obspec" else {"chunk_size": _PAGE}
        pages = self._call(prefix, lambda: iter(self._open().list(prefix or None, **options)))
        while (page := self._call(prefix, lambda: next(pages, None))) is not None:  # type: ignore[arg-type]
            yield [meta for meta in page if meta["path"].startswith(prefix)]

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`; `StoreError` of web servers."""
        self.check_listed(prefix)
        found = self._call(prefix, lambda: self._open().list_with_delimiter(prefix or None))
        if found is None:
            return []
        names = {path.rstrip("/") + "/" for path in found["common_prefixes"]}
        names |= {meta["path"] for meta in found["objects"]}
        return sorted(name[len(prefix) :] for name in names if name.startswith(prefix) and name != prefix)

    # --- obstore

    def _open(self) -> Any:
        self.check_home()
        if process_of_threads() != os.getpid():
            raise StoreError(url=self.url, key="", reason=FORKED)
        if self._client is None:
            self._client = open_client(self._place) if isinstance(self._place, Location) else self._place
        return self._client

    def _call(self, key: str, function: Callable[[], T]) -> T | None:
        """Call obstore; return ``None`` where the key is absent."""
        try:
            return function()
        except StoreError:
            raise
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not is_container_missing(error):
                return None
            raise self.failed(key, reason_of(error), error) from error


class ObspecStore(ObstoreStore):
    """The keys of any object with the methods of obspec: ``get`` and ``list``; to write, ``put`` and ``delete``.

    Nothing is known of how it compares versions: `set_if` compares before it writes, and is atomic against nobody but
    callers that hold the same lock. It pickles as the object does, which must reach the same values from elsewhere.

    Examples
    --------
    >>> from obstore.store import MemoryStore
    >>> store = ObspecStore(MemoryStore())
    >>> store.set("a/c/0", b"0123456789")
    >>> store.get("a/c/0", ByteRange(-3)), store.get("a/c/1"), store.list_dir("a/")
    (b'789', None, ['c/'])
    """

    _noted, version, list_versions = Store._noted, Store.version, Store.list_versions  # noqa: SLF001
    set_if = Store.set_if

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self._kind, self.url = "obspec", f"obspec://{type(place).__name__}-{id(place):x}"
        self.is_remote, self.has_versions = True, False

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        return (Store if lacking(self._place, ["list_with_delimiter"]) else ObstoreStore).list_dir(self, prefix)
