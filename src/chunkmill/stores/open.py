"""Open the store of a url; tell by name which urls may be those of reference sets.

Not here: reference sets (`chunkmill.nodes.reference_sets`).
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from chunkmill.config import registered
from chunkmill.errors import StoreError
from chunkmill.stores.base import Store, is_instance
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.obstore_clients import lacking, location_of
from chunkmill.stores.places import UrlPipeline, parse_url_pipeline
from chunkmill.stores.posix_file import path_of_url

Url = str | os.PathLike[str] | Store


def open_store(
    url: str | os.PathLike[str] | Store, storage_options: Mapping[str, Any] | None = None, *, creates: bool = False
) -> Store:
    """Return the store at `url`; nothing is created yet, and opened only of Icechunk.

    Parameters
    ----------
    url
        A path, a url of any protocol that fsspec knows (``::`` chains included), a store, which is returned, or an
        object of another library that holds keys and bytes: what ``fs.get_mapper(root)`` gives of a filesystem, a dict
        of bytes, a reference set as a dict or as fsspec's ``LazyReferenceMapper``, a store of zarr-python, of Icechunk,
        of obstore, or any object with the methods of obspec.
        A path that ends with ``.zip`` is a zip store, unless there is a directory of that name.
    storage_options
        For fsspec; local files have none. Those that are for reference sets are left out.
    creates
        Whether a repository of Icechunk that is not there is made at the first write; else that is an error.

    Raises
    ------
    StoreError
        The protocol is unknown, or needs a package that is not installed.
    TypeError
        `url` is an object that is not a store.

    Examples
    --------
    >>> open_store("/data/x.zarr").url, open_store("file:///data/x.zarr/").url
    ('file:///data/x.zarr', 'file:///data/x.zarr')
    >>> open_store("zip://::/data/x.zip")
    ZipStore('/data/x.zip')
    """
    if not isinstance(url, (str, os.PathLike)):
        return _of_object(url, storage_options)
    storage_options = without_reference_options(storage_options)
    url = os.fspath(url)
    if "|" in url and (pipeline := parse_url_pipeline(url)) is not None:
        return _of_pipeline(pipeline, storage_options, creates=creates)
    if not url:
        raise StoreError(url="", key="", reason="the url is empty: give a path or a url")
    if (path := _local_path(url)) is not None:
        is_zip = path.lower().endswith((".zip", ".ozx")) and not Path(path).expanduser().is_dir()
        return _zip_store(path) if is_zip else LocalStore(path)
    inner = re.fullmatch(r"(zip|dir)://(.*?)::(.*)", url)
    if inner is not None and (path := _local_path(inner[3])) is not None:
        return _zip_store(path, inner[2]) if inner[1] == "zip" else LocalStore(Path(path, inner[2].lstrip("/")))
    if (location := location_of(url, storage_options)) is not None:
        from chunkmill.stores.obstore import ObstoreStore  # noqa: PLC0415 - an extra

        return ObstoreStore(location)
    return _of_protocol(url, storage_options)


def _of_protocol(url: str, storage_options: Mapping[str, Any]) -> Store:
    from chunkmill.stores.fsspec import FsspecStore  # noqa: PLC0415 - fsspec takes 50 ms to import

    try:
        return FsspecStore(url, storage_options)
    except StoreError:
        if (package := registered("stores", url.partition("://")[0])) is None:
            raise
    try:
        return open_store(package.load()(url, storage_options))
    except Exception as error:
        reason = f"{package.value}, which is registered for the protocol, fails: {type(error).__name__}: {error}"
        raise StoreError(url=url, key="", reason=reason) from error


def _zip_store(path: Any, root: str = "") -> Store:
    from chunkmill.stores.zip import ZipStore  # noqa: PLC0415 - imports zipfile

    return ZipStore(path, root)


def _of_pipeline(pipeline: UrlPipeline, storage_options: Mapping[str, Any] | None, *, creates: bool) -> Store:
    if pipeline.path:
        reason = f"a store is wanted, and the url names the node {pipeline.path!r} in it: give that as the path"
        raise StoreError(url=pipeline.store_url, key="", reason=reason)
    if pipeline.icechunk is None:
        return open_store(pipeline.url, storage_options)
    from chunkmill.stores.icechunk import store_of_repository  # noqa: PLC0415 - an extra

    return store_of_repository(pipeline, storage_options, opens=open_store, creates=creates)


def takes_options(place: Any) -> bool:
    """Return whether `place` takes ``storage_options``: a url, with a path or not, several, or Icechunk's repository.

    Examples
    --------
    >>> takes_options("s3://b/x.zarr"), takes_options({})
    (True, False)
    """
    if isinstance(place, (list, tuple)):  # urls; or a url and a path
        return any(map(takes_options, place[:1] if isinstance(place, tuple) else place))
    is_url = isinstance(place, (str, os.PathLike)) or type(place).__module__.startswith("icechunk.")
    return is_url or is_set_in_memory(place)


def _of_object(place: Any, storage_options: Mapping[str, Any] | None) -> Store:
    if without_reference_options(storage_options) and not takes_options(place):
        raise ValueError("storage_options= is for urls: a store object has its options already")
    for is_kind, opened in KINDS:
        if is_kind(place):
            return opened(place, storage_options)
    names = "a url, a path, a dict, a Store, a store of zarr-python or obstore, an fsspec mapper, a reference set"
    lacks = f"{type(place).__name__}, which lacks {', '.join(lacking(place))}"
    raise TypeError(f"a store is named by {names} or an object with the methods of obspec, not by {lacks}")


def is_store(place: Any) -> bool:
    """Return whether `place` is a store, or an object that `open_store` makes one of; not a url."""
    return any(is_kind(place) for is_kind, _ in KINDS)


def _of_icechunk(place: Any, storage_options: Mapping[str, Any] | None) -> Store:
    from chunkmill.stores.icechunk import store_of_icechunk  # noqa: PLC0415 - an extra

    return store_of_icechunk(place, storage_options, opens=open_store)


def _of_zarr_python(below: Any) -> Store:
    """Return our store of the same place, which has versions and locks, or one over zarr-python's."""
    from chunkmill.stores.zarr_python import ReadOnlyStore, ZarrPythonStore, place_of  # noqa: PLC0415 - imports fsspec

    if type(below).__module__.startswith("icechunk."):
        return open_store(below.session)
    if (place := place_of(below)) is None:
        return ZarrPythonStore(below)
    store = _zip_store(place) if type(below).__name__ == "ZipStore" else open_store(place)
    return ReadOnlyStore(store) if below.read_only else store


def _of_obstore(place: Any) -> Store:
    if type(place).__name__ == "LocalStore":  # files: ours compare versions
        return LocalStore(place.prefix or "/")
    if type(place).__name__ == "HTTPStore":  # obstore lists by WebDAV alone, and knows no server without ranges
        headers = (place.client_options or {}).get("default_headers") or {}
        return open_store(
            place.url, {"headers": {k: v.decode() if isinstance(v, bytes) else v for k, v in headers.items()}}
        )
    from chunkmill.stores.obstore import ObstoreStore  # noqa: PLC0415 - an extra

    return ObstoreStore(place)


def _of_mapper(mapper: Any) -> Store:
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 - as fsspec

    from chunkmill.stores.fsspec import FsspecStore, without_dirs  # noqa: PLC0415 - as fsspec

    fs, root = without_dirs(mapper.fs, mapper.root)
    if type(fs) is LocalFileSystem:
        return LocalStore(root)
    names = list(inspect.signature(type(fs).__init__).parameters)[1:]
    options = dict(zip(names, fs.storage_args, strict=False)) | fs.storage_options
    return FsspecStore(fs.unstrip_protocol(root), options, type(fs))


_OBSTORE = ("S3Store", "GCSStore", "AzureStore", "HTTPStore", "LocalStore", "MemoryStore")
KINDS: list[tuple[Callable[[Any], bool], Callable[[Any, Any], Store]]] = [
    (lambda place: isinstance(place, Store), lambda place, _: place),
    (lambda place: is_instance(place, "obstore.store", *_OBSTORE), lambda place, _: _of_obstore(place)),
    (lambda place: is_instance(place, "icechunk", "Repository", "Session"), _of_icechunk),
    (lambda place: is_instance(place, "zarr.abc.store", "Store"), lambda place, _: _of_zarr_python(place)),
    (lambda place: isinstance(place, dict), lambda place, _: MemoryStore(place)),
    (lambda place: is_instance(place, "fsspec.mapping", "FSMap"), lambda place, _: _of_mapper(place)),
    (
        lambda place: not (isinstance(place, type) or lacking(place)),
        lambda place, _: import_module("chunkmill.stores.obstore").ObspecStore(place),
    ),
]
"""Objects that hold keys and bytes: how each kind is recognised, and what makes a store of it.

Reference sets in memory, which are parsed above this room, are registered as the first.
"""


def _local_path(url: str) -> str | None:
    """Return the path of a local file or directory; `None` when `url` names something else."""
    if (match := re.match(r"(?:file|local)://(?!.*::)", url)) is not None:
        return path_of_url(url[match.end() :])
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]*(?:://|::)", url) else url


# --------------------------------------------------------------------------------------------------------------------
# Urls and options of reference sets


def is_set_in_memory(place: Any) -> bool:
    """Return whether `place` is a reference set in memory: kerchunk's dict, or a ``LazyReferenceMapper`` of fsspec.

    Examples
    --------
    >>> is_set_in_memory({"version": 1, "refs": {}}), is_set_in_memory({"zarr.json": b"{}"})
    (True, False)
    """
    if isinstance(place, dict):  # a store holds bytes, or buffers
        return any(isinstance(value, (str, list, tuple, dict)) for value in tuple(place.values()))
    return is_instance(place, "fsspec.implementations.reference", "LazyReferenceMapper")


REFERENCE_OPTIONS = ("remote_protocol", "remote_options", "base", "allowed_protocols", "target", "template_overrides")
"""Members of ``storage_options`` that are meant for the set; the others open the file or folder that it is in."""

BARE_URLS = ("reference://", "reference")  # as fsspec has it: the option ``fo`` says where, or is the set itself
_FILE_NAME = re.compile(r"\.json(\.(gz|gzip|zst|zstd))?$")


def open_scanned(
    urls: Any, storage_options: Mapping[str, Any] | None = None, concat_dim: str | Sequence[str] | None = None
) -> Store | None:
    """Return the store of the references to a file's chunks, or to those of several files joined along `concat_dim`.

    ``None`` where `urls` names a folder, or a file of another kind.

    Examples
    --------
    >>> open_scanned("x.zarr")
    """
    if concat_dim is None and _SCANNED_NAME.search(os.fspath(urls)) is None:
        return None
    return FILE_OPENERS[0](urls, storage_options, concat_dim)


FILE_OPENERS: list[Callable[..., Store | None]] = []
"""The function that opens files, netCDF or another, like stores: it parses them, above this room."""

_SCANNED_NAME = re.compile(r"\.(nc|nc3|nc4|cdf|netcdf|h5|hdf5|he5|tiff?|fits?|fts|gri?b2?|dmrpp)$", re.IGNORECASE)


def may_be_reference_file(url: str | os.PathLike[str]) -> bool:
    """Return whether `url` has the name of a reference file; nothing is asked of any store.

    Examples
    --------
    >>> may_be_reference_file("s3://bucket/set.json.zst"), may_be_reference_file("events.json.zarr")
    (True, False)
    """
    return os.fspath(url) in BARE_URLS or _FILE_NAME.search(os.fspath(url).rstrip("/")) is not None


def without_reference_options(storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options that are for the filesystem.

    Examples
    --------
    >>> without_reference_options({"anon": True, "base": "/data"})
    {'anon': True}
    """
    return {name: value for name, value in (storage_options or {}).items() if name not in REFERENCE_OPTIONS}
