"""Plans say who cannot read the target, as the peers themselves prove; ``codecs="portable"`` is read by all."""

import json

import numpy as np
import pytest
from interop.peers import WARNINGS, read_tensorstore, read_zarr_python, read_zarrs

import chunkmill as cm
from chunkmill.formats.peers import lacking

pytestmark = WARNINGS

PEERS = {"zarr-python 3.1": read_zarr_python, "TensorStore": read_tensorstore, "zarrs": read_zarrs}
NUMBERS = np.arange(24, dtype="i4").reshape(4, 6)
CODECS = [
    "numcodecs.zlib", "numcodecs.bz2", "numcodecs.lz4", "numcodecs.lzma", "numcodecs.fletcher32", "numcodecs.adler32",
    "crc32c", "gzip", "blosc", "zstd", {"id": "delta", "dtype": "<i4"}, {"id": "shuffle", "elementsize": 4},
]  # fmt: skip
VALUES = {
    "string": np.array(["a", "bc"], dtype="T"),
    "structure": np.zeros(2, [("a", "i4"), ("b", "f8")]),
    "fixed text": np.array(["a", "bc"]),
    "fixed bytes": np.array([b"a", b"bc"]),
    "times": np.array(["2020", "2021"], "M8[s]"),
    "half": np.ones(2, "f2"),
    "complex": np.ones(2, "c8"),
    "bool": np.ones(2, "?"),
}


def readers(store, fmt, values):
    """Return the peers that read the values."""
    found = set()
    for peer, read in PEERS.items():
        try:
            if np.array_equal(read(store, "", fmt).values, values):
                found.add(peer)
        except Exception:  # noqa: BLE001 - whatever it is, it does not read the array
            continue
    return found


def named(store, fmt):
    array = cm.open_array(store)
    return set(PEERS) - {peer for peers in lacking(array.metadata, fmt).values() for peer in peers}


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
@pytest.mark.parametrize("codec", CODECS, ids=lambda c: c if isinstance(c, str) else c["id"])
def test_readers_of_codecs(codec, fmt, tmp_path):
    codecs = [codec] if isinstance(codec, str) else [codec, "zstd"]
    cm.to_store(NUMBERS, tmp_path / "a", format=fmt, chunks=(2, 6), codecs=codecs)
    assert readers(tmp_path / "a", fmt, NUMBERS) == named(tmp_path / "a", fmt)


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
@pytest.mark.parametrize("name", VALUES)
def test_readers_of_data_types(name, fmt, tmp_path):
    cm.to_store(VALUES[name], tmp_path / "a", format=fmt, chunks=1)
    assert readers(tmp_path / "a", fmt, VALUES[name]) == named(tmp_path / "a", fmt)


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3", "n5"])
@pytest.mark.parametrize("codec", CODECS, ids=lambda c: c if isinstance(c, str) else c["id"])
def test_portable_copies_are_read_by_all(codec, fmt, tmp_path):
    codecs = [codec] if isinstance(codec, str) else [codec, "zstd"]
    cm.to_store(NUMBERS, tmp_path / "a", format="zarr2", chunks=(2, 6), codecs=codecs)
    plan = cm.plan_convert(tmp_path / "a", tmp_path / "b", format=fmt, codecs="portable")
    assert plan.not_read_by == ""
    report = plan.run()
    if fmt == "n5":
        np.testing.assert_array_equal(read_tensorstore(tmp_path / "b", "", "n5").values, NUMBERS)
    else:
        assert readers(tmp_path / "b", fmt, NUMBERS) == set(PEERS)
    if codec in ("gzip", "blosc", "zstd") and fmt != "n5":
        assert dict(report.actions) == {"copy": 2}


def test_portable_shards(tmp_path):
    cm.to_store(NUMBERS, tmp_path / "a", chunks=(2, 3), shards=(4, 6), codecs=["numcodecs.lz4"])
    cm.convert(tmp_path / "a", tmp_path / "b", format="zarr3", codecs="portable")
    assert readers(tmp_path / "b", "zarr3", NUMBERS) == set(PEERS)
    assert json.loads((tmp_path / "b" / "zarr.json").read_text())["codecs"][0]["name"] == "sharding_indexed"


def test_plans_say_who_does_not_read_the_target(tmp_path):
    cm.create_group(tmp_path / "s", format="zarr2")
    cm.to_store(NUMBERS, tmp_path / "s" / "a", format="zarr2", codecs=["numcodecs.lz4"])
    cm.to_store(NUMBERS, tmp_path / "s" / "b", format="zarr2", codecs=["numcodecs.lz4"])
    cm.to_store(VALUES["structure"], tmp_path / "s" / "c", format="zarr2", codecs="zstd")
    plan = cm.plan_convert(tmp_path / "s", tmp_path / "t", format="zarr3")
    assert plan.not_read_by == (
        "TensorStore, zarrs (numcodecs.lz4 of 'a' and 1 more; codecs='portable' avoids it); "
        "zarr-python 3.1, TensorStore, zarrs (structured types of 'c')"
    )
    assert "not read by" in str(plan)
    assert "not read by" in plan._repr_html_()
    plain = cm.plan_convert(tmp_path / "s" / "a", tmp_path / "u", format="zarr3", codecs="zstd")
    assert "not read by" not in str(plain)
