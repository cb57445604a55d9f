"""What `convert` writes is read exactly by every peer that knows the format, with the attributes of CF and OME data."""

import numcodecs
import numpy as np
import pytest
from golden.cases import Case
from interop.peers import WARNINGS
from interop.verdict import complaints
from support.arrays import filled

import chunkmill as cm

pytestmark = WARNINGS

VALUES = np.linspace(-1, 3, 7 * 5).reshape(7, 5).round(3)

CF = {"units": "K", "resolution": "0.25 degrees", "axes": "T", "standard_name": "air_temperature", "scale_factor": 0.01,
    "valid_range": [0, 400], "flag_meanings": "good bad", "cell_methods": "time: mean",
    "history": "2026-11-22: made — été"}  # fmt: skip
IMAGE = {
    "axes": [{"name": "y", "unit": "micrometer"}, {"name": "x"}],
    "datasets": [{"path": "0", "scale": [0.5, 0.25]}],
}
OME = {"ome": {"version": "0.5", "multiscales": [IMAGE]}, "axes": IMAGE["axes"], "units": ["micrometer", "micrometer"],
    "resolution": [0.5, 0.25], "omero": {"window": {"start": 0, "end": 65535.0}}}  # fmt: skip

SOURCES = {
    "plain": {"dtype": "f4", "codecs": "default"},
    "gzip": {"dtype": "i2", "codecs": "gzip"},
    "blosc-big": {"dtype": ">f8", "codecs": "blosc"},
    "quantize with astype": {"dtype": "f8", "codecs": [numcodecs.Quantize(2, "f8", "f4")]},
    "delta with astype": {"dtype": "i4", "codecs": [numcodecs.Delta("i4", "i2")]},
    "scaled": {"dtype": "f8", "codecs": [numcodecs.FixedScaleOffset(0, 1000, "f8", "i2")]},
    "cast": {"dtype": "f8", "codecs": [numcodecs.AsType("f4", "f8")]},
    "bitround": {"dtype": "f4", "codecs": [numcodecs.BitRound(6)]},
    "order-f": {"dtype": "u2", "codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, "zstd"]},
}
FILTERED = {"quantize with astype", "delta with astype", "scaled", "cast", "bitround"}


@pytest.mark.parametrize("target", ["zarr2", "zarr3", "n5"])
@pytest.mark.parametrize("source", ["zarr2", "zarr3"])
def test_conversions(tmp_path, source, target, subtests):
    for name in SOURCES:
        for standard, attributes in {"CF": CF, "OME": OME}.items():
            with subtests.test(f"{name} with attributes of {standard}"):
                convert(tmp_path / f"{name}-{standard}", name, source, target, attributes)


def convert(folder, name, source, target, attributes):
    """Convert one array, and hold what each peer reads against it."""
    given = SOURCES[name]
    url, copy = folder / "source", folder / "copy"
    options = {"chunks": (3, 2), "format": source, "fill_value": 0, "attributes": attributes} | given
    filled((VALUES * 100).astype(given["dtype"]), url, "a", **options)
    values = np.asarray(cm.open_array(url, "a")[...])  # as its filters leave them
    cm.convert(url, copy, format=target, **({"codecs": "gzip"} if target == "n5" else {}))
    array = cm.open_array(copy, "a", format=target)
    assert np.array_equal(array[...], values)
    assert dict(array.attributes) == attributes
    expected = Case("a", lambda: values, path="a", dtype=values.dtype, attributes=attributes)
    # which have no such filters; Zarr v2 knows no other orders of axes, and N5 none at all
    without = {"zarrs", "tensorstore"} if name in FILTERED and target != "n5" else ()
    assert not complaints(copy, target, f"{target}:{name}", expected, without=without)
