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


def test_parquet_byte_for_byte(references, tmp_path):
    store = open_reference_store(written(references, tmp_path))
    mapper = LazyReferenceMapper(str(tmp_path), engine="pyarrow")
    fs = fsspec.filesystem("reference", fo=mapper, remote_protocol="file")
    for key in store.list_prefix(""):
        if not key.rsplit("/", 1)[-1].startswith("."):
            assert fs.cat_file(key) == store.get(key)
        else:
            assert json.loads(fs.cat_file(key)) == json.loads(store.get(key))
