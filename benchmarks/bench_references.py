"""Reference sets: opening, first slice, full read and peak memory, against the JSON parser, fsspec and zarr-python.

Every measurement is made in a process of its own, so that its peak memory is its own; contenders take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks import harness
from benchmarks.harness import Row

PARSER, OURS, FSSPEC, COLUMNS = "json.loads", "chunkmill", "fsspec + zarr-python", "columns"
N_JSON, N_PARQUET = 1_000_000, 10_000_000  # references
MOST_TIMES, MOST_MB = 2.0, 400.0  # limits: opening JSON, in multiples of the parser; a whole set in memory
KEPT = "BENCH_REFERENCES"  # environment variable: a folder where sets are made once, and found again
ITEMS = 25  # of a chunk: 100 bytes, since references are measured and not data
PER_FILE = 1000  # chunks
N_READ = 10_000  # chunks of the full read


def rss():
    """Peak resident memory of this process in MB (ru_maxrss would begin with the parent's)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e3


def references_of(folder, n):
    """References to chunks of files of `PER_FILE` chunks each, of one array of n chunks."""
    from chunkmill.model.reference_builder import ReferenceBuilder

    target = Path(folder) / "target.bin"
    target.write_bytes(np.arange(PER_FILE * ITEMS, dtype="<f4").tobytes())
    builder = ReferenceBuilder()
    zarray = {
        "zarr_format": 2,
        "shape": [n * ITEMS],
        "chunks": [ITEMS],
        "dtype": "<f4",
        "fill_value": None,
        "order": "C",
        "filters": None,
        "compressor": None,
    }
    builder.add_data(".zgroup", b'{"zarr_format": 2}')
    builder.add_data("x/.zarray", json.dumps(zarray).encode())
    builder.add_data("x/.zattrs", b'{"_ARRAY_DIMENSIONS": ["t"]}')
    numbers = np.arange(n)
    # as many names as there would be files, of one file
    ids = []
    for i in range(-(-n // PER_FILE)):
        link = Path(folder) / f"observations-of-day-{i:06d}.nc"
        if not link.exists():
            link.symlink_to(target)
        ids.append(builder.url_id(str(link)))
    ids = np.array(ids)[numbers // PER_FILE]
    builder.add_table("x/", "/", numbers.reshape(-1, 1), ids, numbers % PER_FILE * 4 * ITEMS, np.full(n, 4 * ITEMS))
    return builder.build()


def write_json(folder, n):
    from chunkmill.formats.references.json import emit_reference_json

    path = Path(folder) / f"refs-{n}.json"
    if path.exists():
        return path
    path.write_bytes(emit_reference_json(references_of(folder, n)))
    return path


def write_parquet(folder, n, record_size=100_000):
    from chunkmill.formats.references.parquet import emit_reference_parquet

    root = Path(folder) / f"refs-{n}.parquet"
    if (root / ".zmetadata").exists():
        return root
    for name, value in emit_reference_parquet(references_of(folder, n), record_size=record_size):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    return root


def open_chunkmill(path):
    import chunkmill
    from chunkmill.nodes.reference_sets import open_reference_store

    return chunkmill.open(open_reference_store(str(path)))["x"]


def open_fsspec(path):
    import fsspec
    import zarr
    from fsspec.implementations.reference import LazyReferenceMapper

    fo = str(path) if Path(path).is_file() else LazyReferenceMapper(str(path), engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=fo, remote_protocol="file", asynchronous=True)
    store = zarr.storage.FsspecStore(fs, path="", read_only=True)
    return zarr.open_group(store, mode="r", zarr_format=2, use_consolidated=False)["x"]


OPENERS = {OURS: open_chunkmill, FSSPEC: open_fsspec}


def full_read(array, n):
    """Read the first n chunks through Dask, many chunks a task."""
    import dask
    import dask.array as da

    lazy = da.from_array(array, chunks=ITEMS * 500)[: n * ITEMS]
    with dask.config.set(scheduler="threads", num_workers=2):
        return lazy.sum().compute()


def expected_sum(n):
    return float(np.arange(PER_FILE * ITEMS, dtype="f8").sum()) * n / PER_FILE


# --- as tests


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("references")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("name", OPENERS)
def test_open_and_read(folder, name, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    n = 3000
    path = write_json(folder, n) if kind == "json" else write_parquet(folder, n, record_size=1000)
    array = OPENERS[name](path)
    values = np.asarray(array[-ITEMS:])
    assert values[-1] == PER_FILE * ITEMS - 1
    assert full_read(array, n) == pytest.approx(expected_sum(n), rel=1e-5)


# --- each in a process of its own


def in_process(name, path):
    """Measure one opener; print a line of JSON."""
    if name == PARSER:
        before, began = rss(), time.perf_counter()
        held = json.loads(Path(path).read_bytes())
        result = {"open": time.perf_counter() - began, "peak": rss() - before}
        assert held
    elif name == COLUMNS:
        from chunkmill.nodes.reference_sets import open_reference_store
        from chunkmill.references.files import in_memory

        with tempfile.TemporaryDirectory() as folder:
            in_memory(open_reference_store(write_parquet(folder, 10)).references)  # imports are not measured
        before, began = rss(), time.perf_counter()
        held = in_memory(open_reference_store(path).references)
        result = {"open": time.perf_counter() - began, "peak": rss() - before, "held": held.nbytes / 1e6}
    else:
        with tempfile.TemporaryDirectory() as folder:
            OPENERS[name](write_json(folder, 10))  # imports are not measured
        before, began = rss(), time.perf_counter()
        array = OPENERS[name](path)
        opened = time.perf_counter()
        at_open = rss() - before
        middle = array.shape[0] // 2
        values = np.asarray(array[middle : middle + 10 * ITEMS])
        sliced = time.perf_counter()
        assert values.shape == (10 * ITEMS,)
        n = min(N_READ, array.shape[0] // ITEMS)
        total = full_read(array, n)
        assert abs(total / expected_sum(n) - 1) < 1e-4
        read = time.perf_counter() - sliced
        times = {"open": opened - began, "first slice": sliced - opened, "read through Dask": read}
        result = times | {"peak": at_open, "peak of all": rss() - before}
    sys.stdout.write(json.dumps(result) + "\n")


def measured(name, path):
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.bench_references", name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def run(*, quick=False, cluster=False):  # noqa: ARG001 - one signature for all
    n_json, n_parquet = (20_000, 50_000) if quick else (N_JSON, N_PARQUET)
    kept = os.environ.get(KEPT)
    with tempfile.TemporaryDirectory() if kept is None else nullcontext(kept) as folder:
        results = bench_set(f"JSON, {n_json:,}", write_json(folder, n_json), (PARSER, OURS, FSSPEC), quick=quick)
        results += bench_set(f"parquet, {n_parquet:,}", write_parquet(folder, n_parquet), (OURS, FSSPEC), quick=quick)
        if harness.PARTNER is not None:
            return results
        got = measured(COLUMNS, Path(folder) / f"refs-{n_parquet}.parquet")
    counts = {"peak MB": got["peak"], "held MB": got["held"]}
    row = Row("references, all into memory", f"parquet, {n_parquet:,}", OURS, [got["open"]], counts=counts)
    return [*results, met(row, f"{got['peak']:.0f} MB, target {MOST_MB:.0f}", got["peak"] <= MOST_MB, quick=quick)]


def bench_set(case, path, names, *, quick):
    """Open and read one set by each contender in turn."""
    got = {name: [] for name in names}
    for i in range(0 if harness.PARTNER else harness.rounds(quick, 3)):
        for name in names if i % 2 else names[::-1]:
            got[name].append(measured(name, path))
    if harness.PARTNER is not None:
        got = harness.PARTNER.turns({name: partial(measured, name, path) for name in names})
    medians = {
        name: {key: float(np.median([one[key] for one in each])) for key in each[0]} for name, each in got.items()
    }
    results = []
    for step in ("open", "first slice", "read through Dask"):
        times = {name: [one[step] for one in each] for name, each in got.items() if step in each[0]}
        peak = "peak" if step == "open" else "peak of all"
        counts = {} if step == "first slice" else {name: {f"{peak} MB": medians[name][peak]} for name in times}
        new = harness.rows(f"references, {step}", case, times, peers=(FSSPEC,), baseline=None, counts=counts)
        results += new
        if step == "open":
            (ours,) = (row for row in new if row.contender == OURS)
            if PARSER in times:
                time_, memory = (medians[OURS][key] / medians[PARSER][key] for key in ("open", "peak"))
                target = f"{time_:.2f} of the time and {memory:.2f} of the memory of {PARSER}, target {MOST_TIMES:.2f}"
                met(ours, target, max(time_, memory) <= MOST_TIMES, quick=quick)
            else:
                most = medians[OURS]["peak of all"]
                met(ours, f"{most:.0f} MB with all reads, target {MOST_MB:.0f}", most <= MOST_MB, quick=quick)
    return results


def met(row, target, is_met, *, quick):
    """Set the target of a row, and whether it is met; small sets measure mostly the interpreter."""
    if not quick:
        row.target, row.met = target, bool(is_met)
    return row


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in {*OPENERS, PARSER, COLUMNS}:
        in_process(*sys.argv[1:])
    else:
        from benchmarks.run import alone

        alone(__spec__.name)
