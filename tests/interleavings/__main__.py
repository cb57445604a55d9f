"""Explore interleavings of public operations: ``python -m interleavings --count 1000000``, in ``tests``."""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import time
from collections import Counter

from interleavings.exploration import explore_all, replay
from interleavings.operations import OPERATIONS, scenarios
from interleavings.scheduler import one_actor_at_a_time


def main() -> int:
    parser = argparse.ArgumentParser(prog="interleavings", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="interleavings to run, at most")
    parser.add_argument("--seed", type=int, default=0, help="of those that are chosen by chance")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which it ends")
    parser.add_argument("--pair", nargs="+", metavar="OPERATION", choices=list(OPERATIONS), help="one, or both")
    parser.add_argument("--all", action="store_true", help="print every schedule that fails, not one of each kind")
    parser.add_argument("--replay", metavar="SCHEDULE", help="run one again, and print its steps")
    args = parser.parse_args()
    with one_actor_at_a_time():
        return _replay(args.replay) if args.replay else _explore(args)


def _replay(name: str) -> int:
    explored = replay(name)
    for step in explored.run.trace:
        print(step.actor, step.access.method, repr(step.access.key), "- dies instead" if step.dies else "")
    for actor, outcome in sorted(explored.run.outcomes.items()):
        print(f"{actor}: {outcome}")
    print(explored)
    return bool(explored.complaints)


def _explore(args: argparse.Namespace) -> int:
    pairs = [p for p in itertools.combinations_with_replacement(OPERATIONS, 2) if set(args.pair or ()) <= set(p)]
    pairs = [p for p in pairs if len(args.pair or ()) < 2 or sorted(p) == sorted(args.pair)]
    todo = [scenario for pair in pairs for scenario in scenarios(pair)]
    if args.seconds < float("inf"):  # some of every pair
        random.Random(args.seed).shuffle(todo)
    shown: set[tuple[tuple[str, str], str]] = set()
    n_run: Counter[tuple[str, str]] = Counter()
    n_failed: Counter[tuple[str, str]] = Counter()
    begun = time.perf_counter()
    for explored in explore_all(todo, args.count, args.seed):
        if time.perf_counter() - begun > args.seconds:
            break
        pair = explored.scenario.names
        n_run[pair] += 1
        if explored.complaints:
            n_failed[pair] += 1
            kind = pair, re.sub(r"[\d\[\],()]+|memory-store\S*", "", explored.complaints[0])[:100]
            if args.all or kind not in shown:
                print(explored, flush=True)
            shown.add(kind)
    for pair in pairs:
        print(f"{' + '.join(pair):32} {n_run[pair]:9,} interleavings, {n_failed[pair]:7,} fail")
    print(f"{n_run.total():,} interleavings, {n_failed.total():,} fail, in {time.perf_counter() - begun:.0f} s")
    return bool(n_failed)


if __name__ == "__main__":
    sys.exit(main())
