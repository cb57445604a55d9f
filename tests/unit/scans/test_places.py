"""Places of files along several dimensions: by values, by names, by nested lists; overlaps, holes and gaps."""

import numpy as np
import pytest

from chunkmill.errors import ScanError
from chunkmill.scans.join import places_of


def places(values, dims=("time", "lat"), **options):
    """Return the places of files named by the letters of the alphabet."""
    n = len(next(iter(values.values()))) if values else options.pop("n")
    found = {dim: [np.asarray(each) for each in parts] for dim, parts in values.items()}
    return places_of([chr(97 + i) for i in range(n)], dims, found, **options)


TIMES, LATS = [[2, 3], [0, 1], [2, 3], [0, 1]], [[5, 6], [5, 6], [0, 1], [0, 1]]


def test_files_fill_a_box_by_their_values():
    assert places({"time": TIMES, "lat": LATS})[0] == [(1, 1), (0, 1), (1, 0), (0, 0)]


def test_names_decide_the_order_of_equal_values():
    assert places({"time": TIMES, "lat": LATS}, by_name=True)[0] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_values_that_fall_keep_falling():
    assert places({"time": TIMES, "lat": [part[::-1] for part in LATS]})[0] == [(1, 0), (0, 0), (1, 1), (0, 1)]


def test_texts_are_ordered_too():
    parts = [np.array([each], np.dtypes.StringDType()) for each in ("b", "a")]
    assert places_of(["x", "y"], ["member"], {"member": parts})[0] == [(1,), (0,)]


def test_one_dimension_without_a_coordinate_is_in_the_order_of_the_files():
    assert places({"time": TIMES})[0] == [(1, 0), (0, 0), (1, 1), (0, 1)]
    assert places({"time": TIMES}, ("tile", "time"))[0] == [(0, 1), (0, 0), (1, 1), (1, 0)]


def test_two_dimensions_without_coordinates_need_lists():
    with pytest.raises(ScanError, match="no coordinates of 'time', 'lat': give nested lists"):
        places({}, n=4)


def test_lists_decide():
    given = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert places({}, n=4, listed=given)[0] == given


@pytest.mark.parametrize("given", [None, [(0, 0), (0, 1), (1, 0)]])
def test_a_place_without_a_file_is_named(given):
    shown = r"time 2 to 3, lat 5 to 6" if given is None else "time number 1, lat number 1"
    with pytest.raises(ScanError, match=rf"3 files do not fill the 2 x 2 places along 'time', 'lat'.*\n  {shown}"):
        places({"time": TIMES[1:], "lat": LATS[1:]}, listed=given)


def test_two_files_at_one_place_are_named():
    with pytest.raises(
        ScanError, match=r"c: its values of 'time', 2 to 3; values of 'lat', 5 to 6, overlap those of a.*leave one out$"
    ):
        places({"time": [[2, 3], [0, 1], [2, 3]], "lat": [[5, 6]] * 3})


def test_values_that_overlap_in_part_are_named():
    values = {"time": [[0], [0]], "lat": [[0, 1], [1, 3]]}
    with pytest.raises(ScanError, match=r"values of 'lat', 1 to 3, overlap those of a, 0 to 1.*order='names'"):
        places(values)
    assert places(values, by_name=True)[0] == [(0, 0), (0, 1)]


def test_gaps_are_named_along_each_dimension():
    found = places({"time": [[0, 1], [0, 1], [7, 8], [7, 8]], "lat": [[0, 1], [2, 3], [0, 1], [2, 3]]})
    assert found[1] == ("time 1 to 7, before c",)


def test_files_of_no_values_are_places_of_their_own():
    assert places({"time": [[1], [], []]}, ["time"])[0] == [(2,), (0,), (1,)]
