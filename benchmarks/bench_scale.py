"""Time and memory of one client from 10^4 to 10^9 chunks of 1 MiB: opening, planning, resuming, comparing.

Reading, planning and the first tasks are measured on a source that has every chunk (a store that makes them up).
Resuming: half of the tasks are on record, on files. `verify` and `check`: of the chunks a thousand are stored,
on files.
**1 PB on 100 workers** is projected from the bytes that one thread copies in a second on this machine's disk.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np

import chunkmill as cm
from benchmarks.harness import Row
from chunkmill.runtime.journal import Journal
from chunkmill.runtime.records import Record, WrittenKeys
from chunkmill.runtime.stage import count_tasks, tasks_to_run
from chunkmill.stores.local import LocalStore
from chunkmill.stores.memory import MemoryStore

CHUNK = 1 << 20
EXPONENTS = (4, 5, 6, 7, 8, 9)
N_STORED = 1000
N_WORKERS = 100
PETABYTE = 10**9 * CHUNK


def run(*, quick: bool = False, cluster: bool = False) -> list[Row]:  # noqa: ARG001 - one signature for all
    results = []
    with tempfile.TemporaryDirectory() as name, dask.config.set(scheduler="sync", **{"chunkmill.progress": False}):
        for exponent in EXPONENTS[:2] if quick else EXPONENTS:
            folder = Path(name) / str(exponent)
            results += bench_size(folder, exponent, n_stored=20 if quick else N_STORED)
        results.append(projected(Path(name), n_chunks=16 if quick else 512))
    return results


def bench_size(folder: Path, exponent: int, *, n_stored: int) -> list[Row]:
    n, case = 10**exponent, f"10^{exponent} chunks"
    source = make(MadeUp(), n)
    sparse = [make(LocalStore(folder / name), n) for name in ("a", "b")]
    for array in sparse:
        for i in np.linspace(0, n - 1, n_stored).astype(int):
            array[int(i), :8] = 1
    jobs: dict[str, Callable[[], Any]] = {
        "open": lambda: cm.open_array(source.store, "a"),
        "graph": lambda: source.to_dask(chunks=(max(1, n // 1000), CHUNK)),
        "slice": lambda: source[n // 2, :8],
        "plan": lambda: plan(source, MemoryStore()),
        "first task": lambda: until_first_value(plan(source, Stops(folder / "first"))),
        "resume": half_done(source, folder / "resume", n),
        "verify": lambda: cm.verify(*sparse),
        "check": lambda: cm.check(sparse[0].store, "a"),
    }
    rows = []
    for name, function in jobs.items():
        seconds = timed(function)
        tracemalloc.start()
        function()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(Row("scale", case, name, [seconds], counts={"peak_bytes": peak}))
    return rows


def timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def make(store: Any, n: int) -> cm.Array:
    return cm.create_array(store, "a", shape=(n, CHUNK), dtype="u1", chunks=(1, CHUNK), codecs="raw")


def plan(source: cm.Array, target: Any) -> cm.Plan:
    return cm.plan_convert(source, (target, "a"), format="zarr2", codecs="raw")


class MadeUp(MemoryStore):
    """A store that has every chunk."""

    _value = bytes(CHUNK)

    def get(self, key: str, byte_range: Any = None) -> bytes | None:
        return self._value if "/c/" in key else super().get(key, byte_range)

    def get_many(self, spans: Any) -> Iterator[bytes | None]:
        return (None if span is None else self.get(span.key, span.byte_range) for span in spans)

    def size(self, key: str) -> int | None:
        return CHUNK if "/c/" in key else super().size(key)


class Reached(Exception):
    """The first value is about to be written."""


class Stops(LocalStore):
    """Files, in which no chunk is written."""

    def set(self, key: str, value: Any) -> None:
        _refuse_chunks(key)
        super().set(key, value)

    def set_if(self, key: str, value: Any, version: str | None) -> bool:
        _refuse_chunks(key)
        return super().set_if(key, value, version)


def _refuse_chunks(key: str) -> None:
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


def half_done(source: cm.Array, folder: Path, n_chunks: int) -> Callable[[], None]:
    """Return what resumes a job of which every other task is on record, up to the first value that is new."""
    store = Stops(folder)
    planned = plan(source, store)
    until_first_value(planned)
    job = planned.job
    journal = Journal(store, job.path, job.name, job.fingerprint)
    journal.resume()
    (stage,) = job.stages(journal.run)
    n_keys = n_chunks // count_tasks(stage)
    record = Record({"n_keys": n_keys}, [*WrittenKeys.of({f"a/{i}.0": (CHUNK, i) for i in range(n_keys)})]).pack()
    for number, _ in tasks_to_run(stage):
        if number % 2:
            store.set(f"{journal.prefix}0/{number}-{journal.run}", record)
    return lambda: until_first_value(plan(source, store))


def projected(folder: Path, n_chunks: int) -> Row:
    """Copy real chunks with one thread, and project how long a petabyte takes."""
    source = make(LocalStore(folder / "source"), n_chunks)
    values = np.random.default_rng(0).integers(0, 255, CHUNK, dtype="u1")
    for i in range(n_chunks):
        source[i] = values
    start = time.perf_counter()
    report = plan(source, LocalStore(folder / "target")).run()
    rate = report.bytes_read / (time.perf_counter() - start)
    counts = {"bytes_a_second_of_one": rate, "hours_of_100_workers": PETABYTE / rate / N_WORKERS / 3600}
    return Row("scale", "1 PB on 100 workers", "copy", [PETABYTE / rate / N_WORKERS], counts=counts)


if __name__ == "__main__":
    from benchmarks.run import alone

    alone(__spec__.name)
