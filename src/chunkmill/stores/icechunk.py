"""Repositories of Icechunk, opened for reading: by url, as a repository, or as a session.

Icechunk is imported where a url names a repository; an object of it has imported it already. Not here: the store over
a session (`chunkmill.stores.zarr_python`), url pipelines (`chunkmill.stores.url_pipeline`).
Checked against: icechunk 1.1.21.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from chunkmill.errors import StoreError
from chunkmill.stores.posix_file import path_of_url
from chunkmill.stores.url_pipeline import UrlPipeline
from chunkmill.stores.zarr_python import IcechunkStore

__all__ = ["is_icechunk", "store_of_icechunk", "store_of_repository"]

# as s3fs has them -> as Icechunk has them
_S3_OPTIONS = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token", "anon": "anonymous"}

_CONTAINERS = "authorize_virtual_chunk_access"


def is_icechunk(place: Any) -> bool:
    """Return whether `place` is a repository or a session of Icechunk, which is not imported.

    Examples
    --------
    >>> is_icechunk("s3://bucket/repository")
    False
    """
    module = sys.modules.get("icechunk")
    return module is not None and isinstance(place, (module.Repository, module.Session))


def store_of_icechunk(place: Any) -> IcechunkStore:
    """Return the store of a session, or of the branch ``main`` of a repository."""
    session = place.readonly_session("main") if hasattr(place, "readonly_session") else place
    return IcechunkStore(session.store)


def store_of_repository(pipeline: UrlPipeline, storage_options: Mapping[str, Any] | None = None) -> IcechunkStore:
    """Open the repository that a url pipeline names, at its branch, tag or snapshot.

    Parameters
    ----------
    pipeline
        With the version as `icechunk`.
    storage_options
        ``authorize_virtual_chunk_access`` as in ``icechunk.Repository.open``; the others are arguments of Icechunk's
        storage, or s3fs's names of credentials, ``endpoint_url`` and ``client_kwargs``.

    Raises
    ------
    StoreError
        Icechunk is not installed, the protocol is none that it has, or there is no such repository or version.
    """
    try:
        icechunk: Any = import_module("icechunk")
    except ImportError as error:
        reason = "a repository of Icechunk needs the package icechunk: pip install 'chunkmill[icechunk]'"
        raise StoreError(url=pipeline.url, key="", reason=reason) from error
    options = dict(storage_options or {})
    access = {name: options.pop(name) for name in [_CONTAINERS] if name in options}
    kind, name = pipeline.icechunk or ("branch", "main")
    try:
        repository = icechunk.Repository.open(_storage(icechunk, pipeline.url, options), **access)
        session = repository.readonly_session(**{"snapshot_id" if kind == "snapshot" else kind: name})
    except (icechunk.IcechunkError, ValueError, TypeError) as error:
        reason = f"the {kind} {name!r} of the repository cannot be opened: {str(error).strip().splitlines()[0]}"
        raise StoreError(url=pipeline.url, key="", reason=reason) from error
    return IcechunkStore(session.store)


def _storage(icechunk: Any, url: str, options: dict[str, Any]) -> Any:
    split = urlsplit(url)
    place = {"bucket": split.netloc, "prefix": split.path.strip("/") or None}
    if split.scheme == "s3":
        return icechunk.s3_storage(**place, **_s3_options(options))
    if split.scheme in {"gs", "gcs"}:
        return icechunk.gcs_storage(**place, **(options or {"from_env": True}))
    if split.scheme in {"az", "abfs"}:
        container = {"container": split.netloc, "prefix": split.path.strip("/")}
        return icechunk.azure_storage(**container, **options)
    if "://" not in url or split.scheme in {"file", "local"}:
        return icechunk.local_filesystem_storage(path_of_url(url.partition("://")[2]) if "://" in url else url)
    raise ValueError(f"Icechunk has no storage for {split.scheme}://; it has s3, gs, az and files")


def _s3_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of Icechunk's S3 storage that options for s3fs, or for Icechunk, mean."""
    options = {_S3_OPTIONS.get(name, name): value for name, value in options.items()}
    client = dict(options.pop("client_kwargs", None) or {})
    region = client.pop("region_name", options.pop("region", None))
    endpoint = options.pop("endpoint_url", None) or client.pop("endpoint_url", None)
    found = {"region": region, **options}
    if endpoint is not None:  # of a server of one's own, whose buckets have no host names
        found |= {"endpoint_url": endpoint, "allow_http": endpoint.startswith("http://"), "force_path_style": True}
    if not {"access_key_id", "anonymous", "from_env", "get_credentials"} & found.keys():
        found["from_env"] = True
    return found
