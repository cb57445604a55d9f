"""Url pipelines wherever a url is taken."""

import zipfile

import numpy as np
import pytest
import xarray as xr
from support.systems import NEEDS_POSIX_NAMES

import chunkmill as cm
from chunkmill.errors import JobError, NodeNotFound, StoreError

pytestmark = NEEDS_POSIX_NAMES

zarr = pytest.importorskip("zarr")
X = np.arange(70.0).reshape(7, 10)
FORMATS = ["zarr2", "zarr3", "n5"]


@pytest.fixture(params=FORMATS)
def format_(request):
    return request.param


@pytest.fixture
def places(tmp_path, format_):
    """Return urls of one group: of a folder, of an archive, and of an archive in an archive."""
    cm.to_store(X, tmp_path / "x", "g/a", chunks=(3, 4), format=format_)
    with zipfile.ZipFile(tmp_path / "inner.zip", "w") as archive:
        for file in (tmp_path / "x").rglob("*"):
            archive.write(file, f"in side/{file.relative_to(tmp_path / 'x')}")
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.write(tmp_path / "inner.zip", "z/inner.zip")
    folder = f"{tmp_path}/x"
    archives = [
        f"file://{tmp_path}/inner.zip|zip:in%20side",
        f"file:{tmp_path}/outer.zip|zip:z/inner.zip|zip:in%20side/",
    ]
    return [f"{place}|{format_}:g" for place in (folder, f"file://{folder}", *archives)]


def test_sources(places, tmp_path):
    for number, place in enumerate(places):
        assert np.array_equal(cm.open(place)["a"][...], X)
        assert np.array_equal(cm.from_store(f"{place}/a").compute(), X)
        assert cm.verify(place, places[0]).equal
        assert cm.check(place).ok
        assert cm.jobs(place) == []
        xr.testing.assert_equal(xr.open_dataset(place).load(), xr.open_dataset(places[0], engine="chunkmill").load())
        report = cm.convert(place, f"{tmp_path}/copy-{number}|n5:k")
        assert report.n_keys == 9
        assert cm.verify(place, (tmp_path / f"copy-{number}", "k")).equal
        assert np.array_equal(zarr.open_array(cm.zarr_store(place), path="a", mode="r")[:], X)


def test_targets(tmp_path):
    format_ = "n5"
    root = f"{tmp_path}/x|{format_}:"
    cm.create_group(f"{root}g")
    cm.create_array(f"{root}g/made", shape=(4,), dtype="i4")
    cm.create_arrays(f"{root}g", {"one": {"shape": (4,), "dtype": "i4"}, "two": {"shape": (4,), "dtype": "i4"}})
    cm.to_store(X, f"{root}g/a", chunks=(3, 4))
    cm.to_store(-X, f"{root}g/a", region=...)
    cm.store(-X, f"{root}g/a")
    cm.rechunk(f"{root}g/a", f"{root}g/b", chunks=(7, 1))
    cm.pyramid(f"{root}g/a", f"{root}levels", levels=2)
    ds = xr.Dataset({"v": (("y", "x"), X), "y": np.arange(7)})
    cm.write_dataset(ds, f"{root}ds")
    cm.write_dataset(ds.assign_coords(y=ds.y + 7), f"{root}ds", append_dim="y")
    cm.delete(f"{root}g/made")
    found = cm.open_group(tmp_path / "x")
    assert found.format == format_
    assert sorted(found["g"]) == ["a", "b", "one", "two"]
    assert {array.format for array in found["g"].arrays().values()} == {format_}
    assert np.array_equal(found["g/b"][...], -X)
    assert found["ds/v"].shape == (14, 10)
    assert "levels" in found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]  # none is named like a pipeline


def test_another_format_than_the_adapters_is_one_error(places, format_, tmp_path):
    for place in places:
        for other in {*FORMATS, "zarr"} - {format_} - ({"zarr"} if format_ != "n5" else set()):
            wrong = place.replace(f"|{format_}:", f"|{other}:")
            for use in (cm.open, cm.check, cm.from_store, lambda url: xr.open_dataset(url, engine="chunkmill")):
                with pytest.raises(NodeNotFound, match=f"of format '{other}'|array or group at path 'g'"):
                    use(wrong)
            with pytest.raises(NodeNotFound):
                cm.convert(wrong, tmp_path / "copy", format="zarr3")
            with pytest.raises(NodeNotFound):
                cm.delete(wrong)
    for other in set(FORMATS) - {format_}:
        with pytest.raises((NodeNotFound, StoreError), match=f"of format '{format_}'"):
            cm.to_store(X, f"{tmp_path}/x|{other}:g/a", mode="r+")
    assert np.array_equal(cm.open_array(tmp_path / "x", "g/a")[...], X)


def test_reference_sets(tmp_path):
    cm.to_store(X, tmp_path / "x", "g/a", chunks=(3, 4), format="zarr2")
    cm.to_references(f"{tmp_path}/x|zarr2:g", tmp_path / "refs.json")
    assert np.array_equal(cm.from_store(f"{tmp_path}/refs.json|zarr2:a").compute(), X)
    with pytest.raises(StoreError, match="without adapters"):
        cm.to_references(tmp_path / "x", f"{tmp_path}/y.zip|zip:refs.json")


def test_a_job_is_resumed_in_the_format_that_its_url_named(tmp_path):
    cm.to_store(X, tmp_path / "x", "a", chunks=(3, 4))
    plan = cm.plan_convert(tmp_path / "x", f"{tmp_path}/y|n5:k")
    (tmp_path / "x/a/c/0/0").write_bytes(b"torn")
    with pytest.raises(cm.ChunkmillError):
        plan.run()
    assert [job.path for job in cm.jobs(f"{tmp_path}/y|n5:k")] == ["k"]
    assert cm.jobs(f"{tmp_path}/y|n5:other") == []
    with pytest.raises(JobError, match="no unfinished job"):
        cm.resume(f"{tmp_path}/y|n5:other")
    cm.to_store(X, tmp_path / "x", "a", mode="r+")
    cm.resume(f"{tmp_path}/y|n5:k")
    assert cm.open_array(tmp_path / "y", "k/a").format == "n5"
    assert cm.verify(tmp_path / "x", (tmp_path / "y", "k")).equal
