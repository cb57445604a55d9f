"""Zarr v3 as drafted on 25 May 2022: an entry point, ``meta/`` and ``data/``.

Not here: the layout of zarr-python 2's experimental version 3 (`chunkmill.formats.zarr_v3_experimental`), final Zarr v3
(`chunkmill.formats.zarr_v3`).

Spec: zarr-specs, core protocol v3.0, editor's draft of 25 May 2022; the codecs' own pages as of zarr-specs 692fe73,
docs/codecs (gzip, blosc, endian).
Checked against: tests/golden/zarr_v3_draft/hand-1 (nobody is known to write this very draft).

Two places where the draft says two things: the key of an array in a listing example (that of "Storage keys" is right),
and a datetime example whose ``fill_value`` is the null that the text forbids (it is refused).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import (
    Format,
    attributes_with_names,
    check_chunk_shape,
    check_shape,
    emit_json,
    get_attributes,
    get_member,
    normalize_path,
    parse_json,
    split_dimension_names,
)
from chunkmill.formats.chains import emit_blosc, layout_filters, parse_blosc
from chunkmill.formats.consolidated import own_document
from chunkmill.formats.n5 import zarr_chain
from chunkmill.model import fill_values
from chunkmill.model.dtypes import PLAIN, parse_raw, plain_name
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import JSON, ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NamedConfig

_ENTRY = "zarr.json"
_CORE = "https://purl.org/zarr/spec/core/3.0"
PROTOCOL = re.compile(r"https?://purl\.org/zarr/spec/protocol/core/3\.\d+", re.ASCII)
"""Version of zarr-python 2's experiment."""
_VERSION = re.compile(r"https?://purl\.org/zarr/spec/core/(\d{1,9})\.(\d{1,9})", re.ASCII)

_NODE_NAME = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]+", re.ASCII)
_SUFFIX = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)

_ENTRY_MEMBERS = {"zarr_format", "metadata_encoding", "extensions"}
_ARRAY_MEMBERS = {
    "shape", "data_type", "chunk_grid", "chunk_memory_layout", "fill_value", "extensions", "attributes", "codecs",
    "storage_transformers",
}  # fmt: skip


def chunk_keys(separator: JSON) -> ChunkKeyEncoding:
    """Return the draft's chunk keys: the ``c`` is glued to the first index, ``c1/0``, and alone is a 0-d array's."""
    if separator not in {"/", "."}:
        raise ValueError(f"separator is {separator!r}, not '/' or '.'")
    return ChunkKeyEncoding("c", separator, "c")


@dataclass(frozen=True, slots=True)
class DraftLayout(Format):
    """Keys of the drafts: metadata below ``meta/`` end with `suffix`, chunks are below ``data/``."""

    suffix: str = ".json"
    default_codecs: ClassVar[str] = "gzip"
    implicit_groups: ClassVar[bool] = True
    node_keys_known: ClassVar[bool] = False  # their suffix stands in the entry point

    root: ClassVar[str] = ""
    """Folder of the root group below ``meta/`` and ``data/``."""

    lenient = True
    """Members of documents that are not known are ignored."""

    def root_keys(self) -> tuple[str, ...]:
        """Return the key of the entry point."""
        return (_ENTRY,)

    def array_keys(self, path: str) -> tuple[str, ...]:
        """Return ``meta/<path>.array.json``."""
        return (self._key(path, "array"),)

    def group_keys(self, path: str) -> tuple[str, ...]:
        """Return ``meta/<path>.group.json``."""
        return (self._key(path, "group"),)

    def chunk_prefix(self, path: str) -> str:
        """Return ``data/<path>/``."""
        return self._below("data", path) + "/"

    def list_prefixes(self, path: str) -> tuple[str, ...]:
        """Return ``meta/<path>/``: the data tell nothing of the hierarchy."""
        return (self._below("meta", path) + "/",)

    def child_name(self, path: str, prefix: str, name: str) -> str | None:  # noqa: ARG002 - Format
        """Return the node of a document or of a prefix, which is an implicit group."""
        ends = ("/", f".array{self.suffix}", f".group{self.suffix}")
        return next((name.removesuffix(end) for end in ends if name.endswith(end)), None)

    def parse_group(self, path: str, documents: Mapping[str, bytes]) -> GroupMetadata | None:
        """Parse an explicit group; ``None`` when its document is absent."""
        (key,) = self.group_keys(path)
        document = self._document(key, documents, {"attributes"})
        return None if document is None else GroupMetadata(get_attributes(key, document))

    def _below(self, folder: str, path: str) -> str:
        return "/".join(filter(None, (folder, self.root, path)))

    def _key(self, path: str, node_type: str) -> str:
        separator = "." if path or self.root else "/"
        return f"{self._below('meta', path)}{separator}{node_type}{self.suffix}"

    def _entry(self, documents: Mapping[str, bytes]) -> dict[str, JSON]:
        """Return the entry point; nothing when it is absent, or a document of final v3, whose format is a number."""
        document = parse_json(_ENTRY, own_document(documents.get(_ENTRY, b"{}"), _ENTRY))
        return document if isinstance(document.get("zarr_format"), str) else {}

    def _document(self, key: str, documents: Mapping[str, bytes], known: set[str]) -> dict[str, JSON] | None:
        """Return the document of a node, checked; ``None`` when it is absent."""
        value = documents.get(key)
        return None if value is None else self.checked(key, parse_json(key, value), known)

    def checked(self, key: str, document: dict[str, JSON], known: set[str]) -> dict[str, JSON]:
        """Refuse members besides `known`, unless those are ignored, and extensions that may not be: none is known."""
        # "An implementation must fail to open zarr hierarchies, groups or arrays with unknown metadata fields."
        if not self.lenient and (unknown := sorted(document.keys() - known)):
            raise MetadataError(key=key, field="document", got=unknown, expected=f"no members besides {sorted(known)}")
        extensions = document.get("extensions", [])
        if not isinstance(extensions, list) or not all(isinstance(item, dict) for item in extensions):
            raise MetadataError(key=key, field="extensions", got=extensions, expected="a list of objects")
        for item in extensions:
            if item.get("must_understand") is not False:
                raise UnsupportedFeature(format=self.name, feature=f"extension {item.get('extension')!r}", key=key)
        return document


@dataclass(frozen=True, slots=True)
class ZarrV3Draft(DraftLayout):
    """The draft, as one store's entry point configures it.

    `lenient`: the store is of a later minor version, whose unknown members "can be safely ignored".

    Examples
    --------
    >>> draft = ZarrV3Draft()
    >>> draft.array_keys("foo/baz"), draft.chunk_prefix("foo/baz")
    (('meta/foo/baz.array.json',), 'data/foo/baz/')
    """

    lenient: bool = False
    name: ClassVar[str] = "zarr3-draft"
    default_chunk_keys: ClassVar[ChunkKeyEncoding] = ChunkKeyEncoding("c", "/", "c")

    def normalize_path(self, path: str) -> str:
        """Return `path` without superfluous slashes; `MetadataError` for names the draft does not allow."""
        path = normalize_path(path)
        for name in path.split("/") if path else ():
            if not _NODE_NAME.fullmatch(name):
                expected = "names of the characters A-Z a-z 0-9 . _ -, not of periods alone"
                raise MetadataError(key=path, field="path", got=path, expected=expected)
        return path

    def configured(self, documents: Mapping[str, bytes]) -> ZarrV3Draft | None:
        """Return the draft as the entry point wants it; ``None`` when there is none, or one of another format.

        Raises `MetadataError` for an entry point that is of no known format, and its kind `UnsupportedFeature` for
        another major version or an extension that must be understood.
        """
        document = self._entry(documents)
        version = document.get("zarr_format")
        if version is None or PROTOCOL.fullmatch(version):
            return None
        if (found := _VERSION.fullmatch(version)) is None:
            raise MetadataError(key=_ENTRY, field="zarr_format", got=version, expected=_CORE)
        if found[1] != "3":
            raise UnsupportedFeature(format=self.name, feature=f"core version {found[1]}.{found[2]}", key=_ENTRY)
        configured = replace(self, lenient=int(found[2]) > 0)
        return replace(configured, suffix=_parse_encoding(configured.checked(_ENTRY, document, _ENTRY_MEMBERS)))

    def emit_root(self) -> dict[str, bytes]:
        """Return the entry point."""
        encoding = {"type": "json", "metadata_key_suffix": self.suffix}
        return {_ENTRY: emit_json(_ENTRY, {"zarr_format": _CORE, "metadata_encoding": encoding, "extensions": []})}

    def child_name(self, path: str, prefix: str, name: str) -> str | None:
        """Return the node of a document or of a prefix, if the draft allows its name."""
        child = DraftLayout.child_name(self, path, prefix, name)
        return child if child is not None and _NODE_NAME.fullmatch(child) else None

    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse an array; ``None`` when its document is absent."""
        (key,) = self.array_keys(path)
        if (document := self._document(key, documents, _ARRAY_MEMBERS)) is None:
            return None
        if document.get("storage_transformers", []) != []:
            raise UnsupportedFeature(format=self.name, feature="storage transformers (none is known)", key=key)
        grid, keys = parse_grid(key, document)
        dtype, endian = parse_data_type(key, document.get("data_type"))
        filters = parse_layout(key, document, grid.ndim)
        codecs = parse_codecs(key, document.get("codecs", []), dtype, endian)
        names, attributes = split_dimension_names(get_attributes(key, document), grid.ndim)
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
            "attributes": attributes_with_names(
                metadata, "_ARRAY_DIMENSIONS", is_reversed=False, format_name=self.name, key=key
            ),
        }
        return {key: emit_json(key, document)}

    def emit_group(self, path: str, metadata: GroupMetadata) -> dict[str, bytes]:
        """Return the document of a group."""
        (key,) = self.group_keys(path)
        return {key: emit_json(key, {"attributes": dict(metadata.attributes)})}


def _parse_encoding(document: Mapping[str, JSON]) -> str:
    encoding = get_member(_ENTRY, document, "metadata_encoding", dict)
    if "extension" in encoding or encoding.get("type") != "json":
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"metadata encoding {encoding}", key=_ENTRY)
    suffix = get_member(_ENTRY, encoding, "metadata_key_suffix", str)
    if not _SUFFIX.fullmatch(suffix):
        raise MetadataError(
            key=_ENTRY, field="metadata_key_suffix", got=suffix, expected="characters A-Z a-z 0-9 . _ -"
        )
    return str(suffix)


def parse_grid(key: str, document: Mapping[str, JSON]) -> tuple[ChunkGrid, ChunkKeyEncoding]:
    """Return the regular grid of an array document and its chunk keys."""
    shape = check_shape(get_member(key, document, "shape", list), key=key)
    grid = get_member(key, document, "chunk_grid", dict)
    if "extension" in grid or grid.get("type") != "regular":
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"chunk grid {grid}", key=key)
    if unknown := sorted(grid.keys() - {"type", "chunk_shape", "separator"}):
        raise MetadataError(key=key, field="chunk_grid", got=unknown, expected="type, chunk_shape and separator")
    sizes = get_member(key, grid, "chunk_shape", list)
    chunk_shape = check_chunk_shape(sizes, shape, key=key, field="chunk_shape")
    try:
        return ChunkGrid.regular(shape, chunk_shape), chunk_keys(grid.get("separator", "/"))
    except (ValueError, TypeError):  # TypeError: a list is not hashable
        got = grid.get("separator")
        raise MetadataError(key=key, field="separator", got=got, expected="'/' or '.'") from None


# --------------------------------------------------------------------------------------------------------------------
# Data types, fill values, memory layout and codecs


Endian: TypeAlias = Literal["little", "big"]

# The draft's table has names, its examples have numpy's type strings; int64 and uint64 fell out of the table.
_TYPESTR = re.compile(r"\|?(?:b1|[iu]1)|[<>](?:[iu][248]|f[248]|c8|c16)", re.ASCII)
_BITS = re.compile(r"0x[0-9a-fA-F]+|0b[01]+", re.ASCII)
_INFINITY = "+Infinity"  # the draft's spelling; the bare word is Zarr v2's, and zarr-python 2 wrote it


def parse_data_type(key: str, value: JSON) -> tuple[np.dtype[Any], Endian]:
    """Return the native dtype of ``data_type`` and the byte order of its default binary representation.

    An extension is replaced by the first of its fallbacks that is known, with a warning.

    Examples
    --------
    >>> parse_data_type("meta/array.json", ">f4")
    (dtype('float32'), 'big')
    """
    if isinstance(value, dict):
        return _parse_extension(key, value)
    if (known := _parse_name(key, value)) is None:
        expected = f"one of {', '.join(PLAIN)}, r<bits>, numpy's spelling of one, or an extension object"
        raise MetadataError(key=key, field="data_type", got=value, expected=expected)
    return known


def _parse_name(key: str, value: JSON) -> tuple[np.dtype[Any], Endian] | None:
    if not isinstance(value, str):
        return None
    if value in PLAIN:
        return PLAIN[value], "little"
    if _TYPESTR.fullmatch(value):
        return np.dtype(value).newbyteorder("="), "big" if value[0] == ">" else "little"
    if re.fullmatch(r"r[0-9]+", value, re.ASCII):
        return parse_raw(value, key=key), "little"
    return None


def _parse_extension(key: str, value: dict[str, JSON]) -> tuple[np.dtype[Any], Endian]:
    extension, kind, fallback = value.get("extension"), value.get("type"), value.get("fallback")
    if not isinstance(extension, str) or kind is None or value.keys() - {"extension", "type", "fallback"}:
        expected = "an object of extension, type and, perhaps, fallback"
        raise MetadataError(key=key, field="data_type", got=value, expected=expected)
    for name in fallback if isinstance(fallback, list) else [fallback]:
        if (known := _parse_name(key, name)) is not None:
            text = f"{key}: data type {kind!r:.80} of extension {extension!r:.80} is unknown here and read as {name!r}"
            warnings.warn(text, UserWarning, stacklevel=2)
            return known
    feature = f"data type {str(kind)[:80]!r} of extension {extension[:80]!r}, without a fallback that is known here"
    raise UnsupportedFeature(format=ZarrV3Draft.name, feature=feature, key=key)


def emit_data_type(key: str, dtype: np.dtype[Any]) -> str:
    """Return the name of `dtype` in the draft's table; `UnsupportedFeature` when it has none."""
    if (name := plain_name(dtype)) is not None:
        return name
    if dtype.kind == "V" and dtype.fields is None and dtype.subdtype is None and dtype.itemsize:
        return f"r{8 * dtype.itemsize}"
    hint = "it has numbers, bool and opaque bytes: text, times and structured values would lose their meaning"
    raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"dtype {dtype}", key=key, hint=hint)


def parse_fill_value(key: str, value: JSON, dtype: np.dtype[Any]) -> Any:
    """Return ``fill_value`` as a scalar of `dtype`; `MetadataError` for null and for what does not fit.

    Examples
    --------
    >>> parse_fill_value("meta/array.json", "0x3c00", np.dtype("float16"))
    np.float16(1.0)
    """
    if isinstance(value, str) and value[:2] in {"0x", "0b"} and dtype.kind in "iufV":
        return _from_bits(key, value, dtype)
    kind = {"b": bool, "i": int, "u": int}.get(dtype.kind, type(value))
    if value is None or dtype.kind not in "biufc" or type(value) is not kind:
        raise MetadataError(key=key, field="fill_value", got=value, expected=f"a value of {dtype}")
    parts = value if dtype.kind == "c" and isinstance(value, list) else [value, 0]
    numbers = ["Infinity" if part == _INFINITY else part for part in parts]
    return fill_values.parse_v3(numbers if dtype.kind == "c" else numbers[0], dtype, key=key)


def _from_bits(key: str, value: str, dtype: np.dtype[Any]) -> Any:
    """Return the value of a string of bits, which must be padded to the type's size, unlike final v3's."""
    n_digits = dtype.itemsize * (2 if value[1] == "x" else 8)
    if len(value) != 2 + n_digits or not _BITS.fullmatch(value):
        expected = f"{value[:2]} and {n_digits} digits"
        raise MetadataError(key=key, field="fill_value", got=value, expected=expected)
    # not int(): Python refuses thousands of binary digits for good reasons, and wide types may have them
    raw = bytes.fromhex(value[2:]) if value[1] == "x" else np.packbits([c == "1" for c in value[2:]]).tobytes()
    # a number is written from its highest bit; opaque bytes are in the order of storage
    return np.frombuffer(raw, dtype if dtype.kind == "V" else dtype.newbyteorder(">")).astype(dtype)[0]


def emit_fill_value(key: str, value: Any, dtype: np.dtype[Any]) -> JSON:
    """Return a scalar of `dtype` as ``fill_value``, to be read back bit for bit."""
    if value is None:
        hint = "the draft forbids null; give fill_value=0"
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature="an undefined fill value", key=key, hint=hint)
    if dtype.kind not in "biufc":
        return "0x" + np.asarray(value, dtype).tobytes().hex()
    found = fill_values.emit_v3(value, dtype, key=key)
    parts = [_INFINITY if part == "Infinity" else part for part in (found if dtype.kind == "c" else [found])]
    # a NaN with a payload has no form inside a pair
    if dtype.kind == "c" and any(isinstance(part, str) and part.startswith("0x") for part in parts):
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"the fill value {parts}", key=key)
    return parts if dtype.kind == "c" else parts[0]


# the codecs' own pages disagree with the core about the plural
_CODEC = re.compile(r"https?://purl\.org/zarr/spec/codecs?/(\w+)(/\d+\.\d+)?", re.ASCII)
_CODEC_URI = "https://purl.org/zarr/spec/codecs/{}/1.0"


def parse_layout(key: str, document: Mapping[str, JSON], rank: int) -> tuple[NamedConfig, ...]:
    """Return the filters that make the memory layout: F turns the axes round, then everything is in C order."""
    layout = document.get("chunk_memory_layout")
    if isinstance(layout, dict):
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"memory layout {layout}", key=key)
    return tuple(layout_filters(layout, rank, key=key, field="chunk_memory_layout"))


def parse_codecs(key: str, value: JSON, dtype: np.dtype[Any], endian: Endian) -> tuple[NamedConfig, ...]:
    """Return serializer and compressors. ``endian`` must come first: after a compressor it would swap noise."""
    if not isinstance(value, list):
        raise MetadataError(key=key, field="codecs", got=value, expected="a list")
    compressors = []
    for position, codec in enumerate(value):
        name, configuration = _codec_name(key, codec)
        if name == "endian" and position == 0:
            endian = configuration.get("endian", endian)
            if endian not in ("little", "big"):
                raise MetadataError(key=key, field="codecs", got=endian, expected="endian 'little' or 'big'")
        elif name == "gzip":
            compressors.append(NamedConfig("gzip", {"level": configuration.get("level", 6)}))
        elif name == "blosc":
            compressors.append(NamedConfig("blosc", parse_blosc(configuration, dtype.itemsize, key=key)))
        else:
            feature = f"codec {codec.get('type')!r:.200}" + (" after another" if name == "endian" else "")
            raise UnsupportedFeature(format=ZarrV3Draft.name, feature=feature, key=key)
    return (NamedConfig("bytes", {"endian": endian}), *compressors)


def _codec_name(key: str, codec: JSON) -> tuple[str | None, dict[str, JSON]]:
    """Return the codec's name, ``None`` when its URI is not one of zarr-specs, and its configuration."""
    configuration = codec.get("configuration", {}) if isinstance(codec, dict) else None
    if not isinstance(configuration, dict) or not isinstance(uri := codec.get("type"), str):
        raise MetadataError(key=key, field="codecs", got=codec, expected="an object of type (a URI) and configuration")
    found = _CODEC.fullmatch(uri)
    return (found[1] if found else None), configuration


def emit_codecs(key: str, chain: Sequence[NamedConfig], rank: int) -> tuple[str, list[JSON]]:
    """Return memory layout and codecs of a chain."""
    layout = "C"
    if chain and chain[0].name == "transpose" and list(chain[0].configuration["order"]) == list(range(rank))[::-1]:
        layout, chain = "F" if rank > 1 else "C", chain[1:]
    if not chain or chain[0].name != "bytes":
        names = ", ".join(codec.name for codec in chain)
        raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"filters or serializer of ({names})", key=key)
    codecs: list[JSON] = []
    if chain[0].configuration.get("endian") == "big":
        codecs.append({"type": _CODEC_URI.format("endian"), "configuration": {"endian": "big"}})
    for codec in chain[1:]:
        if codec.name == "gzip":
            configuration = {"level": codec.configuration.get("level", 6)}
        elif codec.name == "blosc":
            configuration = emit_blosc(codec, format_name=ZarrV3Draft.name, key=key)
        else:
            hint = "it has gzip and blosc"
            raise UnsupportedFeature(format=ZarrV3Draft.name, feature=f"codec {codec.name!r}", key=key, hint=hint)
        codecs.append({"type": _CODEC_URI.format(codec.name), "configuration": configuration})
    return layout, codecs
