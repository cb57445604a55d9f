"""Zarr v2's ``order``, ``filters``, ``compressor`` and byte order <-> the chain of codecs of the model.

v2 knows one list of numcodecs codecs, run over the buffer of a chunk in the order that ``order`` says. The model wants
their kinds apart: filters before the serializer see arrays, what follows sees bytes. ``order: "F"`` is a transpose.
Spec: Zarr v2, "Metadata" and "Filters"; configurations are numcodecs'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.chains import (
    OBJECT_SERIALIZERS,
    bytes_configuration,
    check_arrangement,
    dtype_after,
    filter_input,
    kind,
    reverses_axes,
    with_defaults,
)
from chunkmill.model.dtypes import DType, byte_order, parse_v2, with_byte_order
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["emit_chain", "parse_chain"]

_FORMAT = "zarr2"
_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_AUTO_SHUFFLE = -1

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
    chain: list[NamedConfig] = []
    if order == "F" and ndim > 1:
        chain.append(NamedConfig("transpose", {"order": list(range(ndim))[::-1]}))
    serialized = False
    itemsize = dtype.itemsize  # of what the next bytes -> bytes codec is given
    for document in codecs:
        codec = _parse_codec(document, itemsize, key)
        role = kind(codec.name)
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
                chain.append(_bytes_codec(dtype, key))
            serialized, itemsize = True, 1
        chain.append(codec)
    if not serialized:
        chain.append(_bytes_codec(dtype, key))
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
        configuration = _parse_blosc(configuration, itemsize, key)
    return NamedConfig(name, with_defaults(name, configuration, itemsize))


def _parse_blosc(configuration: Mapping[str, JSON], itemsize: int, key: str) -> dict[str, JSON]:
    shuffle = configuration.get("shuffle", 1)
    if type(shuffle) is not int or not _AUTO_SHUFFLE <= shuffle < len(_SHUFFLES):
        raise MetadataError(key=key, field="blosc.shuffle", got=shuffle, expected="-1, 0, 1 or 2")
    if shuffle == _AUTO_SHUFFLE:
        shuffle = 2 if itemsize == 1 else 1
    # numcodecs 0.16 takes a typesize, and may say that it has none
    rest = {name: value for name, value in configuration.items() if not (name == "typesize" and value is None)}
    return {**rest, "shuffle": _SHUFFLES[shuffle]}


def _filtered(codec: NamedConfig, dtype: DType, key: str) -> DType:
    expected = filter_input(codec, dtype, key=key)
    # numcodecs casts the buffer: a filter for the other byte order would see other numbers
    if expected is not None and {byte_order(expected), byte_order(dtype)} == {"little", "big"}:
        raise UnsupportedFeature(format=_FORMAT, feature=f"{codec.name} of {expected.str} over {dtype.str}", key=key)
    after = dtype_after(codec, dtype, key=key)
    return dtype if after is None else after


def _check_serializer(codec: NamedConfig, dtype: DType, key: str) -> None:
    if (codec.name in OBJECT_SERIALIZERS) != (dtype.kind == "O"):
        raise UnsupportedFeature(format=_FORMAT, feature=f"{codec.name} over data type {dtype}", key=key)


def _bytes_codec(dtype: DType, key: str) -> NamedConfig:
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
    return kind(codec.name) == "bytes-bytes" or codec.name in {"numcodecs.pcodec", "numcodecs.zfpy"}


def _emit_codec(codec: NamedConfig, key: str) -> dict[str, JSON]:
    configuration = dict(codec.configuration)
    if codec.name.startswith("numcodecs."):
        return {"id": codec.name.removeprefix("numcodecs."), **configuration}
    if codec.name == "bitround":  # the same under two names, on floats; on integers decoding leaves them as they are
        return {"id": codec.name, **configuration}
    if codec.name not in _OWN_NAMES:
        raise UnsupportedFeature(format=_FORMAT, feature=f"codec {codec.name!r}", key=key)
    if codec.name == "blosc":
        if configuration.get("shuffle") not in _SHUFFLES:
            raise MetadataError(key=key, field="blosc.shuffle", got=configuration.get("shuffle"), expected="its name")
        configuration["shuffle"] = _SHUFFLES.index(configuration["shuffle"])
        # steers encoding only; numcodecs before 0.16 fails on it and takes the item size
        configuration.pop("typesize", None)
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
