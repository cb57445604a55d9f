"""Append along a dimension: values, documents, interruptions."""

import json
import re
from zipfile import ZipFile

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from support.arrays import filled
from support.cases import cases
from support.datasets import read, read_by_xarray, refused, series
from support.recording import contents

import chunkmill as cm
from chunkmill.errors import DatasetError
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.xarray.write import write_dataset

pytest.importorskip("zarr")


@pytest.mark.parametrize(("attribute", "lazily"), [("bounds", False), ("climatology", True)])
def test_bounds_without_units_take_those_of_their_coordinate(attribute, lazily):
    """As netCDF files have them, and what `convert` makes of these."""

    def days(start, n=1):
        times = np.datetime64("2026-01-01", "ns") + np.timedelta64(1, "D") * np.arange(start, start + n)
        bounds = np.stack([times, times + np.timedelta64(1, "D")], axis=1)
        time = ("time", times, {attribute: "time_bnds"})
        return xr.Dataset({"time_bnds": (("time", "bnds"), bounds)}, coords={"time": time})

    store = MemoryStore()
    attributes = {"units": "hours since 2026-01-01", "calendar": "proleptic_gregorian", attribute: "time_bnds"}
    cm.create_group(store)
    names = {"time": ("time",), "time_bnds": ("time", "bnds")}
    for name, shape, own in (("time", (1,), attributes), ("time_bnds", (1, 2), {})):
        options = {"dtype": "i8", "chunks": shape, "dimension_names": names[name], "attributes": own}
        cm.create_array(store, name, shape=shape, **options)
    cm.open_array(store, "time_bnds", mode="r+")[...] = [[0, 24]]
    later = days(1)
    write_dataset(later.chunk(time=1) if lazily else later, store, append_dim="time")
    np.testing.assert_array_equal(cm.open_array(store, "time_bnds")[...], [[0, 24], [24, 48]])
    write_dataset(later, store, region="auto")
    write_dataset(days(0, 2), store, mode="r+")
    raw = read(store, decode_cf=False).isel(time=slice(1, 2)).load()  # whose bounds say no units either
    write_dataset(raw.assign_coords(time=raw.time + 24) + 24, store, append_dim="time")
    np.testing.assert_array_equal(cm.open_array(store, "time_bnds")[2], [48, 72])
    hours = raw.assign_coords(time=raw.time.assign_attrs(units="days since 2026-01-01"))
    refused(r"'time(_bnds)?'.*units='hours.*in the store, 'days", hours, store, append_dim="time")
    if attribute == "bounds":  # xarray decodes no others
        xr.testing.assert_equal(read(store).load(), days(0, 3))


@cases(("chunk", "name"), [(1, "zarr2"), (3, "zarr3"), (4, "n5"), (7, "zarr3-draft"), (100, "zarr3")])
def test_append(url, chunk, name):
    """Of any length, onto chunks that are full or not, from memory and from dask."""
    parts = [series(5), series(3, "2000-01-06"), series(1, "2000-01-09"), series(6, "2000-01-10")]
    write_dataset(parts[0], url, format=name, encoding={"v": {"chunks": (chunk, 3)}})
    for part, lazily in zip(parts[1:], (True, False, True), strict=True):
        report = write_dataset(part.chunk(time=2) if lazily else part, url, append_dim="time")
        assert set(report.unchanged) == {"mask", "x"}
    xr.testing.assert_identical(read(url).load(), series(15))
    if name in {"zarr2", "zarr3"}:
        xr.testing.assert_identical(read_by_xarray(url, consolidated=True).load(), series(15))


@pytest.mark.parametrize("shards", [(2, 4), (8, 4)], ids=str)
def test_append_to_shards(store, shards):
    write_dataset(series(5), store, encoding={"v": {"chunks": (1, 2), "shards": shards}})
    report = write_dataset(series(6, "2000-01-06").chunk(time=1), store, append_dim="time")
    assert report.variables["v"].n_partial in {1, 2}
    assert report.n_partial == report.variables["v"].n_partial + report.variables["time"].n_partial
    text = str(report)
    assert text.startswith(f"write_dataset: done\n  store keys  {report.n_keys}, {report.n_partial} of them changed ")
    assert re.search(r"\n  unchanged +(x, mask|mask, x)\n +variable .* written *\n +time +2 +0 ", text)
    xr.testing.assert_identical(read(store).load(), series(11))


def test_append_to_an_irregular_grid(store):
    filled(np.arange(5, dtype="i4"), store, "time", chunks=((2, 3),), dimension_names=["time"])
    write_dataset(xr.Dataset(coords={"time": np.arange(5, 12, dtype="i4")}), store, append_dim="time")
    np.testing.assert_array_equal(read(store).time, np.arange(12))
    assert cm.open_array(store, "time").chunks == ((2, 3, 3, 3, 1),)


def test_append_along_a_dimension_without_coordinate(store):
    write_dataset(xr.Dataset({"a": (("t", "x"), np.ones((3, 2)))}), store, consolidated=False)
    write_dataset(xr.Dataset({"a": (("x", "t"), np.full((2, 4), 2.0))}), store, append_dim="t", consolidated=True)
    np.testing.assert_array_equal(read(store, consolidated=True).a, [[1, 1]] * 3 + [[2, 2]] * 4)


def test_units_that_do_not_fit_are_an_error_that_names_those_that_do(store):
    """pydata/xarray#5969: xarray truncates these to whole days."""
    write_dataset(series(), store)
    before = contents(store)
    late = series(2, "2000-01-06").assign_coords(time=pd.to_datetime(["2000-01-06T06", "2000-01-06T12"]))
    for lazily in (late, late.chunk()):
        with pytest.raises(
            DatasetError, match=r"'time'.*whole 'days since 2000-01-01'.*; 'hours since 2000-01-01' would"
        ):
            write_dataset(lazily, store, append_dim="time")
    assert before == contents(store)


@cases(
    ("stored", "given", "message"),
    [
        (np.array([1, 2], "i2"), np.array([1, 40000]), "int16: 40000 would read as -25536"),
        (np.array([1, 2], "i2"), np.array([1.0, 2.5]), "int16: 2.5 would read as 2"),
        (np.array([1, 2], "i2"), np.array([1.0, np.nan]), "int16: nan would read as"),
        (np.array([1, 2], "u1"), np.array([1, -1]), "uint8: -1 would read as 255"),
        (np.array([1, 2], "f4"), np.array([1, 2**24 + 1]), r"float32: 16777217 would read as 1\.?6777216"),
        (np.array([1, 2], "f4"), np.array([1, 1e40]), "float32: 1e\\+40 would read as inf"),
        (np.array(["a", "b"]), np.array(["a", "bcd"]), "<U1: .*3 characters, as 'bcd' has, in .* dtype str"),
        (np.array([b"ab", b"b"]), np.array([b"a", b"bcd"]), r"\|S2: .*3 characters, as \"b'bcd'\" has, in"),
        (np.array(["a", "b"]), np.array([1, 2]), r"the store holds str, got \d of int"),
        (np.array([True, False]), np.array([2, 3]), r"bool: \d would read as True"),
        (
            np.array(["2000"], "M8[ns]"),
            np.array([1, 2]),
            "units='days since 2000-01-01 00:00:00' in the store, None here; convert them, or pass times",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")  # numpy's, of casts in dask's tasks
def test_values_that_the_store_cannot_hold(store, stored, given, message):
    write_dataset(xr.Dataset({"a": ("x", stored)}), store)
    ds = xr.Dataset({"a": ("x", given)})
    for part in (ds, ds.chunk(x=1)):
        refused(message, part, store, append_dim="x")
    xr.testing.assert_identical(read(store).load(), xr.Dataset({"a": ("x", stored)}))


@cases(
    ("stored", "given", "encoding"),
    [
        (np.array([1.5, 2], "f4"), np.array([0.1, np.nan, np.inf]), {}),
        (np.array([1, 2], "i2"), np.array([3.0, 4.0]), {}),
        (np.array([1, 2], "i8"), np.array([3, 4], "u1"), {}),
        (np.array([1, np.nan]), np.array([3, np.nan]), {"dtype": "i2", "_FillValue": -1}),
        (
            np.array([1, np.nan]),
            np.array([0.123, 99.4, np.nan]),
            {"dtype": "i2", "_FillValue": -1, "scale_factor": 0.01},
        ),
        (np.array([1, np.nan]), np.array([0.1, 1e-9]), {"dtype": "f4", "scale_factor": 0.1, "add_offset": 5.0}),
        (np.array(["a", "bcd"]), np.array(["e", "é"]), {}),
        (np.array(["a", "bcd"]), np.array(["e", "é"], object), {}),
        (np.array([True, False]), np.array([False, True]), {}),
        (np.array(["2000-01-01"], "M8[ns]"), np.array(["2000-01-03", "NaT"], "M8[s]"), {}),
        (
            np.array(["2000-01-01"], "M8[ns]"),
            np.array(["2000-01-03T12"], "M8[s]"),
            {"units": "days since 1999-01-01", "dtype": "f8"},
        ),
        (np.array([1], "m8[h]").astype("m8[s]"), np.array([3, "NaT"], "m8[s]") * 3600, {}),
    ],
)
@pytest.mark.filterwarnings("ignore:variable a has data in the form of a dask array with dtype=object")
def test_values_that_the_store_can_hold(stored, given, encoding):
    ds = xr.Dataset({"a": ("x", given)})
    for name, part in (("zarr2", ds), ("zarr3", ds.chunk(x=1))):
        write_dataset(xr.Dataset({"a": ("x", stored, {}, encoding)}), store := MemoryStore(), format=name)
        write_dataset(part, store, append_dim="x")
        back = read(store).a[len(stored) :]
        if given.dtype.kind == "f":
            np.testing.assert_allclose(back, given, atol=0.005 if "scale_factor" in encoding else 0, rtol=1e-6)
        else:
            np.testing.assert_array_equal(back, given)


UNDECODED = {
    "packed": (np.array([1.5, np.nan]), {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}, [4, -1]),
    "unsigned": (np.array([200.0, np.nan]), {"dtype": "i1", "_Unsigned": "true", "_FillValue": -1}, [-56, -1]),
    "times": (np.array(["2000-01-01"], "M8[ns]"), {"units": "hours since 1999-12-31"}, [30, 24]),
    "durations": (np.array([3, 24], "m8[h]").astype("m8[ns]"), {"units": "hours"}, [30, 24]),
    "NaN": (np.array([1.5, np.nan], "f4"), {}, [2.0, np.nan]),
}


@cases("case", UNDECODED)
def test_data_opened_without_decoding_go_back_as_they_are(case):
    stored, encoding, elements = UNDECODED[case]
    write_dataset(xr.Dataset({"a": ("x", stored, {}, encoding)}), store := MemoryStore(), format="zarr2")
    raw = read(store, decode_cf=False).load()
    a = xr.Dataset({"a": ("x", np.array(elements, raw.a.dtype), raw.a.attrs)})
    write_dataset(a, store, append_dim="x")
    write_dataset(a, alone := MemoryStore())  # a new array too
    for each in (read(store, decode_cf=False).a[len(stored) :], read(alone, decode_cf=False).a):
        np.testing.assert_array_equal(each, elements)
    for key in raw.a.attrs.keys() - {"dtype"}:  # the same numbers, which mean others: of another file, for example
        if case != "NaN":
            other = a.assign(a=a.a.assign_attrs({key: 7 if key != "units" else "days"}))
            refused(f"'a'.*{key}=.* in the store, .* here.*pass times and decoded values", other, store, append_dim="x")


def test_other_units_are_refused(store):
    kelvin, celsius = (xr.Dataset({"t": ("x", [280.0], {"units": units})}) for units in ("K", "degC"))
    write_dataset(kelvin, store)
    refused(r"'t'.*mean others in the store: units='K' in the store, 'degC' here", celsius, store, append_dim="x")
    write_dataset(xr.Dataset({"t": ("x", [281.0])}), store, append_dim="x")  # which says none
    np.testing.assert_array_equal(read(store).t, [280, 281])


def test_coordinates_that_differ_are_an_error_that_shows_them(store):
    """pydata/xarray#11101: xarray overwrites them, and relabels what was stored."""
    write_dataset(series(), store)
    other = series(2, "2000-01-06").assign_coords(x=np.array([0, 10, 21, 30]))
    for ds in (other, other.chunk(x=1)):
        with pytest.raises(
            DatasetError, match=r"'x'.*1 of 4 values differ.*at \[2\]: 20 is stored, got 21; .*drop_vars\('x'\)"
        ):
            write_dataset(ds, store, append_dim="time")
    changed = series(2, "2000-01-06").assign(mask=("x", da.zeros(4, chunks=2, dtype="i2")))
    refused(r"'mask'.*4 of 4 values differ.*at \[0\]: 1 is stored, got 0", changed, store, append_dim="time")
    write_dataset(changed.drop_vars("mask"), store, append_dim="time")
    xr.testing.assert_identical(read(store).load(), series(7))


def test_variables_without_the_dimension_may_be_left_alone(store):
    write_dataset(series(), store)
    other = series(2, "2000-01-06").assign(mask=("x", da.zeros(4, chunks=2, dtype="i2")))
    report = write_dataset(other, store, append_dim="time", mode="a-")
    assert (set(report.variables), report.unchanged) == ({"v", "time"}, ("x",))
    xr.testing.assert_identical(read(store).load(), series(7))
    # which would relabel what is appended
    refused(r"'x'.*1 of 4 values differ", other.assign_coords(x=[0, 10, 21, 30]), store, append_dim="time", mode="a-")


def test_an_append_must_be_complete(store):
    write_dataset(series(), store)
    later = series(2, "2000-01-06")
    with pytest.raises(DatasetError, match=r"variables \['time', 'v'\] have it too"):
        write_dataset(
            later[["mask"]].expand_dims(time=2).drop_vars("mask").assign(w=("time", [1, 2])), store, append_dim="time"
        )
    refused(r"'w'.*only the appended elements along 'time'", later.assign(w=("time", [1, 2])), store, append_dim="time")
    refused("append_dim='y' is not a dimension of the store", later, store, append_dim="y")
    refused("append_dim='time' is not a dimension of the dataset", later[["mask"]], store, append_dim="time")
    write_dataset(later.assign(fixed=("x", [9, 8, 7, 6])), store, append_dim="time")
    np.testing.assert_array_equal(read(store).fixed, [9, 8, 7, 6])


def test_labels_that_are_stored_already_are_refused_and_told_as_times(store):
    """Compared as they are stored: the time in seconds, and text."""
    write_dataset(series(4), store, "a")
    before = contents(store)
    later = series(3, "2000-01-03")
    later["time"] = later["time"].astype("M8[s]")
    for given, path in ((later, "a"), (xr.DataTree.from_dict({"/a": later}), "")):
        refused(r"2 of 3 labels are stored already: 2000-01-03T.*region='auto'", given, store, path, append_dim="time")
    assert contents(store) == before
    write_dataset(xr.Dataset({"v": ("run", [1, 2])}, {"run": ["a", "bé"]}), store, "texts")
    with pytest.raises(DatasetError, match="1 of 2 labels are stored already: bé"):
        write_dataset(xr.Dataset({"v": ("run", [3, 4])}, {"run": ["c", "bé"]}), store, "texts", append_dim="run")


def test_what_an_append_left_behind_is_no_data_later(store):
    """Chunks past the end, of an append that failed, must not show when a later one leaves chunks absent."""
    write_dataset(series(), store, encoding={"v": {"chunks": (1, 4)}})
    store.set("v/c/6/0", store.get("v/c/1/0"))
    later = series(2, "2000-01-06")
    later["v"][:] = np.nan
    write_dataset(later, store, append_dim="time")
    assert np.isnan(read(store).v[5:]).all()


def test_each_write_is_in_a_zip_file_at_once(tmp_path):
    """For other programs, while the store is open here."""
    store = open_store(tmp_path / "x.zip")
    for given, options in (
        (series(), {}),
        (series(2, "2000-01-06"), {"append_dim": "time"}),
        (series(7).assign_attrs(more=1), {"mode": "a"}),
    ):
        write_dataset(given, store, **options)
        with ZipFile(tmp_path / "x.zip") as file:
            assert json.loads(file.read("v/zarr.json"))["shape"][0] == read(store).sizes["time"]
            assert json.loads(file.read("zarr.json"))["attributes"] == given.attrs


def test_variables_that_differ_in_length_are_not_appended_to():
    store, two = MemoryStore(), xr.Dataset({"a": ("t", [1, 2]), "b": ("t", [3, 4])})
    write_dataset(two, store)
    cm.open_array(store, "a", mode="r+").resize(3)
    refused(r"lengths of 't' differ in the store: .*'a': 3", two, store, append_dim="t")
