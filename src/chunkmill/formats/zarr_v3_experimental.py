"""Zarr v3 as zarr-python 2.13 to 2.18 wrote it under ``ZARR_V3_EXPERIMENTAL_API=1``: an earlier draft. Reading only.

The content of an array document is Zarr v2's (numpy's type strings, numcodecs' codecs, filters hidden among the
attributes) in the draft's dress, hence both modules below. Not here: the draft of May 2022
(`chunkmill.formats.zarr_v3_draft`).

Spec: none; zarr-python 2.18.7, zarr/meta.py, ``Metadata3``.
Checked against: tests/golden/zarr_v3_draft/zarr-python-2.18.7.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import (
    check_shape,
    get_attributes,
    get_member,
    split_dimension_names,
)
from chunkmill.formats.zarr_v2 import decoded, parse_chain
from chunkmill.formats.zarr_v3_draft import PROTOCOL, DraftLayout, parse_grid
from chunkmill.model.dtypes import DType, parse_v2
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import JSON, ArrayMetadata, ChunkKeyEncoding, NamedConfig

_ENTRY = "zarr.json"
_CODEC = re.compile(r"https://purl\.org/zarr/spec/codec/(\w+)/\d+\.\d+", re.ASCII)
_SHARDING = re.compile(r"https?://purl\.org/zarr/spec/storage_transformers/sharding/1\.\d+", re.ASCII)
_BARE = {"bool": "|b1", "u1": "|u1", "i1": "|i1"}  # of one byte: without a byte order
_CONSOLIDATED = "consolidated/"  # meta/root/consolidated/.zmetadata; the group that zarr-python makes besides is one


@dataclass(frozen=True, slots=True)
class ZarrV3Experimental(DraftLayout):
    """The experimental layout.

    Examples
    --------
    >>> experimental = ZarrV3Experimental()
    >>> experimental.array_keys("foo/baz"), experimental.chunk_prefix("foo/baz")
    (('meta/root/foo/baz.array.json',), 'data/root/foo/baz/')
    """

    name: ClassVar[str] = "zarr3-experimental"
    root: ClassVar[str] = "root"
    masks_fill_value: ClassVar[bool] = True
    default_chunk_keys: ClassVar[ChunkKeyEncoding] = ChunkKeyEncoding("c", "/", "c0")

    def configured(self, documents: Mapping[str, bytes]) -> ZarrV3Experimental | None:
        """Return the format with the suffix of the entry point; ``None`` when that is absent or of another format."""
        document = self._entry(documents)
        if not PROTOCOL.fullmatch(document.get("zarr_format", "")):
            return None
        if "metadata_key_suffix" not in self.checked(_ENTRY, document, set()):
            feature = "the draft of Zarr v3 before October 2020, as early zarrita and zarr_implementations wrote it"
            raise UnsupportedFeature(format=self.name, feature=feature, key=_ENTRY)
        suffix = get_member(_ENTRY, document, "metadata_key_suffix", str)
        if "/" in suffix or "\0" in suffix:
            raise MetadataError(key=_ENTRY, field="metadata_key_suffix", got=suffix, expected="a suffix")
        return replace(self, suffix=suffix)

    def emit_root(self) -> dict[str, bytes]:
        """Raise `UnsupportedFeature`: nothing writes this any more."""
        raise self._read_only()

    def child_name(self, path: str, prefix: str, name: str) -> str | None:
        """Return the node of a document or of a prefix; the prefix of consolidated metadata is none."""
        child = DraftLayout.child_name(self, path, prefix, name)
        is_consolidated = not path and name == _CONSOLIDATED
        return None if is_consolidated or child in {"", ".", ".."} else child

    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse an array; ``None`` when its document is absent. Unknown members are ignored."""
        (key,) = self.array_keys(path)
        if (document := self._document(key, documents, set())) is None:
            return None
        grid, keys = parse_grid(key, document)
        stored = _parse_data_type(key, document)
        filters, attributes = _split_filters(get_attributes(key, document))
        order = get_member(key, document, "chunk_memory_layout", str)
        codecs = parse_chain([*filters, *_parse_compressor(key, document)], order, stored, grid.ndim, key=key)
        dtype, fill_value = decoded(stored, codecs, get_member(key, document, "fill_value", (object, bool)), key=key)
        chunks_per_shard = _parse_transformers(key, document, grid.ndim)
        if chunks_per_shard is not None:
            codecs = _in_shards(codecs, grid.chunk_shape)
            shards = [n * length for n, length in zip(chunks_per_shard, grid.chunk_shape, strict=True)]
            grid = ChunkGrid.regular(grid.shape, check_shape(shards, key=key, field="storage_transformers"))
        dimension_names, attributes = split_dimension_names(attributes, grid.ndim)
        return ArrayMetadata(
            dtype=dtype,
            chunk_grid=grid,
            chunk_keys=ChunkKeyEncoding("c", keys.separator, "c0"),
            codecs=codecs,
            fill_value=fill_value,
            dimension_names=dimension_names,
            attributes=attributes,
        )


def _parse_data_type(key: str, document: Mapping[str, JSON]) -> DType:
    """Return the dtype as stored. An extension's type is numpy's, and its URI says nothing (some are placeholders)."""
    value = get_member(key, document, "data_type", (str, dict))
    if isinstance(value, dict):
        value = get_member(key, value, "type", (str, list))
    elif value in _BARE:
        value = _BARE[value]
    return parse_v2(value, key=key, field="data_type")


def _split_filters(attributes: dict[str, JSON]) -> tuple[list[dict[str, JSON]], dict[str, JSON]]:
    """Return the filters, which are stored among the attributes, and the user's attributes."""
    filters = attributes.get("filters")
    if not isinstance(filters, list) or not all(isinstance(codec, dict) and "id" in codec for codec in filters):
        return [], attributes
    return filters, {name: value for name, value in attributes.items() if name != "filters"}


def _parse_transformers(key: str, document: Mapping[str, JSON], ndim: int) -> tuple[int, ...] | None:
    """Return the chunks of a shard along each axis; ``None`` without the one storage transformer that there was."""
    transformers = document.get("storage_transformers") or []
    if not transformers:
        return None
    ok = isinstance(transformers, list) and len(transformers) == 1 and isinstance(transformers[0], dict)
    first = transformers[0] if ok else {}
    if not _SHARDING.fullmatch(str(first.get("extension"))) or first.get("type") != "indexed":
        names = [each.get("extension") if isinstance(each, dict) else each for each in transformers]
        raise UnsupportedFeature(format=ZarrV3Experimental.name, feature=f"storage transformers {names}", key=key)
    configuration = get_member(key, first, "configuration", dict)
    counts = check_shape(get_member(key, configuration, "chunks_per_shard", list), key=key, field="chunks_per_shard")
    counts = () if ndim == 0 and counts == (1,) else counts
    if len(counts) > ndim or 0 in counts:
        expected = f"at least one chunk along each of at most {ndim} axes"
        raise MetadataError(key=key, field="chunks_per_shard", got=list(counts), expected=expected)
    return counts + (1,) * (ndim - len(counts))


def _in_shards(codecs: tuple[NamedConfig, ...], chunk_shape: tuple[int, ...]) -> tuple[NamedConfig, ...]:
    """Return the codec that packs chunks as the storage transformer did: the index last and without a checksum."""
    configuration = {
        "chunk_shape": list(chunk_shape),
        "codecs": [asdict(codec) for codec in codecs],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_location": "end",
    }
    return (NamedConfig("sharding_indexed", configuration),)


def _parse_compressor(key: str, document: Mapping[str, JSON]) -> list[dict[str, JSON]]:
    """Return the compressor as numcodecs' configuration, when there is one."""
    if document.get("compressor") is None:
        return []
    compressor = get_member(key, document, "compressor", dict)
    uri = get_member(key, compressor, "codec", str)
    configuration = get_member(key, {"configuration": {}, **compressor}, "configuration", dict)
    if (found := _CODEC.fullmatch(uri)) is None:
        raise UnsupportedFeature(format=ZarrV3Experimental.name, feature=f"codec {uri!r}", key=key)
    return [{**configuration, "id": found[1]}]
