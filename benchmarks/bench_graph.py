"""Graphs before anything is read: build, pickle, slice and cull, at 10^4 to 10^7 chunks.

Only documents are stored. ``open and build`` is what a user waits for; ``slice and cull`` is ``(x + 1)[a few chunks]``
until the tasks are known; ``sum of a slice`` adds a sum, for which dask names every block of the array, unless
`from_store` was given the region; ``materialise`` makes every task, as computing the whole array does.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da

import chunkmill as cm
from benchmarks import harness, patterns
from benchmarks.harness import Row

OURS, REGION, ZARR = "chunkmill", "chunkmill, region=", "da.from_zarr"
GRIDS = {4: (25, 20, 20), 5: (50, 50, 40), 6: (100, 100, 100), 7: (1000, 100, 100)}
CHUNK = (8, 8, 8)
MOST_PEER = 6  # da.from_zarr takes minutes at 10^7
MOST_TASKS = 5  # materialised


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - one signature for all
    results = []
    for power, grid in GRIDS.items():
        if quick and power > 5:
            continue
        with tempfile.TemporaryDirectory() as folder:
            results += bench_graph(power, grid, Path(folder) / "a", quick=quick)
    return results + bench_patterns(quick=quick)


def bench_patterns(*, quick: bool) -> list[Row]:
    """Compute each pattern, counting tasks, store keys and bytes, and the same of its library over zarr-python."""
    results = []
    for kind, peer in {"dask": "dask over zarr", "dask-array": "dask-array over zarr"}.items():
        for pattern in patterns.PATTERNS:
            contenders: dict[str, Callable[[], Any]] = {
                OURS: partial(patterns.cost, pattern, kind, peer=False),
                peer: partial(patterns.cost, pattern, kind, peer=True),
            }
            # only times are compared with another version, which may not have the keyword
            counts = {name: cost()._asdict() for name, cost in contenders.items() if harness.PARTNER is None}
            times = harness.alternate(contenders, 1 if quick else 3)
            results += harness.rows("graph", f"{kind}, {pattern}", times, peers=(peer,), counts=counts)
    return results


def create(grid: tuple[int, ...], path: Path) -> None:
    cm.create_array(str(path), shape=tuple(n * c for n, c in zip(grid, CHUNK, strict=True)), dtype="u1", chunks=CHUNK)


def bench_graph(power: int, grid: tuple[int, ...], path: Path, *, quick: bool) -> list[Row]:
    create(grid, path)
    makers: dict[str, Callable[[], da.Array]] = {OURS: lambda: cm.from_store(str(path))}
    if power <= MOST_PEER:
        makers[ZARR] = lambda: da.from_zarr(str(path))
    n_rounds = 2 if quick else 5
    results = []

    def add(case: str, contenders: dict[str, Callable[[], Any]], limit: float | None = None, **counts: Any) -> None:
        times = harness.alternate(contenders, n_rounds)
        rows = harness.rows("graph", f"10^{power} chunks, {case}", times, peers=(ZARR,), counts=counts or None)
        if limit is not None and rows:
            rows[0].target = f"at most {harness.duration(limit)}"
            rows[0].met = rows[0].seconds <= limit
        results.extend(rows)

    add("open and build", makers, 0.05)
    arrays = {name: make() for name, make in makers.items()}
    sizes = {name: {"graph bytes": len(pickle.dumps(x.dask))} for name, x in arrays.items()}
    add("pickle", {name: lambda x=x: pickle.dumps(x.dask) for name, x in arrays.items()}, None, **sizes)
    tasks = {name: {"tasks": harness.n_tasks(a_slice(x))} for name, x in arrays.items()}
    add(
        "slice and cull",
        {name: lambda make=make: dask.optimize(a_slice(make())) for name, make in makers.items()},
        None,
        **tasks,
    )
    sums = {name: lambda make=make: dask.optimize(a_slice(make()).sum()) for name, make in makers.items()}
    region = {REGION: lambda: dask.optimize((cm.from_store(str(path), region=SLICE) + 1).sum())}
    add("sum of a slice", region | (sums if power <= MOST_PEER else {}), 0.05)
    if power <= MOST_TASKS:
        add("materialise", {name: lambda make=make: dict(make().dask) for name, make in makers.items()})
    return results


SLICE = (slice(15), slice(15), slice(80, 90))


def a_slice(x: da.Array) -> da.Array:
    return (x + 1)[SLICE]


# --- as tests


def test_a_graph_of_ten_million_chunks_is_small_and_culled(tmp_path):
    create(GRIDS[7], tmp_path / "a")
    x = cm.from_store(str(tmp_path / "a"))
    assert x.npartitions == 10**7
    assert len(pickle.dumps(x.dask)) < 20_000
    assert harness.n_tasks(a_slice(x)) == 2 * 2**3  # a read and a cut for each chunk of the slice


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
