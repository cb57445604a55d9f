"""Conversions that describe images as OME-Zarr."""

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from ome_zarr_models import open_ome_zarr

import chunkmill as cm
from chunkmill.cli.main import main
from chunkmill.errors import UnsupportedFeature
from chunkmill.stores.memory import MemoryStore

VALUES = np.arange(8 * 16 * 16, dtype="u2").reshape(8, 16, 16)


@pytest.fixture
def scan(tmp_path):
    """Levels as N5 tools leave them, two images in one tree."""
    url = str(tmp_path / "scan.n5")
    for image in ("a", "b"):
        for number, step in enumerate(((1, 1, 1), (1, 2, 2))):
            level = VALUES[tuple(slice(None, None, n) for n in step)]
            cm.create_array(url, f"{image}/s{number}", shape=level.shape, dtype="u2", chunks=(4, 8, 8), codecs="gzip",
                            format="n5", attributes={"downsamplingFactors": list(step)[::-1]})[...] = level  # fmt: skip
        group = cm.open_group(url, image, mode="r+")
        group.update_attributes({"pixelResolution": {"dimensions": [1, 1, 4], "unit": "nanometer"}, "mine": image})
    return url


@pytest.mark.parametrize(("format_", "version"), [("zarr2", "0.4"), ("zarr3", "0.5")])
def test_from_n5(scan, tmp_path, format_, version):
    target = str(tmp_path / "scan.zarr")
    report = cm.convert(scan, target, format=format_, ome=version)
    assert report.actions == {"reframe": 20}
    for image in ("a", "b"):
        group = cm.open_group(target, image)
        (found,) = group.multiscales
        assert found.version == version
        assert [level.scale for level in found] == [(4, 1, 1), (4, 2, 2)]
        assert [level.translation for level in found] == [(0, 0, 0), (0, 0.5, 0.5)]
        assert group.attributes["mine"] == image
        assert not group["s1"].attributes.keys() & {"downsamplingFactors", "pixelResolution"}
        assert group["s1"].metadata.chunk_keys.separator == "/"
        np.testing.assert_array_equal(group["s0"][...], VALUES)
        assert type(open_ome_zarr(zarr.open_group(f"{target}/{image}", mode="r"))).__name__ == "Image"


def test_between_versions(scan, tmp_path):
    old, new = str(tmp_path / "old.zarr"), str(tmp_path / "new.zarr")
    cm.convert(scan, old, format="zarr2", ome="0.4")
    cm.open_group(old, "a", mode="r+").update_attributes({"omero": {"id": 1}})
    cm.create_group(old, "labels", attributes={"labels": ["x"]}, format="zarr2")
    cm.convert(old, new, format="zarr3", ome="0.5")
    assert cm.open_group(new, "a").attributes["ome"]["omero"] == {"id": 1}
    assert cm.open_group(new, "labels").attributes == {"ome": {"version": "0.5", "labels": ["x"]}}
    assert cm.open_array(new, "a/s1").dimension_names == ("z", "y", "x")
    again = MemoryStore()
    cm.convert(new, again, format="zarr2", ome="0.4")
    assert cm.open_group(again, "a").attributes == cm.open_group(old, "a").attributes
    assert cm.open_group(again, "labels").attributes == {"labels": ["x"]}


def test_on_the_command_line(scan, tmp_path):
    target = str(tmp_path / "scan.zarr")
    result = CliRunner().invoke(main, ["convert", scan, target, "--ome", "0.5"])
    assert result.exit_code == 0, result.output
    assert len(cm.open_group(target, "b").multiscales[0]) == 2


def test_refused(scan):
    with pytest.raises(UnsupportedFeature, match=r"n5 does not support OME-Zarr 0.5.*0.4 is for Zarr v2"):
        cm.plan_convert(scan, MemoryStore(), format="n5", ome="0.5")
    with pytest.raises(UnsupportedFeature, match=r"zarr3 does not support OME-Zarr 0\.4"):
        cm.plan_pyramid((scan, "a"), MemoryStore(), format="zarr3", ome="0.4")
    plain = MemoryStore()
    cm.create_array(plain, "x", shape=(4,), dtype="i4", chunks=(2,))
    with pytest.raises(ValueError, match="no group of the source describes a multiscale image"):
        cm.plan_convert(plain, MemoryStore(), format="zarr3", ome="0.5")


def test_plates_and_labels(tmp_path):
    old, new = str(tmp_path / "old.zarr"), str(tmp_path / "new.zarr")
    plate = {
        "version": "0.4",
        "columns": [{"name": "1"}],
        "rows": [{"name": "A"}],
        "wells": [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}],
    }
    cm.create_group(old, attributes={"plate": plate}, format="zarr2")
    cm.create_group(old, "A", format="zarr2")
    cm.create_group(old, "A/1", attributes={"well": {"version": "0.4", "images": [{"path": "0"}]}}, format="zarr2")
    source = cm.create_array(MemoryStore(), shape=(32, 32), dtype="u1", chunks=(16, 16), format="zarr2")
    source[...] = 7
    cm.pyramid(source, (old, "A/1/0"), scale=0.5, units="micrometer")
    cm.pyramid(source, (old, "A/1/0/labels/cells"), scale=0.5, method="mode")
    cm.open_group(old, "A/1/0/labels", mode="r+").update_attributes({"labels": ["cells"]})
    cells = cm.open_group(old, "A/1/0/labels/cells", mode="r+")
    cells.update_attributes({"image-label": {"version": "0.4", "source": {"image": "../../"}}})
    cm.convert(old, new, format="zarr3", ome="0.5")
    kinds = {"": "HCS", "A/1": "Well", "A/1/0": "Image", "A/1/0/labels": "Labels", "A/1/0/labels/cells": "ImageLabel"}
    for url in (old, new):
        for path, kind in kinds.items():
            assert type(open_ome_zarr(zarr.open_group(url, path=path, mode="r"))).__name__ == kind
