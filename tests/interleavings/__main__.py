"""Explore interleavings of public operations: ``python -m interleavings --pair new region --count 1000``, in ``tests``."""

from __future__ import annotations

import argparse
import itertools
import sys

from interleavings.exploration import chosen, explore_all, replay
from interleavings.operations import OPERATIONS
from interleavings.processes import one_actor_at_a_time


def main() -> int:
    parser = argparse.ArgumentParser(prog="interleavings", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="interleavings to run of each pair, at most")
    parser.add_argument("--seed", type=int, default=0, help="of those that are chosen by chance")
    parser.add_argument("--pair", nargs="+", metavar="OPERATION", choices=list(OPERATIONS), help="one, or both")
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
    n_failed = 0
    for pair in itertools.combinations_with_replacement(OPERATIONS, 2):
        wanted = args.pair or ()
        if set(wanted) <= set(pair) and (len(wanted) < 2 or sorted(wanted) == sorted(pair)):
            every = list(explore_all(chosen(pair), args.count, args.seed))
            failed = [explored for explored in every if explored.complaints]
            print(
                f"{' + '.join(pair):32} {len(every):9,} interleavings, {len(failed):7,} fail", *failed[:1], flush=True
            )
            n_failed += len(failed)
    return n_failed > 0


if __name__ == "__main__":
    sys.exit(main())
