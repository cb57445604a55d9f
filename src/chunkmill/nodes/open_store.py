"""Open the store of a url that users give; tell the urls of reference sets by their names.

Not here: the stores (`chunkmill.stores.open`); reference sets (`chunkmill.nodes.reference_sets`), whose
readers take 50 ms to import. This module breaks the circle between the two.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from chunkmill.errors import StoreError
from chunkmill.nodes.documents import READ_ONLY_SET
from chunkmill.stores.base import Store
from chunkmill.stores.open import open_store

__all__ = [
    "BARE_URLS",
    "REFERENCE_OPTIONS",
    "Url",
    "may_be_reference_file",
    "open_plain_store",
    "open_target_store",
    "without_reference_options",
]

Url = str | os.PathLike[str] | Store

REFERENCE_OPTIONS = ("remote_protocol", "remote_options", "base", "allowed_protocols", "target", "template_overrides")
"""Members of ``storage_options`` that are meant for the set; the others open the file or folder that it is in."""

BARE_URLS = ("reference://", "reference")  # as fsspec has it: the option ``fo`` says where, or is the set itself
_FILE_NAME = re.compile(r"\.json(\.(gz|gzip|zst|zstd))?$")


def may_be_reference_file(url: str | os.PathLike[str]) -> bool:
    """Return whether `url` has the name of a reference file; nothing is asked of any store.

    Examples
    --------
    >>> may_be_reference_file("s3://bucket/set.json.zst"), may_be_reference_file("events.json.zarr")
    (True, False)
    """
    return os.fspath(url) in BARE_URLS or _FILE_NAME.search(os.fspath(url).rstrip("/")) is not None


def open_target_store(url: str | os.PathLike[str] | Store, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Return the store at `url` for writing nodes; `StoreError` when that is the file of a reference set.

    A folder of one is refused where nodes are created (`chunkmill.nodes.documents.check_root`), in the same requests.

    Examples
    --------
    >>> open_target_store("/data/x.zarr")
    LocalStore('/data/x.zarr')
    """
    options = without_reference_options(storage_options)
    if isinstance(url, (str, os.PathLike)) and (os.fspath(url) in BARE_URLS or ".json" in _name(url)):
        from chunkmill.nodes.reference_sets import is_reference_file  # noqa: PLC0415 - few urls name one

        if is_reference_file(os.fspath(url), options):
            raise StoreError(url=os.fspath(url), key="", reason=READ_ONLY_SET)
    return open_store(url, options)


def open_plain_store(url: str | os.PathLike[str] | Store, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Return the store at `url`, whose filesystem is not given the options that are for a reference set.

    Examples
    --------
    >>> open_plain_store("/data/x.zarr", {"base": "/data"})
    LocalStore('/data/x.zarr')
    """
    return open_store(url, without_reference_options(storage_options))


def without_reference_options(storage_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options that are for the filesystem.

    Examples
    --------
    >>> without_reference_options({"anon": True, "base": "/data"})
    {'anon': True}
    """
    return {name: value for name, value in (storage_options or {}).items() if name not in REFERENCE_OPTIONS}


def _name(url: str | os.PathLike[str]) -> str:
    return os.fspath(url).rstrip("/").rsplit("/", 1)[-1]
