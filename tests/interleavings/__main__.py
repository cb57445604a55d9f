"""Explore interleavings of public operations: ``python -m interleavings --count 1000000``, in ``tests``.

In as many processes as there are processors.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context

from interleavings.exploration import Found, chosen, explore_share, replay
from interleavings.operations import OPERATIONS
from interleavings.processes import one_actor_at_a_time


def main() -> int:
    parser = argparse.ArgumentParser(prog="interleavings", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="interleavings to run, at most")
    parser.add_argument("--seed", type=int, default=0, help="of those that are chosen by chance")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which it ends")
    parser.add_argument("--pair", nargs="+", metavar="OPERATION", choices=list(OPERATIONS), help="one, or both")
    parser.add_argument("--replay", metavar="SCHEDULE", help="run one again, and print its steps")
    args = parser.parse_args()
    return _replay(args.replay) if args.replay else _explore(args)


def _replay(name: str) -> int:
    with one_actor_at_a_time():
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
    shown: set[tuple[tuple[str, str], str]] = set()
    n_run: Counter[tuple[str, str]] = Counter()
    n_failed: Counter[tuple[str, str]] = Counter()
    begun = time.perf_counter()
    with suppress(KeyboardInterrupt):
        for found in _explored(pairs, args):
            for pair, failed in found:
                n_run[pair] += 1
                n_failed[pair] += len(failed)
                for complaint, text in failed:
                    kind = pair, re.sub(r"[\d\[\],()]+|memory-store\S*", "", complaint)[:100]
                    if kind not in shown:
                        print(text, flush=True)
                    shown.add(kind)
            print(f"{n_run.total():,} interleavings", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - begun
    for pair in pairs:
        print(f"{' + '.join(pair):32} {n_run[pair]:9,} interleavings, {n_failed[pair]:7,} fail")
    rate = n_run.total() / seconds
    print(f"{n_run.total():,} interleavings, {n_failed.total():,} fail, in {seconds:.0f} s: {rate:.0f} a second")
    return n_failed.total() > 0


def _explored(pairs: list[tuple[str, str]], args: argparse.Namespace) -> Iterator[list[Found]]:
    """Explore the scenarios of each pair, in shares that have some of every pair."""
    todo = [scenario for pair in pairs for scenario in chosen(pair)]
    random.Random(args.seed).shuffle(todo)
    n_processes = os.cpu_count() or 1
    n_shares = min(len(todo), 16 * n_processes, args.count)
    until = time.time() + args.seconds
    shares = [(todo[i::n_shares], -(-args.count // n_shares), args.seed, until) for i in range(n_shares)]
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(explore_share, shares)


if __name__ == "__main__":
    sys.exit(main())
