"""Tasks of a sync, each of which writes store keys of the target again, and the callbacks of its job.

Not here: which store keys those are (`chunkmill.syncs.changes`), the tasks of a transform (`chunkmill.syncs.blocks`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import read_region, write_region
from chunkmill.array.other_stores import metered, metered_source
from chunkmill.array.present_keys import Numbers
from chunkmill.array.selection import region_shape
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import SeenSource, check_sources
from chunkmill.conversion.lineage import ArrayPair, KeyVersions, Lineage, TracedArray, rewriting
from chunkmill.journal.inputs import StoreKeys
from chunkmill.model.grid import Region
from chunkmill.nodes.changes import publish_shape
from chunkmill.pyramids.downsample import Method, Reduction, downsample
from chunkmill.runtime.stage import MAX_TASK_BYTES, MAX_TASK_KEYS, Stage, TaskResult, TaskSpecs
from chunkmill.stores.capabilities import flush
from chunkmill.stores.metered import Meter

__all__ = ["DerivedArray", "SyncWriter", "SyncedArray", "stage_of"]


@dataclass(frozen=True)
class SyncedArray:
    """One array of a target.

    Attributes
    ----------
    target
        The target with the shape that it is to have.
    stored
        The target as it is stored: it may be shorter.
    numbers
        Numbers of its store keys to write.
    """

    target: StoredArray
    stored: StoredArray
    numbers: Numbers

    @property
    def grows(self) -> bool:
        """True where the target becomes longer."""
        return self.target.shape != self.stored.shape

    @property
    def key_bytes(self) -> int:
        """Decoded bytes of a store key of the target."""
        return prod(self.target.write_layout.grid.chunk_shape) * self.target.dtype.itemsize

    def region(self, number: int) -> Region:
        """Return the region of a store key of the target."""
        grid = self.target.write_layout.grid
        return grid.region(grid.coords_of(number))


@dataclass(frozen=True)
class DerivedArray(SyncedArray):
    """One array of a target that equals its source, or is a level of a pyramid.

    Attributes
    ----------
    source
        What the target is to equal, or is reduced from.
    compares
        Whether a store key is written only where its elements differ from the source's.
    factors, method
        Of a level, against the source; no factors: it equals the source.
    """

    source: StoredArray
    compares: bool
    factors: tuple[int, ...] = ()
    method: Method | Reduction = "mean"

    @property
    def task_bytes(self) -> int:
        """Bytes that a task holds: a store key of the target and its encoded bytes, and what one chunk is made of."""
        chunk = prod(self.target.read_layout.grid.chunk_shape) * self.target.dtype.itemsize
        return 2 * self.key_bytes + (chunk * prod(self.factors) if self.factors else self.key_bytes)

    def above(self, region: Region) -> Region:
        """Return the region of the source that a region of the target is made of."""
        if not self.factors:
            return region
        cuts = zip(region, self.factors, self.source.shape, strict=True)
        return tuple(slice(cut.start * factor, min(cut.stop * factor, n)) for cut, factor, n in cuts)

    def values(self, source: StoredArray, region: Region) -> NDArray[Any]:
        """Read what the target is to have in a region: of a level, one chunk after the other."""
        if not self.factors:
            return read_region(source, region)
        values = np.empty(region_shape(region), self.target.dtype)
        for overlap in self.target.read_layout.grid.overlaps(region):
            part = zip(overlap.in_region, region, strict=True)
            chunk = tuple(slice(inside.start + cut.start, inside.stop + cut.start) for inside, cut in part)
            values[overlap.in_region] = downsample(read_region(source, self.above(chunk)), self.factors, self.method)
        return values


@dataclass(frozen=True)
class SyncWriter:
    """The callbacks of a sync's job; can be pickled.

    Attributes
    ----------
    job
        Name of the job, for messages.
    sources
        What the job reads, and the documents of that when the sync was planned.
    arrays
        The arrays of the target.
    sync_stages
        The stages, whose tasks write the store keys of the arrays.
    lineage
        Where the target's lineage is kept; ``None``: nowhere.
    made
        How the target was made, as its lineage says.
    pairs, before, traced
        The arrays of the lineage; versions of the sources' store keys when the sync was planned; and the lineage of
        that time, in the shapes of now.
    """

    job: str
    sources: Sequence[tuple[StoredArray, SeenSource]]
    arrays: Sequence[SyncedArray]
    sync_stages: Sequence[Stage]
    lineage: Lineage | None
    made: Mapping[str, Any]
    pairs: Sequence[ArrayPair]
    before: Sequence[KeyVersions | None]
    traced: Sequence[TracedArray]

    def prepare(self) -> Mapping[str, bytes]:
        """Return the documents to publish: none, since the nodes are there."""
        return {}

    def stages(self, run: str) -> list[Stage]:  # noqa: ARG002 - nothing is named after the run
        """Say in the lineage what this sync may write, so that the next one does not take it for others' changes."""
        self.check_result()
        if self.lineage is not None and any(len(each.numbers) for each in self.arrays):
            self.lineage.write(self.made, rewriting(self.traced, self._numbers()))
        return [*self.sync_stages]

    def _numbers(self) -> list[Numbers]:
        """Return the numbers of the store keys to write of the target of each pair."""
        numbers = {(each.target.url, each.target.path): each.numbers for each in self.arrays}
        return [numbers[target.url, target.path] for _, target in self.pairs]

    def check_result(self) -> None:
        """Check that the sources are those that the plan has seen."""
        check_sources(self.job, [array for array, _ in self.sources], [seen for _, seen in self.sources])

    def publish(self, documents: Mapping[str, bytes]) -> list[str]:  # noqa: ARG002 - there are none
        """Publish the shapes of arrays that became longer."""
        for each in self.arrays:
            if each.grows:
                publish_shape(each.stored, each.stored.metadata, each.target.shape, each.stored.store)
            flush(each.stored.store)
        return []

    def trace(self) -> None:
        """Store the lineage, when the job has ended: what nobody has changed since the plan is known."""
        if self.lineage is None:
            return
        new, written = self.lineage.traced(self.before, self.pairs), []
        for numbers, old, now in zip(self._numbers(), self.traced, new, strict=True):
            target = old.target.copy()
            target.reshape(-1)[numbers] = now.target.reshape(-1)[numbers]
            written.append(replace(now, target=target))
        self.lineage.write(self.made, written)


def stage_of(name: str, arrays: Sequence[DerivedArray]) -> Stage:
    """Return the stage that writes the store keys of arrays: those of one array, each by itself."""
    specs = TaskSpecs([(which, each.numbers.tolist()) for which, each in enumerate(arrays)])
    return Stage(name, _sync_key, tuple(arrays), specs, _reads, _shows, _share, inputs=_inputs)


def _sync_key(arrays: Sequence[DerivedArray], spec: tuple[int, int]) -> TaskResult:
    """Write one store key of the target as the source is now."""
    array, meter = arrays[spec[0]], Meter()
    region = array.region(spec[1])
    values = array.values(metered_source(array.source, meter), region)
    target = metered(array.target, meter)
    action = "reduce" if array.factors else "recode"
    if array.compares and _same(values, read_region(target, region)):
        action = "equal"
    else:
        write_region(target, region, values)
    return TaskResult.of(meter, n_keys=1, **{f"action_{action}": 1})


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a.dtype.hasobject or a.dtype.kind == "T":
        return bool(np.array_equal(a, b))
    return a.tobytes() == b.astype(a.dtype, copy=False).tobytes()


def _reads(arrays: Sequence[DerivedArray], spec: tuple[int, int]) -> Iterator[Any]:
    array = arrays[spec[0]]
    yield array.source, array.source.keys(array.above(array.region(spec[1])))


def _inputs(arrays: Sequence[DerivedArray], spec: tuple[int, int]) -> Iterator[StoreKeys]:
    array = arrays[spec[0]]
    yield StoreKeys.of(array.source, array.above(array.region(spec[1])))


def _shows(arrays: Sequence[DerivedArray], spec: tuple[int, int]) -> str:
    return arrays[spec[0]].target.first_key(arrays[spec[0]].region(spec[1]))


def _share(arrays: Sequence[DerivedArray], spec: tuple[int, int]) -> float:
    array = arrays[spec[0]]
    return max(1 / MAX_TASK_KEYS, min(1.0, array.key_bytes * prod(array.factors) / MAX_TASK_BYTES))
