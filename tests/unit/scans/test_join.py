"""Sets of several files, joined: order, values that are loaded, and what does not agree."""

import numpy as np
import pytest

from chunkmill.errors import ScanError
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.nodes.api import open_group
from chunkmill.scans.join import LoadedArray, ParsedFile, joined
from chunkmill.stores.reference import ReferenceStore

EMPTY = b'{"zarr.json": {"zarr_format": 3, "node_type": "group"}}'


def part(name, values, **attributes):
    array = LoadedArray("time", np.asarray(values), attributes, 0)
    return ParsedFile(name, parse_reference_json(EMPTY), {"time": array})


def times(files, **options):
    return open_group(ReferenceStore(joined(files, ["time"], **options).references))["time"][...].tolist()


def test_files_follow_one_another_as_their_values_do():
    files = [part("b", [4, 5]), part("c", [0]), part("a", [1, 2, 3])]
    assert times(files) == [0, 1, 2, 3, 4, 5]
    assert times(files, by_name=True) == [4, 5, 0, 1, 2, 3]


@pytest.mark.parametrize("values", [[2, 3], [3, 9], [0, 9]])
def test_values_that_overlap_name_both_files(values):
    with pytest.raises(ScanError, match=r"overlap those of"):
        times([part("a", [1, 2, 3]), part("b", values)])


def test_values_without_a_gap_do_not_overlap():
    assert times([part("a", [1, 2]), part("b", [3])]) == [1, 2, 3]


def test_times_are_rewritten_in_the_units_of_the_first_file():
    first = part("a", [0, 1], units="days since 2000-01-01", calendar="standard")
    second = part("b", [48, 60], units="hours since 2000-01-01", calendar="standard")
    with pytest.raises(ScanError, match="'time' in b: units is 'hours since 2000-01-01', not 'days since 2000-01-01'"):
        times([first, second])
    assert times([first, second], rewrite_units=True) == [0.0, 1.0, 2.0, 2.5]


def test_other_scales_are_never_rewritten():
    with pytest.raises(ScanError, match="scale_factor is 2, not 1"):
        times([part("a", [0], scale_factor=1), part("b", [1], scale_factor=2)], rewrite_units=True)


def test_an_array_in_one_file_alone_is_named():
    lacking = ParsedFile("b", parse_reference_json(EMPTY), {})
    with pytest.raises(ScanError, match="'time' in only one of b and a"):
        times([part("a", [0]), lacking])


def test_files_of_short_arrays_alone_are_listed():
    group = open_group(ReferenceStore(joined([part("a", [0]), part("b", [1])], ["time"]).references))
    assert list(group) == ["time"]


def test_gaps_are_named():
    found = joined([part("a", [0, 1]), part("b", [2, 3]), part("c", [9, 10])], ["time"])
    assert found.gaps == ("time 3 to 9, before c",)
