"""Two nodes are equal when every value, bit for bit, and every document say the same."""

import struct

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.checks.verify_job import _differing, _specs, compare
from chunkmill.stores.memory import MemoryStore


def array(values, path="a", **more):
    values = np.asarray(values)
    store = MemoryStore()
    made = cm.create_array(store, path, shape=values.shape, dtype=values.dtype, **{"chunks": (2,)} | more)
    made[...] = values
    return made


def group(**attributes):
    return cm.create_group(MemoryStore(), attributes=attributes)


class TestValues:
    def test_equal_whatever_the_chunks(self):
        report = compare(array(np.arange(10)), array(np.arange(10), chunks=(3,), shards=(9,)), progress=False)
        assert report.equal
        assert (report.n_arrays, report.differences) == (1, ())

    def test_the_first_that_differs_is_named(self):
        (difference,) = compare(array([1, 2, 3, 4]), array([1, 2, 7, 4]), progress=False).differences
        assert (difference.kind, difference.n_elements) == ("values", 1)
        assert "first at (2,): 3 and 7" in difference.text
        (start, stop), = difference.region  # fmt: skip
        assert start <= 2 < stop

    def test_bits_count(self):
        assert "0.0 and -0.0" in compare(array([0.0]), array([-0.0]), progress=False).differences[0].text
        other_nan = struct.unpack("<d", b"\1\0\0\0\0\0\xf8\x7f")[0]
        (difference,) = compare(array([np.nan]), array([other_nan]), progress=False).differences
        assert "(bits 0x7ff8000000000001)" in difference.text

    def test_what_cannot_be_decoded_is_a_difference(self):
        a, b = array([1, 2, 3, 4]), array([1, 2, 3, 4])
        a.store.set("a/c/1", b"torn")
        (difference,) = compare(a, b, progress=False).differences
        assert difference.kind == "unreadable"
        assert "in a:" in difference.text

    def test_other_shapes_and_dtypes_are_not_read(self):
        report = compare(array([1, 2]), array([1, 2, 3]), progress=False)
        assert [each.kind for each in report.differences] == ["shape"]
        assert (report.n_arrays, report.n_blocks, report.bytes_read) == (0, 0, 0)


class TestDocuments:
    def test_attributes(self):
        a, b = array([1], attributes={"x": 1, "y": 2}), array([1], attributes={"x": 1, "z": 2})
        assert sorted(each.text for each in compare(a, b, progress=False).differences) == [
            "attribute 'y' differs: 2 and absent",
            "attribute 'z' differs: absent and 2",
        ]

    def test_a_missing_node_and_another_kind(self):
        a, b = group(), group()
        for parent in (a, b):
            cm.create_array(parent.store, "same", shape=(2,), dtype="i4", chunks=(2,))
        cm.create_array(a.store, "x", shape=(2,), dtype="i4", chunks=(2,))
        cm.create_group(b.store, "x")
        cm.create_group(b.store, "y")
        assert [str(each) for each in compare(a, b, progress=False).differences] == [
            "x: a has an array, b a group",
            "y: a group is missing in a",
        ]

    def test_two_groups_without_arrays_are_not_equal(self):
        """An empty copy must not pass for a whole one: no value was compared."""
        report = compare(group(), group(), progress=False)
        assert not report.equal
        assert [each.kind for each in report.differences] == ["no arrays"]
        assert "no value was compared" in str(report)
        assert not compare(group(x=1), group(x=2), progress=False).equal

    def test_an_array_without_elements_is_one(self):
        a, b = (cm.create_array(MemoryStore(), "a", shape=(0,), dtype="i4", chunks=(2,)) for _ in range(2))
        assert compare(a, b, progress=False).equal


class TestSamples:
    def test_all_blocks(self):
        assert _specs([2, 0, 1], None, 0, "verify") == [(0, 0), (0, 1), (2, 0)]

    def test_some_of_them_chosen_by_the_seed(self):
        chosen = _specs([60, 40], 0.1, 5, "verify")
        assert len(chosen) == 10
        assert chosen == sorted(chosen) == _specs([60, 40], 0.1, 5, "verify") != _specs([60, 40], 0.1, 6, "verify")
        assert all(number < (60, 40)[which] for which, number in chosen)

    def test_one_at_least(self):
        assert len(_specs([3], 1e-9, 0, "verify")) == 1
        assert _specs([], 0.5, 0, "verify") == []

    @pytest.mark.parametrize("sample", [0, -1, 1.5])
    def test_shares_that_are_none(self, sample):
        with pytest.raises(ValueError, match="sample="):
            compare(array([1]), array([1]), sample=sample)


@pytest.mark.parametrize(
    ("dtype", "values", "other"),
    [
        ("u1", [1, 2, 3], [1, 9, 3]),
        ("c16", [1, 2j, 3], [1, 3j, 3]),
        ("S3", [b"a", b"b", b"c"], [b"a", b"x", b"c"]),
        ("S5", [b"a", b"b", b"c"], [b"a", b"bbbbb", b"c"]),
        ("U2", ["a", "b", "c"], ["a", "bb", "c"]),
        ("i4,f8", [(1, 2.0), (1, 2.0), (1, 2.0)], [(1, 2.0), (1, 3.0), (1, 2.0)]),
        ("T", ["a", "b", "c"], ["a", "", "c"]),
        ("O", ["a", "1", "c"], ["a", 1, "c"]),
    ],
)
def test_elements_that_differ(dtype, values, other):
    dtype = np.dtypes.StringDType() if dtype == "T" else np.dtype(dtype)
    a, b = np.array(values, dtype), np.array(other, dtype)
    assert _differing(a, b).tolist() == [False, True, False]
    assert not _differing(a, a).any()
