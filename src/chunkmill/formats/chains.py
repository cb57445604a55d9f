"""Names, dtypes and default parameters of codecs: what formats need without building any.

Names and configurations only; what codecs do, and whether there is one of a name, is `chunkmill.codecs`'s to say.
Spec: Zarr v3 core, "Codecs"; ``numcodecs.*`` as zarr-python 3 names the codecs of Zarr v2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.dtypes import PLAIN, DType, byte_order, emit_v2, parse_v2, parse_v3
from chunkmill.model.metadata import CODECS, JSON, NamedConfig

OBJECT_SERIALIZERS = {"vlen-utf8", "vlen-bytes", "numcodecs.vlen-array", "numcodecs.json2", "numcodecs.msgpack2"}
"""Serializers of values of variable length."""

RESHAPING = {"reshape", "zarrs.squeeze", "numcodecs.packbits"}
"""Array -> array codecs after which a chunk has other axes."""

_ZARRS = re.compile(r"https://codec\.zarrs\.dev/(?:array|bytes)_to_(?:array|bytes)/(\w{1,40})", re.ASCII)
_SYNONYMS = {
    "endian": "bytes",  # before mid-2023
    "zarrs.zfp": "zfp",
    "numcodecs.vlen-utf8": "vlen-utf8",
    "numcodecs.vlen-bytes": "vlen-bytes",
    "vlen_utf8": "vlen-utf8",
    "vlen_bytes": "vlen-bytes",
    "vlen_array": "numcodecs.vlen-array",
}

# member that holds the dtype a filter takes, and the one it yields: numcodecs' names
_TYPED = {
    "numcodecs.delta": ("dtype", "astype"),
    "numcodecs.fixedscaleoffset": ("dtype", "astype"),
    "numcodecs.quantize": ("dtype", "astype"),
    "numcodecs.astype": ("decode_dtype", "encode_dtype"),
    "numcodecs.categorize": ("dtype", "astype"),
}

_DEFAULTS: Mapping[str, Mapping[str, JSON]] = {  # numcodecs 0.16's
    "gzip": {"level": 1},
    "zstd": {"level": 0, "checksum": False},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0},
}
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
"""Names of blosc's shuffles, by number."""

MAX_TYPESIZE = 255
"""The largest of blosc, which takes larger items for bytes."""


def canonical(name: str) -> str:
    """Return the name under which a codec of Zarr v3 is known here: zarrs' addresses and older names have one as well.

    Examples
    --------
    >>> canonical("https://codec.zarrs.dev/bytes_to_bytes/bz2"), canonical("shuffle"), canonical("zstd")
    ('numcodecs.bz2', 'numcodecs.shuffle', 'zstd')
    """
    found = _ZARRS.fullmatch(name)
    short = found[1] if found else name
    short = _SYNONYMS.get(short, short)
    return next((known for known in (short, f"numcodecs.{short}", f"zarrs.{short}") if known in CODECS), short)


def with_defaults(name: str, configuration: Mapping[str, JSON], itemsize: int) -> dict[str, JSON]:
    """Return the configuration with every parameter of blosc, gzip and zstd written out.

    Peers want them: tensorstore and zarrs refuse a zstd without ``checksum``, zarr-python a blosc without ``typesize``.
    `itemsize` is that of what the codec compresses: 1 after another bytes -> bytes codec.
    """
    result = {**_DEFAULTS.get(name, {}), **configuration}
    if name == "blosc" and "typesize" not in result:
        result["typesize"] = itemsize if 0 < itemsize <= MAX_TYPESIZE else 1
    return result


def parse_blosc(configuration: Mapping[str, JSON], itemsize: int, *, key: str) -> dict[str, JSON]:
    """Return the configuration of blosc from numcodecs', whose shuffle is a number and whose typesize may be null.

    Examples
    --------
    >>> parse_blosc({"cname": "zstd", "shuffle": -1}, 4, key="")["shuffle"]
    'shuffle'
    """
    shuffle = configuration.get("shuffle", 1)
    if type(shuffle) is not int or not -1 <= shuffle < len(SHUFFLES):
        raise MetadataError(key=key, field="blosc.shuffle", got=shuffle, expected="-1, 0, 1 or 2")
    if shuffle == -1:  # bits for single bytes, else bytes
        shuffle = 2 if itemsize == 1 else 1
    rest = {name: value for name, value in configuration.items() if name != "typesize" or value is not None}
    return with_defaults("blosc", {**rest, "shuffle": SHUFFLES[shuffle]}, itemsize)


def emit_blosc(codec: NamedConfig, *, format_name: str, key: str) -> dict[str, JSON]:
    """Return numcodecs' configuration of blosc, without the typesize: it steers encoding only, and old ones refuse it.

    Examples
    --------
    >>> emit_blosc(NamedConfig("blosc"), format_name="zarr2", key="")
    {'cname': 'lz4', 'clevel': 5, 'shuffle': 1, 'blocksize': 0}
    >>> emit_blosc(NamedConfig("blosc", {"shuffle": "much"}), format_name="zarr2", key="a/.zarray")
    Traceback (most recent call last):
    ...
    chunkmill.errors.UnsupportedFeature: zarr2 does not support blosc with shuffle 'much' (in 'a/.zarray')
    """
    found = {name: codec.configuration.get(name, default) for name, default in _DEFAULTS["blosc"].items()}
    if found["shuffle"] not in SHUFFLES:
        raise UnsupportedFeature(format=format_name, feature=f"blosc with shuffle {found['shuffle']!r}", key=key)
    return {**found, "shuffle": SHUFFLES.index(found["shuffle"])}


def layout_filters(order: JSON, ndim: int, *, key: str, field: str = "order") -> list[NamedConfig]:
    """Return the filters that make a memory layout: F turns the axes round, then everything is in C order."""
    if order not in ("C", "F"):  # a tuple: the value may be unhashable
        raise MetadataError(key=key, field=field, got=order, expected="'C' or 'F'")
    return [NamedConfig("transpose", {"order": list(range(ndim))[::-1]})] if order == "F" and ndim > 1 else []


def bytes_configuration(dtype: DType) -> dict[str, JSON]:
    """Return the configuration of the ``bytes`` codec that stores values in the byte order of `dtype`.

    ``{"dtype": ...}`` is chunkmill's own, for structured types of Zarr v2 whose fields differ in byte order.

    Examples
    --------
    >>> bytes_configuration(np.dtype(">i4")), bytes_configuration(np.dtype("S4"))
    ({'endian': 'big'}, {})
    """
    order = byte_order(dtype)
    if order == "mixed":
        return {"dtype": emit_v2(dtype)}
    return {} if order == "none" else {"endian": order}


def filter_input(codec: NamedConfig, dtype: DType, *, key: str) -> DType | None:
    """Return the dtype that a filter says it takes; `dtype` when it leaves that out, ``None`` when it does not say."""
    if codec.name not in _TYPED:
        return None
    name = codec.configuration.get(_TYPED[codec.name][0])
    return dtype if name is None else _numcodecs_dtype(name, key=key, field=codec.name)


def dtype_after(codec: NamedConfig, dtype: DType, *, key: str) -> DType:
    """Return the dtype of what an array -> array codec makes of `dtype`, byte order included.

    numcodecs views buffers: GDAL writes a delta of ``<f8`` over ``<c16``. Raises `UnsupportedFeature` where the items
    of `dtype` cannot be seen as whole items of the codec's.

    Examples
    --------
    >>> codec = NamedConfig("numcodecs.delta", {"dtype": "<i4", "astype": ">i2"})
    >>> dtype_after(codec, np.dtype("<i4"), key=".zarray").str
    '>i2'
    """
    expected = filter_input(codec, dtype, key=key)
    if expected is not None:
        if not dtype.itemsize or dtype.itemsize % expected.itemsize:
            raise UnsupportedFeature(format="chunkmill", feature=f"{codec.name} of {expected} over {dtype}", key=key)
        after = codec.configuration.get(_TYPED[codec.name][1])
        if after is None:
            return np.dtype("u1") if codec.name == "numcodecs.categorize" else expected
        return _numcodecs_dtype(after, key=key, field=codec.name)
    if codec.name == "numcodecs.packbits":
        return np.dtype("u1")
    if codec.name == "cast_value":
        return parse_v3(codec.configuration.get("data_type"), key=key, field="cast_value.data_type")
    return dtype


def _numcodecs_dtype(value: JSON, *, key: str, field: str) -> DType:
    """Parse a dtype in a numcodecs configuration: a type string, or any plain name that numpy takes.

    >>> _numcodecs_dtype("u2", key="", field=""), _numcodecs_dtype("float32", key="", field="")
    (dtype('uint16'), dtype('float32'))
    """
    if isinstance(value, str) and value in PLAIN:
        return PLAIN[value]
    if isinstance(value, str) and re.fullmatch(r"[biufcmMSU][0-9]+(\[\w+\])?", value, re.ASCII):
        value = "<" + value
    return parse_v2(value, key=key, field=field)


def transpose_order(codec: NamedConfig, ndim: int, *, key: str) -> list[int]:
    """Return the order of a transpose as a permutation of the axes; ``"C"`` and ``"F"`` are its old spellings.

    Examples
    --------
    >>> transpose_order(NamedConfig("transpose", {"order": "F"}), 3, key="zarr.json")
    [2, 1, 0]
    """
    order = codec.configuration.get("order")
    if order in ("C", "F"):  # a tuple: the value may be unhashable
        return list(range(ndim)) if order == "C" else list(range(ndim))[::-1]
    is_list = isinstance(order, list | tuple) and all(type(axis) is int for axis in order)
    if not is_list or sorted(order) != list(range(ndim)) or set(codec.configuration) != {"order"}:  # type: ignore[arg-type]
        raise MetadataError(key=key, field="transpose.order", got=order, expected=f"a permutation of {ndim} axes")
    return list(order)  # type: ignore[arg-type]


def reverses_axes(chain: Sequence[NamedConfig], ndim: int, *, key: str) -> tuple[bool, int]:
    """Return whether the transposes that begin `chain` reverse the axes, and how many they are.

    Raises `UnsupportedFeature` when they neither reverse the axes nor leave them as they are.
    """
    axes = list(range(ndim))
    n_transposes = 0
    for codec in chain:
        if codec.name != "transpose":
            break
        axes = [axes[axis] for axis in transpose_order(codec, ndim, key=key)]
        n_transposes += 1
    if axes == list(range(ndim)):
        return False, n_transposes
    if axes == list(range(ndim))[::-1]:
        return True, n_transposes
    hint = "orders are C and F only"
    raise UnsupportedFeature(format="zarr2", feature=f"axes in the order {axes}", key=key, hint=hint)
