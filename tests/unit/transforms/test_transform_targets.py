"""Targets of a transform: chunks, shards, codecs and dtypes as asked for, or as the first source has them."""

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import RegionError, UnsupportedFeature
from chunkmill.stores.memory import MemoryStore


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
    assert np.isnan(new.fill_value)
    assert [codec.name for codec in target(planned(source, shards=None)).codecs] == ["bytes", "zstd"]
    other = target(planned(source, function=lambda block: block > 0, attributes="keep", codecs="keep", shards=None))
    assert (other.dtype, other.fill_value, dict(other.attributes)) == (np.bool_, False, {"units": "K"})
    assert [codec.name for codec in other.codecs] == ["bytes", "gzip"]


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


@cases(
    ("options", "message"),
    [
        ({"shape": (10, 10)}, r"shape=\(10, 10\), where the blocks of the sources divide \(64, 48\)"),
        ({"dimension_names": ("y", "z")}, r"the sources have no \['z'\]; give shape="),
        ({"dtype": ["f4", "f8", "f2"], "target": [("m", "x"), ("m", "y")]}, "dtype= has 3 values for 2 targets"),
        ({"target": [("m", "x"), ("m", "x/y")], "dtype": "f4"}, "one is in the other"),
        ({"target": []}, "expected at least one place"),
        ({"boundary": "wrap"}, "boundary='wrap'"),
        ({"boundary": 1j}, "boundary=1j: float32, the dtype of a source, does not hold it"),
        ({"boundary": {"z": "nearest"}}, r"boundary= names dimensions \['z'\]"),
        ({"block": {"z": 1}}, r"block= names dimensions \['z'\]"),
        ({"halo": 1, "source_region": lambda region: region}, "source_region= says all that is read"),
    ],
)
def test_options_that_do_not_go_together_are_refused(source, options, message):
    store = MemoryStore()
    places = options.pop("target", (store, "b"))
    places = [(store, path) for _, path in places] if isinstance(places, list) else places
    with pytest.raises(ValueError, match=message):
        planned(source, places, lambda *blocks: blocks, **options)


def test_a_target_that_is_the_source_is_refused(source):
    with pytest.raises(cm.errors.JobError, match="source and target are the same place"):
        planned(source, (source.store, "a"))
    with pytest.raises(TypeError, match="the target is an Array"):
        planned(source, source)


@cases(("options", "error", "message"), [
    ({"boundary": "nearest"}, ValueError, "nothing beyond the ends is read"),
    ({"boundary": {"x": "nearest"}}, ValueError, "nothing beyond the ends is read"),
    ({"halo": 1, "source_region": lambda region: region}, ValueError, "source_region= says all that is read"),
    ({"chunks": (4,)}, RegionError, "1 chunk lengths for 2 axes"),
    ({"shards": (8,)}, RegionError, "1 shard lengths for 2 axes"),
    ({"block": (4,)}, ValueError, "1 values, where the blocks have 2 axes"),
    ({"halo": {"q": 1}}, ValueError, r"names dimensions \['q'\]"),
    ({"attributes": 3}, TypeError, "expected a dict"),
    ({"dimension_names": ("a",)}, ValueError, "give shape="),
    ({"params": {"q": 1}}, TypeError, "cannot be called"),
])  # fmt: skip
def test_an_option_that_cannot_be_used_is_an_error(options, error, message):
    array = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4), dimension_names=("y", "x"))
    with pytest.raises(error, match=message):
        cm.plan_transform(lambda block: block, array, (MemoryStore(), "b"), **options)
