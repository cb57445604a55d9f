"""Measure contenders in turn: alternating repetitions, medians with spread, ratios.

A benchmark is a module ``bench_<topic>.py`` with a function ``run(quick: bool, cluster: bool) -> list[Row]``; its tests
(``test_…``) call the same functions with small sizes and check counts and results, never times.

All contenders of a case run in turn in one process, the order reversed every other round, so that a machine that gets
slower or faster does so for all of them. A ratio is the median of the ratios of each round, not the ratio of medians.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

RESULTS = Path(__file__).parent / "results"
BARE = "bare loop"
N_THREADS = 2
ONLY = ""  # regular expression: the cases to run, where a benchmark has many (``--only``)
PARTNER: Partner | None = None  # where another process runs the same with another version (`benchmarks.paired`)


class Partner(Protocol):
    """Lets this process and another one run the same functions in turn."""

    def turns(self, functions: Mapping[str, Callable[[], Any]], *, once: bool = False) -> dict[str, list[Any]]:
        """Run those functions that are ours, as often as the other process does, and return their results."""
        ...


class Seconds(float):
    """Seconds by the clock, with those of CPU in `cpu`."""

    cpu: float

    def __new__(cls, seconds: float, cpu: float = math.nan) -> Self:
        made = super().__new__(cls, seconds)
        made.cpu = cpu
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Seconds, (float(self), self.cpu)

    def __truediv__(self, n: float) -> Seconds:
        return Seconds(float(self) / n, self.cpu / n)

    def cpu_alone(self) -> Seconds:
        """Return the seconds of CPU, as those by the clock."""
        return Seconds(self.cpu, self.cpu)


Limit: TypeAlias = tuple[str, float]


@dataclass
class Row:
    """One contender of one case.

    ``times`` in seconds, a round each; ``ratios`` to the bare loop, round by round (empty where there is none).
    ``counts``: tasks, requests, bytes, peak memory.
    """

    benchmark: str
    case: str
    contender: str
    times: list[float]
    ratios: list[float] = field(default_factory=list)
    to_best_peer: float | None = None
    target: str = ""
    met: bool | None = None
    counts: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None


def rounds(quick: bool, slow: int = 7) -> int:
    return 3 if quick else slow


def alternate(
    contenders: dict[str, Callable[[], Any]], n_rounds: int, *, before: Callable[[], Any] | None = None
) -> dict[str, list[float]]:
    """Run every contender once a round, after one round that is not counted; return the seconds of each."""
    if PARTNER is not None:
        return PARTNER.turns({name: partial(timed, function, before) for name, function in contenders.items()})
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(-1, n_rounds):
        order = list(contenders.items())
        for name, function in order if i % 2 else order[::-1]:
            seconds = timed(function, before)
            if i >= 0:
                times[name].append(seconds)
    return times


def timed(function: Callable[[], Any], before: Callable[[], Any] | None = None) -> Seconds:
    """Return how long `function` takes; its result is dropped afterwards."""
    if before is not None:
        before()
    gc.collect()
    used, start = _usage()[0], time.perf_counter()
    result = function()
    seconds = Seconds(time.perf_counter() - start, _usage()[0] - used)
    del result
    return seconds


def timed_once(jobs: Mapping[str, Callable[[], Any]]) -> dict[str, Seconds]:
    """Run jobs of which each needs the one before; return how long each took."""
    functions = {name: partial(timed, job) for name, job in jobs.items()}
    if PARTNER is not None:
        return {name: times[0] for name, times in PARTNER.turns(functions, once=True).items()}
    return {name: function() for name, function in functions.items()}


def rows(
    benchmark: str,
    case: str,
    times: dict[str, list[float]],
    *,
    peers: Iterable[str] = (),
    baseline: str | None = BARE,
    targets: Mapping[str, Limit | list[Limit]] | None = None,
    counts: dict[str, dict[str, float]] | None = None,
) -> list[Row]:
    """Turn the times of one case into rows.

    ``targets``: contender -> (another contender, or two joined by `` + ``; the largest allowed ratio to its time), or
    a list of such.
    """
    best = min((peer for peer in peers if peer in times), key=lambda p: statistics.median(times[p]), default=None)
    result = []
    for name, own in times.items():
        row = Row(benchmark, case, name, own, counts=(counts or {}).get(name, {}))
        if baseline in times:
            row.ratios = paired(own, times[baseline])
        if best is not None and name not in {BARE, best}:
            row.to_best_peer = statistics.median(paired(own, times[best]))
        limits = (targets or {}).get(name, [])
        for against, most in limits if isinstance(limits, list) else [limits]:
            names = against.split(" + ")
            if times.keys() >= set(names):
                sums = [sum(part) for part in zip(*(times[part] for part in names), strict=True)]
                measured = statistics.median(paired(own, sums))
                row.target += f"{'; ' * bool(row.target)}{measured:.2f} of {against}, target {most:.2f}"
                row.met = row.met is not False and measured <= most
        result.append(row)
    return result


def paired(times: list[float], others: list[float]) -> list[float]:
    """Return the ratios round by round, or the ratio of the medians where the numbers of rounds differ."""
    if len(times) != len(others):
        return [statistics.median(times) / statistics.median(others)]
    return [a / b for a, b in zip(times, others, strict=True)]


class _Shared:
    """Iterator that threads may share."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items, self.lock = iter(items), threading.Lock()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self.lock:
            return next(self.items)


def in_threads(function: Callable[[Any], Any], items: Iterable[Any], n_threads: int = N_THREADS) -> list[Any]:
    """Run `function` over `items` in plain threads, each of which takes the next item when it is done: a bare loop."""
    todo = _Shared(items)
    results: list[Any] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.extend(map(function, todo))
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def read_file(path: str) -> bytes:
    """Read a file in four system calls: the least that a reader of chunks needs."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def write_file(path: str, data: Any) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def peak_bytes(function: Callable[[], Any]) -> int:
    """Return the most that was allocated at once by Python, numpy and numcodecs while `function` ran."""
    if PARTNER is not None:
        return 0  # only times are compared
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = function()
        peak = tracemalloc.get_traced_memory()[1] - before
        del result
    finally:
        tracemalloc.stop()
    return peak


def volume(shape: tuple[int, ...], dtype: str = "u2", seed: int = 0) -> np.ndarray:
    """Return data like a camera's: smooth structures and the noise of the sensor; they compress to about 60 %."""
    rng = np.random.default_rng(seed)
    axes = np.ogrid[tuple(slice(0, n) for n in shape)]
    smooth = sum(np.sin(axis / (7.0 + 5 * i)) for i, axis in enumerate(axes)) * 300 + 2000
    noisy = smooth + rng.normal(0, 12, shape).astype("f4")
    return noisy.astype(dtype)


def empty_graph(x: Any) -> Any:
    """Return a dask array like `x` with tasks that read nothing, which shows dask's own cost.

    The tasks get the same arguments and return a block of one element, whatever their chunk.
    """
    return like(x, _nothing)


def _nothing(region: Any) -> np.ndarray:
    return np.zeros((1,) * len(region), "u2")


def like(x: Any, read: Callable[..., Any], *arguments: Any) -> Any:
    """Return a dask array with the chunks of `x`, whose blocks are ``read(*arguments, region)``.

    It is our own graph, the cheapest that we know of: with it, dask costs every peer as much as us.
    """
    import dask.array as da
    from dask.base import tokenize
    from dask.blockwise import blockwise
    from dask.highlevelgraph import HighLevelGraph
    from dask.layers import ArraySliceDep

    name = f"like-{tokenize(x.name, str(read), time.perf_counter_ns())}"
    index = tuple(range(x.ndim))
    pairs = [part for argument in arguments for part in (argument, None)]
    layer = blockwise(read, name, index, *pairs, ArraySliceDep(x.chunks), index, numblocks={}, dependencies=())
    graph = HighLevelGraph.from_collections(name, layer, dependencies=())
    return da.Array(graph, name, x.chunks, meta=x._meta, dtype=x.dtype)


def n_tasks(x: Any) -> int:
    """Return how many tasks dask runs for `x`."""
    import dask

    (optimised,) = dask.optimize(x)
    return len(dict(optimised.__dask_graph__()))


@contextmanager
def measured() -> Iterator[dict[str, Any]]:
    """Yield a dict that has seconds and counts when the block is left.

    ``cpu`` is that of this process and of those that it waited for; ``faults`` are page faults of this process.
    """
    found: dict[str, Any] = {}
    before, start = _usage(), time.perf_counter()
    yield found
    found["seconds"] = time.perf_counter() - start
    found["counts"] = dict(zip(("cpu", "faults"), (b - a for a, b in zip(before, _usage(), strict=True)), strict=True))
    found["counts"]["peak"] = resident_peak()


def _usage() -> tuple[float, float]:
    import resource

    own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(r.ru_utime + r.ru_stime for r in (own, others)), own.ru_minflt


def resident_peak() -> int:
    """Return the most resident memory that this process has had, in bytes."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM:"))


def empty(folder: Path) -> None:
    """Make every file below `folder` empty."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


@contextmanager
def threads() -> Iterator[None]:
    import dask

    with dask.config.set(scheduler="threads", num_workers=N_THREADS):
        yield


@contextmanager
def local_cluster(n_workers: int = N_THREADS, n_threads: int = 1) -> Iterator[Any]:
    """Start a LocalCluster: by default of two processes with a thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers, threads_per_worker=n_threads, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
