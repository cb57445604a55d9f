"""Compare two arrays or groups bit for bit, in parallel tasks aligned to the chunks of both."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, cast

import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from chunkmill.array.chunk_io import read_region
from chunkmill.array.present_keys import Numbers, list_chunks_if_sparse, touch
from chunkmill.array.stored_array import StoredArray, metered
from chunkmill.codecs.elements import differing
from chunkmill.conversion.estimate import itemsize
from chunkmill.conversion.ome import cropping_of_images
from chunkmill.conversion.rechunking.job import read_side, store_costs
from chunkmill.conversion.rechunking.plan import choose_rechunk_strategy
from chunkmill.conversion.rechunking.strategies import Limits, Side
from chunkmill.conversion.region_option import RegionOption, shown_regions
from chunkmill.dask_arrays.sources import open_or_compute
from chunkmill.display.report import ReportMixin, counted, format_seconds
from chunkmill.errors import ChunkmillError
from chunkmill.formats.cf_fill_value import encode_fill_value
from chunkmill.formats.registry import get_format
from chunkmill.journal.records import StoreKeys
from chunkmill.model.grid import ChunkGrid, Region
from chunkmill.model.metadata import same_json
from chunkmill.model.multiscales import emit_transform
from chunkmill.nodes.api import check_storage_options
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.group import image_of_array
from chunkmill.nodes.opening import open_stored, walk
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.runtime.computed import ComputedStore
from chunkmill.runtime.stage import Stage, TaskResult, TaskSpecs
from chunkmill.runtime.stage_runner import JobMonitor, run_once
from chunkmill.runtime.worker_memory import Worker, current_worker
from chunkmill.stores.wrapper import Meter


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between two nodes.

    Attributes
    ----------
    path
        Path of the node, below the nodes that are compared.
    kind
        ``"missing"``, ``"shape"``, ``"dtype"``, ``"attributes"``, ``"dimension names"``, ``"values"``,
        ``"unreadable"``, or ``"no arrays"``: there is nothing to compare.
    text
        Description of the difference.
    region
        Start and stop, along each axis, of the block whose values differ.
    n_elements
        Elements that differ in the block.
    """

    path: str
    kind: str
    text: str
    region: tuple[tuple[int, int], ...] | None = None
    n_elements: int = 0

    def __str__(self) -> str:
        return f"{self.path or '/'}: {self.text}"


def compare_values(path: str, a: NDArray[Any], b: NDArray[Any], region: Region) -> Difference | None:
    """Compare the values of a region of two arrays, bit for bit; ``None`` when they are equal."""
    differs = differing(a, b)
    n_elements = int(np.count_nonzero(differs))
    if not n_elements:
        return None
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(differs)), a.shape)) if a.ndim else ()
    at = tuple(cut.start + i for cut, i in zip(region, first, strict=True))
    found, other = a[first], b[first]
    values = f"{found} and {other}" if str(found) != str(other) else f"{_bits(found)} and {_bits(other)}"
    text = f"values differ: {n_elements:,} of {a.size:,} elements in {shown_regions(region)}, first at {at}: {values}"
    return Difference(path, "values", text, tuple((cut.start, cut.stop) for cut in region), n_elements)


def _bits(value: Any) -> str:
    return f"{value!r} (bits 0x{value.tobytes()[::-1].hex()})" if isinstance(value, np.generic) else repr(value)


_MAX_BLOCK_BYTES = 256 << 20
_N_BLOCKS = 3  # held at once: of both arrays, and where they differ
_SPARSE_CHUNKS = 32  # chunks in a block of arrays of which few are stored: asking for them costs as much as a block
_LEAST_TO_SAMPLE = 64  # blocks to choose from, where the chunks allow it

# Attributes that hold dimension names in formats without them: they add nothing to the names.
_NAMES = {"_ARRAY_DIMENSIONS": 1, "axes": -1}


@dataclass(frozen=True, slots=True, repr=False)
class VerifyReport(ReportMixin):
    """Report of `chunkmill.verify`.

    Attributes
    ----------
    a, b
        Urls, with paths, of the nodes.
    differences
        Where and how they differ; empty when they are equal.
    n_arrays, n_blocks
        Arrays on both sides, and blocks of them, whose values were compared.
    sampled
        Whether only a sample of the blocks was compared.
    bytes_read
        Encoded bytes that were read, of both.
    seconds
        Duration.
    n_blocks_absent
        Blocks in which a listing showed chunks on neither side: their fill values were compared once for each array.
    """

    a: str
    b: str
    differences: tuple[Difference, ...]
    n_arrays: int
    n_blocks: int
    sampled: bool
    bytes_read: int
    seconds: float
    n_blocks_absent: int = 0

    _computed = ("equal",)

    @property
    def equal(self) -> bool:
        """``True`` if arrays were compared and nothing differs."""
        return not self.differences

    def _facts(self) -> list[tuple[str, str]]:
        sampled = " (a sample)" if self.sampled else ""
        absent = f", {self.n_blocks_absent:,} blocks absent on both sides" if self.n_blocks_absent else ""
        read = f"{format_bytes(self.bytes_read)} read in {format_seconds(self.seconds)}"
        blocks = f"{counted(self.n_blocks, 'block')}{sampled}{absent}"
        return [("a", self.a), ("b", self.b), ("compared", f"{counted(self.n_arrays, 'array')}, {blocks}, {read}")]

    def _title(self) -> str:
        return f"verify: {'equal' if self.equal else counted(len(self.differences), 'difference')}"

    def _tables(self) -> list[list[tuple[str, ...]]]:
        rows = [(one.path or "/", one.kind, one.text) for one in self.differences]
        return [[("difference", "kind", "how"), *rows]] if rows else []


# --------------------------------------------------------------------------------------------------------------------
# Documents


def _by_path(top: StoredNode) -> dict[str, StoredNode]:
    return {node.path[len(top.path) :].strip("/"): node for node in walk(top)}


def _compare_documents(path: str, a: StoredNode | None, b: StoredNode | None) -> Iterator[Difference]:
    if a is None or b is None:
        there, side = (b, "a") if a is None else (a, "b")
        yield Difference(path, "missing", f"{_kind(there)} is missing in {side}")
        return
    if isinstance(a, StoredArray) is not isinstance(b, StoredArray):
        yield Difference(path, "missing", f"a has {_kind(a)}, b {_kind(b)}")
        return
    is_computed = any(isinstance(each, StoredArray) and isinstance(each.store, ComputedStore) for each in (a, b))
    if isinstance(a, StoredArray) and isinstance(b, StoredArray):
        for kind in ("shape", "dtype", "dimension names"):
            one, other = (getattr(each, kind.replace(" ", "_")) for each in (a, b))
            if one != other and not (is_computed and kind == "dimension names" and None in {one, other}):
                yield Difference(path, kind, f"{kind} differs: {one} and {other}")
    if is_computed:  # what is computed has no attributes
        return
    first, second = _own_attributes(a, b), _own_attributes(b, a)
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second or not same_json(first[name], second[name]):
            shown = (f"{each[name]!r:.80}" if name in each else "absent" for each in (first, second))
            yield Difference(path, "attributes", f"attribute {name!r} differs: {' and '.join(shown)}")


def _own_attributes(node: StoredNode, other: StoredNode) -> dict[str, Any]:
    """Return the attributes without those that repeat the dimension names, or the other's fill value or place."""
    names = node.dimension_names if isinstance(node, StoredArray) else None
    return {
        name: value
        for name, value in node.attributes.items()
        if (names is None or name not in _NAMES or value != list(names)[:: _NAMES[name]])
        and not (name == "_FillValue" and isinstance(other, StoredArray) and _means_the_same(value, other))
        and not (name == "transform" and isinstance(other, StoredArray) and _is_place_of(value, other))
    }


def _is_place_of(transform: Any, other: StoredArray) -> bool:
    """Return whether a ``transform`` says what the other says by other attributes, as a copy of N5 does."""
    with suppress(ChunkmillError):  # metadata of an image that contradict themselves describe nothing
        opened = partial(open_stored, other.store)
        found = None if "transform" in other.attributes else image_of_array(other, opened, warns=False)
        return found is not None and same_json(transform, emit_transform(found[1].axes, found[2]))
    return False


def _means_the_same(value: Any, other: StoredArray) -> bool:
    """Return whether the attribute ``_FillValue`` is the other's fill value, where that stands for missing elements."""
    fill = other.fill_value
    if "_FillValue" in other.attributes or fill is None or not get_format(other.format).masks_fill_value:
        return False
    return other.dtype.kind in "biufc" and same_json(value, encode_fill_value(fill, other.dtype))


def _kind(node: StoredNode | None) -> str:
    return "an array" if isinstance(node, StoredArray) else "a group"


def _specs(blocks: Sequence[Sequence[int]], sample: float | None, seed: int) -> Sequence[tuple[int, int]]:
    """Return pair and number of each block to compare, from the numbers of the blocks of each pair."""
    specs = TaskSpecs(enumerate(blocks))
    if sample is None or not len(specs):
        return specs
    chosen = random.Random(seed).sample(range(len(specs)), max(1, round(sample * len(specs))))  # noqa: S311 - no secret
    return [specs[i] for i in sorted(chosen)]


# --------------------------------------------------------------------------------------------------------------------
# Values


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two arrays of one shape and dtype, and the grid of blocks in which they are compared."""

    path: str
    a: StoredArray
    b: StoredArray
    blocks: ChunkGrid

    @classmethod
    def of(cls, path: str, a: StoredArray, b: StoredArray, worker: Worker, most: int) -> tuple[_Pair, Sequence[int]]:
        """Return the pair, and the numbers of the blocks in which either array has chunks: of all, unless listed.

        Blocks own `most` bytes; fewer where few chunks are stored, since the absent ones near them are asked for.
        """
        listed = _list_both(a, b)
        if listed is not None:
            most = min(most, _SPARSE_CHUNKS * min(prod(grid.chunk_shape) * a.dtype.itemsize for _, grid in listed))
        max_mem = min(worker.max_mem, _N_BLOCKS * worker.n_threads * most)
        blocks = _blocks(a, b, replace(worker, max_mem=max_mem))
        pair = cls(path, a, b, blocks)
        if listed is not None:
            found = [touch(chunks, grid, blocks) for chunks, grid in listed]
            numbers = [each.numbers for each in found if each is not None]
            if len(numbers) == len(found):
                return pair, cast("Sequence[int]", np.union1d(*numbers).tolist())
        return pair, range(blocks.n_chunks)

    def compare_fill(self, stored: Sequence[int]) -> Difference | None:
        """Compare the fill values, in the first block in which neither array has chunks."""
        n_absent = self.blocks.n_chunks - len(stored)
        if not n_absent:
            return None
        region = self.region(next((i for i, number in enumerate(stored) if number != i), len(stored)))
        first = tuple(slice(cut.start, cut.start + 1) for cut in region)
        difference = compare_values(self.path, read_region(self.a, first), read_region(self.b, first), first)
        if difference is None:
            return None
        values = difference.text.rpartition(": ")[2]
        text = f"fill values differ: {values}; {n_absent:,} blocks are absent on both sides, "
        text += f"the first at {shown_regions(region)}"
        where = tuple((cut.start, cut.stop) for cut in region)
        return Difference(self.path, "values", text, where, prod(cut.stop - cut.start for cut in region))

    def region(self, number: int) -> Region:
        """Return the region of one block."""
        return self.blocks.region(self.blocks.coords_of(number))


def _list_both(a: StoredArray, b: StoredArray) -> list[tuple[Numbers, ChunkGrid]] | None:
    """Return the numbers of the chunks of both, and their grids; ``None`` where every one is to be asked for."""
    if "error" in {a.read_missing, b.read_missing}:  # each absent chunk is an error of its own
        return None
    first = list_chunks_if_sparse(a)
    second = None if first is None else list_chunks_if_sparse(b)
    return None if first is None or second is None else [first, second]


def _blocks(a: StoredArray, b: StoredArray, worker: Worker) -> ChunkGrid:
    """Return blocks of whole store keys of one array that read as little of the other twice as memory allows."""
    max_mem = worker.max_mem // _N_BLOCKS
    while True:
        limits, plans = Limits(max_mem, worker.n_threads, worker.n_workers), []
        for one, other in ((b, a), (a, b)):
            grid, costs = _grid(one), store_costs(other.store, other.store, one.store)
            read, owned = read_side(other, worker), Side(grid, grid, 0)
            plans.append(choose_rechunk_strategy(read, owned, itemsize(b), limits, costs=costs, strategy="direct"))
        if fits := [plan for plan in plans if plan.estimate.peak_bytes <= max_mem]:
            return min(fits, key=lambda plan: plan.estimate.seconds).writes
        max_mem = 2 * max_mem + 1  # chunks that exceed the limit are compared nevertheless


def _grid(array: StoredArray) -> ChunkGrid:
    """Return the grid to align to: of store keys, or of the inner chunks of shards that are too large to hold."""
    keys = array.write_layout.grid
    return keys if prod(keys.chunk_shape) * array.dtype.itemsize <= _MAX_BLOCK_BYTES else array.read_layout.grid


def _block_inputs(pairs: Sequence[_Pair], spec: tuple[int, int]) -> Iterator[StoreKeys]:
    pair, region = pairs[spec[0]], pairs[spec[0]].region(spec[1])
    yield from (StoreKeys.of(array, region) for array in (pair.a, pair.b))


def _block_shows(pairs: Sequence[_Pair], spec: tuple[int, int]) -> str:
    return pairs[spec[0]].a.first_key(pairs[spec[0]].region(spec[1]))


def _compare_block(pairs: Sequence[_Pair], spec: tuple[int, int]) -> TaskResult:
    which, number = spec
    pair = pairs[which]
    region = pair.region(number)
    where = tuple((cut.start, cut.stop) for cut in region)
    meter = Meter()
    details: list[Difference] = []
    blocks = []
    for side, array in (("a", pair.a), ("b", pair.b)):
        try:
            blocks.append(read_region(metered(array, meter), region))
        except ChunkmillError as error:
            details.append(Difference(pair.path, "unreadable", f"cannot be read in {side}: {error}", where))
    if not details and (difference := compare_values(pair.path, blocks[0], blocks[1], region)) is not None:
        details.append(difference)
    return TaskResult(meter.counts() | {"n_blocks": 1}, {}, details)


def verify(
    a: Any,
    b: Any,
    *,
    region: RegionOption = None,
    sample: float | None = None,
    seed: int = 0,
    storage_options: Mapping[str, Any] | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> VerifyReport:
    """Compare two arrays or groups, chunk by chunk, in parallel on the current dask scheduler.

    Values are compared bit for bit (NaN payloads, ``-0.0``), whatever the chunks and codecs; so are shapes, dtypes,
    attributes, dimension names and the nodes of groups, those below folders without a group document included.
    Consolidated metadata are not trusted, unless a group was opened with ``consolidated=True``.

    Parameters
    ----------
    a, b : str, path, store, tuple, Array, Group, dask.array.Array, numpy.ndarray or xarray.DataArray
        A url, ``(url, path)``, an Array or a Group; or an array of Dask (of any kind), numpy or xarray, whose blocks
        are computed by the tasks that compare them. Of those, shape, dtype and values are compared, and xarray's
        dimension names.
    region : optional
        Compare `b` with this region of `a`, as in `plan_convert`.
    sample : float, optional
        Share of the blocks to compare: ``0.01`` for one in a hundred. ``None``: all.
    seed : int
        Seed of the random choice of the sample.
    storage_options, target_storage_options : dict, optional
        Options for the filesystems of `a` and of `b`, as in fsspec; `b` uses those of `a` by default.
    progress : bool or str, optional
        Show a bar, as in `Plan.run`.

    Returns
    -------
    VerifyReport
        ``.equal``, and in ``.differences`` where and how they differ. An absent chunk equals one of fill values. Two
        groups without any array are not equal: no value was compared, and an empty copy must not pass for a whole one.

    Raises
    ------
    NodeNotFound, MetadataError, StoreError
        `a` or `b` cannot be opened; a chunk that cannot be decoded is a difference.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-verify-a", shape=(4,), dtype="i4", chunks=(2,))
    >>> b = cm.create_array("memory://doc-verify-b", shape=(4,), dtype="i4", chunks=(4,), format="n5")
    >>> verify(a, b).equal
    True
    >>> b[3] = 5
    >>> print(verify(a, b).differences[0])
    /: values differ: 1 of 4 elements in [0:4], first at (3,): 0 and 5
    >>> verify(a.to_dask() + 0, a).equal
    True
    """
    start = time.perf_counter()
    if sample is not None and not 0 < sample <= 1:
        raise ValueError(f"sample={sample}: expected a number above 0 and at most 1")
    check_storage_options(storage_options, a, b)
    check_storage_options(target_storage_options, b)
    one = open_or_compute(a, storage_options)
    other = open_or_compute(b, storage_options if target_storage_options is None else target_storage_options)
    names = join_path(one.url, one.path), join_path(other.url, other.path)
    with JobMonitor(f"verify {' and '.join(names)}", progress).showing() as monitor:
        arrays = [] if region is None else [each for each in walk(one) if isinstance(each, StoredArray)]
        crop = cropping_of_images(region, one, arrays)
        differences: list[Difference] = []
        pairs: list[_Pair] = []
        stored: list[Sequence[int]] = []
        worker = current_worker()
        firsts, seconds = _by_path(one), _by_path(other)
        for path in sorted(firsts.keys() | seconds.keys()):
            first, second = firsts.get(path), seconds.get(path)
            if crop is not None and isinstance(first, StoredArray):
                first = crop(first)
            differences.extend(_compare_documents(path, first, second))
            if not isinstance(first, StoredArray) or not isinstance(second, StoredArray):
                continue
            if first.shape == second.shape and first.dtype == second.dtype:
                most = _MAX_BLOCK_BYTES if sample is None else min(_MAX_BLOCK_BYTES, second.nbytes // _LEAST_TO_SAMPLE)
                pair, found = _Pair.of(path, first, second, worker, most)
                pairs.append(pair)
                stored.append(found)
                if (difference := pair.compare_fill(found)) is not None:
                    differences.append(difference)
        if not pairs and not differences:
            differences.append(Difference("", "no arrays", "there are no arrays on either side: no value was compared"))
        specs = _specs(stored, sample, seed)
        stage = Stage("verify", _compare_block, tuple(pairs), specs, _block_shows, inputs=_block_inputs)
        (result,) = run_once([stage], monitor, (array for pair in pairs for array in (pair.a, pair.b)))
    values = sorted(result.details, key=lambda difference: (difference.path, difference.region or ()))
    return VerifyReport(
        *names,
        (*differences, *values),
        len(pairs),
        len(specs),
        sample is not None,
        result.counts.get("bytes_read", 0),
        time.perf_counter() - start,
        sum(pair.blocks.n_chunks - len(found) for pair, found in zip(pairs, stored, strict=True)),
    )
