"""Compare two arrays or groups bit for bit, in parallel tasks aligned to the chunks of both.

Not here: arguments (`chunkmill.checks.verify`).
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from chunkmill.array.chunk_io import read_region
from chunkmill.array.metered import metered
from chunkmill.conversion.chunk_memory import itemsize
from chunkmill.conversion.rechunking.plan import Limits, Side, choose_rechunk_strategy
from chunkmill.conversion.rechunking.sides import read_side, store_costs
from chunkmill.display.report import ReportMixin
from chunkmill.errors import ChunkmillError, JobError
from chunkmill.formats.cf_fill_value import encode_fill_value
from chunkmill.formats.registry import get_format
from chunkmill.model.grid import ChunkGrid, Region
from chunkmill.model.json_values import same_json
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Node
from chunkmill.runtime.job import Stage, TaskResult, run_once
from chunkmill.runtime.scheduler import check_n_tasks
from chunkmill.runtime.worker import Worker, current_worker
from chunkmill.stores.metered import Meter

__all__ = ["Difference", "VerifyReport", "compare"]

_MAX_BLOCK_BYTES = 256 << 20
_N_BLOCKS = 3  # held at once: of both arrays, and where they differ
_LEAST_TO_SAMPLE = 64  # blocks to choose from, where the chunks allow it

# Attributes that hold dimension names in formats without them: they add nothing to the names.
_NAMES = {"_ARRAY_DIMENSIONS": 1, "axes": -1}


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
    """

    a: str
    b: str
    differences: tuple[Difference, ...]
    n_arrays: int
    n_blocks: int
    sampled: bool
    bytes_read: int
    seconds: float

    _computed = ("equal", "n_tasks")

    @property
    def equal(self) -> bool:
        """``True`` if arrays were compared and nothing differs."""
        return not self.differences

    @property
    def n_tasks(self) -> int:
        """Tasks that compared values: one for each block."""
        return self.n_blocks

    def _facts(self) -> list[tuple[str, str]]:
        sampled = " (a sample)" if self.sampled else ""
        read = f"{format_bytes(self.bytes_read)} read in {self.seconds:.1f} s"
        return [
            ("a", self.a),
            ("b", self.b),
            ("compared", f"{self.n_arrays:,} arrays, {self.n_blocks:,} blocks{sampled}, {read}"),
        ]

    def _title(self) -> str:
        n = len(self.differences)
        return "verify: equal" if self.equal else f"verify: {n:,} difference{'' if n == 1 else 's'}"

    def _tables(self) -> list[list[tuple[str, ...]]]:
        rows = [(one.path or "/", one.kind, one.text) for one in self.differences]
        return [[("difference", "kind", "how"), *rows]] if rows else []


def compare(
    a: Node, b: Node, *, sample: float | None = None, seed: int = 0, progress: bool | str | None = None
) -> VerifyReport:
    """Compare two nodes and everything below them; see `chunkmill.verify`."""
    start = time.perf_counter()
    if sample is not None and not 0 < sample <= 1:
        msg = f"sample={sample}: expected a number above 0 and at most 1"
        raise ValueError(msg)
    differences: list[Difference] = []
    pairs: list[_Pair] = []
    worker = current_worker()
    for path, first, second in _matched(a, b):
        differences.extend(_compare_documents(path, first, second))
        if isinstance(first, Array) and isinstance(second, Array) and _same_kind(first, second):
            most = _MAX_BLOCK_BYTES if sample is None else min(_MAX_BLOCK_BYTES, second.nbytes // _LEAST_TO_SAMPLE)
            max_mem = min(worker.max_mem, _N_BLOCKS * worker.n_threads * most)
            pairs.append(_Pair.of(path, first, second, replace(worker, max_mem=max_mem)))
    title = f"verify {_shown(a)} and {_shown(b)}"
    if not pairs and not differences:
        differences.append(Difference("", "no arrays", "there are no arrays on either side: no value was compared"))
    specs = _specs([pair.blocks.n_chunks for pair in pairs], sample, seed, title)
    stage = Stage("verify", _compare_block, tuple(pairs), specs, _block_reads, _block_shows)
    arrays = (array for pair in pairs for array in (pair.a, pair.b))
    (result,) = run_once([stage], name="verify", arrays=arrays, title=title, progress=progress)
    found = sorted(result.details, key=lambda difference: (difference.path, difference.region or ()))
    return VerifyReport(
        _shown(a),
        _shown(b),
        (*differences, *found),
        len(pairs),
        len(specs),
        sample is not None,
        result.counts.get("bytes_read", 0),
        time.perf_counter() - start,
    )


# --------------------------------------------------------------------------------------------------------------------
# Documents


def _matched(a: Node, b: Node) -> Iterator[tuple[str, Node | None, Node | None]]:
    first = {_below(a, node): node for node in hierarchy.walk(a)}
    second = {_below(b, node): node for node in hierarchy.walk(b)}
    for path in sorted(first.keys() | second.keys()):
        yield path, first.get(path), second.get(path)


def _below(top: Node, node: Node) -> str:
    return node.path[len(top.path) :].strip("/")


def _compare_documents(path: str, a: Node | None, b: Node | None) -> Iterator[Difference]:
    if a is None or b is None:
        there, side = (b, "a") if a is None else (a, "b")
        yield Difference(path, "missing", f"{_kind(there)} is missing in {side}")
        return
    if type(a) is not type(b):
        yield Difference(path, "missing", f"a has {_kind(a)}, b {_kind(b)}")
        return
    if isinstance(a, Array) and isinstance(b, Array):
        for kind, first, second in (
            ("shape", a.shape, b.shape),
            ("dtype", a.dtype, b.dtype),
            ("dimension names", a.dimension_names, b.dimension_names),
        ):
            if first != second:
                yield Difference(path, kind, f"{kind} differs: {first} and {second}")
    first_attributes, second_attributes = _own_attributes(a, b), _own_attributes(b, a)
    for name in sorted(first_attributes.keys() | second_attributes.keys()):
        first, second = first_attributes.get(name, _ABSENT), second_attributes.get(name, _ABSENT)
        if not same_json(first, second):
            yield Difference(path, "attributes", f"attribute {name!r} differs: {first!r:.80} and {second!r:.80}")


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


def _own_attributes(node: Node, other: Node) -> dict[str, Any]:
    """Return the attributes without those that repeat the dimension names or the other's fill value."""
    names = node.dimension_names if isinstance(node, Array) else None
    return {
        name: value
        for name, value in node.attributes.items()
        if (names is None or name not in _NAMES or value != list(names)[:: _NAMES[name]])
        and not (name == "_FillValue" and isinstance(other, Array) and _marks_the_same(value, other))
    }


def _marks_the_same(value: Any, other: Array) -> bool:
    """Return whether the attribute ``_FillValue`` equals the other's fill value, where that marks missing elements."""
    fill = other.fill_value
    if "_FillValue" in other.attributes or fill is None or not get_format(other.format).masks_fill_value:
        return False
    return other.dtype.kind in "biufc" and same_json(value, encode_fill_value(fill, other.dtype))


def _kind(node: Node | None) -> str:
    return "an array" if isinstance(node, Array) else "a group"


def _specs(n_blocks: Sequence[int], sample: float | None, seed: int, job: str) -> list[tuple[int, int]]:
    """Return pair and number of each block to compare."""
    total = sum(n_blocks)
    if sample is None:
        check_n_tasks(job, total)
        return [(i, number) for i, n in enumerate(n_blocks) for number in range(n)]
    n_sampled = max(1, round(sample * total)) if total else 0
    check_n_tasks(job, n_sampled)
    chosen = random.Random(seed).sample(range(total), n_sampled)  # noqa: S311 - a sample, no secret
    begins = list(accumulate(n_blocks, initial=0))
    pairs = [(bisect_right(begins, number) - 1, number) for number in sorted(chosen)]
    return [(i, number - begins[i]) for i, number in pairs]


def _shown(node: Node) -> str:
    return f"{node.url}/{node.path}" if node.path else node.url


# --------------------------------------------------------------------------------------------------------------------
# Values


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two arrays of one shape and dtype, and the grid of blocks in which they are compared."""

    path: str
    a: Array
    b: Array
    blocks: ChunkGrid

    @classmethod
    def of(cls, path: str, a: Array, b: Array, worker: Worker) -> _Pair:
        return cls(path, a, b, _blocks(a, b, worker))

    def region(self, number: int) -> Region:
        """Return the region of one block."""
        return self.blocks.region(self.blocks.coords_of(number))


def _blocks(a: Array, b: Array, worker: Worker) -> ChunkGrid:
    """Return blocks of whole store keys of one array that read as little of the other twice as memory allows."""
    max_mem = worker.max_mem // _N_BLOCKS
    while True:
        plans = []
        for one, other in ((b, a), (a, b)):
            grid, costs = _grid(one), store_costs(other.store, other.store, one.store)
            read, owned = read_side(other, worker), Side(grid, grid, 0)
            limits = Limits(max_mem, worker.n_threads, worker.n_workers)
            with suppress(JobError):
                plans.append(choose_rechunk_strategy(read, owned, itemsize(b), limits, costs=costs, strategy="direct"))
        if plans:
            return min(plans, key=lambda plan: plan.estimate.seconds).writes
        max_mem = 2 * max_mem + 1  # chunks that exceed the limit are compared nevertheless


def _grid(array: Array) -> ChunkGrid:
    """Return the grid to align to: of store keys, or of the inner chunks of shards that are too large to hold."""
    keys = array.write_layout.grid
    return keys if prod(keys.chunk_shape) * array.dtype.itemsize <= _MAX_BLOCK_BYTES else array.read_layout.grid


def _same_kind(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def _block_reads(pairs: Sequence[_Pair], spec: tuple[int, int]) -> Iterator[tuple[Array, list[str]]]:
    pair, region = pairs[spec[0]], pairs[spec[0]].region(spec[1])
    yield from ((array, array.keys(region)) for array in (pair.a, pair.b))


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
    if not details and (difference := _compare_values(pair.path, blocks[0], blocks[1], region)) is not None:
        details.append(difference)
    return TaskResult(meter.counts() | {"n_blocks": 1}, {}, details)


def _compare_values(path: str, a: NDArray[Any], b: NDArray[Any], region: Region) -> Difference | None:
    differs = _differing(a, b)
    n_elements = int(np.count_nonzero(differs))
    if not n_elements:
        return None
    first = tuple(int(i) for i in np.unravel_index(int(np.argmax(differs)), a.shape)) if a.ndim else ()
    at = tuple(cut.start + i for cut, i in zip(region, first, strict=True))
    shown = ", ".join(f"{cut.start}:{cut.stop}" for cut in region)
    found, other = a[first], b[first]
    values = f"{found} and {other}" if str(found) != str(other) else f"{_bits(found)} and {_bits(other)}"
    text = f"values differ: {n_elements:,} of {a.size:,} elements in [{shown}], first at {at}: {values}"
    return Difference(path, "values", text, tuple((cut.start, cut.stop) for cut in region), n_elements)


def _bits(value: Any) -> str:
    return f"{value!r} (bits 0x{value.tobytes()[::-1].hex()})" if isinstance(value, np.generic) else repr(value)


def _differing(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool]:
    """Return which elements differ in any bit, in C order."""
    dtype = a.dtype
    if dtype.hasobject or dtype.kind == "T":
        pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
        return np.array([not _same_object(x, y) for x, y in pairs], bool)
    size = next(size for size in (8, 4, 2, 1) if dtype.itemsize % size == 0)
    words = [np.ascontiguousarray(each).reshape(-1).view(f"u{size}") for each in (a, b)]
    differs: NDArray[np.bool] = words[0] != words[1]
    n_words = dtype.itemsize // size
    if n_words > 1:
        differs = np.logical_or.reduce(differs.reshape(-1, n_words), axis=1)
    return differs


def _same_object(x: Any, y: Any) -> bool:
    if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
        x, y = np.asarray(x), np.asarray(y)
        return bool(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes())
    return type(x) is type(y) and same_json(x, y)
