"""Reference sets that kerchunk made from a netCDF-4 file, in JSON and parquet: every value is found."""

from pathlib import Path

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.nodes.reference_sets import open_reference_store

GOLDEN = Path(__file__).parents[1] / "golden" / "references"
SETS = sorted(p.name for p in GOLDEN.iterdir() if p.suffix in {".json", ".parquet"})

AIR = (np.arange(5 * 4 * 6).reshape(5, 4, 6) * 37 % 500 - 250).astype("i2")
EXPECTED = {
    "air": AIR, "time": np.arange(5) * 6.0, "lat": np.arange(4, dtype="f4") - 1.5,
    "lon": np.arange(6, dtype="f4") - 1.5, "sparse": np.array([-9, -9, 20, 30, -9, -9], "i4"), "crs": np.array(7, "i4"),
    "checked": np.arange(6, dtype="f4") / 4, "deep/er/air": (AIR[:, :, 0] % 200).astype("u1"),
}  # fmt: skip


def test_there_are_sets():
    assert len(SETS) == 6


@pytest.mark.parametrize("name", SETS)
def test_values(name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    for path, expected in EXPECTED.items():
        np.testing.assert_array_equal(cm.open_array(GOLDEN / name, path)[...], expected, strict=True)


@pytest.mark.parametrize("name", SETS)
def test_keys_are_those_of_the_chunks_that_exist(name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    store = open_reference_store(GOLDEN / name, {"base": GOLDEN})
    keys = set(store.list_prefix(""))
    assert {key for key in keys if key.startswith("sparse/")} == {"sparse/.zarray", "sparse/.zattrs", "sparse/1"}
    assert {key for key in keys if key.startswith("deep/er/air/") and not key.rsplit("/", 1)[1].startswith(".")} == {
        f"deep/er/air/{i}.{j}" for i in range(2) for j in range(2)
    }
    assert [n for n in store.list_dir("") if n.endswith("/")] == sorted({f"{path.split('/')[0]}/" for path in EXPECTED})
    assert store.list_dir("deep/") == [".zattrs", ".zgroup", "er/"]
    assert store.list_dir("crs/") == [".zarray", ".zattrs", "0"]


def test_base_names_another_folder(tmp_path):
    import xarray as xr

    path = tmp_path / "moved.json"
    path.write_bytes((GOLDEN / "kerchunk.json").read_bytes())
    for opened in (
        cm.open(path, base=GOLDEN)["air"],
        cm.open_group(path, base=GOLDEN)["air"],
        cm.open_array(path, "air", base=str(GOLDEN)),
        cm.from_store(path, "air", base=GOLDEN.as_uri()),
        xr.open_dataset(path, engine="chunkmill", base=GOLDEN, decode_cf=False)["air"],
        xr.open_datatree(path, engine="chunkmill", base=GOLDEN, mask_and_scale=False)["air"],
    ):
        assert np.array_equal(opened[...] if isinstance(opened, cm.Array) else np.asarray(opened), EXPECTED["air"])
    with pytest.warns(UserWarning, match=r"the path is relative, and there is none in .* say to what by base="):
        cm.open(path)
