"""Data types, fill values, memory layout and codecs of the Zarr v3 draft of May 2022 <-> those of the model.

Not here: what codecs do (`chunkmill.codecs`).
Spec: zarr-specs, core protocol v3.0, editor's draft of 25 May 2022, "Chunk memory layouts", "codecs"; the codecs'
own pages as of zarr-specs 692fe73, docs/codecs (gzip, blosc, endian).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.dtypes import PLAIN, parse_raw, plain_name
from chunkmill.model.fill_values import emit_float, parse_float
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = [
    "Endian",
    "emit_codecs",
    "emit_data_type",
    "emit_fill_value",
    "parse_codecs",
    "parse_data_type",
    "parse_fill_value",
    "parse_layout",
]

Endian: TypeAlias = Literal["little", "big"]

_FORMAT = "zarr3-draft"
# The draft's table has names, its examples have numpy's type strings; int64 and uint64 fell out of the table.
_TYPESTR = re.compile(r"\|?(?:b1|[iu]1)|[<>](?:[iu][248]|f[248]|c8|c16)", re.ASCII)
_BITS = re.compile(r"0x[0-9a-fA-F]+|0b[01]+", re.ASCII)
# "+Infinity" is the draft's; the bare word is Zarr v2's, and zarr-python 2 wrote it
_SPECIAL = {"NaN": math.nan, "+Infinity": math.inf, "Infinity": math.inf, "-Infinity": -math.inf}


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
            text = f"{key}: data type {kind!r} of extension {extension!r} is unknown here and read as {name!r}"
            warnings.warn(text[:400], UserWarning, stacklevel=2)
            return known
    feature = f"data type {str(kind)[:80]!r} of extension {extension[:80]!r}, without a fallback that is known here"
    raise UnsupportedFeature(format=_FORMAT, feature=feature, key=key)


def emit_data_type(key: str, dtype: np.dtype[Any]) -> str:
    """Return the name of `dtype` in the draft's table; `UnsupportedFeature` when it has none."""
    if (name := plain_name(dtype)) is not None:
        return name
    if dtype.kind == "V" and dtype.fields is None and dtype.subdtype is None and dtype.itemsize:
        return f"r{8 * dtype.itemsize}"
    hint = "it has numbers, bool and opaque bytes: text, times and structured values would lose their meaning"
    raise UnsupportedFeature(format=_FORMAT, feature=f"dtype {dtype}", key=key, hint=hint)


def parse_fill_value(key: str, value: JSON, dtype: np.dtype[Any]) -> Any:
    """Return ``fill_value`` as a scalar of `dtype`; `MetadataError` for null and for what does not fit.

    Examples
    --------
    >>> parse_fill_value("meta/array.json", "0x3c00", np.dtype("float16"))
    np.float16(1.0)
    """
    if isinstance(value, str) and value[:2] in {"0x", "0b"} and dtype.kind in "iufV":
        return _from_bits(key, value, dtype)
    match dtype.kind, value:
        case "b", bool():
            return np.bool_(value)
        case "i" | "u", int() if not isinstance(value, bool) and _fits(value, dtype):
            return dtype.type(value)
        case "f", _:
            return parse_float(value, dtype, key=key, names=_SPECIAL)
        case "c", [_, _]:
            part = np.dtype(f"f{dtype.itemsize // 2}")
            return np.array([parse_float(v, part, key=key, names=_SPECIAL) for v in value], part).view(dtype)[0]
        case "c", int() | float():
            return dtype.type(parse_float(value, np.dtype(f"f{dtype.itemsize // 2}"), key=key))
        case _:
            raise MetadataError(key=key, field="fill_value", got=value, expected=f"a value of {dtype}")


def _fits(value: int, dtype: np.dtype[Any]) -> bool:
    info = np.iinfo(dtype)
    return int(info.min) <= value <= int(info.max)


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
        raise UnsupportedFeature(format=_FORMAT, feature="an undefined fill value", key=key, hint=hint)
    scalar = np.asarray(value, dtype)[()]
    match dtype.kind:
        case "b":
            return bool(scalar)
        case "i" | "u":
            return int(scalar)
        case "f":
            return _emit_float(scalar, dtype, key)
        case "c":
            # a NaN with a payload has no form inside a pair
            part = np.dtype(f"f{dtype.itemsize // 2}")
            pair = [_emit_float(value, part, key) for value in np.array([scalar]).view(part)]
            if any(isinstance(text, str) and text.startswith("0x") for text in pair):
                raise UnsupportedFeature(format=_FORMAT, feature=f"the fill value {pair}", key=key)
            return pair
        case _:
            return "0x" + scalar.tobytes().hex()


def _emit_float(value: Any, dtype: np.dtype[Any], key: str) -> JSON:
    text = emit_float(value, dtype, bits=True, key=key)
    return "+Infinity" if text == "Infinity" else text


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
