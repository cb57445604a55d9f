"""Say which other readers of Zarr lack a codec or data type of an array, and which chain all of them read.

Measured with zarr-python 3.1, TensorStore 0.1.86 and zarrs 0.2.3 (``tests/interop/test_peers_of_plans.py`` measures
it again). Formats besides Zarr v2 and v3 are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chunkmill.formats.n5 import zarr_chain
from chunkmill.formats.zarr_v3_codecs import named
from chunkmill.model.dtypes import is_small
from chunkmill.model.metadata import ArrayMetadata, NamedConfig

_ZARR_PYTHON, _TENSORSTORE, _ZARRS = "zarr-python 3.1", "TensorStore", "zarrs"

_PORTABLE = {"transpose", "bytes", "vlen-utf8", "vlen-bytes", "sharding_indexed", "blosc", "gzip", "zstd", "crc32c"}
_COMPRESSORS = {"blosc", "gzip", "zstd", "crc32c"}
_N5_COMPRESSORS = {"gzip", "numcodecs.bz2"}
_IN_V2 = {"numcodecs.zlib", "numcodecs.bz2"}  # which have no name of their own in v3
_OF_ZARRS = {"numcodecs.zlib", "numcodecs.bz2", "numcodecs.shuffle"}
_REGISTERED = {"bitround", "cast_value", "scale_offset", "reshape", "packbits", "zfp", "n5_default"}


def lacking(metadata: ArrayMetadata, format: str) -> Mapping[str, tuple[str, ...]]:  # noqa: A002
    """Return what of an array some readers do not know, and those readers.

    Examples
    --------
    >>> import chunkmill as cm
    >>> array = cm.create_array("memory://doc-lacking", shape=4, dtype="i4", codecs=["numcodecs.lz4"])
    >>> lacking(array.metadata, "zarr3")
    {'numcodecs.lz4': ('TensorStore', 'zarrs')}
    """
    found: dict[str, tuple[str, ...]] = {}
    if format not in {"zarr2", "zarr3"}:
        return found
    for name in _names(metadata.codecs):
        if name.startswith("numcodecs.") or (name == "crc32c" and format == "zarr2"):
            peers = () if name in _OF_ZARRS else (_ZARRS,)
            if not (format == "zarr2" and name in _IN_V2):
                found[name] = (_TENSORSTORE, *peers)
        elif name in _REGISTERED:
            found[name] = (_ZARR_PYTHON, _TENSORSTORE)
    dtype = metadata.dtype
    if dtype.names is not None or (dtype.kind == "V" and not is_small(dtype)):
        # the registry's `struct`: zarr-python knows it from 3.2 on
        of_python = format == "zarr2" or (dtype.names is not None and _is_as_of_zarr_python(metadata))
        what = "structured types" if dtype.names is not None else f"{dtype}"
        found[what] = (_TENSORSTORE, _ZARRS) if of_python else (_ZARR_PYTHON, _TENSORSTORE, _ZARRS)
    elif dtype.kind in "TOUSmM":
        found["text, bytes and times" if dtype.kind != "O" else "objects"] = (_TENSORSTORE, _ZARRS)
    return found


def _is_as_of_zarr_python(metadata: ArrayMetadata) -> bool:
    """Return whether zarr-python 3.1 reads a structured type: not in shards, and without looking at the byte order."""
    is_plain = "sharding_indexed" not in _names(metadata.codecs)
    is_little = all(codec.configuration.get("endian") != "big" for codec in metadata.codecs)
    return metadata.struct_name == "structured" and is_plain and is_little


def _names(chain: Sequence[NamedConfig]) -> Iterator[str]:
    for codec in chain:
        yield codec.name
        if codec.name == "sharding_indexed":
            yield from _names([named(each, key="", field="codecs") for each in codec.configuration.get("codecs", ())])


def is_specified(metadata: ArrayMetadata, format: str) -> bool:  # noqa: A002
    """Return whether a format's specification knows all codecs: Zarr v3 has none of numcodecs' own.

    Examples
    --------
    >>> import chunkmill as cm
    >>> array = cm.create_array("memory://doc-specified", shape=4, dtype="i4", codecs=["numcodecs.lz4"])
    >>> is_specified(array.metadata, "zarr3"), is_specified(array.metadata, "zarr2")
    (False, True)
    """
    return format != "zarr3" or not any(name.startswith("numcodecs.") for name in _names(metadata.codecs))


def portable_chain(chain: Sequence[NamedConfig], format: str) -> tuple[NamedConfig, ...]:  # noqa: A002
    """Return a chain that all readers of the format know: `chain` itself, where it is one.

    Filters go, and a compressor that some lack becomes zstd; gzip in N5. Serializers of objects stay.

    Examples
    --------
    >>> bare = NamedConfig("bytes", {"endian": "little"})
    >>> [codec.name for codec in portable_chain([NamedConfig("numcodecs.delta"), bare, NamedConfig("gzip")], "zarr3")]
    ['bytes', 'gzip']
    """
    known = zarr_chain(chain, ("n5_block", "n5_default"))
    compressors = _N5_COMPRESSORS if format == "n5" else _COMPRESSORS
    if format == "zarr2":
        compressors = {*compressors, *_IN_V2} - {"crc32c"}
    allowed = (_PORTABLE - _COMPRESSORS) | compressors
    if all(codec.name in allowed for codec in known):
        return tuple(chain)
    best = NamedConfig("gzip", {"level": 6}) if format == "n5" else NamedConfig("zstd", {"level": 3, "checksum": False})
    kept = [codec for codec in known if codec.name in _PORTABLE - _COMPRESSORS]
    return (*kept, *([codec for codec in known if codec.name in compressors] or [best]))


def readers_text(arrays: Sequence[tuple[str, ArrayMetadata]], format: str) -> str:  # noqa: A002
    """Return which readers lack what of some arrays, and where; nothing where all know everything.

    Examples
    --------
    >>> import chunkmill as cm
    >>> array = cm.create_array("memory://doc-readers", "a", shape=4, dtype="i4", codecs=["numcodecs.lz4"])
    >>> readers_text([("a", array.metadata)], "zarr3")
    "TensorStore, zarrs (numcodecs.lz4 of 'a'; codecs='portable' avoids it)"
    """
    where: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for path, metadata in arrays:
        for what, peers in lacking(metadata, format).items():
            where.setdefault((peers, what), []).append(path or "/")
    texts = []
    for (peers, what), paths in where.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        way = "" if " " in what or what == "objects" or what.startswith("|V") else "; codecs='portable' avoids it"
        if what == "structured types" and _ZARR_PYTHON in peers:
            way = "; zarr-python 3.1 reads them, without shards, with the setting chunkmill.struct-name: structured"
        texts.append(f"{', '.join(peers)} ({what} of {paths[0]!r}{more}{way})")
    return "; ".join(texts)
