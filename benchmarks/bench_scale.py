"""Time and memory of one client from 10^4 to 10^9 chunks of 1 MiB: opening, planning, resuming, comparing.

Reading, planning and the first tasks are measured on a source that has every chunk (a store that makes them up).
Resuming, up to the first new value: half of the tasks are on record, on files and on moto's S3, which takes some 5 ms a
request and whose requests are counted: they are few, and stay as few with values of 10^9 keys next to the records.
`verify` and `check`: of the chunks a thousand are stored, on files, compressed.
**1 PB on 100 workers** is projected from the bytes that one thread copies in a second on this machine's disk, and from
the price of a rented core.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np

import chunkmill as cm
from benchmarks.harness import Row
from chunkmill.journal.records import Record, Records
from chunkmill.runtime.stage import count_tasks, tasks_to_run
from chunkmill.stores.base import Store
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.stores.wrapper import StoreWrapper

CHUNK = 1 << 20
EXPONENTS = (4, 5, 6, 7, 8, 9)
N_STORED = 1000
N_WORKERS = 100
PETABYTE = 10**9 * CHUNK
DOLLARS_AN_HOUR = 0.04  # of a rented core with 4 GiB


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - one signature for all
    results = []
    settings = {"chunkmill.progress": False}
    with tempfile.TemporaryDirectory() as name, serve_s3() as server, dask.config.set(scheduler="sync", **settings):
        for exponent in EXPONENTS[:2] if quick else EXPONENTS:
            folder = Path(name) / str(exponent)
            far = open_store(server.new_bucket(), server.storage_options)
            results += bench_size(folder, far, exponent, n_stored=20 if quick else N_STORED)
            shutil.rmtree(folder)
        results.append(projected(Path(name), n_chunks=16 if quick else 512))
    return results


@contextmanager
def serve_s3() -> Iterator[Any]:
    """Serve moto's S3 as the tests do."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    with importlib.import_module("support.servers").serve_s3() as server:
        yield server


def bench_size(folder: Path, far: Store, exponent: int, *, n_stored: int) -> list[Row]:
    n, case = 10**exponent, f"10^{exponent} chunks"
    source = make(MadeUp(MemoryStore()), n)
    sparse = [with_few(LocalStore(folder / name), n, n_stored) for name in ("a", "b")]
    resumed = {"resume": Stops(LocalStore(folder / "resume")), "resume, S3": Stops(far)}
    records, n_keys = every_other_record(source, n)
    for store in resumed.values():
        half_done(source, store, records, n_keys)
    jobs: dict[str, Callable[[], Any]] = {
        "open": lambda: cm.open_array(source.store, "a"),
        "graph": lambda: source.to_dask(chunks=(max(1, n // 1000), CHUNK)),
        "slice": lambda: source[n // 2, :8],
        "plan": lambda: plan(source, MemoryStore()),
        "first task": lambda: until_first_value(plan(source, Stops(LocalStore(folder / "first")))),
        "resume": lambda: until_first_value(plan(source, resumed["resume"])),
        "resume, S3": lambda: until_first_value(plan(source, resumed["resume, S3"])),
        "verify": lambda: cm.verify(*sparse),
        "check": lambda: cm.check(sparse[0].store, "a"),
    }
    rows = []
    for name, function in jobs.items():
        if exponent == EXPONENTS[0]:
            function()  # imports, caches
        if name in resumed:
            resumed[name].n_requests = 0
        row = Row("scale", case, name, [timed(function)])
        if name in resumed:
            row.counts |= {"requests": resumed[name].n_requests, "journal_bytes": sum(map(len, records.values()))}
        rows.append(row)
        tracemalloc.start()
        function()
        row.counts["peak_bytes"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return rows


def with_few(store: Store, n: int, n_stored: int) -> cm.Array:
    """Return an array of which few chunks are stored, spread over all, of the same values."""
    array = make(store, n, codecs="zstd")
    array[0, :8] = 1
    value = store.get("a/c/0/0") or b""
    for i in np.linspace(0, n - 1, n_stored).astype(int):
        store.set(f"a/c/{i}/0", value)
    return array


def timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def make(store: Any, n: int, codecs: str = "raw") -> cm.Array:
    return cm.create_array(store, "a", shape=(n, CHUNK), dtype="u1", chunks=(1, CHUNK), codecs=codecs)


def plan(source: cm.Array, target: Any) -> cm.Plan:
    return cm.plan_convert(source, (target, "a"), format="zarr2", codecs="raw")


class MadeUp(StoreWrapper):
    """A store that has every chunk."""

    _value = bytes(CHUNK)

    def get(self, key: str, byte_range: Any = None) -> bytes | None:
        return self._value if "/c/" in key else super().get(key, byte_range)

    def get_many(self, spans: Any) -> Iterator[bytes | None]:
        return (None if span is None else self.get(span.key, span.byte_range) for span in spans)

    def size(self, key: str) -> int | None:
        return CHUNK if "/c/" in key else super().size(key)

    def __dask_tokenize__(self) -> Any:
        return self.below.__dask_tokenize__()


class Reached(Exception):
    """The first value is about to be written."""


class Stops(StoreWrapper):
    """A store in which no chunk is written, and whose requests are counted."""

    n_requests = 0

    def get(self, key: str, byte_range: Any = None) -> bytes | None:
        self.n_requests += 1
        return super().get(key, byte_range)

    def get_many(self, spans: Any) -> Iterator[bytes | None]:
        spans = list(spans)
        self.n_requests += sum(span is not None for span in spans)
        return super().get_many(spans)

    def get_versioned(self, key: str) -> tuple[bytes | None, str | None]:
        self.n_requests += 1
        return super().get_versioned(key)

    def size(self, key: str) -> int | None:
        self.n_requests += 1
        return super().size(key)

    def set(self, key: str, value: Any) -> None:
        self._refuse_chunks(key)
        super().set(key, value)

    def set_if(self, key: str, value: Any, version: str | None) -> bool:
        self._refuse_chunks(key)
        return super().set_if(key, value, version)

    def list_prefix(self, prefix: str) -> Iterator[str]:
        for i, key in enumerate(super().list_prefix(prefix)):
            self.n_requests += i % 1000 == 0  # a page
            yield key

    def list_dir(self, prefix: str) -> list[str]:
        self.n_requests += 1
        return super().list_dir(prefix)

    def _refuse_chunks(self, key: str) -> None:
        self.n_requests += 1
        if key.startswith("a/") and key[2].isdigit():
            raise Reached


def until_first_value(planned: cm.Plan) -> None:
    try:
        planned.run()
    except Exception as error:
        if not any(isinstance(each, Reached) for each in causes(error)):
            raise


def causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def every_other_record(source: cm.Array, n_chunks: int) -> tuple[dict[str, bytes], int]:
    """Return the records of every other task of a job, by key below the journal's prefix, and the number of their keys.

    All name the same values, which are empty.
    """
    job = plan(source, MemoryStore()).job
    (stage,) = job.stages(job.target)
    n_keys = n_chunks // count_tasks(stage)
    records = Records(MemoryStore(), "", "run")
    for number, _ in tasks_to_run(stage):
        if number % 2:
            records.put(0, number, Record({"n_keys": n_keys}, {f"a/{i}.0": 0 for i in range(n_keys)}))
    return {key: records.store.get(key) or b"" for key in records.store.list_prefix("")}, n_keys


def half_done(source: cm.Array, store: Stops, records: Mapping[str, bytes], n_keys: int) -> None:
    """Begin a job, put records into its journal, and store the values that they name."""
    planned = plan(source, store)
    until_first_value(planned)
    journal = planned.job.journal()
    journal.resume()
    for key, value in records.items():
        store.set(journal.prefix + key.replace("-run", f"-{journal.plan.run}"), value)
    for i in range(1 if store.is_remote else n_keys):  # where requests cost latency, the first alone is asked for
        store.below.set(f"a/{i}.0", b"")


def projected(folder: Path, n_chunks: int) -> Row:
    """Copy real chunks with one thread, and project how long a petabyte takes."""
    source = make(LocalStore(folder / "source"), n_chunks)
    values = np.random.default_rng(0).integers(0, 255, CHUNK, dtype="u1")
    for i in range(n_chunks):
        source[i] = values
    start = time.perf_counter()
    report = plan(source, LocalStore(folder / "target")).run()
    rate = report.bytes_read / (time.perf_counter() - start)
    hours = PETABYTE / rate / 3600
    counts = {"bytes_a_second_of_one": rate, "hours": hours / N_WORKERS, "dollars": hours * DOLLARS_AN_HOUR}
    return Row("scale", "1 PB on 100 workers", "copy", [PETABYTE / rate / N_WORKERS], counts=counts)


def plot(path: Path, title: str, results: list[Row]) -> None:
    """Draw time and memory of each job by the number of chunks."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    fig, (above, below) = plt.subplots(2, 1, figsize=(8, 8), sharex=True, layout="constrained")
    for name in dict.fromkeys(row.contender for row in results if row.case.startswith("10^")):
        rows = [row for row in results if row.contender == name]
        n_chunks = [10 ** int(row.case.split()[0].removeprefix("10^")) for row in rows]
        above.loglog(n_chunks, [row.seconds for row in rows], "o-", ms=4, label=name)
        below.loglog(n_chunks, [max(row.counts["peak_bytes"], 1024) / 2**20 for row in rows], "o-", ms=4)
    above.set_ylabel("seconds")
    below.set_ylabel("MiB of Python's memory at most")
    below.set_xlabel("chunks of 1 MiB")
    fig.legend(loc="outside upper center", ncols=5, fontsize=8, title=title)
    fig.savefig(path, dpi=110)
    plt.close(fig)


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
