"""Twelve patterns of access to a stored array: tasks, store keys and bytes, for each kind of Dask array and its peers.

Ours is `from_store` of the kind; the peer is that library's own array over one of zarr-python (``da.from_zarr``,
``dask_array.from_array``). Both read through one store, which logs what is asked of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import dask
import numpy as np
from dask._task_spec import Task, convert_legacy_graph
from dask.core import flatten

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore

SHAPE, CHUNKS = (240, 200), (20, 20)


class Cost(NamedTuple):
    """Cost of a pattern: tasks that are run, keys of chunks that are asked for, and the bytes of them."""

    tasks: int
    keys: int
    n_bytes: int


class LoggedStore(MemoryStore):
    """A store that counts the bytes of each chunk that is read."""

    def __init__(self) -> None:
        super().__init__()
        self.log: Counter[str] = Counter()

    def get(self, key: str, byte_range: Any = None) -> bytes | None:
        """Return a value, or a range of it."""
        value = super().get(key, byte_range)
        if "/c/" in key:
            self.log[key] += len(value or b"")
        return value


@cache
def prepared() -> LoggedStore:
    """Return a store of two arrays."""
    store = LoggedStore()
    values = np.arange(float(SHAPE[0] * SHAPE[1])).reshape(SHAPE)
    for name in ("a", "b"):
        array = cm.create_array(store, name, shape=SHAPE, dtype="f8", chunks=CHUNKS, codecs="raw")
        array[...] = values
    return store


PATTERNS: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "slice": lambda _, s: s["a"][30:90, 50:70],
    "step": lambda _, s: s["a"][::50, ::30],
    "slice after arithmetic": lambda _, s: (s["a"] * 2 + 1)[30:90, 50:70],
    "transpose": lambda _, s: s["a"].T,
    "rechunk up": lambda _, s: s["a"].rechunk((80, 100)),
    "rechunk across": lambda _, s: s["a"].rechunk((240, 8)),
    "reduction by axis": lambda _, s: s["a"].sum(axis=0),
    "mean of a slice": lambda _, s: s["a"][100:140, 5].mean(),
    "overlap": lambda da, s: getattr(da.overlap, "overlap", da.overlap)(s["a"], depth=2, boundary="none"),
    "concatenation": lambda da, s: da.concatenate([s["a"], s["b"]])[230:250],
    "misaligned write": lambda _, s: s["a"][5:185, 3:183],
}


def cost(pattern: str, kind: str, *, peer: bool) -> Cost:
    """Return the cost of a pattern."""
    da: Any = import_module("dask_array" if kind == "dask-array" else "dask.array")
    store = prepared()
    sources = {name: (_peer if peer else _ours)(da, store, name, kind) for name in ("a", "b")}
    x = PATTERNS[pattern](da, sources)
    store.log.clear()
    tasks = _written(x, peer=peer) if pattern == "misaligned write" else _computed(x)
    return Cost(tasks, len(store.log), sum(store.log.values()))


def _ours(_: Any, store: LoggedStore, name: str, kind: str) -> Any:
    return cm.from_store(store, name, chunked_array_type=kind)  # type: ignore[arg-type]


def _peer(da: Any, store: LoggedStore, name: str, _: str) -> Any:
    import zarr

    array = zarr.open_array(cm.zarr_store(store), path=name, mode="r")
    return da.from_array(array, chunks=array.chunks)


def n_run(x: Any) -> int:
    """Return how many tasks a scheduler runs for `x`: without names of other tasks and data."""
    optimised = x.optimize() if hasattr(x, "expr") else dask.optimize(x)[0]
    tasks = convert_legacy_graph(dict(optimised.__dask_graph__()))
    todo, seen = list(flatten(optimised.__dask_keys__())), set()
    while todo:
        if (key := todo.pop()) in tasks and key not in seen:
            seen.add(key)
            todo.extend(tasks[key].dependencies)
    return sum(isinstance(tasks[key], Task) for key in seen)


def _computed(x: Any) -> int:
    with dask.config.set(scheduler="sync"):
        x.compute()
    return n_run(x)


def _written(x: Any, *, peer: bool) -> int:
    """Write to chunks that cut through those of the source."""
    if not peer:
        later: Any = cm.to_store(x, MemoryStore(), chunks=(30, 30), codecs="raw", compute=False)
    else:
        import zarr

        target = zarr.create_array(zarr.storage.MemoryStore(), shape=x.shape, dtype=x.dtype, chunks=(30, 30))
        later = x.rechunk((30, 30)).store(target, lock=False, compute=False)
    n = n_run(later)
    with dask.config.set(scheduler="sync"):
        later.compute()
    return n
