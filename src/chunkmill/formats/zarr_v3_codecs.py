"""Zarr v3's ``codecs`` <-> the chain of the model, shards and their inner chains included.

Short and old spellings become one form: every codec an object with all its parameters, ``transpose`` with a
list, ``bytes`` with ``endian`` exactly where the dtype has a byte order.
Spec: Zarr v3 core, "Codecs"; codecs/sharding-indexed, codecs/bytes, codecs/transpose. See `chunkmill.formats.chains`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import check_chunk_shape
from chunkmill.formats.chains import (
    MAX_TYPESIZE,
    RESHAPING,
    canonical,
    dtype_after,
    filter_input,
    transpose_order,
    with_defaults,
)
from chunkmill.model.dtypes import ByteOrder, DType, byte_order
from chunkmill.model.metadata import JSON, NamedConfig, check_arrangement, codec_kind, nested_codecs

_FORMAT = "zarr3"
_MAX_NESTING = 8  # shards in shards

AxisLengths = tuple[int, ...]
"""For each axis the chunk length; the greatest one that divides them all, where they differ."""

_CHECKSUMS = {f"numcodecs.{name}" for name in ("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3")}

# chunkmill's own, for what v2 can hold: there is no data type in v3 for the values
_V2_ONLY = {f"numcodecs.{name}" for name in ("categorize", "vlen-array", "json2", "msgpack2")}

_DEFLATE = {"gzip", "numcodecs.gzip", "numcodecs.zlib"}

_N5_ONLY = {"n5_block", "n5_lz4"}


@dataclass(frozen=True, slots=True)
class _Flight:
    """Input of a codec: dtype, chunk lengths where they are known; ``lax``: endian may be absent."""

    dtype: DType
    lengths: AxisLengths | None
    lax: bool
    key: str
    field: str
    depth: int = 0


def named(value: JSON, *, key: str, field: str) -> NamedConfig:
    """Parse an extension point: ``{"name", "configuration"?, "must_understand"?}``, or a bare name (since 3.1).

    Examples
    --------
    >>> named("default", key="zarr.json", field="chunk_key_encoding")
    NamedConfig(name='default', configuration={})
    """
    document = {"name": value} if isinstance(value, str) else value
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise MetadataError(key=key, field=field, got=value, expected="a name, or an object with one")
    configuration = document.get("configuration", {})
    if not isinstance(configuration, dict):
        raise MetadataError(key=key, field=f"{field}.configuration", got=configuration, expected="an object")
    if unknown := set(document) - {"name", "configuration", "must_understand"}:
        raise MetadataError(key=key, field=field, got=sorted(unknown), expected="name and configuration only")
    return NamedConfig(document["name"], configuration)


def parse_chain(value: JSON, dtype: DType, lengths: AxisLengths, *, lax: bool, key: str) -> tuple[NamedConfig, ...]:
    """Parse the ``codecs`` of an array.

    Parameters
    ----------
    lengths
        Length of a chunk along each axis.
    lax
        Whether ``bytes`` may lack its ``endian``, which is little then: zarr-python 3.0 and 3.1 left it out for
        structured types and fixed-length text. A warning says so.

    Examples
    --------
    >>> parse_chain(["bytes"], np.dtype("u1"), (3,), lax=False, key="zarr.json")
    (NamedConfig(name='bytes', configuration={}),)
    """
    return tuple(_parse(value, _Flight(dtype, lengths, lax, key, "codecs")))


def _parse(value: JSON, flight: _Flight) -> list[NamedConfig]:
    key, field = flight.key, flight.field
    if not isinstance(value, list) or not value:
        raise MetadataError(key=key, field=field, got=value, expected="a list of codecs")
    chain = [named(item, key=key, field=field) for item in value]
    chain = [replace(codec, name=canonical(codec.name)) for codec in chain]
    check_arrangement(chain, key=key, field=field)
    result: list[NamedConfig] = []
    itemsize = flight.dtype.itemsize
    for codec in chain:
        role = codec_kind(codec.name)
        if role == "array-array":
            parsed, flight = _array_array(codec, flight)
            itemsize = flight.dtype.itemsize
        elif role == "array-bytes":
            parsed = _array_bytes(codec, flight)
            itemsize = itemsize if codec.name == "bytes" else 1
        else:
            parsed = NamedConfig(codec.name, with_defaults(codec.name, codec.configuration, itemsize))
            itemsize = 1
        result.append(parsed)
    return result


def _array_array(codec: NamedConfig, flight: _Flight) -> tuple[NamedConfig, _Flight]:
    if codec.name == "transpose" and flight.lengths is not None:
        order = transpose_order(codec, len(flight.lengths), key=flight.key)
        lengths: AxisLengths | None = tuple(flight.lengths[axis] for axis in order)
        return NamedConfig("transpose", {"order": order}), replace(flight, lengths=lengths)
    after = dtype_after(codec, flight.dtype, key=flight.key)
    taken = filter_input(codec, flight.dtype, key=flight.key)
    # zarr-python, whose codecs these are, shapes what a filter yields like the chunk
    if taken is not None and taken.kind != "O" and taken.itemsize != flight.dtype.itemsize:
        feature = f"{codec.name} of {taken} over {flight.dtype}"
        raise UnsupportedFeature(format=_FORMAT, feature=feature, key=flight.key)
    return codec, replace(flight, dtype=after, lengths=None if codec.name in RESHAPING else flight.lengths)


def _array_bytes(codec: NamedConfig, flight: _Flight) -> NamedConfig:
    if codec.name == "sharding_indexed":
        return NamedConfig(codec.name, _parse_sharding(codec.configuration, flight))
    _check_serializer(codec, flight.dtype, flight)
    return NamedConfig("bytes", _parse_bytes(codec.configuration, flight)) if codec.name == "bytes" else codec


def _check_serializer(codec: NamedConfig, dtype: DType, flight: _Flight) -> None:
    wanted = {"T": "vlen-utf8", "O": "vlen-bytes"}.get(dtype.kind)
    if (wanted is not None or codec.name in {"vlen-utf8", "vlen-bytes"}) and codec.name != wanted:
        expected = f"a serializer for {dtype}"
        raise MetadataError(key=flight.key, field=flight.field, got=codec.name, expected=expected)


def _parse_bytes(configuration: Mapping[str, JSON], flight: _Flight) -> dict[str, JSON]:
    endian = configuration.get("endian", "little" if flight.lax else None)
    if set(configuration) - {"endian"} or endian not in ("little", "big", None):  # a tuple: may be unhashable
        raise MetadataError(key=flight.key, field="bytes", got=dict(configuration), expected="endian: little or big")
    if byte_order(flight.dtype) == "none":
        return {}  # void for single bytes: "big" swaps nothing
    if endian is None:
        raise MetadataError(key=flight.key, field="bytes.endian", got="nothing", expected="little or big")
    if "endian" not in configuration:
        text = f"{flight.key}: the codec 'bytes' has no endian, which {flight.dtype!s:.200} needs; it is read as little"
        warnings.warn(text, UserWarning, stacklevel=2)
    return {"endian": endian}


# --------------------------------------------------------------------------------------------------------------------
# Shards


def _parse_sharding(configuration: Mapping[str, JSON], flight: _Flight) -> dict[str, JSON]:
    key, field = flight.key, f"{flight.field}.sharding_indexed"
    if flight.depth >= _MAX_NESTING:
        raise UnsupportedFeature(format=_FORMAT, feature=f"shards nested more than {_MAX_NESTING} deep", key=key)
    if unknown := set(configuration) - {"chunk_shape", "codecs", "index_codecs", "index_location"}:
        raise MetadataError(key=key, field=field, got=sorted(unknown), expected="no such members")
    shape = configuration.get("chunk_shape")
    ranks = flight.lengths if flight.lengths is not None else (1,) * (len(shape) if isinstance(shape, list) else 0)
    inner = check_chunk_shape(shape, (1,) * len(ranks), key=key, field=f"{field}.chunk_shape")
    # in the axes of what the codec is given: a transpose before it counts (zarr-python 3 checks the array's own axes)
    if flight.lengths is not None and any(n % c for n, c in zip(flight.lengths, inner, strict=True)):
        expected = f"lengths that divide those of the shard, {flight.lengths}"
        raise MetadataError(key=key, field=f"{field}.chunk_shape", got=shape, expected=expected)
    location = configuration.get("index_location", "end")
    if location not in ("start", "end"):
        raise MetadataError(key=key, field=f"{field}.index_location", got=location, expected="'start' or 'end'")
    within = replace(flight, lengths=inner, field=f"{field}.codecs", depth=flight.depth + 1)
    return {
        "chunk_shape": list(inner),
        "codecs": [asdict(codec) for codec in _parse(configuration.get("codecs"), within)],
        "index_codecs": [asdict(codec) for codec in _parse_index(configuration, len(inner), key, field)],
        "index_location": location,
    }


def _parse_index(configuration: Mapping[str, JSON], ndim: int, key: str, field: str) -> list[NamedConfig]:
    field = f"{field}.index_codecs"
    # the specification requires them, so do tensorstore and zarrs; zarr-python 3 assumes little-endian bytes and crc32c
    chain = _parse(
        configuration.get("index_codecs"), _Flight(np.dtype("u8"), (1,) * (ndim + 1), lax=False, key=key, field=field)
    )
    for codec in chain:
        fixed = codec.name in {"bytes", "transpose", "crc32c"} or codec.name in _CHECKSUMS
        if not fixed and codec_kind(codec.name) is not None:
            raise MetadataError(key=key, field=field, got=codec.name, expected="codecs whose output has a fixed size")
    return chain


def byte_order_of(chain: Sequence[NamedConfig]) -> ByteOrder:
    """Return the byte order of the ``bytes`` codec, in shards too; ``"little"`` without any."""
    found: Any = "little"
    for codec in chain:
        if codec.name == "bytes":
            found = codec.configuration.get("endian", "little")
        elif codec.name == "sharding_indexed":
            found = byte_order_of(nested_codecs(codec))
    return "big" if found == "big" else "little"


# --------------------------------------------------------------------------------------------------------------------
# Emit


def for_peers(chain: Sequence[NamedConfig]) -> tuple[NamedConfig, ...]:
    """Return `chain` in configurations that every reader of Zarr v3 takes, for the same bytes.

    The schemas of the registry have no gzip of level -1, which is zlib's default of 6 (Java's N5 and Zarr v2 have it),
    and no blosc of a typesize above 255, which stands for 1. zarr-python 3.1 forgets that a ``quantize`` with
    ``astype`` changes the data type, and then finds too few bytes: the cast becomes a codec of its own.

    Examples
    --------
    >>> quantize = NamedConfig("numcodecs.quantize", {"digits": 1, "dtype": "<f8", "astype": "<f4"})
    >>> [codec.name for codec in for_peers([quantize])]
    ['numcodecs.quantize', 'numcodecs.astype']
    >>> for_peers([NamedConfig("gzip", {"level": -1})])
    (NamedConfig(name='gzip', configuration={'level': 6}),)
    """
    result: list[NamedConfig] = []
    for codec in chain:
        configuration = dict(codec.configuration)
        before, after = configuration.get("dtype"), configuration.get("astype")
        if codec.name == "numcodecs.quantize" and after is not None and before not in (None, after):
            del configuration["astype"]
            cast = {"encode_dtype": after, "decode_dtype": before}
            result += [NamedConfig(codec.name, configuration), NamedConfig("numcodecs.astype", cast)]
            continue
        if codec.name in _DEFLATE and configuration.get("level") == -1:
            configuration["level"] = 6
        elif codec.name == "blosc" and configuration.get("typesize", 1) > MAX_TYPESIZE:
            configuration["typesize"] = 1
        elif codec.name == "sharding_indexed":
            for member in ("codecs", "index_codecs"):
                inner = [named(item, key="", field=member) for item in configuration.get(member, [])]
                configuration[member] = [asdict(each) for each in for_peers(inner)]
        result.append(NamedConfig(codec.name, configuration))
    return tuple(result)


def emit_chain(chain: Sequence[NamedConfig], *, key: str) -> list[JSON]:
    """Return ``codecs`` in the object form of 3.0; `UnsupportedFeature` for what is of another format.

    Examples
    --------
    >>> emit_chain([NamedConfig("bytes", {"endian": "little"})], key="zarr.json")
    [{'name': 'bytes', 'configuration': {'endian': 'little'}}]
    """
    for codec in chain:
        lost = ""
        if codec.name in _V2_ONLY or codec.name in _N5_ONLY:
            lost = f"codec {codec.name!r}"
        elif codec.name == "bytes" and "dtype" in codec.configuration:
            lost = "fields of different byte order"
        if lost:
            raise UnsupportedFeature(format=_FORMAT, feature=lost, key=key)
        for inner in ("codecs", "index_codecs"):
            items = codec.configuration.get(inner, []) if codec.name == "sharding_indexed" else []
            emit_chain([named(item, key=key, field=inner) for item in items], key=key)
    return [asdict(codec) for codec in chain]
