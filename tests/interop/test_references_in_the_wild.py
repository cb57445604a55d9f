"""Sets that kerchunk, VirtualiZarr and tifffile made are read as fsspec and zarr-python read them, or refused by both."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.hostile import v2

import chunkmill as cm

zarr = pytest.importorskip("zarr")
pytest.importorskip("kerchunk")  # its codecs, of FITS and GRIB
from interop.peers import references  # noqa: E402
from interop.verdict import same_as_peer  # noqa: E402

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


@pytest.mark.parametrize("name", SETS)
def test_as_fsspec_and_zarr_python(name, monkeypatch):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(WILD)  # where the peers look for relative targets
    n_values = 0
    for path in paths(name):
        try:
            theirs = np.asarray(zarr.open_array(references(WILD / name), path=path, mode="r", zarr_format=2)[...])
        except Exception:  # noqa: BLE001 - whatever they raise
            with pytest.raises(cm.ChunkmillError, match=REFUSED[name]):
                np.asarray(cm.open_array(WILD / name, path)[...])
            continue
        assert same_as_peer(cm.open_array(WILD / name, path)[...], theirs)
        n_values += theirs.size
    assert n_values or name in REFUSED


def test_the_sets_are_there():
    assert len(SETS) == 14
    assert sum(len(paths(name)) for name in SETS) > 40


def test_sets_in_parquet_as_gdal_has_them(tmp_path):
    """As its tests of its driver: the last file is not filled up, `filters` is empty, and a path leads upwards."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    document = json.loads(v2(shape=[3, 4], chunks=[2, 3], dtype=">u1", filters=[], fill_value=None)[".zarray"])
    (tmp_path / "ar").mkdir()
    (tmp_path / ".zmetadata").write_text(json.dumps({"metadata": {"ar/.zarray": document}, "record_size": 3}))
    for n, numbers in enumerate([[0, 1, 2], [4]]):
        columns = {
            "path": pa.array([f"../{tmp_path.name}/{each}.bin" for each in numbers], pa.string()),
            "offset": pa.array([0] * len(numbers), pa.int64()), "size": pa.array([6] * len(numbers), pa.int64()),
            "raw": pa.nulls(len(numbers), pa.binary()),
        }  # fmt: skip
        pq.write_table(pa.table(columns), tmp_path / "ar" / f"refs.{n}.parq")
        for each in numbers:
            (tmp_path / f"{each}.bin").write_bytes(bytes(range(6 * each, 6 * each + 6)))
    assert cm.open_array(tmp_path, "ar")[...].tolist() == [[0, 1, 2, 6], [3, 4, 5, 9], [12, 13, 14, 24]]
