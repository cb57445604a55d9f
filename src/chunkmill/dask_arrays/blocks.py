"""Region of each block, and the function that every task shares, for dask's symbolic layers.

Both are asked for once a task, and a graph of small chunks consists of little else.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import compress
from pkgutil import resolve_name
from typing import Any

import cloudpickle
from dask._task_spec import DataNode
from dask.array import core as da
from dask.array.blockwise import blockwise
from dask.layers import ArrayBlockwiseDep
from numpy.typing import NDArray

from chunkmill.model.grid import ChunkGrid, DaskChunks, Region, RegularAxis, RunsAxis, run_lengths
from chunkmill.model.user_values import checked_block


class BlockRegions(ArrayBlockwiseDep):
    """Mapping of a block's index to the region that the block covers, computed when asked for.

    Dask's ``ArraySliceDep`` stores where every block begins, and its slices are searched for tasks.
    `start` is the first element of the first block. Where blocks do not follow each other, `cuts` are theirs along each
    axis.
    """

    def __init__(
        self, chunks: DaskChunks, start: Sequence[int] | None = None, cuts: Sequence[Sequence[slice]] | None = None
    ) -> None:
        self.numblocks = tuple(map(len, chunks))
        self.grid = ChunkGrid(tuple(map(_axis, chunks)))
        self.start = (0,) * len(chunks) if start is None else tuple(start)
        self._cuts: tuple[dict[int, slice], ...] = tuple({} for _ in chunks)  # those asked for, shared by their blocks
        self._is_placed = cuts is not None
        if cuts is not None:
            self._cuts = tuple(dict(enumerate(axis)) for axis in cuts)

    @property
    def chunks(self) -> DaskChunks:  # type: ignore[override]  # an attribute of dask's own classes
        """Length of each block, as `dask.array.blockwise` asks for it."""
        return self.grid.dask_chunks

    def __getitem__(self, index: tuple[int, ...]) -> DataNode:
        """Return the region wrapped as a constant of dask's, which is not searched for tasks."""
        return DataNode(None, self.region(index))

    def region(self, index: tuple[int, ...]) -> Region:
        """Return the region that a block covers."""
        region = []
        for axis, first, cuts, i in zip(self.grid.axes, self.start, self._cuts, index, strict=True):
            if (cut := cuts.get(i)) is None:
                start = axis.start(i)
                cut = cuts[i] = slice(first + start, first + min(start + axis.length(i), axis.size))
            region.append(cut)
        return tuple(region)

    def together(self, blocks: Sequence[tuple[int, ...]]) -> DataNode:
        """Return the regions of several blocks, as the argument of one task."""
        return DataNode(None, [self.region(index) for index in blocks])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ if self._is_placed else self.__dict__ | {"_cuts": tuple({} for _ in self._cuts)}

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "chunkmill.BlockRegions", self.grid, self.start


class ReorderedRegions(BlockRegions):
    """Region of the stored array that each block of a result needs, whose axes are left in another order, or dropped.

    `order` are the axes of the array that are left, in the order of the result. Along an axis that is dropped, there is
    one block.
    """

    def __init__(self, regions: BlockRegions, order: Sequence[int]) -> None:
        self.__dict__.update(regions.__dict__)
        self._order = tuple(order)

    @property
    def chunks(self) -> DaskChunks:  # type: ignore[override]
        """None: the blocks do not have the shapes of their regions."""
        return ()

    def region(self, index: tuple[int, ...]) -> Region:
        """Return the region that a block needs."""
        return super().region(stored_index(index, self._order, len(self.grid.axes)))


def stored_index(index: Sequence[int], order: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return the index of a block along the axes of an array, of one along those that are left, in another order.

    Examples
    --------
    >>> stored_index((3, 5), (2, 0), 3)
    (5, 0, 3)
    """
    places = dict(zip(order, index, strict=True))
    return tuple(places.get(axis, 0) for axis in range(ndim))


def _axis(lengths: Sequence[int]) -> RegularAxis | RunsAxis:
    runs = tuple(run_lengths(lengths))
    if len(runs) == 1 or (len(runs) == 2 and runs[1][1] == 1 and runs[1][0] < runs[0][0]):  # noqa: PLR2004
        return RegularAxis(sum(lengths), max(1, lengths[0]))
    return RunsAxis(sum(lengths), runs)


def with_checked_blocks(x: da.Array, convert: Any = None, dtype: Any = None) -> da.Array:
    """Return `x`, whose blocks are checked before anything is computed from them.

    `convert` is called with each block, its index and the region that it covers, and returns its elements in `dtype`.
    """
    regions, index = BlockRegions(x.chunks), tuple(range(x.ndim))
    check: Any = SharedFunction(partial(_checked, regions.grid, convert))
    meta = x._meta if dtype is None else x._meta.astype(dtype)  # noqa: SLF001 - dask's name for it
    return blockwise(check, index, x, index, regions, index, dtype=meta.dtype, meta=meta, align_arrays=False)  # type: ignore[no-any-return]


def _checked(grid: ChunkGrid, convert: Any, block: Any, within: Region) -> NDArray[Any]:
    index = tuple(axis.index(cut.start) for axis, cut in zip(grid.axes, within, strict=True))
    values = checked_block(block, index, tuple(cut.stop - cut.start for cut in within))
    return values if convert is None else convert(values, index, within)


class SharedFunction:
    """Function that every task of a layer holds: unpickled once in a process, however many tasks bring it.

    On a cluster the scheduler pickles every task separately; the function is pickled there by copying the bytes that
    it arrived as (see `_anywhere`).
    """

    __slots__ = ("function", "payload")

    def __init__(self, function: Callable[..., Any], payload: bytes | None = None) -> None:
        self.function = function
        self.payload = payload

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        # pickled again each time in the process that made the function: what it refers to may have changed
        return pickle.loads, (self.payload or _anywhere("function", _packed(self.function)),)


class SharedSource:
    """Array-like that the tasks of ``da.from_array`` read, pickled like a `SharedFunction`."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, key: Any) -> Any:
        return self.array[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (_anywhere("source", _packed(self.array)),)


class _Call:
    """A call that unpickling makes, of a function that every process has."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __call__(self) -> None:
        """Pickle asks what it calls to be callable."""

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


# for a process without chunkmill: what raises, when it is called or indexed, in a task
_STAND_IN = """type("WithoutChunkmill", (), dict.fromkeys(
    ("__call__", "__getitem__"), lambda *_: (_ for _ in ()).throw(ModuleNotFoundError(
        "No module named 'chunkmill': give every worker, and the scheduler, the client's packages"))))()"""


def _anywhere(kind: str, packed: bytes) -> bytes:
    """Return what unpickles to a shared function or source; without chunkmill to `_STAND_IN`.

    A worker closes of a message that it cannot unpickle: its tasks wait for another worker, and the client says
    nothing.
    """
    is_installed = (_Call(find_spec, "chunkmill"),)
    found = _Call(map, resolve_name, _Call(compress, (f"{__name__}:unpacked_{kind}",), is_installed))
    unpack = _Call(next, found, partial(eval, _STAND_IN))
    return pickle.dumps(_Call(unpack, {"packed": packed}), pickle.HIGHEST_PROTOCOL)


def _packed(function: Any) -> bytes:
    """Pickle a function or an array-like; by cloudpickle, in three times the time, only where pickle would not do."""
    if not cloudpickle.list_registry_pickle_by_value():
        try:
            payload = pickle.dumps(function, pickle.HIGHEST_PROTOCOL)
        except Exception:  # noqa: BLE001 - pickle, and what it calls, raises several: lambdas, closures, …
            return cloudpickle.dumps(function)  # type: ignore[no-any-return]
        if b"__main__" not in payload:  # whose functions and classes workers do not have
            return payload
    return cloudpickle.dumps(function)  # type: ignore[no-any-return]


def unpacked_function(shared: dict[str, bytes]) -> SharedFunction:
    """Return the function that `_anywhere` has packed."""
    return _unpack(shared["packed"])


def unpacked_source(shared: dict[str, bytes]) -> SharedSource:
    """Return the array-like that `_anywhere` has packed."""
    return SharedSource(pickle.loads(shared["packed"]))  # noqa: S301 - pickle is how dask brings tasks


@lru_cache(maxsize=16)
def _unpack(packed: bytes) -> SharedFunction:
    return SharedFunction(pickle.loads(packed), _anywhere("function", packed))  # noqa: S301
