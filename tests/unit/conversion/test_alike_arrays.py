"""Targets of many arrays that differ in paths and attributes alone."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.conversion import convert
from chunkmill.conversion.rechunking.plan import choose_rechunk_strategy
from chunkmill.errors import UnsupportedFeature
from chunkmill.stores.memory import MemoryStore

ABOUT = {"shape": (4,), "dtype": "f4", "chunks": (2,), "dimension_names": ("x",)}


@pytest.fixture
def described(monkeypatch):
    """Return the paths of the arrays that were described alone."""
    paths = []

    def describe(source, *args, **kwargs):
        paths.append(source.path)
        return original(source, *args, **kwargs)

    original = convert.describe_target
    monkeypatch.setattr(convert, "describe_target", describe)
    return paths


def many(n, **about):
    store = MemoryStore()
    wanted = {f"a{i:02}": {**ABOUT, "attributes": {"i": i}, **about} for i in range(n)}
    cm.create_arrays(store, wanted, format="zarr2")
    return store


@pytest.mark.parametrize("fmt", ["zarr3", "n5", "zarr3-draft"])
def test_they_are_described_once_and_as_if_alone(described, fmt):
    source, target, alone = many(20, fill_value=0), MemoryStore(), MemoryStore()
    cm.create_array(source, "b", **{**ABOUT, "dimension_names": ("y",)})
    options = {"format": fmt, "codecs": "gzip", "chunks": (4,), "allow": ["dimension_names"]}
    cm.convert(source, target, **options)
    assert described == ["a00", "b"]
    for name in cm.open_group(source):
        cm.convert((source, name), (alone, name), **options)
    documents = {key: target.get(key) for key in target.list_prefix("") if "/" in key}
    assert documents == {key: alone.get(key) for key in documents}
    assert cm.open_array(target, "a07").attributes["i"] == 7


def test_attributes_that_the_format_cannot_hold_are_refused_or_lost_in_theirs_alone(described):
    source = many(3)
    cm.create_array(source, "b", **ABOUT, attributes={"i": 3, "blockSize": [7]})
    with pytest.raises(UnsupportedFeature, match="blockSize"):
        cm.plan_convert(source, MemoryStore(), format="n5", allow=["fill_value"])
    target = MemoryStore()
    cm.convert(source, target, format="n5", allow=["attributes", "fill_value"])
    attributes = {name: dict(array.attributes) for name, array in cm.open_group(target).arrays().items()}
    assert {name: each.get("i") for name, each in attributes.items()} == {"a00": 0, "a01": 1, "a02": 2, "b": 3}
    assert "blockSize" not in attributes["b"]


def test_zeros_of_both_signs_and_nan(described):
    store = MemoryStore()
    fills = [0.0, -0.0, np.nan]
    cm.create_arrays(store, {f"a{i}": {**ABOUT, "fill_value": fill} for i, fill in enumerate(fills)})
    plan = cm.plan_convert(store, MemoryStore(), format="zarr2")
    # xarray would take zeros for missing in Zarr v2: none stands for them, which reads as 0.0
    assert [str(array.fill_value) for array in plan.job.target.arrays] == ["None", "-0.0", "nan"]


def test_arrays_of_one_geometry_are_rechunked_and_compared_by_one_plan():
    choose_rechunk_strategy.cache_clear()
    source, target = many(9), MemoryStore()
    cm.rechunk(source, target, chunks=(3,))
    assert choose_rechunk_strategy.cache_info().misses == 1
    assert cm.verify(source, target)
    assert choose_rechunk_strategy.cache_info().misses <= 3
