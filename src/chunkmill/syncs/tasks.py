"""Tasks of a sync, each of which writes store keys of the target again, and the callbacks of its job.

Not here: which store keys those are (`chunkmill.syncs.changes`).
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
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import SeenSource, check_sources
from chunkmill.conversion.lineage import KeyVersions, Lineage, TracedArray, rewriting
from chunkmill.journal.inputs import StoreKeys
from chunkmill.model.grid import Region
from chunkmill.nodes.changes import publish_shape
from chunkmill.runtime.stage import MAX_TASK_BYTES, MAX_TASK_KEYS, Stage, TaskResult, TaskSpecs
from chunkmill.stores.capabilities import flush
from chunkmill.stores.metered import Meter

__all__ = ["SyncWriter", "SyncedArray"]


@dataclass(frozen=True)
class SyncedArray:
    """One array of a sync.

    Attributes
    ----------
    source
        What the target is to equal.
    target
        The target with the shape of the source.
    stored
        The target as it is stored: it may be shorter.
    numbers
        Numbers of the target's store keys to write.
    seen
        The source's documents when the sync was planned.
    compares
        Whether a store key is written only where its elements differ from the source's.
    """

    source: StoredArray
    target: StoredArray
    stored: StoredArray
    numbers: Numbers
    seen: SeenSource
    compares: bool

    @property
    def grows(self) -> bool:
        """True where the source is longer than the target."""
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
class SyncWriter:
    """The callbacks of a sync's job; can be pickled.

    Attributes
    ----------
    job
        Name of the job, for messages.
    arrays
        The arrays to sync.
    lineage
        Where the target's lineage is kept; ``None``: nowhere.
    made
        How the target was made, as its lineage says.
    before, traced
        Versions of the sources' store keys when the sync was planned, and the lineage of that time, in the shapes of
        now.
    """

    job: str
    arrays: Sequence[SyncedArray]
    lineage: Lineage | None
    made: Mapping[str, Any]
    before: Sequence[KeyVersions]
    traced: Sequence[TracedArray]

    def prepare(self) -> Mapping[str, bytes]:
        """Return the documents to publish: none, since the nodes are there."""
        return {}

    def stages(self, run: str) -> list[Stage]:  # noqa: ARG002 - nothing is named after the run
        """Say in the lineage what this sync may write, so that the next one does not take it for others' changes."""
        self.check_result()
        if self.lineage is not None and any(len(each.numbers) for each in self.arrays):
            self.lineage.write(self.made, rewriting(self.traced, [each.numbers for each in self.arrays]))
        specs = TaskSpecs([(which, each.numbers.tolist()) for which, each in enumerate(self.arrays)])
        return [Stage("sync", _sync_key, tuple(self.arrays), specs, _reads, _shows, _share, inputs=_inputs)]

    def check_result(self) -> None:
        """Check that the sources are those that the plan has seen."""
        check_sources(self.job, [each.source for each in self.arrays], [each.seen for each in self.arrays])

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
        new = self.lineage.traced(self.before, [a.source for a in self.arrays], [a.target for a in self.arrays])
        written = []
        for array, old, now in zip(self.arrays, self.traced, new, strict=True):
            target = old.target.copy()
            target.reshape(-1)[array.numbers] = now.target.reshape(-1)[array.numbers]
            written.append(replace(now, target=target))
        self.lineage.write(self.made, written)


def _sync_key(arrays: Sequence[SyncedArray], spec: tuple[int, int]) -> TaskResult:
    """Write one store key of the target as the source is now."""
    array, meter = arrays[spec[0]], Meter()
    region = array.region(spec[1])
    block = read_region(metered_source(array.source, meter), region)
    target = metered(array.target, meter)
    action = "recode"
    if array.compares and _same(block, read_region(target, region)):
        action = "equal"
    else:
        write_region(target, region, block)
    return TaskResult.of(meter, n_keys=1, **{f"action_{action}": 1})


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a.dtype.hasobject or a.dtype.kind == "T":
        return bool(np.array_equal(a, b))
    return a.tobytes() == b.astype(a.dtype, copy=False).tobytes()


def _reads(arrays: Sequence[SyncedArray], spec: tuple[int, int]) -> Iterator[Any]:
    source = arrays[spec[0]].source
    yield source, source.keys(arrays[spec[0]].region(spec[1]))


def _inputs(arrays: Sequence[SyncedArray], spec: tuple[int, int]) -> Iterator[StoreKeys]:
    yield StoreKeys.of(arrays[spec[0]].source, arrays[spec[0]].region(spec[1]))


def _shows(arrays: Sequence[SyncedArray], spec: tuple[int, int]) -> str:
    return arrays[spec[0]].target.first_key(arrays[spec[0]].region(spec[1]))


def _share(arrays: Sequence[SyncedArray], spec: tuple[int, int]) -> float:
    return max(1 / MAX_TASK_KEYS, min(1.0, arrays[spec[0]].key_bytes / MAX_TASK_BYTES))
