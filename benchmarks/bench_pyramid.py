"""Pyramid: levels by mean of 2 x 2 x 2, of a volume of uint16 in chunks of 64³ in shards of 128³, zstd.

The bare loop is two plain threads with ``os.read``, numcodecs, sums of strided slices in uint32, rounded half to even,
and ``os.write`` of shards with their indexes: no metadata, no checks, no journal, files written in place; the first
level is copied as bytes, and each level is kept in memory for the next. Peers: `dask.array.coarsen` and zarr-python,
level by level, each read from the one before; TensorStore's downsample driver, copied level by level; ngff-zarr, where
it is installed. Each run has a process of its own; planning is timed with it.

``CHUNKMILL_BENCH_MIB=2048`` sets the size of the volume; by default it is 256.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import numcodecs
import numpy as np
import pytest

import chunkmill as cm
from benchmarks import harness
from benchmarks.bench_rechunk import counted
from benchmarks.harness import BARE, Row, in_threads, read_file, write_file
from benchmarks.processes import rounds_of_processes

OURS, ONE_WORKER, CLUSTER = "chunkmill", "chunkmill, 1 worker", "chunkmill, 2 workers"
COARSEN, TENSORSTORE, NGFF = "da.coarsen + zarr-python", "tensorstore", "ngff-zarr"
CHUNK, SHARD = 64, 128
_ZSTD = [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}]
_CODEC = numcodecs.Zstd(1)


def n_levels(n: int) -> int:
    """Levels until a chunk holds the last."""
    return 1 + max(0, (n // CHUNK).bit_length() - 1)


def shard_path(folder: Path, level: int, coords: tuple[int, ...]) -> str:
    return f"{folder}/{level}/c/{'/'.join(map(str, coords))}"


# --------------------------------------------------------------------------------------------------------------------
# Contenders


def bare(source: Path, target: Path, n: int) -> dict[str, float]:
    below = np.empty((n // 2,) * 3, "u2")

    def first(coords: tuple[int, ...]) -> None:
        data = read_file(f"{source}/c/{'/'.join(map(str, coords))}")
        write(target, 0, coords, data)
        block = mean(decoded(data))
        half = SHARD // 2
        below[tuple(slice(i * half, (i + 1) * half) for i in coords)] = block

    in_threads(first, list(product(range(n // SHARD), repeat=3)))
    for level in range(1, n_levels(n)):
        size = min(SHARD, below.shape[0])
        in_threads(
            lambda coords, level=level, values=below, size=size: write(
                target, level, coords, encoded(values[tuple(slice(i * size, (i + 1) * size) for i in coords)])
            ),
            list(product(range(below.shape[0] // size), repeat=3)),
        )
        if level + 1 < n_levels(n):
            values = below
            below = np.empty((values.shape[0] // 2,) * 3, "u2")
            half = values.shape[0] // 4  # planes: two threads, and two more to be even

            def reduce(i: int, values: np.ndarray = values, below: np.ndarray = below, step: int = half) -> None:
                below[i * step // 2 : (i + 1) * step // 2] = mean(values[i * step : (i + 1) * step])

            in_threads(reduce, range(4))
    return {}


def mean(block: np.ndarray) -> np.ndarray:
    sums = block[::2].astype("u4")
    sums += block[1::2]
    sums = sums[:, ::2] + sums[:, 1::2]
    sums = sums[..., ::2] + sums[..., 1::2]
    return ((sums + 3 + ((sums >> 3) & 1)) >> 3).astype("u2")


def decoded(data: bytes) -> np.ndarray:
    """Decode a shard: its index is at the end, with a checksum."""
    per_axis = SHARD // CHUNK
    index = np.frombuffer(data, "<u8", 2 * per_axis**3, len(data) - 4 - 16 * per_axis**3).reshape(-1, 2)
    block = np.empty((SHARD,) * 3, "u2")
    for (offset, size), coords in zip(index.tolist(), product(range(per_axis), repeat=3), strict=True):
        chunk = np.frombuffer(_CODEC.decode(data[offset : offset + size]), "<u2").reshape((CHUNK,) * 3)
        block[tuple(slice(i * CHUNK, (i + 1) * CHUNK) for i in coords)] = chunk
    return block


def encoded(block: np.ndarray) -> bytes:
    from google_crc32c import value as crc32c

    parts, index, offset = [], [], 0
    for coords in product(range(SHARD // CHUNK), repeat=3):
        chunk = block[tuple(slice(i * CHUNK, (i + 1) * CHUNK) for i in coords)]
        if not chunk.size:
            index.append((2**64 - 1, 2**64 - 1))
            continue
        parts.append(_CODEC.encode(np.ascontiguousarray(chunk)))
        index.append((offset, len(parts[-1])))
        offset += len(parts[-1])
    tail = np.array(index, "<u8").tobytes()
    return b"".join([*parts, tail, crc32c(tail).to_bytes(4, "little")])


def write(target: Path, level: int, coords: tuple[int, ...], data: bytes) -> None:
    path = shard_path(target, level, coords)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data)


def ours(source: Path, target: Path, n: int) -> dict[str, float]:
    with harness.threads():
        return on_workers(source, target, n)


def on_workers(source: Path, target: Path, n: int) -> dict[str, float]:
    return counted(cm.plan_pyramid(str(source), str(target), levels=n_levels(n)))


def by_coarsen(source: Path, target: Path, n: int) -> dict[str, float]:
    import zarr

    with harness.threads():
        x = da.from_array(zarr.open_array(str(source), mode="r"), chunks=(SHARD,) * 3)
        for level in range(n_levels(n)):
            if level:
                x = da.rint(da.coarsen(np.mean, x, {0: 2, 1: 2, 2: 2})).astype("u2")
            out = create_level(target, level, n)
            da.store(x.rechunk((SHARD,) * 3), zarr.open_array(f"{out}", mode="r+"), lock=False)
            x = da.from_array(zarr.open_array(f"{out}", mode="r"), chunks=(SHARD,) * 3)
    return {}


def by_tensorstore(source: Path, target: Path, n: int) -> dict[str, float]:
    import tensorstore as ts

    context = ts.Context({"file_io_sync": False, "data_copy_concurrency": {"limit": harness.N_THREADS}})

    def opened(path: Path | str) -> Any:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
        return ts.open(spec, context=context, open=True).result()

    x = opened(source)
    for level in range(n_levels(n)):
        out = opened(create_level(target, level, n))
        values = ts.downsample(x, [2, 2, 2], "mean") if level else x
        for start in range(0, out.shape[0], SHARD):
            stop = min(start + SHARD, out.shape[0])
            out[start:stop].write(values[start:stop]).result()
        x = out
    return {}


def by_ngff(source: Path, target: Path, n: int) -> dict[str, float]:
    import ngff_zarr as nz
    import zarr

    with harness.threads():
        x = da.from_array(zarr.open_array(str(source), mode="r"), chunks=(SHARD,) * 3)
        image = nz.to_ngff_image(x, dims=("z", "y", "x"))
        factors = [2**level for level in range(1, n_levels(n))]
        scales = nz.to_multiscales(image, scale_factors=factors, chunks=CHUNK, method=nz.Methods.DASK_IMAGE_GAUSSIAN)
        nz.to_ngff_zarr(str(target), scales, version="0.5", chunks_per_shard=SHARD // CHUNK)
    return {}


def create_level(target: Path, level: int, n: int) -> str:
    shape = (n >> level,) * 3
    path = f"{target}/{level}"
    cm.create_array(path, shape=shape, dtype="u2", chunks=(CHUNK,) * 3, shards=(SHARD,) * 3, codecs=_ZSTD)
    return path


CONTENDERS: dict[str, Callable[[Path, Path, int], dict[str, float]]] = {
    BARE: bare,
    OURS: ours,
    ONE_WORKER: on_workers,
    CLUSTER: on_workers,
    COARSEN: by_coarsen,
    TENSORSTORE: by_tensorstore,
    NGFF: by_ngff,
}
WORKERS = {ONE_WORKER: 1, CLUSTER: 2}


def contenders() -> list[str]:
    return [BARE, OURS, COARSEN, TENSORSTORE, *([NGFF] if find_spec("ngff_zarr") else [])]


def run_one(contender: str, n: str, source_path: str, target_path: str) -> dict[str, Any]:
    """Run one contender once, in this process, and return seconds, peak memory and counts."""
    cluster = harness.local_cluster(WORKERS[contender]) if contender in WORKERS else nullcontext()
    with cluster, harness.measured() as found:
        counts = CONTENDERS[contender](Path(source_path), Path(target_path), int(n))
    found["counts"] |= counts
    return found


def fill(n: int, folder: Path) -> None:
    array = cm.create_array(
        str(folder), shape=(n,) * 3, dtype="u2", chunks=(CHUNK,) * 3, shards=(SHARD,) * 3, codecs=_ZSTD
    )
    band = harness.volume((SHARD, n, n))
    for start in range(0, n, SHARD):
        array[start : start + SHARD] = band


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:
    n_mib = 32 if quick else int(os.environ.get("CHUNKMILL_BENCH_MIB", "256"))
    n = 256 if n_mib < 256 else 512 if n_mib < 2048 else 1024
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        fill(n, folder / "source")
        names = contenders() + (list(WORKERS) if cluster or not quick else [])
        times, counts = rounds_of_processes(
            "benchmarks.bench_pyramid", names, 1 if quick else 5, str(n), str(folder / "source"), folder=folder,
            once=(COARSEN, NGFF, *WORKERS),
        )  # fmt: skip
    case = f"uint16, {n}³, mean of 2 x 2 x 2"
    return harness.rows(
        "pyramid", case, times, peers=(COARSEN, TENSORSTORE, NGFF), targets={OURS: (BARE, 1.3)}, counts=counts
    )


# --------------------------------------------------------------------------------------------------------------------
# As a test: every contender does the job


@pytest.mark.slow
def test_every_contender_does_the_same(tmp_path):
    n = 256
    fill(n, tmp_path / "source")
    assert n_levels(n) == 3
    for name in (OURS, BARE, COARSEN, TENSORSTORE):
        target = tmp_path / name
        counts = CONTENDERS[name](tmp_path / "source", target, n)
        if name == OURS:
            assert 0.9 < counts["bytes over plan"] < 1.1
        for level in range(n_levels(n)):
            expected = cm.open_array(str(tmp_path / OURS), str(level))
            if name == BARE:
                (target / str(level) / "zarr.json").write_bytes(
                    (tmp_path / OURS / str(level) / "zarr.json").read_bytes()
                )
            np.testing.assert_array_equal(cm.open_array(f"{target}/{level}")[...], expected[...])


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(run_one(*sys.argv[2:])))
    else:
        from benchmarks.run import alone

        alone("benchmarks.bench_pyramid")
