"""Two nodes are equal when every value, bit for bit, and every document say the same."""

import struct
from collections import Counter

import dask
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.checks.verify import _specs
from chunkmill.codecs.elements import differing
from chunkmill.errors import NodeNotFound
from chunkmill.formats.cf_fill_value import encode_fill_value
from chunkmill.stores.memory import MemoryStore


def array(values, path="a", **more):
    return filled(np.asarray(values), None, path, **{"chunks": (2,)} | more)


def group(**attributes):
    return cm.create_group(MemoryStore(), attributes=attributes)


class TestValues:
    def test_the_first_that_differs_is_named(self):
        (difference,) = cm.verify(array([1, 2, 3, 4]), array([1, 2, 7, 4]), progress=False).differences
        assert (difference.kind, difference.n_elements) == ("values", 1)
        assert "first at (2,): 3 and 7" in difference.text
        (start, stop), = difference.region  # fmt: skip
        assert start <= 2 < stop

    def test_bits_count(self):
        assert "0.0 and -0.0" in cm.verify(array([0.0]), array([-0.0]), progress=False).differences[0].text
        other_nan = struct.unpack("<d", b"\1\0\0\0\0\0\xf8\x7f")[0]
        (difference,) = cm.verify(array([np.nan]), array([other_nan]), progress=False).differences
        assert "(bits 0x7ff8000000000001)" in difference.text

    def test_what_cannot_be_decoded_is_a_difference(self):
        a, b = array([1, 2, 3, 4]), array([1, 2, 3, 4])
        a.store.set("a/c/1", b"torn")
        (difference,) = cm.verify(a, b, progress=False).differences
        assert difference.kind == "unreadable"
        assert "in a:" in difference.text

    def test_other_shapes_and_dtypes_are_not_read(self):
        report = cm.verify(array([1, 2]), array([1, 2, 3]), progress=False)
        assert [each.kind for each in report.differences] == ["shape"]
        assert (report.n_arrays, report.n_blocks, report.bytes_read) == (0, 0, 0)


class TestDocuments:
    def test_attributes(self):
        a, b = array([1], attributes={"x": 1, "y": 2}), array([1], attributes={"x": 1, "z": 2})
        said = sorted(each.text for each in cm.verify(a, b, progress=False).differences)
        assert said == ["attribute 'y' differs: 2 and absent", "attribute 'z' differs: absent and 2"]

    def test_a_missing_node_and_another_kind(self):
        a, b = group(), group()
        for parent in (a, b):
            cm.create_array(parent.store, "same", shape=(2,), dtype="i4", chunks=(2,))
        cm.create_array(a.store, "x", shape=(2,), dtype="i4", chunks=(2,))
        cm.create_group(b.store, "x")
        cm.create_group(b.store, "y")
        said = [str(each) for each in cm.verify(a, b, progress=False).differences]
        assert said == ["x: a has an array, b a group", "y: a group is missing in a"]

    @pytest.mark.parametrize("said", [{"downsamplingFactors": [2, 2]}, {"resolution": [1.0, 2.0], "offset": [7, 8.0]}])
    def test_a_copy_of_n5_says_the_same_place_in_its_own_words(self, said):
        a, b = MemoryStore(), MemoryStore()
        filled(np.ones((4, 4), "u1"), a, "s1", chunks=(2, 2), format="n5", attributes=said)
        cm.convert(a, b, format="zarr3")
        copy = cm.open_array(b, "s1", mode="r+")
        assert "transform" in copy.attributes
        assert cm.verify(a, b, progress=False).equal
        transform = copy.attributes["transform"]
        copy.update_attributes({"transform": {**transform, "translate": [9.0, 9.0]}})
        assert [each.kind for each in cm.verify(a, b, progress=False).differences] == ["attributes"]
        cm.open_array(a, "s1", mode="r+").update_attributes({"offset": "far"})  # describes no place
        assert "attribute 'transform' differs" in str(cm.verify(a, b, progress=False))

    def test_two_groups_without_arrays_are_not_equal(self):
        """An empty copy must not pass for a whole one: no value was compared."""
        report = cm.verify(group(), group(), progress=False)
        assert not report.equal
        assert [each.kind for each in report.differences] == ["no arrays"]
        assert "no value was compared" in str(report)
        assert not cm.verify(group(x=1), group(x=2), progress=False).equal

    def test_an_array_without_elements_is_one(self):
        a, b = (cm.create_array(MemoryStore(), "a", shape=(0,), dtype="i4", chunks=(2,)) for _ in range(2))
        assert cm.verify(a, b, progress=False).equal


class TestSamples:
    def test_some_of_them_chosen_by_the_seed(self):
        chosen, again, other = (list(_specs([range(60), range(40)], 0.1, seed)) for seed in (5, 5, 6))
        assert len(chosen) == 10
        assert chosen == sorted(chosen) == again != other
        assert all(number < (60, 40)[which] for which, number in chosen)

    def test_of_many_blocks_none_is_listed_but_the_sample(self):
        assert len(_specs([range(10**15)], 1e-13, 0)) == 100
        assert len(_specs([range(3)], 1e-13, 0)) == 1

    @cases("sample", [0, -1, 1.5])
    def test_shares_that_are_none(self, sample):
        with pytest.raises(ValueError, match="sample="):
            cm.verify(array([1]), array([1]), sample=sample)


def sparse(n=10**9, *, at=(5, 10**6, 10**9 - 1), path="a", **more):
    """Return an array of `n` chunks of two elements, of which those `at` some numbers are stored."""
    store = RecordingStore(MemoryStore())
    made = cm.create_array(store, path, shape=(2 * n,), dtype="u1", **{"chunks": (2,)} | more)
    for i in at:
        made[2 * i : 2 * i + 2] = 7
    store.log.clear()
    return made


class TestFewStored:
    """A grid of 10**9 chunks costs what is stored."""

    @cases("other", [{}, {"chunks": (6,)}, {"chunks": (2,), "shards": (2000,)}, {"format": "n5"}])
    def test_only_blocks_with_chunks_are_compared(self, other):
        a, b = sparse(), sparse(**other)
        report = cm.verify(a, b, progress=False)
        assert report.equal
        assert report.n_blocks == 3
        assert report.n_blocks + report.n_blocks_absent > 10**6
        assert "blocks absent on both sides" in str(report)
        assert len(a.store.log) + len(b.store.log) < 500

    def test_what_one_side_lacks_is_found(self):
        report = cm.verify(sparse(), sparse(at=(5, 10**9 - 1)), progress=False)
        (difference,) = report.differences
        assert "first at (2000000,): 7 and 0" in difference.text
        assert report.n_blocks == 3

    def test_fill_values_are_compared_once(self):
        report = cm.verify(sparse(at=(0,)), sparse(at=(0,), fill_value=3), progress=False)
        fills, _ = sorted(report.differences, key=lambda difference: "fill" not in difference.text)
        assert fills.text.startswith("fill values differ: 0 and 3; ")
        assert fills.kind == "values"
        assert fills.n_elements > 0
        none = cm.verify(sparse(at=()), sparse(at=(), fill_value=3), progress=False)
        assert len(none.differences) == 1
        assert (none.n_blocks, none.differences[0].region[0][0]) == (0, 0)

    def test_where_absent_chunks_are_errors_all_are_read(self):
        a, b = sparse(2000, at=(5,)), sparse(2000, at=(5,))
        report = cm.verify(cm.Array(a.stored.with_read_missing("error")), b, progress=False)
        assert not report.equal
        assert report.n_blocks_absent == 0

    def test_a_damaged_index_is_a_difference(self):
        a, b = sparse(shards=(2000,)), sparse(shards=(2000,))
        b.store.set("a/c/0", b"torn")
        assert [each.kind for each in cm.verify(a, b, progress=False).differences] == ["unreadable"]


VALUES = np.arange(35, dtype="f4").reshape(7, 5)


TWO = {"dtype": ("f4", "f8"), "attributes": ({"a": 1}, {"a": True}), "dimension_names": (("y", "x"), ("x", "y"))}


@cases("option", TWO)
def test_documents(option):
    both = (cm.create_array(MemoryStore(), **{"shape": (7, 5), "dtype": "f4", option: value}) for value in TWO[option])
    assert [difference.kind for difference in cm.verify(*both).differences] == [option.replace("_", " ")]


def test_names_kept_as_an_attribute_say_nothing_more():
    a, b = (array(VALUES, chunks=(7, 5), dimension_names=("y", "x"), format=name) for name in ("zarr3", "n5"))
    assert "axes" in cm.open_array(b.store, "a").attributes
    assert cm.verify((a.store, "a"), (b.store, "a")).equal  # as they are stored, not as they were given


def test_paths_count_from_the_nodes_compared():
    a, b = (array(VALUES, path, chunks=(7, 5)) for path in ("x/a", "deep/er/a"))
    b[0, 0] = -1
    (difference,) = cm.verify((a.store, "x"), (b.store, "deep/er")).differences
    assert difference.path == "a"
    (difference,) = cm.verify(a, (b.store, "deep/er/a")).differences
    assert str(difference).startswith("/: values differ")


def test_every_element_is_compared_once():
    rng = np.random.default_rng(3)
    a = rng.integers(0, 9, (23, 17), dtype="u1")
    b = a.copy()
    b.flat[rng.choice(a.size, 30, replace=False)] += 100
    with dask.config.set({"chunkmill.max-mem": 400}):
        report = cm.verify(array(a, chunks=(5, 4)), array(b, chunks=(3, 7), format="n5"), progress=False)
    assert sum(difference.n_elements for difference in report.differences) == 30
    assert report.n_blocks > 1


MIB = 2**20


def test_chunks_that_lie_across_each_other_are_read_as_seldom_as_memory_allows():
    """32 MiB: two tasks read one of the two twice; with 12 MiB for a block of each, and with no room at all."""
    values = np.arange(32 * 512 * 512, dtype="u4").reshape(32, 512, 512)
    sides = [array(values, chunks=chunks, codecs="raw") for chunks in ((1, 512, 512), (32, 32, 32))]
    for max_mem, n_reads in (("2 GiB", 2), (36 * MIB, 8), (MIB, 32)):
        stores = [RecordingStore(side.store) for side in sides]
        with dask.config.set({"scheduler": "threads", "num_workers": 2, "chunkmill.max-mem": max_mem}):
            assert cm.verify(*[(store, "a") for store in stores], progress=False).equal
        most = [max(Counter(key for key in store.keys("get") if "/c/" in key).values()) for store in stores]
        assert min(most) == 1
        assert max(most) <= n_reads, max_mem


def test_a_fill_value_for_missing_elements_is_the_same_as_its_attribute():
    """In Zarr v2 the fill value stands for missing elements, which Zarr v3 says by the attribute alone."""
    old = array([1.0, 2.0], format="zarr2", fill_value=-9.0)
    new = array([1.0, 2.0], format="zarr3", attributes={"_FillValue": encode_fill_value(np.float64(-9), old.dtype)})
    assert cm.verify(old, new).equal
    other = array([1.0, 2.0], format="zarr3", attributes={"_FillValue": encode_fill_value(np.float64(9), old.dtype)})
    assert not cm.verify(old, other).equal


def test_paths_stand_beside_the_url(store):
    for path in ("g/a", "c"):
        cm.create_array(store, path, shape=(4,), dtype="i4", chunks=(2,))
    assert cm.verify((store, "g/a"), (store, "c")).equal
    assert cm.verify(cm.open_array(store, "g/a"), (store, "c")).equal
    with pytest.raises(TypeError, match="expected a url"):
        cm.verify((store, "g", 1), store)
    with pytest.raises(NodeNotFound):
        cm.verify((store, "x"), store)


@cases(
    ("dtype", "values", "other"),
    [
        ("u1", [1, 2, 3], [1, 9, 3]), ("c16", [1, 2j, 3], [1, 3j, 3]), ("S3", [b"a", b"b", b"c"], [b"a", b"x", b"c"]),
        ("S5", [b"a", b"b", b"c"], [b"a", b"bbbbb", b"c"]), ("U2", ["a", "b", "c"], ["a", "bb", "c"]),
        ("i4,f8", [(1, 2.0), (1, 2.0), (1, 2.0)], [(1, 2.0), (1, 3.0), (1, 2.0)]),
        ("T", ["a", "b", "c"], ["a", "", "c"]), ("O", ["a", "1", "c"], ["a", 1, "c"]),
    ],
)  # fmt: skip
def test_elements_that_differ(dtype, values, other):
    dtype = np.dtypes.StringDType() if dtype == "T" else np.dtype(dtype)
    a, b = np.array(values, dtype), np.array(other, dtype)
    assert differing(a, b).tolist() == [False, True, False]
    assert not differing(a, a).any()
