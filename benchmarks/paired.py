"""``python -m benchmarks.paired --base COMMIT``: time our rows with the sources of two commits, in turn.

Two processes run the same benchmarks, those of the working tree: one imports chunkmill from COMMIT, the other one from
the working tree. Before a contender is timed, both wait for their turn; the order is reversed every other round, after
one round that is not counted. So whatever makes the machine slower does so for both, and the ratios round by round tell
which version is. Peers and bare loops are left out, and what has rounds of its own: `clusters`, `remote`, `scale`.

A row is marked where its rounds agree: three quarters of them are slower, or faster, by more than 5 %.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness, report
from benchmarks.harness import RESULTS, Row, duration
from benchmarks.run import known

ROOT = Path(__file__).parents[1]
ALONE = ("clusters", "remote", "scale")
LAST = ("references",)  # which take the longest to set up
OURS = "chunkmill"
LEAST, MOST = 3, 15  # counted rounds
SLIGHT = 0.05
ENDED, BEGIN, DONE = "ended", "begin", "done"


# --- in each of the two processes


class Turns:
    """Runs our functions while the other process waits."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def turns(self, functions: Mapping[str, Callable[[], Any]], *, once: bool = False) -> dict[str, list[Any]]:
        results: dict[str, list[Any]] = {}
        for name, function in functions.items():
            if once or name.startswith(OURS):
                self._connection.send((BEGIN, name, once))
                results[name] = list(self._repeated(function))[0 if once else 1 :]
        return results

    def _repeated(self, function: Callable[[], Any]) -> Iterator[Any]:
        while go := self._connection.recv():
            yield function()
            self._connection.send((DONE,))
        if go is None:
            raise RuntimeError("the other version has ended")


def follow(connection: Connection, run: Callable[..., list[Row]]) -> None:
    """Run benchmarks by name, as the other side of the connection asks, and send their rows, or what failed."""
    while wanted := connection.recv():
        try:
            answer = ENDED, run(*wanted, Turns(connection)), ""
        except Exception as error:  # noqa: BLE001 - one benchmark fails, the next one runs
            answer = ENDED, [], f"{type(error).__name__}: {error}"
        connection.send(answer)


def run_module(name: str, quick: bool, turns: Turns) -> list[Row]:
    harness.PARTNER = turns
    rows: list[Row] = importlib.import_module(f"benchmarks.bench_{name}").run(quick=quick)
    return rows


# --- between them


@dataclass(frozen=True)
class Compared:
    """A row that was measured with both versions."""

    benchmark: str
    case: str
    contender: str
    before: list[float]
    now: list[float]

    @property
    def ratios(self) -> list[float]:
        return harness.paired(self.now, self.before)

    @property
    def cpu(self) -> float:
        """Median ratio of the CPU seconds; not a number where they are not known."""
        pairs = [[getattr(seconds, "cpu", 0) for seconds in pair] for pair in zip(self.now, self.before, strict=True)]
        return statistics.median([now / before for now, before in pairs]) if all(map(all, pairs)) else math.nan

    @property
    def verdict(self) -> str:
        if len(self.ratios) < LEAST:
            return ""
        low, high = report.quartiles(self.ratios)
        return "slower" if low > 1 + SLIGHT else "faster" if high < 1 - SLIGHT else ""


def compare(
    pair: Sequence[Connection], name: str, *, quick: bool, seconds: float, until: float = math.inf
) -> list[Compared]:
    """Let both versions run one benchmark, for `seconds` each of its contenders, or the least number of rounds."""
    for connection in pair:
        connection.send((name, quick))
    last = [connection.recv() for connection in pair]
    while last[0] == last[1] and last[0][0] == BEGIN:
        _alternate(pair, last, min(time.perf_counter() + seconds, until))
    for i, connection in enumerate(pair):
        while last[i][0] != ENDED:  # since the other one has, or they differ in what they run
            connection.send(None)
            last[i] = connection.recv()
    (_, base, base_error), (_, now, now_error) = last
    if base_error or now_error:
        raise RuntimeError(f"base: {base_error or 'interrupted'}; now: {now_error or 'interrupted'}")
    others = {(row.benchmark, row.case, row.contender): row.times for row in base}
    keys = [(row, others.get((row.benchmark, row.case, row.contender), [])) for row in now]
    return [
        Compared(row.benchmark, row.case, row.contender, before, row.times)
        for row, before in keys
        if row.times and len(before) == len(row.times)
    ]


def _alternate(pair: Sequence[Connection], last: list[Any], until: float) -> None:
    """Let both run one contender in turn; `last` has the last message of each, and then the next one."""
    _, _, once = last[0]
    n = 0
    while n < 1 or (not once and (n <= LEAST or (n <= MOST and time.perf_counter() < until))):
        for i in (0, 1) if n % 2 else (1, 0):
            pair[i].send(True)
            last[i] = pair[i].recv()
            if last[i][0] == ENDED:
                return
        n += 1
    for connection in pair:
        connection.send(False)
    last[:] = [connection.recv() for connection in pair]


# --- the two versions


@contextmanager
def version(source: Path) -> Iterator[Connection]:
    """Start a process that imports chunkmill from the folder `source`, and connect to it."""
    with tempfile.TemporaryDirectory() as folder, Listener(str(Path(folder) / "turns")) as listener:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.paired", "--follow", str(listener.address)]
        paths = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        started = subprocess.Popen(
            [*command, "--only", harness.ONLY], env=os.environ | {"PYTHONPATH": paths}, cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            with listener.accept() as connection:
                if not Path(imported := connection.recv()).is_relative_to(source):
                    raise RuntimeError(f"chunkmill was imported from {imported}, not from {source}")
                yield connection
                connection.send(None)
                started.wait(60)
        finally:
            started.kill()
            started.wait()


def sources_of(commit: str, folder: Path) -> Path:
    """Write the sources of a commit below `folder`."""
    done = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def table(rows: Sequence[Compared]) -> str:
    """Return the rows as one Markdown table, after the geometric means of each benchmark."""
    lines = []
    for name in dict.fromkeys(row.benchmark for row in rows):
        own = [row for row in rows if row.benchmark == name]
        mean = statistics.geometric_mean(statistics.median(row.ratios) for row in own)
        marked = [sum(row.verdict == verdict for row in own) for verdict in ("slower", "faster")]
        lines.append(f"- {name}: {mean:.2f} of the time, {len(own)} rows, {marked[0]} slower, {marked[1]} faster")
    lines += [
        "",
        "| benchmark | case | contender | before | now | ratio | quartiles | rounds | CPU | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        low, high = report.quartiles(row.ratios)
        before, now = (duration(statistics.median(times)) for times in (row.before, row.now))
        ratio, cpu = statistics.median(row.ratios), "" if math.isnan(row.cpu) else f"{row.cpu:.2f}"
        cells = (row.benchmark, row.case, row.contender, before, now, f"{ratio:.2f}", f"{low:.2f} to {high:.2f}")
        lines.append("| " + " | ".join([*cells, str(len(row.ratios)), cpu, row.verdict]) + " |")
    return "\n".join([*lines, ""])


def save(rows: Sequence[Compared], about: dict[str, str]) -> None:
    document = {"about": about, "rows": [vars(row) | {"cpu": row.cpu} for row in rows]}
    (RESULTS / "paired.json").write_text(json.dumps(document, indent=1) + "\n")
    head = "\n".join(f"- {key}: {value}" for key, value in about.items())
    (RESULTS / "paired.md").write_text(f"# paired\n\n{head}\n\n{table(rows)}")


def main(argv: list[str] | None = None) -> int:
    names = [name for name in known() if name not in (*ALONE, *LAST)] + list(LAST)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(names)}")
    parser.add_argument("--base", metavar="COMMIT", help="whose sources are compared with those of the working tree")
    parser.add_argument("--seconds", type=float, default=1.5, help="for the rounds of each contender")
    parser.add_argument("--minutes", type=float, default=15, help="after which no benchmark is begun")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases to run; their results are not saved")
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    harness.ONLY = arguments.only
    if arguments.follow:
        return _follow(arguments.follow)
    if not arguments.base or set(arguments.names) - set(names):
        parser.error(f"give --base COMMIT, and names of: {', '.join(names)}")
    rows: list[Compared] = []
    until = time.perf_counter() + 60 * arguments.minutes
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pair = [stack.enter_context(version(source)) for source in (sources_of(arguments.base, folder), ROOT / "src")]
        for name in arguments.names or names:
            start = time.perf_counter()
            try:
                if start > until:
                    raise TimeoutError(f"not begun, {arguments.minutes:g} minutes have passed")  # noqa: TRY301
                compared = compare(pair, name, quick=arguments.quick, seconds=arguments.seconds, until=until)
            except (RuntimeError, TimeoutError) as error:
                print(f"{name}: NOT COMPARED: {error}", flush=True)
            else:
                print(table(compared), flush=True)
                rows += compared
            print(f"{name}: {time.perf_counter() - start:.0f} s\n", flush=True)
    if not (arguments.quick or arguments.only or arguments.names):
        save(rows, report.machine() | {"command": f"python -m benchmarks.paired --base {arguments.base}"})
    return 0


def _follow(address: str) -> int:
    import chunkmill

    warnings.filterwarnings("ignore")
    with Client(address) as connection:
        connection.send(chunkmill.__file__)
        follow(connection, run_module)
    return 0


# --- as tests


@pytest.fixture
def pair():
    """Two versions as threads: the second one takes three times as long, and fails if it is told to."""
    running = []

    def run(version, name, quick, turns):  # noqa: ARG001 - as `run_module`
        def one():
            assert not running
            running.append(version)
            time.sleep(0.01 * (1 + 2 * version))
            running.clear()
            return harness.Seconds(0.01 * (1 + 2 * version), 0.5)

        def fail():
            raise KeyError(name)

        ours = fail if version == 1 and name == "fails" else one
        times = turns.turns({"chunkmill": one, "peer": fail, "chunkmill, last": ours})
        first = turns.turns({"a job": one}, once=True)
        return [Row("b", "c", contender, own) for contender, own in (times | first).items()]

    ends = [Pipe() for _ in range(2)]
    threads = [
        threading.Thread(target=follow, args=(end, partial(run, version))) for version, (_, end) in enumerate(ends)
    ]
    for thread in threads:
        thread.start()
    yield [end for end, _ in ends]
    for end, _ in ends:
        end.send(None)
    for thread in threads:
        thread.join()


def test_versions_take_turns(pair):
    rows = compare(pair, "any", quick=True, seconds=0)
    assert [row.contender for row in rows] == ["chunkmill", "chunkmill, last", "a job"]
    assert [len(row.ratios) for row in rows] == [LEAST, LEAST, 1]
    assert all(row.ratios[0] == pytest.approx(3) and row.cpu == 1 for row in rows)
    assert [row.verdict for row in rows] == ["slower", "slower", ""]
    assert "b: 3.00 of the time, 3 rows, 2 slower, 0 faster" in table(rows)


def test_a_benchmark_that_fails_in_one_version_is_named_and_the_next_one_runs(pair):
    with pytest.raises(RuntimeError, match="now: KeyError: 'fails'"):
        compare(pair, "fails", quick=True, seconds=0)
    assert len(compare(pair, "any", quick=True, seconds=0)) == 3


if __name__ == "__main__":
    sys.exit(main())
