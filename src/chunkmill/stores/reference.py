"""Store over a reference set: values come from bytes in the set, or from ranges of its targets.

Read-only. No event loop of its own, no ReferenceFileSystem: targets are ordinary stores, so that one set may mix local
files, S3 and HTTP. A url is cut into a root that many targets share (a bucket, a host, the local disk) and a key below
it, so that one store, with its connections and its limit of concurrent requests, serves them all. A set from elsewhere
opens what its place allows, and no path leads out of its folder (P13). Not here: parsing sets (`chunkmill.formats`).
"""

from __future__ import annotations

import itertools
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, unquote

from chunkmill.errors import StoreError
from chunkmill.model.references import Reference, References, ReferenceSet
from chunkmill.stores.base import (
    ByteRange,
    ByteSpan,
    GetsMany,
    PlacedStore,
    ReadOnly,
    Store,
    check_key,
    check_prefix,
    range_bounds,
)
from chunkmill.stores.open import open_store
from chunkmill.stores.places import protocols_of

_WINDOW = 512  # spans looked up before their bytes are asked for


class ReferenceStore(ReadOnly, GetsMany, PlacedStore):
    """The keys of a reference set.

    A key is absent only when the set does not have it. A target that is missing, too short, or that may not be opened
    raises `StoreError` naming url, offset and length.

    It pickles to what opens the set again, where that was read from a file; with the set where it was made in memory.

    Parameters
    ----------
    references
        The set.
    targets
        How its urls are opened; by default as a set at `url` may.
    url
        Of the set: what errors name.

    Examples
    --------
    >>> from chunkmill.model.reference_builder import ReferenceBuilder
    >>> builder = ReferenceBuilder()
    >>> builder.add_data("x/0", b"0123456789")
    >>> store = ReferenceStore(builder.build())
    >>> store.get("x/0", ByteRange(-3)), store.get("x/1"), store.list_dir("")
    (b'789', None, ['x/'])
    """

    replaces_atomically = False  # read-only
    locates_values = True
    read_only_reason = (
        "reference sets are read-only: convert to a store of its own, or write a new set by to_references"
    )
    references: References
    targets: Targets

    def __init__(self, references: References, targets: Targets | None = None, *, url: str = "") -> None:
        self.references = references
        self.targets = Targets(url) if targets is None else targets
        self.url = url or "reference://"
        # of a lazy set the targets are not known; several at once cost local files nothing
        self.is_remote = not isinstance(references, ReferenceSet) or self.targets.is_remote(references.urls)

    def identity(self) -> tuple[str | None, ...]:
        """Return what the set says, and how its urls are meant."""
        return "chunkmill.ReferenceStore", self.url, self.references.fingerprint, *self.targets.identity

    def locate(self, key: str) -> Reference | None:
        """Return where the bytes of a value are, by a url that means the same in another set, or the bytes."""
        reference = self.references.locate(check_key(key))
        if reference is None or reference.data is not None:
            return reference
        return replace(reference, url=self.targets.resolve(reference.url))

    # --- reading

    def get_many(self, spans: Iterable[ByteSpan | None]) -> Iterator[bytes | None]:
        """Yield the bytes of each span in order.

        Requests to one host or bucket run at once, neighbouring ranges of one target in one request, as the target's
        store does it.
        """
        todo = iter(spans)
        while window := list(itertools.islice(todo, _WINDOW)):
            yield from self._get_window(window)

    def _get_window(self, spans: list[ByteSpan | None]) -> Iterator[bytes | None]:
        plan = [None if span is None else self._planned(span) for span in spans]
        wanted: dict[str, list[ByteSpan]] = {}
        for item in plan:
            if isinstance(item, tuple):
                wanted.setdefault(item[2], []).append(item[3])
        fetched: dict[str, Iterator[bytes | None]] = {}
        for item in plan:
            if not isinstance(item, tuple):
                yield item
                continue
            key, reference, root, span = item
            try:
                if root not in fetched:
                    fetched[root] = self.targets.store(root).get_many(wanted[root])
                data = next(fetched[root])
            except OSError as error:
                self._fail(key, reference, str(error), error)
            yield self._checked(key, reference, span, data)

    def _planned(self, span: ByteSpan) -> bytes | tuple[str, Reference, str, ByteSpan] | None:
        reference = self.references.locate(check_key(span.key))
        if reference is None:
            return None
        if reference.data is not None:
            return self.cut(span.key, reference.data, span.byte_range)
        root, target = self._target(span.key, reference, span.byte_range)
        is_empty = target.byte_range is not None and target.byte_range.length == 0
        return b"" if is_empty else (span.key, reference, root, target)

    def _target(self, key: str, reference: Reference, byte_range: ByteRange | None) -> tuple[str, ByteSpan]:
        """Return which bytes of which store answer a range of a reference."""
        try:
            root, target_key = self.targets.split(reference.url)
        except StoreError as error:
            self._fail(key, reference, error.reason, error)
        if reference.length is None:
            return root, ByteSpan(target_key, byte_range)
        start, length = reference.offset, reference.length
        if byte_range is not None:
            first, stop = range_bounds(byte_range, length, url=self.url, key=key)
            start, length = start + first, stop - first
        return root, ByteSpan(target_key, ByteRange(start, length))

    def _checked(self, key: str, reference: Reference, span: ByteSpan, data: bytes | None) -> bytes:
        if data is None:  # never None to the caller: that would read as fill value
            self._fail(key, reference, "there is no such target")
        wanted = span.byte_range
        if wanted is not None and wanted.start >= 0 and wanted.length not in {None, len(data)}:
            self._fail(key, reference, f"got {len(data)} bytes")
        return data

    def _fail(self, key: str, reference: Reference, reason: str, cause: BaseException | None = None) -> NoReturn:
        length = "all" if reference.length is None else reference.length
        where = f"{length} bytes at offset {reference.offset} of {self._shown(reference.url)}"
        raise self.failed(key, f"cannot read {where}: {reason}", cause) from cause

    def _shown(self, url: str | None) -> str:
        """Return a target as the set spells it, and what that means here."""
        try:
            resolved = self.targets.resolve(url)
        except StoreError:
            resolved = url or ""
        return repr(url) if resolved == url else f"{url!r}, here {resolved!r}"

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        """Return a value, and as its version the set's digest: the set itself does not change."""
        data = self.get(key)
        return data, None if data is None else self.references.fingerprint

    def size(self, key: str) -> int | None:
        """Return the size of a value; of a whole target it costs a request."""
        reference = self.references.locate(check_key(key))
        if reference is None or reference.data is not None:
            return None if reference is None or reference.data is None else len(reference.data)
        if reference.length is not None:
            return reference.length
        root, span = self._target(key, reference, None)
        try:
            size = self.targets.store(root).size(span.key)
        except OSError as error:
            self._fail(key, reference, str(error), error)
        if size is None:
            self._fail(key, reference, "there is no such target")
        return size

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield every key that starts with `prefix`."""
        return self.references.keys(check_prefix(prefix))

    def list_dir(self, prefix: str) -> list[str]:
        """Return the sorted names directly below `prefix`."""
        return self.references.list_dir(check_prefix(prefix))


ALL_PROTOCOLS = "*"
"""Among the allowed protocols: any."""

_LOCAL = frozenset({"file", "memory"})
# what a set from the network may name by default: services that answer anyone, or credentials of their own, and
# filesystems that only open what another link of the chain names. Not sftp, smb, git, dask, …: they reach into
# networks and machines that the author of the set has no business in
_REMOTE = frozenset(
    {"abfs", "adl", "data", "gs", "hf", "http", "https", "oci", "oss", "s3", "wasb"}
    | {"blockcache", "cached", "filecache", "simplecache", "tar", "zip"}
)
_ALIASES = {"local": "file", "s3a": "s3", "s3n": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs", "wasbs": "wasb"}
# their options may serve a set and its targets alike: credentials are not sent, or only to the one service
_SHARED = frozenset({"s3", "gs", "abfs", "adl", "oci", "oss"})


class Targets:
    """Opens targets: their protocols' options, and which protocols are allowed.

    Parameters
    ----------
    source
        Url of the reference set; what is allowed by default depends on its place. A set on the local disk (or in
        memory) may point anywhere. A set from the network may point to the network's common services and to its own
        protocol, and not to local files.
    remote_protocol
        Protocol of urls that name none; `remote_options` may then be the options of that protocol themselves.
    remote_options
        By protocol, the options of the filesystems that hold the targets.
    base
        What relative paths are relative to: a path or a url. By default the folder of the set, then the working
        directory, whichever has the first file that is asked for; a set from the network has its folder alone.
    allowed_protocols
        Replaces what is allowed by default; ``"*"`` among them: everything.
    target
        Url that ``[null, offset, length]`` stands for.
    set_options
        Options of the filesystem that holds the set itself. Object stores of the same protocol are opened with them
        unless `remote_options` says otherwise; web servers are not, since headers may carry secrets.
    is_folder
        Whether `source` is a folder, as sets in parquet are.

    Examples
    --------
    >>> Targets("/data/refs.json", base="/data").split("a/b.nc")
    ('file:///', 'data/a/b.nc')
    >>> Targets("s3://bucket/refs.json").split("https://host/x/a%20b.nc?token=1")
    ('https://host?token=1', 'x/a b.nc')
    >>> Targets("s3://bucket/x/refs.json").split("a.nc")
    ('s3://bucket', 'x/a.nc')
    """

    def __init__(
        self,
        source: str,
        *,
        remote_protocol: str | None = None,
        remote_options: Mapping[str, Any] | None = None,
        base: str | os.PathLike[str] | None = None,
        allowed_protocols: str | Iterable[str] | None = None,
        target: str | None = None,
        set_options: Mapping[str, Any] | None = None,
        is_folder: bool = False,
    ) -> None:
        self.source = source
        self._is_folder = is_folder
        self._protocol = None if remote_protocol is None else _canonical(remote_protocol)
        self._base = None if base is None else _absolute(os.fspath(base))
        self.identity = (self._base, target)
        """Base and target: with the set itself, they decide which files it refers to."""
        self._target = target
        own = _protocols(source)
        self._is_local = not {*own} - _LOCAL - {"zip", "tar"}
        self._options = _by_protocol(remote_options or {}, self._protocol)
        if set_options and own[-1] in _SHARED and "::" not in source:
            self._options.setdefault(own[-1], dict(set_options))
        if allowed_protocols is None:
            allowed = {ALL_PROTOCOLS} if self._is_local else {*_REMOTE, *own} - {"file"}
        else:
            names = [allowed_protocols] if isinstance(allowed_protocols, str) else allowed_protocols
            allowed = set(map(_canonical, names))
        self._allowed = frozenset(allowed)
        self._stores: dict[str, Store] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_stores": {}}

    def split(self, url: str | None) -> tuple[str, str]:
        """Return root and key of a target; `StoreError` when it may not be opened."""
        url = self.resolve(url)
        for protocol in _protocols(url):
            if not self._allowed & {protocol, ALL_PROTOCOLS}:
                raise self._refused(
                    url,
                    f"a set from {self.source} may not point to protocol {protocol!r}; if you trust it, "
                    f"give allowed_protocols=[{protocol!r}, …] or ['*']",
                )
        return split_url(url)

    def store(self, root: str) -> Store:
        """Return the store of a root: one for all threads."""
        return self._stores.get(root) or self._stores.setdefault(root, open_store(root, self._options_of(root)))

    def _options_of(self, root: str) -> dict[str, Any] | None:
        protocols = _protocols(root)
        # options of http serve https, and not the other way round: they may hold what must be encrypted
        options = {p: self._options.get(p, self._options.get("http" if p == "https" else p)) for p in protocols}
        options = {p: own for p, own in options.items() if own is not None}
        return options if "::" in root else options.get(protocols[0])

    def is_remote(self, urls: Iterable[str | None]) -> bool:
        """Return whether any of `urls` costs latency."""
        return any(self._outermost(url or self._target or "") not in _LOCAL for url in urls)

    def _outermost(self, url: str) -> str:
        if not _has_protocol(url):
            if self._protocol is not None:
                return self._protocol
            url = url if url.startswith("/") else self._base or ("" if self._is_local else self.source)
        return _protocols(url)[0]

    def is_relative(self, url: str | None) -> bool:
        """Return whether the place of a target depends on a base."""
        url = self._target if url is None else url
        is_elsewhere = url is None or _has_protocol(url) or url.startswith("/")
        return not is_elsewhere and self._protocol in {None, "file"}

    def resolve(self, url: str | None) -> str:
        """Return the absolute url of a target; `StoreError` when it is relative to something unknown.

        Examples
        --------
        >>> Targets("/data/refs.json", base="s3://bucket/x").resolve("a.nc")
        's3://bucket/x/a.nc'
        """
        if url is None:
            if self._target is None:
                raise self._refused("[null, …]", "the set names no target: give target= (fsspec's option of that name)")
            url = self._target
        if "\0" in url:
            raise self._refused(url, "the url has a NUL in it")
        if _has_protocol(url):
            return url
        if self._protocol not in {None, "file"}:
            return f"{self._protocol}://{url.lstrip('/')}"
        if url.startswith("/"):
            return url
        if self._base is None:
            self._base = self._found_base(url)
        return self._joined(self._base, url)

    def _found_base(self, path: str) -> str:
        """Return the first folder that has the file: once for all targets, and for all processes of a job."""
        folders = self._folders()
        if not self._is_local and len(folders) == 1:
            return folders[0]
        for folder in folders:
            root, key = split_url(self._joined(folder, path))
            if self.store(root).size(key) is not None:
                return folder
        looked = f", and there is none in {' or '.join(folders)}" if folders else ""
        raise self._refused(path, f"the path is relative{looked}: say to what by base=, a path or a url")

    def _folders(self) -> list[str]:
        """Return the places that relative paths may be relative to."""
        folders = []
        if "::" not in self.source:
            source = self.source.partition("?")[0] if self.source.startswith("http") else self.source
            if self._is_folder:  # a set in parquet: its files are in it, or in its parent
                folders.append(source.rstrip("/"))
            folders.append(source.rstrip("/").rpartition("/")[0])
        folders = [folder for folder in folders if folder.partition("://")[2].strip("/") or folder.startswith("/")]
        return [*folders, str(Path.cwd())] if self._is_local else folders

    def _joined(self, base: str, path: str) -> str:
        protocol, slashes, folder = base.rpartition("://")
        folder, question, query = folder.partition("?") if protocol in {"http", "https"} else (folder, "", "")
        folder = folder.rstrip("/") + "/"
        joined = posixpath.normpath(folder + path)
        within = folder if self.identity[0] else folder[: folder.find("/") + 1]  # by default the bucket, or the host
        if not joined.startswith(within):
            # a local set may name any place by its absolute path; a base is a promise all the same
            raise self._refused(path, f"the path leads out of base={base!r}")
        return f"{protocol}{slashes}{joined}{question}{query}"

    def _refused(self, url: str, reason: str) -> StoreError:
        return StoreError(url=self.source, key="", reason=f"cannot open target {url!r}: {reason}")


def _by_protocol(options: Mapping[str, Any], protocol: str | None) -> dict[str, dict[str, Any]]:
    """Return options by protocol, whichever of fsspec's two spellings they come in."""
    if protocol is not None and not any(_canonical(name) == protocol for name in options):
        return {protocol: dict(options)}
    if not all(isinstance(value, Mapping) for value in options.values()):
        raise StoreError(
            url="", key="", reason="remote_options are by protocol, as {'s3': {'anon': True}}; or name remote_protocol"
        )
    return {_canonical(name): dict(value) for name, value in options.items()}


def _canonical(protocol: str) -> str:
    return _ALIASES.get(protocol.lower(), protocol.lower())


def _absolute(base: str) -> str:
    return base if _has_protocol(base) else os.path.abspath(os.path.expanduser(base))  # noqa: PTH100, PTH111


def _has_protocol(url: str) -> bool:
    return "::" in url or "://" in url


def _protocols(url: str) -> list[str]:
    return [_canonical(protocol) for protocol in protocols_of(url)]


def split_url(url: str) -> tuple[str, str]:
    """Return the url of the store that a single file is best read from, and its key there.

    Examples
    --------
    >>> split_url("s3://bucket/a/refs.json"), split_url("/data/refs.json")
    (('s3://bucket', 'a/refs.json'), ('file:///', 'data/refs.json'))
    """
    head, chained, rest = url.partition("::")
    if chained and "://" not in head:  # simplecache::…: the key is the next link's
        root, key = split_url(rest)
        return f"{head}::{root}", key
    if chained:  # zip://member::…: the key is the member
        protocol, _, key = head.partition("://")
        return f"{protocol}://::{rest}", _checked_key(url, key)
    protocol, _, path = url.rpartition("://")
    protocol = _canonical(protocol or "file")
    if protocol == "file":
        return "file:///", _checked_key(url, os.path.abspath(path).lstrip("/"))  # noqa: PTH100
    is_http = protocol in {"http", "https"}
    path, question, query = path.partition("?") if is_http else (path, "", "")
    host, slash, key = path.partition("/")
    if not slash:
        return f"{protocol}://{question}{query}", _checked_key(url, host)
    plain = unquote(key) if is_http else key
    if _is_key(plain) and ("%" not in key or not is_http or quote(plain) == key):
        return f"{protocol}://{host}{question}{query}", plain
    # spelt as the store would not spell it: all but the last segment is the root, which stays as it is
    folder, _, name = key.rpartition("/")
    if folder.endswith("/"):
        raise StoreError(url=url, key=key, reason="cannot open the target: it has '//' before its last segment")
    return f"{protocol}://{host}/{folder}{question}{query}", _checked_key(url, unquote(name) if is_http else name)


def _is_key(key: str) -> bool:
    return not any(part in {"", ".", ".."} for part in key.split("/"))


def _checked_key(url: str, key: str) -> str:
    if not _is_key(key):
        raise StoreError(url=url, key=key, reason="cannot open the target: the url names no file")
    return key
