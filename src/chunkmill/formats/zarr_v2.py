"""Zarr v2: ``.zarray``, ``.zgroup``, ``.zattrs`` <-> the model.

v2 knows one list of numcodecs codecs, run over the buffer of a chunk in the order that ``order`` says. The model wants
their kinds apart: filters before the serializer see arrays, what follows sees bytes. ``order: "F"`` is a transpose.
Not here: ``.zmetadata`` (`chunkmill.formats.consolidated`).
Spec: Zarr storage specification version 2, "Metadata", "Hierarchies", "Attributes"; xarray's ``_ARRAY_DIMENSIONS`` and
NCZarr's dimension references besides.
Checked against: tests/golden/zarr_v2 (written by zarr-python 2 and 3, xarray, tensorstore and others).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats import consolidated
from chunkmill.formats.base import (
    Format,
    axis_names,
    check_chunk_shape,
    check_shape,
    described_once,
    emit_json,
    get_member,
    normalize_path,
    parse_json,
    split_dimension_names,
)
from chunkmill.formats.chains import (
    OBJECT_SERIALIZERS,
    bytes_configuration,
    dtype_after,
    emit_blosc,
    filter_input,
    layout_filters,
    parse_blosc,
    reverses_axes,
    with_defaults,
)
from chunkmill.formats.n5 import zarr_chain
from chunkmill.model import fill_values
from chunkmill.model.dtypes import STRING, DType, byte_order, emit_v2, parse_v2, to_native, with_byte_order
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import (
    JSON,
    ArrayMetadata,
    ChunkKeyEncoding,
    GroupMetadata,
    NamedConfig,
    check_arrangement,
    codec_kind,
)

_FORMAT = "zarr2"

# ids whose codec Zarr v3 has under a name of its own, with the parameters that numcodecs takes
_OWN_NAMES: Mapping[str, frozenset[str]] = {
    "blosc": frozenset({"cname", "clevel", "shuffle", "blocksize", "typesize"}),
    "gzip": frozenset({"level"}),
    "zstd": frozenset({"level", "checksum"}),
    "crc32c": frozenset({"location"}),
    "vlen-utf8": frozenset(),
    "vlen-bytes": frozenset(),
}


# --------------------------------------------------------------------------------------------------------------------
# Parse


def parse_chain(
    codecs: Sequence[Mapping[str, JSON]], order: str, dtype: DType, ndim: int, *, key: str
) -> tuple[NamedConfig, ...]:
    """Return the chain in Zarr v3's vocabulary.

    Parameters
    ----------
    codecs
        The filters, then the compressor: numcodecs configurations.
    dtype
        As stored: with its byte order, `object` for ``"|O"``.

    Examples
    --------
    >>> codecs = [{"id": "delta", "dtype": "<i4"}, {"id": "zlib"}]
    >>> [codec.name for codec in parse_chain(codecs, "F", np.dtype("<i4"), 2, key=".zarray")]
    ['transpose', 'numcodecs.delta', 'bytes', 'numcodecs.zlib']
    """
    chain = layout_filters(order, ndim, key=key)
    serialized = False
    itemsize = dtype.itemsize  # of what the next bytes -> bytes codec is given
    for document in codecs:
        codec = _parse_codec(document, itemsize, key)
        role = codec_kind(codec.name)
        if role != "bytes-bytes" and serialized:
            raise UnsupportedFeature(format=_FORMAT, feature=f"{document['id']!r} after a codec of bytes", key=key)
        if role == "array-array":
            dtype = _filtered(codec, dtype, key)
            itemsize = dtype.itemsize
        elif role == "array-bytes":
            _check_serializer(codec, dtype, key)
            serialized, itemsize = True, 1
        else:
            if not serialized:
                chain.append(_own_serializer(dtype, key))
            serialized, itemsize = True, 1
        chain.append(codec)
    if not serialized:
        chain.append(_own_serializer(dtype, key))
    return tuple(chain)


def _parse_codec(document: Mapping[str, JSON], itemsize: int, key: str) -> NamedConfig:
    name = document.get("id")
    if not isinstance(name, str):
        raise MetadataError(key=key, field="filters or compressor", got=document, expected="a codec with an id")
    if name == "pickle":
        hint = "unpickling runs code of the store's author"
        raise UnsupportedFeature(format=_FORMAT, feature="the 'pickle' filter", key=key, hint=hint)
    configuration = {member: value for member, value in document.items() if member != "id"}
    if name not in _OWN_NAMES or (name == "crc32c" and configuration.get("location", "end") != "end"):
        return NamedConfig(f"numcodecs.{name}", configuration)
    if unknown := set(configuration) - _OWN_NAMES[name]:
        raise MetadataError(key=key, field=name, got=sorted(unknown), expected="the parameters of numcodecs")
    if name == "crc32c":  # numcodecs puts the same four bytes in the same place
        configuration = {}
    if name == "blosc":
        configuration = parse_blosc(configuration, itemsize, key=key)
    return NamedConfig(name, with_defaults(name, configuration, itemsize))


def _filtered(codec: NamedConfig, dtype: DType, key: str) -> DType:
    expected = filter_input(codec, dtype, key=key)
    # numcodecs casts the buffer: a filter for the other byte order would see other numbers
    if expected is not None and {byte_order(expected), byte_order(dtype)} == {"little", "big"}:
        raise UnsupportedFeature(format=_FORMAT, feature=f"{codec.name} of {expected.str} over {dtype.str}", key=key)
    return dtype_after(codec, dtype, key=key)


def _check_serializer(codec: NamedConfig, dtype: DType, key: str) -> None:
    if (codec.name in OBJECT_SERIALIZERS) != (dtype.kind == "O"):
        raise UnsupportedFeature(format=_FORMAT, feature=f"{codec.name} over data type {dtype}", key=key)


def _own_serializer(dtype: DType, key: str) -> NamedConfig:
    if dtype.kind == "O":
        raise MetadataError(key=key, field="filters", got="none for objects", expected="an object codec for '|O'")
    return NamedConfig("bytes", bytes_configuration(dtype))


# --------------------------------------------------------------------------------------------------------------------
# Emit


def emit_chain(
    chain: Sequence[NamedConfig], dtype: DType, ndim: int, *, key: str
) -> tuple[str, list[dict[str, JSON]], dict[str, JSON] | None, DType]:
    """Return order, filters, compressor, and the dtype in its byte order of storage.

    Raises `UnsupportedFeature` for codecs and arrangements that Zarr v2 cannot say.

    Examples
    --------
    >>> chain = [NamedConfig("bytes", {"endian": "big"}), NamedConfig("gzip", {"level": 5})]
    >>> emit_chain(chain, np.dtype("i4"), 1, key=".zarray")
    ('C', [], {'id': 'gzip', 'level': 5}, dtype('>i4'))
    """
    check_arrangement(chain, key=key)
    reversed_axes, n_transposes = reverses_axes(chain, ndim, key=key)
    rest = chain[n_transposes:]
    # the serializer `bytes` is what v2 does anyway; others are codecs like any other
    named = [codec for codec in rest if codec.name != "bytes"]
    documents = [_emit_codec(codec, key) for codec in named]
    last = named[-1] if named else None
    compressor = documents.pop() if last is not None and _may_compress(last) else None
    return "F" if reversed_axes else "C", documents, compressor, _stored(rest, dtype, key)


def _may_compress(codec: NamedConfig) -> bool:
    """Return whether zarr-python takes the codec for a compressor; object codecs must stand among the filters."""
    return codec_kind(codec.name) == "bytes-bytes" or codec.name in {"numcodecs.pcodec", "numcodecs.zfpy"}


def _emit_codec(codec: NamedConfig, key: str) -> dict[str, JSON]:
    """Return numcodecs' configuration of a codec.

    >>> _emit_codec(NamedConfig("bitround", {"keepbits": 3}), "")
    {'id': 'bitround', 'keepbits': 3}
    """
    configuration = dict(codec.configuration)
    if codec.name.startswith("numcodecs."):
        return {"id": codec.name.removeprefix("numcodecs."), **configuration}
    if codec.name == "bitround":  # the same under two names, on floats; on integers decoding leaves them as they are
        return {"id": codec.name, **configuration}
    if codec.name not in _OWN_NAMES:
        raise UnsupportedFeature(format=_FORMAT, feature=f"codec {codec.name!r}", key=key)
    if codec.name == "blosc":
        configuration = emit_blosc(codec, format_name=_FORMAT, key=key)
    if codec.name == "zstd" and not configuration.get("checksum"):  # numcodecs before 0.13 fails on it
        configuration.pop("checksum", None)
    return {"id": codec.name, **configuration}


def _stored(chain: Sequence[NamedConfig], dtype: DType, key: str) -> DType:
    """Return `dtype` in the byte order in which the first codec that cares wants it."""
    if dtype.kind in "OT":
        return np.dtype(object)
    for codec in chain:
        if codec.name == "bytes":
            return _stored_by(codec, dtype, key)
        expected = filter_input(codec, dtype, key=key)
        if expected is not None and (order := byte_order(expected)) in {"little", "big"}:
            return with_byte_order(dtype, "big" if order == "big" else "little")
        if dtype_after(codec, dtype, key=key) != dtype:
            break  # the byte order of what follows is not that of the array
    return with_byte_order(dtype, "little")


def _stored_by(codec: NamedConfig, dtype: DType, key: str) -> DType:
    if (own := codec.configuration.get("dtype")) is not None:
        stored = parse_v2(own, key=key)
        if stored.newbyteorder("=") != dtype.newbyteorder("="):
            raise MetadataError(key=key, field="bytes.dtype", got=own, expected=f"the fields of {dtype}")
        return stored
    return with_byte_order(dtype, "big" if codec.configuration.get("endian") == "big" else "little")


_VERSION = 2
_TEXT_CODECS = {"vlen-utf8", "numcodecs.categorize"}


@dataclass(frozen=True, slots=True)
class ZarrV2(Format):
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
    name: ClassVar[str] = "zarr2"
    masks_fill_value: ClassVar[bool] = True
    group_documents: ClassVar[frozenset[str]] = frozenset({".zgroup", ".zattrs"})
    has_xarray_engine: ClassVar[bool] = True
    has_numcodecs: ClassVar[bool] = True
    level_metadata: ClassVar[str | None] = "0.4"
    document_names: ClassVar[frozenset[str]] = consolidated.V2_DOCUMENTS
    default_chunk_keys: ClassVar[ChunkKeyEncoding] = ChunkKeyEncoding("", ".", "0")

    # ----------------------------------------------------------------------------------------------------------------
    # Keys

    def normalize_path(self, path: str) -> str:
        r"""Return `path` as the specification normalises it: ``\`` is ``/``, ``.`` and ``..`` are errors."""
        return normalize_path(path, backslash=True, documents=self.group_documents)

    def array_keys(self, path: str) -> tuple[str, ...]:
        """Keys of an array's documents, the required one first."""
        prefix = self.chunk_prefix(path)
        return f"{prefix}.zarray", f"{prefix}.zattrs"

    def group_keys(self, path: str) -> tuple[str, ...]:
        """Keys of a group's documents, the required one first."""
        prefix = self.chunk_prefix(path)
        return f"{prefix}.zgroup", f"{prefix}.zattrs"

    # ----------------------------------------------------------------------------------------------------------------
    # Consolidated metadata

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
        order = get_member(key, document, "order", str)
        codecs = parse_chain(_codecs(key, document), order, stored, len(shape), key=key)
        if "fill_value" not in document:
            raise MetadataError(key=key, field="fill_value", got="nothing", expected="a value or null")
        dtype, fill_value = decoded(stored, codecs, document["fill_value"], key=key)
        metadata = ArrayMetadata(
            dtype=dtype,
            chunk_grid=ChunkGrid.regular(shape, chunks),
            chunk_keys=self._chunk_keys(key, document),
            codecs=codecs,
            fill_value=fill_value,
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
        # after a filter, in the byte order that the filter says
        stored = {codec.name: codec for codec in found.codecs if codec.name == "bytes"}
        return replace(adapted, codecs=tuple(stored.get(codec.name, codec) for codec in adapted.codecs))

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


def _codecs(key: str, document: Mapping[str, JSON]) -> list[Mapping[str, JSON]]:
    """Return filters and compressor in encode order."""
    filters = document.get("filters") or []  # absent in real files, though required
    compressor = get_member(key, document, "compressor", (dict, type(None)))
    if not isinstance(filters, list) or not all(isinstance(codec, dict) for codec in filters):
        raise MetadataError(key=key, field="filters", got=filters, expected="null or a list of objects")
    return filters if compressor is None else [*filters, compressor]


def decoded(stored: DType, codecs: Sequence[NamedConfig], fill_value: JSON, *, key: str) -> tuple[DType, Any]:
    """Return dtype and fill value of the model; ``|O`` is text where its codec holds nothing else."""
    names = {codec.name for codec in codecs}
    is_text = stored.kind == "O" and not names.isdisjoint(_TEXT_CODECS)
    dtype = STRING if is_text else to_native(stored)
    serializer = "vlen-bytes" if "vlen-bytes" in names else ""
    return dtype, fill_values.parse_v2(fill_value, dtype if is_text else stored, key=key, serializer=serializer)


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
    for candidate in (attributes.get("_nczarr_array"), document.get("_nczarr_array"), document.get("_NCZARR_ARRAY")):
        members = candidate if isinstance(candidate, dict) else {}
        references = axis_names(members.get("dimrefs", members.get("dimension_references")), ndim)
        if references is not None:
            return tuple(reference.rpartition("/")[2] for reference in references)
    return None
