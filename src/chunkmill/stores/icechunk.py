"""Repositories of Icechunk, opened by url, as a repository, or as a session.

Icechunk is imported where a url names a repository; an object of it has imported it already. Not here: the store over
a session (`chunkmill.stores.icechunk_store`), url pipelines (`chunkmill.stores.places`).
Checked against: icechunk 1.1.21 and 2.3.0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from chunkmill.errors import StoreError
from chunkmill.stores.base import Store
from chunkmill.stores.icechunk_session import Place
from chunkmill.stores.icechunk_store import IcechunkStore
from chunkmill.stores.places import UrlPipeline
from chunkmill.stores.posix_file import path_of_url

# as s3fs has them -> as Icechunk has them
_S3_OPTIONS = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token", "anon": "anonymous"}

_CONTAINERS = "authorize_virtual_chunk_access"
_MESSAGE = "commit_message"

OpensStore = Callable[..., Store]
"""`chunkmill.stores.open.open_store`, which stands above this module."""


def store_of_icechunk(
    place: Any, storage_options: Mapping[str, Any] | None = None, *, opens: OpensStore
) -> IcechunkStore:
    """Return the store of a session, or of the branch ``main`` of a repository.

    Parameters
    ----------
    place
        An ``icechunk.Repository``, or an ``icechunk.Session``.
    storage_options
        ``commit_message``, as of `store_of_repository`.
    opens
        Opens the store for intermediate files.
    """
    options = dict(storage_options or {})
    if not hasattr(place, "readonly_session"):
        name = f"icechunk:session-{place.snapshot_id}"
        kind = "branch" if place.branch is not None else "snapshot"
        return IcechunkStore(Place(name, kind=kind), place)
    folder = re.search(r"\bpath[:=] *([^\n)]+)", repr(place.storage))
    url = f"icechunk:repository-{id(place):x}" if folder is None else f"file://{folder[1]}"
    scratch = None if folder is None else _scratch(opens, folder[1], {})
    return IcechunkStore(Place(f"{url}|icechunk://branch.main/", place, message=options.get(_MESSAGE), scratch=scratch))


def store_of_repository(
    pipeline: UrlPipeline,
    storage_options: Mapping[str, Any] | None = None,
    *,
    opens: OpensStore,
    creates: bool = False,
) -> IcechunkStore:
    """Open the repository that a url pipeline names, at its branch, tag or snapshot.

    Parameters
    ----------
    pipeline
        With the version as `icechunk`.
    storage_options
        ``authorize_virtual_chunk_access`` and ``config`` as in ``icechunk.Repository.open``; ``commit_message``. The
        others are arguments of Icechunk's storage, or s3fs's names of credentials, ``endpoint_url`` and
        ``client_kwargs``.
    opens
        Opens the store for intermediate files.
    creates
        Make the repository at the first write, where there is none.

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
    kind, name = pipeline.icechunk or ("branch", "main")
    message = options.pop(_MESSAGE, None)
    opening = {name: options.pop(name) for name in (_CONTAINERS, "config") if name in options}
    scratch = _scratch(opens, pipeline.url, options)
    place = Place(pipeline.store_url, kind=kind, name=name, message=message, scratch=scratch)
    with place.named_in_errors():
        storage = _storage(icechunk, pipeline.url, options)
        if creates and (kind, name) == ("branch", "main") and not icechunk.Repository.exists(storage):
            return IcechunkStore(replace(place, create=partial(icechunk.Repository.open_or_create, storage, **opening)))
        return IcechunkStore(replace(place, repository=icechunk.Repository.open(storage, **opening)))


def _scratch(opens: OpensStore, url: str, options: Mapping[str, Any]) -> Callable[[], Store]:
    """Return what opens the store in which a repository is: for intermediate files, which are no keys of Zarr."""
    above = url.rstrip("/").rpartition("/")[0]
    return partial(opens, (url if above.endswith(":/") else above) or "/", dict(options))  # or all of a bucket


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
        folder = path_of_url(url.partition("://")[2]) if "://" in url else url
        if os.path.isfile(folder):  # noqa: PTH113 - which Icechunk panics at
            raise ValueError("there is a file, and a repository is a folder")
        return icechunk.local_filesystem_storage(folder)
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
