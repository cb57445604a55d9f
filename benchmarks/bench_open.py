"""Opening datasets with xarray: a thousand variables, on disk and over HTTP with 20 and 100 ms latency; many arrays.

The whole of ``xr.open_dataset`` is timed: documents are fetched and parsed, variables made, index coordinates read.
All times include xarray's own work. **xarray alone** is an engine that has its variables ready, and only makes a
dataset of them: no engine can be faster. With ``chunks={}`` it makes a dask array of each variable, too. **parsing the
JSON** is `json.loads` of the consolidated document.
"""

from __future__ import annotations

import functools
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendEntrypoint
from xarray.core import indexing

import chunkmill as cm
from benchmarks import harness
from benchmarks.far_server import far_away
from benchmarks.harness import Row
from chunkmill.xarray.write import write_dataset

OURS, ZARR, ALONE = "chunkmill", "engine='zarr'", "xarray alone"
JSON = "parsing the JSON"
FORMATS = {"v2": "zarr2", "v3": "zarr3"}
N_VARIABLES = 1000
N_MANY = 10_000
LATENCIES = (0.02, 0.1)
SIZES = {"t": 4, "y": 6, "x": 8}


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - one signature for all
    n = 50 if quick else N_VARIABLES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, stored in FORMATS.items():
            write_dataset(fields(n), folder / label, format=stored)
        results = [row for label in FORMATS for row in bench_disk(folder / label, label, n, quick=quick)]
        results += bench_chunks(folder / "v3", n, 3 if quick else 15)
        if not quick:
            write_dataset(fields(N_MANY), folder / "many", format="zarr3")
            results += bench_chunks(folder / "many", N_MANY, 3)
        sizes = (20, 40) if quick else (N_VARIABLES, N_MANY)
        results += bench_arrays(folder / "arrays", sizes)
        for latency in LATENCIES:
            with far_away(folder, latency) as url:
                for label in FORMATS:
                    results += bench_http(f"{url}/{label}", label, n, latency=latency, quick=quick)
    return results


def fields(n: int) -> xr.Dataset:
    """Return `n` small fields on one grid."""
    values = np.arange(4 * 6 * 8, dtype="f4").reshape(4, 6, 8)
    attributes = [{"units": "K", "long_name": f"field number {i}"} for i in range(n)]
    return xr.Dataset(
        {f"v{i:04}": (("t", "y", "x"), values + i, attributes[i]) for i in range(n)},
        coords={"t": np.arange(4), "y": np.arange(6.0), "x": np.arange(8.0)},
    )


class Ready(BackendEntrypoint):
    """Engine without a store: `fields`, with data that are never read."""

    def open_dataset(self, filename_or_obj: int, *, drop_variables: Any = None, **_: Any) -> xr.Dataset:  # noqa: ARG002
        template = _ready(filename_or_obj)
        return xr.Dataset(
            {name: xr.Variable(*variable) for name, variable in template.items()},
            coords=xr.Coordinates({name: xr.Variable(name, np.arange(n)) for name, n in SIZES.items()}, indexes={}),
        )


@functools.cache
def _ready(n: int) -> dict[str, tuple[Any, ...]]:
    shape = tuple(SIZES.values())
    data = indexing.LazilyIndexedArray(indexing.NumpyIndexingAdapter(np.zeros(shape, "f4")))
    encoding = {"preferred_chunks": SIZES}
    return {f"v{i:04}": (tuple(SIZES), data, {"units": "K"}, encoding) for i in range(n)}


def opened(url: Any, engine: Any, *, consolidated: bool = True, chunks: Any = None) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_dataset(url, engine=engine, consolidated=consolidated, chunks=chunks)


def bench_disk(path: Path, label: str, n: int, *, quick: bool) -> list[Row]:
    results = []
    for consolidated in (True, False):
        contenders = {
            OURS: lambda consolidated=consolidated: opened(path, "chunkmill", consolidated=consolidated),
            ZARR: lambda consolidated=consolidated: opened(path, "zarr", consolidated=consolidated),
            ALONE: lambda consolidated=consolidated: opened(n, Ready, consolidated=consolidated),
        }
        times = harness.alternate(contenders, harness.rounds(quick, 15))
        case = f"{label}, {n} variables, {'consolidated' if consolidated else 'not consolidated'}"
        targets = {OURS: (ZARR, 0.5)} if not quick else None
        results += harness.rows("open, on disk", case, times, peers=(ZARR,), baseline=None, targets=targets)
    return results


def bench_chunks(path: Path, n: int, n_rounds: int) -> list[Row]:
    """Open with and without ``chunks={}``, as multiples of parsing the consolidated document."""
    document = (path / "zarr.json").read_bytes()
    results = []
    for label, chunks in (("chunks={}", {}), ("no chunks", None)):
        contenders = {
            JSON: lambda: json.loads(document),
            OURS: lambda chunks=chunks: opened(path, "chunkmill", chunks=chunks),
            ZARR: lambda chunks=chunks: opened(path, "zarr", chunks=chunks),
            ALONE: lambda chunks=chunks: opened(n, Ready, chunks=chunks),
        }
        times = harness.alternate(contenders, n_rounds)
        case, targets = f"v3, {n} variables, {label}", {OURS: (ZARR, 0.75)}
        results += harness.rows(
            "open, times parsing",
            case,
            times,
            peers=(ZARR,),
            baseline=JSON,
            targets=targets if n >= N_VARIABLES else None,
        )
    return results


def bench_arrays(folder: Path, sizes: tuple[int, int]) -> list[Row]:
    """Create, convert, compare and check groups of many arrays of a chunk each: CPU seconds of 1000, by their number.

    The rows of the larger group are compared with those of the smaller one: 1 is linear.
    """
    results: list[Row] = []
    for n in (sizes[0], *sizes):  # the first for imports and caches
        source, target = str(folder / f"{len(results)}-{n}"), str(folder / f"{len(results)}-{n}-converted")
        wanted = {f"a{i:05}": {"shape": (8,), "dtype": "f4", "attributes": {"number": i}} for i in range(n)}
        made: dict[str, cm.Array] = {}
        create = {"create_arrays": lambda s=source, w=wanted, m=made: m.update(cm.create_arrays(s, w))}
        jobs: dict[str, Any] = {
            "plan_convert": lambda s=source, t=target: cm.plan_convert(s, t, format="zarr2"),
            "convert": lambda s=source, t=target: cm.convert(s, t, format="zarr2"),
            "verify": lambda s=source, t=target: cm.verify(s, t),
            "check": lambda s=source: cm.check(s),
            "consolidate": lambda s=source: cm.consolidate(s),
            "open one": lambda s=source, w=wanted: cm.open_array(s, min(w)),
        }
        seconds = harness.timed_once(create)
        for array in made.values():
            array[...] = 1
        seconds |= harness.timed_once(jobs)
        for name, taken in seconds.items():
            results.append(Row("many arrays, CPU of 1000", f"{n} arrays", name, [taken.cpu_alone() / (n / 1000)]))
    n_jobs = len(results) // 3
    rows = results[n_jobs:]
    for few, many in zip(rows[:n_jobs], rows[n_jobs:], strict=True):
        many.ratios = [many.seconds / few.seconds]
    return rows


def bench_http(url: str, label: str, n: int, *, latency: float, quick: bool) -> list[Row]:
    contenders = {
        OURS: lambda: opened(url, "chunkmill", consolidated=True),
        ZARR: lambda: opened(url, "zarr", consolidated=True),
    }
    times = harness.alternate(contenders, harness.rounds(quick, 5 if latency == LATENCIES[0] else 2))
    case = f"{label}, {n} variables, consolidated"
    return harness.rows(f"open, HTTP, {1000 * latency:.0f} ms", case, times, peers=(ZARR,), baseline=None)


# --- as tests


def test_requests_to_open(tmp_path):
    """One document has them all: web servers list nothing."""
    from support.servers import serve_files

    n = 40
    for label, stored in FORMATS.items():
        write_dataset(fields(n), tmp_path / label, format=stored)
        with serve_files(tmp_path / label, latency=0.02) as server:
            ds = opened(server.url, "chunkmill", consolidated=True)
            assert len(ds.data_vars) == n
            documents = [path for _, path, _ in server.log if path.rpartition("/")[2][:1] in {".", "z"}]
            assert len(documents) == len(set(documents)) <= 8


def test_both_engines_open_the_same(tmp_path):
    write_dataset(fields(3), tmp_path / "a", format="zarr3")
    xr.testing.assert_identical(
        opened(tmp_path / "a", "chunkmill", consolidated=True).load(),
        opened(tmp_path / "a", "zarr", consolidated=True).load(),
    )


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
