"""Reference sets: opening, first slice, full read and peak memory, against the JSON parser, fsspec and zarr-python.

As a test (`pytest benchmarks/bench_references.py`) every case runs small. By hand, each in a process of its own:

    python benchmarks/bench_references.py [references in JSON] [references in parquet]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

ITEMS = 25  # of a chunk: 100 bytes, since it is the references that are measured
PER_FILE = 1000  # chunks
N_READ = 20_000  # chunks of the full read


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
    from chunkmill.formats.references_json import emit_reference_json

    path = Path(folder) / f"refs-{n}.json"
    with path.open("wb") as file:
        for piece in emit_reference_json(references_of(folder, n)):
            file.write(piece)
    return path


def write_parquet(folder, n, record_size=100_000):
    from chunkmill.formats.references_parquet_write import emit_reference_parquet

    root = Path(folder) / f"refs-{n}.parquet"
    for name, value in emit_reference_parquet(references_of(folder, n), record_size=record_size):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    return root


def open_chunkmill(path):
    import chunkmill
    from chunkmill.references import open_reference_store

    return chunkmill.open(open_reference_store(str(path)))["x"]


def open_fsspec(path):
    import fsspec
    import zarr
    from fsspec.implementations.reference import LazyReferenceMapper

    fo = str(path) if Path(path).is_file() else LazyReferenceMapper(str(path), engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=fo, remote_protocol="file", asynchronous=True)
    store = zarr.storage.FsspecStore(fs, path="", read_only=True)
    return zarr.open_group(store, mode="r", zarr_format=2, use_consolidated=False)["x"]


OPENERS = {"chunkmill": open_chunkmill, "fsspec + zarr-python": open_fsspec}


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
def test_open_and_read(benchmark, folder, name, kind):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    n = 3000
    path = write_json(folder, n) if kind == "json" else write_parquet(folder, n, record_size=1000)
    array = benchmark(OPENERS[name], path)
    values = np.asarray(array[-ITEMS:])
    assert values[-1] == PER_FILE * ITEMS - 1
    assert full_read(array, n) == pytest.approx(expected_sum(n), rel=1e-5)


def test_parser_alone(benchmark, folder):
    document = write_json(folder, 3000).read_bytes()
    assert len(benchmark(json.loads, document)["refs"]) == 3003


# --- by hand


def in_process(name, path):
    """Measure one opener; print a line of JSON."""
    if name == "json.loads":
        before, began = rss(), time.perf_counter()
        held = json.loads(Path(path).read_bytes())
        result = {"open": time.perf_counter() - began, "peak": rss() - before, "held": len(held)}
    elif name == "columns":
        before, began = rss(), time.perf_counter()
        held = references_of(Path(path), int(Path(path).name.split("-")[1]))
        result = {"open": time.perf_counter() - began, "peak": rss() - before, "held": held.nbytes / 1e6}
    else:
        OPENERS[name](write_json(tempfile.mkdtemp(), 10))  # imports are not measured
        before, began = rss(), time.perf_counter()
        array = OPENERS[name](path)
        opened = time.perf_counter()
        middle = array.shape[0] // 2
        values = np.asarray(array[middle : middle + 10 * ITEMS])
        sliced = time.perf_counter()
        peak = rss() - before
        assert values.shape == (10 * ITEMS,)
        n = min(N_READ, array.shape[0] // ITEMS)
        total = full_read(array, n)
        assert abs(total / expected_sum(n) - 1) < 1e-4
        read = time.perf_counter() - sliced
        result = {"open": opened - began, "slice": sliced - opened, "read": read, "peak": peak}
    sys.stdout.write(json.dumps(result) + "\n")


def main(n_json=1_000_000, n_parquet=10_000_000):
    with tempfile.TemporaryDirectory() as folder:
        sets = {f"JSON, {n_json:,}": write_json(folder, n_json)}
        sets[f"parquet, {n_parquet:,}"] = write_parquet(folder, n_parquet)
        (Path(folder) / f"columns-{n_parquet}").mkdir()
        print(f"| set | reader | open | first slice | read {N_READ:,} chunks through Dask | peak memory |")
        print("| --- | --- | --- | --- | --- | --- |")
        for title, path in sets.items():
            for name in (["json.loads"] if path.is_file() else []) + list(OPENERS):
                report(title, name, path)
        report(f"in memory, {n_parquet:,}", "columns", Path(folder) / f"columns-{n_parquet}")


def report(title, name, path):
    done = subprocess.run([sys.executable, __file__, name, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"| {title} | {name} | {done.stderr.strip().splitlines()[-1]} |")
        return
    got = json.loads(done.stdout.splitlines()[-1])
    times = (f"{got[key]:.2f} s" if key in got else "" for key in ("open", "slice", "read"))
    print("|", " | ".join([title, name, *times, f"{got['peak']:.0f} MB"]), "|")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in {*OPENERS, "json.loads", "columns"}:
        in_process(*sys.argv[1:])
    else:
        main(*map(int, sys.argv[1:]))
