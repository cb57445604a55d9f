"""Which requests many spans become, and how many of them are under way."""

import pytest
from support.cases import cases

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.read_ahead import ReadsAhead, _ahead, _merge

MERGES = [
    ("neighbours", [(0, 10), (10, 10)], [(0, 20)]), ("small gap", [(0, 10), (65_546, 10)], [(0, 65_556)]),
    ("large gap", [(0, 10), (65_547, 10)], [(0, 10), (65_547, 10)]),
    ("overlap, contained", [(0, 100), (10, 10), (50, 100)], [(0, 150)]), ("any order", [(20, 10), (0, 10)], [(0, 30)]),
    ("large together", [(0, 4 << 20), (4 << 20, 4 << 20)], [(0, 8 << 20)]),
    ("too large together", [(0, 4 << 20), (4 << 20, 4194305)], [(0, 4 << 20), (4 << 20, 4194305)]),
    ("suffix", [(0, 10), (-10, None)], [(-10, None), (0, 10)]),
    ("open end", [(0, 10), (10, None)], [(10, None), (0, 10)]), ("empty", [(0, 10), (10, 0)], [(10, 0), (0, 10)]),
]  # fmt: skip


@cases(("wanted", "requests"), [case[1:] for case in MERGES])
def test_merge(wanted, requests):
    spans = [ByteSpan("k", ByteRange(*bounds)) for bounds in wanted]
    merged = list(_merge(spans))
    assert [span for span, _ in merged] == [ByteSpan("k", ByteRange(*bounds)) for bounds in requests]
    assert sorted(map(repr, (span for _, contained in merged for span in contained))) == sorted(map(repr, spans))


def test_ahead():
    assert _ahead(1000, 10) == 128
    assert _ahead(10 * 2**20, 10) == 64
    assert _ahead(10 * 2**30, 10) == 4
    assert _ahead(0, 1) == 128


class Remote(ReadsAhead, MemoryStore):
    is_remote = True


def test_of_neighbours_the_one_that_fails_is_named():
    store = Remote()
    store.set("k", bytes(20))
    values = store.get_many(ByteSpan("k", ByteRange(start, 10)) for start in (0, 15))
    assert next(values) == bytes(10)
    with pytest.raises(StoreError, match="expected 10 bytes from 15, got a value of 20 bytes"):
        next(values)


def test_as_many_values_are_on_their_way_as_their_mean_size_allows():
    store, taken, value = Remote(), [], bytes(1 << 20)
    for i in range(200):
        store.set(f"{i}", value)
    values = store.get_many(taken.append(i) or ByteSpan(f"{i}") for i in range(200))
    assert (next(values), len(taken)) == (value, 16)  # of which nothing is known yet
    assert (next(values), len(taken)) == (value, 65)  # 64 MiB
    assert [(next(values), len(taken))[1] for _ in range(32)] == [65] * 31 + [97]  # when half of them are read
    values.close()
