"""Explore interleavings of public operations: ``python -m interleavings --count 1000000``, in ``tests``.

In as many processes as there are processors, in shares: the same command with ``--from-share`` continues what was ended.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context

from interleavings.exploration import Found, chosen, explore_share, replay
from interleavings.operations import ALL_FORMATS, OPERATIONS
from interleavings.processes import one_actor_at_a_time
from interleavings.scenarios import GROUNDS, Scenario
from interleavings.scheduler import STATES


def main() -> int:
    parser = argparse.ArgumentParser(prog="interleavings", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="interleavings to run, at most")
    parser.add_argument("--seed", type=int, default=0, help="of those that are chosen by chance")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which it ends")
    parser.add_argument("--from-share", type=int, default=1, help="the first to run: those before it were run earlier")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="in which they are run")
    parser.add_argument("--pair", nargs="+", metavar="OPERATION", choices=list(OPERATIONS), help="one, or both")
    parser.add_argument("--scenarios", type=int, metavar="N", help="of each pair, beginning with those that meet")
    parser.add_argument("--ground", nargs="+", choices=GROUNDS, default=GROUNDS, help="stores in which both begin")
    parser.add_argument("--format", nargs="+", choices=ALL_FORMATS, default=ALL_FORMATS, help="of the nodes")
    parser.add_argument("--all", action="store_true", help="print every schedule that fails, not one of each kind")
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
    todo = [[s for s in chosen(pair) if s.ground in args.ground and s.format in args.format] for pair in pairs]
    shown: set[tuple[tuple[str, str], str]] = set()
    n_run: Counter[tuple[str, str]] = Counter()
    n_died: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    n_failed: Counter[tuple[str, str]] = Counter()
    begun = time.perf_counter()
    with suppress(KeyboardInterrupt):
        for share, (n_shares, found) in enumerate(_explored(todo, args), args.from_share):
            for pair, state, failed in found:
                n_run[pair] += 1
                n_died[pair][state] += 1
                n_failed[pair] += len(failed)
                for complaint, text in failed:
                    kind = pair, re.sub(r"[\d\[\],()]+|memory-store\S*", "", complaint)[:100]
                    if args.all or kind not in shown:
                        print(text, flush=True)
                    shown.add(kind)
            print(f"share {share} of {n_shares}: {n_run.total():,} interleavings", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - begun
    for pair in pairs:
        died = ", ".join(f"{state} {n_died[pair][state]:,}" for state in STATES)
        print(f"{' + '.join(pair):32} {n_run[pair]:9,} interleavings, {n_failed[pair]:7,} fail; died while {died}")
    rate = n_run.total() / seconds
    print(f"{n_run.total():,} interleavings, {n_failed.total():,} fail, in {seconds:.0f} s: {rate:.0f} a second")
    return n_failed.total() > 0


def _explored(todo: list[list[Scenario]], args: argparse.Namespace) -> Iterator[tuple[int, list[Found]]]:
    """Explore the scenarios of each pair, some in each process; yield the number of shares and what each has found."""
    if not args.scenarios:  # all are one list, so that of every share there are some of every pair
        todo = [[scenario] for each in todo for scenario in each]
    n_shares = max(1, min(len(todo), 16 * args.processes, args.count))
    if args.seconds < float("inf") or n_shares > 1:  # some of every pair
        random.Random(args.seed).shuffle(todo)
    until = time.time() + args.seconds
    shares = [todo[i::n_shares] for i in range(n_shares)]
    if not args.scenarios:
        shares = [[[scenario for each in share for scenario in each]] for share in shares]
    counts = [-(-args.count // n_shares // len(share)) for share in shares]
    asked = [(s, n, args.scenarios, args.seed, until) for s, n in zip(shares, counts, strict=True)]
    asked = asked[args.from_share - 1 :]
    if args.processes == 1:
        yield from ((n_shares, explore_share(share)) for share in asked)
        return
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn")) as pool:
        yield from ((n_shares, found) for found in pool.map(explore_share, asked))


if __name__ == "__main__":
    sys.exit(main())
