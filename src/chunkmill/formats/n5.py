"""N5: ``attributes.json`` <-> the model. N5's order of axes is reversed here.

Not here: the header and payload of a block, and what compressors do (`chunkmill.codecs`).

Parameters of ``compression`` steer writing only, so that one that is absent or unusable falls back to N5's default.
What no reader needs (blosc's typesize and nthreads, zarr-python's id) is neither read nor written: tensorstore refuses
every member more.

Spec: N5 README 4.0.0, n5-blosc, n5-zstandard; ``compressionType`` from N5 for Java (before 2.0). Where it is silent, N5
for Java decides: what makes a directory a dataset.
Checked against: tests/golden/n5 (written by z5py 3.0.2, tensorstore 0.1.86, zarr-python 2.18.7, pyn5 1.1.1).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite, prod
from typing import Any, ClassVar

import numpy as np

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.base import (
    MAX_RANK,
    Format,
    attributes_with_names,
    axis_names,
    check_chunk_shape,
    check_shape,
    emit_json,
    get_member,
    parse_json,
)
from chunkmill.formats.chains import SHUFFLES, emit_blosc, parse_blosc
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import JSON, ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NamedConfig

_HINT = "give codecs= one of raw, gzip, numcodecs.zlib, numcodecs.bz2, numcodecs.lzma, blosc, zstd, n5_lz4"
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
    emit_compression(chain)  # refuses what N5 cannot name
    return _wrap(_compressor(chain))


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

    def number(name: str, default: int, least: int, most: int) -> int:
        value = parameters.get(name, default)
        return value if type(value) is int and least <= value <= most else default

    compressor: NamedConfig | None = None
    match kind:
        case "raw":
            pass
        case "gzip":
            name = "numcodecs.zlib" if parameters.get("useZlib") is True else "gzip"
            compressor = NamedConfig(name, {"level": number("level", 6, 0, 9)})  # -1 is zlib's default, which is 6
        case "bzip2":
            compressor = NamedConfig("numcodecs.bz2", {"level": number("blockSize", 9, 1, 9)})
        case "xz":
            preset = number("preset", 6, 0, 9)
            compressor = NamedConfig("numcodecs.lzma", {"format": 1, "check": -1, "preset": preset, "filters": None})
        case "lz4":  # z5 writes a level of 1 to 9 here, zarr-python 2 nothing: then lz4-java's default
            compressor = NamedConfig("n5_lz4", {"blockSize": number("blockSize", _LZ4_BLOCK_SIZE, 64, 1 << 25)})
        case "zstd":
            compressor = NamedConfig("zstd", {"level": number("level", 3, -(1 << 17), 22), "checksum": False})
        case "blosc":
            cname = parameters.get("cname")
            usable = {
                "cname": cname if isinstance(cname, str) else "lz4",
                "clevel": number("clevel", 5, 0, 9),
                "shuffle": number("shuffle", 1, -1, 2),
                "blocksize": number("blocksize", 0, 0, (1 << 31) - 1),
            }
            # n5-blosc compresses with a typesize of 1, which shuffles nothing; every frame carries its own
            compressor = NamedConfig("blosc", parse_blosc(usable, itemsize, key=""))
        case _:
            raise UnsupportedFeature(format="n5", feature=f"compression {kind!r}", key=key)
    return _wrap(compressor)


def emit_compression(chain: Sequence[NamedConfig]) -> dict[str, JSON]:
    """Return the ``compression`` attribute of a chain, every parameter written out: z5py fails without `level`.

    Examples
    --------
    >>> emit_compression([NamedConfig("gzip", {"level": 5})])
    {'type': 'gzip', 'level': 5, 'useZlib': False}
    """
    codec = _compressor(chain)
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
            if get("checksum"):
                raise UnsupportedFeature(format="n5", feature="zstd with checksums", hint="give checksum: false")
            parameters = {"type": "zstd", "level": get("level", 3)}
        case "blosc":
            parameters = {"type": "blosc", **emit_blosc(codec, format_name="n5", key="")}
        case _:
            raise UnsupportedFeature(format="n5", feature=f"the codec {codec.name!r}", hint=_HINT)
    return parameters


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
    if name == "blosc" and type(shuffle) is int and 0 <= shuffle < len(SHUFFLES):  # numcodecs' spelling
        configuration["shuffle"] = SHUFFLES[shuffle]
    return NamedConfig(name, configuration)


def _wrap(compressor: NamedConfig | None) -> tuple[NamedConfig, ...]:
    chain = (_BYTES,) if compressor is None else (_BYTES, compressor)
    return (NamedConfig("n5_block", {"codecs": [asdict(codec) for codec in chain]}),)


def _emit_xz(codec: NamedConfig) -> dict[str, JSON]:
    get = codec.configuration.get
    if get("format", 1) != 1 or get("filters") is not None or get("check", -1) not in _XZ_CHECKS:
        raise UnsupportedFeature(format="n5", feature=f"lzma as {dict(codec.configuration)}", hint=_HINT)
    preset = get("preset")
    return {"type": "xz", "preset": 6 if preset is None else preset}


CHUNK_KEYS = ChunkKeyEncoding("", "/", "0", reverse=True)

_VERSION = "4.0.0"
_VERSION_NUMBER = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}(-\w+)?", re.ASCII)
_DTYPES = {
    name: np.dtype(name)
    for name in (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
    )
}  # fmt: skip
_COMMENT = re.compile(rb'("(?:[^"\\]|\\.)*")|//[^\n]*|#[^\n]*|/\*.*?\*/', re.DOTALL)
_OTHER_DTYPES = {"string", "object"}  # N5 for Java: values of variable length, in blocks of mode 1 and 2
_DATASET = ("dimensions", "blockSize", "dataType", "compression")
_HIDDEN = {*_DATASET, "compressionType"}


def _all_text(values: Sequence[JSON]) -> bool:
    return all(isinstance(value, str) for value in values)


# of a dataset's attributes, those that TensorStore reads, and for which it refuses the dataset where they are not one
# value for each axis: in CF `units` is a string. There they are stored under a key of their own.
_BY_AXIS: Mapping[str, Callable[[Sequence[JSON]], bool]] = {
    "axes": lambda names: _all_text(names) and len(set(filter(None, names))) == len(list(filter(None, names))),
    "units": _all_text,
    "resolution": lambda steps: all(type(n) in {int, float} and isfinite(n) for n in steps),
}
_MOVED = "_chunkmill_attributes"

_MAX_BLOCK_DIMENSION = (1 << 31) - 1  # a Java int
_MAX_BLOCK_BYTES = 1 << 31  # README, "Chunks cannot be larger than 2GB"


@dataclass(frozen=True, slots=True)
class N5(Format):
    """The N5 format; `version` is what the root of a store says, and what is written there.

    Examples
    --------
    >>> document = b'''{"dimensions": [5, 3], "blockSize": [5, 2], "dataType": "uint8",
    ...                 "compression": {"type": "raw"}, "unit": "nm"}'''
    >>> metadata = N5().parse_array("volume", {"volume/attributes.json": document})
    >>> metadata.shape, metadata.chunk_grid.chunk_shape, metadata.attributes
    ((3, 5), (2, 5), {'unit': 'nm'})
    """

    version: str = _VERSION
    name: ClassVar[str] = "n5"
    default_codecs: ClassVar[str] = "gzip"
    group_documents: ClassVar[frozenset[str]] = frozenset({"attributes.json"})
    names_in_axes: ClassVar[bool] = True
    has_bool: ClassVar[bool] = False
    has_fill_value: ClassVar[bool] = False
    level_metadata: ClassVar[str | None] = "n5-viewer"
    empty_groups: ClassVar[bool] = True
    implicit_groups: ClassVar[bool] = True
    default_chunk_keys: ClassVar[ChunkKeyEncoding] = CHUNK_KEYS

    def root_keys(self) -> tuple[str, ...]:
        """Return the key of the root's attributes: they hold the version."""
        return ("attributes.json",)

    def configured(self, documents: Mapping[str, bytes]) -> N5:
        """Return the format with the store's version; `UnsupportedFeature` for one after 4.

        The version may be absent (tensorstore writes none, and the url may lead into a store), or be anything that is
        no version number.
        """
        if (value := documents.get("attributes.json")) is None:
            return self
        version = _parse_json("attributes.json", value).get("n5")
        found = re.match(r"\s*(\d{1,9})(?!\d)", str(version))
        if found and int(found[1]) > int(_VERSION[0]):
            raise UnsupportedFeature(format="n5", feature=f"version {version}", key="attributes.json")
        return replace(self, version=version) if isinstance(version, str) else self

    def emit_root(self) -> dict[str, bytes]:
        """Return the root's attributes with the version; those of a group or dataset at the root hold it as well."""
        return {"attributes.json": emit_json("attributes.json", {"n5": self.version})}

    def array_keys(self, path: str) -> tuple[str, ...]:
        """Return the one key; arrays and groups share it."""
        return (f"{self.chunk_prefix(path)}attributes.json",)

    def parse_array(self, path: str, documents: Mapping[str, bytes]) -> ArrayMetadata | None:
        """Parse a dataset; ``None`` when the attributes are absent or a group's."""
        (key,) = self.array_keys(path)
        if (value := documents.get(key)) is None or not _is_dataset(document := _parse_json(key, value)):
            return None
        if document.get("isLabelMultiset") is True:
            feature = "a label multiset of Paintera (isLabelMultiset: lists of labels and counts for each voxel)"
            hint = "Paintera's conversion helper writes such data as uint64 labels"
            raise UnsupportedFeature(format="n5", feature=feature, key=key, hint=hint)
        shape, chunk_shape = _parse_shapes(key, document)
        dtype = _parse_dtype(key, document)
        attributes = _visible(path, {name: v for name, v in document.items() if name not in {*_HIDDEN, _MOVED}})
        attributes |= get_member(key, {_MOVED: {}, **document}, _MOVED, dict)
        names = axis_names(attributes.get("axes"), len(shape))
        return ArrayMetadata(
            dtype=dtype,
            chunk_grid=ChunkGrid.regular(shape, chunk_shape),
            chunk_keys=CHUNK_KEYS,
            codecs=parse_compression(key, document, dtype.itemsize),
            fill_value=dtype.type(0),
            edge_chunks="truncated",
            dimension_names=None if names is None else names[::-1],
            attributes=attributes,
        )

    def adapt(self, metadata: ArrayMetadata, path: str = "") -> ArrayMetadata:
        """Return the description as N5 stores it: in its chunk keys and blocks, with zero for an undefined fill value.

        `UnsupportedFeature` for what N5 has no place for.
        """
        fill_value = metadata.fill_value
        if fill_value is None and metadata.dtype.name in _DTYPES:
            fill_value = metadata.dtype.type(0)
        adapted = replace(
            metadata,
            chunk_keys=CHUNK_KEYS,
            codecs=n5_chain(metadata.codecs),
            edge_chunks="truncated",
            fill_value=fill_value,
        )
        self.emit_array(path, adapted)
        return adapted

    def emit_array(self, path: str, metadata: ArrayMetadata) -> dict[str, bytes]:
        """Return the attributes of a dataset.

        `UnsupportedFeature` for what N5 has no place for: other dtypes, a fill value besides zero, filters, several
        compressors, shards, 0-d arrays, attributes under N5's own names.
        """
        (key,) = self.array_keys(path)
        _check_holdable(metadata, key)
        attributes = attributes_with_names(metadata, "axes", is_reversed=True, format_name="n5", key=key)
        if taken := sorted({*_HIDDEN, _MOVED} & attributes.keys()):
            raise UnsupportedFeature(format="n5", feature=f"user attributes named {taken} on a dataset", key=key)
        document = {
            "dimensions": list(metadata.shape[::-1]),
            "blockSize": list(metadata.chunk_grid.chunk_shape[::-1]),
            "dataType": metadata.dtype.name,
            "compression": emit_compression(metadata.codecs),
            **_by_axis(self._with_version(key, path, attributes), len(metadata.shape)),
        }
        return {key: emit_json(key, document)}

    def parse_group(self, path: str, documents: Mapping[str, bytes]) -> GroupMetadata | None:
        """Parse a group's attributes; ``None`` when there are none or a dataset's."""
        (key,) = self.group_keys(path)
        if (value := documents.get(key)) is None or _is_dataset(document := _parse_json(key, value)):
            return None
        return GroupMetadata(_visible(path, document))

    def emit_group(self, path: str, metadata: GroupMetadata) -> dict[str, bytes]:
        """Return a group's attributes, empty ones too: a directory on an object store exists by what it contains."""
        (key,) = self.group_keys(path)
        if _is_dataset(metadata.attributes):
            feature = "a group whose attributes make it a dataset ('dimensions' with 'dataType' or 'blockSize')"
            raise UnsupportedFeature(format="n5", feature=feature, key=key)
        return {key: emit_json(key, self._with_version(key, path, dict(metadata.attributes)))}

    def _with_version(self, key: str, path: str, attributes: dict[str, JSON]) -> dict[str, JSON]:
        if "n5" in attributes and _hides_version(path, attributes["n5"]):
            raise UnsupportedFeature(format="n5", feature="a user attribute named 'n5': it is the version", key=key)
        return attributes if path else {"n5": self.version, **attributes}


def _parse_json(key: str, value: bytes) -> dict[str, JSON]:
    """Parse a document; comments are passed over with a warning, as Java's Gson passes over them in silence."""
    try:
        return parse_json(key, value)
    except MetadataError:
        bare = _COMMENT.sub(lambda match: match[1] or b" ", value)
        if bare == value:
            raise
        found = parse_json(key, bare)
    warnings.warn("attributes of N5 hold comments, which JSON has not: they are passed over", UserWarning, stacklevel=2)
    return found


def _visible(path: str, attributes: dict[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in attributes.items() if name != "n5" or not _hides_version(path, value)}


def _hides_version(path: str, value: JSON) -> bool:
    # The version stands at the root; zarr-python 2 writes it to every group.
    return not path or (isinstance(value, str) and _VERSION_NUMBER.fullmatch(value) is not None)


def _is_dataset(document: Mapping[str, JSON]) -> bool:
    # N5 for Java wants dimensions and dataType. A document without dataType but with blockSize is a broken dataset
    # and shall say so; `dimensions` alone is a name that groups use for themselves.
    return "dimensions" in document and ("dataType" in document or "blockSize" in document)


def _parse_shapes(key: str, document: Mapping[str, JSON]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and chunk shape in numpy's order of axes."""
    dimensions = check_shape(get_member(key, document, "dimensions", list), key=key, field="dimensions")
    block_size = get_member(key, document, "blockSize", list)
    chunk_shape = check_chunk_shape(block_size, dimensions, key=key, field="blockSize")
    if not dimensions:
        raise UnsupportedFeature(format="n5", feature="a dataset of 0 dimensions", key=key)
    if max(chunk_shape) > _MAX_BLOCK_DIMENSION:
        raise MetadataError(key=key, field="blockSize", got=block_size, expected=f"at most {_MAX_BLOCK_DIMENSION}")
    return dimensions[::-1], chunk_shape[::-1]


def _parse_dtype(key: str, document: Mapping[str, JSON]) -> np.dtype[Any]:
    name = get_member(key, document, "dataType", str)
    if name in _OTHER_DTYPES:
        raise UnsupportedFeature(format="n5", feature=f"dataType {name!r} (values of variable length)", key=key)
    if name not in _DTYPES:
        raise MetadataError(key=key, field="dataType", got=name, expected=f"one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def _by_axis(attributes: dict[str, JSON], rank: int) -> dict[str, JSON]:
    """Return the attributes, those under one key that have names of N5's but not one value for each axis."""
    moved = {}
    for name, is_valid in _BY_AXIS.items():
        value = attributes.get(name, [])
        if name in attributes and not (isinstance(value, list | tuple) and len(value) == rank and is_valid(value)):
            moved[name] = value
    kept = {name: value for name, value in attributes.items() if name not in moved}
    return {**kept, _MOVED: moved} if moved else kept


def _check_holdable(metadata: ArrayMetadata, key: str) -> None:
    """Refuse what would be lost."""
    if metadata.dtype.name not in _DTYPES:
        feature = f"dtype {metadata.dtype}"
        raise UnsupportedFeature(format="n5", key=key, feature=feature, hint=f"it has {', '.join(_DTYPES)}")
    fill = metadata.fill_value
    # bit for bit: -0.0 is not what absent blocks read as
    if fill is not None and np.asarray(fill, metadata.dtype).tobytes().strip(b"\0"):
        shown = fill.item() if isinstance(fill, np.generic) else fill
        raise UnsupportedFeature(
            format="n5", key=key, feature=f"the fill value {shown!r}", hint="absent blocks are zeros in N5"
        )
    grid = metadata.chunk_grid
    if not grid.is_regular:
        raise UnsupportedFeature(format="n5", key=key, feature="chunks of different declared shapes")
    if not 0 < grid.ndim <= MAX_RANK:
        raise UnsupportedFeature(format="n5", key=key, feature=f"arrays of {grid.ndim} dimensions")
    if metadata.edge_chunks != "truncated":
        raise UnsupportedFeature(format="n5", key=key, feature=f"{metadata.edge_chunks} chunks at the end of an axis")
    if metadata.chunk_keys != CHUNK_KEYS:
        raise UnsupportedFeature(format="n5", key=key, feature=f"chunk keys like {metadata.chunk_keys}")
    n_bytes = prod(grid.chunk_shape) * metadata.dtype.itemsize
    if n_bytes > _MAX_BLOCK_BYTES or max(grid.chunk_shape) > _MAX_BLOCK_DIMENSION:
        raise UnsupportedFeature(format="n5", key=key, feature=f"chunks of {n_bytes} bytes", hint="its limit is 2 GiB")
