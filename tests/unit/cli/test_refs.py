"""``chunkmill refs``: make, combine, info."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import chunkmill as cm
from chunkmill.cli.main import main


@pytest.fixture
def archive(tmp_path):
    url = str(tmp_path / "archive.n5")
    cm.create_group(url, format="n5")
    a = cm.create_array(
        url, "t", shape=(7, 4), chunks=(2, 4), dtype="i2", format="n5", codecs="gzip", dimension_names=["time", "x"]
    )
    a[2:] = np.arange(1, 21).reshape(5, 4)
    return url


def run(*args, code=0):
    result = CliRunner().invoke(main, ["refs", *map(str, args)], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def test_make_and_info(archive, tmp_path):
    report = json.loads(run("make", archive, tmp_path / "set.json", "--json").stdout)
    assert (report["n_references"], report["n_inline"], report["n_absent"]) == (2, 1, 1)
    assert cm.verify(archive, str(tmp_path / "set.json")).equal
    facts = json.loads(run("info", tmp_path / "set.json", "--json").stdout)
    assert facts["arrays"] == [{"path": "t", "n_chunks": 4, "n_references": 2, "n_inline": 1, "n_absent": 1}]
    assert facts["bytes_referenced"] == report["bytes_referenced"]
    assert facts["n_targets"] == 2
    shown = run("info", tmp_path / "set.json").stdout
    assert "t      4       2           1       1" in shown
    assert f"file://{tmp_path}/archive.n5/t/0/1" in shown


def test_json_becomes_parquet(archive, tmp_path):
    pytest.importorskip("pyarrow")
    run("make", archive, tmp_path / "set.json")
    run("make", tmp_path / "set.json", tmp_path / "set.parquet", "--record-size", 3)
    assert json.loads(run("info", tmp_path / "set.parquet", "--json").stdout)["layout"] == "parquet"
    assert cm.verify(archive, str(tmp_path / "set.parquet")).equal


def test_combine(archive, tmp_path):
    cm.convert((archive, "t"), (str(tmp_path / "b.zarr"), "t"), format="zarr2", codecs="keep")
    for i in range(2):
        cm.create_group(tmp_path / f"{i}.zarr", format="zarr2")
        a = cm.create_array(
            tmp_path / f"{i}.zarr", "t", shape=(4,), chunks=(2,), dtype="i4", format="zarr2", dimension_names=["time"]
        )
        a[...] = i + 1
        run("make", tmp_path / f"{i}.zarr", tmp_path / f"{i}.json")
    run("combine", tmp_path / "0.json", tmp_path / "1.json", tmp_path / "both.json", "--dim", "time")
    np.testing.assert_array_equal(cm.open_array(tmp_path / "both.json", "t")[...], [1, 1, 1, 1, 2, 2, 2, 2])
    error = run("combine", tmp_path / "0.json", tmp_path / "1.json", tmp_path / "x.json", "--dim", "y", code=3).stderr
    assert "has a dimension 'y': they have 'time'" in error
    planned = run(
        "combine", tmp_path / "0.json", tmp_path / "1.json", tmp_path / "x.json", "--dim", "time", "--dry-run"
    )
    assert "t      4       4           0       0" in planned.stdout
    assert not (tmp_path / "x.json").exists()
