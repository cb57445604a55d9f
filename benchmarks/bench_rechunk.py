"""Rechunking: images to time series, time series to images, blocks to other blocks.

The bare loop is the least that the job takes: two plain threads with ``os.read``, numcodecs and numpy, which write raw
intermediate files once where the chunks cross each other; of raw chunks they read ranges instead. Peers: tensorstore,
copied in bands of as many bytes as we may use, and dask's task rechunk between our own reading and writing. Each run
has a process of its own, so that its peak resident memory is its own too, interpreter and libraries included.

``cpu`` is in seconds: on a busy machine it is more reliable than the clock.
``CHUNKMILL_BENCH_MIB=2048`` sets the size of the arrays, by default 512, within 300 MiB of memory. Larger ones have
384 MiB.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import dask
import numcodecs
import numpy as np
import pytest

import chunkmill as cm
from benchmarks import harness
from benchmarks.harness import BARE, Row, in_threads, read_file, write_file
from benchmarks.processes import rounds_of_processes
from chunkmill import plan_rechunk

OURS, CLUSTER = "chunkmill", "chunkmill, cluster"
TENSORSTORE, DASK = "tensorstore", "dask rechunk"
SMALL = 512 << 20  # up to which arrays have the smaller bound

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    name: str
    source: Shape
    target: Shape
    codec: str
    bare: Callable[[Case, Path, Path], None]
    shape: Shape

    @property
    def max_mem(self) -> int:
        return (300 if 4 * prod(self.shape) <= SMALL else 384) << 20

    def encode(self, block: np.ndarray) -> Any:
        data = np.ascontiguousarray(block)
        return numcodecs.zstd.compress(data, 1) if self.codec == "zstd" else data

    def read(self, folder: Path, coords: Shape, shape: Shape) -> np.ndarray:
        data = read_file(str(folder / "c" / "/".join(map(str, coords))))
        if self.codec == "zstd":
            data = numcodecs.zstd.decompress(data)
        return np.frombuffer(data, "f4").reshape(shape)

    def write(self, folder: Path, coords: Shape, block: np.ndarray) -> None:
        path = folder / "c" / "/".join(map(str, coords))
        try:
            write_file(str(path), self.encode(block))
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(str(path), self.encode(block))


# --------------------------------------------------------------------------------------------------------------------
# The bare loops


N_TOGETHER = 16  # images, of 4 MiB each


def bare_to_series(case: Case, source: Path, target: Path) -> None:
    """Write images to intermediate files by rows of series, then assemble each row of series."""
    n, rows, columns = case.shape
    width = case.target[1]
    piece = N_TOGETHER * width * columns * 4
    (target / "tmp").mkdir(parents=True)

    def spill(i: int) -> None:
        out = np.empty((rows // width, N_TOGETHER, width, columns), "f4")
        for k in range(N_TOGETHER):
            out[:, k] = case.read(source, (i * N_TOGETHER + k, 0, 0), (rows // width, width, columns))
        write_file(str(target / "tmp" / str(i)), out)

    def gather(row: int) -> None:
        cubes = np.empty((columns // width, n, width, width), "f4")
        for i in range(n // N_TOGETHER):
            data = read_part(target / "tmp" / str(i), piece, row * piece)
            block = np.frombuffer(data, "f4").reshape(N_TOGETHER, width, columns // width, width)
            cubes[:, i * N_TOGETHER : (i + 1) * N_TOGETHER] = block.transpose(2, 0, 1, 3)
        for column, cube in enumerate(cubes):
            case.write(target, (0, row, column), cube)

    in_threads(spill, range(n // N_TOGETHER))
    in_threads(gather, range(rows // width))
    shutil.rmtree(target / "tmp")


def bare_raw_to_series(case: Case, source: Path, target: Path) -> None:
    """Assemble each row of series from the rows of images that it needs: of raw images, a range of bytes each."""
    n, rows, columns = case.shape
    width = case.target[1]
    size = width * columns * 4

    def gather(row: int) -> None:
        cubes = np.empty((columns // width, n, width, width), "f4")
        for k in range(n):
            data = read_part(source / "c" / str(k) / "0" / "0", size, row * size)
            cubes[:, k] = np.frombuffer(data, "f4").reshape(width, columns // width, width).transpose(1, 0, 2)
        for column, cube in enumerate(cubes):
            case.write(target, (0, row, column), cube)

    in_threads(gather, range(rows // width))


def bare_to_images(case: Case, source: Path, target: Path) -> None:
    """Write rows of series to intermediate files by images, then assemble some images at once."""
    n, rows, columns = case.shape
    width = case.source[1]
    piece = N_TOGETHER * width * columns * 4
    (target / "tmp").mkdir(parents=True)

    def spill(row: int) -> None:
        out = np.empty((n, width, columns // width, width), "f4")
        for column in range(columns // width):
            out[:, :, column] = case.read(source, (0, row, column), (n, width, width))
        write_file(str(target / "tmp" / str(row)), out)

    def gather(i: int) -> None:
        images = np.empty((N_TOGETHER, rows, columns), "f4")
        for row in range(rows // width):
            data = read_part(target / "tmp" / str(row), piece, i * piece)
            images[:, row * width : (row + 1) * width] = np.frombuffer(data, "f4").reshape(N_TOGETHER, width, columns)
        for k, image in enumerate(images):
            case.write(target, (i * N_TOGETHER + k, 0, 0), image)

    in_threads(spill, range(rows // width))
    in_threads(gather, range(n // N_TOGETHER))
    shutil.rmtree(target / "tmp")


def bare_regrid(case: Case, source: Path, target: Path) -> None:
    """Read regions that are aligned to both grids: no intermediate files are needed."""
    box = tuple(np.lcm(case.source, case.target).tolist())

    def regrid(corner: Shape) -> None:
        block = np.empty(box, "f4")
        for offset in itertools.product(*(range(0, b, s) for b, s in zip(box, case.source, strict=True))):
            at = tuple(slice(o, o + s) for o, s in zip(offset, case.source, strict=True))
            block[at] = case.read(source, coords_of(corner, offset, case.source), case.source)
        for offset in itertools.product(*(range(0, b, s) for b, s in zip(box, case.target, strict=True))):
            at = tuple(slice(o, o + s) for o, s in zip(offset, case.target, strict=True))
            case.write(target, coords_of(corner, offset, case.target), block[at])

    in_threads(regrid, itertools.product(*(range(0, n, b) for n, b in zip(case.shape, box, strict=True))))


def coords_of(corner: Shape, offset: Shape, chunks: Shape) -> Shape:
    return tuple((a + o) // c for a, o, c in zip(corner, offset, chunks, strict=True))


def read_part(path: Path, size: int, offset: int) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)


# --------------------------------------------------------------------------------------------------------------------
# Cases and contenders


def cases(n_mib: int, side: int = 1024) -> list[Case]:
    """Return all cases, with arrays of `n_mib`: a multiple of 128, or of 16 with images of 256 x 256."""
    n = (n_mib << 18) // side**2
    shape, cube = (n, side, side), (4 * n, side // 2, side // 2)
    image, series = (1, side, side), (n, 32, 32)
    return [
        Case("images to series, raw", image, series, "raw", bare_raw_to_series, shape),
        Case("images to series, zstd", image, series, "zstd", bare_to_series, shape),
        Case("series to images, zstd", series, image, "zstd", bare_to_images, shape),
        Case("(64, 64, 64) to (128, 128, 16), zstd", (64, 64, 64), (128, 128, 16), "zstd", bare_regrid, cube),
    ]


def fill(case: Case, folder: Path) -> None:
    codecs = "raw" if case.codec == "raw" else [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}]
    array = cm.create_array(str(folder), shape=case.shape, dtype="f4", chunks=case.source, codecs=codecs)
    axis = 0 if case.source[0] < case.shape[0] else 1
    step = max(16, case.source[axis])
    for start in range(0, case.shape[axis], step):
        at = tuple(slice(start, start + step) if i == axis else slice(0, n) for i, n in enumerate(case.shape))
        array[at] = harness.volume(tuple(cut.stop - cut.start for cut in at), "f4", seed=start)


def bare(case: Case, source: Path, target: Path) -> dict[str, float]:
    case.bare(case, source, target)
    return {}


def ours(case: Case, source: Path, target: Path) -> dict[str, float]:
    with dask.config.set(scheduler="threads", num_workers=harness.N_THREADS):
        return counted(plan_rechunk(str(source), str(target), chunks=case.target, max_mem=case.max_mem))


def ours_on_a_cluster(case: Case, source: Path, target: Path) -> dict[str, float]:
    max_mem = case.max_mem // harness.N_THREADS
    return counted(plan_rechunk(str(source), str(target), chunks=case.target, max_mem=max_mem))


def counted(plan: Any) -> dict[str, float]:
    """Run a plan, and return the measured counts next to the planned ones."""
    report = plan.run(progress=False)
    return {
        "tasks": report.n_tasks,
        "requests": report.n_requests,
        "bytes over plan": (report.bytes_read + report.bytes_written) / (plan.bytes_read + plan.bytes_written),
        "peak of workers": report.peak_memory_bytes,
    }


def by_dask(case: Case, source: Path, target: Path) -> dict[str, float]:
    with dask.config.set(scheduler="threads", num_workers=harness.N_THREADS):
        x = cm.from_store(str(source)).rechunk(case.target, method="tasks")
        cm.to_store(x, str(target), chunks=case.target, codecs=list(_codecs(source)))
    return {}


def _codecs(source: Path) -> list[dict[str, Any]]:
    return [{"name": c.name, "configuration": dict(c.configuration)} for c in cm.open_array(str(source)).codecs]


def by_tensorstore(case: Case, source: Path, target: Path) -> dict[str, float]:
    """Copy band after band, along the axis on which the source's chunks are shortest compared with the target's."""
    import tensorstore as ts

    context = ts.Context({"file_io_sync": False, "data_copy_concurrency": {"limit": harness.N_THREADS}})
    plan = plan_rechunk(str(source), str(target), chunks=case.target)
    plan.job.target.publish()  # an empty array of the same metadata
    a, b = (
        ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(p)}}, context=context, open=True).result()
        for p in (source, target)
    )
    axis = max(range(len(case.shape)), key=lambda i: case.source[i] / case.target[i])
    n_bands = -(-4 * prod(case.shape) // case.max_mem)
    length = case.target[axis]
    band = max(length, case.shape[axis] // n_bands // length * length)
    for start in range(0, case.shape[axis], band):
        at = tuple(slice(start, min(start + band, n)) if i == axis else slice(None) for i, n in enumerate(case.shape))
        b[at].write(a[at]).result()
    return {}


CONTENDERS: dict[str, Callable[[Case, Path, Path], dict[str, float]]] = {
    BARE: bare,
    OURS: ours,
    CLUSTER: ours_on_a_cluster,
    TENSORSTORE: by_tensorstore,
    DASK: by_dask,
}


def run_one(contender: str, name: str, n_mib: str, source_path: str, target_path: str) -> dict[str, Any]:
    """Run one contender once, in this process, and return seconds, peak memory and counts."""
    (case,) = [case for case in cases(int(n_mib)) if case.name == name]
    source, target = Path(source_path), Path(target_path)
    with harness.local_cluster() if contender == CLUSTER else nullcontext(), harness.measured() as found:
        counts = CONTENDERS[contender](case, source, target)
    found["counts"] |= counts
    return found


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:
    n_mib = 128 if quick else int(os.environ.get("CHUNKMILL_BENCH_MIB", "512"))
    names = [name for name in CONTENDERS if cluster or name != CLUSTER]
    once = (TENSORSTORE, DASK) if n_mib > 1024 else ()
    results = []
    with tempfile.TemporaryDirectory() as root:
        for i, case in enumerate(cases(n_mib)):
            if not re.search(harness.ONLY, case.name):
                continue
            folder = Path(root) / str(i)
            fill(case, folder / "source")
            arguments = case.name, str(n_mib), str(folder / "source")
            times, counts = rounds_of_processes(
                "benchmarks.bench_rechunk", names, 1 if quick else 5, *arguments, folder=folder, once=once
            )
            harness.empty(folder)
            results += harness.rows(
                "rechunk", f"{case.name}, {n_mib} MiB", times, peers=(TENSORSTORE, DASK),
                targets={OURS: [(BARE, 1.3), (TENSORSTORE, 1.0), (DASK, 1.0)]}, counts=counts,
            )  # fmt: skip
    return results


# --------------------------------------------------------------------------------------------------------------------
# As tests: every contender does the job, ours with the bytes of its plan and within its memory


@pytest.mark.parametrize("case", cases(16, 256), ids=lambda case: case.name)
def test_every_contender_does_the_same(case, tmp_path):
    fill(case, tmp_path / "source")
    expected = cm.open_array(str(tmp_path / "source"))[...]
    for name, contender in CONTENDERS.items():
        if name in {CLUSTER, DASK} or (name == TENSORSTORE and "series" in case.name):
            continue
        target = tmp_path / name
        counts = contender(case, tmp_path / "source", target)
        if name == BARE:
            plan = plan_rechunk(str(tmp_path / "source"), str(tmp_path / "metadata"), chunks=case.target)
            plan.job.target.publish()
            shutil.copy(tmp_path / "metadata" / "zarr.json", target / "zarr.json")
        if name == OURS:
            assert counts["bytes over plan"] <= 1.05
        np.testing.assert_array_equal(cm.open_array(str(target))[...], expected)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(run_one(*sys.argv[2:])))
    else:
        from benchmarks.run import alone

        alone("benchmarks.bench_rechunk")
