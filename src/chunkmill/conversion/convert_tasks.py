"""Tasks of a conversion: each owns whole store keys of the target and writes their chunks.

Encoded bytes move where they mean the same in the target; other chunks are decoded and encoded one by one. Presence is
kept: what is absent in the source stays absent, what is there is written even when all of it is fill value.
Not here: which of the two happens to an array (`chunkmill.conversion.actions`), chunks that become others
(`chunkmill.conversion.rechunking.job`), jobs (`chunkmill.conversion.convert_job`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from math import prod
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import decode_chunk, encode_chunk
from chunkmill.array.layout import ChunkLayout, ShardedChunks
from chunkmill.array.present_keys import Numbers, chunks_in_shards, count_in, listed_only, touch
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray, chunk_step, metered, metered_source
from chunkmill.array.threads import BackgroundCalls
from chunkmill.codecs.base import Buffer, ChunkSpec
from chunkmill.codecs.bytes import buffer_size, byte_view
from chunkmill.codecs.crc32c import Crc32c
from chunkmill.codecs.n5_block import N5Block, parse_header, write_header
from chunkmill.codecs.sharding import ShardingIndexed
from chunkmill.conversion.actions import ChosenAction, group_ranges
from chunkmill.conversion.estimate import TaskMemory
from chunkmill.jobs.sources import SeenSource, check_absent, check_still_there
from chunkmill.journal.records import StoreKeys
from chunkmill.model.grid import ChunkCoords, ChunkGrid, Region
from chunkmill.runtime.stage import TaskResult
from chunkmill.stores.wrapper import Meter, MeteredStore

_CRC32C = Crc32c()


@dataclass(frozen=True, slots=True)
class ArrayTransfer:
    """One array whose chunks stay, as the tasks carry it.

    Attributes
    ----------
    action
        The action for its store keys.
    fresh
        Whether there is nothing under the target's keys yet, so that absent ones need not be deleted.
    memory
        Planned memory of a task, and requests under way.
    share
        Fraction of one task's budget that the store keys of one group use.
    seen
        The source's documents when the job was planned: looked at again where chunks are absent.
    present
        Numbers of the source's chunks (of store keys, when they are copied) that there are among those of a task, where
        they were listed.
    background
        Values that are being stored while the task continues.
    filled
        Small encoded chunks of fill value that a task writes for absent ones, by shape and extent.
    absent
        Source chunks (store keys, when they are copied) that a task found absent.
    """

    source: StoredArray
    target: StoredArray
    action: ChosenAction
    fresh: bool
    memory: TaskMemory = field(default_factory=lambda: TaskMemory(0))
    share: float = 1.0
    seen: SeenSource | None = None
    present: Numbers | None = None
    background: BackgroundCalls = field(default_factory=lambda: BackgroundCalls(0))
    filled: dict[tuple[int, ...], Buffer] = field(default_factory=dict)
    absent: list[ChunkCoords] = field(default_factory=list)

    @property
    def layouts(self) -> tuple[ChunkLayout, ChunkLayout]:
        """Layouts of what is moved in source and target: store keys when they are copied, else chunks."""
        if self.action.name == "copy":
            return self.source.write_layout, self.target.write_layout
        return self.source.read_layout, self.target.read_layout


def transfer_group(transfers: Sequence[ArrayTransfer], spec: tuple[Any, ...]) -> TaskResult:
    """Write the store keys of one group: `spec` is the array's number, the group's, and which source keys there are.

    Chunks that were absent are looked for again (P9).
    """
    which, number, *present = spec
    planned = transfers[which]
    if present:
        planned = replace(planned, source=listed_only(planned.source, *present))
    meter = Meter()
    source, target = metered_source(planned.source, meter), metered(planned.target, meter)
    layout, _ = planned.layouts
    if present:
        planned = replace(planned, present=chunks_there(source, layout, *present))
    ranges = group_ranges(target.write_layout.grid, planned.action.group, number)
    keys, actions = _owned(planned, ranges)
    absent = transfer_keys(replace(planned, source=source, target=target), keys, actions)
    if absent and planned.seen is not None:
        check_still_there(planned.source, planned.seen)
        check_absent(planned.source, layout, absent)
    if present and not source.store.is_remote:  # those that the indexes did not name; keys are listed again at the end
        new = np.setdiff1d(chunks_there(planned.source, layout, *present), planned.present)
        check_absent(planned.source, layout, [layout.grid.coords_of(int(number)) for number in new[:1]])
    counts = {f"action_{name}": n for name, n in actions.items()}
    return TaskResult.of(meter, n_keys=prod(map(len, ranges)), **counts)


def transfer_keys(transfer: ArrayTransfer, keys: Sequence[ChunkCoords], actions: Counter[str]) -> list[ChunkCoords]:
    """Write store keys of the target, count what is done for them in `actions`, and return the absent source chunks."""
    with BackgroundCalls(transfer.memory.n_background) as background:
        own = replace(transfer, background=background, filled={}, absent=[])
        _move(own, keys, actions)
    return own.absent


def chunks_there(array: StoredArray, layout: ChunkLayout, keys: Numbers) -> Numbers:
    """Return the chunks of `layout` that there are under some store keys."""
    return keys if layout is array.write_layout else chunks_in_shards(array, keys)


def _owned(transfer: ArrayTransfer, ranges: Sequence[range]) -> tuple[list[ChunkCoords], Counter[str]]:
    """Return the store keys of a group to deal with, and the counts of the others, which are known to stay absent."""
    grid = transfer.target.write_layout.grid
    touched = _touched(transfer, grid) if transfer.fresh else None
    if touched is None:
        return list(product(*ranges)), Counter()
    keys = [key for key in map(grid.coords_of, touched) if all(i in each for i, each in zip(key, ranges, strict=True))]
    counted = transfer.layouts[1].grid
    n_absent = count_in(counted, covered(grid, ranges)) - sum(count_in(counted, grid.region(key)) for key in keys)
    return keys, Counter({"absent": n_absent} if n_absent else {})


def _touched(transfer: ArrayTransfer, grid: ChunkGrid) -> list[int] | None:
    """Return the chunks of `grid` that share elements with store keys that the source has; ``None``: not listed."""
    if transfer.present is None:
        return None
    touched = touch(transfer.present, transfer.layouts[0].grid, grid)
    return None if touched is None else cast("list[int]", touched.numbers.tolist())


def transfer_inputs(transfers: Sequence[ArrayTransfer], spec: tuple[Any, ...]) -> Iterator[StoreKeys]:
    """Yield what the task of `spec` reads: of a source that was listed, the store keys that there are."""
    yield StoreKeys.of(transfers[spec[0]].source, _region(transfers, spec), *spec[2:])


def _region(transfers: Sequence[ArrayTransfer], spec: tuple[Any, ...]) -> Region:
    grid = transfers[spec[0]].target.write_layout.grid
    return covered(grid, group_ranges(grid, transfers[spec[0]].action.group, spec[1]))


def transfer_shows(transfers: Sequence[ArrayTransfer], spec: tuple[int, int]) -> str:
    """Return the first store key of the target that the task of `spec` writes."""
    target, group = transfers[spec[0]].target.write_layout, transfers[spec[0]].action.group
    return target.locator.key(tuple(r[0] for r in group_ranges(target.grid, group, spec[1])))


def transfer_share(transfers: Sequence[ArrayTransfer], spec: tuple[int, int]) -> float:
    """Return the fraction of one task's budget that the group of `spec` uses."""
    return transfers[spec[0]].share


def covered(grid: ChunkGrid, ranges: Sequence[range]) -> Region:
    """Return the region covered by the chunks in `ranges`, one range for each axis."""
    return tuple(
        slice(axis.start(r[0]), min(axis.start(r[-1]) + axis.length(r[-1]), axis.size))
        for axis, r in zip(grid.axes, ranges, strict=True)
    )


# --------------------------------------------------------------------------------------------------------------------
# Encoded chunks that move unopened


def _move(transfer: ArrayTransfer, keys: Sequence[ChunkCoords], actions: Counter[str]) -> None:
    """Move chunks one by one: as they are, out of or into shards, in another frame, or through both codec chains."""
    layout, new = transfer.layouts
    chunks = _below(transfer, keys, actions)
    data = _fetch(transfer.source, layout, list(chain.from_iterable(chunks.values())), transfer.memory.n_ahead)
    for key, below in chunks.items():
        entries = _entries(transfer, below, data, actions)
        first = next(entries, None)
        if first is None or new is transfer.target.write_layout:
            transfer.background.call(_put, transfer, key, None if first is None else first[1])
        else:
            _put_shard(transfer, key, chain([first], entries))
        del first, entries  # before the next chunk is fetched, so that it gets the same memory


def _below(
    transfer: ArrayTransfer, keys: Sequence[ChunkCoords], actions: Counter[str]
) -> dict[ChunkCoords, list[ChunkCoords]]:
    """Return the chunks below each store key: where the source was listed, those that may be there."""
    outer, grid = transfer.target.write_layout.grid, transfer.layouts[1].grid
    touched = _touched(transfer, grid)
    if touched is None and grid is outer:
        return {key: [key] for key in keys}
    if touched is None:
        return {key: [overlap.coords for overlap in grid.overlaps(outer.region(key))] for key in keys}
    chunks: dict[ChunkCoords, list[ChunkCoords]] = {key: [] for key in keys}
    for coords in map(grid.coords_of, touched):
        key = outer.first_touched(grid.region(coords))
        if key in chunks:
            chunks[key].append(coords)
    n_absent = sum(count_in(grid, outer.region(key)) - len(below) for key, below in chunks.items())
    if n_absent:
        actions["absent"] += n_absent
    return chunks


def _entries(
    transfer: ArrayTransfer,
    below: Sequence[ChunkCoords],
    data: Iterator[bytes | None],
    actions: Counter[str],
) -> Iterator[tuple[ChunkCoords, Buffer]]:
    """Yield the chunks of one store key of the target that are present, encoded as in the target."""
    for coords in below:
        found = next(data)
        if found is None:
            transfer.absent.append(coords)
        if found is not None:
            yield coords, _translated(transfer, coords, found, actions)
        elif (value := _filled(transfer, coords)) is not None:
            actions["recode"] += 1
            yield coords, value
        else:
            actions["absent"] += 1
        del found  # before the next one is fetched, so that it gets the same memory


def _translated(transfer: ArrayTransfer, coords: ChunkCoords, data: bytes, actions: Counter[str]) -> Buffer:
    """Return a chunk's bytes as encoded in the target."""
    source, action, (old, layout) = transfer.source, transfer.action, transfer.layouts
    if action.moves and not old.is_cut(coords):
        with chunk_step(source, old, coords, action.name):
            check_encoded(old, coords, data)
            moved = reframed(action, layout, coords, data)
        if moved is not None:
            actions[action.name] += 1
            return moved
    actions["recode"] += 1
    chunk = decode_chunk(source, old, coords, data)[_extent(layout, coords)]
    encoded: Buffer = encode_chunk(transfer.target, layout, coords, chunk, write_empty=True)
    return encoded


def check_encoded(layout: ChunkLayout, coords: ChunkCoords, data: Buffer) -> None:
    """Raise `ValueError` where a chunk cannot be decoded, by what costs nothing to see (P1).

    That is its length, where elements are not compressed, the header of an N5 block, and the index of a shard.
    """
    spec, codecs = layout.spec(coords), layout.codecs
    expected = codecs.encoded_size(spec)
    if not codecs.compressors:
        for codec in codecs.filters:
            spec = codec.spec_after(spec)
        if isinstance(codecs.serializer, N5Block):
            shape, offset = parse_header(data, spec.shape)
            payload = codecs.serializer.payload.encoded_size(replace(spec, shape=shape))
            expected = None if payload is None else offset + payload
        elif isinstance(codecs.serializer, ShardingIndexed):
            codecs.serializer.check_index(data, spec)
    if expected is not None and (n_bytes := buffer_size(data)) != expected:
        raise ValueError(f"{n_bytes} bytes, expected {expected}")


def reframed(action: ChosenAction, layout: ChunkLayout, coords: ChunkCoords, data: Buffer) -> Buffer | None:
    """Return the bytes with the target's frame around them; ``None`` when the chunk must be decoded."""
    shape = layout.spec(coords).shape
    if action.unframe == "n5_block":
        block_shape, offset = parse_header(data, shape)
        if block_shape != shape:  # truncated at an end
            return None
        data = byte_view(data)[offset:]
    elif action.unframe == "crc32c":
        data = _CRC32C.decode(data, len(byte_view(data)))
    if action.frame == "n5_block":
        if region_shape(layout.grid.extent(coords)) != shape:
            return None
        return b"".join((write_header(shape), byte_view(data)))
    return _CRC32C.encode(data) if action.frame == "crc32c" else data


def _put_shard(transfer: ArrayTransfer, key: ChunkCoords, entries: Iterable[tuple[ChunkCoords, Buffer]]) -> None:
    """Store a shard of encoded chunks, one after the other where the store can write parts and the index is last."""
    target = transfer.target
    locator = cast("ShardedChunks", target.read_layout.locator)
    axes = zip(target.write_layout.grid.axes, target.read_layout.grid.axes, key, strict=True)
    first = [axis.index(outer.start(i)) for outer, axis, i in axes]
    order = locator.order

    def inside() -> Iterator[tuple[ChunkCoords, Buffer]]:
        for coords, data in entries:
            yield tuple(coords[axis] - first[axis] for axis in order), data
            del data  # before the next one is fetched, so that it gets the same memory

    shape = target.write_layout.grid.shape_of(key)
    spec = ChunkSpec(tuple(shape[axis] for axis in order), target.dtype, target.fill_value)
    with chunk_step(target, target.write_layout, key, "set"):
        parts = locator.sharding.parts(inside(), spec)
        if not transfer.memory.n_background:
            cast("MeteredStore", target.store).set_parts(target.write_layout.locator.key(key), parts)
            return
        value = b"".join(parts)
    transfer.background.call(_put, transfer, key, value)


# --------------------------------------------------------------------------------------------------------------------
# Both


def _extent(layout: ChunkLayout, coords: ChunkCoords) -> Any:
    return (*layout.grid.extent(coords), ...)  # the dots keep a 0-d array an array


def _filled(transfer: ArrayTransfer, coords: ChunkCoords) -> Buffer | None:
    """Return the encoded chunk of the source's fill value that is written for an absent one; ``None`` for none."""
    if not transfer.action.materialize:
        return None
    source, target, layout = transfer.source, transfer.target, transfer.layouts[1]
    shape = (*region_shape(layout.grid.extent(coords)), *layout.spec(coords).shape)
    if (known := transfer.filled.get(shape)) is not None:
        return known
    fill: NDArray[Any] = decode_chunk(source, source.read_layout, coords, None)[(slice(0, 1),) * source.ndim]
    chunk = np.broadcast_to(fill, layout.spec(coords).shape)[_extent(layout, coords)]
    encoded: Buffer = encode_chunk(target, layout, coords, np.ascontiguousarray(chunk, target.dtype), write_empty=True)
    if buffer_size(encoded) <= 64 << 10:  # larger ones would be memory that no plan counts
        transfer.filled[shape] = encoded
    return encoded


def _fetch(
    array: StoredArray, layout: ChunkLayout, coords: Sequence[ChunkCoords], n_ahead: int
) -> Iterator[bytes | None]:
    """Yield the encoded bytes of chunks, ``None`` for those that are absent."""
    spans = layout.locator.locate(array.store, coords)
    size = n_ahead or len(spans) or 1
    results = chain.from_iterable(
        array.store.get_many(spans[start : start + size]) for start in range(0, len(spans), size)
    )
    for each in coords:
        with chunk_step(array, layout, each, "get"):
            data = next(results)
        yield data
        del data  # only the caller refers to it from here on


def _put(transfer: ArrayTransfer, key: ChunkCoords, value: Buffer | None) -> None:
    """Store the value of one store key of the target; ``None``: the key becomes absent."""
    target = transfer.target
    name = target.write_layout.locator.key(key)
    with chunk_step(target, target.write_layout, key, "set"):
        if value is not None:
            target.store.set(name, value)  # type: ignore[arg-type]
        elif not transfer.fresh:
            target.store.delete(name)
