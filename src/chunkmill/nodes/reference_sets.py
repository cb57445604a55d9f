"""Open reference sets: JSON files, perhaps compressed, and folders of parquet.

Not here: what a set says (`chunkmill.formats.references.json`, ``parquet``), how it answers
(`chunkmill.stores.reference`), which urls may name one (`chunkmill.stores.open`). Imported where a url names one.
"""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

from numcodecs.zstd import decompress

from chunkmill.errors import MetadataError, NodeNotFound, StoreError
from chunkmill.formats.references.chunk_numbers import ROOT_KEY, is_reference_root
from chunkmill.formats.references.json import HEAD_BYTES, is_reference_json, parse_reference_dict, parse_reference_json
from chunkmill.formats.references.parquet import ParquetReferences
from chunkmill.model.references import ReferenceSet
from chunkmill.stores.base import ByteRange, Store
from chunkmill.stores.open import BARE_URLS, REFERENCE_OPTIONS, is_set_in_memory, open_store, without_reference_options
from chunkmill.stores.reference import ReferenceStore, Targets, split_url

_LOOKED_AT = 1000  # targets: sets name one file or few, or all alike
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def open_reference_store(url: Any, storage_options: Mapping[str, Any] | None = None) -> ReferenceStore:
    r"""Open the reference set at `url`: a JSON file, perhaps compressed by gzip or zstd, or a parquet folder.

    Parameters
    ----------
    url
        Of the file or folder; or the set itself: a dict, or a ``LazyReferenceMapper`` of fsspec; or ``"reference://"``
        with either as the option ``fo``, as with fsspec.
    storage_options
        ``remote_protocol``, ``remote_options``, ``base``, ``allowed_protocols`` and ``target`` say how targets are
        opened (see `Targets`), ``template_overrides`` replaces templates of the set; the rest is for the filesystem
        that the set itself is stored on.

    Raises
    ------
    NodeNotFound
        When there is neither a file nor a folder with ``.zmetadata``.
    MetadataError
        When what is there is no reference set.

    Examples
    --------
    >>> references = {".zattrs": {}, "x/0": "base64:AAE="}
    >>> open_reference_store("reference://", {"fo": references}).get("x/0")
    b'\x00\x01'
    """
    options = dict(storage_options or {})
    own = {name: options.pop(name) for name in REFERENCE_OPTIONS if name in options}
    overrides = own.pop("template_overrides", None)
    if url in BARE_URLS:
        options |= options.pop("target_options", None) or {}
        url = options.pop("fo", "")
    if isinstance(url, dict):
        return _json_store(parse_reference_dict(url, overrides), Targets("memory://references", **own))
    is_lazy = is_set_in_memory(url)
    if is_lazy and len(vars(url).get("_items", ())) > 1:  # more than the .zmetadata that it has read
        reason = "the LazyReferenceMapper holds references that are not stored: call its flush() first"
        raise StoreError(url=url.root, key="", reason=reason)
    location = url.fs.get_mapper(url.root) if is_lazy else os.fspath(url)
    if not (is_lazy or location.endswith("/")) and (found := _open_file(location, options, own, overrides)):
        return found
    folder = open_store(location, options)
    if folder.get(ROOT_KEY) is None:
        raise NodeNotFound(url=folder.url, path="", wanted="reference set (JSON file, or folder with .zmetadata)")
    parquet = ParquetReferences(folder.get, folder.url)
    return ReferenceStore(parquet, Targets(folder.url, **own, set_options=options, is_folder=True), url=folder.url)


def open_reference_file(
    url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None
) -> ReferenceStore | None:
    """Open the reference set at `url`, which has the name of one, when that is a file: one request; else ``None``.

    A folder may have such a name, too: a store of arrays, or a set in parquet.
    """
    location = os.fspath(url)
    if location in BARE_URLS:
        return open_reference_store(url, storage_options)
    options = dict(storage_options or {})
    own = {name: options.pop(name) for name in REFERENCE_OPTIONS if name in options}
    return _open_file(location.rstrip("/"), options, own, own.pop("template_overrides", None))


def is_reference_set(url: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return whether there is a reference set at `url`: one request for a name with ``.json`` in it, two for others.

    Any name with ``.json`` in it is looked into; a folder is one when its ``.zmetadata`` says so.
    """
    options = without_reference_options(storage_options)
    url = os.fspath(url)
    is_named = url in BARE_URLS or ".json" in url.rsplit("/", 1)[-1]
    if is_named and (is_set := is_reference_file(url, options)) is not None:
        return is_set
    return is_reference_root(open_store(url, options).get(ROOT_KEY))


def is_reference_file(url: str, storage_options: Mapping[str, Any]) -> bool | None:
    """Return whether the file at `url` is a reference set; ``None`` without one: at most two requests."""
    if url in BARE_URLS:
        return True
    store, key = _file(url.rstrip("/"), storage_options)
    if (size := store.size(key)) is None:
        return None
    head = store.get(key, ByteRange(0, min(size, HEAD_BYTES))) or b""
    return head.startswith((_GZIP, _ZSTD)) or is_reference_json(head)


def _open_file(
    location: str, options: Mapping[str, Any], own: Mapping[str, Any], overrides: Any
) -> ReferenceStore | None:
    store, key = _file(location, options)
    shown = location if "::" in location else f"{store.url.removesuffix('/')}/{key}"
    references = _read_set(store, key, shown, overrides)
    return None if references is None else _json_store(references, Targets(shown, **own, set_options=options))


def _read_set(store: Store, key: str, shown: str, overrides: Any) -> ReferenceSet | None:
    if (document := store.get(key)) is None:
        return None
    try:
        if document.startswith(_GZIP):
            document = gzip.decompress(document)
        elif document.startswith(_ZSTD):
            document = bytes(decompress(document))
    except (OSError, EOFError, RuntimeError, ValueError) as error:
        raise MetadataError(
            key=shown, field="document", got=str(error), expected="JSON, in gzip or zstd or not"
        ) from None
    references = parse_reference_json(document, source=shown, template_overrides=overrides)
    if "memory://" not in shown:  # of one process
        references.file = shown, partial(_read_set, store, key, shown, overrides)
    return references


def _json_store(references: ReferenceSet, targets: Targets) -> ReferenceStore:
    """Return the store of a set; warn when its relative targets are not to be found: its metadata can be read still."""
    relative = next(filter(targets.is_relative, islice(references.urls, _LOOKED_AT)), "")
    try:
        targets.resolve(relative or "/")
    except StoreError as error:
        warnings.warn(str(error), UserWarning, stacklevel=2)
    return ReferenceStore(references, targets, url=targets.source)


def _file(url: str, options: Mapping[str, Any]) -> tuple[Store, str]:
    root, key = split_url(url)
    return open_store(root, options), key
