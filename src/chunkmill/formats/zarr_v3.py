"""Zarr v3: ``zarr.json`` <-> the model.

Not here: ``codecs`` (`chunkmill.formats.zarr_v3_codecs`), inline consolidated metadata
(`chunkmill.formats.consolidated`), the draft of 2022 (`chunkmill.formats.zarr_v3_draft`).
Spec: Zarr v3 core 3.0 and 3.1, "Metadata"; rectilinear chunk grid of zarr-extensions. Read: short-hand names and older
spellings. Written: the object form of 3.0 with every parameter, which all peers read.
Checked against: tests/golden/zarr_v3 (written by zarr-python 3, tensorstore, zarrs and by hand).
"""

from __future__ import annotations

import marshal
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import gcd, prod
from typing import Any, ClassVar, Literal

from chunkmill.config import setting
from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats import consolidated
from chunkmill.formats.base import (
    MAX_SIZE,
    Format,
    check_chunk_shape,
    check_shape,
    described_once,
    emit_json,
    get_attributes,
    get_member,
    normalize_path,
    parse_json,
    split_dimension_names,
)
from chunkmill.formats.n5 import zarr_chain
from chunkmill.formats.zarr_v3_codecs import byte_order_of, emit_chain, for_peers, named, parse_chain
from chunkmill.model import fill_values
from chunkmill.model.dtypes import DType, emit_v3, parse_v3
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import JSON, ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NamedConfig, StructName
from chunkmill.model.user_values import zero

_VERSION = 3
_ODD = {"consolidated_metadata"}  # zarr-python 3.0 wrote null; the one member that needs no must_understand
_GROUP = {"zarr_format", "node_type", "attributes"} | _ODD
_ARRAY = _GROUP | {
    "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs", "dimension_names",
    "storage_transformers",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ZarrV3(Format):
    """The Zarr v3 format.

    Examples
    --------
    >>> document = b'''{"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "float32",
    ...     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}, "chunk_key_encoding": "default",
    ...     "fill_value": "0x7fc12345", "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}'''
    >>> metadata = ZarrV3().parse_array("a", {"a/zarr.json": document})
    >>> metadata.chunk_keys.encode((1,)), hex(metadata.fill_value.view("u4"))
    ('c/1', '0x7fc12345')
    """

    name: ClassVar[str] = "zarr3"
    has_xarray_engine: ClassVar[bool] = True
    level_metadata: ClassVar[str | None] = "0.5"
    document_names: ClassVar[frozenset[str]] = consolidated.V3_DOCUMENTS
    default_chunk_keys: ClassVar[ChunkKeyEncoding] = ChunkKeyEncoding("c/", "/", "c")

    # ----------------------------------------------------------------------------------------------------------------
    # Keys

    def normalize_path(self, path: str) -> str:
        r"""Return `path` without superfluous slashes; ``\`` is an ordinary character.

        `MetadataError` for names that lead elsewhere: periods only, ``zarr.json``. Names that begin with ``__``, which
        the specification reserves, are names like others: xarray's default for an array without a name is one.
        """
        normalized = normalize_path(path)
        for name in normalized.split("/") if normalized else ():
            if not _may_be_node(name):
                expected = "names that are not 'zarr.json' and not of periods only"
                raise MetadataError(key=path, field="path", got=path, expected=expected)
        return normalized

    def array_keys(self, path: str) -> tuple[str, ...]:
        """Key of the one document of a node."""
        return (f"{self.chunk_prefix(path)}zarr.json",)

    def child_name(self, path: str, prefix: str, name: str) -> str | None:  # noqa: ARG002 - one prefix for all
        """Return the name of a sub-prefix that may be a node: whether it is, its document says."""
        child = name.removesuffix("/")
        return child if child != name and _may_be_node(child) else None

    # ----------------------------------------------------------------------------------------------------------------
    # Consolidated metadata

    def consolidated_key(self, path: str) -> str | None:
        """Return the key of the group's own document: consolidated metadata are inline."""
        return self.group_keys(path)[0]

    def parse_consolidated(self, path: str, value: bytes) -> dict[str, bytes] | None:
        """Return the documents that the group at `path` holds inline, by full store key, its own among them."""
        (key,) = self.group_keys(path)
        if not _holds_others(value):  # most nodes
            parse_json(key, value)
            return None
        return consolidated.split_v3(value, key)

    def emit_consolidated(self, path: str, documents: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the document of the group at `path`, which is among `documents`, with all of them inline."""
        (key,) = self.group_keys(path)
        return {key: consolidated.emit_v3(documents, key)}

    # ----------------------------------------------------------------------------------------------------------------
    # Groups

    def parse_group(self, path: str, documents: Mapping[str, bytes]) -> GroupMetadata | None:
        """Parse ``zarr.json``; ``None`` when it is absent, an array's, or of the draft."""
        (key,) = self.group_keys(path)
        document = _node(key, documents, "group")
        if document is None:
            return None
        _check_members(key, document, _GROUP)
        return GroupMetadata(get_attributes(key, document))

    def emit_group(self, path: str, metadata: GroupMetadata) -> dict[str, bytes]:
        """Return ``zarr.json``."""
        (key,) = self.group_keys(path)
        document = {"zarr_format": _VERSION, "node_type": "group", "attributes": dict(metadata.attributes)}
        return {key: emit_json(key, document)}

    # ----------------------------------------------------------------------------------------------------------------
    # Arrays

    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse ``zarr.json``; ``None`` when it is absent, a group's, or of the draft."""
        (key,) = self.array_keys(path)
        document = _node(key, documents, "array")
        if document is None:
            return None
        rest = {name: value for name, value in document.items() if name not in {"attributes", "dimension_names"}}
        # version 2: without references between equal objects, so that equal documents give equal bytes
        described = described_once(marshal.dumps((self.name, rest), 2), lambda: self._describe(key, document))
        names, attributes = _dimension_names(key, document, len(described.shape))
        return replace(described, dimension_names=names, attributes=attributes)

    def _describe(self, key: str, document: Mapping[str, JSON]) -> ArrayMetadata:
        """Parse what a document says besides attributes and dimension names."""
        _check_members(key, document, _ARRAY)
        shape = check_shape(get_member(key, document, "shape", list), key=key)
        data_type = get_member(key, document, "data_type", (str, dict))
        dtype = parse_v3(data_type, key=key)
        grid, lengths = _parse_grid(key, document, shape, dtype.itemsize)
        lax = dtype.fields is not None or dtype.kind == "U"
        codecs = parse_chain(get_member(key, document, "codecs", list), dtype, lengths, lax=lax, key=key)
        order = byte_order_of(codecs)
        return ArrayMetadata(
            dtype=dtype,
            chunk_grid=grid,
            chunk_keys=parse_chunk_keys(key, document),
            codecs=codecs,
            fill_value=fill_values.parse_v3(document.get("fill_value"), dtype, key=key, order=order),
            struct_name=_struct_name(data_type),
        )

    def adapt(self, metadata: ArrayMetadata, path: str = "") -> ArrayMetadata:
        """Return the description as Zarr v3 stores it: default chunk keys, whole chunks at the edges, a fill value.

        Structured types have the name that the setting ``struct-name`` chooses. `UnsupportedFeature` for what v3 cannot
        say.
        """
        codecs = for_peers(zarr_chain(metadata.codecs))
        keys = metadata.chunk_keys if metadata.chunk_keys.prefix in {"c/", "c."} else self.default_chunk_keys
        chosen = setting("struct-name")
        struct_name = metadata.struct_name if chosen == "keep" or metadata.dtype.names is None else chosen
        adapted = replace(
            metadata,
            chunk_keys=keys,
            codecs=codecs,
            edge_chunks="padded",
            fill_value=_defined(metadata.fill_value, metadata.dtype, codecs),
            struct_name=struct_name,
        )
        self.emit_array(path, adapted)
        return adapted

    def emit_array(self, path: str, metadata: ArrayMetadata) -> dict[str, bytes]:
        """Return ``zarr.json``; `UnsupportedFeature` for what it cannot say.

        An undefined fill value becomes zeros, since v3 has no null: that is what it reads as already.
        """
        (key,) = self.array_keys(path)
        if metadata.edge_chunks != "padded":
            raise UnsupportedFeature(format=self.name, feature="truncated chunks at the edge", key=key)
        codecs = emit_chain(metadata.codecs, key=key)
        value = _defined(metadata.fill_value, metadata.dtype, metadata.codecs)
        document: dict[str, JSON] = {
            "zarr_format": _VERSION,
            "node_type": "array",
            "shape": list(metadata.shape),
            "data_type": emit_v3(metadata.dtype, key=key, struct_name=metadata.struct_name),
            "chunk_grid": _emit_grid(metadata.chunk_grid),
            "chunk_key_encoding": _emit_chunk_keys(key, metadata),
            "fill_value": _emit_fill_value(value, metadata, key),
            "codecs": codecs,
            "attributes": dict(metadata.attributes),
            "storage_transformers": [],
        }
        if metadata.dimension_names is not None:
            document |= _emit_dimension_names(metadata.dimension_names, metadata.attributes)
        documents = {key: emit_json(key, document)}
        self.parse_array(path, documents)  # what cannot be read must not be written
        return documents


def _defined(value: Any, dtype: DType, codecs: Sequence[NamedConfig]) -> Any:
    """Return a fill value; of an undefined one, what absent chunks read as."""
    serializer = "vlen-bytes" if any(codec.name == "vlen-bytes" for codec in codecs) else ""
    return zero(dtype, serializer) if value is None else value


def _struct_name(data_type: JSON) -> StructName:
    name = data_type.get("name") if isinstance(data_type, dict) else None
    return "structured" if name == "structured" else "struct"


def _emit_fill_value(value: Any, metadata: ArrayMetadata, key: str) -> JSON:
    if metadata.dtype.names is None or metadata.struct_name == "struct":
        return fill_values.emit_v3(value, metadata.dtype, key=key)
    return fill_values.emit_v3_bytes(value, metadata.dtype, key=key, order=byte_order_of(metadata.codecs))


def _may_be_node(name: str) -> bool:
    return name.strip(".") != "" and name != "zarr.json"


def _holds_others(value: bytes) -> bool:
    return b"consolidated_metadata" in value or b"\\u" in value


def _node(key: str, documents: Mapping[str, bytes], wanted: Literal["array", "group"]) -> dict[str, JSON] | None:
    """Return the document of a node of the `wanted` type; ``None`` when there is no such node of this format."""
    if (value := documents.get(key)) is None:
        return None
    document = parse_json(key, consolidated.own_document(value, key) if _holds_others(value) else value)
    version = get_member(key, document, "zarr_format", (int, str))
    if isinstance(version, str):  # the draft of May 2022: the entry point of a store, with an address for a version
        return None
    if version != _VERSION:
        raise MetadataError(key=key, field="zarr_format", got=version, expected="3")
    node_type = get_member(key, document, "node_type", str)
    if node_type not in {"array", "group"}:
        raise MetadataError(key=key, field="node_type", got=node_type, expected="'array' or 'group'")
    return document if node_type == wanted else None


def _check_members(key: str, document: Mapping[str, JSON], known: set[str]) -> None:
    for name, value in document.items():
        if name not in known and not (isinstance(value, dict) and value.get("must_understand") is False):
            raise UnsupportedFeature(format=ZarrV3.name, feature=f"member {name[:80]!r}, to be understood", key=key)
    transformers = document.get("storage_transformers", [])
    if not isinstance(transformers, list) or transformers:  # none is defined
        raise UnsupportedFeature(format=ZarrV3.name, feature="storage transformers", key=key)


def _dimension_names(
    key: str, document: Mapping[str, JSON], ndim: int
) -> tuple[tuple[str | None, ...] | None, dict[str, JSON]]:
    attributes = get_attributes(key, document)
    names = document.get("dimension_names")
    if names is None:
        return split_dimension_names(attributes, ndim)  # xarray's way of v2, in early stores
    if not isinstance(names, list) or len(names) != ndim or not all(n is None or isinstance(n, str) for n in names):
        expected = f"a name or null for each of {ndim} axes"
        raise MetadataError(key=key, field="dimension_names", got=names, expected=expected)
    full = attributes.get("_ARRAY_DIMENSIONS")
    if full != names and isinstance(full, list) and _distinct(full) == names:
        return tuple(full), {name: value for name, value in attributes.items() if name != "_ARRAY_DIMENSIONS"}
    return tuple(names), attributes


def _emit_dimension_names(names: Sequence[str | None], attributes: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return ``dimension_names``; names that occur twice are in xarray's attribute: TensorStore refuses them here."""
    distinct = _distinct(names)
    if distinct == list(names) or "_ARRAY_DIMENSIONS" in attributes:
        return {"dimension_names": list(names)}
    text = "a dimension name occurs twice: it is written once and as null, with all names in _ARRAY_DIMENSIONS"
    warnings.warn(text, UserWarning, stacklevel=2)
    return {"dimension_names": distinct, "attributes": {**attributes, "_ARRAY_DIMENSIONS": list(names)}}


def _distinct(names: Sequence[Any]) -> list[Any]:
    """Return the names with ``None`` for each that occurs before.

    >>> _distinct(["x", "y", "x"])
    ['x', 'y', None]
    """
    return [None if name in names[:i] else name for i, name in enumerate(names)]


# --------------------------------------------------------------------------------------------------------------------
# Chunk grid


def _parse_grid(
    key: str, document: Mapping[str, JSON], shape: Sequence[int], itemsize: int
) -> tuple[ChunkGrid, tuple[int, ...]]:
    """Return the grid and, for each axis, the greatest length that divides every chunk length of it."""
    grid = named(document.get("chunk_grid"), key=key, field="chunk_grid")
    field = "chunk_grid.configuration"
    if grid.name == "regular":
        lengths = get_member(key, grid.configuration, "chunk_shape", list)
        if not any(isinstance(length, list) for length in lengths):
            chunks = check_chunk_shape(lengths, shape, key=key, field=f"{field}.chunk_shape")
            return ChunkGrid.regular(shape, chunks), chunks
        # zarr-python 3.2 wrote rectilinear grids under this name
    elif grid.name == "rectilinear":
        if grid.configuration.get("kind") != "inline":
            raise UnsupportedFeature(format=ZarrV3.name, feature="a rectilinear grid that is not inline", key=key)
        lengths = get_member(key, grid.configuration, "chunk_shapes", list)
    else:
        raise UnsupportedFeature(format=ZarrV3.name, feature=f"chunk grid {grid.name[:80]!r}", key=key)
    if len(lengths) != len(shape):
        raise MetadataError(key=key, field=field, got=lengths, expected=f"lengths for each of {len(shape)} axes")
    axes = tuple(_parse_axis(key, size, length) for size, length in zip(shape, lengths, strict=True))
    if (n_bytes := prod(axis.widest for axis in axes) * itemsize) > MAX_SIZE:
        raise MetadataError(key=key, field=field, got=lengths, expected=f"smaller chunks than {n_bytes} bytes")
    return ChunkGrid(axes), tuple(_divisor(axis) for axis in axes)


def _parse_axis(key: str, size: int, lengths: JSON) -> RegularAxis | RunsAxis:
    field = "chunk_grid.configuration.chunk_shapes"
    if not isinstance(lengths, list):
        (chunk,) = check_chunk_shape([lengths], (size,), key=key, field=field)
        return RegularAxis(size, chunk)
    pairs = [item if isinstance(item, list) else [item, 1] for item in lengths]
    for pair in pairs:
        ok = len(pair) == 2 and all(type(n) is int and 0 < n <= MAX_SIZE for n in pair)  # noqa: PLR2004 - a pair
        if not ok:
            raise MetadataError(key=key, field=field, got=pair, expected="a length or [length, count], both positive")
    # kept as runs, and equal neighbours as one: [1, 10**12] is two numbers, not a terabyte (zarrs aborts on it)
    runs = tuple((length, sum(n for _, n in group)) for length, group in groupby(pairs, key=lambda pair: pair[0]))
    total = sum(length * count for length, count in runs)
    if total > MAX_SIZE:
        raise MetadataError(key=key, field=field, got=lengths, expected="lengths of at most 2**63-1 altogether")
    if total < size:
        raise MetadataError(key=key, field=field, got=lengths, expected=f"lengths that cover the {size} of the axis")
    return RunsAxis(size, runs)


def _divisor(axis: RegularAxis | RunsAxis) -> int:
    return axis.chunk if isinstance(axis, RegularAxis) else gcd(*(length for length, _ in axis.runs))


def _emit_grid(grid: ChunkGrid) -> JSON:
    if grid.is_regular:
        return {"name": "regular", "configuration": {"chunk_shape": list(grid.chunk_shape)}}
    shapes: list[JSON] = []
    for axis in grid.axes:
        if isinstance(axis, RegularAxis):
            shapes.append(axis.chunk)
        else:
            shapes.append([length if count == 1 else [length, count] for length, count in axis.runs])
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}


# --------------------------------------------------------------------------------------------------------------------
# Chunk keys


def parse_chunk_keys(key: str, document: Mapping[str, JSON]) -> ChunkKeyEncoding:
    """Return the chunk keys of an array document."""
    encoding = named(document.get("chunk_key_encoding"), key=key, field="chunk_key_encoding")
    if encoding.name not in {"default", "v2"}:
        feature = f"chunk key encoding {encoding.name[:80]!r}"
        raise UnsupportedFeature(format=ZarrV3.name, feature=feature, key=key)
    # mind the two defaults
    separator = encoding.configuration.get("separator", "/" if encoding.name == "default" else ".")
    if separator not in (".", "/") or set(encoding.configuration) - {"separator"}:  # a tuple: may be unhashable
        got = dict(encoding.configuration)
        raise MetadataError(
            key=key, field="chunk_key_encoding.configuration", got=got, expected="separator: '.' or '/'"
        )
    if encoding.name == "v2":
        return ChunkKeyEncoding("", separator, "0")
    return ChunkKeyEncoding(f"c{separator}", separator, "c")


def _emit_chunk_keys(key: str, metadata: ArrayMetadata) -> JSON:
    keys = metadata.chunk_keys
    separator = keys.separator
    if keys == ChunkKeyEncoding(f"c{separator}", separator, "c"):
        return {"name": "default", "configuration": {"separator": separator}}
    if keys == ChunkKeyEncoding("", separator, "0"):
        return {"name": "v2", "configuration": {"separator": separator}}
    example = keys.encode((0,) * len(metadata.shape))
    raise UnsupportedFeature(format=ZarrV3.name, feature=f"chunk keys like {example!r}", key=key)
