"""Writing datasets: what xarray's zarr engine reads back, what appends and regions do, and what is refused."""

import json
import pickle
import warnings
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from clusters import cluster_of
from recording import FailingStore, RecordingStore

import chunkmill as cm
from chunkmill.errors import (
    DatasetError,
    JobError,
    MetadataError,
    NodeExists,
    NodeNotFound,
    StoreError,
    UnknownCodec,
    UnsupportedFeature,
)
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import open_store
from chunkmill.xarray.write import write_dataset

pytestmark = [
    # zarr-python on its own data types and on its consolidated metadata
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
]

LAYOUTS = {
    "zarr2": {"format": "zarr2"},
    "zarr3": {"format": "zarr3"},
    "zarr3-draft": {"format": "zarr3-draft"},
    "n5": {"format": "n5"},
}


def read(url, **kwargs):
    return xr.open_dataset(url, engine="chunkmill", **kwargs)


def read_by_xarray(url, **kwargs):
    return xr.open_dataset(url, engine="zarr", **kwargs)


def series(n=5, start="2000-01-01", **encoding):
    """n days of a small field; values tell where they are."""
    time = pd.date_range(start, periods=n)
    first = (time[0] - pd.Timestamp("2000-01-01")).days
    values = (first + np.arange(n))[:, None] * 100.0 + np.arange(4) + 1
    ds = xr.Dataset(
        {"v": (("time", "x"), values.astype("f4"), {"units": "K"}), "mask": ("x", np.array([1, 2, 3, 4], "i2"))},
        coords={"time": time, "x": np.arange(4) * 10},
        attrs={"title": "a series"},
    )
    ds.time.encoding = {"units": "days since 2000-01-01", "dtype": "int64", **encoding}
    return ds


TEXTS = [np.array(["abcdef", "c"]), np.array([b"abcdef", b"c"]), np.array(["abcdef", "c"], object)]


@pytest.mark.parametrize("text", TEXTS, ids=["text", "bytes", "objects"])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_text_is_never_cut_by_an_encoding(text, lazy, fmt):
    """The width that was read with one dataset stays with what was concatenated from it, xarray's own writer cuts."""
    urls = ["memory://text-short", "memory://text-long"]
    write_dataset(xr.Dataset({"t": ("x", text[1:].astype(text.dtype.char))}), urls[0], format=fmt, mode="w")
    write_dataset(xr.Dataset({"t": ("x", text)}), urls[1], format=fmt, mode="w")
    both = xr.concat([read(url).load() for url in urls], "x")
    for encoding in ({}, {"t": {"dtype": "U2" if text.dtype.kind != "S" else "S2"}}):
        ds = both.chunk(x=2) if lazy else both
        write_dataset(ds, "memory://text-both", format=fmt, mode="w", encoding=encoding)
        assert list(read("memory://text-both").t.to_numpy()) == [text[1], *text]


@pytest.mark.parametrize("dtype", ["i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("resume", [False, True])
def test_lazy_times_of_any_dtype(dtype, resume):
    """xarray's lazy encoding says this dtype of its blocks, and makes them 64 bits wide."""
    days = pd.to_datetime(["2000-01-01", "2000-02-01", "2001-01-01"])
    encoding = {"t": {"units": "days since 2000-01-01", "dtype": dtype}}
    ds = xr.Dataset({"t": ("x", days)}).chunk(x=2)
    write_dataset(ds, "memory://lazy-times", mode="w", encoding=encoding)
    assert cm.open_array("memory://lazy-times", "t").dtype == np.dtype(dtype)
    xr.testing.assert_equal(read("memory://lazy-times").load(), ds.compute())
    block = da.from_array(np.array([1, 31, 366]), chunks=2).map_blocks(lambda each: each, dtype=dtype)
    cm.to_store(block, "memory://lazy-block", mode="w", resume=resume)
    np.testing.assert_array_equal(cm.open_array("memory://lazy-block")[...], [1, 31, 366])


def test_lazy_times_that_do_not_fit():
    days = pd.to_datetime(["2000-01-01", "2200-01-01"])
    ds = xr.Dataset({"t": ("x", days)}).chunk(x=1)
    encoding = {"t": {"units": "days since 2000-01-01", "dtype": "i2"}}
    with pytest.raises(ValueError, match="73049 does not fit int16"):
        write_dataset(ds, "memory://lazy-times", mode="w", encoding=encoding)


def assert_round_trip(ds, url, **kwargs):
    report = write_dataset(ds, url, **kwargs)
    xr.testing.assert_identical(read(url).load(), ds.compute())
    if kwargs.get("format", "zarr3") in {"zarr2", "zarr3"}:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Failed to open Zarr store with consolidated")
            xr.testing.assert_identical(read_by_xarray(url).load(), ds.compute())
    return report


# --------------------------------------------------------------------------------------------------------------------
# Round trips: the cases of xarray's backend tests

CASES = {
    "floats": xr.Dataset({"a": ("x", np.array([1.5, np.nan, -0.0, np.inf]))}),
    "float32": xr.Dataset({"a": ("x", np.array([1.5, np.nan], "f4"))}),
    "float16": xr.Dataset({"a": ("x", np.array([1.5, 2], "f2"))}),
    "integers": xr.Dataset({f"a{k}": ("x", np.array([1, 2, 100], k)) for k in ("i1", "i2", "i4", "i8")}),
    "unsigned": xr.Dataset({f"a{k}": ("x", np.array([1, 2, 200], k)) for k in ("u1", "u2", "u4", "u8")}),
    "booleans": xr.Dataset({"a": ("x", np.array([True, False, True]))}),
    "complex": xr.Dataset({"a": ("x", np.array([1 + 2j, 3j]))}),
    "strings": xr.Dataset({"a": ("x", np.array(["ab", "", "cdef", "é日"]))}),
    "strings_object": xr.Dataset({"a": ("x", np.array(["ab", "", "cdef"], object).astype(np.dtypes.StringDType()))}),
    "bytes": xr.Dataset({"a": ("x", np.array([b"ab", b"", b"cdef"]))}),
    "scalars": xr.Dataset({"a": ((), 3), "b": ((), 2.5), "c": ((), "text")}),
    "empty": xr.Dataset(),
    "empty_axis": xr.Dataset({"a": (("x", "y"), np.zeros((0, 3))), "b": ("y", np.arange(3.0))}),
    "attributes_only": xr.Dataset(attrs={"title": "none"}),
    "dims_without_coords": xr.Dataset({"a": (("x", "y"), np.ones((2, 3)))}),
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
    "times_coordinate": xr.Dataset({"a": ("t", [1, 2])}, coords={"t": pd.date_range("2000-01-01", periods=2)}),
    "times_2d": xr.Dataset({"a": (("x", "y"), np.array([["2000-01-01", "2000-01-02"]], "M8[ns]"))}),
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
    "seven_axes": xr.Dataset({"a": (tuple("abcdefg"), np.ones((1, 2, 1, 2, 1, 2, 1)))}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
@pytest.mark.parametrize("lazily", [False, True], ids=["numpy", "dask"])
def test_round_trips_are_those_of_xarray(tmp_path, case, name, lazily):
    ds = CASES[case].chunk() if lazily else CASES[case]
    ours, theirs = str(tmp_path / "ours.zarr"), str(tmp_path / "theirs.zarr")
    ds = ds.copy()
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
                a, b = actual[variable].encoding.get(key), expected[variable].encoding.get(key)
                np.testing.assert_equal(a, b, err_msg=f"{variable} {key}")


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", ["zarr3-draft", "n5"])
def test_round_trips_of_other_formats(url, case, name):
    ds = CASES[case]
    try:
        write_dataset(ds, url, format=name)
    except (UnsupportedFeature, MetadataError):
        assert case in {
            "complex", "strings", "strings_object", "bytes", "scalars", "non_dim_coords", "unicode_names", "float16",
            "grid_mapping",
        }  # fmt: skip
        assert not Path(url).exists()
        return
    xr.testing.assert_allclose(read(url).load(), ds)


def test_cftime(url):
    pytest.importorskip("cftime")
    time = xr.date_range("0001-01-01", periods=3, calendar="noleap", use_cftime=True)
    ds = xr.Dataset({"a": ("time", [1.0, 2, 3])}, coords={"time": time})
    assert_round_trip(ds, url)
    later = ds.assign_coords(time=xr.date_range("0001-01-04", periods=3, calendar="noleap", use_cftime=True))
    write_dataset(later, url, append_dim="time")
    assert read(url).sizes["time"] == 6
    other = ds.assign_coords(time=xr.date_range("0001-01-07", periods=3, calendar="360_day", use_cftime=True))
    with pytest.raises(DatasetError, match=r"0001-01-07 00:00:00 \(360_day\) would read as 0001-01-07 .*\(noleap\)"):
        write_dataset(other, url, append_dim="time")
    with pytest.raises(DatasetError, match=r"is stored, 0001-01-07 00:00:00 \(360_day\) given"):
        write_dataset(other, url, region={"time": slice(3, 6)})


def test_dates_of_cftime_go_where_dates_of_numpy_came_from(url):
    pytest.importorskip("cftime")
    write_dataset(series(2), url)
    later = series(2, "2000-01-03")
    later = later.convert_calendar("proleptic_gregorian", use_cftime=True)
    write_dataset(later, url, append_dim="time")
    write_dataset(later[["v"]] + 1, url, region="auto")
    np.testing.assert_array_equal(read(url).time, series(4).time)
    np.testing.assert_array_equal(read(url).v[2:], later.v + 1)


def test_objects(url):
    ds = xr.Dataset(
        {
            "text": ("x", np.array(["a", "bb", ""], object)),
            "missing": ("x", np.array(["a", None, np.nan], object)),
            "bytes": ("x", np.array([b"a", b"bb", b""], object)),
            "zeros": ("x", np.array([b"a\0", b"bb", b""], object)),
            "numbers": ("x", np.array([1.0, 2.0, None], object)),
        }
    )
    write_dataset(ds, url)
    for back in (read(url), read_by_xarray(url)):
        assert back.text.to_numpy().tolist() == ["a", "bb", ""]
        assert back.missing.to_numpy().tolist() == ["a", "", ""]
        assert back.bytes.to_numpy().tolist() == [b"a", b"bb", b""]
        assert back.zeros.to_numpy().tolist() == [b"a\0", b"bb", b""]  # a fixed width would cut the zero
        np.testing.assert_array_equal(back.numbers, [1, 2, np.nan])


def test_strings_with_a_missing_value_become_empty(url):
    data = np.array(["a", None], np.dtypes.StringDType(na_object=None))
    write_dataset(xr.Dataset({"a": ("x", data)}), url)
    assert read(url).a.to_numpy().tolist() == ["a", ""]


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


def test_chunks_of_dask_become_chunks_of_the_store(url):
    ds = xr.Dataset({"a": (("y", "x"), da.ones((10, 6), chunks=((4, 3, 3), (6,))))})
    report = write_dataset(ds, url)
    assert cm.open_array(url, "a").chunks == (4, 6)
    assert report.n_regrouped == 3
    assert report.variables["a"].n_keys == 3


def test_encoding(url):
    ds = series(6)
    encoding = {
        "v": {"chunks": (2, 2), "shards": (4, 4), "compressors": [{"name": "gzip", "configuration": {"level": 2}}]},
        "mask": {"codecs": "raw", "fill_value": 9, "dtype": "i4"},
        "time": {"units": "hours since 1999-12-31", "dtype": "i4"},
    }
    assert_round_trip(ds, url, encoding=encoding)
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
    with pytest.raises(DatasetError, match=r"'mask'.*encoding 'zlib'; known are.*compressors"):
        write_dataset(series(), url, encoding={"mask": {"zlib": True}})
    with pytest.raises(DatasetError, match=r"names variables \['none'\]"):
        write_dataset(series(), url, encoding={"none": {}})
    with pytest.raises(DatasetError, match=r"'fill_value'; known are.*'_FillValue' among it"):
        write_dataset(series(), url, format="zarr2", encoding={"mask": {"fill_value": 1}})
    for chunks in ({"x": 2}, (2,), [1, 2, 3]):
        with pytest.raises(DatasetError, match=r"chunks=.*a length for each of \('time', 'x'\)"):
            write_dataset(series(), url, encoding={"v": {"chunks": chunks}})
    with pytest.raises(UnknownCodec, match="nosuch"):
        write_dataset(series(), url, encoding={"mask": {"codecs": "nosuch"}})
    assert not Path(url).exists()


def test_encoding_from_elsewhere_is_a_wish(tmp_path):
    """What a variable brings along from where it was read is kept as far as it applies."""
    ds = series()
    ds.v.encoding = {"zlib": True, "complevel": 4, "chunksizes": (1, 4), "source": "x.nc", "original_shape": (5, 4)}
    ds["mask"].encoding = {"chunks": (3, 3), "shards": (3,), "fill_value": np.nan}
    write_dataset(ds, tmp_path / "a.zarr")
    xr.testing.assert_identical(read_by_xarray(tmp_path / "a.zarr").load(), ds)


@pytest.mark.parametrize("source", LAYOUTS, ids=str)
@pytest.mark.parametrize("target", LAYOUTS, ids=str)
def test_from_format_to_format(tmp_path, source, target):
    ds = series()
    write_dataset(ds, tmp_path / "a", **LAYOUTS[source], encoding={"v": {"chunks": (2, 3), "codecs": "gzip"}})
    opened = read(tmp_path / "a", chunks={})
    write_dataset(opened, tmp_path / "b", **LAYOUTS[target])
    xr.testing.assert_identical(read(tmp_path / "b").load(), ds)
    assert cm.open_array(tmp_path / "b", "v").chunks == (2, 3)
    assert any("gzip" in str(codec) for codec in cm.open_array(tmp_path / "b", "v").codecs)


def test_sharded(url):
    encoding = {"v": {"chunks": (1, 2), "shards": (3, 4)}}
    assert_round_trip(series(8).chunk(time=2), url, encoding=encoding)
    assert read(url, chunks={}).v.chunks == ((3, 3, 2), (4,))


def test_absent_chunks_of_floats_are_missing(url):
    ds = xr.Dataset({"a": ("x", da.full(4, np.nan, chunks=2)), "b": ("x", da.zeros(4, chunks=2, dtype="i4"))})
    assert write_dataset(ds, url).variables["a"].n_empty == 2
    for back in (read(url), read_by_xarray(url)):
        np.testing.assert_array_equal(back.a, [np.nan] * 4)
        np.testing.assert_array_equal(back.b, [0] * 4)
    assert cm.open_array(url, "a").fill_value != cm.open_array(url, "a").fill_value  # NaN


def test_empty_chunks_on_demand(tmp_path):
    ds = xr.Dataset({"a": ("x", np.zeros(4, "i4")), "b": ("x", da.zeros(4, chunks=2, dtype="i4"))})
    write_dataset(ds, tmp_path / "1", write_empty_chunks=True)
    assert (tmp_path / "1/a/c/0").exists()
    assert (tmp_path / "1/b/c/1").exists()
    write_dataset(ds, tmp_path / "2", encoding={"b": {"write_empty_chunks": True}})
    assert not (tmp_path / "2/a/c/0").exists()
    assert (tmp_path / "2/b/c/1").exists()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.nan, "nan"),
        (b"raw", "b'raw'"),
        ([1, np.inf], "inf"),
        (np.datetime64("2000-01-01"), "datetime"),
        ({1: 2}, "1: 2"),
    ],
    ids=str,
)
def test_attributes_that_json_cannot_hold(url, value, shown):
    ds = xr.Dataset({"a": ("x", [1], {"fine": 1, "bad": value})})
    with pytest.raises(DatasetError, match=rf"'a'.*'bad': .*{shown}"):
        write_dataset(ds, url)
    assert not Path(url).exists()


def test_attributes_of_numpy(url):
    attributes = {"a": np.array([1, 2], "i2"), "b": np.float32(1.5), "c": np.array(3), "d": np.bool_(True)}
    write_dataset(xr.Dataset({"v": ("x", [1], attributes)}, attrs=attributes), url)
    assert read(url).attrs == {"a": [1, 2], "b": 1.5, "c": 3, "d": True} == read(url).v.attrs


def test_a_missing_value_of_nan_needs_no_attribute(url):
    ds = xr.Dataset({"a": ("x", np.array([1, np.nan], "f4"), {}, {"missing_value": np.nan})})
    write_dataset(ds, url)
    json.loads(Path(url, "a/zarr.json").read_text(), parse_constant=pytest.fail)
    xr.testing.assert_identical(read(url).load(), ds)


@pytest.mark.parametrize("name", ["a/b", "a\\b", 3, ""], ids=str)
def test_names_that_are_none(url, name):
    with pytest.raises(DatasetError, match="expected text without"):
        write_dataset(xr.Dataset({name: ("x", [1])}), url)


@pytest.mark.parametrize(
    "values", [pd.Categorical(["a", "b"]), pd.array([1, None], dtype="Int64"), pd.array(["a", None], dtype="string")]
)
def test_extension_types_of_pandas_are_named(url, values):
    with pytest.raises(DatasetError, match=r"'a'.*pandas' \w+, which no array holds; convert it"):
        write_dataset(xr.Dataset({"a": ("x", values)}), url)


# --------------------------------------------------------------------------------------------------------------------
# What formats cannot hold


def test_all_that_a_format_cannot_hold_is_named_before_anything_is_written(url):
    ds = series().assign(label=("x", list("abcd")), scalar=3, z=("x", np.ones(4, "c8")))
    with pytest.raises(
        UnsupportedFeature, match=r"n5.*'label': dtype <U1.*'scalar': arrays of 0.*'z': dtype complex64"
    ):
        write_dataset(ds, url, format="n5")
    with pytest.raises(UnsupportedFeature, match="consolidated metadata"):
        write_dataset(series(), url, format="n5", consolidated=True)
    with pytest.raises(UnsupportedFeature, match=r"'mask': "):
        write_dataset(series(), url, format="zarr2", encoding={"mask": {"shards": (4,), "chunks": (2,)}})
    assert not Path(url).exists()


def test_n5_keeps_missing_values_and_booleans(url):
    ds = xr.Dataset({"a": ("x", np.array([1, np.nan, 0])), "b": ("x", np.array([True, False, True]))})
    write_dataset(ds, url, format="n5")
    back = read(url)
    xr.testing.assert_identical(back.load(), ds)
    assert back.b.dtype == bool


# --------------------------------------------------------------------------------------------------------------------
# Modes


@pytest.fixture(params=LAYOUTS, ids=str)
def layout(request):
    return LAYOUTS[request.param]


def test_create_fails_where_something_is(url, layout):
    write_dataset(series(), url, **layout)
    with pytest.raises(NodeExists, match="mode='w'"):
        write_dataset(series(), url, **layout)
    write_dataset(series()[["mask"]], url, **layout, mode="w")
    assert set(read(url).variables) == {"mask", "x"}


def test_replacing_spares_what_lies_beside(url):
    write_dataset(series(), url, "a", format="zarr2")
    write_dataset(series(), url, "b", format="zarr2")
    write_dataset(series()[["mask"]], url, "a", format="zarr2", mode="w")
    assert set(read(url, group="a").variables) == {"mask", "x"}
    assert set(read(url, group="b", consolidated=True)) == {"v", "mask"}
    assert set(xr.open_groups(url, engine="zarr")["/a"].variables) == {"mask", "x"}


def test_adding_to_a_group(url, layout):
    write_dataset(series(), url, **layout)
    more = xr.Dataset({"v": series().v + 1, "w": ("x", [1.5, 2, 3, 4])}, attrs={"more": 1})
    write_dataset(more, url, mode="a", **layout)
    back = read(url)
    np.testing.assert_array_equal(back.v, series().v + 1)
    np.testing.assert_array_equal(back.w, [1.5, 2, 3, 4])
    assert back.attrs == {"title": "a series", "more": 1}
    assert back.v.attrs == {"units": "K"}


def test_adding_coordinates_keeps_those_that_are(url):
    write_dataset(xr.Dataset(coords={"p": ("i", [1, 2])}), url)
    write_dataset(xr.Dataset(coords={"q": ("j", [1, 2])}), url, mode="a")
    assert set(read(url).coords) == {"p", "q"}


def test_what_no_dataset_could_have_is_not_added(url):
    write_dataset(series(), url)
    with pytest.raises(DatasetError, match=r"'w'.*'x' has length 4, but 3 here"):
        write_dataset(xr.Dataset({"w": ("x", [1, 2, 3])}), url, mode="a")
    xr.testing.assert_identical(read(url).load(), series())


def test_adding_makes_a_group_where_none_is(url):
    write_dataset(series(), url, mode="a")
    xr.testing.assert_identical(read(url).load(), series())


def test_values_only(url, layout):
    write_dataset(series(), url, **layout)
    write_dataset(series()[["v"]] + 1, url, mode="r+")
    np.testing.assert_array_equal(read(url).v, series().v + 1)
    with pytest.raises(DatasetError, match=r"'w'.*not in the store, which has 'mask', 'time', 'v', 'x'; mode='a'"):
        write_dataset(xr.Dataset({"w": ("x", [1])}), url, mode="r+")
    with pytest.raises(DatasetError, match=r"'v'.*lengths {'time': 2, 'x': 4}, but {'time': 5, 'x': 4}.*region="):
        write_dataset(series(2)[["v"]], url, mode="r+")
    with pytest.raises(DatasetError, match=r"dimensions \('x',\), but \('time', 'x'\)"):
        write_dataset(xr.Dataset({"v": ("x", [1.0] * 4)}), url, mode="r+")
    with pytest.raises(DatasetError, match="encoding of its own"):
        write_dataset(series()[["v"]], url, mode="r+", encoding={"v": {"chunks": (1, 1)}})
    with pytest.raises(NodeNotFound):
        write_dataset(series(), url, "nowhere", mode="r+")


def test_axes_in_another_order(url):
    write_dataset(series(), url)
    write_dataset((series()[["v"]] + 1).transpose("x", "time"), url, mode="r+")
    np.testing.assert_array_equal(read(url).v, series().v + 1)


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "x"},
        {"mode": "r"},
        {"mode": "w", "append_dim": "time"},
        {"mode": "w", "region": "auto"},
        {"mode": "r+", "append_dim": "time"},
        {"mode": "a-"},
        {"append_dim": "time", "region": {"x": slice(0, 1)}},
    ],
    ids=str,
)
def test_arguments_that_contradict_each_other(url, arguments):
    with pytest.raises(ValueError, match=r"mode=|region="):
        write_dataset(series(), url, **arguments)


def test_what_is_no_dataset(url):
    with pytest.raises(TypeError, match="DataArray"):
        write_dataset(series().v, url)


def test_a_store_is_not_replaced_by_what_is_to_be_read_from_it(url):
    write_dataset(series(), url)
    write_dataset(series(), url, "part")
    for engine in ("chunkmill", "zarr"):
        for group in (None, "part"):
            lazy = xr.open_dataset(url, engine=engine, group=group, chunks={}) + 1
            with pytest.raises(JobError, match=r"mode='w' would delete .*, which .* read from; load or persist\(\)"):
                write_dataset(lazy, url, group or "", mode="w")
    write_dataset(read(url, chunks={}), url, "part", mode="w")
    write_dataset(read(url).load(), url, mode="w")
    xr.testing.assert_identical(read(url).load(), series())


# --------------------------------------------------------------------------------------------------------------------
# Append


@pytest.mark.parametrize("lazily", [False, True], ids=["numpy", "dask"])
@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 7, 100], ids=str)
def test_append(url, layout, chunk, lazily):
    """Of any length, onto chunks that are full or not."""
    parts = [series(5), series(3, "2000-01-06"), series(1, "2000-01-09"), series(6, "2000-01-10")]
    write_dataset(parts[0], url, **layout, encoding={"v": {"chunks": (chunk, 3)}})
    for part in parts[1:]:
        report = write_dataset(part.chunk(time=2) if lazily else part, url, append_dim="time")
        assert set(report.unchanged) == {"mask", "x"}
    xr.testing.assert_identical(read(url).load(), series(15))
    if layout["format"] in {"zarr2", "zarr3"}:
        xr.testing.assert_identical(read_by_xarray(url, consolidated=True).load(), series(15))


@pytest.mark.parametrize("shards", [(2, 4), (4, 4), (8, 4)], ids=str)
def test_append_to_shards(url, shards):
    write_dataset(series(5), url, encoding={"v": {"chunks": (1, 2), "shards": shards}})
    report = write_dataset(series(6, "2000-01-06").chunk(time=1), url, append_dim="time")
    assert report.variables["v"].n_partial in {1, 2}
    xr.testing.assert_identical(read_by_xarray(url).load(), series(11))


def test_append_to_an_irregular_grid(url):
    time = cm.create_array(url, "time", shape=(5,), dtype="i4", chunks=((2, 3),), dimension_names=["time"])
    time[...] = np.arange(5)
    write_dataset(xr.Dataset(coords={"time": np.arange(5, 12, dtype="i4")}), url, append_dim="time")
    np.testing.assert_array_equal(read(url).time, np.arange(12))
    assert cm.open_array(url, "time").chunks == ((2, 3, 3, 3, 1),)


def test_append_along_a_dimension_without_coordinate(url, layout):
    write_dataset(xr.Dataset({"a": (("t", "x"), np.ones((3, 2)))}), url, **layout)
    write_dataset(xr.Dataset({"a": (("x", "t"), np.full((2, 4), 2.0))}), url, append_dim="t")
    np.testing.assert_array_equal(read(url).a, [[1, 1]] * 3 + [[2, 2]] * 4)


def test_units_that_do_not_fit_are_an_error_that_names_those_that_do(url):
    """pydata/xarray#5969: xarray truncates these to whole days."""
    write_dataset(series(), url)
    before = {p: p.read_bytes() for p in Path(url).rglob("*") if p.is_file()}
    late = series(2, "2000-01-06").assign_coords(time=pd.to_datetime(["2000-01-06T06", "2000-01-06T12"]))
    for lazily in (late, late.chunk()):
        with pytest.raises(
            DatasetError, match=r"'time'.*whole 'days since 2000-01-01'.*; 'hours since 2000-01-01' would"
        ):
            write_dataset(lazily, url, append_dim="time")
    assert before == {p: p.read_bytes() for p in Path(url).rglob("*") if p.is_file()}


def test_dask_times_that_do_not_fit_leave_nothing_visible(url):
    ds = series().assign(
        when=("time", np.array(["2000-01-01"] * 5, "M8[ns]"), {}, {"units": "days since 2000-01-01", "dtype": "int64"})
    )
    write_dataset(ds, url)
    late = series(2, "2000-01-06").assign(when=("time", da.from_array(np.array(["2000-01-01T01"] * 2, "M8[ns]"))))
    with pytest.raises(ValueError, match="hours since 2000-01-01"):
        write_dataset(late, url, append_dim="time")
    xr.testing.assert_identical(read(url).load(), ds)


@pytest.mark.parametrize(
    ("stored", "given", "message"),
    [
        (np.array([1, 2], "i2"), np.array([1, 40000]), "int16: 40000 would read as -25536"),
        (np.array([1, 2], "i2"), np.array([1.0, 2.5]), "int16: 2.5 would read as 2"),
        (np.array([1, 2], "i2"), np.array([1.0, np.nan]), "int16: nan would read as"),
        (np.array([1, 2], "u1"), np.array([1, -1]), "uint8: -1 would read as 255"),
        (np.array([1, 2], "f4"), np.array([1, 2**24 + 1]), r"float32: 16777217 would read as 1\.6777216e\+07"),
        (np.array([1, 2], "f4"), np.array([1, 1e40]), "float32: 1e\\+40 would read as inf"),
        (np.array(["a", "b"]), np.array(["a", "bcd"]), "up to 3 characters, but the store holds <U1: 'bcd'"),
        (np.array([b"ab", b"b"]), np.array([b"a", b"bcd"]), r"up to 3 characters, but the store holds \|S2: b'bcd'"),
        (np.array(["a", "b"]), np.array([1, 2]), r"the store holds str, got \d of int"),
        (np.array([True, False]), np.array([2, 3]), r"bool: \d would read as True"),
        (np.array(["2000"], "M8[ns]"), np.array([1, 2]), "holds times in 'days since 2000-01-01"),
    ],
    ids=str,
)
@pytest.mark.parametrize("lazily", [False, True], ids=["numpy", "dask"])
def test_values_that_the_store_cannot_hold(url, stored, given, message, lazily):
    write_dataset(xr.Dataset({"a": ("x", stored)}), url)
    ds = xr.Dataset({"a": ("x", given)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of casts in dask's tasks
        with pytest.raises(DatasetError, match=message):
            write_dataset(ds.chunk(x=1) if lazily else ds, url, append_dim="x")
    xr.testing.assert_identical(read(url).load(), xr.Dataset({"a": ("x", stored)}))


@pytest.mark.parametrize(
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
    ids=str,
)
@pytest.mark.parametrize("how", ["zarr2-numpy", "zarr2-dask", "zarr3-numpy", "zarr3-dask"])
def test_values_that_the_store_can_hold(url, stored, given, encoding, how):
    name, _, kind = how.partition("-")
    write_dataset(xr.Dataset({"a": ("x", stored, {}, encoding)}), url, format=name)
    ds = xr.Dataset({"a": ("x", given)})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="variable a has data in the form of a dask array with dtype=object")
        write_dataset(ds.chunk(x=1) if kind == "dask" else ds, url, append_dim="x")
    back = read(url).a[len(stored) :]
    if given.dtype.kind == "f":
        np.testing.assert_allclose(back, given, atol=0.005 if "scale_factor" in encoding else 0, rtol=1e-6)
    else:
        np.testing.assert_array_equal(back, given)


def test_data_opened_without_decoding_go_back_as_they_are(url):
    encoding = {"v": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    write_dataset(series(), url, encoding=encoding)
    raw = read(url, decode_cf=False).isel(time=slice(0, 2)).load()
    raw = raw.assign_coords(time=raw.time + 5)
    write_dataset(raw, url, append_dim="time")
    np.testing.assert_array_equal(read(url).v[5:], read(url).v[:2])
    assert read(url).time[-1] == np.datetime64("2000-01-07")


def test_coordinates_that_differ_are_an_error_that_shows_them(url):
    """pydata/xarray#11101: xarray overwrites them, and relabels what was stored."""
    write_dataset(series(), url)
    other = series(2, "2000-01-06").assign_coords(x=np.array([0, 10, 21, 30]))
    for ds in (other, other.chunk(x=1)):
        with pytest.raises(
            DatasetError, match=r"'x'.*1 of 4 values differ.*at \[2\]: 20 is stored, 21 given; .*drop_vars\('x'\)"
        ):
            write_dataset(ds, url, append_dim="time")
    changed = series(2, "2000-01-06").assign(mask=("x", da.zeros(4, chunks=2, dtype="i2")))
    with pytest.raises(DatasetError, match=r"'mask'.*4 of 4 values differ.*at \[0\]: 1 is stored, 0 given"):
        write_dataset(changed, url, append_dim="time")
    write_dataset(changed.drop_vars("mask"), url, append_dim="time")
    xr.testing.assert_identical(read(url).load(), series(7))


def test_variables_without_the_dimension_may_be_left_alone(url, layout):
    write_dataset(series(), url, **layout)
    other = series(2, "2000-01-06").assign(mask=("x", da.zeros(4, chunks=2, dtype="i2")))
    report = write_dataset(other, url, append_dim="time", mode="a-")
    assert (set(report.variables), report.unchanged) == ({"v", "time"}, ("x",))
    xr.testing.assert_identical(read(url).load(), series(7))
    with pytest.raises(DatasetError, match=r"'x'.*1 of 4 values differ"):  # which would relabel what is appended
        write_dataset(other.assign_coords(x=[0, 10, 21, 30]), url, append_dim="time", mode="a-")


def test_an_append_must_be_complete(url):
    write_dataset(series(), url)
    later = series(2, "2000-01-06")
    with pytest.raises(DatasetError, match=r"variables \['time', 'v'\] have it too"):
        write_dataset(
            later[["mask"]].expand_dims(time=2).drop_vars("mask").assign(w=("time", [1, 2])), url, append_dim="time"
        )
    with pytest.raises(DatasetError, match=r"'w'.*only the part of 'time' that is appended"):
        write_dataset(later.assign(w=("time", [1, 2])), url, append_dim="time")
    with pytest.raises(DatasetError, match="append_dim='y' is no dimension of the store"):
        write_dataset(later, url, append_dim="y")
    with pytest.raises(DatasetError, match="append_dim='time' is no dimension of the dataset"):
        write_dataset(later[["mask"]], url, append_dim="time")
    write_dataset(later.assign(fixed=("x", [9, 8, 7, 6])), url, append_dim="time")
    np.testing.assert_array_equal(read(url).fixed, [9, 8, 7, 6])


def test_readers_see_no_longer_array_before_it_is_written(url):
    """Chunks first, then the arrays' documents, the consolidated ones last."""
    write_dataset(series(), url)
    recording = RecordingStore(open_store(url))
    write_dataset(series(3, "2000-01-06").chunk(time=1), recording, append_dim="time")
    keys = recording.keys("set", "set_if")
    documents = [key for key in keys if key.endswith("zarr.json")]
    assert keys[-len(documents) :] == documents
    assert documents[-1] == "zarr.json"
    assert set(documents) == {"zarr.json", "v/zarr.json", "time/zarr.json"}


@pytest.mark.parametrize("name", ["zarr2", "zarr3", "n5"])
def test_an_append_that_fails_changes_nothing_that_readers_see(url, name):
    encoding = {"v": {"chunks": (3, 4)}}
    write_dataset(series(), url, format=name, encoding=encoding)
    failing = FailingStore(open_store(url), every=3, methods=["set", "set_if"])
    with dask.config.set(scheduler="sync"), pytest.raises(Exception, match="injected"):
        write_dataset(series(9, "2000-01-06").chunk(time=1), failing, append_dim="time")
    xr.testing.assert_identical(read(url).load(), series())
    write_dataset(series(9, "2000-01-06"), url, append_dim="time")
    xr.testing.assert_identical(read(url).load(), series(14))


def test_what_an_append_left_behind_is_no_data_later(url):
    """Chunks past the end, of an append that failed, must not show when a later one leaves chunks absent."""
    write_dataset(series(), url, encoding={"v": {"chunks": (1, 4)}})
    cm.open_array(url, "v")
    Path(url, "v/c/6").mkdir(parents=True)
    Path(url, "v/c/6/0").write_bytes(Path(url, "v/c/1/0").read_bytes())
    later = series(2, "2000-01-06")
    later["v"][:] = np.nan
    write_dataset(later, url, append_dim="time")
    assert np.isnan(read(url).v[5:]).all()


def test_a_write_that_failed_leaves_nothing_to_the_next(url):
    ds = series()
    failing = FailingStore(open_store(url), every=2, methods=["set"])
    with pytest.raises((StoreError, RuntimeError), match="injected"):
        write_dataset(ds, failing)
    with pytest.raises(NodeNotFound):
        read(url)
    ds["v"][:] = np.nan
    write_dataset(ds, url)
    assert np.isnan(read(url).v).all()


# --------------------------------------------------------------------------------------------------------------------
# Regions


@pytest.mark.parametrize("lazily", [False, True], ids=["numpy", "dask"])
@pytest.mark.parametrize("cut", [slice(0, 5), slice(1, 3), slice(4, 5), slice(2, 2), slice(-3, None)], ids=str)
def test_region(url, layout, cut, lazily):
    write_dataset(series(), url, **layout, encoding={"v": {"chunks": (2, 3)}})
    part = series().isel(time=cut) + 1000
    expected = read(url).load()
    expected["v"][cut] = part.v
    part = part.drop_vars("mask")
    report = write_dataset(part.chunk(time=1) if lazily else part, url, region={"time": cut})
    assert set(report.unchanged) == {"time", "x"}
    np.testing.assert_array_equal(read(url).v, expected.v)


def test_region_of_two_dimensions(url, layout):
    write_dataset(series(), url, **layout, encoding={"v": {"chunks": (2, 3)}})
    where = {"time": slice(1, 4), "x": slice(2, 4)}
    write_dataset(series().isel(where)[["v"]] * 0 + 5, url, region=where)
    expected = series().v.copy()
    expected[where] = 5
    np.testing.assert_array_equal(read(url).v, expected)


@pytest.mark.parametrize("region", ["auto", {"time": "auto"}, {"time": "auto", "x": slice(1, 3)}], ids=str)
def test_region_by_coordinates(url, layout, region):
    write_dataset(series(), url, **layout)
    part = (
        series().isel(time=slice(1, 4), x=slice(1, 3))
        if region != {"time": "auto"}
        else series().isel(time=slice(1, 4))
    )
    part = part[["v"]] * 0 - 7
    write_dataset(part, url, region=region)
    expected = series().v.copy()
    expected.loc[{"time": part.time, "x": part.x}] = -7
    np.testing.assert_array_equal(read(url).v, expected)


def test_region_that_cannot_be_found(url):
    write_dataset(series(), url)
    part = series()[["v"]]
    with pytest.raises(DatasetError, match=r"'time'.*2 values are not in the store: 2000-01-06.*append_dim="):
        write_dataset(series(3, "2000-01-05")[["v"]], url, region="auto")
    with pytest.raises(DatasetError, match="not next to each other"):
        write_dataset(part.isel(time=[0, 2]), url, region="auto")
    with pytest.raises(DatasetError, match="not next to each other"):
        write_dataset(part.isel(time=[1, 0]), url, region="auto")
    with pytest.raises(DatasetError, match=r"no coordinate 'time' to find 2 of 5.*slice"):
        write_dataset(part.isel(time=slice(2)).drop_vars("time"), url, region="auto")
    with pytest.raises(DatasetError, match="region names 'y', which the dataset has not"):
        write_dataset(part, url, region={"y": slice(0, 1)})
    with pytest.raises(DatasetError, match=r"is 2 of 5 in the store, but 5 are given"):
        write_dataset(part, url, region={"time": slice(0, 2)})
    with pytest.raises(DatasetError, match="slices of step 1"):
        write_dataset(part, url, region={"time": slice(0, 5, 2)})
    with pytest.raises(TypeError, match="expected 'auto'"):
        write_dataset(part, url, region=slice(0, 5))
    with pytest.raises(NodeNotFound):
        write_dataset(part, url, "other", region="auto")
    write_dataset(series().assign_coords(x=[7, 7, 8, 9]), url, "twice")
    with pytest.raises(DatasetError, match=r"'x'.*not unique: 7 is there more than once; give region="):
        write_dataset(part.assign_coords(x=[7, 7, 8, 9]), url, "twice", region="auto")
    with pytest.raises(DatasetError, match=r"'w'.*not in the store"):
        write_dataset(part.assign(w=part.v), url, region="auto")


def test_a_region_is_where_its_coordinates_say(url):
    write_dataset(series(), url)
    moved = series().isel(time=slice(0, 2))[["v"]]
    with pytest.raises(DatasetError, match=r"'time'.*at \[1\]: 2000-01-02.* is stored, 2000-01-01.* given"):
        write_dataset(moved, url, region={"time": slice(1, 3)})
    write_dataset(moved.drop_vars("time"), url, region={"time": slice(1, 3)})
    np.testing.assert_array_equal(read(url).v[1:3], moved.v)


def test_regions_of_a_store_whose_metadata_came_first(url, layout):
    """xarray's way to write in parallel: metadata and coordinates at once, data by region."""
    full = series(6)
    template = full.assign(v=(("time", "x"), da.zeros((6, 4), chunks=(2, 4), dtype="f4"), {"units": "K"}))
    later = write_dataset(template, url, **layout, compute=False)
    xr.testing.assert_identical(read(url).drop_vars("v"), full.drop_vars("v"))
    for start in range(0, 6, 3):  # borders that are none of chunks
        write_dataset(full.isel(time=slice(start, start + 3))[["v"]], url, region="auto")
    xr.testing.assert_identical(read(url).load(), full)
    report = later.compute()
    assert report.variables["v"].n_keys == 3
    np.testing.assert_array_equal(read(url).v, 0)


# --------------------------------------------------------------------------------------------------------------------
# Later, and on other machines


def test_delayed_append(url):
    write_dataset(series(), url)
    later = write_dataset(series(3, "2000-01-06").chunk(time=1), url, append_dim="time", compute=False)
    xr.testing.assert_identical(read(url).load(), series())
    later = pickle.loads(pickle.dumps(later))
    assert later.compute(scheduler="sync").variables["v"].n_keys > 0
    xr.testing.assert_identical(read_by_xarray(url, consolidated=True).load(), series(8))


def test_one_computation_for_all_variables(url):
    ds = xr.Dataset({name: ("x", da.ones(8, chunks=2) * i) for i, name in enumerate("abc")})
    computed = []

    class Watch(dask.callbacks.Callback):
        def _start(self, dsk):
            computed.append(dsk)

    with Watch(), dask.config.set(scheduler="sync"):
        write_dataset(ds, url)
    assert len(computed) == 1


def test_report(url):
    report = write_dataset(series().chunk(time=2), url)
    assert set(report.variables) == {"v", "mask", "time", "x"}
    assert report.n_keys == sum(each.n_keys for each in report.variables.values()) == 6
    assert report.bytes_written > 0
    assert report.n_partial == report.n_regrouped == 0
    assert json.loads(json.dumps(report.to_dict()))["variables"]["v"]["n_keys"] == 3
    text = str(report)
    assert all(
        line in text for line in ("write_dataset: done", "6: of these 0 changed in part", "variable  store keys")
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zarr2", "zarr3", "n5"])
def test_unaligned_writes_on_a_cluster(url, name):
    """Appends and regions that cut through chunks, from several workers at once."""
    with cluster_of(2, 2):
        write_dataset(series(5).chunk(time=1), url, format=name, encoding={"v": {"chunks": (4, 3)}})
        write_dataset(series(9, "2000-01-06").chunk(time=1), url, append_dim="time")
        xr.testing.assert_identical(read(url).load(), series(14))
        parts = [
            write_dataset(
                (series(14).isel(time=slice(i, i + 1))[["v"]] + 5).chunk(),
                url,
                region={"time": slice(i, i + 1)},
                compute=False,
            )
            for i in range(14)
        ]
        dask.compute(*parts)
        np.testing.assert_array_equal(read(url).v, series(14).v + 5)


# --------------------------------------------------------------------------------------------------------------------
# Consolidated metadata


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_new_stores_are_consolidated_without_listing(name):
    store = RecordingStore(MemoryStore())
    write_dataset(series(), store, format=name)
    assert not store.keys("list_prefix")
    assert set(store.keys("list_dir")) == {""}  # whether something lies there
    assert set(cm.open_group(store, consolidated=True)) == {"v", "mask", "time", "x"}


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_consolidated_metadata_are_never_stale(url, name):
    write_dataset(series(), url, format=name)
    write_dataset(series(2, "2000-01-06"), url, append_dim="time", consolidated=False)
    write_dataset(xr.Dataset({"w": ("x", [1, 2, 3, 4])}, attrs={"title": "new"}), url, mode="a")
    for back in (read(url, consolidated=True), read_by_xarray(url, consolidated=True), read(url, consolidated=False)):
        assert (back.sizes["time"], back.title, "w" in back) == (7, "new", True)


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_not_consolidated(url, name):
    write_dataset(series(), url, format=name, consolidated=False)
    with pytest.raises(MetadataError, match="consolidated"):
        cm.open_group(url, consolidated=True)
    write_dataset(series(2, "2000-01-06"), url, append_dim="time")
    with pytest.raises(MetadataError, match="consolidated"):
        cm.open_group(url, consolidated=True)
    write_dataset(series(2, "2000-01-08"), url, append_dim="time", consolidated=True)
    xr.testing.assert_identical(read_by_xarray(url, consolidated=True).load(), series(9))


@pytest.mark.parametrize("name", ["zarr2", "zarr3"])
def test_consolidated_metadata_of_groups_above_and_at_the_group(url, name):
    write_dataset(series(), url, "a/b", format=name)
    cm.consolidate(url, "a/b")
    write_dataset(series(2, "2000-01-06"), url, "a/b", append_dim="time")
    assert read(url, group="a/b", consolidated=True).sizes["time"] == 7
    assert read(f"{url}/a/b", consolidated=True).sizes["time"] == 7
    xr.testing.assert_identical(read_by_xarray(url, group="a/b", consolidated=True).load(), series(7))


# --------------------------------------------------------------------------------------------------------------------
# Trees


def tree():
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(coords={"x": [10, 20]}, attrs={"root": 1}),
            "/a": xr.Dataset({"v": ("x", [1.5, 2.5])}),
            "/a/deep": xr.Dataset({"w": ("t", pd.date_range("2000-01-01", periods=3))}),
            "/b": xr.Dataset(attrs={"empty": 1}),
        }
    )


@pytest.mark.parametrize("lazily", [False, True], ids=["numpy", "dask"])
def test_trees(url, layout, lazily):
    write_dataset(tree().chunk() if lazily else tree(), url, **layout)
    xr.testing.assert_identical(xr.open_datatree(url, engine="chunkmill").load(), tree())
    if layout["format"] in {"zarr2", "zarr3"}:
        xr.testing.assert_identical(xr.open_datatree(url, engine="zarr", consolidated=True).load(), tree())


def test_encoding_of_trees(url):
    write_dataset(tree(), url, "below", encoding={"/a": {"v": {"chunks": (1,)}}})
    assert cm.open_array(url, "below/a/v").chunks == (1,)
    with pytest.raises(DatasetError, match=r"names groups \['v'\].*by group"):
        write_dataset(tree(), url, "more", encoding={"v": {"chunks": (1,)}})


def test_adding_and_appending_to_trees(url):
    write_dataset(tree(), url)
    more = xr.DataTree.from_dict({"/a": xr.Dataset({"v": ("x", [3.5, 4.5])}), "/c": xr.Dataset({"u": ("z", [1])})})
    write_dataset(more, url, mode="a")
    back = xr.open_datatree(url, engine="zarr", consolidated=True)
    assert back["a/v"].to_numpy().tolist() == [3.5, 4.5]
    assert back["c/u"].to_numpy().tolist() == [1]
    part = xr.DataTree.from_dict({"/a/deep": xr.Dataset({"w": ("t", pd.date_range("2000-01-04", periods=2))})})
    with pytest.raises(DatasetError, match="append_dim='t' is no dimension"):
        write_dataset(part, url, append_dim="t")
    write_dataset(part["a/deep"].to_dataset(), url, "a/deep", append_dim="t")
    assert xr.open_datatree(url, engine="zarr", consolidated=True)["a/deep"].sizes["t"] == 5


@pytest.mark.parametrize("mode", ["w-", "w", "a"])
def test_a_new_group_is_of_the_format_around_it(url, layout, mode):
    write_dataset(series(), url, **layout)
    write_dataset(series(), url, "more/of_it", mode=mode)
    assert cm.open(url).format == cm.open(url, "more/of_it").format == layout["format"]
    xr.testing.assert_identical(read(url, group="more/of_it").load(), read(url).load())
