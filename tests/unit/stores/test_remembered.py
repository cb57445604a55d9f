"""A store that remembers what it has returned."""

import pytest

from chunkmill.errors import StoreError
from chunkmill.stores.base import ByteRange, ByteSpan
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.metered import Meter, MeteredStore
from chunkmill.stores.remembered import RememberedReads


@pytest.fixture
def meter():
    return Meter()


@pytest.fixture
def reads(meter):
    store = MemoryStore()
    store.set("a", b"0123456789")
    store.set("b", b"xyz")
    return RememberedReads(MeteredStore(store, meter))


def test_each_value_is_fetched_once(reads, meter):
    spans = [ByteSpan("a"), ByteSpan("c"), None, ByteSpan("b", ByteRange(1)), ByteSpan("a")]
    assert list(reads.get_many(spans)) == [b"0123456789", None, None, b"yz", b"0123456789"]
    assert meter.n_requests == 3
    again = [ByteSpan("a", ByteRange(-2)), ByteSpan("c", ByteRange(0, 4)), ByteSpan("b", ByteRange(1))]
    assert list(reads.get_many(again)) == [b"89", None, b"yz"]
    assert meter.n_requests == 3
    assert reads.get("b") == b"xyz"  # a range of it does not tell
    assert meter.n_requests == 4


def test_values_are_forgotten(reads, meter):
    assert not reads.any_present
    reads.get("c")
    assert not reads.any_present
    reads.get("a")
    assert reads.any_present
    reads.forget()
    assert not reads.any_present
    assert reads.get("a") == b"0123456789"
    assert meter.n_requests == 3


def test_a_range_past_the_end(reads):
    reads.get("b")
    with pytest.raises(StoreError, match="truncated"):
        reads.get("b", ByteRange(2, 5))


@pytest.mark.parametrize("write", [
    lambda s: s.set("a", b""), lambda s: s.set_if("a", b"", None), lambda s: s.delete("a"), lambda s: s.delete_prefix(""),
])  # fmt: skip
def test_it_is_not_written_to(reads, write):
    with pytest.raises(StoreError, match="not written to"):
        write(reads)
    assert reads.list_dir("") == ["a", "b"]
    assert list(reads.list_prefix("")) == ["a", "b"]
    assert reads.size("b") == 3
    assert reads.get_versioned("b")[0] == b"xyz"
