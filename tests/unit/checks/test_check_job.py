"""A check decodes every chunk, names what is wrong with it, and repairs what can be derived."""

import numpy as np
from support.cases import cases

import chunkmill as cm
from chunkmill.checks.check import CheckReport
from chunkmill.checks.inventory import Problem


def found(store, **options):
    return [(p.kind, p.key, p.coords) for p in cm.check(store, progress=False, **options).problems]


def test_a_report_as_text_and_as_plain_values():
    problem = Problem("stale", "", "zarr.json", "differs", None, repaired=True)
    report = CheckReport("memory://x", "g", (problem,), 1, 2, 3, 4, 5, 0.5)
    assert report.ok
    assert "memory://x/g" in str(report)
    assert "1 of them repaired" in str(report)
    assert report.to_dict()["problems"][0]["key"] == "zarr.json"
    assert str(problem) == "stale: zarr.json: differs (repaired)"


@cases(
    ("fmt", "codecs"),
    [
        ("zarr3", "raw"), ("zarr3", "zstd"), ("zarr3", "gzip"), ("zarr3", "blosc"),
        ("zarr2", [{"name": "numcodecs.bz2", "configuration": {}}]), ("n5", "raw"), ("n5", "gzip"),
        ("n5", [{"name": "n5_lz4", "configuration": {}}]),
    ],
)  # fmt: skip
def test_a_value_that_ends_early_is_short_whatever_its_codec_says(store, fmt, codecs):
    """Codecs tell it in messages of their own: one that is reworded must still be understood."""
    array = cm.create_array(store, "a", shape=(400,), dtype="i4", chunks=(400,), codecs=codecs, format=fmt)
    array[...] = np.random.default_rng(0).integers(0, 1000, 400)
    (key,) = (key for key in store.list_prefix("a/") if array.write_layout.locator.key((0,)) == key)
    store.set(key, store.get(key)[: 2 * store.size(key) // 3])
    assert found(store) == [("short", key, (0,))]
