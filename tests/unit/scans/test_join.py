"""Sets of several files, joined: order, values that are loaded, and what does not agree."""

import json
from datetime import date

import numpy as np
import pytest
from support.cases import cases

from chunkmill.errors import ScanError
from chunkmill.formats.references.json import parse_reference_json
from chunkmill.nodes.api import open_group
from chunkmill.scans.join import LoadedArray, ParsedFile, _one_after_the_other, joined, parsed_file
from chunkmill.scans.parse import ScannedFile
from chunkmill.stores.reference import ReferenceStore, Targets

EMPTY = b'{"zarr.json": {"zarr_format": 3, "node_type": "group"}}'
DAYS = {"units": "days since 2000-01-01"}


def part(name, values, **attributes):
    array = LoadedArray(("time",), np.asarray(values), attributes, 0)
    return ParsedFile(name, parse_reference_json(EMPTY), {"time": array})


def with_bounds(name, values, units, *, bounds="bounds", of_bounds=None, **attributes):
    """Return a file whose times and bounds, a day long, are in days."""
    found = part(name, values, units=units, **{bounds: "b"}, **attributes)
    times = np.asarray(values)
    own = LoadedArray(("time", "nv"), np.stack([times, times + 1], 1), of_bounds or {}, 0)
    return ParsedFile(name, found.references, {**found.loaded, "b": own})


def group_of(files, **options):
    return open_group(ReferenceStore(joined(files, ["time"], **options).references))


def times(files, **options):
    return group_of(files, **options)["time"][...].tolist()


def test_files_follow_one_another_as_their_values_do():
    files = [part("b", [4, 5]), part("c", [0]), part("a", [1, 2, 3])]
    assert times(files) == [0, 1, 2, 3, 4, 5]
    assert times(files, by_name=True) == [4, 5, 0, 1, 2, 3]


@cases("values", [[2, 3], [3, 9], [0, 9]])
def test_values_that_overlap_name_both_files(values):
    with pytest.raises(ScanError, match=r"overlap those of"):
        times([part("a", [1, 2, 3]), part("b", values)])


def test_times_are_rewritten_in_the_units_of_the_first_file():
    first = part("a", [0, 1], units="days since 2000-01-01", calendar="standard")
    second = part("b", [48, 60], units="hours since 2000-01-01")
    assert times([first, second]) == [0.0, 1.0, 2.0, 2.5]


@cases("bounds", ["bounds", "climatology"])
@cases("own", [True, False])
def test_bounds_are_rewritten_with_their_times(bounds, own):
    files = [
        with_bounds(name, [0, 1], units, bounds=bounds, of_bounds={"units": units} if own else None)
        for name, units in (("b", "days since 2000-02-01"), ("a", "days since 2000-01-01"))
    ]
    assert sorted(group := group_of(files)) == ["b", "time"]
    # in the units of the first given, though the other one stands first
    assert group["time"].attributes["units"] == "days since 2000-02-01"
    assert group["time"][...].tolist() == [-31, -30, 0, 1]
    assert group["b"][...].tolist() == [[-31, -30], [-30, -29], [0, 1], [1, 2]]
    assert group["b"].attributes.get("units") == ("days since 2000-02-01" if own else None)


def test_bounds_in_units_of_their_own_are_rewritten_alone():
    files = [with_bounds(u, [n, n + 1], "days since 2000-01-01", of_bounds={"units": u}) for n, u in BOUNDS]
    group = group_of(files)
    assert group["time"][...].tolist() == [0, 1, 2, 3]
    assert group["b"][...].tolist() == [[0, 1], [1, 2], [12, 13], [13, 14]]


BOUNDS = [(0, "days since 2000-01-01"), (2, "days since 2000-01-11")]


def test_times_that_the_first_unit_holds_inexactly_are_written_in_a_finer_one():
    files = [part("a", [0, 1], **DAYS), part("b", [20, 40], units="minutes since 2054-01-01")]
    array = group_of(files)["time"]
    assert (array.attributes["units"], array.dtype.kind) == ("hours since 2000-01-01", "f")
    files = [part("a", [0.0, 1.0], **DAYS), part("b", [1 / 3, 2 / 3], units="seconds since 2054-01-01")]
    array = group_of(files)["time"]
    assert array.attributes["units"] == "microseconds since 2000-01-01"
    day = 86_400 * 10**6
    assert array[...].tolist() == [0, day, 19_724 * day + 333_333, 19_724 * day + 666_667]


def test_missing_times_stay_missing():
    files = [part("a", [0, -5], **DAYS, _FillValue=-5), part("b", [48, -5], units="hours since 2000", _FillValue=-5)]
    assert times(files, by_name=True) == [0, -5, 2, -5]
    files[1] = part("b", [-120, -5], units="hours since 2000-01-01", _FillValue=-5)  # a time of the missing value
    assert times(files, by_name=True) != [0, -5, -5, -5]


@cases(
    ("values", "attributes", "said"),
    [
        ([31], {"units": "days since 2000-01-01", "calendar": "360_day"}, "'time' in b: calendar is '360_day', not 'standard'"),
        ([31], {"units": "hours since 2000-01-01", "calendar": "noleap"}, "'time' in b: calendar is 'noleap', not 'standard'"),
        ([31], {"units": "months since 2000-01-01"}, "'months' of 'months since 2000-01-01' have no fixed length"),
        ([2.4e10 + 2**-18], {"units": "hours since 2000-01-01"}, "no unit since 2000-01-01 holds all of them exactly in int64"),
        ([31], {"units": "days since the flood"}, "'time' cannot be written in one unit: 'days since the flood'"),
        ([31], {"units": "Pa"}, "'time' in b: units is 'Pa', not 'days since 2000-01-01' as in a"),
        ([31], {"units": "days"}, "'time' in b: units is 'days', not"),
        ([31], {"units": "hours since 2000-01-01", "scale_factor": 2}, "scale_factor is 2, not None"),
    ],
)  # fmt: skip
def test_what_cannot_be_rewritten_names_file_and_variable(values, attributes, said):
    with pytest.raises(ScanError) as caught:
        times([part("a", [0, 1], **DAYS), part("b", values, **attributes)])
    assert said in str(caught.value)


def test_names_of_one_calendar_are_equal():
    pytest.importorskip("cftime")
    first = part("a", [0, 1], units="days since 2001-01-01", calendar="noleap")
    files = [first, part("b", [2], units="days since 2001-01-01", calendar="365_day")]
    files.append(part("c", [0], units="days since 2005-01-01", calendar="noleap"))
    assert times(files) == [0, 1, 2, 4 * 365]


@pytest.mark.filterwarnings("ignore:Unable to decode time axis")  # of xarray
def test_times_before_the_calendar_was_reformed():
    pytest.importorskip("cftime")
    files = [part("a", [0], **DAYS), part("b", [0], units="days since 1582-10-04")]
    assert times(files) == [-(date(2000, 1, 1) - date(1582, 10, 15)).days - 1, 0]


def test_bounds_that_are_not_loaded_are_named():
    files = [part(name, [0, 1], units=f"days since {name}", bounds="b") for name in ("2000-01-01", "2000-02-01")]
    assert times(files) == [0, 1, 31, 32]  # of bounds that no file has
    document = parse_reference_json(EMPTY.replace(b"{", b'{"b/zarr.json": {}, ', 1))
    with pytest.raises(ScanError, match=r"their bounds 'b' in 2000-01-01 are no numbers along them of at most 4"):
        joined([ParsedFile(each.url, document, each.loaded) for each in files], ["time"])


def test_other_scales_are_never_rewritten():
    with pytest.raises(ScanError, match="scale_factor is 2, not 1"):
        times([part("a", [0], scale_factor=1), part("b", [1], scale_factor=2)])
    with pytest.raises(ScanError, match="'time' in b: dtype: float64, not int64 as in a"):
        times([part("a", [0]), part("b", [1.5])])


def test_files_at_one_place_along_a_dimension_have_the_same_values():
    files, values = [part("a", [0]), part("b", [1])], [np.array([0]), np.array([1])]
    with pytest.raises(ScanError, match="b: its values of 'time' are not those of a"):
        _one_after_the_other("time", files, values, [(0, 0), (0, 1)], 0)
    assert _one_after_the_other("time", files, values, [(0, 0), (0, 1)], 1).tolist() == [0, 1]
    missing = [np.array([0.5, np.nan])] * 2
    np.testing.assert_array_equal(_one_after_the_other("time", files, missing, [(0, 0), (0, 1)], 0), [0.5, np.nan])


def test_an_array_in_one_file_alone_is_named():
    lacking = ParsedFile("b", parse_reference_json(EMPTY), {})
    with pytest.raises(ScanError, match="'time' in only one of b and a"):
        times([part("a", [0]), lacking])


def test_short_arrays_in_groups_are_loaded_with_the_fill_value_of_zarr_v2(tmp_path, monkeypatch):
    (tmp_path / "a.bin").write_bytes(np.array([3, -5], "<i4").tobytes())
    array = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "fill_value": -5, "order": "C"}
    refs = {
        ".zgroup": {"zarr_format": 2},
        "g/.zgroup": {"zarr_format": 2},
        "g/time/.zarray": array | {"filters": None, "compressor": None},
        "g/time/.zattrs": {"_ARRAY_DIMENSIONS": ["time"]},
        "g/time/0": [str(tmp_path / "a.bin")],
        "g/time/1": [str(tmp_path / "x.nc"), 1, 8],
    }
    file = ScannedFile(str(tmp_path / "x.nc"))
    monkeypatch.setattr(file, "range", lambda start, stop: b"?\7\0\0\0\1\1\0\0?"[start:stop])  # of blocks in memory
    found = parsed_file(file, parse_reference_json(json.dumps(refs).encode()), Targets(file.url), ["time"])
    time = found.loaded["g/time"]
    assert (time.dims, time.values.tolist(), time.attributes["_FillValue"]) == (("time",), [3, -5, 7, 257], -5)
    assert set(found.references.keys()) == {".zgroup", "g/.zgroup"}


def test_gaps_are_named():
    found = joined([part("a", [0, 1]), part("b", [2, 3]), part("c", [9, 10])], ["time"])
    assert found.gaps == ("time 3 to 9, before c",)
