"""Decode every chunk of a store in parallel tasks, and repair what can be derived (P8)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from chunkmill.array.chunk_io import decode_chunk, read_chunk
from chunkmill.array.layout import ChunkLayout
from chunkmill.array.stored_array import StoredArray
from chunkmill.checks.inventory import Inventory, Problem, take_inventory
from chunkmill.display.report import ReportMixin, counted, format_seconds
from chunkmill.errors import ChunkError, ChunkmillError, DatasetError, JobError
from chunkmill.model.grid import ChunkCoords
from chunkmill.nodes.api import StoreLocation
from chunkmill.nodes.api import open as open_node
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.group import Group
from chunkmill.runtime.stage import LEAST_TASKS, MAX_TASK_BYTES, MAX_TASK_KEYS, Stage, TaskResult
from chunkmill.runtime.stage_runner import JobMonitor, run_once
from chunkmill.stores import conflicts
from chunkmill.stores.base import ByteSpan, Store
from chunkmill.stores.open import open_store
from chunkmill.stores.places import place_of


@dataclass(frozen=True, slots=True, repr=False)
class CheckReport(ReportMixin):
    """Report of `chunkmill.check`.

    Attributes
    ----------
    url, path
        Store and path that were checked.
    problems
        Everything that is wrong, chunks last.
    n_arrays, n_groups, n_keys
        Nodes, and store keys of chunks, each of which was decoded.
    n_tasks
        Tasks that decoded them.
    bytes_read
        Encoded bytes that were read.
    seconds
        Duration.
    undocumented
        Paths of nodes below folders without a group document: checked, copied and compared by chunkmill, but other
        readers find them only by their paths.
    """

    url: str
    path: str
    problems: tuple[Problem, ...]
    n_arrays: int
    n_groups: int
    n_keys: int
    n_tasks: int
    bytes_read: int
    seconds: float
    undocumented: tuple[str, ...] = ()

    _computed = ("ok",)

    @property
    def ok(self) -> bool:
        """``True`` if there are no problems, or all have been repaired."""
        return all(problem.repaired for problem in self.problems)

    def _facts(self) -> list[tuple[str, str]]:
        speed = f"{format_bytes(self.bytes_read)} read in {format_seconds(self.seconds)}"
        numbers = ((self.n_groups, "group"), (self.n_arrays, "array"), (self.n_keys, "store key"))
        seen = ", ".join([*(counted(n, noun) for n, noun in numbers), speed])
        facts = [("store", f"{self.url}/{self.path}" if self.path else self.url), ("checked", seen)]
        if self.undocumented:
            first = f"{counted(len(self.undocumented), 'node')}, the first at {self.undocumented[0]!r}"
            facts.append(("undocumented", f"{first}, below folders without a group document"))
        return facts

    def _tables(self) -> list[list[tuple[str, ...]]]:
        rows = [(p.kind + " (repaired)" * p.repaired, p.key, str(p.coords or ""), p.reason) for p in self.problems]
        return [[("problem", "key", "chunk", "reason"), *rows]] if rows else []

    def _title(self) -> str:
        if not self.problems:
            return "check: ok"
        n_repaired = sum(problem.repaired for problem in self.problems)
        more = f", {n_repaired:,} of them repaired" if n_repaired else ""
        return f"check: {counted(len(self.problems), 'problem')}{more}"


def _groups(array: StoredArray, coords: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Divide the coords of an array's store keys among tasks."""
    n_bytes = max(1, prod(array.write_layout.grid.chunk_shape) * array.dtype.itemsize)
    size = min(MAX_TASK_KEYS, max(1, MAX_TASK_BYTES // n_bytes), max(1, len(coords) // LEAST_TASKS))
    yield from (coords[first : first + size] for first in range(0, len(coords), size))


# --------------------------------------------------------------------------------------------------------------------
# One task


def _key_shows(arrays: Sequence[StoredArray], spec: tuple[int, NDArray[np.int64]]) -> str:
    return arrays[spec[0]].write_layout.locator.key(tuple(spec[1][0].tolist()))


def _check_keys(arrays: Sequence[StoredArray], spec: tuple[int, NDArray[np.int64]]) -> TaskResult:
    array = arrays[spec[0]]
    problems: list[Problem] = []
    n_bytes = 0
    todo = [tuple(map(int, row)) for row in spec[1]]
    for coords, data in _fetched(array, todo):
        if isinstance(data, Exception):
            key = array.write_layout.locator.key(coords)
            problems.append(Problem("failed", array.path, key, str(data), coords))
        elif data is not None:  # else deleted since it was listed
            n_bytes += len(data)
            problems.extend(_decoded(array, coords, data))
    return TaskResult({"n_keys": len(todo), "bytes_read": n_bytes}, {}, problems)


def _fetched(array: StoredArray, todo: Sequence[ChunkCoords]) -> Iterator[tuple[ChunkCoords, bytes | Exception | None]]:
    """Yield the values of store keys, requested together where that is faster, and the errors of those that fail."""
    first = 0
    while first < len(todo):
        values = array.store.get_many([ByteSpan(array.write_layout.locator.key(coords)) for coords in todo[first:]])
        for coords in todo[first:]:
            first += 1
            try:
                value = next(values)
            except Exception as error:  # noqa: BLE001 - whatever a store raises
                yield coords, error
                break  # the generator ended with it
            yield coords, value


def _decoded(array: StoredArray, coords: ChunkCoords, data: bytes) -> Iterator[Problem]:
    """Decode the value of one store key; yield its problems."""
    try:
        decode_chunk(array, array.write_layout, coords, data)
    except ChunkError as error:
        inner = list(_inner_problems(array, coords))
        if inner:
            yield from inner
        else:
            reason = _reason(error) if data else _EMPTY
            yield Problem(_kind(array.write_layout, error, data), array.path, error.key, reason, coords)


_EMPTY = "empty, as a crash leaves what was not synced: a repair deletes it; write its elements again"


def _inner_problems(array: StoredArray, coords: ChunkCoords) -> Iterator[Problem]:
    """Yield the damaged chunks of a shard, read one by one; none if the shard's index is damaged."""
    layout = array.read_layout
    if layout is array.write_layout:
        return
    for overlap in layout.grid.overlaps(array.write_layout.grid.region(coords)):
        try:
            read_chunk(array, layout, overlap.coords, overlap.in_chunk)
        except ChunkError as error:
            if error.step == "sharding_indexed":
                return
            yield Problem(_kind(layout, error, None), array.path, error.key, _reason(error), overlap.coords)


def _kind(layout: ChunkLayout, error: ChunkError, data: bytes | None) -> str:
    if error.step == "get":
        return "failed"
    if data is not None:
        size = layout.codecs.encoded_size(layout.spec(error.coords))
        if not data or (size is not None and len(data) < size):
            return "short"
    if error.step == "sharding_indexed":
        return "torn"
    return "short" if _ENDS_EARLY.search(error.reason) else "corrupt"


# in error messages of chunkmill's codecs
_ENDS_EARLY = re.compile(r"end before|truncated|ends after|too few|cannot hold|no data|states .* compressed bytes")


def _reason(error: ChunkError) -> str:
    return f"codec {error.step!r}: {error.reason}" if error.step not in {"get", "set"} else error.reason


# --------------------------------------------------------------------------------------------------------------------
# Repair


def _repaired(found: Inventory, problems: Sequence[Problem]) -> list[Problem]:
    """Repair what can be; set `repaired` of the problems."""
    for problem, repair in found.repairs.items():
        with suppress(JobError, DatasetError):  # another client is at work there
            if repair() is not False:
                found.repaired.add(problem)
    for problem in problems:
        if problem.kind == "short" and found.store.size(problem.key) == 0:  # no chunk is encoded as nothing
            conflicts.update(found.store, problem.key, lambda value: value or None)
            found.repaired.add(problem)
    return [replace(problem, repaired=problem in found.repaired) for problem in problems]


def check(
    url: StoreLocation | Array | Group,
    path: str = "",
    *,
    repair: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> CheckReport:
    """Decode everything at and below a node, in parallel on the current dask scheduler, and report all problems.

    Finds torn, short and corrupt chunks; orphans (keys outside an array's grid, or of no node); partial files of
    writers that died; stale consolidated metadata; jobs that are running or were interrupted. Damage to a chunk
    without a checksum that still decodes cannot be detected.

    Parameters
    ----------
    url : str, path, store, Array or Group
        What to check.
    path : str
        Path below `url`.
    repair : bool
        Remove leftovers, with what an append whose client has died stored past the end of arrays; write stale
        consolidated metadata again, and documents that are in them alone. Chunks, orphans and other unfinished jobs are
        never changed.
    storage_options : dict, optional
        Options for the filesystem, as in fsspec.
    progress : bool or str, optional
        Show a bar; ``None``: the setting ``chunkmill.progress`` of dask's config.

    Returns
    -------
    CheckReport
        ``.ok``, and ``.problems``: kind, key, coords and reason of each.

    Raises
    ------
    NodeNotFound
        There is nothing to check.

    Examples
    --------
    >>> import chunkmill as cm
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> a = cm.create_array(store, "a", shape=(4,), dtype="i4", chunks=(2,))
    >>> a[...] = 7
    >>> check(store).ok
    True
    >>> store.set("a/c/1", b"torn")
    >>> [(problem.kind, problem.key, problem.coords) for problem in check(store).problems]
    [('corrupt', 'a/c/1', (1,))]
    """
    start = time.perf_counter()
    if isinstance(url, (Array, Group)):
        path = join_path(url.path, path.strip("/"))
        store = url.store
    else:
        place = place_of(url, path)
        path = place.path
        if place.adapter is not None:
            open_node(url, path, storage_options=storage_options)  # or it is not what the url says
        store = _store_of(place.url, storage_options)
    store = store.uncached
    with JobMonitor(f"check {store.url}", progress).showing() as monitor:
        found = take_inventory(store, path)
        specs = [(i, rows) for i, array in enumerate(found.arrays) for rows in _groups(array, found.chunks[i])]
        stage = Stage("check", _check_keys, tuple(found.arrays), specs, _key_shows)
        (result,) = run_once([stage], monitor, found.arrays)
    chunks = sorted(result.details, key=lambda problem: (problem.path, problem.key, problem.coords or ()))
    problems = [*found.problems, *chunks]
    if repair:
        problems = _repaired(found, problems)
    return CheckReport(
        store.url,
        found.path,
        tuple(problems),
        len(found.arrays),
        len(found.groups),
        sum(map(len, found.chunks)),
        len(specs),
        result.counts.get("bytes_read", 0),
        time.perf_counter() - start,
        tuple(found.undocumented),
    )


def _store_of(url: StoreLocation, storage_options: Mapping[str, Any] | None) -> Store:
    """Return the store, or that of a reference set; a root that does not open is a problem for the report."""
    try:
        return open_node(url, storage_options=storage_options, consolidated=False).store
    except ChunkmillError:
        return open_store(url, storage_options)
