"""Transform: a Gaussian filter (sigma 1, halo 4) of a volume of float32 in chunks of 64³, zstd.

The bare loop is two plain threads with the same reads, function and writes: each block of 128³ with its halo is read by
``array[region]``, filtered, trimmed and assigned; no journal, no bound of memory, no boundary but the filter's own.
Peers: `dask.array.map_overlap` of blocks of 128³, from and to zarr-python. Each run has a process of its own; planning
is timed with it.

``CHUNKMILL_BENCH_MIB=2048`` sets the size of the volume; by default it is 256.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import chunkmill as cm
from benchmarks import harness
from benchmarks.bench_rechunk import counted
from benchmarks.harness import BARE, Row, in_threads
from benchmarks.processes import rounds_of_processes
from chunkmill.transforms.transform import plan_transform  # imported here, as dask is, and not while it is timed

OURS, OVERLAP = "chunkmill", "da.map_overlap + to_zarr"
CHUNK, BLOCK, HALO, SIGMA = 64, 128, 4, 1.0
_ZSTD = [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}]


# --------------------------------------------------------------------------------------------------------------------
# Contenders


def bare(source: Path, target: Path, n: int) -> dict[str, float]:
    array = cm.open_array(str(source))
    out = cm.create_array(str(target), shape=array.shape, dtype="f4", chunks=(CHUNK,) * 3, codecs=_ZSTD)

    def block(first: tuple[int, ...]) -> None:
        core = [slice(i, min(i + BLOCK, n)) for i in first]
        wide = [slice(max(cut.start - HALO, 0), min(cut.stop + HALO, n)) for cut in core]
        values = gaussian_filter(array[tuple(wide)], sigma=SIGMA)
        trimmed = (slice(c.start - w.start, c.stop - w.start) for c, w in zip(core, wide, strict=True))
        out[tuple(core)] = values[tuple(trimmed)]

    in_threads(block, list(product(range(0, n, BLOCK), repeat=3)))
    return {}


def ours(source: Path, target: Path, n: int) -> dict[str, float]:  # noqa: ARG001 - as the others
    with harness.threads():
        options: dict[str, Any] = {"params": {"sigma": SIGMA}, "halo": HALO, "codecs": _ZSTD, "dtype": "f4"}
        return counted(plan_transform(gaussian_filter, str(source), str(target), **options))


def by_overlap(source: Path, target: Path, n: int) -> dict[str, float]:  # noqa: ARG001 - as the others
    import zarr

    with harness.threads():
        x = da.from_array(zarr.open_array(str(source), mode="r"), chunks=(BLOCK,) * 3)
        y = da.map_overlap(gaussian_filter, x, depth=HALO, boundary="reflect", sigma=SIGMA, dtype="f4")
        cm.create_array(str(target), shape=x.shape, dtype="f4", chunks=(CHUNK,) * 3, codecs=_ZSTD)
        da.store(y, zarr.open_array(str(target), mode="r+"), lock=False)
    return {}


CONTENDERS: dict[str, Callable[[Path, Path, int], dict[str, float]]] = {BARE: bare, OURS: ours, OVERLAP: by_overlap}


def run_one(contender: str, n: str, source_path: str, target_path: str) -> dict[str, Any]:
    """Run one contender once, in this process, and return seconds, peak memory and counts."""
    if contender == OVERLAP:
        import zarr  # noqa: F401 - not while it is timed, nor in the memory of the others
    with harness.measured() as found:
        counts = CONTENDERS[contender](Path(source_path), Path(target_path), int(n))
    found["counts"] |= counts
    return found


def fill(n: int, folder: Path) -> None:
    array = cm.create_array(str(folder), shape=(n,) * 3, dtype="f4", chunks=(CHUNK,) * 3, codecs=_ZSTD)
    band = harness.volume((CHUNK, n, n)).astype("f4")
    for start in range(0, n, CHUNK):
        array[start : start + CHUNK] = band


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - as the others
    n_mib = 64 if quick else int(os.environ.get("CHUNKMILL_BENCH_MIB", "256"))
    n = 256 if n_mib < 256 else 384 if n_mib < 2048 else 768
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        fill(n, folder / "source")
        times, counts = rounds_of_processes(
            "benchmarks.bench_transform", list(CONTENDERS), 1 if quick else 5, str(n), str(folder / "source"),
            folder=folder,
        )  # fmt: skip
    case = f"float32, {n}³, Gaussian filter with a halo of {HALO}"
    return harness.rows("transform", case, times, peers=(OVERLAP,), targets={OURS: (BARE, 1.15)}, counts=counts)


# --------------------------------------------------------------------------------------------------------------------
# As a test: every contender does the job


@pytest.mark.slow
def test_every_contender_does_the_same(tmp_path):
    n = 192
    fill(n, tmp_path / "source")
    expected = gaussian_filter(cm.open_array(str(tmp_path / "source"))[...], SIGMA)
    for name, contender in CONTENDERS.items():
        counts = contender(tmp_path / "source", tmp_path / name, n)
        if name == OURS:
            assert 0.9 < counts["bytes over plan"] < 1.1
        np.testing.assert_array_equal(cm.open_array(str(tmp_path / name))[...], expected)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(run_one(*sys.argv[2:])))
    else:
        from benchmarks.run import alone

        alone("benchmarks.bench_transform")
