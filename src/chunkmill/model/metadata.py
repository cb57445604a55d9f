"""The one description of an array or group that every format parses to and emits from: paths, attributes, codecs.

Not here: JSON keys of any format (`chunkmill.formats`), codec behaviour (`chunkmill.codecs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, TypeAlias

import numpy as np

from chunkmill.errors import MetadataError
from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis

JSON = Any  # a recursive alias buys nothing under mypy when every use narrows by isinstance


@dataclass(frozen=True, slots=True)
class ChunkKeyEncoding:
    """Encoding of chunk coords as the end of a store key.

    ``prefix`` stands before the first index as it is (``"c/"`` in Zarr v3, ``"c"`` in its draft, ``""`` in v2 and
    N5), ``scalar`` is the whole key of a 0-d array's chunk, ``reverse`` reverses the coords (N5).

    Examples
    --------
    >>> ChunkKeyEncoding("c/", "/", "c").encode((1, 0, 2))
    'c/1/0/2'
    >>> ChunkKeyEncoding("", "/", "0", reverse=True).encode((1, 0, 2))
    '2/0/1'
    """

    prefix: str
    separator: Literal["/", "."]
    scalar: str
    reverse: bool = False

    def encode(self, coords: tuple[int, ...]) -> str:
        """Return the chunk key of `coords`."""
        if not coords:
            return self.scalar
        ordered = reversed(coords) if self.reverse else coords
        return self.prefix + self.separator.join(map(str, ordered))

    def decode(self, chunk_key: str, ndim: int) -> tuple[int, ...] | None:
        """Return the coords that `chunk_key` encodes, or ``None`` when it is not a chunk key of rank `ndim`."""
        if ndim == 0:
            return () if chunk_key == self.scalar else None
        if not chunk_key.startswith(self.prefix):
            return None
        parts = chunk_key[len(self.prefix) :].split(self.separator)
        # int() would take "+1", " 1", "1_0" and "01", which no writer means
        if len(parts) != ndim or not all(p.isascii() and p.isdigit() and (p == "0" or p[0] != "0") for p in parts):
            return None
        coords = tuple(map(int, parts))
        return coords[::-1] if self.reverse else coords


@dataclass(frozen=True, slots=True)
class NamedConfig:
    """A codec, named as data: what a document says before anything is built.

    Names and configurations are Zarr v3's (``"blosc"``, ``"zstd"``, ``"numcodecs.delta"``, …), in every format.
    """

    name: str
    configuration: Mapping[str, JSON] = field(default_factory=dict)


Kind: TypeAlias = Literal["array-array", "array-bytes", "bytes-bytes"]

_FILTERS = {
    "transpose", "reshape", "zarrs.squeeze", "cast_value", "scale_offset", "bitround", "numcodecs.bitround",
    "numcodecs.delta", "numcodecs.fixedscaleoffset", "numcodecs.quantize", "numcodecs.astype", "numcodecs.packbits",
    "numcodecs.categorize",
}  # fmt: skip
_SERIALIZERS = {
    "bytes", "endian", "sharding_indexed", "packbits", "zfp", "n5_block", "n5_default", "vlen-utf8", "vlen-bytes",
    "numcodecs.vlen-utf8", "numcodecs.vlen-bytes", "numcodecs.vlen-array", "numcodecs.json2", "numcodecs.msgpack2",
    "numcodecs.pcodec", "numcodecs.zfpy",
}  # fmt: skip
CODECS = _FILTERS | _SERIALIZERS | {
    "blosc", "gzip", "zstd", "crc32c", "n5_lz4",
    *(f"numcodecs.{name}" for name in (
        "blosc", "gzip", "zlib", "zstd", "lz4", "bz2", "lzma", "shuffle", "base64",
        "crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3",
    )),
}  # fmt: skip
"""Names of the codecs that are known here, of whatever kind."""


def codec_kind(name: str) -> Kind | None:
    """Return what a codec turns into what; ``None`` when its name is not known here.

    Codecs that numcodecs alone knows count as bytes -> bytes.

    Examples
    --------
    >>> codec_kind("numcodecs.delta"), codec_kind("numcodecs.third-party"), codec_kind("mystery")
    ('array-array', 'bytes-bytes', None)
    """
    if name in _FILTERS:
        return "array-array"
    if name in _SERIALIZERS:
        return "array-bytes"
    return "bytes-bytes" if name in CODECS or name.startswith("numcodecs.") else None


def check_arrangement(chain: Sequence[NamedConfig], *, key: str, field: str = "codecs") -> None:
    """Raise unless `chain` is array -> array codecs, one array -> bytes codec, bytes -> bytes codecs.

    Names that are not known here may be of any kind: opening the array fails on them.
    """
    kinds = [codec_kind(codec.name) for codec in chain]
    # before the serializer, a codec that numcodecs alone knows is a filter
    for i in range(kinds.index("array-bytes") if "array-bytes" in kinds else 0):
        if chain[i].name not in CODECS and kinds[i] is not None:
            kinds[i] = "array-array"
    order = {"array-array": 0, "array-bytes": 1, "bytes-bytes": 2}
    ranks = [order[k] for k in kinds if k is not None]
    serializers = ranks.count(1)
    if ranks != sorted(ranks) or serializers > 1 or (serializers == 0 and None not in kinds):
        got = [codec.name for codec in chain]
        expected = "array -> array codecs, exactly one array -> bytes codec, bytes -> bytes codecs"
        raise MetadataError(key=key, field=field, got=got, expected=expected)


StructName: TypeAlias = Literal["struct", "structured"]


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """Description of an array in Zarr v3's vocabulary, whatever its format.

    Attributes
    ----------
    dtype
        In native byte order; the byte order of storage belongs to the ``bytes`` codec.
        Variable-length strings are numpy's ``StringDType``; other variable-length values are ``object``.
    chunk_grid
        The grid of store keys: of shards, when the array is sharded. Knows the array's shape.
    codecs
        The whole chain in encode order: filters, one serializer, compressors.
    fill_value
        A numpy scalar of ``dtype`` (a ``str`` or ``bytes`` for variable-length values), or ``None`` where the
        format leaves the content of absent chunks undefined (they read as zeros).
    edge_chunks
        ``"padded"``: chunks that overhang the array are stored whole. ``"truncated"``: cropped (N5).
    struct_name
        Name of structured data types in Zarr v3: the registry's, or that of zarr-python 3.0 and 3.1.
    """

    dtype: np.dtype[Any]
    chunk_grid: ChunkGrid
    chunk_keys: ChunkKeyEncoding
    codecs: tuple[NamedConfig, ...]
    fill_value: Any
    edge_chunks: Literal["padded", "truncated"] = "padded"
    dimension_names: tuple[str | None, ...] | None = None
    attributes: Mapping[str, JSON] = field(default_factory=dict)
    struct_name: StructName = "struct"

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis, slowest first."""
        return self.chunk_grid.shape

    @property
    def identity(self) -> str:
        """A text that differs when anything differs that the elements depend on which are read."""
        parts = self.dtype, self.chunk_grid, self.chunk_keys, self.codecs, self.fill_value, self.edge_chunks
        return repr(parts)


_SHARDING, _TRANSPOSE = "sharding_indexed", "transpose"


@dataclass(frozen=True, slots=True)
class InnerLayout:
    """The smallest chunks of an array that can be read by themselves.

    Attributes
    ----------
    keys, chunks
        Grid of store keys and of chunks: the same one unless sharded.
    codecs
        The codecs of one chunk.
    sharding
        The codec that packs chunks into shards, ``None`` unless sharded.
    order
        The array axis that each axis of a shard's index runs along.
    """

    keys: ChunkGrid
    chunks: ChunkGrid
    codecs: tuple[NamedConfig, ...]
    sharding: NamedConfig | None = None
    order: tuple[int, ...] = ()


def inner_layout(metadata: ArrayMetadata) -> InnerLayout:
    """Return the layout of the chunks inside the shards, where they can be read by themselves.

    They can when nothing but transposes precedes the sharding codec and nothing follows it. All other arrays are
    described as unsharded.

    Examples
    --------
    >>> import numpy as np
    >>> sharding = NamedConfig("sharding_indexed", {"chunk_shape": [2, 3], "codecs": [{"name": "bytes"}]})
    >>> metadata = ArrayMetadata(
    ...     np.dtype("u1"), ChunkGrid.regular((9, 8), (6, 6)), ChunkKeyEncoding("c/", "/", "c"),
    ...     (NamedConfig("transpose", {"order": [1, 0]}), sharding), np.uint8(0),
    ... )
    >>> layout = inner_layout(metadata)
    >>> layout.chunks.chunk_shape, [codec.name for codec in layout.codecs], layout.order
    ((3, 2), ['transpose', 'bytes'], (1, 0))
    """
    keys, codecs = metadata.chunk_grid, metadata.codecs
    if not codecs or codecs[-1].name != _SHARDING or any(codec.name != _TRANSPOSE for codec in codecs[:-1]):
        return InnerLayout(keys, keys, codecs)
    *transposes, sharding = codecs
    order = axis_order(transposes, keys.ndim)
    return InnerLayout(keys, inner_grid(metadata), (*transposes, *nested_codecs(sharding)), sharding, order)


def inner_grid(metadata: ArrayMetadata) -> ChunkGrid:
    """Return the grid of the chunks inside the shards, readable by themselves or not; of all chunks, unless sharded."""
    grid, codecs = metadata.chunk_grid, metadata.codecs
    at = next((i for i, codec in enumerate(codecs) if codec.name == _SHARDING), None)
    if at is None:
        return grid
    lengths = [0] * grid.ndim
    for axis, length in zip(axis_order(codecs[:at], grid.ndim), codecs[at].configuration["chunk_shape"], strict=True):
        lengths[axis] = length
    return ChunkGrid(tuple(_inner_axis(axis, length) for axis, length in zip(grid.axes, lengths, strict=True)))


def axis_order(codecs: Sequence[NamedConfig], ndim: int) -> tuple[int, ...]:
    """Return the array axis that each axis is after the transposes among `codecs`.

    Examples
    --------
    >>> axis_order([NamedConfig("transpose", {"order": [1, 2, 0]}), NamedConfig("transpose", {"order": [2, 1, 0]})], 3)
    (0, 2, 1)
    """
    order = tuple(range(ndim))
    for codec in codecs:
        if codec.name == _TRANSPOSE:
            order = tuple(order[axis] for axis in codec.configuration["order"])
    return order


def nested_codecs(codec: NamedConfig) -> tuple[NamedConfig, ...]:
    """Return the codec chain in the configuration of `codec`."""
    return tuple(NamedConfig(**item) for item in codec.configuration["codecs"])


def _inner_axis(axis: RegularAxis | RunsAxis, length: int) -> RegularAxis | RunsAxis:
    if isinstance(axis, RegularAxis):
        return RegularAxis(axis.size, length)
    return RunsAxis(axis.size, tuple((length, edge // length * count) for edge, count in axis.runs))


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Description of a group: its attributes."""

    attributes: Mapping[str, JSON] = field(default_factory=dict)


def parents_of(path: str) -> list[str]:
    """Return the paths of the groups above a node, the nearest first.

    Examples
    --------
    >>> parents_of("a/b/c")
    ['a/b', 'a', '']
    """
    if not path:
        return []
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts) - 1, -1, -1)]


def is_within(path: str, group: str) -> bool:
    """Return whether `path` is `group` or below it.

    Examples
    --------
    >>> is_within("a/b", "a"), is_within("a", "a"), is_within("ab", "a"), is_within("a", "")
    (True, True, False, True)
    """
    return not group or path == group or path.startswith(f"{group}/")


HIDDEN_ATTRIBUTE = "_chunkmill_append"
"""Name of the attribute of a group that is chunkmill's own: `chunkmill.Group.attributes` does not show it."""


class Attributes(dict[str, Any]):
    """Attributes of a node: a dictionary that cannot be changed, since a change would not be stored.

    Examples
    --------
    >>> attributes = Attributes({"units": "K"})
    >>> attributes == {"units": "K"}
    True
    >>> attributes["units"] = "m"
    Traceback (most recent call last):
    TypeError: attributes are read-only here; update_attributes({...}) of the node writes them to the store
    """

    def _refuse(self, *_: object, **__: object) -> Any:
        msg = "attributes are read-only here; update_attributes({...}) of the node writes them to the store"
        raise TypeError(msg)

    __setitem__ = __delitem__ = update = pop = popitem = setdefault = clear = __ior__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Attributes, (dict(self),)


def same_json(a: Any, b: Any) -> bool:
    """Compare values of attributes: ``1`` is not ``true``, and NaN is itself, also where it is spelled ``"NaN"``.

    Examples
    --------
    >>> same_json({"valid": [float("nan"), 1]}, {"valid": ["NaN", 1.0]}), same_json(1, True)
    (True, False)
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_json, a, b))
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return bool(a == b) or (_spelled(a) is not None and _spelled(a) == _spelled(b))


def _spelled(value: Any) -> str | None:
    """Return the name of a float that JSON cannot hold; ``None`` for other values."""
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    return value if value in ("NaN", "Infinity", "-Infinity") else None
