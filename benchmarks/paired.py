"""``python -m benchmarks.paired --base COMMIT``: time our rows with the sources of two commits, in turn.

Two processes run the same benchmarks, those of the working tree: one imports chunkmill from COMMIT, the other one from
the working tree. Before a contender is timed, both wait for their turn; the order is reversed every other round, after
one round that is not counted. So whatever makes the machine slower does so for both, and the ratios round by round tell
which version is. Peers and bare loops are left out, and what has rounds of its own: `clusters`, `remote`, `scale`.
With names, only those benchmarks are run, and saved with the others of the same two versions: a run in parts.

A row is bold where its median ratio is off by more than 5 % and a sign test of its rounds says that this is not by
chance (p < 0.05, at least six rounds): of a hundred rows without a difference some five are.
"""

from __future__ import annotations

import argparse
import importlib
import io
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from benchmarks import harness, paired_results, report
from benchmarks.harness import Row
from benchmarks.paired_results import CHANCE, SLIGHT, Compared, Part, save, saved, sign_test, table
from benchmarks.run import known

ROOT = Path(__file__).parents[1]
ALONE = ("clusters", "remote", "scale")
LAST = ("references",)  # which take the longest to set up
OURS = "chunkmill"
LEAST, MOST = 6, 15  # counted rounds
ENDED, BEGIN, DONE, FAILED = "ended", "begin", "done", "failed"


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
                found = self._repeated(function, once=once)[0 if once else 1 :]
                if found:
                    results[name] = found
        return results

    def _repeated(self, function: Callable[[], Any], *, once: bool) -> list[Any]:
        """Run a function as often as the other side says; without results where it fails, once."""
        results: list[Any] = []
        while go := self._connection.recv():
            try:
                results.append(function())
            except Exception as error:
                if once:
                    raise
                results.clear()
                self._connection.send((FAILED, f"{type(error).__name__}: {error}"))
            else:
                self._connection.send((DONE,))
        if go is None:
            raise RuntimeError("the other version has ended")
        return results


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


def compare(
    pair: Sequence[Connection],
    name: str,
    *,
    quick: bool,
    seconds: float,
    until: float = math.inf,
    tell: Callable[[str], object] = lambda _: None,
) -> tuple[list[Compared], list[str]]:
    """Let both versions run one benchmark, for `seconds` each of its contenders, or the least number of rounds.

    Returns the rows that both have, and what is not compared, with the reason. After `until` no contender is begun.
    """
    for connection in pair:
        connection.send((name, quick))
    last = [connection.recv() for connection in pair]
    failed: list[str] = []
    while last[0] == last[1] and last[0][0] == BEGIN:
        tell(f"{name}: {last[0][1]}")
        failed += _alternate(pair, last, seconds, until)
    for i, connection in enumerate(pair):
        while last[i][0] != ENDED:  # since the other one has, or they differ in what they run
            connection.send(None)
            last[i] = connection.recv()
    (_, base, base_error), (_, now, now_error) = last
    if base_error or now_error:
        raise RuntimeError(f"base: {base_error or 'interrupted'}; now: {now_error or 'interrupted'}")
    before = {(row.benchmark, row.case, row.contender): row.times for row in base if row.times}
    after = {(row.benchmark, row.case, row.contender): row.times for row in now if row.times}
    failed += [f"{': '.join(key)}: measured with one version only" for key in sorted(before.keys() ^ after.keys())]
    rows = [Compared.of(*key, before[key], after[key]) for key in after if key in before]
    return rows, failed


def _alternate(pair: Sequence[Connection], last: list[Any], seconds: float, until: float) -> list[str]:
    """Let both run one contender in turn; return what failed. `last` has the last message of each, then the next."""
    _, name, once = last[0]
    n, begun, failed = 0, time.perf_counter(), list[str]()
    if begun > until and not once:
        failed.append(f"{name}: the time was over")
    while not failed and (
        n < 1 or (not once and (n <= LEAST or (n <= MOST and time.perf_counter() < begun + seconds)))
    ):
        for i in (0, 1) if n % 2 else (1, 0):
            pair[i].send(True)
            last[i] = pair[i].recv()
            if last[i][0] == ENDED:
                return failed
            if last[i][0] == FAILED:
                failed.append(f"{name}, {'now' if i else 'base'}: {last[i][1]}")
        n += 1
    for connection in pair:
        connection.send(False)
    last[:] = [connection.recv() for connection in pair]
    return failed


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


def sources(commit: str = "") -> str:
    """Return the name by which git knows the sources of a commit; without one, of the working tree."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    changed = not commit and git("status", "--porcelain", "src")
    known = git("rev-parse", "--short", f"{commit or 'HEAD'}:src")
    return f"{known}, changed, {time.strftime('%Y-%m-%d %H:%M:%S')}" if changed else known


def main(argv: list[str] | None = None) -> int:
    names = [name for name in known() if name not in (*ALONE, *LAST)] + list(LAST)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(names)}")
    parser.add_argument("--base", metavar="COMMIT", help="whose sources are compared with those of the working tree")
    parser.add_argument("--seconds", type=float, default=1.5, help="for the rounds of each contender")
    parser.add_argument("--minutes", type=float, default=35, help="after which nothing is begun")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases to run; their results are not saved")
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    harness.ONLY = arguments.only
    if arguments.follow:
        return _follow(arguments.follow)
    if not arguments.base or set(arguments.names) - set(names):
        parser.error(f"give --base COMMIT, and names of: {', '.join(names)}")
    until = time.perf_counter() + 60 * arguments.minutes
    command = " ".join(["python -m benchmarks.paired", *(sys.argv[1:] if argv is None else argv)])
    about = report.machine() | {"base": sources(arguments.base), "sources": sources()}
    date = about.pop("date")
    parts = saved(about) if arguments.names else {}
    wanted = arguments.names or names
    with tempfile.TemporaryDirectory() as folder, Progress(console=Console(stderr=True)) as progress:
        base = sources_of(arguments.base, Path(folder))
        bar = progress.add_task("", total=len(wanted))
        options = {"quick": arguments.quick, "seconds": arguments.seconds, "until": until}
        for name in wanted:
            start = time.perf_counter()
            try:
                if start > until:
                    raise TimeoutError(f"not begun, {arguments.minutes:g} minutes have passed")
                with version(base) as before, version(ROOT / "src") as now:  # new ones: one may die
                    found, not_compared = compare(
                        (before, now), name, **options, tell=lambda text: progress.update(bar, description=text)
                    )
            except (RuntimeError, OSError, EOFError) as error:
                found, not_compared = [], [f"{type(error).__name__}: {error}"]
            print(table(found, not_compared), flush=True)
            print(f"{name}: {time.perf_counter() - start:.0f} s\n", flush=True)
            progress.advance(bar)
            part = Part(date, command, found, not_compared)
            parts[name] = part if found else parts.get(name, part)  # what was not begun leaves what was saved
            if not (arguments.quick or arguments.only):
                save(parts, about)
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
    """Two versions as threads: the second one takes three times as long, and fails on demand."""
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
    rows, failed = compare(pair, "any", quick=True, seconds=0)
    assert [row.contender for row in rows] == ["chunkmill", "chunkmill, last", "a job"]
    assert [len(row.ratios) for row in rows] == [LEAST, LEAST, 1]
    assert all(row.ratios[0] == pytest.approx(3) and row.cpu == 1 for row in rows)
    assert [row.verdict for row in rows] == ["slower", "slower", ""]
    assert failed == []
    assert "b: 3.00 of the time, 3 rows, 2 slower, 0 faster" in table(rows)


def test_a_contender_that_fails_in_one_version_is_named_and_the_next_one_runs(pair):
    rows, failed = compare(pair, "fails", quick=True, seconds=0)
    assert [row.contender for row in rows] == ["chunkmill", "a job"]
    assert failed == ["chunkmill, last, now: KeyError: 'fails'"]
    assert "not compared: chunkmill, last, now: KeyError" in table(rows, failed)


def test_no_contender_is_begun_when_the_time_is_over(pair):
    rows, failed = compare(pair, "any", quick=True, seconds=0, until=0)
    assert [row.contender for row in rows] == ["a job"]
    assert failed == ["chunkmill: the time was over", "chunkmill, last: the time was over"]


def test_parts_of_a_run_of_the_same_two_versions_are_kept(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(paired_results, "RESULTS", tmp_path)
    about = {"cpu": "some", "base": "1", "sources": "2"}
    parts = {"any": Part("today", "a command", *compare(pair, "any", quick=True, seconds=0))}
    save(parts, about)
    assert saved(about) == parts
    assert saved(about | {"sources": "3"}) == {}
    assert "- any: today, a command" in (tmp_path / "paired.md").read_text()


def test_rounds_that_agree_by_chance_are_not_marked():
    assert sign_test([1.1] * 5) > CHANCE > sign_test([1.1] * 6)
    mixed = Compared("b", "c", "chunkmill", [1.0] * 8, [1.2, 1.3, 1.2, 1.1, 1.2, 0.9, 0.9, 1.2])
    assert mixed.ratio > 1 + SLIGHT
    assert not mixed.verdict


if __name__ == "__main__":
    sys.exit(main())
