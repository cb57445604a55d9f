"""Datasets written to new stores: round trips, encodings, and what a format cannot hold."""

import re
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from packaging.version import Version
from support.cases import cases
from support.datasets import needs_xarray, read, read_by_xarray, refused, series

import chunkmill as cm
from chunkmill.errors import DatasetError, MetadataError, UnknownCodec, UnsupportedFeature
from chunkmill.stores.memory import MemoryStore
from chunkmill.xarray.write import write_dataset

pytest.importorskip("zarr")
cftime = pytest.importorskip("cftime")


@cases(
    ("text", "fmt"),
    [
        (np.array(["abcdef", "c"]), "zarr2"),
        (np.array([b"abcdef", b"c"]), "zarr3"),
        (np.array(["abcdef", "c"], object), "zarr3"),
    ],
)
def test_text_is_never_cut_by_an_encoding(text, fmt):
    """The width that was read with one dataset stays with what was concatenated from it, xarray's own writer cuts."""
    if text.dtype.hasobject:
        needs_xarray("2026.9", "objects in a dask array are loaded to find their type, with a warning")
    stores = [MemoryStore(), MemoryStore()]
    write_dataset(xr.Dataset({"t": ("x", text[1:].astype(text.dtype.char))}), stores[0], format=fmt)
    write_dataset(xr.Dataset({"t": ("x", text)}), stores[1], format=fmt)
    both = xr.concat([read(store).load() for store in stores], "x")
    for encoding in ({}, {"t": {"dtype": "U2" if text.dtype.kind != "S" else "S2"}}):
        for ds in (both.chunk(x=2), both):
            write_dataset(ds, store := MemoryStore(), format=fmt, encoding=encoding)
            assert list(read(store).t.to_numpy()) == [text[1], *text]


@pytest.mark.parametrize("dtype", ["i2", "f4"])
def test_lazy_times_of_any_dtype(dtype):
    """xarray's lazy encoding says this dtype of its blocks, and makes them 64 bits wide."""
    days, store = pd.to_datetime(["2000-01-01", "2000-02-01", "2001-01-01"]), MemoryStore()
    ds = xr.Dataset({"t": ("x", days)}).chunk(x=2)
    write_dataset(ds, store, encoding={"t": {"units": "days since 2000-01-01", "dtype": dtype}})
    assert cm.open_array(store, "t").dtype == np.dtype(dtype)
    xr.testing.assert_equal(read(store).load(), ds.compute())
    block = da.from_array(np.array([1, 31, 366]), chunks=2).map_blocks(lambda each: each, dtype=dtype)
    for resume in (False, True):
        cm.to_store(block, store, "block", mode="w", resume=resume)
        np.testing.assert_array_equal(cm.open_array(store, "block")[...], [1, 31, 366])


# --------------------------------------------------------------------------------------------------------------------
# Round trips: the cases of xarray's backend tests

CASES = {
    "floats": xr.Dataset({"a": ("x", np.array([1.5, np.nan, -0.0, np.inf]))}),
    "float16": xr.Dataset({"a": ("x", np.array([1.5, 2], "f2"))}),
    "integers": xr.Dataset({f"a{k}": ("x", np.array([1, 2, 100], k)) for k in ("i1", "i2", "i4", "i8")}),
    "unsigned": xr.Dataset({f"a{k}": ("x", np.array([1, 2, 200], k)) for k in ("u1", "u2", "u4", "u8")}),
    "booleans": xr.Dataset({"a": ("x", np.array([True, False, True]))}),
    "complex": xr.Dataset({"a": ("x", np.array([1 + 2j, 3j]))}),
    "strings": xr.Dataset({"a": ("x", np.array(["ab", "", "cdef", "é日"]))}),
    "strings_object": xr.Dataset({"a": ("x", np.array(["ab", "", "cdef"], object).astype(np.dtypes.StringDType()))}),
    "bytes": xr.Dataset({"a": ("x", np.array([b"ab", b"", b"cdef"]))}),
    "scalars": xr.Dataset({"a": ((), 3), "b": ((), 2.5), "c": ((), "text")}), "empty": xr.Dataset(),
    "empty_axis": xr.Dataset({"a": (("x", "y"), np.zeros((0, 3))), "b": ("y", np.arange(3.0))}),
    "coords_only": xr.Dataset(coords={"x": [1, 2], "lab": ("x", [1.5, 2.5])}),
    "non_dim_coords": xr.Dataset(
        {"a": (("y", "x"), np.ones((2, 3)))},
        coords={"lat": (("y", "x"), np.ones((2, 3))), "scalar": 3, "y": [1, 2], "lone": ("z", [7])},
    ),
    "unicode_names": xr.Dataset({"größe": ("x", [1, 2]), "日本": ("длина", [1.0])}, attrs={"ключ": "ü"}),
    "attributes": xr.Dataset(
        {"a": ("x", [1], {"s": "text", "i": 3, "f": 2.5, "b": True, "l": [1, 2], "t": "é", "n": None, "d": {"k": [1]}})}
    ),
    "times": xr.Dataset({"a": ("x", np.array(["2000-01-01", "2000-01-02T03:04:05.000000006"], "M8[ns]"))}),
    "times_nat": xr.Dataset({"a": ("x", np.array(["2000-01-01", "NaT", "1999-12-31T12"], "M8[ns]"))}),
    "timedeltas": xr.Dataset({"a": ("x", np.array([1, 2, 3], "m8[D]").astype("m8[ns]"))}),
    "timedeltas_nat": xr.Dataset({"a": ("x", np.array([1, "NaT"], "m8[s]"))}),
    "masked": xr.Dataset({"a": ("x", np.array([1, np.nan, 3]), {}, {"_FillValue": -1, "dtype": "i2"})}),
    "packed": xr.Dataset(
        {
            "a": (
                "x", np.array([-1, 0.1, np.nan, 2.5]), {},
                {"_FillValue": np.int16(-32767), "scale_factor": 0.1, "add_offset": 10.0, "dtype": "i2"},
            )
        }
    ),
    "packed_unsigned": xr.Dataset(
        {
            "a": (
                "x", np.array([1.5, 0.0, np.nan, 127.0]), {},
                {"_FillValue": -1, "_Unsigned": "true", "dtype": "i1", "scale_factor": 0.5, "add_offset": 0.0},
            )
        }
    ),
    "missing_value": xr.Dataset({"a": ("x", np.array([1.0, np.nan]), {}, {"missing_value": -9.0, "_FillValue": -9.0})}),
    "no_fill_value": xr.Dataset({"a": ("x", np.array([1.0, 2.0]), {}, {"_FillValue": None})}),
    "big_endian": xr.Dataset({"a": ("x", np.array([1, 2], ">i4"))}),
    "grid_mapping": xr.Dataset({"a": ("x", [1.0], {"grid_mapping": "crs"}), "crs": ((), 0, {"epsg": 4326})}),
}  # fmt: skip


@cases("case", CASES)
@cases("name", ["zarr2", "zarr3"])
def test_round_trips_are_those_of_xarray(tmp_path, case, name):
    """Of v2 from dask, of v3 from memory: which of both is encoded does not depend on the format."""
    ds = CASES[case].chunk() if name == "zarr2" else CASES[case].copy()
    ours, theirs = str(tmp_path / "ours.zarr"), str(tmp_path / "theirs.zarr")
    write_dataset(ds, ours, format=name)
    ds.to_zarr(theirs, zarr_format=int(name[-1]))
    expected = read_by_xarray(theirs).load()
    for actual in (read(ours).load(), read_by_xarray(ours).load()):
        if case == "strings_object" and name == "zarr2":  # xarray writes them in a fixed width
            expected = actual.assign(a=expected.a.astype(np.dtypes.StringDType()))
        xr.testing.assert_identical(actual, expected)
        for variable in expected.variables:
            if case != "strings_object":
                assert actual[variable].dtype == expected[variable].dtype
            for key in ("units", "calendar", "scale_factor", "add_offset", "_FillValue", "fill_value", "coordinates"):
                if key == "fill_value" and Version(xr.__version__) < Version("2026.9"):
                    continue  # xarray tells fill values since then
                a, b = actual[variable].encoding.get(key), expected[variable].encoding.get(key)
                np.testing.assert_equal(a, b, err_msg=f"{variable} {key}")


NOT_IN_N5 = ["complex", "strings", "strings_object", "bytes", "scalars", "non_dim_coords", "float16", "grid_mapping"]


def test_round_trips_of_n5():
    for case, ds in CASES.items():
        store = MemoryStore()
        if case in NOT_IN_N5:
            with pytest.raises((UnsupportedFeature, MetadataError)):
                write_dataset(ds, store, format="n5")
            assert not list(store.list_prefix("")), case
        else:
            write_dataset(ds, store, format="n5")
            xr.testing.assert_allclose(read(store).load(), ds)


@cases("name", [None, "x", "t"])
def test_an_array_is_written_as_xarray_writes_it(name, tmp_path):
    array = xr.DataArray(np.arange(12).reshape(3, 4), dims=("y", "x"), coords={"x": [1, 2, 3, 4]}, name=name)
    if name == "x":
        array = array.drop_vars("x")
    write_dataset(array, str(tmp_path / "ours"), format="zarr2")
    array.to_zarr(tmp_path / "theirs", zarr_format=2)
    for path in ("ours", "theirs"):
        for engine in ("zarr", "chunkmill"):
            with xr.open_dataarray(tmp_path / path, engine=engine) as read:
                xr.testing.assert_identical(read, array)


def test_cftime(url):
    time = xr.date_range("0001-01-01", periods=3, calendar="noleap", use_cftime=True)
    ds = xr.Dataset({"a": ("time", [1.0, 2, 3])}, coords={"time": time})
    write_dataset(ds, url)
    xr.testing.assert_identical(read(url).load(), ds)
    later = ds.assign_coords(time=xr.date_range("0001-01-04", periods=3, calendar="noleap", use_cftime=True))
    write_dataset(later, url, append_dim="time")
    assert read(url).sizes["time"] == 6
    other = ds.assign_coords(time=xr.date_range("0001-01-07", periods=3, calendar="360_day", use_cftime=True))
    refused(r"0001-01-07 00:00:00 \(360_day\) would read as 0001-01-07 .*\(noleap\)", other, url, append_dim="time")
    refused(r"is stored, got 0001-01-07 00:00:00 \(360_day\)", other, url, region={"time": slice(3, 6)})


def test_objects(url):
    ds = xr.Dataset(
        {
            "text": ("x", np.array(["a", "bb", ""], object)),
            "bytes": ("x", np.array([b"a", b"bb", b""], object)),
            "zeros": ("x", np.array([b"a\0", b"bb", b""], object)),
            "numbers": ("x", np.array([1.0, 2.0, None], object)),
        }
    )
    write_dataset(ds, url)
    for back in (read(url), read_by_xarray(url)):
        assert back.text.to_numpy().tolist() == ["a", "bb", ""]
        assert back.bytes.to_numpy().tolist() == [b"a", b"bb", b""]
        assert back.zeros.to_numpy().tolist() == [b"a\0", b"bb", b""]  # a fixed width would cut the zero
        np.testing.assert_array_equal(back.numbers, [1, 2, np.nan])


MISSING_TEXTS = {
    "strings": np.array(["a", None], np.dtypes.StringDType(na_object=None)),
    "None": np.array(["a", None], object),
    "NaN": np.array(["a", np.nan], object),
    "bytes": np.array([b"a", None], object),
}


@cases("values", MISSING_TEXTS.values())
def test_missing_texts_are_refused(values):
    whole = values.copy()
    whole[1] = b"b" if isinstance(values[0], bytes) else "b"
    for given in (values, da.from_array(values, chunks=-1)):
        ds, store = xr.Dataset({"a": ("x", given)}), MemoryStore()
        refused(r"'a'.*missing among texts.*fillna.*_FillValue", ds, store)
        write_dataset(ds.assign(a=("x", whole)), store)
        refused(r"'a'.*missing among texts", ds, store, append_dim="x")


def test_missing_texts_with_a_marker_are_kept():
    values = np.array(["a", None], object)
    for given in (values, da.from_array(values, chunks=-1)):
        store = MemoryStore()
        write_dataset(xr.Dataset({"a": ("x", given)}), store, encoding={"a": {"_FillValue": "-"}})
        assert list(cm.open_array(store, "a")[...]) == ["a", "-"]


PACKED = {"dtype": "i2", "scale_factor": 0.01}
DAYS = {"units": "days since 2000-01-01", "dtype": "i4"}
NOT_HELD = {
    "too large": ([400.0], {**PACKED, "_FillValue": -1}, r"400.0 would .*range is -327.68 to 327.67.*'dtype': 'int32'"),
    "negative": ([-5.0], {"dtype": "u2", "scale_factor": 0.1}, r"-5.0 would read as 6548.6.*range is 0.0 to 6553.5"),
    "infinite": ([np.inf], {**PACKED, "_FillValue": -1}, r"inf would read as 0.0.*'dtype': 'float64'"),
    "missing": ([np.nan], PACKED, r"nan would read as 0.0.*'_FillValue': -32768"),
    "the marker": ([-0.01], {**PACKED, "_FillValue": -1}, r"-0.01 would read as nan.*'_FillValue': -32768"),
    "integers": ([70000], {"dtype": "i2"}, r"70000 would read as 4464.*'dtype': 'int64'"),
    "digits": ([2**24 + 1], {"dtype": "f4"}, r"16777217 would read as 1.6777216e\+07.*'dtype': 'float64'"),
    "unsigned": ([300.0], {"dtype": "i1", "_Unsigned": "true", "_FillValue": -1}, "300.0 would read as 44.0"),
    "no time": (np.array(["NaT"], "M8[ns]"), DAYS, r"NaT would read as 2000-01-01.*'_FillValue'"),
    "a time that marks": (np.array(["2000-01-01"], "M8[ns]"), {**DAYS, "_FillValue": 0}, "would read as NaT"),
    "a far time": (np.array(["2200-01-01"], "M8[ns]"), {**DAYS, "dtype": "i2"}, r"2020-07-27.*'dtype': 'int64'"),
    "marker out of range": ([1.0], {"dtype": "i2", "_FillValue": 70000}, "range is -32768 to 32767"),
    "marker of fractions": ([1.0], {"dtype": "i2", "_FillValue": 0.5}, "0.5 does not fit int16"),
    "marker NaN": ([1.0], {"dtype": "i2", "missing_value": np.nan}, "nan does not fit int16"),
    "marker NaN of bool": ([True], {"_FillValue": np.nan}, "nan does not fit bool .*or none, in its encoding"),
    "marker NaN of text": (["a", "nan"], {"_FillValue": np.nan}, "_FillValue=nan: float among strings"),
    "marker of times": (np.array(["2000-01-02"], "M8[ns]"), {"_FillValue": 1.5}, "1.5 does not fit int64"),
    "two markers": (
        [1.0],
        {"dtype": "i2", "missing_value": -9, "_FillValue": -8},
        r"conflicting.*encoding=\{'v': \{'_FillValue': -8\}\}",
    ),
    "no dtype": ([1.0], {"dtype": "nope"}, "not understood"),
    "no number": ([1.0], {"dtype": "i2", "scale_factor": "a"}, "xarray cannot encode it by .*scale_factor="),
    "no units": (np.array(["2200-01-01"], "M8[ns]"), {"units": "days since x", "dtype": "i4"}, "by .*units="),
    "no units of durations": (np.array([5], "m8[ns]"), {"units": "furlongs"}, "by .*units="),
    "no characters": (np.array(["a"]), {"_Encoding": "nonsense", "dtype": "S1"}, "by .*_Encoding="),
}


@pytest.mark.filterwarnings("ignore:.*:xarray.SerializationWarning", "ignore:.*:UserWarning")
@cases(("values", "encoding", "said"), NOT_HELD.values())
def test_what_an_encoding_does_not_hold_is_refused(values, encoding, said):
    ds = xr.Dataset({"v": ("x", np.asarray(values))})
    for given in (ds, ds.chunk(x=1)):
        refused(rf"'v'.*{said}", given, MemoryStore(), encoding={"v": encoding})


@cases("name", ["zarr2", "zarr3", "n5"])
def test_a_missing_value_alone_marks_what_is_missing(name):
    """As most of CF's files have it; xarray adds NaN as `_FillValue`, and takes it for a conflict when writing again."""
    ds = xr.Dataset({"v": ("x", np.array([1, np.nan], "f4"), {}, {"missing_value": np.float32(1e20)})})
    for given in (ds, ds.chunk()):
        write_dataset(given, store := MemoryStore(), format=name)
        write_dataset(read(store).load(), again := MemoryStore(), format=name)
        write_dataset(ds, again, append_dim="x")
        np.testing.assert_array_equal(read(again, decode_cf=False).v, np.array([1, 1e20, 1, 1e20], "f4"))
        np.testing.assert_array_equal(read(again).v, [1, np.nan, 1, np.nan])
        write_dataset(ds.fillna(1e20), again, append_dim="x")  # where the caller has put the marker
        np.testing.assert_array_equal(read(again).v[4:], [1, np.nan])
    write_dataset(ds, store := MemoryStore(), format=name, encoding={"v": {"missing_value": None}})
    np.testing.assert_array_equal(read(store, decode_cf=False).v, [1, np.nan])


def test_characters_of_netcdf_are_bytes_of_length_1():
    """Of numpy's dtype 'c', by which a text of one character is a sequence of none."""
    given = np.array([b"a", b"", b"c"]).view("c")
    write_dataset(xr.Dataset({"v": ("x", given), "x": [1, 2, 3]}), store := MemoryStore())
    np.testing.assert_array_equal(read(store).v, np.array([b"a", b"", b"c"]))


def test_markers_of_one_element_are_scalars():
    """As netCDF's libraries may return them."""
    ds = xr.Dataset({"v": ("x", np.array([1, 2], "i2"), {"_FillValue": np.array([2], "i2"), "missing_value": [2]})})
    write_dataset(ds, store := MemoryStore())
    np.testing.assert_array_equal(read(store).v, [1, np.nan])


def test_no_marker_in_the_encoding_does_not_hide_that_of_the_attributes():
    ds = xr.Dataset({"v": ("x", np.arange(3, dtype="i2"), {"_FillValue": np.nan})})  # would be stored as 0
    with pytest.raises(DatasetError, match=r"'v'.*_FillValue=nan: nan does not fit int16.*in its attrs"):
        write_dataset(ds, MemoryStore(), encoding={"v": {"_FillValue": None}})


@cases("sample", ["a", b"a", 1, 1.5])
def test_blocks_of_objects_are_computed_by_their_tasks(sample):
    computed = []

    def block(values):
        computed.append(values.shape)
        return np.full(values.shape, sample, object)

    x = da.zeros((6, 4), chunks=(1, 4)).map_blocks(block, dtype=object, meta=np.empty((0, 0), object))
    store = MemoryStore()
    later = write_dataset(xr.Dataset({"v": (("x", "y"), x)}), store, compute=False)
    assert len(computed) <= 3  # the first of them, to learn what they are
    later.compute()
    assert cm.open_array(store, "v")[...].tolist() == np.full((6, 4), sample, object).tolist()


def test_indexes_of_several_levels_are_an_error_of_ours():
    index = pd.MultiIndex.from_product([["a"], [1, 2]], names=["one", "two"])
    ds = xr.Dataset(coords=xr.Coordinates.from_pandas_multiindex(index, "x"))
    refused(r"'x'.*MultiIndex.*reset_index", ds, MemoryStore())


def days(*others):
    return np.array([cftime.datetime(2000, 1, 1, calendar="noleap"), *others], object)


UNFIT = {
    "dates, None": (days(None), {}, "NoneType"),
    "dates, NaN": (days(np.nan), {}, "float"),
    "dates, text": (days("x"), {}, "str"),
    "dates of two calendars": (
        days(cftime.datetime(2000, 1, 1, calendar="360_day")),
        {},
        "different calendars|360_day",
    ),
    "calendar": (days(*days()), {"calendar": 5, "units": "days since 2000-01-01", "dtype": "i4"}, "calendar.*5"),
    "text as integers": (np.array(["a", "b"]), {"dtype": "i4"}, "int32|i4"),
    "texts as integers": (np.array(["a", "b"], object), {"dtype": "i4"}, "int32|i4"),
    "numbers, text": (np.array([1, "b"], object), {}, "str"),
    "text, number": (np.array(["a", 1], object), {}, "int"),
    "bytes, text": (np.array([b"a", "b"], object), {}, "bytes"),
    "bytes, None": (np.array([b"a", None], object), {}, "missing"),
    "void as integers": (np.zeros(2, "V3"), {"dtype": "i4"}, "int32|i4"),
}


@pytest.mark.filterwarnings("ignore:.*:xarray.SerializationWarning")
@cases(("values", "encoding", "said"), UNFIT.values())
def test_blocks_that_cannot_be_encoded_name_variable_block_and_way_out(values, encoding, said):
    ds, store = xr.Dataset({"v": ("x", values)}), MemoryStore()
    for given in (ds, ds.chunk(x=1)):
        with pytest.raises(DatasetError, match=rf"'v'.*({said})") as caught:
            write_dataset(given, store, encoding={"v": encoding})
        assert caught.value.hint or "got" in caught.value.reason
        assert not [key for key in store.list_prefix("") if key.startswith("v/")]
    if "calendar" not in encoding:
        assert re.search(r"in block \([01],\)", caught.value.reason)


def test_characters_of_dask_stay_lazy_and_keep_their_text():
    computed = []
    text = da.from_array(np.array(["a", "ü", "b"]), chunks=1).map_blocks(lambda b: computed.append(0) or b, dtype="U1")
    store = MemoryStore()
    later = write_dataset(xr.Dataset({"v": ("x", text)}), store, encoding={"v": {"dtype": "S1"}}, compute=False)
    assert len(computed) <= 3
    later.compute()
    assert xr.open_dataset(store, engine="chunkmill").v.to_numpy().tolist() == ["a", "ü", "b"]


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_strings_of_any_length_on_demand(url, name):
    ds = xr.Dataset({"a": ("x", np.array(["a", "bb"]))})
    write_dataset(ds, url, format=name, encoding={"a": {"dtype": str}})
    assert cm.open_array(url, "a").dtype == np.dtypes.StringDType()
    write_dataset(xr.Dataset({"a": ("x", np.array(["a long one"]))}), url, append_dim="x")
    for back in (read(url), read_by_xarray(url)):
        assert back.a.to_numpy().tolist() == ["a", "bb", "a long one"]


# --------------------------------------------------------------------------------------------------------------------
# Encoding


def test_encoding(url):
    ds = series(6)
    encoding = {
        "v": {"chunks": (2, 2), "shards": (4, 4), "compressors": [{"name": "gzip", "configuration": {"level": 2}}]},
        "mask": {"codecs": "raw", "fill_value": 9, "dtype": "i4"},
        "time": {"units": "hours since 1999-12-31", "dtype": "i4"},
    }
    write_dataset(ds, url, encoding=encoding)
    for back in (read(url), read_by_xarray(url, consolidated=True)):
        xr.testing.assert_identical(back.load(), ds)
    v, mask = cm.open_array(url, "v"), cm.open_array(url, "mask")
    assert (v.chunks, v.shards) == ((2, 2), (4, 4))
    assert read(url).v.encoding["compressors"][0] == {"name": "gzip", "configuration": {"level": 2}}
    assert [c.name for c in mask.codecs] == ["bytes"]
    assert (mask.fill_value, mask.dtype) == (9, np.dtype("i4"))
    assert read(url).time.encoding["units"] == "hours since 1999-12-31"


def test_compressors_of_numcodecs_and_of_zarr(tmp_path):
    import numcodecs
    import zarr.codecs

    ds = xr.Dataset({"a": ("x", np.arange(10))})
    v3 = {"compressors": zarr.codecs.BloscCodec(cname="zstd", clevel=2, shuffle="shuffle")}
    write_dataset(ds, tmp_path / "3", encoding={"a": v3})
    assert cm.open_array(tmp_path / "3", "a").codecs[-1].configuration["clevel"] == 2
    v2 = {"compressors": numcodecs.Zlib(3), "filters": [numcodecs.Delta("i8")]}
    write_dataset(ds, tmp_path / "2", format="zarr2", encoding={"a": v2})
    assert [c.name for c in cm.open_array(tmp_path / "2", "a").codecs] == ["numcodecs.delta", "bytes", "numcodecs.zlib"]
    write_dataset(ds, tmp_path / "none", encoding={"a": {"compressors": None}})
    assert [c.name for c in cm.open_array(tmp_path / "none", "a").codecs] == ["bytes"]
    for name in ("3", "2", "none"):
        xr.testing.assert_identical(read_by_xarray(tmp_path / name).load(), ds)


def test_unknown_encoding_is_an_error(url):
    refused(r"'mask'.*encoding 'zlib'; known are.*compressors", series(), url, encoding={"mask": {"zlib": True}})
    refused(r"names unknown variables \['none'\]", series(), url, encoding={"none": {}})
    with pytest.raises(DatasetError, match=r"'fill_value'; known are.*'_FillValue'"):
        write_dataset(series(), url, format="zarr2", encoding={"mask": {"fill_value": 1}})
    with pytest.raises(DatasetError, match=r"'v'.*chunks= names dimensions \['y'\].* are \['time', 'x'\]"):
        write_dataset(series(), url, encoding={"v": {"chunks": {"y": 2}}})
    for chunks in ((2,), [1, 2, 3]):
        refused(r"'v'.*chunks=.* chunk lengths for 2 axes", series(), url, encoding={"v": {"chunks": chunks}})
    refused("nosuch", series(), url, error=UnknownCodec, encoding={"mask": {"codecs": "nosuch"}})
    assert not Path(url).exists()


def test_encoding_from_elsewhere_is_a_wish(tmp_path):
    """What a variable brings along from where it was read is kept as far as it applies."""
    ds = series()
    ds.v.encoding = {"zlib": True, "complevel": 4, "chunksizes": (1, 4), "source": "x.nc", "original_shape": (5, 4)}
    ds["mask"].encoding = {"chunks": (3, 3), "shards": (3,), "fill_value": np.nan}
    write_dataset(ds, tmp_path / "a.zarr")
    xr.testing.assert_identical(read_by_xarray(tmp_path / "a.zarr").load(), ds)


def test_empty_chunks_on_demand(tmp_path):
    ds = xr.Dataset({"a": ("x", np.zeros(4, "i4")), "b": ("x", da.zeros(4, chunks=2, dtype="i4"))})
    write_dataset(ds, tmp_path / "1", write_empty_chunks=True)
    assert (tmp_path / "1/a/c/0").exists()
    assert (tmp_path / "1/b/c/1").exists()
    write_dataset(ds, tmp_path / "2", encoding={"b": {"write_empty_chunks": True}})
    assert not (tmp_path / "2/a/c/0").exists()
    assert (tmp_path / "2/b/c/1").exists()


def test_names_and_types_that_arrays_cannot_have():
    for name in ("a/b", "a\\b", 3, ""):
        refused("expected text without", xr.Dataset({name: ("x", [1])}), MemoryStore())
    for values in (pd.Categorical(["a", "b"]), pd.array([1, None], dtype="Int64"), pd.array(["a"], dtype="string")):
        with pytest.raises(DatasetError, match=r"'a'.*dtype \w+ of pandas, which arrays cannot have; convert it"):
            write_dataset(xr.Dataset({"a": ("x", values)}), MemoryStore())


# --------------------------------------------------------------------------------------------------------------------
# What formats cannot hold


def test_all_that_a_format_cannot_hold_is_named_before_anything_is_written(url):
    ds = series().assign(label=("x", list("abcd")), scalar=3, z=("x", np.ones(4, "c8")))
    with pytest.raises(
        UnsupportedFeature, match=r"n5.*'label': dtype <U1.*'scalar': arrays of 0.*'z': dtype complex64"
    ):
        write_dataset(ds, url, format="n5")
    refused("consolidated metadata", series(), url, error=UnsupportedFeature, format="n5", consolidated=True)
    with pytest.raises(UnsupportedFeature, match=r"'mask': "):
        write_dataset(series(), url, format="zarr2", encoding={"mask": {"shards": (4,), "chunks": (2,)}})
    assert not Path(url).exists()


def test_chunk_keys_of_new_arrays_may_be_nested():
    store, ds = MemoryStore(), xr.Dataset({"t": (("y", "x"), np.ones((4, 4)), {}, {"chunks": (2, 2)})})
    ds.chunkmill.write(store, format="zarr2", encoding={"t": {"chunk_key_encoding": "/"}})
    write_dataset(xr.Dataset({"u": ds.t + 1}), store, mode="a", encoding={"u": {"chunk_key_encoding": "/"}})
    write_dataset(ds + 2, store, mode="r+")
    assert {"t/1/0", "u/0/0"} <= set(store.list_prefix(""))
    xr.testing.assert_equal(xr.open_dataset(store, engine="chunkmill").t, (ds + 2).t)
    with pytest.raises(UnsupportedFeature, match="chunk keys such as"):
        write_dataset(ds, MemoryStore(), format="n5", encoding={"t": {"chunk_key_encoding": "."}})
