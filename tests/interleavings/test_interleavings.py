"""Every pair of public operations, some 3,800 interleavings, more every night; ``python -m interleavings`` runs any number."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from interleavings.exploration import chosen, explore_all
from interleavings.operations import OPERATIONS
from interleavings.processes import one_actor_at_a_time

# of a deletion, next to which another operation has made a node whose keys stay, or lists by metadata of before
pytestmark = [
    pytest.mark.filterwarnings("ignore::chunkmill.errors.KeysLeft"),
    pytest.mark.filterwarnings("ignore:consolidated metadata name nodes below .* of which nothing is stored"),
]

N_RUNS = settings().max_examples // 2  # of a pair, by the profile of hypothesis
N_RUNS_BRIEFLY = 12
N_SCENARIOS = 2  # of the thirty or so of a pair: the serial orders of one take as long as a dozen runs

LONG = {name for name in OPERATIONS if name.endswith(("-later", "delayed-dataset", "pyramid", "levels"))}
# one pair in thirteen of the long ones, within some 10 s: the command runs them all
EVERY = [
    pair
    for pair in itertools.combinations_with_replacement(OPERATIONS, 2)
    if not LONG & {*pair} or sum(map(list(OPERATIONS).index, pair)) % 13 == 0
]

# one pair in four, so that each operation meets eight others
BRIEFLY = [p for p in EVERY if not {*p} & LONG and sum(map(list(OPERATIONS).index, p)) % 4 == 0]


@pytest.fixture(autouse=True)
def _one_actor_at_a_time():
    with one_actor_at_a_time():
        yield


@pytest.mark.brief
@pytest.mark.parametrize("first", OPERATIONS)
def test_pairs_briefly(first, subtests):
    explored([pair for pair in BRIEFLY if pair[0] == first], subtests, N_RUNS_BRIEFLY, n_scenarios=1)


@pytest.mark.slow
@pytest.mark.parametrize("first", OPERATIONS)
def test_pairs(first, subtests):
    explored([pair for pair in EVERY if pair[0] == first], subtests, N_RUNS, n_scenarios=N_SCENARIOS)


def explored(pairs, subtests, n_runs, *, n_scenarios):
    """Explore each pair; the first interleaving that fails is named."""
    for pair in pairs:
        with subtests.test(" + ".join(pair)):
            every = list(explore_all(chosen(pair), n_runs, n_scenarios=n_scenarios))
            failed = [each for each in every if each.complaints]
            assert every
            assert not failed, f"{len(failed)} fail, the first is:\n{failed[0]}"
