"""Choose the cheapest exact action that turns the chunks of one array into those of another.

- **copy**: store keys map one to one and their bytes mean the same; they move unopened.
- **reframe**: the same, but the frame around the compressed bytes changes: N5's block header, a crc32c.
- **repack**: encoded chunks move into shards, out of shards, or from shards to others.
- **recode**: decode and encode; the chunks stay the same.
- **rechunk**: decode and encode other chunks.

Pure functions of two metadata. Not here: moving chunks (`chunkmill.conversion.convert_tasks`), the target's metadata
(`chunkmill.conversion.target_metadata`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, Literal, TypeAlias

import numpy as np

from chunkmill.model.grid import ChunkGrid, RegularAxis, RunsAxis
from chunkmill.model.metadata import ArrayMetadata, InnerLayout, NamedConfig, axis_order, inner_layout, nested_codecs
from chunkmill.model.user_values import zero

Action: TypeAlias = Literal["copy", "reframe", "repack", "recode", "rechunk"]
Frame: TypeAlias = Literal["n5_block", "crc32c"]


@dataclass(frozen=True, slots=True)
class ChosenAction:
    """The action for the store keys of one array.

    Attributes
    ----------
    name, reason
        The action for most store keys, and why it was chosen.
    counts
        Store keys (chunks, when repacked) by what is expected to be done for them.
    unframe, frame
        The frame to remove from each chunk's bytes, and the one to add.
    materialize
        Whether absent chunks are written out, because the target's fill value is another one, or undefined.
    group
        Number of store keys of the target, along each axis, that one task owns.
    """

    name: Action
    reason: str
    counts: Mapping[str, int]
    unframe: Frame | None
    frame: Frame | None
    materialize: bool
    group: tuple[int, ...]

    @property
    def moves(self) -> bool:
        """Return whether encoded bytes move, all or most of them undecoded."""
        return self.name in {"copy", "reframe", "repack"}


def choose_action(
    source: ArrayMetadata,
    target: ArrayMetadata,
    *,
    exact: bool = False,
    max_bytes: int,
    max_keys: int,
    align_bytes: int | None = None,
    layouts: tuple[Any, Any] | None = None,
) -> ChosenAction:
    """Choose the action for an array.

    Parameters
    ----------
    exact
        Whether bytes may be copied only where the codecs have the same parameters, levels included: when the user
        asked for them. Otherwise it is enough that the target's codecs decode the source's bytes.
    max_bytes, max_keys, align_bytes
        Bounds of what one task owns of the target, as in `group_keys`.
    layouts
        Of chunks and of store keys of the source, which may be a region of a stored array: those that are cut are
        decoded and encoded.

    Examples
    --------
    >>> from chunkmill.model.metadata import ChunkKeyEncoding
    >>> metadata = ArrayMetadata(
    ...     np.dtype("i4"), ChunkGrid.regular((7, 5), (3, 2)), ChunkKeyEncoding("", ".", "0"),
    ...     (NamedConfig("bytes", {"endian": "little"}),), np.int32(0),
    ... )
    >>> choose_action(metadata, metadata, max_bytes=1 << 20, max_keys=4).counts
    {'copy': 9}
    """
    old, new = inner_layout(source), inner_layout(target)
    n_cut_keys = n_cut = 0
    if layouts is not None:
        chunks, keys = layouts
        n_cut_keys, n_cut = keys.n_cut, chunks.n_cut
        old = replace(old, keys=keys.grid, chunks=chunks.grid)
    itemsize = target.dtype.itemsize
    group = group_keys(old, new, itemsize, max_bytes=max_bytes, max_keys=max_keys, align_bytes=align_bytes)
    is_undefined = target.fill_value is None and source.fill_value is not None  # other readers return what they like
    materialize = is_undefined or not same_fill(source, target)
    if old.chunks != new.chunks:
        reason = f"the chunks differ: {old.chunks.chunk_shape} and {new.chunks.chunk_shape}"
        return ChosenAction("rechunk", reason, {"rechunk": new.keys.n_chunks}, None, None, materialize, group)
    old_core, unframe = _unframed(old.codecs)
    new_core, frame = _unframed(new.codecs)
    reason = f"the codecs differ: {chain_text(old.codecs)} and {chain_text(new.codecs)}"
    hidden = materialize and any(codec.name == "sharding_indexed" for codec in old_core)
    if hidden:  # inner chunks that are absent would read as another value
        reason = "the fill values differ, and chunks hold shards"
    if hidden or _normalized(old_core, source, exact=exact) != _normalized(new_core, source, exact=exact):
        return ChosenAction("recode", reason, {"recode": new.chunks.n_chunks}, None, None, materialize, group)
    if unframe == frame:
        unframe = frame = None
    same_keys = old.keys == new.keys and _same_sharding(old.sharding, new.sharding)
    # chunks in shards are moved one by one where those at the ends of a region are decoded
    if same_keys and unframe is None and frame is None and not ((materialize or n_cut_keys) and new.sharding):
        reason = f"chunks and codecs are the same: {chain_text(new.codecs)}"
        counts = {"copy": new.keys.n_chunks - n_cut_keys} | ({"recode": n_cut_keys} if n_cut_keys else {})
        return ChosenAction("copy", reason, counts, None, None, materialize, group)
    # blocks at an end are truncated in N5 and padded elsewhere
    n_recoded = max(n_cut, _n_cropped(new.chunks) if "n5_block" in (unframe, frame) else 0)
    action: Action = "repack" if old.sharding or new.sharding else "reframe"
    actions: dict[str, int] = {action: new.chunks.n_chunks - n_recoded}
    if n_recoded:
        actions["recode"] = n_recoded
    reason = f"encoded chunks are the same: {chain_text(new_core)}"
    for name, what in ((unframe, "comes off"), (frame, "goes around")):
        reason += f"; {name} {what}" if name else ""
    return ChosenAction(action, reason, actions, unframe, frame, materialize, group)


def chain_text(chain: Sequence[NamedConfig]) -> str:
    """Return the names of codecs, in the order in which they encode."""
    return " → ".join(codec.name for codec in chain)


def same_fill(source: ArrayMetadata, target: ArrayMetadata) -> bool:
    """Return whether absent chunks read the same in both, bit for bit."""
    return bool(_fill_bits(source) == _fill_bits(target))


def _fill_bits(metadata: ArrayMetadata) -> Any:
    dtype = metadata.dtype
    fill = metadata.fill_value
    if fill is None:
        serializers = {codec.name for codec in metadata.codecs}
        fill = zero(dtype, "vlen-bytes" if "vlen-bytes" in serializers else "")
    if dtype.hasobject:  # of text of variable length, too
        return type(fill), fill
    return np.array(fill, dtype).tobytes()


# --------------------------------------------------------------------------------------------------------------------
# Chains

# parameters that must be equal for one codec to decode the other's bytes; all of them, for codecs not named here
_DECODED_BY: Mapping[str, tuple[str, ...]] = {
    "gzip": (),
    "zstd": (),
    "blosc": (),
    "numcodecs.zlib": (),
    "numcodecs.bz2": (),
    "numcodecs.lz4": (),
    "n5_lz4": (),
    "numcodecs.lzma": ("format", "filters"),
    "numcodecs.bitround": (),
    "numcodecs.quantize": ("dtype", "astype"),
}

_SAME_BYTES = {  # names of codecs that write the same bytes
    "numcodecs.gzip": "gzip",
    "numcodecs.zstd": "zstd",
    "numcodecs.blosc": "blosc",
    "numcodecs.vlen-utf8": "vlen-utf8",
    "numcodecs.vlen-bytes": "vlen-bytes",
    "endian": "bytes",
}


def _normalized(chain: Sequence[NamedConfig], metadata: ArrayMetadata, *, exact: bool) -> list[Any]:
    """Return the chain such that equal ones encode to (`exact`), or decode from, the same bytes."""
    dtype = metadata.dtype
    n_transposes = next((i for i, codec in enumerate(chain) if codec.name != "transpose"), len(chain))
    order = axis_order(chain[:n_transposes], metadata.chunk_grid.ndim)
    result: list[Any] = [] if order == tuple(sorted(order)) else [order]
    for codec in chain[n_transposes:]:
        name = _SAME_BYTES.get(codec.name, codec.name)
        configuration = dict(codec.configuration)
        if name == "bytes" and dtype.itemsize == 1 and dtype.names is None:
            configuration = {}  # one byte has no order
        if not exact and name in _DECODED_BY:
            configuration = {key: configuration.get(key) for key in _DECODED_BY[name]}
        result.append((name, configuration))
    return result


def _unframed(chain: tuple[NamedConfig, ...]) -> tuple[tuple[NamedConfig, ...], Frame | None]:
    """Return the chain without the frame around its output, and the frame."""
    if len(chain) == 1 and chain[0].name == "n5_block":
        return nested_codecs(chain[0]), "n5_block"
    if len(chain) > 1 and chain[-1].name == "crc32c":
        return chain[:-1], "crc32c"
    return chain, None


def _same_sharding(old: NamedConfig | None, new: NamedConfig | None) -> bool:
    """Return whether shards are equal but for the parameters of their chunks' codecs."""
    if old is None or new is None:
        return old is new
    members = ("chunk_shape", "index_codecs", "index_location")
    return all(old.configuration.get(member) == new.configuration.get(member) for member in members)


# --------------------------------------------------------------------------------------------------------------------
# Grids


def group_keys(
    old: InnerLayout, new: InnerLayout, itemsize: int, *, max_bytes: int, max_keys: int, align_bytes: int | None = None
) -> tuple[int, ...]:
    """Return the number of store keys of the target, along each axis, that one task owns.

    Whole store keys of the source where that is possible, so that each is read by one task; then more along the last
    axes, while the limits allow.

    Parameters
    ----------
    max_bytes, max_keys
        Decoded bytes, and store keys, that one task may own.
    align_bytes
        Bytes that it may own in order to read store keys of the source (shards) once; `max_bytes` when ``None``.

    Examples
    --------
    >>> small, large = ChunkGrid.regular((60, 60), (5, 6)), ChunkGrid.regular((60, 60), (10, 12))
    >>> old, new = InnerLayout(large, large, ()), InnerLayout(small, small, ())
    >>> group_keys(old, new, 1, max_bytes=1000, max_keys=100)
    (2, 10)
    """
    limits = [max(axis.n_chunks, 1) for axis in new.keys.axes]
    n_bytes = prod(new.keys.chunk_shape) * itemsize
    group = [1] * len(limits)
    for axis in reversed(range(len(group))):
        wanted = min(_aligning(old.keys.axes[axis], new.keys.axes[axis]), limits[axis])
        if n_bytes * prod(group) * wanted <= (max_bytes if align_bytes is None else align_bytes):
            group[axis] = wanted
    for axis in reversed(range(len(group))):
        n_keys = prod(group)
        room = min(max_bytes // max(n_bytes * n_keys, 1), max_keys // n_keys)
        group[axis] = min(group[axis] * max(room, 1), limits[axis])
        if group[axis] < limits[axis]:
            break  # a group is contiguous in C order
    return tuple(group)


def n_groups(grid: ChunkGrid, group: Sequence[int]) -> int:
    """Return the number of groups of `group` chunks along each axis of `grid`."""
    return prod(-(-n // g) for n, g in zip(grid.grid_shape, group, strict=True))


def group_ranges(grid: ChunkGrid, group: Sequence[int], number: int) -> list[range]:
    """Return, for each axis, the chunks of `grid` that belong to a group, counted in C order.

    Examples
    --------
    >>> group_ranges(ChunkGrid.regular((7, 5), (1, 1)), (4, 2), 5)
    [range(4, 7), range(4, 5)]
    """
    ranges: list[range] = []
    for n, g in zip(reversed(grid.grid_shape), reversed(group), strict=True):
        number, i = divmod(number, -(-n // g))
        ranges.append(range(i * g, min((i + 1) * g, n)))
    return ranges[::-1]


def _aligning(old: RegularAxis | RunsAxis, new: RegularAxis | RunsAxis) -> int:
    """Return the smallest number of new chunks whose end is a border of both grids."""
    if not isinstance(old, RegularAxis) or not isinstance(new, RegularAxis):
        return 1
    return old.chunk // gcd(old.chunk, new.chunk)


def _n_cropped(grid: ChunkGrid) -> int:
    """Return the number of chunks that overhang the end of an axis."""
    n_whole = 1
    for axis in grid.axes:
        n = axis.n_chunks
        overhangs = n > 0 and axis.start(n - 1) + axis.length(n - 1) > axis.size
        n_whole *= n - overhangs
    return grid.n_chunks - n_whole
