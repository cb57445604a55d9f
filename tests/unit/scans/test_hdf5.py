"""HDF5 files whose attributes, dimensions and names VirtualiZarr says wrongly, or fails at."""

from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr

import chunkmill as cm
from chunkmill.errors import ScanError

h5py = pytest.importorskip("h5py")

pytest.importorskip("virtualizarr", reason="of the extra `scan`")


@pytest.fixture
def file(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as made:
        yield made


def scanned(file):
    path = file.filename
    file.close()
    cm.scan(path, f"{path}.json")
    return cm.open_group(f"{path}.json")


ATTRIBUTES = {  # others: test_entries.py
    "no text": (h5py.Empty("S1"), ""),
    "no numbers": (h5py.Empty("f4"), []),
    "texts of variable length": (["a", "bc\u00e9"], ["a", "bc\u00e9"]),
    "Latin-1": (np.bytes_("\u00b0C".encode("latin-1")), "\u00b0C"),
    "a boolean": (np.True_, True),
}


def test_attributes(file):
    file["v"] = [1, 2, 3]
    for name, (value, _) in ATTRIBUTES.items():
        file.attrs[name] = file["v"].attrs[name] = value
    group = scanned(file)
    for node in (group, group["v"]):
        assert node.attributes == {name: expected for name, (_, expected) in ATTRIBUTES.items()}


@pytest.mark.parametrize("value", [np.bytes_(b"b"), np.array([b"b"]), "b"])
def test_fill_values_of_texts(file, value):
    file.create_dataset("v", data=np.array([b"a", b"b"]))
    file["v"].attrs["_FillValue"] = value
    found = scanned(file)
    assert found["v"][...].tolist() == [b"a", b"b"]
    read = xr.load_dataset(found.url, engine="chunkmill", concat_characters=False).v
    assert read.encoding["_FillValue"] == b"b"
    assert read.isnull().values.tolist() == [False, True]


def test_empty_texts_are_not_missing(file, tmp_path):
    file.create_dataset("v", data=["a", "", "bcd"], dtype=h5py.string_dtype())
    file.create_dataset("s", data=np.array([b"a", b"", b"b"]), chunks=(2,))
    expected = {"v": ["a", "", "bcd"], "s": [b"a", b"", b"b"]}
    url = scanned(file).url
    for kind in ("zarr2", "zarr3"):
        cm.convert(url.removesuffix(".json"), tmp_path / kind, format=kind)
    options = {"engine": "zarr", "consolidated": False}
    read = [
        xr.load_dataset(url, engine="chunkmill"),
        xr.load_dataset("reference://", storage_options={"fo": url.removeprefix("file://")}, **options),
        *(xr.load_dataset(tmp_path / kind, **options) for kind in ("zarr2", "zarr3")),
    ]
    for each in read:
        assert {name: each[name].values.tolist() for name in expected} == expected


def test_a_fill_value_of_several_elements_is_named(file):
    file["v"] = [1, 2, 3]
    file["v"].attrs["_FillValue"] = [1, 2]
    with pytest.raises(ScanError, match="'v' cannot be referenced: its attribute '_FillValue' has 2 elements"):
        scanned(file)


def test_an_axis_with_two_dimension_scales_is_named(file):
    for name in ("v", "a", "b"):
        file[name] = [1, 2, 3]
    for name in ("a", "b"):
        file[name].make_scale(name)
        file["v"].dims[0].attach_scale(file[name])
    with pytest.raises(ScanError, match="'v' cannot be referenced: its axis 0 has 2 dimension scales"):
        scanned(file)


def test_an_attribute_that_cannot_be_read_is_named(file):
    file["v"] = [1, 2, 3]
    h5py.h5a.create(file["v"].id, b"t", h5py.h5t.UNIX_D32LE, h5py.h5s.create(h5py.h5s.SCALAR))
    with pytest.raises(ScanError, match="'v' cannot be referenced: its attribute 't' cannot be read: "):
        scanned(file)


WRONG = {"return_value.metadata.to_dict.return_value": {}}


@pytest.mark.parametrize("make", [Mock(side_effect=KeyError), Mock(**WRONG)], ids=["fails", "wrong"])
def test_what_the_parser_fails_at_is_stored_in_the_set(file, monkeypatch, make):
    monkeypatch.setattr("virtualizarr.parsers.hdf.hdf._construct_manifest_array", make)
    file["v"] = [1, 2, 3]
    assert scanned(file)["v"][...].tolist() == [1, 2, 3]
    assert make.called


@pytest.mark.skipif(np.dtype("g").itemsize == 8, reason="this system has no long doubles")
def test_values_that_no_array_holds_are_named(file):
    file["v"] = np.zeros(3, "g")
    with pytest.raises(ScanError, match=r"'v' cannot be referenced: .*, and .*float(96|128)"):
        scanned(file)


def test_values_of_an_unknown_filter_are_named(file):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((3,))
    plist.set_filter(40_000, h5py.h5z.FLAG_OPTIONAL)
    made = h5py.h5d.create(file.id, b"v", h5py.h5t.NATIVE_INT8, h5py.h5s.create_simple((3,)), plist)
    made.write_direct_chunk((0,), b"abc")
    with pytest.raises(ScanError, match=r"'v' cannot be referenced: its filters are not known: .*, and it cannot be"):
        scanned(file)


def test_axes_without_names_have_one_length_each(file):
    file["a"], file["b"], file["c"] = np.zeros((2, 3)), np.zeros((3, 2)), np.zeros((4, 4))
    file["below/a"] = np.zeros((5, 6))
    found = scanned(file)
    dims = {name: found[name].dimension_names for name in ("a", "b", "c", "below/a")}
    assert dims["a"] == dims["b"][::-1]
    assert len({*dims["a"], *dims["c"]}) == 4
    assert dims["below/a"] == ("phony_dim_0", "phony_dim_1")
    sizes = dict(zip((*dims["a"], *dims["c"]), (2, 3, 4, 4), strict=True))
    assert xr.load_dataset(found.url, engine="chunkmill").sizes == sizes


def test_a_coordinate_without_values_is_kept_and_a_dimension_without_one_is_none(tmp_path):
    made = xr.Dataset({"v": (("time", "x"), np.zeros((0, 2)))}, {"time": np.zeros(0)})
    made.to_netcdf(tmp_path / "x.nc", engine="h5netcdf", unlimited_dims=["time"])
    cm.scan(tmp_path / "x.nc", tmp_path / "x.json")
    xr.testing.assert_identical(xr.load_dataset(tmp_path / "x.json", engine="chunkmill"), made)


def test_a_variable_that_is_called_as_a_dimension_of_others(tmp_path):
    h5netcdf = pytest.importorskip("h5netcdf")
    with h5netcdf.File(tmp_path / "x.nc", "w") as made:
        made.dimensions = {"x": 2, "y": 3}
        made.create_variable("x", ("y",), data=np.arange(3.0))
        made.create_variable("v", ("x",), data=np.arange(2.0))
    cm.scan(tmp_path / "x.nc", tmp_path / "x.json")
    found = cm.open_group(tmp_path / "x.json")
    assert sorted(found) == ["v", "x"]
    assert (found["x"].dimension_names, found["v"].dimension_names) == (("y",), ("x",))
    assert np.array_equal(found["x"][...], np.arange(3.0))


@pytest.mark.parametrize(("value", "kept"), [(1.5, 1.5), (np.nan, None), (2.0, 2), (40_000, 40_000)])
def test_fill_values_that_no_element_equals_mask_nothing(file, value, kept):
    file.create_dataset("v", data=np.array([0, 1, 2], "i2")).attrs["_FillValue"] = value
    found = scanned(file)
    assert found["v"].attributes.get("_FillValue") == kept
    read = xr.load_dataset(found.url, engine="chunkmill").v.values
    assert np.array_equal(read, [0, 1, np.nan if kept == 2 else 2], equal_nan=True)
    cm.convert(found, f"{found.url}.zarr", format="zarr2")
    read = xr.load_dataset(f"{found.url}.zarr", engine="zarr", consolidated=False).v.values
    assert np.array_equal(read, [0, 1, np.nan if kept == 2 else 2], equal_nan=True)


@pytest.mark.parametrize("orders", ["<<", ">>", "><"])
def test_compounds_of_any_byte_order(file, orders):
    values = np.array([(1, 2.5), (3, 4.5)], [("a", f"{orders[0]}i4"), ("b", f"{orders[1]}f8")])
    file.create_dataset("v", data=values, chunks=(2,), compression="gzip")
    found = scanned(file)
    assert found["v"][...].tolist() == values.tolist()
    read = {key: each for key, each in found.store.references.items() if key.endswith(("v/0", "v/c/0"))}
    assert [each.data is None for each in read.values()] == [orders != "><"]
