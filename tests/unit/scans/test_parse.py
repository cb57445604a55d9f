"""Kinds of files, and what a parser returns as a reference set."""

from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from support.cases import cases

from chunkmill.errors import ScanError
from chunkmill.scans.parse import ScannedFile, _registry, kind_of, parse_file, targets_of
from chunkmill.stores.reference import Targets

HDF5 = b"\x89HDF\r\n\x1a\n"


@cases(
    ("head", "kind"),
    [
        (bytes(2048) + HDF5, "hdf5"),  # after a user block
        (bytes(100) + HDF5, None),  # it begins at powers of two times 512
        (b"CDF\x01", "netcdf3"),
        (b"CDF\x05", "netcdf3"),
        (b"CDF\x03", None),
        (b"GRIB", "grib"),
        (b"SIMPLE  = T", "fits"),
        (b"MM\x00+", "tiff"),
        (b"", None),
    ],
)
def test_the_kind_is_that_of_the_first_bytes(head, kind):
    with fsspec.open("memory://scan-kinds/x", "wb") as file:
        file.write(head + bytes(8) if head else b"")
    assert kind_of(ScannedFile("memory://scan-kinds/x")) == kind


def test_options_are_those_of_the_protocol_of_the_files():
    for url, protocol in (("s3://bucket/a.nc", "s3"), ("/data/a.nc", "file")):
        expected = Targets(url, allowed_protocols=("*",), remote_options={protocol: {"anon": True}})
        assert vars(targets_of(url, {"anon": True})) == vars(expected)


def test_a_set_that_a_function_returns():
    found = parse_file(ScannedFile("a.nc"), lambda url: {".zgroup": '{"zarr_format": 2}', "x/0": [url, 4, 8]})
    assert found.locate("x/0").url == "a.nc"
    assert (found.locate("x/0").offset, found.locate("x/0").length) == (4, 8)
    assert parse_file(ScannedFile("a.nc"), lambda _: found) is found


@cases(
    ("parser", "reason"),
    [
        (lambda _: 5, "the parser returned int, expected a reference set"),
        (lambda _: 1 / 0, "the parser fails: ZeroDivisionError"),
        (lambda _: {"x/0": ["a", -4, 8]}, "offset"),
        (lambda url: Path(f"{url}.none").read_bytes(), "there is no such file"),
        ("netcdf9", "there is no parser 'netcdf9'"),
    ],
)
def test_a_function_that_fails_is_one_error(parser, reason):
    with pytest.raises(Exception, match=reason) as caught:
        parse_file(ScannedFile("a.nc"), parser)
    assert isinstance(caught.value, ValueError)


def test_a_protocol_without_a_client_of_the_parsers():
    pytest.importorskip("virtual_tiff")
    with fsspec.open("memory://scan-kinds/y.tif", "wb") as file:
        file.write(b"II*\0" + bytes(40))
    with pytest.raises(ScanError, match=r"parsers open memory:// by obstore"):
        parse_file(ScannedFile("memory://scan-kinds/y.tif"))


def test_parsers_open_web_servers_with_the_headers(monkeypatch):
    monkeypatch.setattr("chunkmill.stores.obstore_clients._new_client", lambda place, _: place)
    pytest.importorskip("obspec_utils")
    file = SimpleNamespace(uri="https://host/x.tif", storage_options={"headers": {"a": "b"}})
    place, path = _registry(file).resolve(file.uri)
    assert (place.url, place.config, path) == ("https://host", file.storage_options, "x.tif")


def test_groups_in_groups_of_a_manifest_store():
    about = SimpleNamespace(to_dict=lambda: {"zarr_format": 3, "node_type": "group"})
    below = SimpleNamespace(metadata=about, arrays={}, groups={})
    top = SimpleNamespace(_group=SimpleNamespace(metadata=about, arrays={}, groups={"g": below}))
    found = parse_file(ScannedFile("a.nc"), lambda _: top)
    assert {key for key, _ in found.items()} == {"zarr.json", "g/zarr.json"}


def test_hdf5_on_any_filesystem():
    h5py = pytest.importorskip("h5py")
    pytest.importorskip("virtualizarr")
    with fsspec.open("memory://scan-kinds/z.h5", "wb") as file, h5py.File(file, "w") as made:
        made["v"] = [1, 2, 3]
    found = parse_file(ScannedFile("memory://scan-kinds/z.h5"))
    assert {key: each.length for key, each in found.items() if each.length} == {"v/c/0": 24}
