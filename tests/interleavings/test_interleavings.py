"""Every pair of public operations, some 10,000 interleavings; ``python -m interleavings`` runs as many as one wants."""

from __future__ import annotations

import itertools

import pytest
from interleavings.exploration import explore_all
from interleavings.known import KNOWN
from interleavings.operations import OPERATIONS, Scenario, scenarios
from interleavings.scheduler import one_actor_at_a_time

N_RUNS = 90  # of a pair: in few of its scenarios, as the serial orders of one take as long as a dozen runs

PAIRS = [
    pytest.param(*pair, id="+".join(pair), marks=[pytest.mark.xfail(reason=KNOWN[pair])] if pair in KNOWN else [])
    for pair in itertools.combinations_with_replacement(OPERATIONS, 2)
]


@pytest.fixture(autouse=True)
def _one_actor_at_a_time():
    with one_actor_at_a_time():
        yield


def chosen(pair: tuple[str, str]) -> list[Scenario]:
    """Return some scenarios of a pair, others for other pairs: one at one place, where they meet there, and two more."""
    meetings = [list(found) for _, found in itertools.groupby(scenarios(pair), lambda scenario: scenario.paths)]
    turn = sum(map(list(OPERATIONS).index, pair))
    more = meetings[1:]
    wanted = meetings[:1] + [more[(turn + i) % len(more)] for i in range(min(2, len(more)))]
    return [found[(turn + i) % len(found)] for i, found in enumerate(wanted)]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_pair(first, second):
    failed = [explored for explored in explore_all(chosen((first, second)), N_RUNS) if explored.complaints]
    assert not failed, f"{len(failed)} fail, the first is:\n{failed[0]}"
