"""Store over obstore: S3, Google Cloud Storage and Azure with half the CPU time of fsspec's filesystems.

Requests run in Rust, outside the GIL; each waits in a thread of a pool that the process shares. Values are compared by
ETag or generation, on all three services. Urls come here by `chunkmill.stores.obstore_options`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

import fsspec.utils
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from chunkmill.errors import StoreError
from chunkmill.stores.base import OTHER_MEMORY, ByteRange, ByteSpan, check_key, check_prefix
from chunkmill.stores.fsspec import FsspecStore
from chunkmill.stores.obstore_clients import kind_and_url, open_client
from chunkmill.stores.obstore_errors import is_container_missing, reason_of
from chunkmill.stores.obstore_fetch import PIECE, RUNTIME, Fetched, etag_from, fetch, part_size, pieces, version_of
from chunkmill.stores.obstore_options import Location
from chunkmill.stores.probe import compares_versions
from chunkmill.stores.read_ahead import get_ahead
from chunkmill.stores.read_versions import Note

__all__ = ["ObstoreStore"]

_ATTEMPTS = 10  # at reading a large value that others replace meanwhile
PUTS = 4  # pieces of a copy under way, besides those that are read
_PAGE = 1000  # keys of a listing, or deleted together
_WRITE_ID = "chunkmillwrite"
"""Metadata of conditional writes: whose one was whose response was lost. Letters alone: Azure takes no dashes."""

P = ParamSpec("P")
T = TypeVar("T")


def _where_it_works(
    method: Callable[Concatenate[ObstoreStore, P], T],
) -> Callable[Concatenate[ObstoreStore, P], T]:
    """Answer by fsspec in a process that was forked after obstore's threads began: it would wait for them forever.

    Also all but the reading of values over HTTP: obstore lists by WebDAV alone, asks for sizes by HEAD, which not all
    servers answer, and writes without comparing anything.
    """
    reads_values = method.__name__ in {"get", "get_many"}

    @functools.wraps(method)
    def call(self: ObstoreStore, *args: P.args, **kwargs: P.kwargs) -> T:
        is_fork = RUNTIME.pid not in {None, os.getpid()}
        if is_fork or (self._is_web and not reads_values):
            return getattr(self._without_obstore(), method.__name__)(*args, **kwargs)  # type: ignore[no-any-return]
        return method(self, *args, **kwargs)

    return call  # type: ignore[return-value]


class ObstoreStore:
    """The keys below a prefix of a bucket, or below one of obstore's own store objects.

    Parameters
    ----------
    place
        A `Location`, or an ``S3Store``, ``GCSStore``, ``AzureStore``, ``HTTPStore`` or ``MemoryStore`` of obstore.
    fallback
        Url and storage options for fsspec: in processes that were forked after obstore was used, and for what web
        servers do in other ways than obstore expects.

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

    replaces_atomically = True
    deletes_conditionally = False

    def __init__(self, place: Location | Any, fallback: tuple[str, Mapping[str, Any] | None] | None = None) -> None:
        self._place = place
        self._fallback = fallback
        self._kind, self.url = kind_and_url(place)
        self.is_remote = self._kind != "memory"
        self.can_list = self._kind != "http"
        self._is_web = self._kind == "http" and fallback is not None
        self._is_elsewhere = False  # memory, of the process that pickled this
        self._client: tuple[int, Any] | None = None
        self._forked: FsspecStore | None = None

    def __getstate__(self) -> dict[str, Any]:
        place = None if self._kind == "memory" else self._place
        return self.__dict__ | {"_client": None, "_forked": None, "_place": place, "_is_elsewhere": place is None}

    def __repr__(self) -> str:
        return f"ObstoreStore({self.url!r})"  # not the options: they hold secrets

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObstoreStore) and (other.url, other._config()) == (self.url, self._config())

    def __hash__(self) -> int:
        return hash(self.url)

    def __dask_tokenize__(self) -> tuple[str, str, str]:
        return "chunkmill.ObstoreStore", self.url, fsspec.utils.tokenize(self._config())

    def _config(self) -> dict[str, Any]:
        return dict(getattr(self._place, "config", None) or {})

    @property
    def compares_versions(self) -> bool:
        """True when `set_if` is atomic against all others: found out once a process and bucket, by a scratch key."""
        if self._kind in {"memory", "http"}:
            return self._kind == "memory"
        bucket = "/".join(self.url.split("/")[:3])
        return compares_versions(self, f"{bucket} {self._config().get('endpoint', '')}")

    # --- reading

    @_where_it_works
    def get(self, key: str, byte_range: ByteRange | None = None) -> bytes | None:
        """Return a value, or a range of it: one request, or several at once where it is large."""
        check_key(key)
        found = self._fetch(key, byte_range)
        return None if found is None else found[0]

    @_where_it_works
    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order, with the requests of the next ones under way."""
        if not self.is_remote:
            return (None if span is None else self.get(span.key, span.byte_range) for span in spans)
        return self.get_many_noting(spans, None)

    def get_many_noting(self, spans: Iterable[ByteSpan | None], note: Note | None) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order, and note ETags."""
        pool = RUNTIME.pool("requests")

        def begin(span: ByteSpan, exact: bool) -> Future[bytes | None]:
            return pool.submit(self._get, span.key, span.byte_range, exact, note)

        return get_ahead(spans, begin, lambda _, future: future.result(), url=self.url)

    def get_noting(self, key: str, byte_range: ByteRange | None, note: Note) -> bytes | None:
        """Return a value, or a range of it, and note its ETag."""
        return self._get(check_key(key), byte_range, True, note)

    def _get(self, key: str, wanted: ByteRange | None, exact: bool, note: Note | None) -> bytes | None:
        found = self._fetch(key, wanted, exact=exact)
        if found is not None and note is not None:
            note(key, etag_from(found[1]))
        return None if found is None else found[0]

    @property
    def has_versions(self) -> bool:
        """True where the service gives ETags with each value, and in its listings."""
        return self._kind in {"s3", "gs", "az", "memory"} and RUNTIME.pid in {None, os.getpid()}

    def version(self, key: str) -> str | None:
        """Return the ETag of a value."""
        found = self._call(check_key(key), lambda: obstore.head(self._open(), key))
        return None if found is None else etag_from(version_of(found, b""))

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield every key that starts with `prefix`, with its ETag."""
        return ((meta["path"], etag_from(version_of(meta, b""))) for page in self._listed(prefix) for meta in page)

    @_where_it_works
    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value and its version: ETag and generation, or a digest."""
        check_key(key)
        return self._fetch(key, None) or (None, None)

    def _fetch(self, key: str, wanted: ByteRange | None, *, exact: bool = True) -> Fetched | None:
        for _ in range(_ATTEMPTS):
            try:
                return self._call(key, lambda: fetch(self._open(), self._kind, key, wanted, exact=exact, url=self.url))
            except StoreError as error:
                if self._is_web:  # without ranges or lengths, by other errors than 404: all that fsspec's store knows
                    data = self._without_obstore().get(key, wanted)
                    return None if data is None else (data, "")
                if not isinstance(error.__cause__, PreconditionError):
                    raise
        reason = f"it was replaced {_ATTEMPTS} times while it was read, in several requests since it is large"
        raise StoreError(url=self.url, key=key, reason=reason)

    @_where_it_works
    def size(self, key: str) -> int | None:
        """Return the size of a value in bytes, without fetching it."""
        check_key(key)
        return self._call(key, lambda: int(obstore.head(self._open(), key)["size"]))

    # --- writing

    @_where_it_works
    def set(self, key: str, value: bytes | bytearray | memoryview) -> None:
        """Store a value in one request, or in parts of 8 MiB at once."""
        check_key(key)
        data = self._sendable(value)
        stored = self._call(key, lambda: bool(obstore.put(self._open(), key, data, chunk_size=PIECE)))
        if stored is None:
            raise StoreError(url=self.url, key=key, reason="cannot write: the place does not exist")

    def _sendable(self, value: bytes | bytearray | memoryview) -> bytes | memoryview:
        """Return what obstore sends as it is: a copy takes a tenth of storing 256 KiB. Memory keeps what it gets."""
        whole = memoryview(value)
        return whole.cast("B") if self.is_remote and whole.nbytes and whole.c_contiguous else bytes(value)

    @_where_it_works
    def set_if(self, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
        """Store (or delete, which has no condition) if the key still has `version`."""
        check_key(key)
        if value is None:
            return self._delete_if(key, version)
        if (mode := _condition(version)) is None:
            return False
        data = self._sendable(value)
        write_id = uuid4().hex
        own: Any = {"attributes": {_WRITE_ID: write_id}}

        def put() -> bool:
            try:
                obstore.put(self._open(), key, data, mode=mode, use_multipart=False, **own)
            except (AlreadyExistsError, PreconditionError):
                return self._is_own(key, write_id)
            return True

        return bool(self._call(key, put))

    def _is_own(self, key: str, write_id: str) -> bool:
        """Return whether a refused write met its own first try, whose response was lost."""
        try:
            found = obstore.get(self._open(), key).attributes
        except (FileNotFoundError, BaseError):
            return False
        return {str(name).lower(): value for name, value in found.items()}.get(_WRITE_ID) == write_id

    def _delete_if(self, key: str, version: str | None) -> bool:
        found = self._call(key, lambda: obstore.head(self._open(), key))
        if (None if found is None else version_of(found, b"")) != version:
            return False
        if version is not None:
            self.delete(key)
        return True

    @_where_it_works
    def copy(self, source: str, target: str) -> None:
        """Store the value of a key under another one: on the server, but for Azure, which may answer before it is."""
        check_key(source), check_key(target)
        if self._kind != "az":
            with contextlib.suppress(BaseError, OSError):  # S3 copies 5 GiB at most, and some servers nothing
                obstore.copy(self._open(), source, target)
                return
        try:
            copied = self._call(source, lambda: self._copy_pieces(source, target))
        except StoreError as error:
            if not isinstance(error.__cause__, PreconditionError):
                raise
            raise StoreError(url=self.url, key=source, reason="it was replaced while it was copied") from error
        if copied is None:
            raise StoreError(url=self.url, key=source, reason="it was deleted before it could be copied")

    def _copy_pieces(self, source: str, target: str) -> bool:
        """Copy a value through this process, which holds some pieces of it at a time."""
        client = self._open()
        meta = obstore.head(client, source)
        if meta["size"] <= PIECE:
            data = fetch(client, self._kind, source, None, exact=True, url=self.url)[0]
            obstore.put(client, target, data, use_multipart=False)
        else:
            size = part_size(meta["size"])
            obstore.put(client, target, pieces(client, source, meta, size), chunk_size=size, max_concurrency=PUTS)
        return True

    @_where_it_works
    def delete(self, key: str) -> None:
        """Delete a key."""
        check_key(key)
        self._call(key, lambda: obstore.delete(self._open(), key))

    @_where_it_works
    def delete_prefix(self, prefix: str) -> None:
        """Delete every key that starts with `prefix`, many a request."""
        for keys in self._pages(prefix):
            self.delete_many([key for key, _ in keys])

    @_where_it_works
    def delete_many(self, keys: list[str]) -> None:
        """Delete keys, many a request; those that others have deleted are passed over."""
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            self._call(page[0], functools.partial(self._delete_all, page))

    def _delete_all(self, keys: list[str]) -> None:
        try:
            obstore.delete(self._open(), keys)
        except FileNotFoundError:  # others delete too
            for key in keys:
                self._call(key, functools.partial(obstore.delete, self._open(), key))

    # --- listing

    @_where_it_works
    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        return (key for page in self._pages(prefix) for key, _ in page)

    @_where_it_works
    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int | None]]:
        """Yield every key that starts with `prefix`, with its size."""
        return (found for page in self._pages(prefix) for found in page)

    def _pages(self, prefix: str) -> Iterator[list[tuple[str, int | None]]]:
        return ([(meta["path"], int(meta["size"])) for meta in page] for page in self._listed(prefix))

    def _listed(self, prefix: str) -> Iterator[list[Any]]:
        check_prefix(prefix)
        pages = self._call(prefix, lambda: iter(obstore.list(self._open(), prefix or None, chunk_size=_PAGE)))
        while page := self._call(prefix, lambda: next(pages, None)):  # type: ignore[arg-type]
            yield [meta for meta in page if meta["path"].startswith(prefix)]

    @_where_it_works
    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        check_prefix(prefix)
        found = self._call(prefix, lambda: obstore.list_with_delimiter(self._open(), prefix or None))
        if found is None:
            return []
        names = {path.rstrip("/") + "/" for path in found["common_prefixes"]}
        names |= {meta["path"] for meta in found["objects"]}
        return sorted(name[len(prefix) :] for name in names if name.startswith(prefix) and name != prefix)

    # --- obstore

    def _open(self) -> Any:
        if self._is_elsewhere:
            raise StoreError(url=self.url, key="", reason=OTHER_MEMORY)
        if self._client is None or self._client[0] != os.getpid():
            RUNTIME.pid = os.getpid()
            client = open_client(self._place) if isinstance(self._place, Location) else self._place
            self._client = os.getpid(), client
        return self._client[1]

    def _without_obstore(self) -> FsspecStore:
        if self._fallback is None:
            reason = "obstore does not work in a process that was forked after its first use: start workers by spawn"
            raise StoreError(url=self.url, key="", reason=reason)
        if self._forked is None:
            self._forked = FsspecStore(*self._fallback)
        return self._forked

    def _call(self, key: str, function: Callable[[], T]) -> T | None:
        """Call obstore; return ``None`` where the key is absent."""
        try:
            return function()
        except StoreError:
            raise
        except FileNotFoundError as error:
            if is_container_missing(error):
                raise self._failed(key, error) from error
            return None
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(key, error) from error

    def _failed(self, key: str, error: BaseException) -> StoreError:
        failed = StoreError(url=self.url, key=key, reason=reason_of(error))
        failed.errno = getattr(error, "errno", None)
        return failed


def _condition(version: str | None) -> Any:
    """Return obstore's mode of a write; ``None`` for what is not a version of this store."""
    if version is None:
        return "create"
    try:
        told = json.loads(version)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None
