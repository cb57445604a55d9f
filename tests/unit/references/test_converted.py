"""Virtual netCDF becomes real Zarr: convert and verify over reference sets, and back to them."""

from itertools import pairwise
from pathlib import Path

import dask
import numpy as np
import pytest
from support.arrays import filled

import chunkmill as cm
from chunkmill.references.write import to_references

GOLDEN = Path(__file__).parents[2] / "golden" / "references"
SETS = ["kerchunk.json", "kerchunk-inlined.json", "kerchunk-4.parquet"]
NAMED = {"storage_options": {"base": str(GOLDEN)}}


def twice(array):
    """Shards of two chunks along each axis."""
    return tuple(2 * n for n in array.chunks) if array.ndim else None


@pytest.mark.parametrize("name", SETS)
def test_virtual_netcdf_becomes_sharded_zarr(name, tmp_path):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with dask.config.set(scheduler="threads"):
        plan = cm.plan_convert(GOLDEN / name, tmp_path / "real.zarr", format="zarr3", shards=twice, **NAMED)
        actions = {row["array"]: row["action"] for row in plan.arrays}
        assert actions.pop("crs") == "copy"  # 0-d: no shards
        assert set(actions.values()) == {"repack"}  # ranges are fetched and put into shards: nothing is decoded
        report = plan.run()
        assert report.actions["absent"] == 2  # of `sparse`
        assert "recode" not in report.actions
        assert cm.verify(GOLDEN / name, tmp_path / "real.zarr", **NAMED).equal
    air = cm.open_array(tmp_path / "real.zarr", "air")
    assert air.shards == tuple(2 * n for n in air.chunks)
    inner = [codec["name"] for codec in air.codecs[0].configuration["codecs"]]
    assert inner == ["bytes", "numcodecs.shuffle", "numcodecs.zlib"]
    assert air.dimension_names == ("time", "lat", "lon")
    assert (air.attributes["units"], air.attributes["scale_factor"]) == ("K", 0.5)


def test_without_shards_ranges_are_copied(tmp_path):
    plan = cm.plan_convert(GOLDEN / "kerchunk.json", tmp_path / "real.zarr", format="zarr3", **NAMED)
    assert {row["action"] for row in plan.arrays} == {"copy"}
    plan.run()
    assert cm.verify(GOLDEN / "kerchunk.json", tmp_path / "real.zarr", **NAMED).equal
    # and back to references, over what was made
    to_references(tmp_path / "real.zarr", tmp_path / "again.json")
    assert cm.verify(GOLDEN / "kerchunk.json", tmp_path / "again.json", **NAMED).equal


def test_shard_indexes_and_n5_headers_are_read_by_several_tasks(tmp_path):
    for name, options in {"sharded": {"shards": (20, 20)}, "n5": {"format": "n5", "codecs": "gzip"}}.items():
        cm.create_group(tmp_path / name, format=options.get("format", "zarr3"))
        filled(np.arange(95 * 93, dtype="i4").reshape(95, 93), tmp_path / name, "a", chunks=(5, 10), **options)
    with dask.config.set(scheduler="threads"):
        reports = [to_references(tmp_path / name, tmp_path / f"{name}.json") for name in ("sharded", "n5")]
        assert [(each.n_tasks, each.n_requests, each.n_inline) for each in reports] == [(25, 50, 0), (38, 399, 19)]
        for name in ("sharded", "n5"):
            assert cm.verify(tmp_path / name, tmp_path / f"{name}.json").equal
        assert all(a.n_absent == b.n_absent == 0 for a, b in pairwise(reports))
