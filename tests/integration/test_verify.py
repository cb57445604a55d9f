"""`verify` finds what differs, bit for bit, and nothing else."""

import json
from collections import Counter

import dask
import numpy as np
import pytest
from support.recording import RecordingStore

import chunkmill as cm
from chunkmill.stores.memory import MemoryStore


@pytest.fixture(autouse=True)
def scheduler():
    with dask.config.set(scheduler="sync"):
        yield


def make(values, chunks=None, path="", **options):
    store = options.pop("store", None) or MemoryStore()
    values = np.asarray(values)
    options = {"shape": values.shape, "dtype": values.dtype, "chunks": chunks or values.shape, **options}
    cm.create_array(store, path, **options)
    cm.open_array(store, path, mode="r+")[...] = values
    return store


VALUES = np.arange(35, dtype="f4").reshape(7, 5)


@pytest.mark.parametrize(
    ("chunks", "options"),
    [
        ((3, 2), {"format": "zarr2", "codecs": "blosc"}),
        ((7, 1), {"format": "n5", "codecs": "gzip"}),
        ((2, 5), {"format": "zarr3", "shards": (4, 5)}),
        ((7, 5), {"format": "zarr3-draft", "codecs": "gzip"}),
        (([3, 4], 5), {"format": "zarr3"}),
    ],
    ids=["zarr2", "n5", "sharded", "draft", "rectilinear"],
)
def test_equal_whatever_holds_them(chunks, options):
    report = cm.verify(make(VALUES, (4, 3)), make(VALUES, chunks, **options))
    assert report.equal
    assert report.differences == ()
    assert report.n_arrays == 1
    assert report.n_blocks > 0


def nan(bits):
    return np.array(bits, "u4").view("f4")


BITS = {
    "one element": (1.0, 2.0),
    "negative zero": (0.0, -0.0),
    "payload of a NaN": (nan(0x7FC00001), nan(0x7FC00002)),
    "signalling NaN": (nan(0x7FC00000), nan(0x7FA00000)),
}


@pytest.mark.parametrize("case", BITS)
def test_bits(case):
    a, b = VALUES.copy(), VALUES.copy()
    a[5, 3], b[5, 3] = BITS[case]
    report = cm.verify(make(a, (3, 2)), make(b, (4, 4)))
    (difference,) = report.differences
    assert (difference.kind, difference.path, difference.n_elements) == ("values", "", 1)
    assert "first at (5, 3)" in difference.text
    assert all(start <= i < stop for i, (start, stop) in zip((5, 3), difference.region, strict=True))
    assert cm.verify(make(a, (3, 2)), make(a, (4, 4))).equal  # a NaN is itself


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (np.array(["a", "b"], "U3"), np.array(["a", "c"], "U3")),
        (np.array([b"a", b"b"], "S5"), np.array([b"a", b"bb"], "S5")),
        (np.array([1, 2], "M8[s]"), np.array([1, "NaT"], "M8[s]")),
        (np.array([(1, 2.0), (3, 4.0)], "i1,f8"), np.array([(1, 2.0), (3, 5.0)], "i1,f8")),
        (np.array([1 + 2j, 0]), np.array([1 + 2j, -0.0])),
        (np.array([True, True]), np.array([True, False])),
        (np.array(5), np.array(6)),
    ],
    ids=["text", "bytes", "datetime", "structured", "complex", "bool", "0-d"],
)
def test_dtypes(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert cm.verify(make(a), make(a)).equal
    (difference,) = cm.verify(make(a), make(b)).differences
    assert difference.n_elements == 1


def test_strings_of_variable_length():
    words = np.array(["a", "", "ccc"], np.dtypes.StringDType())
    others = np.array(["a", "", "cc"], np.dtypes.StringDType())
    assert cm.verify(make(words, dtype=str), make(words, dtype=str, format="zarr2")).equal
    (difference,) = cm.verify(make(words, dtype=str), make(others, dtype=str)).differences
    assert "ccc" in difference.text


DOCUMENTS = {
    "shape": ({}, {"shape": (8, 5)}, "shape"),
    "dtype": ({}, {"dtype": "f8"}, "dtype"),
    "attributes": ({"attributes": {"a": 1, "b": [1, 2]}}, {"attributes": {"a": True, "b": [1, 2]}}, "attributes"),
    "an attribute more": ({}, {"attributes": {"a": None}}, "attributes"),
    "dimension names": ({"dimension_names": ("y", "x")}, {"dimension_names": ("x", "y")}, "dimension names"),
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_documents(case):
    first, second, kind = DOCUMENTS[case]
    stores = [MemoryStore(), MemoryStore()]
    for store, options in zip(stores, (first, second), strict=True):
        cm.create_array(store, **{"shape": (7, 5), "chunks": (3, 2), "dtype": "f4", **options})
    assert [difference.kind for difference in cm.verify(*stores).differences] == [kind]
    assert cm.verify(stores[0], stores[0]).equal


def test_names_kept_as_an_attribute_say_nothing_more():
    a = make(VALUES, dimension_names=("y", "x"), format="zarr3")
    b = make(VALUES, dimension_names=("y", "x"), format="n5")
    assert "axes" in cm.open_array(b).attributes
    assert cm.verify(a, b).equal


def test_structure():
    a, b = MemoryStore(), MemoryStore()
    a.set("zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {"x": Infinity}}')  # as others write it
    cm.create_group(b, attributes={"x": 1.0})
    cm.create_group(a, "only")
    make(VALUES, path="both", store=a)
    make(VALUES, path="both", store=b)
    make(VALUES, path="kind", store=a)
    cm.create_group(b, "kind")
    report = cm.verify(a, b)
    assert [str(difference) for difference in report.differences] == [
        "/: attribute 'x' differs: inf and 1.0",
        "kind: a has an array, b a group",
        "only: a group is missing in b",
    ]
    assert report.n_arrays == 1
    assert "3 differences" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["equal"] is False


def test_paths_count_from_the_nodes_compared():
    a = make(VALUES, path="x/a")
    b = make(VALUES, path="deep/er/a")
    cm.open_array(b, "deep/er/a", mode="r+")[0, 0] = -1
    (difference,) = cm.verify((a, "x"), (b, "deep/er")).differences
    assert difference.path == "a"
    (difference,) = cm.verify(cm.open_array(a, "x/a"), (b, "deep/er/a")).differences
    assert str(difference).startswith("/: values differ")


def test_what_cannot_be_read_is_a_difference():
    a, b = make(VALUES, (3, 2)), make(VALUES, (3, 2))
    b.set("c/0/1", b"rubbish")
    report = cm.verify(a, b)
    (difference,) = report.differences
    assert difference.kind == "unreadable"
    assert "in b: chunk (0, 1) (key 'c/0/1'" in difference.text


def test_a_sample_is_a_share_chosen_by_seed():
    a = make(np.zeros((64, 64), "u1"), (4, 4))
    b = make(np.ones((64, 64), "u1"), (4, 4))
    some, again, others = (cm.verify(a, b, sample=0.25, seed=seed) for seed in (1, 1, 2))
    assert some.sampled
    assert some.n_blocks == round(cm.verify(a, b, sample=1).n_blocks / 4) >= 16
    assert {d.region for d in some.differences} == {d.region for d in again.differences}
    assert {d.region for d in some.differences} != {d.region for d in others.differences}
    assert cm.verify(a, b, sample=1e-9).n_blocks == 1
    with pytest.raises(ValueError, match="sample=0"):
        cm.verify(a, b, sample=0)


def test_of_an_array_that_cannot_be_listed_a_sample_can_be_compared():
    store = MemoryStore()
    cm.create_array(store, shape=(1 << 50,), dtype="i4", chunks=(1 << 16,))
    store.can_list = False
    report = cm.verify(store, store, sample=1e-12)
    assert report.equal
    assert 0 < report.n_blocks < 100


def test_every_element_is_compared_once():
    rng = np.random.default_rng(3)
    a = rng.integers(0, 9, (23, 17), dtype="u1")
    b = a.copy()
    places = rng.choice(a.size, 30, replace=False)
    b.flat[places] += 100
    with dask.config.set({"chunkmill.max-mem": 400}):
        report = cm.verify(make(a, (5, 4)), make(b, (3, 7), format="n5"))
    assert sum(difference.n_elements for difference in report.differences) == 30
    assert report.n_blocks > 1


MIB = 2**20


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("max_mem", "n_reads"), [("2 GiB", 2), (36 * MIB, 8), (MIB, 32)])
def test_chunks_that_lie_across_each_other_are_read_as_seldom_as_memory_allows(swapped, max_mem, n_reads):
    """32 MiB: two tasks read one of the two twice; with 12 MiB for a block of each, and with no room at all."""
    values = np.arange(32 * 512 * 512, dtype="u4").reshape(32, 512, 512)
    images, series = (RecordingStore(make(values, chunks)) for chunks in ((1, 512, 512), (32, 32, 32)))
    sides = (series, images) if swapped else (images, series)
    with dask.config.set({"scheduler": "threads", "num_workers": 2, "chunkmill.max-mem": max_mem}):
        report = cm.verify(*sides)
    assert report.equal
    most = [max(Counter(key for key in store.keys("get") if key.startswith("c/")).values()) for store in sides]
    assert min(most) == 1
    assert max(most) <= n_reads


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_schedulers(scheduler, tmp_path):
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    for url, offset in ((a, 0), (b, 1)):
        cm.create_array(url, shape=(8, 4), chunks=(2, 4), dtype="i2")
        cm.open_array(url, mode="r+")[...] = np.arange(32).reshape(8, 4) + offset
    with dask.config.set(scheduler=scheduler, num_workers=1):  # each process takes two seconds to begin
        assert sum(d.n_elements for d in cm.verify(a, b).differences) == 32
