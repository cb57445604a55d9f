"""Conversion: encoded bytes that are copied, and chunks that are decoded and encoded.

``cp -r`` of the source shows the least that copying costs one process written in C. The bare loop is two plain threads
with ``os.read`` and ``os.write`` (and numcodecs, where the codecs change), to which every path is known: no
metadata, no checks, no journal, files written in place. Peers: tensorstore, copied in bands of 256 MiB; zarr-python
through dask, a task for each store key of the target. Each run has a process of its own; planning is timed with it.

``tiny chunks``: 10^5 chunks of 1 KiB, with tasks of up to 512 keys, and with a task for each key; the same job
with tasks that do nothing shows what the scheduler costs.

``CHUNKMILL_BENCH_MIB=1024`` sets the size of the arrays; by default it is 256.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import dask.array as da
import numcodecs
import numpy as np
import pytest

import chunkmill as cm
from benchmarks import harness, stores
from benchmarks.bench_rechunk import counted
from benchmarks.harness import BARE, Row, in_threads, read_file, write_file
from benchmarks.processes import rounds_of_processes
from benchmarks.stores import MIB, Layout
from chunkmill.conversion import convert_job as graph_convert
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.runtime.stage import TaskResult
from chunkmill.runtime.stage_runner import JobMonitor, run_stages

OURS, ONE_WORKER, CLUSTER = "chunkmill", "chunkmill, 1 worker", "chunkmill, 2 workers"
CP, TENSORSTORE, ZARR = "cp -r", "tensorstore", "dask + zarr-python"
UNGROUPED, EMPTY, EMPTY_UNGROUPED = "chunkmill, a task a key", "empty tasks", "empty tasks, one a key"
BAND = 256 * MIB


@dataclass(frozen=True)
class Case:
    """One conversion: source, target and codecs.

    ``encode`` is the target's codec where chunks are recoded, ``None`` where encoded bytes are copied.
    """

    name: str
    layout: Layout
    options: dict[str, Any] = field(default_factory=dict)
    shards: tuple[int, ...] | None = None
    encode: Callable[[Any], Any] | None = None
    is_tiny: bool = False

    @property
    def is_scaled(self) -> bool:
        """True when it is also run by one and by two workers."""
        return self.is_tiny or self.name.endswith(("to v3 blosc, 1 MiB", "to v3 zstd, 1 MiB"))

    def plan(self, source: Path, target: Path) -> cm.Plan:
        shards = {"shards": self.shards} if self.shards else {}
        return cm.plan_convert(str(source), str(target), format="zarr3", **shards, **self.options)

    @property
    def contenders(self) -> list[str]:
        if self.is_tiny:
            return [BARE, CP, OURS, UNGROUPED, EMPTY, EMPTY_UNGROUPED]
        names = [BARE, OURS, TENSORSTORE]
        names += [] if self.encode else [CP]
        return [*names, ZARR] if self.layout.format != "n5" else names

    @property
    def targets(self) -> dict[str, tuple[str, float]]:
        return {OURS: (BARE, 1.15)} if self.encode else {OURS: (CP, 1.5)}


def cases(n_mib: int) -> list[Case]:
    """Return all cases, with arrays of `n_mib` (a multiple of 64) and one of 10^5 tiny chunks."""
    own = {layout.name: layout for layout in stores.all_layouts()}

    def of(name: str) -> Layout:
        layout = own[name]
        rows = (n_mib << 20) // (2 * prod(layout.shape[1:]))
        return replace(layout, shape=(rows, *layout.shape[1:]))

    zstd = [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}]
    lz4 = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}
    n_tiny = (100, 100, 10) if n_mib > 64 else (10, 10, 10)
    tiny = replace(own["v2 blosc, 64 KiB"], chunks=(8, 8, 8), shape=tuple(8 * n for n in n_tiny))
    found = [
        Case("v2 blosc to v3 blosc, 64 KiB", of("v2 blosc, 64 KiB")),
        Case("v2 blosc to v3 blosc, 1 MiB", of("v2 blosc, 1 MiB")),
        Case("N5 gzip to v3 gzip, 1 MiB", of("N5 gzip, 1 MiB")),
        Case("v3 zstd to shards of 16 MiB, 1 MiB", of("v3 zstd, 1 MiB"), shards=(128, 256, 256)),
        Case(
            "v3 zstd to v3 blosc, 1 MiB",
            of("v3 zstd, 1 MiB"),
            {"codecs": [{"name": "blosc", "configuration": lz4}]},
            encode=numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE).encode,
        ),
        Case("N5 gzip to v3 zstd, 1 MiB", of("N5 gzip, 1 MiB"), {"codecs": zstd}, encode=numcodecs.Zstd(1).encode),
        Case(f"{prod(n_tiny):,} tiny chunks, v2 blosc to v3 blosc", tiny, is_tiny=True),
    ]
    return [case for case in found if re.search(harness.ONLY, case.name)]


# --------------------------------------------------------------------------------------------------------------------
# The bare loops


def bare(case: Case, source: Path, target: Path) -> dict[str, float]:
    layout = case.layout
    for coords in np.ndindex(
        *(n // k for n, k in zip(layout.shape[:-1], (case.shards or layout.keys)[:-1], strict=True))
    ):
        (target / "c" / "/".join(map(str, coords))).mkdir(parents=True, exist_ok=True)
    if case.shards:
        in_threads(lambda shard: bare_shard(case, source, target, shard), shards(case))
    else:
        in_threads(lambda coords: bare_chunk(case, source, target, coords), chunks(layout))
    return {}


def chunks(layout: Layout) -> list[tuple[int, ...]]:
    return list(np.ndindex(*(n // k for n, k in zip(layout.shape, layout.keys, strict=True))))


def shards(case: Case) -> list[tuple[int, ...]]:
    return list(np.ndindex(*(n // k for n, k in zip(case.layout.shape, case.shards, strict=True))))


def bare_chunk(case: Case, source: Path, target: Path, coords: tuple[int, ...]) -> None:
    layout = case.layout
    data: Any = read_file(f"{source}/{layout.key(coords)}")
    if layout.header:
        data = memoryview(data)[layout.header :]
    if case.encode is not None:
        block = np.frombuffer(layout.decode(data), layout.stored)
        data = case.encode(block.astype("u2", copy=False))
    write_file(f"{target}/c/{'/'.join(map(str, coords))}", data)


def bare_shard(case: Case, source: Path, target: Path, shard: tuple[int, ...]) -> None:
    from google_crc32c import value as crc32c

    layout = case.layout
    n_inner = tuple(s // c for s, c in zip(case.shards, layout.chunks, strict=True))
    parts, index, offset = [], [], 0
    for inner in np.ndindex(*n_inner):
        coords = tuple(i * n + j for i, n, j in zip(shard, n_inner, inner, strict=True))
        parts.append(read_file(f"{source}/{layout.key(coords)}"))
        index.append((offset, len(parts[-1])))
        offset += len(parts[-1])
    tail = np.array(index, "<u8").tobytes()
    data = b"".join([*parts, tail, crc32c(tail).to_bytes(4, "little")])
    write_file(f"{target}/c/{'/'.join(map(str, shard))}", data)


# --------------------------------------------------------------------------------------------------------------------
# Contenders


def ours(case: Case, source: Path, target: Path) -> dict[str, float]:
    with harness.threads():
        return counted(case.plan(source, target))


def on_workers(case: Case, source: Path, target: Path) -> dict[str, float]:
    return counted(case.plan(source, target))


def ungrouped(case: Case, source: Path, target: Path) -> dict[str, float]:
    with one_key_a_task():
        return ours(case, source, target)


class one_key_a_task:  # noqa: N801 - a context manager
    def __enter__(self) -> None:
        self.before, graph_convert.MAX_TASK_KEYS = graph_convert.MAX_TASK_KEYS, 1

    def __exit__(self, *_: object) -> None:
        graph_convert.MAX_TASK_KEYS = self.before


def empty(case: Case, source: Path, target: Path) -> dict[str, float]:
    """Plan, and run tasks that do nothing, with without a journal: dask's share, and that of our own task."""
    with harness.threads():
        (stage,) = (job := case.plan(source, target).job).stages(job.target)
        run_stages([replace(stage, function=nothing)], JobMonitor("empty"), Scheduler())
    return {"tasks": len(stage.tasks)}


def nothing(common: Any, spec: Any) -> TaskResult:  # noqa: ARG001 - a task
    return TaskResult({})


def empty_ungrouped(case: Case, source: Path, target: Path) -> dict[str, float]:
    with one_key_a_task():
        return empty(case, source, target)


def cp(case: Case, source: Path, target: Path) -> dict[str, float]:  # noqa: ARG001
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    return {}


def by_tensorstore(case: Case, source: Path, target: Path) -> dict[str, float]:
    publish(case, source, target)
    import tensorstore as ts

    context = ts.Context({"file_io_sync": False, "data_copy_concurrency": {"limit": harness.N_THREADS}})
    a, b = (
        ts.open({"driver": driver, "kvstore": {"driver": "file", "path": str(p)}}, context=context, open=True).result()
        for driver, p in ((case.layout.driver, source), ("zarr3", target))
    )
    a = a.T if case.layout.format == "n5" else a
    length = (case.shards or case.layout.keys)[0]
    band = max(length, BAND // (2 * prod(case.layout.shape[1:])) // length * length)
    for start in range(0, case.layout.shape[0], band):
        stop = min(start + band, case.layout.shape[0])
        b[start:stop].write(a[start:stop]).result()
    return {}


def by_zarr(case: Case, source: Path, target: Path) -> dict[str, float]:
    publish(case, source, target)
    import zarr

    with harness.threads():
        a, b = zarr.open_array(str(source), mode="r"), zarr.open_array(str(target), mode="r+")
        x = da.from_array(a, chunks=case.shards or case.layout.keys)
        da.store(x, b, lock=False)
    return {}


def publish(case: Case, source: Path, target: Path) -> None:
    """Make an empty array of the same metadata."""
    job = case.plan(source, target).job
    job.target.publish()


CONTENDERS: dict[str, Callable[[Case, Path, Path], dict[str, float]]] = {
    BARE: bare,
    CP: cp,
    OURS: ours,
    ONE_WORKER: on_workers,
    CLUSTER: on_workers,
    TENSORSTORE: by_tensorstore,
    ZARR: by_zarr,
    UNGROUPED: ungrouped,
    EMPTY: empty,
    EMPTY_UNGROUPED: empty_ungrouped,
}
WORKERS = {ONE_WORKER: 1, CLUSTER: 2}
SLOW = (TENSORSTORE, ZARR, UNGROUPED, EMPTY_UNGROUPED, *WORKERS)


def run_one(contender: str, name: str, n_mib: str, source_path: str, target_path: str) -> dict[str, Any]:
    """Run one contender once, in this process, and return seconds, peak memory and counts."""
    (case,) = [case for case in cases(int(n_mib)) if case.name == name]
    source, target = Path(source_path), Path(target_path)
    cluster = harness.local_cluster(WORKERS[contender]) if contender in WORKERS else nullcontext()
    with cluster, harness.measured() as found:
        counts = CONTENDERS[contender](case, source, target)
    found["counts"] |= counts
    return found


def fill(case: Case, folder: Path) -> None:
    """Write the source, from one band of values again and again."""
    array = case.layout.create(folder)
    rows = min(256, array.shape[0])  # a multiple of the chunks
    for start in range(0, array.shape[0], rows):
        array[start : start + rows] = values(rows, array.shape[1:])[: array.shape[0] - start]


@cache
def values(rows: int, shape: tuple[int, ...]) -> np.ndarray:
    return harness.volume((rows, *shape))


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:
    n_mib = 64 if quick else int(os.environ.get("CHUNKMILL_BENCH_MIB", "256"))
    results = []
    with tempfile.TemporaryDirectory() as root:
        for i, case in enumerate(cases(n_mib)):
            names = case.contenders + (list(WORKERS) if cluster or (case.is_scaled and not quick) else [])
            folder = Path(root) / str(i)
            fill(case, folder / "source")
            arguments = case.name, str(n_mib), str(folder / "source")
            n_rounds = 1 if quick else 2 if case.is_tiny else 5
            times, counts = rounds_of_processes(
                "benchmarks.bench_convert", names, n_rounds, *arguments, folder=folder, once=SLOW
            )
            harness.empty(folder)
            size = "" if case.is_tiny else f", {n_mib} MiB"
            results += harness.rows(
                "convert", case.name + size, times, peers=(TENSORSTORE, ZARR), targets=case.targets, counts=counts
            )
    return results


# --------------------------------------------------------------------------------------------------------------------
# As tests: every contender does the job, ours with the bytes of its plan


@pytest.mark.slow
@pytest.mark.parametrize("case", cases(64), ids=lambda case: case.name)
def test_every_contender_does_the_same(case, tmp_path):
    source = tmp_path / "source"
    fill(case, source)
    expected = cm.open_array(str(source))[...]
    for name in case.contenders:
        target = tmp_path / name
        counts = CONTENDERS[name](case, source, target)
        if name in {EMPTY, EMPTY_UNGROUPED}:
            continue
        if name == BARE:
            publish(case, source, tmp_path / "metadata")
            (target / "zarr.json").write_bytes((tmp_path / "metadata" / "zarr.json").read_bytes())
        if name == OURS:
            # chunks that are encoded again are planned as if they did not compress
            assert (0.6 if case.encode else 0.9) < counts["bytes over plan"] < 1.05
        np.testing.assert_array_equal(cm.open_array(str(target))[...], expected)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(run_one(*sys.argv[2:])))
    else:
        from benchmarks.run import alone

        alone("benchmarks.bench_convert")
