"""Zarr v3 as drafted on 25 May 2022: an entry point, ``meta/`` and ``data/``.

Not here: codecs (`chunkmill.formats.zarr_v3_draft_codecs`), data types and fill values
(`chunkmill.formats.zarr_v3_draft_codecs`), the layout of zarr-python 2's
experimental version 3 (`chunkmill.formats.zarr_v3_experimental`), final Zarr v3 (`chunkmill.formats.zarr_v3`).

Spec: zarr-specs, core protocol v3.0, editor's draft of 25 May 2022.
Checked against: tests/golden/zarr_v3_draft/hand-1 (nobody is known to write this very draft).

Two places where the draft says two things: the key of an array in a listing example (that of "Storage keys" is right),
and a datetime example whose ``fill_value`` is the null that the text forbids (it is refused).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import (
    WithoutConsolidated,
    check_chunk_shape,
    check_shape,
    emit_json,
    get_member,
    normalize_path,
    parse_json,
    split_dimension_names,
)
from chunkmill.formats.consolidated import own_document
from chunkmill.formats.n5 import zarr_chain
from chunkmill.formats.zarr_v3_draft_codecs import (
    emit_codecs,
    emit_data_type,
    emit_fill_value,
    parse_codecs,
    parse_data_type,
    parse_fill_value,
    parse_layout,
)
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import JSON, ArrayMetadata, ChunkKeyEncoding, GroupMetadata

__all__ = [
    "ZarrV3Draft",
    "chunk_keys",
    "node_path",
    "parse_grid",
    "require_understood",
]

_ENTRY = "zarr.json"
_CORE = "https://purl.org/zarr/spec/core/3.0"
_PROTOCOL = re.compile(r"https?://purl\.org/zarr/spec/protocol/core/3\.\d+")  # zarr-python 2's experiment
_VERSION = re.compile(r"https?://purl\.org/zarr/spec/core/(\d{1,9})\.(\d{1,9})", re.ASCII)

_NODE_NAME = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]+", re.ASCII)
_SUFFIX = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)

_ENTRY_MEMBERS = {"zarr_format", "metadata_encoding", "extensions"}
_ARRAY_MEMBERS = {
    "shape", "data_type", "chunk_grid", "chunk_memory_layout", "fill_value", "extensions", "attributes", "codecs",
    "storage_transformers",
}  # fmt: skip
_DIMENSIONS = "_ARRAY_DIMENSIONS"  # xarray's attribute: the draft has no names for dimensions


def chunk_keys(separator: JSON) -> ChunkKeyEncoding:
    """Return the draft's chunk keys: the ``c`` is glued to the first index, ``c1/0``, and alone is a 0-d array's."""
    if separator not in {"/", "."}:
        raise ValueError(f"separator is {separator!r}, not '/' or '.'")
    return ChunkKeyEncoding("c", separator, "c")


@dataclass(frozen=True, slots=True)
class ZarrV3Draft(WithoutConsolidated):
    """The draft, as one store's entry point configures it.

    `suffix` ends the keys of metadata. `lenient`: the store is of a later minor version, whose unknown members "can
    be safely ignored".

    Examples
    --------
    >>> draft = ZarrV3Draft()
    >>> draft.array_keys("foo/baz"), draft.chunk_prefix("foo/baz")
    (('meta/foo/baz.array.json',), 'data/foo/baz/')
    """

    suffix: str = ".json"
    lenient: bool = False
    name: ClassVar[str] = "zarr3-draft"
    default_codecs: ClassVar[str] = "gzip"
    masks_fill_value: ClassVar[bool] = False
    has_xarray_engine: ClassVar[bool] = False
    has_numcodecs: ClassVar[bool] = False
    names_in_axes: ClassVar[bool] = False
    has_bool: ClassVar[bool] = True
    has_fill_value: ClassVar[bool] = True
    level_metadata: ClassVar[str | None] = None
    empty_groups: ClassVar[bool] = False
    node_keys_known: ClassVar[bool] = False  # their suffix stands in the entry point
    document_names: ClassVar[frozenset[str]] = frozenset()
    default_chunk_keys: ClassVar[ChunkKeyEncoding] = ChunkKeyEncoding("c", "/", "c")

    def normalize_path(self, path: str) -> str:
        """Return `path` without superfluous slashes; `MetadataError` for names the draft does not allow."""
        return node_path(path)

    def root_keys(self) -> tuple[str, ...]:
        """Return the key of the entry point."""
        return (_ENTRY,)

    def configured(self, documents: Mapping[str, bytes]) -> ZarrV3Draft | None:
        """Return the draft as the entry point wants it; ``None`` when there is none, or one of another format.

        Raises `MetadataError` for an entry point that is of no known format, and its kind `UnsupportedFeature` for
        another major version or an extension that must be understood.
        """
        if (value := documents.get(_ENTRY)) is None:
            return None
        document = parse_json(_ENTRY, own_document(value, _ENTRY))
        version = document.get("zarr_format")
        if not isinstance(version, str) or _PROTOCOL.fullmatch(version):
            return None  # final v3 has the number 3 here
        if (found := _VERSION.fullmatch(version)) is None:
            raise MetadataError(key=_ENTRY, field="zarr_format", got=version, expected=_CORE)
        if found[1] != "3":
            raise UnsupportedFeature(format=self.name, feature=f"core version {found[1]}.{found[2]}", key=_ENTRY)
        lenient = int(found[2]) > 0
        if not lenient:
            _refuse_unknown(_ENTRY, document, _ENTRY_MEMBERS)
        require_understood(_ENTRY, document, self.name)
        return replace(self, suffix=_parse_encoding(document), lenient=lenient)

    def emit_root(self) -> dict[str, bytes]:
        """Return the entry point."""
        encoding = {"type": "json", "metadata_key_suffix": self.suffix}
        return {_ENTRY: emit_json(_ENTRY, {"zarr_format": _CORE, "metadata_encoding": encoding, "extensions": []})}

    def array_keys(self, path: str) -> tuple[str, ...]:
        """Return ``meta/<path>.array.json``, at the root ``meta/array.json``."""
        return (f"meta/{path}.array{self.suffix}" if path else f"meta/array{self.suffix}",)

    def group_keys(self, path: str) -> tuple[str, ...]:
        """Return ``meta/<path>.group.json``, at the root ``meta/group.json``."""
        return (f"meta/{path}.group{self.suffix}" if path else f"meta/group{self.suffix}",)

    def chunk_prefix(self, path: str) -> str:
        """Return ``data/<path>/``."""
        return f"data/{path}/" if path else "data/"

    def list_prefixes(self, path: str) -> tuple[str, ...]:
        """Return ``meta/<path>/``: the data tell nothing of the hierarchy."""
        return (f"meta/{path}/" if path else "meta/",)

    def child_name(self, path: str, prefix: str, name: str) -> str | None:  # noqa: ARG002 - Format
        """Return the node of a document or of a prefix, which is an implicit group."""
        for ending in ("/", f".array{self.suffix}", f".group{self.suffix}"):
            if name.endswith(ending):
                child = name.removesuffix(ending)
                return child if _NODE_NAME.fullmatch(child) else None
        return None

    @property
    def implicit_groups(self) -> bool:
        """Every ancestor of a node is a group."""
        return True

    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse an array; ``None`` when its document is absent."""
        (key,) = self.array_keys(path)
        if (value := documents.get(key)) is None:
            return None
        document = parse_json(key, value)
        if not self.lenient:
            _refuse_unknown(key, document, _ARRAY_MEMBERS)
        require_understood(key, document, self.name)
        if document.get("storage_transformers", []) != []:
            raise UnsupportedFeature(format=self.name, feature="storage transformers (none is known)", key=key)
        grid, keys = parse_grid(key, document)
        dtype, endian = parse_data_type(key, document.get("data_type"))
        filters = parse_layout(key, document, grid.ndim)
        codecs = parse_codecs(key, document.get("codecs", []), dtype, endian)
        names, attributes = split_dimension_names(_parse_attributes(key, document), grid.ndim)
        return ArrayMetadata(
            dtype=dtype,
            chunk_grid=grid,
            chunk_keys=keys,
            codecs=(*filters, *codecs),
            fill_value=parse_fill_value(key, get_member(key, document, "fill_value", (object, bool)), dtype),
            dimension_names=names,
            attributes=attributes,
        )

    def adapt(self, metadata: ArrayMetadata, path: str = "") -> ArrayMetadata:
        """Return the description as the draft stores it: in its chunk keys, with zero for an undefined fill value.

        `UnsupportedFeature` for what the draft cannot say.
        """
        fill_value = metadata.fill_value
        if fill_value is None and metadata.dtype.kind in "biufcV":
            fill_value = np.zeros((), metadata.dtype)[()]
        adapted = replace(
            metadata,
            chunk_keys=chunk_keys(metadata.chunk_keys.separator),
            codecs=zarr_chain(metadata.codecs),
            edge_chunks="padded",
            fill_value=fill_value,
        )
        self.emit_array(path, adapted)
        return adapted

    def emit_array(self, path: str, metadata: ArrayMetadata) -> dict[str, bytes]:
        """Return the document of an array.

        `UnsupportedFeature` for what the draft cannot say: other dtypes, codecs besides ``bytes``, ``gzip`` and
        ``blosc`` (and the transpose that is layout F), shards, an undefined fill value. Dimension names go into the
        attribute `_ARRAY_DIMENSIONS`, as xarray has it.
        """
        (key,) = self.array_keys(path)
        grid, keys = metadata.chunk_grid, metadata.chunk_keys
        if not grid.is_regular or metadata.edge_chunks != "padded":
            feature = "chunks of different declared shapes, or cropped at the end of an axis"
            raise UnsupportedFeature(format=self.name, feature=feature, key=key)
        if keys != chunk_keys(keys.separator):
            raise UnsupportedFeature(format=self.name, feature=f"chunk keys like {keys}", key=key)
        layout, codecs = emit_codecs(key, metadata.codecs, grid.ndim)
        document = {
            "shape": list(grid.shape),
            "data_type": emit_data_type(key, metadata.dtype),
            "chunk_grid": {"type": "regular", "chunk_shape": list(grid.chunk_shape), "separator": keys.separator},
            "chunk_memory_layout": layout,
            "codecs": codecs,
            "fill_value": emit_fill_value(key, metadata.fill_value, metadata.dtype),
            "extensions": [],
            "attributes": _attributes_with_names(key, metadata),
        }
        return {key: emit_json(key, document)}

    def parse_group(self, path: str, documents: Mapping[str, bytes]) -> GroupMetadata | None:
        """Parse an explicit group; ``None`` when its document is absent."""
        (key,) = self.group_keys(path)
        if (value := documents.get(key)) is None:
            return None
        document = parse_json(key, value)
        if not self.lenient:
            _refuse_unknown(key, document, {"attributes"})
        return GroupMetadata(_parse_attributes(key, document))

    def emit_group(self, path: str, metadata: GroupMetadata) -> dict[str, bytes]:
        """Return the document of a group."""
        (key,) = self.group_keys(path)
        return {key: emit_json(key, {"attributes": dict(metadata.attributes)})}


def node_path(path: str) -> str:
    """Return the canonical form of a path; `MetadataError` for names besides ``A-Z a-z 0-9 . _ -``."""
    path = normalize_path(path)
    for name in path.split("/") if path else ():
        if not _NODE_NAME.fullmatch(name):
            expected = "names of the characters A-Z a-z 0-9 . _ -, not of periods alone"
            raise MetadataError(key=path, field="path", got=path, expected=expected)
    return path


def require_understood(key: str, document: Mapping[str, JSON], format_name: str) -> None:
    """Refuse extensions that may not be ignored: none is known here. An absent list counts as empty."""
    extensions = document.get("extensions", [])
    if not isinstance(extensions, list) or not all(isinstance(item, dict) for item in extensions):
        raise MetadataError(key=key, field="extensions", got=extensions, expected="a list of objects")
    for item in extensions:
        if item.get("must_understand") is not False:
            raise UnsupportedFeature(format=format_name, feature=f"extension {item.get('extension')!r}", key=key)


def _refuse_unknown(key: str, document: Mapping[str, JSON], known: set[str]) -> None:
    # "An implementation must fail to open zarr hierarchies, groups or arrays with unknown metadata fields."
    if unknown := sorted(document.keys() - known):
        raise MetadataError(key=key, field="document", got=unknown, expected=f"no members besides {sorted(known)}")


def _parse_encoding(document: Mapping[str, JSON]) -> str:
    encoding = get_member(_ENTRY, document, "metadata_encoding", dict)
    if "extension" in encoding or encoding.get("type") != "json":
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"metadata encoding {encoding}"[:200], key=_ENTRY)
    suffix = get_member(_ENTRY, encoding, "metadata_key_suffix", str)
    if not _SUFFIX.fullmatch(suffix):
        raise MetadataError(
            key=_ENTRY, field="metadata_key_suffix", got=suffix, expected="characters A-Z a-z 0-9 . _ -"
        )
    return str(suffix)


def _parse_attributes(key: str, document: Mapping[str, JSON]) -> dict[str, JSON]:
    attributes: dict[str, JSON] = get_member(key, {"attributes": {}, **document}, "attributes", dict)
    return attributes


def _attributes_with_names(key: str, metadata: ArrayMetadata) -> dict[str, JSON]:
    attributes = dict(metadata.attributes)
    if metadata.dimension_names is None:
        return attributes
    names = list(metadata.dimension_names)
    if not all(isinstance(name, str) for name in names):
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"dimension names {names}, some absent", key=key)
    if attributes.setdefault(_DIMENSIONS, names) != names:
        feature = f"dimension names {names} with an attribute {_DIMENSIONS!r} that says otherwise"
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=feature, key=key)
    return attributes


def parse_grid(key: str, document: Mapping[str, JSON]) -> tuple[ChunkGrid, ChunkKeyEncoding]:
    """Return the regular grid of an array document and its chunk keys."""
    shape = check_shape(get_member(key, document, "shape", list), key=key)
    grid = get_member(key, document, "chunk_grid", dict)
    if "extension" in grid or grid.get("type") != "regular":
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"chunk grid {grid}"[:200], key=key)
    if unknown := sorted(grid.keys() - {"type", "chunk_shape", "separator"}):
        raise MetadataError(key=key, field="chunk_grid", got=unknown, expected="type, chunk_shape and separator")
    sizes = get_member(key, grid, "chunk_shape", list)
    chunk_shape = check_chunk_shape(sizes, shape, key=key, field="chunk_shape")
    try:
        return ChunkGrid.regular(shape, chunk_shape), chunk_keys(grid.get("separator", "/"))
    except (ValueError, TypeError):  # TypeError: a list is not hashable
        got = grid.get("separator")
        raise MetadataError(key=key, field="separator", got=got, expected="'/' or '.'") from None
