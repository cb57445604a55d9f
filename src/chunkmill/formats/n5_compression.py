"""N5's ``compression`` <-> the codec chain of the model.

Not here: what the compressors do (`chunkmill.codecs`).

Spec: N5 README 4.0.0, n5-blosc, n5-zstandard; ``compressionType`` from N5 for Java (before 2.0).

Parameters steer writing only, so that one that is absent or unusable falls back to N5's default. What no reader needs
(blosc's typesize and nthreads, zarr-python's id) is neither read nor written: tensorstore refuses every member more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import get_member
from chunkmill.model.metadata import JSON, NamedConfig

__all__ = ["emit_compression", "n5_chain", "parse_compression", "zarr_chain"]

_HINT = "give codecs= one of raw, gzip, numcodecs.zlib, numcodecs.bz2, numcodecs.lzma, blosc, zstd, n5_lz4"
_BLOSC_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
_XZ_CHECKS = {-1, 4}  # what xz picks, and CRC64, which is what it picks
_LZ4_BLOCK_SIZE = 1 << 16
_BYTES = NamedConfig("bytes", {"endian": "big"})


def n5_chain(chain: Sequence[NamedConfig]) -> tuple[NamedConfig, ...]:
    """Return `chain` as N5 stores it: everything inside one ``n5_block``.

    `chain` is such a chain already, or Zarr's: an optional ``bytes`` of either endianness, then at most one of the
    compressors that N5 names. Anything else raises `UnsupportedFeature`.

    Examples
    --------
    >>> (block,) = n5_chain([NamedConfig("bytes", {"endian": "little"}), NamedConfig("gzip", {"level": 5})])
    >>> block.name, [codec["name"] for codec in block.configuration["codecs"]]
    ('n5_block', ['bytes', 'gzip'])
    """
    compressor = _compressor(chain)
    _emit_compressor(compressor)  # refuses what N5 cannot name
    return _wrap(compressor)


def zarr_chain(chain: Sequence[NamedConfig], blocks: Sequence[str] = ("n5_block",)) -> tuple[NamedConfig, ...]:
    """Return `chain` without N5's block: what its payload is made of, in codecs that Zarr knows as well.

    A chain without any of the codecs `blocks` is returned as it is. Zarr v3 has a block of its own, ``n5_default``.

    Examples
    --------
    >>> [codec.name for codec in zarr_chain(n5_chain([NamedConfig("gzip", {"level": 5})]))]
    ['bytes', 'gzip']
    """
    if not any(codec.name in blocks for codec in chain):
        return tuple(chain)
    compressor = _compressor(chain)
    if compressor is None:
        return (_BYTES,)
    if compressor.name == "n5_lz4":  # the same compression in numcodecs' frame
        compressor = NamedConfig("numcodecs.lz4", {"acceleration": 1})
    return _BYTES, compressor


def parse_compression(key: str, document: Mapping[str, JSON], itemsize: int) -> tuple[NamedConfig, ...]:
    """Return the codec chain of a dataset whose items have `itemsize` bytes.

    Raises `MetadataError` where the attributes name no compression, `UnsupportedFeature` for one that is unknown.
    """
    if "compression" in document:
        parameters = get_member(key, document, "compression", dict)
        kind = get_member(key, parameters, "type", str)
    else:
        parameters, kind = {}, get_member(key, document, "compressionType", str)
    if kind == "raw":
        return _wrap(None)
    if kind not in _PARSERS:
        raise UnsupportedFeature(format="n5", feature=f"compression {kind!r}", key=key)
    return _wrap(_PARSERS[kind](parameters, itemsize))


def emit_compression(chain: Sequence[NamedConfig]) -> dict[str, JSON]:
    """Return the ``compression`` attribute of a chain, every parameter written out: z5py fails without `level`.

    Examples
    --------
    >>> emit_compression([NamedConfig("gzip", {"level": 5})])
    {'type': 'gzip', 'level': 5, 'useZlib': False}
    """
    return _emit_compressor(_compressor(chain))


def _compressor(chain: Sequence[NamedConfig]) -> NamedConfig | None:
    """Return the one compressor of a chain, in or out of ``n5_block``."""
    if len(chain) == 1 and chain[0].name in {"n5_block", "n5_default"}:
        inner = chain[0].configuration.get("codecs")
        if not isinstance(inner, Sequence) or not all(isinstance(c, Mapping) and "name" in c for c in inner):
            raise MetadataError(key="", field="codecs", got=inner, expected="a list of codecs in n5_block")
        chain = [NamedConfig(codec["name"], codec.get("configuration", {})) for codec in inner]
        if chain and chain[0].name == "transpose":  # N5's order of axes, which is a Zarr array's own there
            chain = chain[1:]
    if chain and chain[0].name == "bytes":
        chain = chain[1:]
    if len(chain) > 1:
        names = ", ".join(codec.name for codec in chain)
        raise UnsupportedFeature(format="n5", feature=f"the codec chain {names}", hint=_HINT)
    if not chain:
        return None
    name, configuration = chain[0].name, dict(chain[0].configuration)
    if name == "numcodecs.lz4":  # the same compression in N5's own frames
        return NamedConfig("n5_lz4", {"blockSize": _LZ4_BLOCK_SIZE})
    if name in {"numcodecs.gzip", "numcodecs.zstd", "numcodecs.blosc"}:  # the same bytes under two names
        name = name.removeprefix("numcodecs.")
    shuffle = configuration.get("shuffle")
    if name == "blosc" and type(shuffle) is int and 0 <= shuffle < len(_BLOSC_SHUFFLES):  # numcodecs' spelling
        configuration["shuffle"] = _BLOSC_SHUFFLES[shuffle]
    return NamedConfig(name, configuration)


def _wrap(compressor: NamedConfig | None) -> tuple[NamedConfig, ...]:
    chain = (_BYTES,) if compressor is None else (_BYTES, compressor)
    codecs = [{"name": codec.name, "configuration": dict(codec.configuration)} for codec in chain]
    return (NamedConfig("n5_block", {"codecs": codecs}),)


def _parse_gzip(parameters: Mapping[str, JSON], _: int) -> NamedConfig:
    level = _parameter(parameters, "level", -1, -1, 9)
    name = "numcodecs.zlib" if parameters.get("useZlib") is True else "gzip"
    return NamedConfig(name, {"level": 6 if level == -1 else level})  # -1: zlib's default, which is 6


def _parse_bzip2(parameters: Mapping[str, JSON], _: int) -> NamedConfig:
    return NamedConfig("numcodecs.bz2", {"level": _parameter(parameters, "blockSize", 9, 1, 9)})


def _parse_xz(parameters: Mapping[str, JSON], _: int) -> NamedConfig:
    preset = _parameter(parameters, "preset", 6, 0, 9)
    return NamedConfig("numcodecs.lzma", {"format": 1, "check": -1, "preset": preset, "filters": None})


def _parse_lz4(parameters: Mapping[str, JSON], _: int) -> NamedConfig:
    # z5 writes a level of 1 to 9 here, zarr-python 2 nothing: then lz4-java's default
    return NamedConfig("n5_lz4", {"blockSize": _parameter(parameters, "blockSize", _LZ4_BLOCK_SIZE, 64, 1 << 25)})


def _parse_zstd(parameters: Mapping[str, JSON], _: int) -> NamedConfig:
    return NamedConfig("zstd", {"level": _parameter(parameters, "level", 3, -(1 << 17), 22), "checksum": False})


def _parse_blosc(parameters: Mapping[str, JSON], itemsize: int) -> NamedConfig:
    cname = parameters.get("cname")
    shuffle = _parameter(parameters, "shuffle", 1, -1, 2)
    if shuffle == -1:  # numcodecs: bits for single bytes, else bytes
        shuffle = 2 if itemsize == 1 else 1
    configuration = {
        "cname": cname if isinstance(cname, str) else "lz4",
        "clevel": _parameter(parameters, "clevel", 5, 0, 9),
        "shuffle": _BLOSC_SHUFFLES[shuffle],
        "typesize": itemsize,  # n5-blosc compresses with 1, which shuffles nothing; every frame carries its own
        "blocksize": _parameter(parameters, "blocksize", 0, 0, (1 << 31) - 1),
    }
    return NamedConfig("blosc", configuration)


_PARSERS: dict[str, Callable[[Mapping[str, JSON], int], NamedConfig]] = {
    "gzip": _parse_gzip,
    "bzip2": _parse_bzip2,
    "xz": _parse_xz,
    "lz4": _parse_lz4,
    "zstd": _parse_zstd,
    "blosc": _parse_blosc,
}


def _parameter(parameters: Mapping[str, JSON], name: str, default: int, least: int, most: int) -> int:
    value = parameters.get(name, default)
    usable = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    return value if usable else default


def _emit_compressor(codec: NamedConfig | None) -> dict[str, JSON]:
    if codec is None:
        return {"type": "raw"}
    get = codec.configuration.get
    match codec.name:
        case "gzip" | "numcodecs.zlib":
            parameters = {"type": "gzip", "level": get("level", 6), "useZlib": codec.name == "numcodecs.zlib"}
        case "numcodecs.bz2":
            parameters = {"type": "bzip2", "blockSize": get("level", 9)}
        case "numcodecs.lzma":
            parameters = _emit_xz(codec)
        case "n5_lz4":
            parameters = {"type": "lz4", "blockSize": get("blockSize", _LZ4_BLOCK_SIZE)}
        case "zstd":
            # tensorstore refuses every member but `level`, so that a checksum cannot be asked for
            if get("checksum", False):
                raise UnsupportedFeature(format="n5", feature="zstd with checksums", hint="give checksum: false")
            parameters = {"type": "zstd", "level": get("level", 3)}
        case "blosc":
            parameters = _emit_blosc(codec)
        case _:
            raise UnsupportedFeature(format="n5", feature=f"the codec {codec.name!r}", hint=_HINT)
    return parameters


def _emit_xz(codec: NamedConfig) -> dict[str, JSON]:
    get = codec.configuration.get
    if get("format", 1) != 1 or get("filters") is not None or get("check", -1) not in _XZ_CHECKS:
        raise UnsupportedFeature(format="n5", feature=f"lzma as {dict(codec.configuration)}", hint=_HINT)
    preset = get("preset")
    return {"type": "xz", "preset": 6 if preset is None else preset}


def _emit_blosc(codec: NamedConfig) -> dict[str, JSON]:
    get = codec.configuration.get
    if (shuffle := get("shuffle", "shuffle")) not in _BLOSC_SHUFFLES:
        raise UnsupportedFeature(format="n5", feature=f"blosc with shuffle {shuffle!r}", hint=_HINT)
    return {
        "type": "blosc",
        "cname": get("cname", "lz4"),
        "clevel": get("clevel", 5),
        "shuffle": _BLOSC_SHUFFLES.index(shuffle),
        "blocksize": get("blocksize", 0),
    }
