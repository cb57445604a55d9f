"""Zarr v2: ``.zarray``, ``.zgroup``, ``.zattrs`` <-> the model.

Not here: codecs (`chunkmill.formats.zarr_v2_codecs`), ``.zmetadata`` (`chunkmill.formats.consolidated`).
Spec: Zarr storage specification version 2, "Metadata", "Hierarchies", "Attributes"; xarray's ``_ARRAY_DIMENSIONS`` and
NCZarr's dimension references besides.
Checked against: tests/golden/zarr_v2 (written by zarr-python 2 and 3, xarray, tensorstore and others).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats import consolidated
from chunkmill.formats.base import (
    check_chunk_shape,
    check_shape,
    described_once,
    emit_json,
    get_member,
    normalize_path,
    parse_json,
    split_dimension_names,
)
from chunkmill.formats.n5_compression import zarr_chain
from chunkmill.formats.zarr_v2_codecs import emit_chain, parse_chain
from chunkmill.model import fill_values
from chunkmill.model.dtypes import STRING, DType, emit_v2, parse_v2, to_native
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import JSON, ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NamedConfig

__all__ = ["ZarrV2"]

_VERSION = 2
_TEXT_CODECS = {"vlen-utf8", "numcodecs.categorize"}


@dataclass(frozen=True, slots=True)
class ZarrV2:
    """The Zarr v2 format.

    Parameters
    ----------
    separator_override
        The separator of chunk keys where ``.zarray`` does not say: very old nested stores have ``/`` and do not.

    Examples
    --------
    >>> document = b'''{"zarr_format": 2, "shape": [4], "chunks": [3], "dtype": ">i2", "fill_value": 7,
    ...                 "compressor": null, "filters": null, "order": "C"}'''
    >>> metadata = ZarrV2().parse_array("a", {"a/.zarray": document})
    >>> metadata.dtype.name, metadata.codecs[0].configuration, metadata.fill_value
    ('int16', {'endian': 'big'}, np.int16(7))
    """

    separator_override: Literal[".", "/"] | None = None
    empty_groups: ClassVar[bool] = False
    node_keys_known: ClassVar[bool] = True
    name: ClassVar[str] = "zarr2"
    default_codecs: ClassVar[str] = "default"
    masks_fill_value: ClassVar[bool] = True
    has_xarray_engine: ClassVar[bool] = True
    has_numcodecs: ClassVar[bool] = True
    names_in_axes: ClassVar[bool] = False
    has_bool: ClassVar[bool] = True
    has_fill_value: ClassVar[bool] = True
    level_metadata: ClassVar[str | None] = "0.4"
    default_chunk_keys: ClassVar[ChunkKeyEncoding] = ChunkKeyEncoding("", ".", "0")

    # ----------------------------------------------------------------------------------------------------------------
    # Keys

    def normalize_path(self, path: str) -> str:
        r"""Return `path` as the specification normalises it: ``\`` is ``/``, ``.`` and ``..`` are errors."""
        return normalize_path(path, backslash=True)

    def root_keys(self) -> tuple[str, ...]:
        """Return no keys: the root says nothing about the store."""
        return ()

    def configured(self, documents: Mapping[str, bytes]) -> ZarrV2:  # noqa: ARG002 - there are none
        """Return the format as it is."""
        return self

    def emit_root(self) -> dict[str, bytes]:
        """Return no documents: a root group has its own."""
        return {}

    def array_keys(self, path: str) -> tuple[str, ...]:
        """Keys of an array's documents, the required one first."""
        prefix = self.chunk_prefix(path)
        return f"{prefix}.zarray", f"{prefix}.zattrs"

    def group_keys(self, path: str) -> tuple[str, ...]:
        """Keys of a group's documents, the required one first."""
        prefix = self.chunk_prefix(path)
        return f"{prefix}.zgroup", f"{prefix}.zattrs"

    def chunk_prefix(self, path: str) -> str:
        """Return ``"path/"``, or nothing at the root."""
        return f"{path}/" if path else ""

    def list_prefixes(self, path: str) -> tuple[str, ...]:
        """Return the one prefix below which children are listed."""
        return (self.chunk_prefix(path),)

    def child_name(self, path: str, prefix: str, name: str) -> str | None:  # noqa: ARG002 - one prefix for all
        """Return the name of a sub-prefix: whether a node is there, its documents say."""
        child = name.removesuffix("/")
        return None if child in {name, "", ".", ".."} else child

    @property
    def implicit_groups(self) -> bool:
        """``False``: a group has a document, though arrays are opened without any above them."""
        return False

    # ----------------------------------------------------------------------------------------------------------------
    # Consolidated metadata

    @property
    def document_names(self) -> frozenset[str]:
        """Last segments of the keys of documents."""
        return consolidated.V2_DOCUMENTS

    def consolidated_key(self, path: str) -> str | None:
        """Return the key of ``.zmetadata``."""
        return f"{self.chunk_prefix(path)}.zmetadata"

    def parse_consolidated(self, path: str, value: bytes) -> dict[str, bytes] | None:
        """Return the documents in the ``.zmetadata`` at `path`, by full store key."""
        return consolidated.parse_v2(value, f"{self.chunk_prefix(path)}.zmetadata")

    def emit_consolidated(self, path: str, documents: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the ``.zmetadata`` at `path` that holds `documents`."""
        key = f"{self.chunk_prefix(path)}.zmetadata"
        return {key: consolidated.emit_v2(documents, key)}

    # ----------------------------------------------------------------------------------------------------------------
    # Groups

    def parse_group(self, path: str, documents: Mapping[str, bytes]) -> GroupMetadata | None:
        """Parse ``.zgroup`` and ``.zattrs``; ``None`` without the first."""
        key, attributes_key = self.group_keys(path)
        if (value := documents.get(key)) is None:
            return None
        _check_version(key, parse_json(key, value))
        return GroupMetadata(_parse_attributes(attributes_key, documents))

    def emit_group(self, path: str, metadata: GroupMetadata) -> dict[str, bytes]:
        """Return ``.zgroup`` and ``.zattrs``."""
        key, attributes_key = self.group_keys(path)
        return {
            key: emit_json(key, {"zarr_format": _VERSION}),
            attributes_key: emit_json(attributes_key, metadata.attributes),
        }

    # ----------------------------------------------------------------------------------------------------------------
    # Arrays

    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse ``.zarray`` and ``.zattrs``; ``None`` without the first. Members that v2 does not know are ignored."""
        key, attributes_key = self.array_keys(path)
        if (value := documents.get(key)) is None:
            return None
        content = (self.name, self.separator_override, bytes(value))
        described, document = described_once(content, lambda: self._describe(key, value))
        ndim = len(described.shape)
        names, attributes = split_dimension_names(_parse_attributes(attributes_key, documents), ndim)
        names = names if names is not None else _nczarr_names(document, attributes, ndim)
        return replace(described, dimension_names=names, attributes=attributes)

    def _describe(self, key: str, value: bytes) -> tuple[ArrayMetadata, Mapping[str, JSON]]:
        """Parse ``.zarray``; return it as well."""
        document = parse_json(key, value)
        _check_version(key, document)
        shape = check_shape(get_member(key, document, "shape", list), key=key)
        chunks = check_chunk_shape(get_member(key, document, "chunks", list), shape, key=key)
        stored = parse_v2(get_member(key, document, "dtype", (str, list)), key=key)
        codecs = parse_chain(_codecs(key, document), _order(key, document), stored, len(shape), key=key)
        serializer = _serializer(codecs)
        dtype = _native(stored, codecs)
        if "fill_value" not in document:
            raise MetadataError(key=key, field="fill_value", got="nothing", expected="a value or null")
        order_of_storage = dtype if dtype.kind == "T" else stored
        metadata = ArrayMetadata(
            dtype=dtype,
            chunk_grid=ChunkGrid.regular(shape, chunks),
            chunk_keys=self._chunk_keys(key, document),
            codecs=codecs,
            fill_value=fill_values.parse_v2(document["fill_value"], order_of_storage, key=key, serializer=serializer),
        )
        return metadata, document

    def _chunk_keys(self, key: str, document: Mapping[str, JSON]) -> ChunkKeyEncoding:
        separator = document.get("dimension_separator", self.separator_override or ".")
        if separator not in (".", "/"):  # a tuple: the value may be unhashable
            raise MetadataError(key=key, field="dimension_separator", got=separator, expected="'.' or '/'")
        return ChunkKeyEncoding("", separator, "0")

    def adapt(self, metadata: ArrayMetadata, path: str = "") -> ArrayMetadata:
        """Return the description as Zarr v2 stores it: its chunk keys, whole chunks at the edges.

        `UnsupportedFeature` for what v2 cannot say.
        """
        own = metadata.chunk_keys.prefix == "" and not metadata.chunk_keys.reverse
        adapted = replace(
            metadata,
            chunk_keys=metadata.chunk_keys if own else self.default_chunk_keys,
            codecs=zarr_chain(metadata.codecs, ("n5_block", "n5_default")),
            edge_chunks="padded",
        )
        found, _ = self._emit(path, adapted)
        stored = _bytes_codec(found.codecs)  # after a filter, in the byte order that the filter says
        codecs = tuple(codec if codec.name != "bytes" or stored is None else stored for codec in adapted.codecs)
        return replace(adapted, codecs=codecs)

    def emit_array(self, path: str, metadata: ArrayMetadata) -> dict[str, bytes]:
        """Return ``.zarray`` and ``.zattrs``; `UnsupportedFeature` for what they cannot say.

        Dimension names are written when every axis has one.
        """
        found, documents = self._emit(path, metadata)
        own, read = _endian(metadata.codecs), _endian(found.codecs)
        if None not in {own, read} and own != read:
            feature = f"a filter whose elements are {read} endian before bytes that are {own} endian"
            raise UnsupportedFeature(format=self.name, feature=feature, key=self.array_keys(path)[0])
        return documents

    def _emit(self, path: str, metadata: ArrayMetadata) -> tuple[ArrayMetadata, dict[str, bytes]]:
        """Return the documents of an array, and what is read from them: what cannot be read must not be written."""
        key, attributes_key = self.array_keys(path)
        _check_layout(key, metadata)
        order, filters, compressor, stored = emit_chain(metadata.codecs, metadata.dtype, len(metadata.shape), key=key)
        fill_dtype = metadata.dtype if metadata.dtype.kind == "T" else stored
        document = {
            "zarr_format": _VERSION,
            "shape": list(metadata.shape),
            "chunks": list(metadata.chunk_grid.chunk_shape),
            "dtype": emit_v2(stored, key=key),
            "compressor": compressor,
            "fill_value": fill_values.emit_v2(metadata.fill_value, fill_dtype, key=key),
            "order": order,
            "filters": filters or None,
            "dimension_separator": metadata.chunk_keys.separator,
        }
        attributes = dict(metadata.attributes)
        names = metadata.dimension_names
        if names is not None and None not in names:
            attributes["_ARRAY_DIMENSIONS"] = list(names)
        documents = {key: emit_json(key, document), attributes_key: emit_json(attributes_key, attributes)}
        return cast("ArrayMetadata", self.parse_array(path, documents)), documents


def _bytes_codec(codecs: Sequence[NamedConfig]) -> NamedConfig | None:
    return next((codec for codec in codecs if codec.name == "bytes"), None)


def _endian(codecs: Sequence[NamedConfig]) -> JSON:
    codec = _bytes_codec(codecs)
    return None if codec is None else codec.configuration.get("endian")


def _check_version(key: str, document: Mapping[str, JSON]) -> None:
    version = get_member(key, document, "zarr_format", (int, str))
    if version == str(_VERSION):  # webknossos
        warnings.warn("zarr_format is the text '2' in a document of Zarr v2, read as 2", UserWarning, stacklevel=2)
    elif version != _VERSION:
        raise MetadataError(key=key, field="zarr_format", got=version, expected="2")


def _parse_attributes(key: str, documents: Mapping[str, bytes]) -> dict[str, JSON]:
    value = documents.get(key)
    return {} if value is None else parse_json(key, value)


def _order(key: str, document: Mapping[str, JSON]) -> str:
    order: str = get_member(key, document, "order", str)
    if order not in {"C", "F"}:
        raise MetadataError(key=key, field="order", got=order, expected="'C' or 'F'")
    return order


def _codecs(key: str, document: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    """Return filters and compressor in encode order."""
    filters = document.get("filters") or []  # absent in real files, though required
    compressor = get_member(key, document, "compressor", (dict, type(None)))
    if not isinstance(filters, list) or not all(isinstance(codec, dict) for codec in filters):
        raise MetadataError(key=key, field="filters", got=filters, expected="null or a list of objects")
    return filters if compressor is None else [*filters, compressor]


def _serializer(codecs: tuple[NamedConfig, ...]) -> str:
    return "vlen-bytes" if any(codec.name == "vlen-bytes" for codec in codecs) else ""


def _native(stored: DType, codecs: tuple[NamedConfig, ...]) -> DType:
    """Return the dtype of the model; ``|O`` is text where its codec holds nothing else."""
    if stored.kind == "O" and any(codec.name in _TEXT_CODECS for codec in codecs):
        return STRING
    return to_native(stored)


def _check_layout(key: str, metadata: ArrayMetadata) -> None:
    keys = metadata.chunk_keys
    lost: str | None = None
    if not metadata.chunk_grid.is_regular:
        lost = "chunks of unequal length"
    elif metadata.edge_chunks != "padded":
        lost = "truncated chunks at the edge"
    elif keys.prefix or keys.reverse or keys.scalar != "0":
        lost = f"chunk keys like {keys.encode((0,) * len(metadata.shape))!r}"
    if lost is not None:
        raise UnsupportedFeature(format=ZarrV2.name, feature=lost, key=key)


def _nczarr_names(
    document: Mapping[str, JSON], attributes: Mapping[str, JSON], ndim: int
) -> tuple[str | None, ...] | None:
    """Return dimension names as netCDF-C writes them: full paths, in ``.zattrs`` or, before 4.9.3, in ``.zarray``."""
    candidates: list[Any] = [
        attributes.get("_nczarr_array"),
        document.get("_nczarr_array"),
        document.get("_NCZARR_ARRAY"),
    ]
    for candidate in candidates:
        if not isinstance(candidate, dict):
            continue
        references = candidate.get("dimrefs", candidate.get("dimension_references"))
        if (
            isinstance(references, list)
            and len(references) == ndim
            and all(isinstance(reference, str) for reference in references)
        ):
            return tuple(reference.rsplit("/", 1)[-1] for reference in references)
    return None
