"""Sets that kerchunk, VirtualiZarr and tifffile made are read as fsspec and zarr-python read them, or refused by both."""

import json
from pathlib import Path

import fsspec
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import MetadataError

zarr = pytest.importorskip("zarr")
pytest.importorskip("kerchunk")  # its codecs, of FITS and GRIB
from fsspec.implementations.reference import LazyReferenceMapper  # noqa: E402

WILD = Path(__file__).parents[1] / "golden" / "references" / "wild"
SETS = sorted(path.name for path in WILD.iterdir() if path.suffix in {".json", ".parquet"})
REFUSED = {
    "kerchunk-grib.json": "numcodecs.grib",  # without ecCodes
    "tifffile-predictor.json": "imagecodecs_delta",  # without imagecodecs
}

pytestmark = pytest.mark.filterwarnings("ignore")  # fsspec of its own wrappers, zarr of numcodecs' filters


def paths(name):
    if name.endswith(".json"):
        refs = json.loads((WILD / name).read_text())
        keys = refs.get("refs", refs)
    else:
        keys = json.loads((WILD / name / ".zmetadata").read_text())["metadata"]
    return sorted(key.removesuffix(".zarray").rstrip("/") for key in keys if key.endswith(".zarray"))


def read_as_peers(name, path):
    fo = str(WILD / name) if name.endswith(".json") else LazyReferenceMapper(str(WILD / name), engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=fo, remote_protocol="file", asynchronous=True)
    store = zarr.storage.FsspecStore(fs, path="", read_only=True)
    return np.asarray(zarr.open_array(store, path=path, mode="r", zarr_format=2)[...])


def same(ours, theirs):
    assert ours.shape == theirs.shape
    if theirs.dtype.kind in "OT":
        assert ours.tolist() == theirs.tolist()
    else:
        assert ours.dtype == theirs.dtype.newbyteorder("=")
        assert ours.tobytes() == theirs.astype(ours.dtype).tobytes()


@pytest.mark.parametrize("name", SETS)
def test_as_fsspec_and_zarr_python(name, monkeypatch):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(WILD)  # where the peers look for relative targets
    n_values = 0
    for path in paths(name):
        try:
            theirs = read_as_peers(name, path)
        except Exception:  # noqa: BLE001 - whatever they raise
            with pytest.raises(cm.ChunkmillError, match=REFUSED[name]):
                np.asarray(cm.open_array(WILD / name, path)[...])
            continue
        same(cm.open_array(WILD / name, path)[...], theirs)
        n_values += theirs.size
    assert n_values or name in REFUSED


def test_the_sets_are_there():
    assert len(SETS) == 14
    assert sum(len(paths(name)) for name in SETS) > 40


def gdal(folder, name, shape, chunks, files):
    """Write a set as GDAL's tests of its driver have it, `autotest/gdrivers/data/zarr/kerchunk_parquet`."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    document = {
        "zarr_format": 2, "shape": shape, "chunks": chunks, "compressor": None, "dtype": ">u1", "order": "C",
        "filters": [], "fill_value": None,
    }  # fmt: skip
    metadata = {".zgroup": {"zarr_format": 2}, ".zattrs": {}, f"{name}/.zarray": document, f"{name}/.zattrs": {}}
    (folder / name).mkdir()
    (folder / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": len(files[0])}))
    for n, rows in enumerate(files):
        path, offset, size, raw = zip(*rows, strict=True)
        columns = {
            "path": pa.array(path, pa.string()), "offset": pa.array(offset, pa.int64()), "size": pa.array(size, pa.int64()),
            "raw": pa.array(raw, pa.binary()),
        }  # fmt: skip
        pq.write_table(pa.table(columns), folder / name / f"refs.{n}.parq")
    for n in range(5):
        (folder / f"{n}.bin").write_bytes(bytes(range(6 * n, 6 * n + 6)))
    return folder


def test_gdal_two_dimensions(tmp_path):
    rows = [(f"{n}.bin", 0, 6, None) for n in (0, 1, 2, 4)]
    url = gdal(tmp_path, "ar", [3, 4], [2, 3], [rows[:3], rows[3:]])  # the last file is not filled up
    assert cm.open_array(url, "ar")[...].tolist() == [[0, 1, 2, 6], [3, 4, 5, 9], [12, 13, 14, 24]]


@pytest.mark.parametrize(
    ("shape", "row", "expected"),
    [
        ([1], ("0.bin", 0, 1, None), [0]),
        ([], (None, None, None, b"\x01"), 1),
        ([1], ("one.bin", None, None, None), [7]),  # no size: the whole file
        ([1], ("../{}/one.bin", None, None, None), [7]),
    ],
    ids=["min", "0_dim_inline_content", "0_dim_missing_size", "0_dim_path_dot_dot"],
)
def test_gdal_one_reference(tmp_path, shape, row, expected):
    url = gdal(tmp_path, "x", shape, shape, [[(row[0] and row[0].format(tmp_path.name), *row[1:])]])
    (url / "one.bin").write_bytes(b"\x07")
    assert cm.open_array(url, "x")[...].tolist() == expected


def test_gdal_json_with_a_trailing_comma(tmp_path):
    path = tmp_path / "ref.json"
    path.write_text('{"version": 1, "refs": {".zgroup": "{\\"zarr_format\\":2}", "x/0": ["0.bin", 0, 1]},}')
    with pytest.raises(ValueError):
        fsspec.filesystem("reference", fo=str(path), remote_protocol="file")
    with pytest.raises(MetadataError, match=r"Expecting property name|Illegal trailing comma"):
        cm.open(path)
