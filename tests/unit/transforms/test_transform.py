"""transform as users call it: targets, functions, what is refused; plans: blocks within memory, figures, resuming."""

import functools

import dask
import numpy as np
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import AlignmentError, JobError, NodeNotFound, RegionError, TransformError, UnsupportedFeature
from chunkmill.runtime.worker_memory import THREAD_OVERHEAD
from chunkmill.stores.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("two_threads")


def noise(shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def test_a_group_is_no_source(tmp_path):
    cm.create_group(str(tmp_path / "a.zarr"))
    with pytest.raises(NodeNotFound, match="a transform reads arrays"):
        cm.plan_transform(np.exp, str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr"))


def picky(block):
    if block.max() == 1:
        raise ValueError("all ones")
    return block


@cases(("function", "said", "hint"), [
    (picky, "all ones", ["the function was called for a small block of ones, to learn its dtype: give dtype="]),
    (lambda block: (block, block), "2 blocks for 1 targets", []),
])  # fmt: skip
def test_a_function_that_fails_for_the_small_block_names_the_way_out(function, said, hint):
    a = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4))
    with pytest.raises(TransformError, match=said) as caught:
        cm.plan_transform(function, a, (MemoryStore(), "b"))
    assert getattr(caught.value, "__notes__", []) == hint


@cases("function", [
    lambda block, **more: block + len(more), lambda *blocks, block_id: blocks[0] + block_id[0],
    lambda block, block_info=None: block, functools.partial(np.add, 1.0), np.vectorize(abs), np.abs,
])  # fmt: skip
def test_functions_of_every_kind_are_called(function):
    assert cm.transform(function, filled(noise((8, 8)), chunks=(4, 4)), MemoryStore()).n_keys == 4


@pytest.fixture
def source():
    return cm.create_array(
        MemoryStore(), "a", shape=(64, 48), dtype="f4", chunks=(8, 12), shards=(16, 24), fill_value=np.nan,
        codecs="gzip", dimension_names=("y", "x"), attributes={"units": "K"},
    )  # fmt: skip


def target(plan, number=0):
    return plan.job.target.arrays[number]


def planned(source, place=None, function=np.sqrt, **options):
    return cm.plan_transform(function, source, (MemoryStore(), "b") if place is None else place, **options)


def test_what_is_not_said_is_as_the_first_source_has_it(source):
    new = target(planned(source))
    assert (new.shape, new.chunks, new.shards) == ((64, 48), (8, 12), (16, 24))
    assert (new.dtype, new.dimension_names, dict(new.attributes)) == (np.float32, ("y", "x"), {})
    assert target(planned(source, shape=(64, 48))).dimension_names == ("y", "x")
    assert np.isnan(new.fill_value)
    assert [codec.name for codec in target(planned(source, shards=None)).codecs] == ["bytes", "zstd"]
    other = target(planned(source, function=lambda block: block > 0, attributes="keep", codecs="keep", shards=None))
    assert (other.dtype, other.fill_value, dict(other.attributes)) == (np.bool_, False, {"units": "K"})
    assert [codec.name for codec in other.codecs] == ["bytes", "gzip"]


def test_no_element_is_missing_to_xarray_because_of_its_format(store):
    """A fill value of Zarr v3, and 0 in place of Zarr v2's null, made missing what the function had computed."""
    kept = [filled(np.arange(4), fill_value=5, dimension_names=("x",), attributes=a) for a in ({}, {"_FillValue": 7})]
    for function, wanted in ((np.negative, [None, 7]), (np.sqrt, [None, None])):
        assert [target(planned(each, function=function, format="zarr2")).fill_value for each in kept] == wanted
    masked = filled(np.arange(4), fill_value=3, dimension_names=("x",), format="zarr2")
    others = [target(planned(masked, function=each, attributes="keep", format="n5")) for each in (np.negative, np.sqrt)]
    assert [each.attributes.get("_FillValue") for each in others] == [3, None]
    cm.transform(np.negative, kept[0], (store, "b"), format="zarr2")
    assert cm.create_array(store, "c", like=cm.open_array(store, "b")).fill_value is None
    cm.to_store(np.arange(4), store, "d", format="zarr2", dimension_names=("x",))
    read = xr.open_dataset(store, engine="chunkmill")
    assert [read[name].values.tolist() for name in "bd"] == [[0, -1, -2, -3], [0, 1, 2, 3]]


def test_regions_are_named_as_the_target_is(source):
    named = {"dimension_names": ("a", "b"), "chunks": (8, 8), "block": {"b": 24}}
    for own in (named, {"shape": (96,), "dtype": "f4", "chunks": 8, "block": {0: 48}}):
        assert planned(source, source_region=lambda region: (slice(0, 8),) * 2, **own).n_tasks == 2


def test_shards_are_kept_where_the_format_has_them(source):
    new = target(planned(source, format="n5"))
    assert (new.format, new.chunks, new.shards) == ("n5", (8, 12), None)
    with pytest.raises(UnsupportedFeature, match="n5 does not support"):
        planned(source, format="n5", shards=(16, 24))
    assert target(planned(source, chunks=(5, 5))).shards is None


def test_several_targets_have_options_of_their_own(source):
    store = MemoryStore()
    plan = planned(
        source, [(store, "x"), (store, "y")], lambda block: (block, block > 0), dtype=["f8", None],
        chunks=[(16, 16), {"y": 32}], shards=None, attributes=[{"n": 1}, None],
    )  # fmt: skip
    assert [(each.dtype.str, each.chunks) for each in plan.job.target.arrays] == [("<f8", (16, 16)), ("|b1", (32, 48))]
    assert [dict(each.attributes) for each in plan.job.target.arrays] == [{"n": 1}, {}]


def test_the_format_is_that_of_the_group_above(source):
    group = cm.create_group(MemoryStore(), format="n5")
    assert target(planned(source, (group.store, "b"))).format == "n5"


def same(*blocks):
    return blocks


OPTIONS = {
    "another shape": ({"shape": (10, 10)}, ValueError, r"shape=\(10, 10\), where the blocks of the sources divide \(64, 48\)"),
    "another dimension": ({"dimension_names": ("y", "z")}, ValueError, r"the sources have no \['z'\]; give shape="),
    "fewer dimensions": ({"dimension_names": ("a",)}, ValueError, "give shape="),
    "more dtypes": ({"dtype": ["f4", "f8", "f2"], "target": ["x", "y"]}, ValueError, "dtype= has 3 values for 2 targets"),
    "one in the other": ({"target": ["x", "x/y"], "dtype": "f4"}, ValueError, "one is in the other"),
    "one above the other": ({"target": ["x/y", "x"], "dtype": "f4"}, ValueError, "one is in the other"),
    "no target": ({"target": []}, ValueError, "target=.*expected at least one place"),
    "no source": ({"sources": []}, ValueError, r"sources=\[\]: expected at least one place"),
    "a tuple of sources": ({"sources": (("a", "x"), ("a", "y"))}, TypeError, "sources=.*or a list of them for several"),
    "a tuple of targets": ({"target": (("b", "x"), ("b", "y"))}, TypeError, "target=.*or a list of them for several"),
    "boundary": ({"boundary": "wrap"}, ValueError, "boundary='wrap': expected 'reflect'"),
    "boundary of a dimension": ({"boundary": {"z": "nearest"}}, ValueError, r"boundary= names dimensions \['z'\]"),
    "boundary of no halo": ({"boundary": {"x": "nearest"}}, ValueError, "nothing beyond the ends is read"),
    "block of a dimension": ({"block": {"z": 1}}, ValueError, r"block= names dimensions \['z'\]"),
    "block of fewer axes": ({"block": (4,)}, ValueError, "1 values, where the blocks have 2 axes"),
    "block of a text": ({"block": "auto"}, TypeError, "block='auto': expected the length of a block"),
    "block of a fraction": ({"block": (4.0, 4)}, TypeError, "expected the length of a block"),
    "region and halo": ({"halo": 1, "source_region": same}, ValueError, "source_region= says all that is read"),
    "boundaries and region": ({"boundary": ["none", 0], "source_region": same}, ValueError, "one for all axes"),
    "no function": ({"function": 3}, TypeError, "function=3: expected a function"),
    "a Dataset": ({"sources": [xr.Dataset()]}, TypeError, "is a Dataset: give a variable"),
    "region": ({"source_region": (4, 4)}, TypeError, r"source_region=\(4, 4\): expected a function"),
    "chunks of fewer axes": ({"chunks": (4,)}, RegionError, "1 chunk lengths for 2 axes"),
    "shards of fewer axes": ({"shards": (8,)}, RegionError, "1 shard lengths for 2 axes"),
    "attributes": ({"attributes": 3}, TypeError, "expected a dict"),
    "params of another name": ({"params": {"q": 1}}, TypeError, r"and params \['q'\]: got an unexpected keyword argument"),
    "params": ({"function": np.exp, "params": 3}, TypeError, "params=3 is int, where Mapping"),
    "fewer sources": (
        {"function": lambda a, b: a + b}, TypeError,
        r"\(a, b\) cannot be called with 1 block, one of each source: missing a required",
    ),
    "more sources": (
        {"function": lambda block: block, "sources": [np.ones(3)] * 2}, TypeError, "cannot be called with 2 blocks, one of each source: too many",
    ),
    "no params": ({"function": lambda block, sigma: block}, TypeError, "missing a required argument: 'sigma'"),
    **{
        f"halo {halo}": ({"halo": halo}, ValueError, "halo=")
        for halo in (-1, (1, 2, 3), {"z": 1}, 1.5, True, ((1, 2, 3), 0))
    },
}  # fmt: skip


@cases("case", OPTIONS)
def test_what_cannot_be_used_is_refused_when_planned(source, case):
    options, error, said = OPTIONS[case]
    options = {"function": same, "sources": [source], "target": "b"} | options
    places = options.pop("target")
    if not isinstance(places, tuple):
        store = MemoryStore()
        places = [(store, path) for path in places] if isinstance(places, list) else (store, places)
    with pytest.raises(error, match=said):
        cm.plan_transform(options.pop("function"), options.pop("sources"), places, **options)


def test_places_that_are_no_target(source):
    with pytest.raises(cm.errors.JobError, match="source and target are the same place"):
        planned(source, (source.store, "a"))
    with pytest.raises(TypeError, match="the target is an Array"):
        planned(source, source)
    for value in (300, -1, 1.5, np.nan, np.inf, 1j):
        a = cm.create_array(MemoryStore(), "a", shape=(6,), dtype="u1", chunks=(2,))
        with pytest.raises(ValueError, match="uint8, the dtype of a source, does not hold it"):
            planned(a, halo=1, boundary=value)


@pytest.fixture
def large():
    return filled(noise((96, 96, 96)), path="a", chunks=(16, 16, 16))


def filtered(large, **options):
    ndimage = pytest.importorskip("scipy.ndimage")
    options = {"halo": 2, "params": {"sigma": 0.5}} | options
    return cm.plan_transform(ndimage.gaussian_filter, large, (MemoryStore(), "b"), **options)


def test_a_plan_prints_its_figures(large):
    plan = filtered(large, block=(32, 32, 32))
    text = " ".join(plan.explain().split())
    assert "27 blocks of (32, 32, 32), with a halo" in text
    assert "each element 4.6 times" in text
    assert (plan.n_keys, plan.bytes_temporary_read) == (216, 0)
    assert plan.bytes_read == pytest.approx(
        plan.read_amplification * sum(map(large.store.size, large.stored.stored_keys())), rel=0.01
    )
    report = plan.run()
    assert report.bytes_read == pytest.approx(plan.bytes_read, rel=0.02)
    assert report.read_amplification == pytest.approx(plan.read_amplification, rel=0.01)
    assert report.n_requests == plan.n_requests


def test_blocks_are_as_large_as_memory_allows(large):
    least = filtered(large, block=(16, 16, 16)).peak_memory_bytes
    found = [filtered(large, max_mem=n).read_amplification for n in (least, 4 * least, "400 MB")]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    with pytest.raises(JobError, match=rf"the smallest that works is {least} bytes.*; give max_mem={least} or more"):
        filtered(large, max_mem=least - 1)


@cases(("halo", "n_blocks"), [(0, 2), (2, 3)])
def test_a_task_holds_twice_what_the_function_takes_and_returns(halo, n_blocks):
    """With a halo, which is put around it, twice as much of what it takes."""
    a = cm.create_array(MemoryStore(), "a", shape=(64, 64), dtype="f8", chunks=(16, 16), codecs="raw")
    plan = planned(a, halo=halo, block=(32, 32), codecs="raw")
    block, chunk = 8 * (32 + 2 * halo) ** 2, 8 * 16 * 16
    assert plan.peak_memory_bytes == 2 * (2 * n_blocks * block + chunk + THREAD_OVERHEAD)


def test_small_blocks_share_tasks_of_which_some_remain():
    a = cm.create_array(MemoryStore(), "a", shape=(2048,), dtype="u1", chunks=(2,))
    assert planned(a, block=(2,)).n_tasks == 256


def test_blocks_that_cut_store_keys_are_refused(large):
    with pytest.raises(AlignmentError, match=r"multiples of \(16, 32, 16\)"):
        filtered(large, chunks=(16, 32, 16), block=(16, 16, 16))
    assert filtered(large, chunks=(16, 32, 16), block={1: 32}).job is not None


def test_an_unfinished_job_is_resumed_by_other_workers(large):
    store = MemoryStore()
    calls = []

    def function(block, block_id=None):
        calls.append(block.shape)
        if len(calls) == 60:
            raise KeyboardInterrupt
        return -block

    function.__dask_tokenize__ = lambda: "negative"

    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        cm.plan_transform(function, large, (store, "b"), dtype="f4", block=(16, 16, 16)).run()
    with dask.config.set(num_workers=1):
        other = cm.plan_transform(function, large, (store, "b"), dtype="f4", max_mem="1 GB")
        assert other.at_target() == "an unfinished job of this plan, which will be resumed"
        other.run()
    assert set(calls) == {(16, 16, 16)}
    np.testing.assert_array_equal(cm.open_array(store, "b")[...], -large[...])
