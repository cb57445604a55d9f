"""Which requests many spans become, and how many of them are under way."""

from concurrent.futures import Future

import pytest

from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.read_ahead import _ahead, _merge, get_ahead

MERGES = [
    ("neighbours", [(0, 10), (10, 10)], [(0, 20)]),
    ("small gap", [(0, 10), (60_000, 10)], [(0, 60_010)]),
    ("large gap", [(0, 10), (70_000, 10)], [(0, 10), (70_000, 10)]),
    ("overlap, contained", [(0, 100), (10, 10), (50, 100)], [(0, 150)]),
    ("any order", [(20, 10), (0, 10)], [(0, 30)]),
    ("too large together", [(0, 5 << 20), (5 << 20, 5 << 20)], [(0, 5 << 20), (5 << 20, 5 << 20)]),
    ("suffix", [(0, 10), (-10, None)], [(-10, None), (0, 10)]),
    ("open end", [(0, 10), (10, None)], [(10, None), (0, 10)]),
    ("empty", [(0, 10), (10, 0)], [(10, 0), (0, 10)]),
]


@pytest.mark.parametrize(("wanted", "requests"), [case[1:] for case in MERGES], ids=[case[0] for case in MERGES])
def test_merge(wanted, requests):
    spans = [ByteSpan("k", ByteRange(*bounds)) for bounds in wanted]
    merged = list(_merge(spans))
    assert [span for span, _ in merged] == [ByteSpan("k", ByteRange(*bounds)) for bounds in requests]
    assert sorted(map(repr, (span for _, contained in merged for span in contained))) == sorted(map(repr, spans))


def test_ahead():
    assert _ahead(1000, 10) == 128
    assert _ahead(10 * 2**20, 10) == 64
    assert _ahead(10 * 2**30, 10) == 4


def test_sizes_of_an_array_are_known_the_second_time():
    """Of whole values: ranges of them, documents and other arrays say nothing of their size."""

    def most_at_once(keys, n_bytes, byte_range=None):
        begun = []

        def begin(span, exact):
            begun.append(span)
            future = Future()
            future.set_result(bytes(n_bytes))
            return future

        values = get_ahead((ByteSpan(key, byte_range) for key in keys), begin, lambda _, f: f.result(), url="far://x")
        next(values)
        n_begun = len(begun)
        list(values)
        return n_begun

    small, other, large = ([f"{name}/c/0/{i}" for i in range(100)] for name in ("small", "small2", "large"))
    assert [most_at_once(small, 100), most_at_once(small, 100)] == [16, 64]
    assert most_at_once(other, 100) == 16
    assert [most_at_once(large, 2 << 20), most_at_once(large, 2 << 20)] == [16, 32]
    most_at_once(["g/c/0"], 100, ByteRange(0, 100))
    assert most_at_once([f"g/c/{i}" for i in range(100)], 100) == 16
