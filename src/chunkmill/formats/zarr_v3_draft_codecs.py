"""Memory layout and codecs of the Zarr v3 draft of May 2022 <-> the codec chain of the model.

Not here: what codecs do (`chunkmill.codecs`).
Spec: zarr-specs, core protocol v3.0, editor's draft of 25 May 2022, "Chunk memory layouts", "codecs"; the codecs'
own pages as of zarr-specs 692fe73, docs/codecs (gzip, blosc, endian).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.zarr_v3_draft_types import Endian
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["emit_codecs", "parse_codecs", "parse_layout"]

_FORMAT = "zarr3-draft"
# the codecs' own pages disagree with the core about the plural
_CODEC = re.compile(r"https?://purl\.org/zarr/spec/codecs?/(\w+)(/\d+\.\d+)?", re.ASCII)
_CODEC_URI = "https://purl.org/zarr/spec/codecs/{}/1.0"
_BLOSC_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def parse_layout(key: str, document: Mapping[str, JSON], rank: int) -> tuple[NamedConfig, ...]:
    """Return the filters that make the memory layout: F turns the axes round, then everything is in C order."""
    layout = document.get("chunk_memory_layout")
    if isinstance(layout, dict):
        raise UnsupportedFeature(format=_FORMAT, feature=f"memory layout {layout}"[:200], key=key)
    if layout not in ("C", "F"):
        raise MetadataError(key=key, field="chunk_memory_layout", got=layout, expected="'C' or 'F'")
    if layout == "C" or rank < 2:  # noqa: PLR2004 - one axis, or none, turns into itself
        return ()
    return (NamedConfig("transpose", {"order": list(range(rank))[::-1]}),)


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
            compressors.append(_parse_blosc(key, configuration, dtype.itemsize))
        else:
            feature = f"codec {codec.get('type')!r}"[:200] + (" after another" if name == "endian" else "")
            raise UnsupportedFeature(format=_FORMAT, feature=feature, key=key)
    return (NamedConfig("bytes", {"endian": endian}), *compressors)


def _codec_name(key: str, codec: JSON) -> tuple[str | None, dict[str, JSON]]:
    """Return the codec's name, ``None`` when its URI is not one of zarr-specs, and its configuration."""
    configuration = codec.get("configuration", {}) if isinstance(codec, dict) else None
    if not isinstance(configuration, dict) or not isinstance(uri := codec.get("type"), str):
        raise MetadataError(key=key, field="codecs", got=codec, expected="an object of type (a URI) and configuration")
    found = _CODEC.fullmatch(uri)
    return (found[1] if found else None), configuration


def _parse_blosc(key: str, configuration: Mapping[str, JSON], itemsize: int) -> NamedConfig:
    """Return blosc with its shuffle by name; here it is a number, and the item size goes without saying."""
    shuffle = configuration.get("shuffle", 1)
    if shuffle == -1:  # numcodecs: bits for single bytes, else bytes
        shuffle = 2 if itemsize == 1 else 1
    if not isinstance(shuffle, int) or not 0 <= shuffle < len(_BLOSC_SHUFFLES):
        raise MetadataError(key=key, field="shuffle", got=shuffle, expected="0, 1 or 2")
    parameters = {
        "cname": configuration.get("cname", "lz4"),
        "clevel": configuration.get("clevel", 5),
        "shuffle": _BLOSC_SHUFFLES[shuffle],
        "typesize": itemsize,
        "blocksize": configuration.get("blocksize", 0),
    }
    return NamedConfig("blosc", parameters)


def emit_codecs(key: str, chain: Sequence[NamedConfig], rank: int) -> tuple[str, list[JSON]]:
    """Return memory layout and codecs of a chain."""
    layout = "C"
    if chain and chain[0].name == "transpose" and list(chain[0].configuration["order"]) == list(range(rank))[::-1]:
        layout, chain = "F" if rank > 1 else "C", chain[1:]
    if not chain or chain[0].name != "bytes":
        names = ", ".join(codec.name for codec in chain)
        raise UnsupportedFeature(format=_FORMAT, feature=f"filters or serializer of ({names})", key=key)
    codecs: list[JSON] = []
    if chain[0].configuration.get("endian") == "big":
        codecs.append({"type": _CODEC_URI.format("endian"), "configuration": {"endian": "big"}})
    for codec in chain[1:]:
        get = codec.configuration.get
        if codec.name == "gzip":
            configuration = {"level": get("level", 6)}
        elif codec.name == "blosc" and get("shuffle", "shuffle") in _BLOSC_SHUFFLES:
            configuration = {
                "cname": get("cname", "lz4"),
                "clevel": get("clevel", 5),
                "shuffle": _BLOSC_SHUFFLES.index(get("shuffle", "shuffle")),
                "blocksize": get("blocksize", 0),
            }
        else:
            hint = "it has gzip and blosc"
            raise UnsupportedFeature(format=_FORMAT, feature=f"codec {codec.name!r}", key=key, hint=hint)
        codecs.append({"type": _CODEC_URI.format(codec.name), "configuration": configuration})
    return layout, codecs
