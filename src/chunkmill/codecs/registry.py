"""Codecs by name: their kinds, the names of chains, and pipelines from chains.

The module of a codec is imported when a chain first has it: opening an array pays for its own codecs only.

Spec: Zarr v3 core, "Codecs"; ``numcodecs.<id>`` as zarr-python 3 names the codecs of Zarr v2. Not here: what a codec
does (its own module), and how a format spells it (`chunkmill.formats`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from chunkmill.codecs.base import PREFIX, ChunkSpec, CodecFactory, refuse_pickle
from chunkmill.codecs.pipeline import CodecPipeline
from chunkmill.codecs.sharding import INDEX_CODECS
from chunkmill.errors import ChunkmillError, MetadataError, UnknownCodec
from chunkmill.model.dtypes import is_small
from chunkmill.model.metadata import JSON, Kind, NamedConfig, check_arrangement, codec_kind


def build_pipeline(chain: Sequence[NamedConfig], spec: ChunkSpec) -> CodecPipeline:
    """Build the codecs of `chain` for chunks like `spec`.

    Raises
    ------
    MetadataError
        The arrangement is not array -> array codecs, exactly one array -> bytes codec, bytes -> bytes codecs; or a
        configuration is wrong, or does not fit the chunks.
    UnknownCodec
        There is no codec of that name, or the package that has it is not installed.
    UnsupportedFeature
        The chain asks for pickle.

    Examples
    --------
    >>> chain = [NamedConfig("bytes", {"endian": "little"}), NamedConfig("zstd", {"level": 3})]
    >>> pipeline = build_pipeline(chain, ChunkSpec((2,), np.dtype("i4"), 0))
    >>> pipeline.decode(pipeline.encode(np.array([1, 2], "i4"), spec := ChunkSpec((2,), np.dtype("i4"), 0)), spec)
    array([1, 2], dtype=int32)
    """
    try:
        position = _serializer_position(chain)
        codecs, _ = _build(chain, position, spec)
    except RecursionError as error:
        raise MetadataError(key="codecs", field="chain", got="...", expected="fewer codecs inside codecs") from error
    return CodecPipeline(tuple(codecs[:position]), codecs[position], tuple(codecs[position + 1 :]))


def known_kind(config: NamedConfig) -> Kind:
    """Return what the codec turns into what, without building it; `UnknownCodec` when there is none of that name."""
    refuse_pickle(config.name)
    if (kind := codec_kind(config.name)) is None:
        raise UnknownCodec(name=config.name, known=tuple(sorted(_CODECS)))
    return kind


def parse_codecs(codecs: Any, dtype: np.dtype[Any], *, ndim: int | None = None) -> tuple[NamedConfig, ...]:
    """Turn what users give as ``codecs=`` into a whole chain, with every parameter written out.

    Parameters
    ----------
    codecs
        ``"default"``, or the name of a compressor (``"zstd"``, ``"blosc"``, ``"gzip"``, ``"lz4"``, ``"raw"``, …);
        or a list of dicts ``{"name": …, "configuration": {…}}``, names, codecs of numcodecs or of zarr-python:
        the whole chain, or what stands around the serializer. ``None`` and ``[]``: no compression.
    dtype
        Of the array. Variable-length strings are ``StringDType`` or ``object``. Big-endian: stored so.
    ndim
        Number of axes; without it, a transpose must list its order.

    Examples
    --------
    >>> parse_codecs(["blosc"], np.dtype("f4"))[1].configuration["typesize"]
    4
    """
    chain = [_named(item) for item in _items(codecs)]
    native = dtype if dtype.kind in "OT" else dtype.newbyteorder("=")
    spec = ChunkSpec((1,) * _rank(chain, ndim), native, None)
    position = next((i for i, codec in enumerate(chain) if known_kind(codec) != "array-array"), len(chain))
    named = chain[position : position + 1] == [NamedConfig("bytes")]
    if named or not any(known_kind(codec) == "array-bytes" for codec in chain):
        _, after = _build(chain[:position], position, spec, has_shape=False)
        serializer = default_serializer(dtype if position == 0 else after.dtype)
        if not named or serializer.name == "bytes":
            chain = [*chain[:position], serializer, *chain[position + named :]]
    position = _serializer_position(chain)
    chain[position] = _completed_inside(chain[position], dtype)
    built, _ = _build(chain, position, spec, has_shape=False)
    return tuple(new.config() if hasattr(new, "config") else old for new, old in zip(built, chain, strict=True))


def chain_of_stages(stages: Mapping[str, Any], default: str = "zstd") -> Any:
    """Return ``codecs=`` for the three arguments of zarr-python that are a chain; `default` is the compressor.

    Examples
    --------
    >>> chain_of_stages({"filters": [{"name": "delta"}]}), chain_of_stages({"compressors": None})
    ([{'name': 'delta'}, 'zstd'], [])
    """
    asked = {stage: each for stage, each in stages.items() if not (isinstance(each, str) and each == "auto")}
    if not asked:
        return "default"
    asked.setdefault("compressors", default)
    return [codec for stage in STAGES for codec in _items(asked.get(stage))]


STAGES = ("filters", "serializer", "compressors")


def default_serializer(dtype: np.dtype[Any]) -> NamedConfig:
    """Return the array -> bytes codec for chunks of `dtype`, in its byte order.

    Examples
    --------
    >>> default_serializer(np.dtype("f4")).configuration, default_serializer(np.dtypes.StringDType()).name
    ({'endian': 'little'}, 'vlen-utf8')
    """
    if dtype.kind in "OT":
        return NamedConfig("vlen-utf8")
    if dtype.itemsize == 1 or (dtype.kind in "SV" and dtype.names is None and not is_small(dtype)):
        return NamedConfig("bytes")
    return NamedConfig("bytes", {"endian": "big" if dtype.byteorder == ">" else "little"})


def parse_numcodecs(config: Mapping[str, JSON]) -> NamedConfig:
    """Return numcodecs' configuration under the name of Zarr v3 where both write the same bytes.

    Examples
    --------
    >>> parse_numcodecs({"id": "zstd", "level": 3}).name, parse_numcodecs({"id": "zlib", "level": 1}).name
    ('zstd', 'numcodecs.zlib')
    """
    codec_id = config.get("id")
    if not isinstance(codec_id, str):
        raise MetadataError(key="codecs", field="id", got=codec_id, expected="the id of a codec")
    refuse_pickle(codec_id)
    configuration = {
        key: value.item() if isinstance(value, np.generic) else value for key, value in config.items() if key != "id"
    }
    if codec_id in _SAME_IN_V3:
        return NamedConfig(codec_id, configuration)
    if codec_id == "crc32c" and configuration.get("location", "end") == "end":
        return NamedConfig("crc32c")
    return NamedConfig(PREFIX + codec_id, configuration)


def parse_named_config(value: JSON) -> NamedConfig:
    """Return a codec as it stands in a JSON document: ``{"name": …, "configuration": {…}}`` or a name alone."""
    if isinstance(value, NamedConfig):
        return value
    if isinstance(value, str):
        return NamedConfig(value)
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        configuration = value.get("configuration")
        if configuration is None or isinstance(configuration, Mapping):
            return NamedConfig(value["name"], {} if configuration is None else dict(configuration))
    raise MetadataError(key="codecs", field="codec", got=value, expected="a name, or a name and a configuration")


def sharded(
    chain: Sequence[NamedConfig], inner_shape: tuple[int, ...], index_location: Literal["start", "end"] = "end"
) -> NamedConfig:
    """Return the codec that packs chunks of `inner_shape`, each through `chain`, into shards.

    Examples
    --------
    >>> sharded([NamedConfig("bytes")], (2, 2)).configuration["chunk_shape"]
    [2, 2]
    """
    return NamedConfig(
        "sharding_indexed",
        {
            "chunk_shape": [int(length) for length in inner_shape],
            "codecs": [asdict(codec) for codec in chain],
            "index_codecs": [asdict(parse_named_config(codec)) for codec in INDEX_CODECS],
            "index_location": index_location,
        },
    )


def _build_inner(codecs: JSON, spec: ChunkSpec) -> CodecPipeline:
    """Build the chain inside of a codec."""
    if not isinstance(codecs, list | tuple):
        raise ValueError(f"codecs are {codecs!r:.200}, expected a list")  # noqa: TRY004 - CodecFactory
    return build_pipeline([parse_named_config(codec) for codec in codecs], spec)


def _factory(path: str, name: str) -> CodecFactory:
    """Return what builds a codec: ``module.Class.method`` of this package, imported when a chain first has the codec.

    ``from_named`` gets the name first, and a codec with codecs inside the function that builds those.
    """

    def build(configuration: Mapping[str, Any], spec: ChunkSpec) -> Any:
        module, _, method = path.partition(".")
        function = attrgetter(method)(importlib.import_module(f"chunkmill.codecs.{module}"))
        first = (name,) if method.endswith("from_named") else (_build_inner,) if name in _NESTED else ()
        return function(*first, configuration, spec)

    return build


_NAMES = {
    "axes.Transpose.from_config": "transpose",
    "axes.Reshape.from_config": "reshape",
    "axes.Squeeze.from_config": "zarrs.squeeze",
    "cast_value.CastValue.from_config": "cast_value",
    "cast_value.ScaleOffset.from_config": "scale_offset",
    "cast_value.BitRound.from_named": "bitround numcodecs.bitround",
    "numcodecs.Categorize.from_config": "numcodecs.categorize",
    "numcodecs.NumcodecsFilter.from_named": (
        "numcodecs.delta numcodecs.fixedscaleoffset numcodecs.quantize numcodecs.astype numcodecs.packbits"
    ),
    "bytes.BytesCodec.from_config": "bytes endian",  # the latter is its name before mid-2023
    "sharding.ShardingIndexed.from_config": "sharding_indexed",
    "packbits.PackBits.from_config": "packbits",
    "zfp.Zfp.from_config": "zfp",
    "n5_block.N5Block.from_config": "n5_block",
    "n5_block.N5Default.from_config": "n5_default",
    "vlen.Vlen.from_named": "vlen-utf8 vlen-bytes numcodecs.vlen-utf8 numcodecs.vlen-bytes",
    "vlen.VlenArray.from_config": "numcodecs.vlen-array",
    "vlen.ListedValues.from_named": "numcodecs.json2 numcodecs.msgpack2",
    "numcodecs.NumcodecsNumbers.from_named": "numcodecs.pcodec numcodecs.zfpy",
    "crc32c.Crc32c.from_config": "crc32c",
    "n5_block.N5Lz4.from_config": "n5_lz4",
    "compressors.Gzip.from_named": "gzip numcodecs.gzip numcodecs.zlib",
    "zstd.Zstd.from_named": "zstd numcodecs.zstd",
    "compressors.Blosc.from_named": "blosc numcodecs.blosc",
    "compressors.Lz4.from_config": "numcodecs.lz4",
    "compressors.Bzip2.from_config": "numcodecs.bz2",
    "compressors.Lzma.from_config": "numcodecs.lzma",
    "numcodecs.NumcodecsBytes.from_named": (
        "numcodecs.shuffle numcodecs.base64 numcodecs.crc32 numcodecs.crc32c numcodecs.adler32 numcodecs.fletcher32 "
        "numcodecs.jenkins_lookup3"
    ),
}
"""What builds codecs -> their names."""

_CODECS = {name: _factory(path, name) for path, names in _NAMES.items() for name in names.split()}

# ids of numcodecs whose bytes are those of the Zarr v3 codec of that name
_SAME_IN_V3 = {"gzip", "zstd", "blosc", "vlen-utf8", "vlen-bytes"}

# Their chains depend on a shape that `parse_codecs` does not know.
_NESTED = {"sharding_indexed", "n5_block", "n5_default"}

# As in zarr-python 3, whose level 0 means 3. On 1 MiB of a random walk of int32, level 1 writes 6 % faster, and 3 %
# more; level 5 takes twice the time for 15 % less. Reading takes the same time at each.
_DEFAULT = NamedConfig("zstd", {"level": 3, "checksum": False})


def _serializer_position(chain: Sequence[NamedConfig]) -> int:
    """Check the arrangement of a chain and return where its serializer stands."""
    kinds = [known_kind(codec) for codec in chain]
    check_arrangement(chain, key="codecs", field="chain")
    return kinds.index("array-bytes")


def _build(
    chain: Sequence[NamedConfig], position: int, spec: ChunkSpec, *, has_shape: bool = True
) -> tuple[list[Any], ChunkSpec]:
    """Build the codecs of `chain`, whose serializer stands at `position`; return also the spec that it sees.

    `has_shape`: whether ``spec.shape`` is that of a chunk. Otherwise codecs that depend on it are left as data.
    """
    codecs: list[Any] = []
    for i, config in enumerate(chain):
        if not has_shape and config.name in {"reshape", *_NESTED}:
            codecs.append(config)
            if config.name == "reshape":
                shape = config.configuration.get("shape")
                ndim = len(shape) if isinstance(shape, list | tuple) else 1
                spec = ChunkSpec((1,) * ndim, spec.dtype, spec.fill_value)
            continue
        kind: Kind = "array-array" if i < position else "array-bytes" if i == position else "bytes-bytes"
        codec = _build_one(config, kind, spec)
        codecs.append(codec)
        if kind == "array-array":
            spec = codec.spec_after(spec)
    return codecs, spec


def _build_one(config: NamedConfig, kind: Kind, spec: ChunkSpec) -> Any:
    """Build one codec and see whether it applies to chunks like `spec`."""
    if config.name in _CODECS:
        factory = _CODECS[config.name]
    else:  # known_kind let no other names pass than those of numcodecs' registry
        wanted = "NumcodecsFilter" if kind == "array-array" else "NumcodecsBytes"
        factory = _factory(f"numcodecs.{wanted}.from_named", config.name)
    try:
        codec: Any = factory(config.configuration, spec)
        if kind == "array-bytes":
            codec.encoded_size(spec)
        elif kind == "array-array":
            codec.spec_after(spec)
    except ChunkmillError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        got = dict(config.configuration)
        raise MetadataError(key="codecs", field=config.name, got=got, expected=f"another one: {error}") from error
    return codec


def _items(codecs: Any) -> Sequence[Any]:
    """Return ``codecs=`` as a list of codecs."""
    if codecs is None:
        return ()
    if isinstance(codecs, str):
        return {"default": (_DEFAULT,), "raw": ()}.get(codecs, (codecs,))
    return codecs if isinstance(codecs, list | tuple) else (codecs,)


def _named(item: Any) -> NamedConfig:
    """Return one item of ``codecs=`` as data."""
    if not isinstance(item, type):
        if hasattr(item, "get_config"):
            item = item.get_config()
        elif hasattr(item, "to_dict"):
            item = _of_zarr_python(item)
    if isinstance(item, Mapping) and "id" in item:
        return parse_numcodecs(item)
    config = parse_named_config(item)
    short = config.name not in _CODECS and PREFIX + config.name in _CODECS
    return NamedConfig(PREFIX + config.name, config.configuration) if short else config


def _of_zarr_python(codec: Any) -> Any:
    """Return a codec of zarr-python as data; what it takes from the dtype of the array is taken from it here, too."""
    found = dict(codec.to_dict())
    chosen = {"typesize": None, "shuffle": "autoshuffle"}
    tuned = {name: chosen[name] for name in getattr(codec, "_tunable_attrs", ()) if name in chosen}
    return found | {"configuration": {**(found.get("configuration") or {}), **tuned}}


def _rank(chain: Sequence[NamedConfig], ndim: int | None) -> int:
    """Return the number of axes, from a transpose where nobody says it."""
    orders = [codec.configuration.get("order") for codec in chain if codec.name == "transpose"]
    listed = [len(order) for order in orders if isinstance(order, list | tuple)]
    if ndim is None and orders and not listed:
        raise MetadataError(key="codecs", field="transpose", got=orders[0], expected="a list of axes")
    return ndim if ndim is not None else listed[0] if listed else 1


def _completed_inside(config: NamedConfig, dtype: np.dtype[Any]) -> NamedConfig:
    """Write out the chains inside ``sharding_indexed``."""
    if config.name != "sharding_indexed":
        return config
    shape = config.configuration.get("chunk_shape")
    if not isinstance(shape, list | tuple):
        raise MetadataError(key="codecs", field="chunk_shape", got=shape, expected="a list of integers")
    inner = parse_codecs(config.configuration.get("codecs", "default"), dtype, ndim=len(shape))
    whole = dict(sharded(inner, tuple(shape), config.configuration.get("index_location", "end")).configuration)
    index = config.configuration.get("index_codecs", INDEX_CODECS)
    whole["index_codecs"] = [asdict(codec) for codec in parse_codecs(index, np.dtype(np.uint64), ndim=len(shape) + 1)]
    return NamedConfig(config.name, whole)
