"""Consolidated metadata: the documents of a hierarchy in one.

Here: one document <-> many, keyed by full store key. Not here: when to use them (`chunkmill.nodes.opening`), what
they say (the formats). Keys are checked like paths: a document must not answer for nodes outside its group. Spec:
``.zmetadata`` is zarr-python 2's convention; the inline form is zarr-python 3's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from chunkmill.errors import MetadataError
from chunkmill.formats.base import ParsedDocument, emit_json, parse_json
from chunkmill.model.metadata import JSON

V2_DOCUMENTS = frozenset({".zarray", ".zgroup", ".zattrs"})
"""Last segments of the keys that ``.zmetadata`` holds."""

V3_DOCUMENTS = frozenset({"zarr.json"})
"""Last segment of the keys that inline consolidated metadata stand for."""

_INLINE: Mapping[str, JSON] = {"kind": "inline", "must_understand": False}


def parse_v2(value: bytes, key: str) -> dict[str, bytes] | None:
    """Return the documents that a ``.zmetadata`` holds, by full store key; ``None`` where it is of another kind.

    Parameters
    ----------
    key
        Store key of the document: its folder is where the keys in it begin.

    Raises
    ------
    MetadataError
        The document is malformed or of a version other than 1, or a key leads out of its folder.

    Examples
    --------
    >>> value = b'{"zarr_consolidated_format": 1, "metadata": {"a/.zgroup": {"zarr_format": 2}}}'
    >>> parse_v2(value, "g/.zmetadata")
    {'g/a/.zgroup': b'{"zarr_format": 2}'}
    """
    document = parse_json(key, value)
    if "zarr_consolidated_format" not in document or "record_size" in document:  # the latter: references in parquet
        return None
    version = document["zarr_consolidated_format"]
    if type(version) is not int or version != 1:
        expected = "1; consolidated=False reads the documents of each node instead"
        raise MetadataError(key=key, field="zarr_consolidated_format", got=version, expected=expected)
    prefix = key.removesuffix(".zmetadata")
    found: dict[str, bytes] = {}
    for relative, content in _entries(key, document):
        path, _, name = relative.rpartition("/")
        _check_path(key, path, "\\")
        if name in V2_DOCUMENTS:
            found[prefix + relative] = _document(content)
    return found


def emit_v2(documents: Mapping[str, bytes], key: str = ".zmetadata") -> bytes:
    """Return the ``.zmetadata`` that belongs at `key`, of those `documents` that are below its folder.

    Examples
    --------
    >>> list(parse_v2(emit_v2({"a/.zgroup": b'{"zarr_format": 2}'}), ".zmetadata"))
    ['a/.zgroup']
    """
    prefix = key.removesuffix(".zmetadata")
    metadata = {
        full.removeprefix(prefix): parse_json(full, documents[full])
        for full in sorted(documents)
        if full.startswith(prefix) and full.rpartition("/")[2] in V2_DOCUMENTS
    }
    return emit_json(key, {"zarr_consolidated_format": 1, "metadata": metadata})


def split_v3(value: bytes, key: str) -> dict[str, bytes] | None:
    """Return the documents that a group's ``zarr.json`` holds inline, by full store key; ``None`` without any.

    The first is the group's own, without what it holds of others. Nested groups lose their ``consolidated_metadata``:
    zarr-python leaves an empty one there, which does not mean that they have no children.

    Raises
    ------
    MetadataError
        What is there is malformed, or a key leads out of the group.

    Examples
    --------
    >>> value = b'''{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline",
    ...     "must_understand": false, "metadata": {"a": {"zarr_format": 3, "node_type": "group"}}}}'''
    >>> list(split_v3(value, "g/zarr.json"))
    ['g/zarr.json', 'g/a/zarr.json']
    """
    field = "consolidated_metadata"
    known = _PARSED.get()
    if known is not None and known.get(key, _NOTHING)[0] == value:
        return dict(known[key][1])
    own = parse_json(key, value)
    inline = own.pop(field, None)
    if inline is None:  # zarr-python 3.0 wrote null for none
        return None
    if not isinstance(inline, dict):
        raise MetadataError(key=key, field=field, got=inline, expected="an object or null")
    if inline.get("kind") != "inline":
        return None
    prefix = key.removesuffix("zarr.json")
    found: dict[str, bytes] = {key: _document(own)}
    for path, content in _entries(key, inline):
        _check_path(key, path)
        if path:
            content.pop(field, None)
            found[f"{prefix}{path}/zarr.json"] = _document(content)
    if known is not None:
        known[key] = value, dict(found)
    return found


def own_document(value: bytes, key: str) -> bytes:
    """Return the document of a node without what it holds of others, where those were parsed inside `parsed_once`."""
    if _PARSED.get() is None or isinstance(value, ParsedDocument):
        return value
    found = split_v3(value, key)
    return value if found is None else found[key]


@contextmanager
def parsed_once() -> Iterator[None]:
    """Parse a consolidated document once inside: a writer of a node looks at the same one several times."""
    token = _PARSED.set({}) if _PARSED.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _PARSED.reset(token)


_Parsed: TypeAlias = "tuple[bytes, dict[str, bytes]]"
_NOTHING: _Parsed = (b"", {})
_PARSED: ContextVar[dict[str, _Parsed] | None] = ContextVar("parsed", default=None)


def emit_v3(documents: Mapping[str, bytes], key: str = "zarr.json") -> bytes:
    """Return the document of the group at `key` with those of its descendants inline, flat, as zarr-python 3 does.

    Parameters
    ----------
    documents
        By full store key, the group's own among them.

    Raises
    ------
    MetadataError
        The group's own document is missing or not a group's.

    Examples
    --------
    >>> group = b'{"zarr_format": 3, "node_type": "group"}'
    >>> list(split_v3(emit_v3({"zarr.json": group, "a/zarr.json": group}), "zarr.json"))
    ['zarr.json', 'a/zarr.json']
    """
    if key not in documents:
        raise MetadataError(key=key, field="document", got="nothing", expected="the group's own document")
    own = parse_json(key, documents[key])
    if own.get("node_type") != "group":
        raise MetadataError(key=key, field="node_type", got=own.get("node_type"), expected="'group'")
    prefix = key.removesuffix("zarr.json")
    # parents before children: zarr-python hangs each entry into the one above it
    entries: dict[str, JSON] = {}
    for full in sorted(documents, key=lambda name: (name.count("/"), name)):
        if full != key and full.startswith(prefix) and full.endswith("/zarr.json"):
            content = parse_json(full, documents[full])
            if content.get("node_type") == "group":
                content["consolidated_metadata"] = {**_INLINE, "metadata": {}}
            entries[full.removeprefix(prefix).removesuffix("/zarr.json")] = content
    document = {**own, "consolidated_metadata": {**_INLINE, "metadata": entries}}
    return emit_json(key, document, indent=None)  # Python's JSON indents slowly


def _entries(key: str, document: Mapping[str, JSON]) -> Iterator[tuple[str, dict[str, JSON]]]:
    metadata: Any = document.get("metadata")
    if not isinstance(metadata, dict):
        raise MetadataError(key=key, field="metadata", got=metadata, expected="an object of documents")
    for name, content in metadata.items():
        if not isinstance(content, dict):
            raise MetadataError(key=key, field=f"metadata[{name!r:.80}]", got=content, expected="an object")
        yield name, content


def _check_path(key: str, path: str, barred: str = "") -> None:
    """Raise unless `path` is in canonical form: no empty, ``.`` or ``..`` segments, no `barred`."""
    ok = not path or _NOT_SEGMENTS.isdisjoint(path.split("/"))
    if not ok or "\0" in path or (barred and barred in path):
        raise MetadataError(key=key, field="metadata", got=path, expected="keys of nodes below the group")


_NOT_SEGMENTS = frozenset({"", ".", ".."})


def _document(content: dict[str, JSON]) -> ParsedDocument:
    document = ParsedDocument(json.dumps(content).encode())  # never stored, so that bare NaN may stay
    document.parsed = content
    return document
