"""The argument `region`."""

import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.region_option import cropping
from chunkmill.errors import RegionError
from chunkmill.nodes.opening import walk


@pytest.fixture
def group():
    group = cm.create_group("memory://region-option", overwrite=True)
    group.create_array("t2m", shape=(8, 6), dtype="f4", dimension_names=("time", "lat"))
    group.create_array("lat", shape=(6,), dtype="f4", dimension_names=("lat",))
    group.create_array("level/lat", shape=(3,), dtype="f4", dimension_names=("lat",))
    return group


def _shapes(group, region, paths=("t2m", "lat")):
    arrays = [each for each in walk(group.stored) if isinstance(each, StoredArray) and each.path in paths]
    crop = cropping(region, group.stored, arrays)
    return {array.path: crop(array).shape for array in arrays}


@cases("cut", [slice(1, 4), (1, 4), slice(-5, -2)])
def test_every_array_that_has_the_dimension_is_cropped(group, cut):
    assert _shapes(group, {"lat": cut, "time": slice(5, None)}) == {"t2m": (3, 3), "lat": (3,)}


@cases(
    ("region", "error", "text"),
    [
        ({"lon": (0, 1)}, ValueError, "names dimensions ['lon'], where those of the arrays are ['lat', 'time']"),
        ({"time": slice(0, 4, 2)}, ValueError, "a step of 2"),
        ({"time": 3}, ValueError, "an integer would drop the axis: give (3, 4)"),
        ({"time": (0, 9)}, RegionError, "'t2m': region=[0:9, :]"),
        ({"time": (4, 4)}, RegionError, "axis 0 of length 8 has no elements 4:4"),
        ((slice(0, 2),), TypeError, "give ranges by dimension"),
    ],
)
def test_what_cannot_be_cropped_is_refused(group, region, error, text):
    with pytest.raises(error) as raised:
        _shapes(group, region)
    assert text in str(raised.value)


def test_a_dimension_of_two_lengths_is_refused(group):
    with pytest.raises(ValueError, match="6 in 'lat', 3 in 'level/lat'"):
        _shapes(group, {"lat": (0, 2)}, ("lat", "level/lat"))


@cases("index", [3, (slice(0, 4, 2),), (slice(0, 9), ...), (slice(1), slice(1), slice(1))])
def test_of_one_array_only_slices_are_taken(group, index):
    with pytest.raises(RegionError, match="'t2m': region="):
        cropping(index, group["t2m"].stored, [group["t2m"].stored])


def test_a_number_means_an_axis_of_arrays_with_as_many(group):
    group.create_array("t2m_max", shape=(8, 6), dtype="f4", dimension_names=("time", "lat"))
    assert _shapes(group, {0: (1, 4)}, ("t2m", "t2m_max")) == {"t2m": (3, 6), "t2m_max": (3, 6)}


def test_a_number_means_nothing_where_arrays_have_more_or_fewer_axes(group):
    with pytest.raises(ValueError, match=r"names dimensions \[0\]"):
        _shapes(group, {0: (1, 4)}, ("t2m", "lat"))
