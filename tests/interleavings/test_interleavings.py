"""Every pair of public operations, some 7,500 interleavings; ``python -m interleavings`` runs as many as one wants."""

from __future__ import annotations

import itertools

import pytest
from interleavings.exploration import chosen, explore_all
from interleavings.known import KNOWN
from interleavings.operations import OPERATIONS
from interleavings.processes import one_actor_at_a_time

# of a deletion, next to which another operation has made a node whose keys stay, or lists by metadata of before
pytestmark = [
    pytest.mark.filterwarnings("ignore::chunkmill.errors.KeysLeft"),
    pytest.mark.filterwarnings("ignore:consolidated metadata name nodes below .* of which nothing is stored"),
]

N_RUNS = 24  # of a pair: some 7,500 in all
N_RUNS_OF_KNOWN = 71  # so that what is known to fail is seen to
N_RUNS_BRIEFLY = 12
N_SCENARIOS = 2  # of the thirty or so of a pair: the serial orders of one take as long as a dozen runs

LONG = {
    "replace-later",
    "delayed-dataset",
    "replace-delayed-dataset",
    "pyramid",
    "replace-pyramid",
    "levels",
    "replace-levels",
}
# one pair in thirteen of the long ones, within some 10 s: the command runs them all
EVERY = [
    pair
    for pair in itertools.combinations_with_replacement(OPERATIONS, 2)
    if not LONG & {*pair} or sum(map(list(OPERATIONS).index, pair)) % 13 == 0
]

# one pair in four, so that each operation meets eight others
BRIEFLY = [p for p in EVERY if not {*p} & LONG and p not in KNOWN and sum(map(list(OPERATIONS).index, p)) % 4 == 0]

PAIRS = [
    pytest.param(*pair, id="+".join(pair), marks=[pytest.mark.xfail(reason=KNOWN[pair])] if pair in KNOWN else [])
    for pair in EVERY
]


@pytest.fixture(autouse=True)
def _one_actor_at_a_time():
    with one_actor_at_a_time():
        yield


@pytest.mark.brief
@pytest.mark.parametrize(("first", "second"), BRIEFLY)
def test_pair_briefly(first, second):
    every = list(explore_all(chosen((first, second)), N_RUNS_BRIEFLY, n_scenarios=1))
    assert every
    assert not [explored for explored in every if explored.complaints]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_pair(first, second):
    n_runs = N_RUNS_OF_KNOWN if (first, second) in KNOWN else N_RUNS
    every = list(explore_all(chosen((first, second)), n_runs, n_scenarios=N_SCENARIOS))
    failed = [explored for explored in every if explored.complaints]
    assert every
    assert not failed, f"{len(failed)} fail, the first is:\n{failed[0]}"
