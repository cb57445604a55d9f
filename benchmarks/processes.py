"""Measure contenders in turn, each run in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import harness


def in_own_process(module: str, *arguments: str, target: Path) -> dict[str, Any]:
    """Run ``python -m <module> one <arguments>``, make its files at `target` empty, and return what it prints, JSON.

    Before it begins, everything that others have written is synced to the disk. Files are emptied, not deleted: ext4
    does not reuse inodes that were deleted in the last minutes, and looks at all of them for every new file.
    """
    os.sync()  # or this contender would wait for the writes of the one before
    command = [sys.executable, "-m", module, "one", *arguments]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    harness.empty(target)
    return found


def rounds_of_processes(
    module: str, names: list[str], n_rounds: int, *arguments: str, folder: Path, once: Iterable[str] = ()
) -> tuple[dict[str, list[float]], dict[str, dict[str, float]]]:
    """Let contenders take turns, each run in a process of its own; return the seconds and the counts of each.

    A process gets its name, `arguments`, and the path that it writes to, another one each time. Each round begins with
    another contender. Those in `once`, slow ones, take part in the first round only.
    """
    times: dict[str, list[float]] = {name: [] for name in names}
    counts: dict[str, dict[str, float]] = {}
    if harness.PARTNER is not None:
        run_one, numbers = importlib.import_module(module).run_one, itertools.count()

        def one(name: str) -> harness.Seconds:  # in this process, since peaks are not compared
            target = folder / f"target-{next(numbers)}"
            found = run_one(name, *arguments, str(target))
            harness.empty(target)
            return harness.Seconds(found["seconds"], found["counts"]["cpu"])

        functions = {name: partial(one, name) for name in names if name not in once}
        return harness.PARTNER.turns(functions), counts
    for i in range(n_rounds):
        first = i % len(names)
        for k, name in enumerate([*names[first:], *names[:first]]):
            if i and name in once:
                continue
            target = folder / f"target-{i}-{k}"
            found = in_own_process(module, name, *arguments, str(target), target=target)
            times[name].append(found["seconds"])
            counts[name] = found["counts"]
            print(
                f"{arguments[0]}, round {i}: {name} {harness.duration(found['seconds'])}", file=sys.stderr, flush=True
            )
    return times, counts
