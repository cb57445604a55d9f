"""Reading: sum and materialise whole arrays through Dask threads, and directly; warm cache.

``sum``: every chunk is decoded and added up. ``all``: every chunk ends in one array in memory. The bare loop does the
same in two plain threads with ``os.read`` and numcodecs. Peers: dask with zarr-python, with tensorstore, with z5py
and zarrs (the last three on the same graph as ours, which costs least), and tensorstore and zarrs without dask. Dask's
own cost shows in the empty tasks, in the bare loop's reading as tasks of the same graph (tasks that last have threads
hand over to each other more often than empty ones do), and in our reading in the bare loop's threads; what
it costs to hold all blocks and to copy them into one array shows in the tasks that return blocks of no certain values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask.array.core import slices_from_chunks

import chunkmill as cm
from benchmarks import harness, stores
from benchmarks.harness import BARE, Row
from benchmarks.stores import KIB, MIB, Layout

OURS, AUTO, DIRECT = "chunkmill", "chunkmill, chunks='auto'", "chunkmill a[...]"
PLAIN = "chunkmill, two plain threads"
EMPTY, EMPTY_AUTO = "empty tasks", "empty tasks, chunks='auto'"
ZARR, TENSORSTORE, Z5PY = "dask + zarr-python", "dask + tensorstore", "dask + z5py"
BARE_TASKS = "bare loop's tasks"
EMPTY_BLOCKS = "empty blocks"
TENSORSTORE_DIRECT, ZARR_DIRECT = "tensorstore", "zarr-python"
ZARRS, ZARRS_DIRECT = "dask + zarrs", "zarrs"
PEERS = (ZARR, TENSORSTORE, Z5PY, ZARRS, TENSORSTORE_DIRECT, ZARR_DIRECT, ZARRS_DIRECT)

# larger than those that are written: dask's fixed cost for each `compute`, some 5 ms, is not what is measured
SHAPES = {64 * KIB: (512, 256, 256), MIB: (512, 512, 512)}


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:
    results = []
    for layout in layouts(quick=quick):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a"
            fill(layout, path)
            with harness.threads():
                results += bench_sum(layout, path, quick=quick)
                results += bench_all(layout, path, quick=quick)
            if cluster:
                results += bench_cluster(layout, path, quick=quick)
    return results


def layouts(*, quick: bool) -> list[Layout]:
    found = stores.layouts(quick=quick)
    by_chunk = {stores.CHUNKS[n]: shape for n, shape in SHAPES.items()}
    if quick:
        return found
    # gzip takes long enough for each chunk as it is
    return [x if "gzip" in x.name else replace(x, shape=by_chunk.get(x.keys, x.shape)) for x in found]


def fill(layout: Layout, path: Path) -> None:
    if layout.format == "n5":
        (path.parent / "attributes.json").write_text('{"n5": "4.0.0"}')  # z5py needs it to open anything
    cm.store(da.from_array(harness.volume(layout.shape), chunks=layout.keys), layout.create(path))


def bench_sum(layout: Layout, path: Path, *, quick: bool) -> list[Row]:
    arrays = dask_arrays(layout, path)
    contenders: dict[str, Callable[[], Any]] = {BARE: lambda: bare_sum(layout, path)}
    contenders |= {name: lambda x=x: x.sum().compute() for name, x in arrays.items()}
    contenders[PLAIN] = lambda: plain_sum(path)
    times = harness.alternate(contenders, harness.rounds(quick))
    counts = {
        name: {"tasks": harness.n_tasks(x.sum()), "graph": graph_bytes(x)}
        for name, x in arrays.items()
        if name not in {EMPTY, EMPTY_AUTO}
    }
    counts[OURS]["peak"] = harness.peak_bytes(contenders[OURS])
    counts[BARE] = {"peak": harness.peak_bytes(contenders[BARE])}
    targets = {OURS: (f"{BARE} + {EMPTY}", 1.15), AUTO: (f"{BARE} + {EMPTY_AUTO}", 1.15)}
    if layout.name.startswith("N5 gzip, 1 M"):
        targets[OURS] = BARE, 1.0
    return harness.rows("read, sum", layout.name, times, peers=PEERS, targets=targets, counts=counts)


def bench_all(layout: Layout, path: Path, *, quick: bool) -> list[Row]:
    contenders: dict[str, Callable[[], Any]] = {BARE: lambda: bare_all(layout, path)}
    a = cm.open_array(str(path))
    contenders[DIRECT] = lambda: a[...]
    contenders |= {
        name: x.compute for name, x in dask_arrays(layout, path).items() if name not in {EMPTY, EMPTY_AUTO, AUTO}
    }
    contenders[EMPTY_BLOCKS] = harness.like(a.to_dask(), empty_block).compute
    t = stores.open_tensorstore(layout, path)
    contenders[TENSORSTORE_DIRECT] = lambda: t.read().result()
    if layout.format != "n5":
        z = stores.open_zarrs(path)
        contenders[ZARRS_DIRECT] = lambda: z[...]
    times = harness.alternate(contenders, harness.rounds(quick))
    counts = {name: {"peak": harness.peak_bytes(contenders[name])} for name in (BARE, DIRECT, OURS)}
    block = np.prod(layout.keys) * 2
    counts[DIRECT]["blocks a thread over the result"] = (counts[DIRECT]["peak"] - a.nbytes) / block / harness.N_THREADS
    most = 1.3 if layout.chunks == stores.CHUNKS[64 * KIB] else 1.0
    targets = {DIRECT: (TENSORSTORE_DIRECT, most)}
    return harness.rows("read, all", layout.name, times, peers=PEERS, targets=targets, counts=counts)


def bench_cluster(layout: Layout, path: Path, *, quick: bool) -> list[Row]:
    with harness.local_cluster():
        contenders = {
            name: lambda x=x: x.sum().compute() for name, x in dask_arrays(layout, path, processes=True).items()
        }
        times = harness.alternate(contenders, 2 if quick else 5)
    small = layout.chunks == stores.CHUNKS[64 * KIB] and layout.shards is None
    targets = {OURS: (EMPTY, 1.2)} if small else {}
    return harness.rows("read, sum, LocalCluster", layout.name, times, peers=PEERS, targets=targets, baseline=EMPTY)


def bare_sum(layout: Layout, path: Path) -> int:
    def one(stored: tuple[str, Any]) -> int:
        return sum(int(block.sum(dtype=np.uint64)) for _, block in layout.blocks(stored[0]))

    return sum(harness.in_threads(one, layout.store_keys(path)))


def plain_sum(path: Path) -> int:
    """Read as `OURS` does, without dask: the bare loop's threads take store keys instead of paths."""
    a = cm.open_array(str(path))
    regions = slices_from_chunks(a.to_dask().chunks)
    return sum(harness.in_threads(lambda region: int(a[region].sum(dtype=np.uint64)), regions))


def bare_all(layout: Layout, path: Path) -> np.ndarray:
    out = np.empty(layout.shape, "u2")

    def one(stored: tuple[str, Any]) -> None:
        target = out[stored[1]]
        for region, block in layout.blocks(stored[0]):
            target[region] = block

    harness.in_threads(one, layout.store_keys(path))
    return out


def dask_arrays(layout: Layout, path: Path, *, processes: bool = False) -> dict[str, da.Array]:
    """Return the array at `path` as dask array, by contender."""
    ours = cm.from_store(str(path))
    auto = cm.from_store(str(path), chunks="auto")
    arrays = {OURS: ours, AUTO: auto, EMPTY: harness.empty_graph(ours), EMPTY_AUTO: harness.empty_graph(auto)}
    if layout.format == "n5":
        import z5py

        arrays[Z5PY] = harness.like(ours, read_z5, _Z5(str(path.parent), path.name))
        assert z5py
    else:
        arrays[ZARR] = da.from_zarr(str(path), chunks=layout.keys)
        if not processes:
            arrays[ZARRS] = harness.like(ours, read_zarrs, stores.open_zarrs(path))
    if not processes:  # an open tensorstore does not pickle cheaply
        arrays[BARE_TASKS] = harness.like(ours, partial(read_bare, layout, path))
        arrays[TENSORSTORE] = harness.like(ours, read_tensorstore, stores.open_tensorstore(layout, path))
    return arrays


def read_bare(layout: Layout, path: Path, region: stores.Region) -> np.ndarray:
    coords = tuple(cut.start // n for cut, n in zip(region, layout.keys, strict=True))
    blocks = layout.blocks(str(path / layout.key(coords)))
    if layout.shards is None:
        return next(blocks)[1]
    shard = np.empty(layout.shards, "u2")
    for place, block in blocks:
        shard[place] = block
    return shard


def read_tensorstore(array: Any, region: stores.Region) -> np.ndarray:
    return array[region].read().result()


class _Z5:
    """A z5py dataset that pickles; opened once in each process."""

    def __init__(self, file: str, name: str) -> None:
        self.file, self.name = file, name

    @property
    def dataset(self) -> Any:
        if "opened" not in self.__dict__:
            import z5py

            self.opened = z5py.File(self.file, use_zarr_format=False, mode="r")[self.name]
        return self.opened

    def __getstate__(self) -> dict[str, str]:
        return {"file": self.file, "name": self.name}

    def __dask_tokenize__(self) -> tuple[str, str]:
        return self.file, self.name


def read_z5(array: _Z5, region: stores.Region) -> np.ndarray:
    return array.dataset[region]


def read_zarrs(array: Any, region: stores.Region) -> np.ndarray:
    return array[region]


def empty_block(region: stores.Region) -> np.ndarray:
    return np.empty([cut.stop - cut.start for cut in region], "u2")


def graph_bytes(x: da.Array) -> int:
    import cloudpickle

    return len(cloudpickle.dumps(x.dask))


# --- as tests: what is read is right, at little cost


@pytest.fixture(
    params=[layout for layout in stores.layouts(quick=True) if layout.chunks == stores.CHUNKS[64 * KIB]],
    ids=lambda x: x.name,
)
def written(request, tmp_path):
    fill(request.param, tmp_path / "a")
    return request.param, tmp_path / "a"


def test_every_contender_reads_the_same(written):
    layout, path = written
    expected = harness.volume(layout.shape)
    np.testing.assert_array_equal(bare_all(layout, path), expected)
    assert bare_sum(layout, path) == plain_sum(path) == int(expected.sum(dtype="u8"))
    with harness.threads():
        np.testing.assert_array_equal(cm.open_array(str(path))[...], expected)
        np.testing.assert_array_equal(cm.from_store(str(path)).compute(), expected)


def test_a_store_key_is_a_task(written):
    layout, path = written
    n_keys = int(np.prod([n // k for n, k in zip(layout.shape, layout.keys, strict=True)]))
    assert harness.n_tasks(cm.from_store(str(path))) == n_keys


def test_a_direct_read_holds_the_result_and_two_blocks_a_thread(tmp_path):
    layout = next(layout for layout in stores.layouts(quick=True) if layout.name == f"v3 zstd, {stores.size_name(MIB)}")
    fill(layout, tmp_path / "a")
    a = cm.open_array(str(tmp_path / "a"))
    a[...]
    assert harness.peak_bytes(lambda: a[...]) <= a.nbytes + 2 * harness.N_THREADS * MIB + 100_000


@pytest.mark.parametrize("chunks", [pytest.param(None, marks=pytest.mark.slow), "auto"])
def test_a_streamed_sum_holds_four_blocks_a_thread(tmp_path, chunks):
    name = f"v3 zstd, {stores.size_name(MIB)}"
    layout = next(replace(layout, shape=(128, 512, 512)) for layout in stores.layouts() if layout.name == name)
    fill(layout, tmp_path / "a")
    x = cm.from_store(str(tmp_path / "a"), chunks=chunks)
    total = x.sum()
    with harness.threads():
        total.compute()
        peak = harness.peak_bytes(total.compute)
    assert x.npartitions > 4 * harness.N_THREADS
    assert peak <= 4 * harness.N_THREADS * np.prod(x.chunksize) * 2


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
