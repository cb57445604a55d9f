"""What a format is: a pure function between documents and the model.

Bytes in, dataclasses out. A format never sees a store, a codec object or dask. Documents are keyed by full store key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from chunkmill.errors import MetadataError
from chunkmill.model.metadata import JSON, ArrayMetadata, GroupMetadata

__all__ = ["Format", "emit_json", "normalize_path", "parse_json"]


class Format(Protocol):
    """One storage format, perhaps configured by documents at the root of a store.

    An instance is immutable and picklable.
    """

    name: str
    """What users call it: ``"zarr2"``, ``"zarr3"``, ``"zarr3-draft"``, ``"n5"``."""

    def normalize_path(self, path: str) -> str:
        """Return the canonical form of a node's path (no slashes at the ends), or raise `MetadataError`."""

    def root_keys(self) -> tuple[str, ...]:
        """Keys of documents at the root of a store that configure the format; none for most."""

    def configured(self, documents: Mapping[str, bytes]) -> Format | None:
        """Return this format as the root documents want it; ``None`` when they say the store is of another one."""

    def emit_root(self) -> dict[str, bytes]:
        """Return the documents that a new store of this format needs at its root, besides a group's own."""

    def array_keys(self, path: str) -> tuple[str, ...]:
        """Keys of an array's documents, the required one first."""

    def group_keys(self, path: str) -> tuple[str, ...]:
        """Keys of a group's documents, the required one first."""

    def chunk_prefix(self, path: str) -> str:
        """Return what stands before the chunk key in the store keys of an array: ``"path/"``, ``"data/path/"``."""

    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse the array at `path`; ``None`` when the documents there describe no array.

        Raises `MetadataError` where they describe one wrongly.
        """

    def emit_array(self, path: str, metadata: ArrayMetadata) -> dict[str, bytes]:
        """Return the documents of an array; `UnsupportedFeature` for what the format cannot hold."""

    def parse_group(self, path: str, documents: Mapping[str, bytes]) -> GroupMetadata | None:
        """Parse the group at `path`; ``None`` when there is none by its documents."""

    def emit_group(self, path: str, metadata: GroupMetadata) -> dict[str, bytes]:
        """Return the documents of a group."""

    def list_prefixes(self, path: str) -> tuple[str, ...]:
        """Prefixes below which the names of the children of the group at `path` are listed."""

    def child_name(self, path: str, prefix: str, name: str) -> str | None:
        """Return the child that `name`, listed below `prefix`, may be of; ``None`` when it is none."""

    @property
    def implicit_groups(self) -> bool:
        """Whether a prefix with anything below it is a group without any document."""


def parse_json(key: str, value: bytes) -> dict[str, JSON]:
    """Parse one document that must be a JSON object; every way to fail is a `MetadataError`.

    Bare ``NaN`` and ``Infinity`` are read (xarray and netCDF-C write them) though never written.
    """
    try:
        document = json.loads(bytes(value).decode("utf-8"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise MetadataError(key=key, field="document", got=str(error), expected="a JSON object in UTF-8") from None
    if not isinstance(document, dict):
        raise MetadataError(key=key, field="document", got=type(document).__name__, expected="a JSON object")
    return document


def emit_json(key: str, document: Mapping[str, JSON]) -> bytes:
    """Return a document as UTF-8 JSON; NaN and Infinity are refused, since JSON has none."""
    try:
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise MetadataError(key=key, field="document", got=str(error), expected="values that JSON can hold") from None


def normalize_path(path: str, *, backslash: bool = False) -> str:
    r"""Return `path` without slashes at the ends or doubled; `MetadataError` for ``.`` and ``..`` segments.

    `backslash`: whether ``\\`` separates like ``/`` (Zarr v2).

    Examples
    --------
    >>> normalize_path("/a//b/")
    'a/b'
    """
    if backslash:
        path = path.replace("\\", "/")
    segments = [segment for segment in path.split("/") if segment]
    for segment in segments:
        if segment in {".", ".."} or "\0" in segment:
            raise MetadataError(key=path, field="path", got=path, expected="a path without '.' and '..' segments")
    return "/".join(segments)


def get_member(key: str, document: Mapping[str, JSON], name: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
    """Return a required member of a document, checked for its JSON type (a bool is no int)."""
    if name not in document:
        raise MetadataError(key=key, field=name, got="nothing", expected="a value: the member is required")
    value = document[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join(k.__name__ for k in kinds)
        raise MetadataError(key=key, field=name, got=value, expected=expected)
    return value
