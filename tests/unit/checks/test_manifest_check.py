"""Values of a store, compared with the manifest of the job that wrote them."""

import numpy as np
import pytest

import chunkmill as cm


@pytest.fixture
def place(tmp_path):
    a = cm.create_array(tmp_path / "a.zarr", "g/x", shape=(100, 100), dtype="u1", chunks=(5, 5), codecs="raw")
    a[...] = 1 + np.arange(10000).reshape(100, 100) % 250
    cm.convert(tmp_path / "a.zarr", tmp_path / "b", format="zarr3", manifest=str(tmp_path / "m.parquet"))
    return tmp_path


def problems(place, path="", **options):
    report = cm.check(place / "b", path, manifest=str(place / "m.parquet"), **options)
    return [(problem.kind, problem.key) for problem in report.problems]


def test_one_flipped_byte_is_found_without_decoding(place):
    report = cm.check(place / "b", manifest=str(place / "m.parquet"))
    assert (report.ok, report.n_keys, report.bytes_read) == (True, 400, 10000)
    value = bytearray((place / "b/g/x/c/7/3").read_bytes())
    value[11] ^= 1
    (place / "b/g/x/c/7/3").write_bytes(value)
    assert cm.check(place / "b").ok  # it decodes
    assert problems(place) == [("differs", "g/x/c/7/3")]
    assert problems(place, "g") == [("differs", "g/x/c/7/3")]
    assert problems(place, "other") == []


def test_a_listing_tells_what_is_absent_or_cut(place):
    (place / "b/g/x/c/7/3").write_bytes(b"cut")
    (place / "b/g/x/c/0/0").unlink()
    found = [("absent", "g/x/c/0/0"), ("differs", "g/x/c/7/3")]
    assert problems(place) == found
    report = cm.check(place / "b", manifest=str(place / "m.parquet"), reads=False)
    assert [(problem.kind, problem.key) for problem in report.problems] == found
    assert report.bytes_read == 0
    assert "25 were written" in report.problems[1].reason


def test_what_goes_together_with_a_manifest_alone_or_not_at_all_is_refused(place):
    with pytest.raises(ValueError, match="reads=False: a listing is compared with a manifest="):
        cm.check(place, reads=False)
    with pytest.raises(ValueError, match="nothing is repaired by a manifest"):
        cm.check(place, manifest="m.parquet", repair=True)
