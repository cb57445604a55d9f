"""Partial writes: cost of lock and version check without contention, and unaligned regions against aligned ones.

``one element``: a chunk is read, changed and written back. The bare loop does it with ``os.read``, numcodecs and a
write in place: no lock, no version check, and a reader may see half a chunk.
``region``: the same bytes, from blocks of a chunk's size, to a region aligned to store keys, and to one shifted by half
a chunk along each axis: blocks are regrouped, and the keys at its border are read, changed and written back. Of n keys
along each of two axes the shifted region touches (n + 1)² and reads 4 n, whichever library writes it: that alone is 1.2
times the work at n = 12, and 1.6 times at n = 6. The values are in memory, of the workers on a cluster. The peers write
the shifted one: ``da.store`` under its one lock, xarray with ``safe_chunks=False`` (it refuses otherwise; two processes
may lose data), tensorstore without dask. Target: at most 1.5 times the aligned one, and half of ``da.store``. ``a
region a block``: each block is a dask array with a region of its own; the peers put them together and call dask's
``rechunk`` before ``da.store`` or xarray's ``to_zarr``, without a lock. Target: ahead of the first, and at most 1.15
times the bare loop, which writes each key of the shifted region once, and the same graph with tasks that write nothing
(in threads only). On clusters (``--cluster``) of 2 and of 4 processes, all contenders on the same one.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import numcodecs
import numpy as np
import pytest

import chunkmill as cm
from benchmarks import harness
from benchmarks.harness import BARE, Row
from chunkmill.array.chunk_io import update_chunk
from chunkmill.array.threads import local_lock
from chunkmill.dask_arrays.write_task import WriteCounts, WriteTask
from chunkmill.runtime.locks import ClusterLock, no_lock

KIB, MIB = 2**10, 2**20
ALIGNED, SHIFTED = "chunkmill, aligned", "chunkmill, unaligned"
EACH, EMPTY = "chunkmill, a region a block", "empty tasks"
RECHUNKED, XARRAY_RECHUNKED = "da.store, rechunked first", "xarray, rechunked first"
STORE, XARRAY, TENSORSTORE, ZARR = "da.store, its lock", "xarray, unsafe", "tensorstore", "zarr-python"
REGION_ARRAYS = ("aligned", "bare", "shifted", "each", "store", "rechunked", "tensorstore")
ONE, UNGUARDED = "chunkmill a[i] = v", "chunkmill, no lock"


@dataclass(frozen=True)
class Case:
    """Square chunks of 16-bit values, so many along each axis, zstd."""

    side: int
    n_chunks: int

    @property
    def name(self) -> str:
        size = 2 * self.side**2
        return f"v2 zstd, {size // MIB} MiB" if size >= MIB else f"v2 zstd, {size // KIB} KiB"

    @property
    def chunks(self) -> tuple[int, int]:
        return self.side, self.side

    @property
    def shape(self) -> tuple[int, int]:
        n = self.side * (self.n_chunks + 1)  # one more than a region has: there is room to shift it
        return n, n

    def region(self, *, shifted: bool) -> tuple[slice, slice]:
        start, n = (self.side // 2 if shifted else 0), self.side * self.n_chunks
        return (slice(start, start + n),) * 2

    def create(self, folder: Path) -> cm.Array:
        array = cm.create_array(
            str(folder), shape=self.shape, dtype="u2", chunks=self.chunks, format="zarr2", codecs=numcodecs.Zstd(1)
        )  # fmt: skip
        array[...] = harness.volume(self.shape)
        return array

    def values(self) -> np.ndarray:
        n = self.side * self.n_chunks
        return harness.volume((n, n), seed=1)


CASES = [Case(181, 16), Case(724, 12)]  # 64 KiB, 1 MiB
QUICK = [Case(64, 6)]


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:
    results = []
    for case in QUICK if quick else CASES:
        with tempfile.TemporaryDirectory() as folder, harness.threads():
            results += bench_element(case, Path(folder), quick=quick)
            results += bench_region(case, Path(folder), f"{case.name}, 2 threads", quick=quick)
        for n_workers in (2, 4) if cluster else ():
            with tempfile.TemporaryDirectory() as folder, cluster_of(n_workers) as client:
                results += bench_cluster_lock(case, Path(folder), client, n_workers, quick=quick)
                name = f"{case.name}, {n_workers} processes"
                results += bench_region(case, Path(folder), name, quick=quick, client=client)
    return results


@contextmanager
def cluster_of(n_workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


# --- one element


def bench_element(case: Case, folder: Path, *, quick: bool) -> list[Row]:
    n = 20 if quick else 100
    contenders = element_contenders(case, folder)
    times = harness.alternate(
        {name: lambda write=write: [write(i) for i in range(n)] for name, write in contenders.items()},
        harness.rounds(quick),
    )
    times = {name: [seconds / n for seconds in own] for name, own in times.items()}
    cost = {"lock alone, µs": 1e6 * time_of(lambda: local_lock("file:///x/0.0"), 2000)}
    return harness.rows("one element", case.name, times, peers=(ZARR, TENSORSTORE), counts={ONE: cost})


def element_contenders(case: Case, folder: Path) -> dict[str, Callable[[int], Any]]:
    """Return functions that write value `i` to one element of chunk (0, 0), by contender."""
    import tensorstore
    import zarr

    a = case.create(folder / "element")
    (overlap,) = a.write_layout.grid.overlaps((slice(1, 2), slice(1, 2)))
    z = zarr.open_array(folder / "element", mode="r+")
    t = tensorstore.open(tensorstore_spec(folder / "element")).result()
    path, codec = str(folder / "element" / "0.0"), numcodecs.Zstd(1)

    def bare(i: int) -> None:
        block = np.frombuffer(codec.decode(harness.read_file(path)), "u2").reshape(case.chunks).copy()
        block[1, 1] = i
        harness.write_file(path, codec.encode(block))

    return {
        BARE: bare,
        ONE: lambda i: a.__setitem__((1, 1), i),
        UNGUARDED: lambda i: update_chunk(a, overlap, np.full((1, 1), i, "u2"), lock=no_lock),
        ZARR: lambda i: z.__setitem__((1, 1), i),
        TENSORSTORE: lambda i: t[1, 1].write(i).result(),
    }


def time_of(lock: Callable[[], Any], n: int) -> float:
    """Return the seconds that entering and leaving a lock takes."""
    import time

    start = time.perf_counter()
    for _ in range(n):
        with lock():
            pass
    return (time.perf_counter() - start) / n


def bench_cluster_lock(case: Case, folder: Path, client: Any, n_workers: int, *, quick: bool) -> list[Row]:
    """Time the cluster's lock, which is acquired only under contention, and a partial write without contention."""
    array = case.create(folder / "lock")
    n = 20 if quick else 100
    contenders = {
        "chunkmill's lock": lambda: client.submit(take_ours, n, pure=False).result(),
        "distributed.Lock": lambda: client.submit(take_theirs, n, pure=False).result(),
        ONE: lambda: client.submit(write_elements, array, n, pure=False).result(),
    }
    times = {name: [] for name in contenders}
    for _ in range(harness.rounds(quick)):
        for name, function in contenders.items():
            times[name].append(function())
    return harness.rows("lock of a cluster", f"{case.name}, {n_workers} processes", times, peers=("distributed.Lock",))


def take_ours(n: int) -> float:
    from distributed import get_worker

    return time_of(lambda: ClusterLock(get_worker(), "file:///x/0.0"), n)


def take_theirs(n: int) -> float:
    from distributed import Lock

    return time_of(lambda: Lock("file:///x/0.0"), n)


def write_elements(array: cm.Array, n: int) -> float:
    import time

    start = time.perf_counter()
    for i in range(n):
        array[1, 1] = i
    return (time.perf_counter() - start) / n


# --- regions


def bench_region(case: Case, folder: Path, name: str, *, quick: bool, client: Any = None) -> list[Row]:
    contenders = region_contenders(case, folder, client)
    times = harness.alternate(contenders, 3 if quick or client else 5)
    (report,) = contenders[SHIFTED]()
    counts = {SHIFTED: {"keys": report.n_keys, "partial": report.n_partial, "regrouped": report.n_regrouped}}
    return harness.rows(
        "region", name, times, peers=(STORE, RECHUNKED, XARRAY, XARRAY_RECHUNKED, TENSORSTORE), counts=counts,
        targets={SHIFTED: [(ALIGNED, 1.5), (STORE, 0.5)], EACH: [(RECHUNKED, 1.0), (f"{BARE} + {EMPTY}", 1.15)]},
    )  # fmt: skip


def region_contenders(case: Case, folder: Path, client: Any = None) -> dict[str, Callable[[], Any]]:
    import distributed
    import tensorstore
    import xarray as xr
    import zarr

    values = case.values()
    x = da.from_array(values, chunks=case.chunks, name=False)
    if client is not None:
        x = client.persist(x)
        distributed.wait(x)
    arrays = {name: case.create(folder / name) for name in REGION_ARRAYS}
    shifted = case.region(shifted=True)
    z, rechunked = (zarr.open_array(folder / name, mode="r+") for name in ("store", "rechunked"))
    t = tensorstore.open(tensorstore_spec(folder / "tensorstore")).result()
    regions = [
        tuple(
            slice(b * case.side + s.start, (b + 1) * case.side + s.start) for b, s in zip(block, shifted, strict=True)
        )
        for block in np.ndindex(x.numblocks)
    ]
    blocks = [x.blocks[block] for block in np.ndindex(x.numblocks)]
    lengths = (case.side // 2, *[case.side] * (case.n_chunks - 1), case.side - case.side // 2)
    template = xr.Dataset({"a": (("y", "x"), da.from_array(harness.volume(case.shape), chunks=case.chunks))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("xarray", "xarray_rechunked"):
            template.to_zarr(folder / name, zarr_format=2, consolidated=False, encoding={"a": {"chunks": case.chunks}})

    def xarray(name: str, x: da.Array) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            region = dict(zip(("y", "x"), shifted, strict=True))
            dataset = xr.Dataset({"a": (("y", "x"), x)})
            dataset.to_zarr(folder / name, region=region, safe_chunks=False, consolidated=False)

    def each() -> None:
        cm.store(blocks, [arrays["each"]] * len(blocks), regions=regions)

    def nothing() -> None:
        with mock.patch.object(
            WriteTask, "__call__", lambda _, block, _within: WriteCounts().as_block(block.ndim)
        ):  # in this process: not of workers
            each()

    return {
        ALIGNED: lambda: cm.store(x, arrays["aligned"], regions=case.region(shifted=False)),
        BARE: lambda: bare_region(case, folder / "bare", values),
        SHIFTED: lambda: cm.store(x, [arrays["shifted"]], regions=shifted),
        EACH: each,
        **({EMPTY: nothing} if client is None else {}),
        STORE: lambda: da.store(x, z, regions=shifted),
        RECHUNKED: lambda: da.store(x.rechunk((lengths, lengths)), rechunked, regions=shifted, lock=False),
        XARRAY: lambda: xarray("xarray", x),
        XARRAY_RECHUNKED: lambda: xarray("xarray_rechunked", x.rechunk((lengths, lengths))),
        TENSORSTORE: lambda: t[shifted].write(values).result(),
    }


def bare_region(case: Case, folder: Path, values: np.ndarray) -> None:
    """Write the shifted region in two plain threads: inner keys as they are, those at the border changed."""
    side, codec = case.side, numcodecs.Zstd(1)
    region = case.region(shifted=True)

    def write(coords: tuple[int, ...]) -> None:
        starts = [i * side for i in coords]
        cuts = [slice(max(a, cut.start), min(a + side, cut.stop)) for a, cut in zip(starts, region, strict=True)]
        part = values[
            tuple(slice(c.start - cut.start, c.stop - cut.start) for c, cut in zip(cuts, region, strict=True))
        ]
        path = str(folder / ".".join(map(str, coords)))
        block = np.ascontiguousarray(part)
        if block.shape != case.chunks:
            block = np.frombuffer(codec.decode(harness.read_file(path)), "u2").reshape(case.chunks).copy()
            block[tuple(slice(c.start - a, c.stop - a) for c, a in zip(cuts, starts, strict=True))] = part
        harness.write_file(path, codec.encode(block))

    harness.in_threads(write, np.ndindex((case.n_chunks + 1,) * 2))


def tensorstore_spec(folder: Path) -> dict[str, Any]:
    # without syncing every file to the disk, which no other library does
    return {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": str(folder), "file_io_sync": False},
        "recheck_cached_data": "open",
    }


# --- tests


@pytest.mark.filterwarnings("ignore")
def test_all_write_the_same(tmp_path):
    case = QUICK[0]
    contenders = region_contenders(case, tmp_path)
    before, values = harness.volume(case.shape), case.values()
    with harness.threads():
        for name, place, shifted in (
            (ALIGNED, "aligned", False),
            (BARE, "bare", True),
            (SHIFTED, "shifted", True),
            (EACH, "each", True),
            (STORE, "store", True),
            (RECHUNKED, "rechunked", True),
            (TENSORSTORE, "tensorstore", True),
        ):
            contenders[name]()
            expected = before.copy()
            expected[case.region(shifted=shifted)] = values
            np.testing.assert_array_equal(cm.open_array(str(tmp_path / place))[...], expected)


def test_only_the_rim_is_partial(tmp_path):
    case = QUICK[0]
    with harness.threads():
        contenders = region_contenders(case, tmp_path)
        (aligned,), (shifted,) = contenders[ALIGNED](), contenders[SHIFTED]()
    n = case.n_chunks
    assert (aligned.n_keys, aligned.n_partial, aligned.n_regrouped) == (n * n, 0, 0)
    assert (shifted.n_keys, shifted.n_partial, shifted.n_regrouped) == ((n + 1) ** 2, 4 * n, n * n)


def test_elements(tmp_path):
    for i, write in enumerate(element_contenders(QUICK[0], tmp_path).values()):
        write(i + 1)
        assert cm.open_array(str(tmp_path / "element"))[1, 1] == i + 1


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
