"""Patterns of access take no more tasks, store keys and bytes than the best peer of the same kind of Dask arrays."""

import pytest
from dask.array import array_expr_enabled

from benchmarks.patterns import PATTERNS, cost

KINDS = ["dask"] if array_expr_enabled() else ["dask", "dask-array"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_costs_no_more_than_with_the_peer(pattern, kind):
    if kind == "dask-array":
        pytest.importorskip("dask_array")
    own, peer = cost(pattern, kind, peer=False), cost(pattern, kind, peer=True)
    assert own is not None
    if peer is None:  # `store` has no expression
        assert (array_expr_enabled(), pattern) == (True, "misaligned write")
        return
    assert [a <= b for a, b in zip(own, peer, strict=True)] == [True] * 3, (own, peer)
