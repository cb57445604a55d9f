"""Tasks that begin the requests of neighbouring blocks together, for stores whose requests cost latency.

A scheduler runs as many tasks as it has threads, and each would wait for its own request: 300 chunks at 20 ms took two
threads 3.5 s. So blocks are put in runs, by their numbers in C order. One task for each run begins the requests of
those of its blocks that culling left; the tasks of the blocks depend on it, and take their bytes from its result.

In dask's symbolic graph that takes two arguments of the layer that reads: `_RunOfBlock` tells each task its run, and
the keys of `_RunsLayer`, which no task uses, tell that layer at culling which blocks are left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from functools import cached_property
from itertools import groupby, product
from typing import Any

import dask
from dask._task_spec import Alias, DataNode, Task, TaskRef
from dask.base import clone_key
from dask.blockwise import Blockwise, BlockwiseDep, blockwise_token
from dask.highlevelgraph import HighLevelGraph, Layer

from chunkmill.dask_arrays.blocks import BlockRegions, SharedFunction

__all__ = ["read_in_runs", "run_length"]

Index = tuple[int, ...]

_MOST_REQUESTS = 32  # of a run: on two threads 16 took 1.3 times as long as 32, and 64 no less
_MOST_OF_BLOCKS = 64  # the same where a block takes several: with 32, 300 requests of 20 ms took 1.25 times as long
_LEAST_RUNS = 4  # with fewer, a cluster takes the blocks' tasks for ones that may run anywhere


def run_length(n_blocks: int, requests_a_block: int, block_bytes: int, max_bytes: int) -> int:
    """Return the number of blocks in a run; 0 where runs are of no use.

    Examples
    --------
    >>> run_length(300, 1, 1 << 18, 1 << 25), run_length(40, 1, 1 << 18, 1 << 25), run_length(300, 1, 1 << 24, 1 << 25)
    (32, 10, 2)
    >>> run_length(300, 64, 1 << 24, 1 << 25), run_length(5, 1, 1 << 18, 1 << 25)
    (0, 0)
    """
    most = _MOST_REQUESTS if requests_a_block == 1 else _MOST_OF_BLOCKS
    length = min(most // requests_a_block, n_blocks // _LEAST_RUNS, max_bytes // max(1, block_bytes))
    return length if length > 1 else 0


def read_in_runs(
    name: str,
    regions: BlockRegions,
    length: int,
    *,
    begin: Callable[[Any], Any],
    read: Callable[[Any, Any], Any],
    annotations: Mapping[str, Any],
) -> HighLevelGraph:
    """Return a graph of tasks that read blocks, and of those that begin the requests of `length` blocks each.

    Parameters
    ----------
    begin
        Called with the value of ``regions.together(blocks)``; what it returns is the second argument of `read`.
    read
        Called with a block's value in `regions`.
    annotations
        Displayed by dask's graph views.
    """
    runs = _RunOfBlock(f"begin-{name}", regions.numblocks, length)
    begins = _RunsLayer(f"begun-{name}", runs, SharedFunction(begin), regions)
    index = tuple(f".{i}" for i in range(len(regions.numblocks)))
    arguments = [TaskRef(blockwise_token(i)) for i in range(2)]
    # not a data producer by dask's word, which would let a cluster run it elsewhere than where its run was begun
    task = Task(name, SharedFunction(read), *arguments)
    inputs: list[tuple[Any, Any]] = [(regions, index), (runs, index), (begins.name, index)]
    layer = _ReadLayer(name, index, task, inputs, numblocks={begins.name: regions.numblocks})
    layer.collection_annotations = begins.collection_annotations = dict(annotations)
    return HighLevelGraph({name: layer, begins.name: begins}, {name: {begins.name}, begins.name: set()})


class _RunOfBlock(BlockwiseDep):
    """Mapping of a block's index to the key of the task that begins the requests of its run."""

    def __init__(self, name: str, numblocks: Index, length: int) -> None:
        self.name, self.numblocks, self.length = name, numblocks, length

    def clone(self, seed: Any) -> _RunOfBlock:
        return _RunOfBlock(clone_key(self.name, seed), self.numblocks, self.length)

    def __getitem__(self, index: Index) -> TaskRef:
        return TaskRef(self.key(index))

    def key(self, index: Index) -> tuple[str, int]:
        number = 0
        for i, n in zip(index, self.numblocks, strict=True):
            number = number * n + i
        return self.name, number // self.length

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "chunkmill.RunOfBlock", self.name, self.numblocks, self.length


class _ReadLayer(Blockwise):
    """Tasks that read blocks. Cloned (by ``dask.graph_manipulation``), they depend on clones of the runs' tasks."""

    def clone(self, keys: set[Any], seed: Any, bind_to: Any = None) -> tuple[Layer, bool]:
        layer, is_bound = super().clone(keys, seed, bind_to)
        other = object.__new__(_ReadLayer)
        other.__dict__.update(layer.__dict__)
        other.io_deps = {
            name: each.clone(seed) if isinstance(each, _RunOfBlock) else each for name, each in self.io_deps.items()
        }
        return other, is_bound


class _RunsLayer(Layer):
    """Tasks that begin requests, computed when the scheduler needs them.

    Its keys by name are those of blocks, for dask to cull; the tasks, one for each run, have the keys of `runs`. Of
    runs in which culling left few blocks, several are begun by one task. Few runs on a cluster begin nothing: the tasks
    of their blocks may be run elsewhere, and would request everything again.
    """

    def __init__(
        self,
        name: str,
        runs: _RunOfBlock,
        begin: SharedFunction,
        regions: BlockRegions,
    ) -> None:
        # dask joins layers of equal annotations where two of them have a common successor: before it culls
        super().__init__(annotations={**dask.config.get("annotations", {}), "begins": name})
        self.name, self.runs, self.begin, self.regions = name, runs, begin, regions
        self.wanted: Collection[Index] | None = None
        self.is_sent = False
        self.bound_to: Any = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, is_sent=True)

    @property
    def has_legacy_tasks(self) -> bool:
        return False

    def is_materialized(self) -> bool:
        return "_tasks" in self.__dict__

    def get_output_keys(self) -> AbstractSet[Any]:
        return {(self.name, *index) for index in self._blocks()}

    def cull(self, keys: set[Any], all_hlg_keys: Collection[Any]) -> tuple[Layer, Mapping[Any, set[Any]]]:  # noqa: ARG002
        own = [key for key in keys if type(key) is tuple and key[0] == self.name]
        bound_to = set() if self.bound_to is None else {self.bound_to}
        return self._with(sorted(key[1:] for key in own)), dict.fromkeys(own, bound_to)

    def clone(self, keys: set[Any], seed: Any, bind_to: Any = None) -> tuple[Layer, bool]:  # noqa: ARG002
        other = self._with(self.wanted)
        other.name, other.runs, other.bound_to = clone_key(self.name, seed), self.runs.clone(seed), bind_to
        return other, bind_to is not None

    def _with(self, wanted: Collection[Index] | None) -> _RunsLayer:
        other = copy(self)
        other.__dict__.pop("_tasks", None)
        other.wanted = wanted
        return other

    def _blocks(self) -> Iterable[Index]:
        return product(*map(range, self.runs.numblocks)) if self.wanted is None else self.wanted

    @cached_property
    def _tasks(self) -> dict[Any, Any]:
        tasks: dict[Any, Any] = {}
        blocks: list[Index] = []
        first: Any = None
        for key, run in groupby(self._blocks(), self.runs.key):
            if len(blocks) < self.runs.length and first is not None:
                tasks[key] = Alias(key, first)
                blocks.extend(run)
                continue
            if first is not None:
                tasks[first] = self._task(first, blocks)
            first, blocks = key, list(run)
        if first is not None:
            tasks[first] = self._task(first, blocks)
        if self.is_sent and sum(type(task) is Task for task in tasks.values()) < _LEAST_RUNS:
            return {key: DataNode(key, None) for key in tasks}
        return tasks

    def _task(self, key: Any, blocks: Sequence[Index]) -> Task:
        regions = self.regions.together(blocks)
        if self.bound_to is not None:  # nothing is requested before that is done
            return Task(key, _begin_after, self.begin, regions, TaskRef(self.bound_to), _data_producer=True)
        return Task(key, self.begin, regions, _data_producer=True)

    def __getitem__(self, key: Any) -> Any:
        return self._tasks[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


def _begin_after(begin: Callable[[Any], Any], regions: Any, _: Any) -> Any:
    return begin(regions)
