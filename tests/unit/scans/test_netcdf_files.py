"""netCDF and HDF5 files as reference sets: values, coordinates and attributes equal to xarray's own engines."""

import json
import sys

import dask
import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from support.cases import cases
from support.netcdf_files import opened_by_xarray, write_part, write_parts, write_tiles
from support.small_jobs import dying_after
from support.systems import NEEDS_POSIX_NAMES

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.errors import ChunkError, NodeExists, NodeNotFound, ScanError, StoreError, UnsupportedFeature

pytestmark = [NEEDS_POSIX_NAMES, pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")]
h5py = pytest.importorskip("h5py")
pytest.importorskip("virtualizarr", reason="of the extra `scan`")


@pytest.mark.parametrize(("target", "records"), [("all.json", None), ("all.parquet", False)])
def test_files_are_joined_along_two_dimensions(tmp_path, target, records):
    urls, whole = write_tiles(tmp_path)
    report = cm.scan(urls, tmp_path / target, concat_dim=["time", "lat"], records=records)
    xr.testing.assert_identical(xr.load_dataset(tmp_path / target, engine="chunkmill"), whole)
    assert (report.n_files, report.gaps) == (9, ())
    about = {"format": "zarr3", "concat_dim": ("time", "lat"), "chunks": {"time": 3, "lat": 5}}
    cm.convert(urls, tmp_path / f"{target}.zarr", **about)
    xr.testing.assert_equal(xr.load_dataset(tmp_path / f"{target}.zarr", engine="chunkmill"), whole)


def test_a_tile_that_differs_is_named(tmp_path):
    urls, _ = write_tiles(tmp_path)
    other = xr.load_dataset(urls[4], engine="h5netcdf").assign_coords(x=[0.0, 1.0, 3.0])
    other.to_netcdf(urls[4], engine="h5netcdf", encoding={"v": {"chunksizes": (2, 3, 1)}})
    with pytest.raises(ScanError, match=r"the values of 'x' in .*1-1.nc are not those in"):
        cm.scan(urls, tmp_path / "all.json", concat_dim=["time", "lat"])


def test_names_of_dimensions_are_checked(tmp_path):
    for dims in ([], ["time", "time"], [3]):
        with pytest.raises(TypeError, match="expected a name, or a list of different names"):
            cm.plan_scan(["a.nc", "b.nc"], tmp_path / "all.json", concat_dim=dims)


def test_kinds_of_storage(tmp_path):
    """Contiguous, chunked with filters, never written, with a fill value of 0."""
    values = np.arange(60, dtype="f4").reshape(6, 10)
    with h5py.File(tmp_path / "odd.h5", "w", userblock_size=512) as file:
        file.create_dataset("contiguous", data=values)
        file.create_dataset("chunked", data=values, chunks=(4, 3), compression="gzip", shuffle=True, fletcher32=True)
        file.create_dataset("big_endian", data=values.astype(">f4"), chunks=(2, 10))
        file.create_dataset("zeros", data=np.zeros((4,), "i4"), fillvalue=0, chunks=(2,))
        file.create_dataset("absent", shape=(8,), dtype="i2", chunks=(4,), fillvalue=7)
        file.create_dataset("empty", shape=(0, 3), maxshape=(None, 3), dtype="f8", chunks=(2, 3))
        file.create_dataset("scalar", data=np.int64(5))
        file.create_dataset("below/group", data=values[:2], chunks=(1, 5))
    cm.scan(tmp_path / "odd.h5", tmp_path / "odd.json")
    group = cm.open_group(tmp_path / "odd.json")
    with h5py.File(tmp_path / "odd.h5") as file:
        for path in ("contiguous", "chunked", "big_endian", "zeros", "absent", "empty", "scalar", "below/group"):
            assert np.array_equal(group[path][...], file[path][...]), path


def compact(file):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((4,))
    made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, plist)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(1, 5, dtype="i4"))


def without_a_filter(file):
    made = file.create_dataset("x", shape=(4, 6), chunks=(2, 3), dtype="i4", compression="gzip")
    made[...] = TABLE
    made.id.write_direct_chunk((0, 0), TABLE[:2, :3].tobytes(), filter_mask=1)


PADDED = np.dtype([("a", "i4"), ("b", "f8"), ("c", [("d", "i1"), ("e", ">i2")])], align=True)


def short(file, *, nofill=False):
    """Write netCDF4 variables of which some have fewer records than their unlimited dimension."""
    file["t"] = np.arange(0)
    del file["t"]
    t = file.create_dataset("t", data=np.arange(5), maxshape=(None,), chunks=(2,))
    t.make_scale("t")
    about = {"maxshape": (None,), "chunks": (2,), "fillvalue": -5, "dtype": "i2"}
    if nofill:
        about["fill_time"] = "never"
    file.create_dataset("x", data=np.array([7, 8, 9], "i2"), **about).dims[0].attach_scale(t)


def virtual(file):
    layout = h5py.VirtualLayout((4, 6), "i4")
    layout[...] = h5py.VirtualSource("other.h5", "x", shape=(4, 6))
    file.create_virtual_dataset("x", layout)


TABLE = np.arange(24, dtype="i4").reshape(4, 6)
INLINE = {
    "stored in the header": compact,
    "a chunk without its filter": without_a_filter,
    "strings": lambda file: file.create_dataset("x", data=["a", "bcé", ""], dtype=h5py.string_dtype()),
    "scale and offset": lambda file: file.create_dataset("x", data=TABLE, chunks=(2, 3), scaleoffset=0),
    "lzf": lambda file: file.create_dataset("x", data=TABLE, chunks=(2, 3), compression="lzf"),
    "padding between fields": lambda file: file.create_dataset("x", data=np.ones((3,), PADDED)),
    "arrays as elements": lambda file: file.create_dataset("x", shape=(4,), dtype=np.dtype(("i4", (2,)))),
}
REFUSED = {
    "in other files": virtual,
    "of variable length": lambda file: file.create_dataset("x", shape=(3,), dtype=h5py.vlen_dtype("i4")),
    "are references": lambda file: file.create_dataset("x", shape=(3,), dtype=h5py.ref_dtype),
    "fields of variable length": lambda file: file.create_dataset(
        "x", shape=(3,), dtype=[("a", "i4"), ("b", h5py.string_dtype())]
    ),
    "unused ones between the fields, and it is too large": lambda file: file.create_dataset(
        "x", shape=(1 << 17,), dtype=PADDED
    ),
    "no elements": lambda file: file.create_dataset("x", data=h5py.Empty("f4")),
    "too large": lambda file: file.create_dataset("x", shape=(9 << 17,), chunks=(1 << 17,), scaleoffset=3, dtype="i8"),
    "a link to a group above it": lambda file: file.__setitem__("x", h5py.SoftLink("/")),
}


@cases("kind", INLINE)
def test_small_arrays_without_byte_ranges_are_stored_in_the_set(kind, tmp_path):
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        INLINE[kind](file)
        file.create_dataset("below/x", data=TABLE)  # the same name elsewhere
        file["x"].attrs["note"] = np.bytes_(b"")
        file["again"] = h5py.SoftLink("/x")
    cm.scan(tmp_path / "odd.h5", tmp_path / "odd.json")
    group = cm.open_group(tmp_path / "odd.json")
    with h5py.File(tmp_path / "odd.h5") as file:
        expected = file["x"].asstr()[...] if kind == "strings" else file["x"][...]
    for path in ("x", "again"):
        assert np.array_equal(group[path][...], expected)
        assert group[path].attributes["note"] == ""
    assert np.array_equal(group["below/x"][...], TABLE)


@cases("kind", REFUSED)
def test_what_a_set_cannot_hold_is_refused_by_name_and_can_be_left_out(kind, tmp_path):
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        REFUSED[kind](file)
        file["kept"] = TABLE
    with pytest.raises(ScanError, match=rf"'x'.*{kind}.*drop_variables=\['x'\]"):
        cm.scan(tmp_path / "odd.h5", tmp_path / "odd.json")
    assert not (tmp_path / "odd.json").exists()
    cm.scan(tmp_path / "odd.h5", tmp_path / "odd.json", drop_variables="x")
    group = cm.open_group(tmp_path / "odd.json")
    assert list(group) == ["kept"]
    assert np.array_equal(group["kept"][...], TABLE)


@pytest.mark.parametrize(("group", "nofill"), [("", True), ("below", False)])
def test_record_variables_shorter_than_their_dimension_read_fill_values(tmp_path, group, nofill):
    with h5py.File(tmp_path / "a.nc", "w") as file:
        short(file, nofill=nofill)
        for name, data in (("texts", ["a", "b"]), ("long", np.arange(6.0))):  # texts are stored in the set
            dtype = h5py.string_dtype() if name == "texts" else "f8"
            path = f"{group}/{name}" if name == "long" else name
            made = file.create_dataset(path, data=data, dtype=dtype, maxshape=(None,), chunks=(2,))
            made.dims[0].attach_scale(file["t"])
        file["x"].attrs["_FillValue"] = np.int16(-5)
    cm.scan(tmp_path / "a.nc", tmp_path / "a.json")
    opened = cm.open_group(tmp_path / "a.json")
    assert opened["x"][...].tolist() == [7, 8, 9, -5, -5, -5]
    assert opened["t"][...].tolist() == [0, 1, 2, 3, 4, 0]
    assert opened["texts"][...].tolist() == ["a", "b", "", "", "", ""]
    found = xr.load_dataset(tmp_path / "a.json", engine="chunkmill")
    assert np.array_equal(found.x.values, [7, 8, 9, np.nan, np.nan, np.nan], equal_nan=True)
    cm.convert(tmp_path / "a.nc", tmp_path / "a.zarr", format="zarr3")
    assert xr.load_dataset(tmp_path / "a.zarr", engine="zarr", consolidated=False).sizes == {"t": 6}


def test_months_of_unequal_length_become_a_rectilinear_grid(tmp_path):
    days = xr.date_range("2026-01-01", "2026-03-31")
    whole = xr.Dataset({"v": (("time", "x"), np.random.default_rng(0).random((90, 3)))}, {"time": days})
    for month, ds in whole.groupby("time.month"):  # contiguous: each file is one chunk
        ds.to_netcdf(tmp_path / f"{month}.nc", engine="h5netcdf", encoding={"time": {"units": "days since 2026-01-01"}})
    where = str(tmp_path / "*.nc")
    cm.scan(where, tmp_path / "all.json", concat_dim="time")
    assert cm.open_array(tmp_path / "all.json", "v").to_dask().chunks[0] == (31, 28, 31)
    xr.testing.assert_equal(xr.load_dataset(tmp_path / "all.json", engine="chunkmill"), whole)
    with pytest.raises(UnsupportedFeature, match=r"chunks of unequal length.*JSON"):
        cm.scan(where, tmp_path / "all.parquet", concat_dim="time")


def test_a_link_to_nothing_is_named(tmp_path):
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file["x"] = h5py.SoftLink("/nothing")
    with pytest.raises(ScanError, match="'x' is a link to nothing"):
        cm.scan(tmp_path / "odd.h5", tmp_path / "odd.json")


@cases(("engine", "target"), [("h5netcdf", "all.json"), ("scipy", "all.zarr")])
def test_months_in_days_since_their_own_first_day_keep_their_bounds(tmp_path, engine, target):
    for number, start in ((1, "2020-02-01"), (0, "2020-01-01")):
        days = (np.datetime64(start) + np.arange(3)).astype("M8[ns]")
        units = {"units": f"days since {start}", "dtype": "f8" if engine == "h5netcdf" else "i4"}
        made = xr.Dataset(
            {"edges": (("time", "b"), np.stack([days, days + np.timedelta64(1, "D")], 1))}, {"time": days}
        )
        made.time.attrs["bounds"] = "edges"
        made.to_netcdf(tmp_path / f"{9 - number}.nc", engine=engine, encoding={"time": units, "edges": units})
    files = [tmp_path / "8.nc", tmp_path / "9.nc"]
    if target == "all.zarr":
        cm.convert(files, tmp_path / target, format="zarr3", concat_dim="time")
    else:
        cm.scan(files, tmp_path / target, concat_dim="time")
    found = xr.load_dataset(tmp_path / target, engine="chunkmill")
    expected = opened_by_xarray(files[::-1], engine)
    assert np.array_equal(found.time.values, expected.time.values)
    assert np.array_equal(found.edges.values, expected.edges.values)


def test_files_that_cannot_be_parsed_are_skipped_and_listed(tmp_path):
    where, _ = write_parts(tmp_path, 3)
    (tmp_path / "1.nc").write_bytes(b"no netCDF, and long enough to have first bytes")
    (tmp_path / "3.nc").write_bytes((tmp_path / "2.nc").read_bytes()[:400])
    with pytest.raises(ScanError, match=r"1.nc: its first bytes are of no kind|3.nc: the parser fails: OSError"):
        cm.scan(where, tmp_path / "all.json", concat_dim="time")
    report = cm.scan(where, tmp_path / "all.json", concat_dim="time", on_error="skip")
    assert report.n_files == 2
    assert sorted(report.skipped) == [str(tmp_path / "1.nc"), str(tmp_path / "3.nc")]
    assert cm.open_array(tmp_path / "all.json", "v").shape == (8, 6)


def test_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    none = {"nothing-*.nc": "no file matches", "nothing.nc": "there is no such file"}
    for urls, reason in (*none.items(), ([], "the list of files is empty")):
        with pytest.raises(ScanError, match=reason):
            cm.scan(urls, tmp_path / "all.json")


def test_a_repeated_scan_parses_new_files_alone(tmp_path):
    target, (where, _) = tmp_path / "all.json", write_parts(tmp_path, 2)
    first = cm.scan(where, target, concat_dim="time")
    assert (first.n_files, first.n_parsed, first.records) == (2, 2, f"file://{target}.scan")
    write_part(tmp_path / "2.nc", 2)
    with pytest.raises(StoreError, match="already there"):
        cm.scan(where, target, concat_dim="time")
    plan = cm.plan_scan(where, target, concat_dim="time", overwrite=True)
    assert plan.n_records == 2
    assert (report := plan.run()).n_parsed == 1
    assert report.n_files == 3
    # written again: its record is of another version, and goes
    write_part(tmp_path / "1.nc", 1, title="again")
    assert cm.scan(where, target, concat_dim="time", overwrite=True).n_parsed == 1
    assert len(list((tmp_path / "all.json.scan").iterdir())) == 3
    expected = opened_by_xarray([tmp_path / f"{number}.nc" for number in range(3)], "h5netcdf")
    xr.testing.assert_identical(xr.load_dataset(target, engine="chunkmill"), expected)
    # other options: nothing on record fits
    assert cm.scan(where, target, concat_dim="time", overwrite=True, drop_variables="packed").n_parsed == 3


def test_a_scan_that_died_resumes(tmp_path):
    target, (where, expected) = tmp_path / "all.parquet", write_parts(tmp_path, 3)
    (tmp_path / "1.nc").rename(tmp_path / "kept")
    (tmp_path / "1.nc").write_bytes(b"no netCDF, and long enough to have first bytes")
    # with threads, some may store a record after the error
    with dask.config.set(scheduler="sync"), pytest.raises(ScanError, match=r"1\.nc"):
        cm.scan(where, target, concat_dim="time")
    n_done = len([*tmp_path.glob("all.parquet.scan/*")])
    (tmp_path / "kept").rename(tmp_path / "1.nc")
    assert cm.scan(where, target, concat_dim="time").n_parsed == 3 - n_done
    xr.testing.assert_identical(xr.load_dataset(target, engine="chunkmill"), expected)


def test_the_command(tmp_path):
    target, (where, _) = str(tmp_path / "all.json"), write_parts(tmp_path, 2)

    def run(*options):
        return CliRunner().invoke(main, ["scan", where, target, "--concat", "time", "--no-progress", *options])

    assert "plan: scan 2 files" in run("--dry-run").output
    assert not (tmp_path / "all.json").exists()
    assert "2, 2 of them parsed now" in run("--drop", "packed").output
    assert set(xr.open_dataset(target, engine="chunkmill").variables) == {"v", "static", "time", "x"}
    refused = run()
    assert (refused.exit_code, "--overwrite" in refused.output) == (3, True)
    assert json.loads(run("--drop", "packed", "--overwrite", "--json").output)["n_parsed"] == 0
    where, target = str(tmp_path / "0.nc"), str(tmp_path / "1.nc")  # of two places the second is no target
    again = run(str(tmp_path / "all.json"), "--drop", "packed", "--overwrite", "--no-records", "--json")
    assert json.loads(again.output)["n_parsed"] == 2


def test_files_open_like_stores(tmp_path, monkeypatch):
    write_part(tmp_path / "0.nc", 0)
    expected = xr.load_dataset(tmp_path / "0.nc", engine="h5netcdf")
    xr.testing.assert_identical(xr.load_dataset(tmp_path / "0.nc", engine="chunkmill"), expected)
    assert cm.open_array(tmp_path / "0.nc", "v")[1, 2] == expected.v[1, 2]
    with pytest.raises(ChunkError, match="read-only"):
        cm.open_array(tmp_path / "0.nc", "v", mode="r+")[...] = 1
    with pytest.raises(NodeNotFound):
        cm.open(tmp_path / "none.nc")
    (tmp_path / "bad.nc").write_bytes(b"no netCDF, and long enough to have first bytes")
    with pytest.raises(NodeNotFound, match="that is a file, and neither"):
        cm.open(tmp_path / "bad.nc")
    cm.create_array(tmp_path / "folder.h5", shape=(2,), dtype="i4")  # a store of such a name stays one
    assert cm.open_array(tmp_path / "folder.h5").shape == (2,)
    monkeypatch.setitem(sys.modules, "virtualizarr.parsers", None)
    with pytest.raises(ScanError, match=r"pip install 'chunkmill\[scan\]'"):
        cm.open(tmp_path / "0.nc")


def test_files_are_converted_by_one_call_that_resumes(tmp_path, monkeypatch):
    where, expected = write_parts(tmp_path, 3)
    about = {"format": "zarr3", "concat_dim": "time", "chunks": {"time": 6}, "shards": {"time": -1}}
    plan = cm.plan_convert(where, tmp_path / "all.zarr", **about)
    with dying_after(2, monkeypatch):
        plan.run()
    assert cm.resume(tmp_path / "all.zarr").n_resumed == 2
    with pytest.raises(NodeExists):
        cm.convert(where, tmp_path / "all.zarr", **about)
    xr.testing.assert_equal(xr.load_dataset(tmp_path / "all.zarr", engine="chunkmill"), expected)
    done = CliRunner().invoke(main, ["convert", where, str(tmp_path / "cli.zarr"), "--concat", "time", "--no-progress"])
    assert done.exit_code == 0, done.output
    assert cm.verify(tmp_path / "all.zarr", tmp_path / "cli.zarr").equal
