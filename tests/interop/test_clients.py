"""Programs that must open what we write: zarrita.js, GDAL, NCZarr and anndata, where they are installed.

zarr-python, TensorStore, zarrs, z5py and pyn5 are asked by the other modules of this folder. ``make peers`` installs
zarrita.js (with npm) and anndata; GDAL and NCZarr are Debian's ``gdal-bin`` and ``netcdf-bin``. What is not there is
skipped by name.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from interop.environments import PEERS, interpreter, run

import chunkmill as cm

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden" / "other_writers"
VALUES = np.arange(24, dtype="f4").reshape(2, 3, 4)


def program(name, package):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"the client {name} is not asked: apt-get install {package} makes it available")
    return path


def write_dataset(store, fmt, codecs="keep"):
    dataset = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), VALUES, {"units": "K"})},
        coords={"lat": [10.0, 20.0, 30.0], "lon": [0.0, 1.0, 2.0, 3.0]},
    )
    cm.write_dataset(dataset, store / "first", format=fmt)
    cm.convert(store / "first", store / "data", format=fmt, codecs=codecs)
    return store / "data"


def zarrita(folder, jobs):
    modules = PEERS / "js" / "node_modules"
    node = program("node", "nodejs")
    if not modules.exists():
        pytest.skip(f"the client zarrita.js is not asked: `make peers` installs it in {modules}")
    (folder / "jobs.json").write_text(json.dumps(jobs))
    (folder / "node_modules").symlink_to(modules)
    script = shutil.copy(HERE / "read_with_zarrita.mjs", folder)  # what a script imports is looked for above it
    return json.loads(run(node, script, folder / "jobs.json"))


CODECS = ["raw", "zstd", "gzip", "blosc", "default", "portable"]


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_zarrita(fmt, tmp_path):
    jobs = []
    for codec in CODECS:
        store = write_dataset(tmp_path / codec, fmt, codec)
        jobs += [{"store": str(store), "path": path} for path in ("t2m", "lat")]
    if fmt == "zarr3":
        cm.to_store(VALUES, tmp_path / "end", chunks=(1, 3, 2), shards=(2, 3, 4))
        jobs.append({"store": str(tmp_path / "end"), "path": ""})
    answers = zarrita(tmp_path, jobs)
    for job, answer in zip(jobs, answers, strict=True):
        expected = [10, 20, 30] if job["path"] == "lat" else VALUES.ravel().tolist()
        assert answer.get("values") == expected, (job, answer)


@pytest.mark.parametrize("codec", ["raw", "zstd", "gzip", "blosc", "numcodecs.zlib"])
def test_gdal(codec, tmp_path):
    """GDAL 3.6 reads Zarr v2; the final v3 since 3.8."""
    command = program("gdalmdiminfo", "gdal-bin")
    version = tuple(map(int, re.findall(r"\d+", run(command, "--version"))[:2]))
    for fmt in ("zarr2", "zarr3") if version >= (3, 8) else ("zarr2",):
        store = write_dataset(tmp_path / fmt, fmt, codec)
        found = json.loads(run(command, "-detailed", "-array", "/t2m", store))
        assert np.array_equal(found["values"], VALUES)
        assert found["unit"] == "K"
        assert [each["name"] for each in found["dimensions"]] == ["time", "lat", "lon"]


def test_nczarr(tmp_path):
    """Debian's is built without plugins and takes compressed bytes for values: what is not compressed it reads."""
    command = program("ncdump", "netcdf-bin")
    store = write_dataset(tmp_path, "zarr2", "raw")
    text = run(command, "-v", "t2m,lat", f"file://{store}#mode=zarr,file")
    assert "float t2m(time, lat, lon)" in text
    assert 't2m:units = "K"' in text
    numbers = re.search(r"t2m =\s*([^;]*);", text)[1]
    assert [float(each) for each in numbers.split(",")] == VALUES.ravel().tolist()


@pytest.mark.filterwarnings("ignore:::zarr")
@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_anndata(fmt, tmp_path):
    python = interpreter("anndata", demanded=False)
    for source in sorted(GOLDEN.glob("anndata-*")):
        cm.convert(source, tmp_path / source.name, format=fmt)
        assert json.loads(run(python, HERE / "read_with_anndata.py", tmp_path / source.name)) == TABLE


TABLE = {
    "X": np.eye(5, 4).tolist(),
    "cell": list("abaca"),
    "n": [0, 1, 2, 3, 4],
    "obs": [f"c{i}" for i in range(5)],
    "var": [f"g{i}" for i in range(4)],
}


@pytest.mark.filterwarnings("ignore:::zarr")
@pytest.mark.parametrize("kind", ["folder", "archive", "references"])
def test_anndata_reads_what_is_shown(kind, tmp_path):
    python = interpreter("anndata", demanded=False)
    if subprocess.run([python, "-c", "import chunkmill, dask"], capture_output=True, check=False).returncode:
        pytest.skip("chunkmill is not in the environment of anndata: `make peers` makes it, when that is removed")
    for source in sorted(GOLDEN.glob("anndata-*")):
        place = source
        if kind == "archive":
            place = Path(shutil.make_archive(str(tmp_path / source.name), "zip", source))
        elif kind == "references":
            place = tmp_path / f"{source.name}.json"
            cm.to_references(source, place)
        assert json.loads(run(python, HERE / "read_with_anndata.py", "--shown", place)) == TABLE
