"""What is written, fsspec's reference filesystem, zarr-python and kerchunk's xarray engine open."""

import json
from pathlib import Path

import fsspec
import numpy as np
import pytest

from chunkmill.formats.references.json import emit_reference_json, parse_reference_json
from chunkmill.nodes.reference_sets import open_reference_store

zarr = pytest.importorskip("zarr")
from fsspec.implementations.reference import LazyReferenceMapper  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "references"
AIR = (np.arange(5 * 4 * 6).reshape(5, 4, 6) * 37 % 500 - 250).astype("i2")

pytestmark = [
    # fsspec warns of its own wrapper of synchronous filesystems, zarr of numcodecs' filters
    pytest.mark.filterwarnings("ignore")
]


@pytest.fixture(params=["kerchunk.json", "kerchunk-inlined.json"])
def references(request):
    """A set of kerchunk's, with absolute urls: peers know no base."""
    text = (GOLDEN / request.param).read_text().replace('"small.nc"', json.dumps(f"file://{GOLDEN}/small.nc"))
    return parse_reference_json(text.encode())


def written(references, folder):
    pytest.importorskip("pyarrow")
    from chunkmill.formats.references.parquet import emit_reference_parquet

    for name, value in emit_reference_parquet(references, record_size=4):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)
    return folder


def check(fs):
    store = zarr.storage.FsspecStore(fs, path="", read_only=True)
    group = zarr.open_group(store, mode="r", zarr_format=2, use_consolidated=False)
    np.testing.assert_array_equal(group["air"][...], AIR)
    np.testing.assert_array_equal(group["time"][...], np.arange(5) * 6.0)
    np.testing.assert_array_equal(group["deep/er/air"][...], AIR[:, :, 0] % 200)
    assert group["crs"][...] == 7
    assert group["air"].attrs["units"] == "K"
    return group


def test_json(references, tmp_path):
    path = tmp_path / "refs.json"
    path.write_bytes(emit_reference_json(references))
    fs = fsspec.filesystem("reference", fo=str(path), remote_protocol="file", asynchronous=True)
    group = check(fs)
    np.testing.assert_array_equal(group["sparse"][...], [-9, -9, 20, 30, -9, -9])


def test_parquet(references, tmp_path):
    # the engine that is installed; and no array with gaps: pandas 3 turns null paths into NaN, which fsspec takes for a url
    mapper = LazyReferenceMapper(str(written(references, tmp_path)), engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=mapper, remote_protocol="file", asynchronous=True)
    group = check(fs)
    np.testing.assert_array_equal(group["sparse"][2:4], [20, 30])


def test_parquet_byte_for_byte(references, tmp_path):
    store = open_reference_store(written(references, tmp_path))
    mapper = LazyReferenceMapper(str(tmp_path), engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=mapper, remote_protocol="file")
    for key in store.list_prefix(""):
        if not key.rsplit("/", 1)[-1].startswith("."):
            assert fs.cat_file(key) == store.get(key)
        else:
            assert json.loads(fs.cat_file(key)) == json.loads(store.get(key))


def test_kerchunk_s_xarray_engine(references, tmp_path):
    pytest.importorskip("kerchunk")
    xr = pytest.importorskip("xarray")
    path = tmp_path / "refs.json"
    path.write_bytes(emit_reference_json(references))
    options = {"storage_options": {"remote_protocol": "file"}, "open_dataset_options": {"chunks": None}}
    with xr.open_dataset(str(path), engine="kerchunk", **options) as dataset:
        np.testing.assert_array_equal(dataset["air"].values, AIR * 0.5)


def test_kerchunk_s_sets_of_real_files():
    """References to netCDF-4 files of iris-sample-data, against the files themselves."""
    kerchunk_hdf = pytest.importorskip("kerchunk.hdf")
    iris = pytest.importorskip("iris_sample_data")
    h5py = pytest.importorskip("h5py")
    folder = Path(iris.path)
    n_arrays = 0
    for name in ("A1B_north_america.nc", "rotated_pole.nc", "atlantic_profiles.nc", "hybrid_height.nc"):
        with (folder / name).open("rb") as file:
            refs = kerchunk_hdf.SingleHdf5ToZarr(file, name, inline_threshold=50).translate()
        store = open_reference_store("reference://", {"fo": refs, "base": str(folder)})
        peer = fsspec.filesystem("reference", fo=_absolute(refs, folder), remote_protocol="file")
        with h5py.File(folder / name) as file:
            arrays = [key.removesuffix("/.zarray") for key in store.list_prefix("") if key.endswith("/.zarray")]
            assert set(arrays) <= set(file)
            for key in store.list_prefix(""):
                assert store.get(key) == peer.cat_file(key)
            n_arrays += len(arrays)
    assert n_arrays > 20


def _absolute(refs, folder):
    entries = {k: [f"{folder}/{v[0]}", *v[1:]] if isinstance(v, list) else v for k, v in refs["refs"].items()}
    return {"version": 1, "refs": entries}
