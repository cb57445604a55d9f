"""Nothing is written into the file or folder of a reference set: it is said so, and the set stays as it was."""

import dask.array as da
import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import ChunkmillError
from chunkmill.references.write import to_references

pytestmark = pytest.mark.usefixtures("one_thread")
xr = pytest.importorskip("xarray")

DATASET = xr.Dataset({"b": ("x", np.arange(6))})

WRITES = {
    "create_array": lambda url: cm.create_array(url, "n", shape=(2,), dtype="i4"),
    "create_array at the root": lambda url: cm.create_array(url, shape=(2,), dtype="i4", overwrite=True),
    "create_group": lambda url: cm.create_group(url, "g", format="zarr2"),
    "to_store": lambda url: cm.to_store(da.arange(3, chunks=1), url, "n", format="n5"),
    "to_store onto": lambda url: cm.to_store(da.arange(6, chunks=2), url, "a", mode="r+"),
    "write_dataset w-": lambda url: cm.write_dataset(DATASET, url),
    "write_dataset w": lambda url: cm.write_dataset(DATASET, url, mode="w"),
    "write_dataset a": lambda url: cm.write_dataset(DATASET, url, mode="a", format="zarr2"),
    "write_dataset r+": lambda url: cm.write_dataset(DATASET, url, mode="r+"),
    "write_dataset append": lambda url: cm.write_dataset(DATASET, url, append_dim="x"),
    "convert": lambda url: cm.convert(url.parent / "source", url, format="zarr3", overwrite=True),
    "rechunk": lambda url: cm.rechunk(url, (url, "z"), chunks="keep"),
    "consolidate": cm.consolidate,
    "setitem": lambda url: cm.open_array(url, "a", mode="r+").__setitem__(0, 1),
}


@pytest.fixture(params=["refs.json", "refs.parquet"])
def url(request, tmp_path):
    """Return the url of a set over an array of Zarr v2."""
    if "parquet" in request.param:
        pytest.importorskip("pyarrow")
    cm.create_group(tmp_path / "source", format="zarr2")
    cm.to_store(np.arange(6), tmp_path / "source", "a", chunks=(2,), format="zarr2", dimension_names=["x"])
    to_references(tmp_path / "source", tmp_path / request.param)
    return tmp_path / request.param


# a parquet set is a folder, and `rechunk` is asked to write into the folder that it reads
REFUSED = r"reference sets? .*read-only|reference set, and those are read-only|parquet/z/, is inside the source"


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_written(url):
    before = contents(url.parent)
    for write in WRITES.values():
        with pytest.raises(ChunkmillError, match=REFUSED):
            write(url)
        assert contents(url.parent) == before
    np.testing.assert_array_equal(cm.open_array(url, "a")[...], np.arange(6))


def test_other_json_is_no_reference_set(tmp_path):
    """A name does not make one."""
    cm.create_array(tmp_path / "x.json.zarr", "a", shape=(2,), dtype="i4")[...] = 1
    assert cm.write_dataset(DATASET, tmp_path / "x.json.zarr", "g", mode="a").n_keys == 1
