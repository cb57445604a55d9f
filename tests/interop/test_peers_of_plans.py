"""Plans say who cannot read the target, as the peers themselves prove; ``codecs="portable"`` is read by all."""

import json

import dask
import numpy as np
import pytest
from interop.environments import interpreter, read_all
from interop.peers import WARNINGS, read_tensorstore, read_zarr_python, read_zarrs

import chunkmill as cm
from chunkmill.formats.peers import lacking

pytestmark = WARNINGS

PEERS = {"zarr-python 3.1": read_zarr_python, "TensorStore": read_tensorstore, "zarrs": read_zarrs}
NUMBERS = np.arange(24, dtype="i4").reshape(4, 6)
CODECS = {name: [name] for name in (
    "numcodecs.zlib", "numcodecs.bz2", "numcodecs.lz4", "numcodecs.lzma", "numcodecs.fletcher32", "numcodecs.adler32",
    "crc32c", "gzip", "blosc", "zstd",
)}  # fmt: skip
CODECS |= {"delta": [{"id": "delta", "dtype": "<i4"}, "zstd"], "shuffle": [{"id": "shuffle", "elementsize": 4}, "zstd"]}
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
def test_readers_of_codecs(fmt, tmp_path, subtests):
    for name, codecs in CODECS.items():
        with subtests.test(name):
            cm.to_store(NUMBERS, tmp_path / name, format=fmt, chunks=(2, 6), codecs=codecs)
            assert readers(tmp_path / name, fmt, NUMBERS) == named(tmp_path / name, fmt)


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3"])
def test_readers_of_data_types(fmt, tmp_path, subtests):
    for name, values in VALUES.items():
        with subtests.test(name):
            cm.to_store(values, tmp_path / name, format=fmt, chunks=1)
            assert readers(tmp_path / name, fmt, values) == named(tmp_path / name, fmt)


@pytest.mark.parametrize("fmt", ["zarr2", "zarr3", "n5"])
def test_portable_copies_are_read_by_all(fmt, tmp_path, subtests):
    for name, codecs in CODECS.items():
        with subtests.test(name):
            source, target = tmp_path / name / "a", tmp_path / name / "b"
            cm.to_store(NUMBERS, source, format="zarr2", chunks=(2, 6), codecs=codecs)
            plan = cm.plan_convert(source, target, format=fmt, codecs="portable")
            assert plan.not_read_by == ""
            report = plan.run()
            if fmt == "n5":
                np.testing.assert_array_equal(read_tensorstore(target, "", "n5").values, NUMBERS)
            else:
                assert readers(target, fmt, NUMBERS) == set(PEERS)
            if name in {"gzip", "blosc", "zstd"} and fmt != "n5":
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
        "zarr-python 3.1, TensorStore, zarrs (structured types of 'c'; zarr-python 3.1 reads them, without shards, with "
        "the setting chunkmill.struct-name: structured)"
    )
    assert "not read by" in str(plan)
    assert "not read by" in plan._repr_html_()
    plain = cm.plan_convert(tmp_path / "s" / "a", tmp_path / "u", format="zarr3", codecs="zstd")
    assert "not read by" not in str(plain)


STRUCTURE = np.zeros(
    5,
    [("id", "i4"), ("x", "f8"), ("raw", "V3"), ("name", "S4"), ("text", "U2"), ("at", "M8[ms]"), ("in", [("q", "?")])],
)
STRUCTURE["id"], STRUCTURE["x"], STRUCTURE["name"], STRUCTURE["text"] = range(5), 0.5, b"ab", "µm"
STRUCTURE["raw"], STRUCTURE["at"], STRUCTURE["in"]["q"] = b"xyz", np.arange(5).astype("M8[ms]"), True


def stored_structures(name, store):
    """Write arrays by every door that makes new ones, and return their paths."""
    with dask.config.set({"chunkmill.struct-name": name}):
        cm.to_store(STRUCTURE, store, "a", chunks=2, fill_value=STRUCTURE[1])
        cm.to_store(STRUCTURE, store, "shards", chunks=1, shards=2)
        created = cm.create_array(store, "big", shape=5, dtype=STRUCTURE.dtype, codecs=BIG, fill_value=STRUCTURE[1])
        created[:3] = STRUCTURE[:3]
        cm.convert((store, "a"), (store, "b"), format="zarr2")
        plan = cm.plan_convert((store, "b"), (store, "c"), format="zarr3")
        plan.run()
        cm.rechunk((store, "a"), (store, "d"), chunks=3)
    return plan, ["a", "shards", "big", "c", "d"]


BIG = [{"name": "bytes", "configuration": {"endian": "big"}}]


def expected_structures(path):
    return np.concatenate([STRUCTURE[:3], STRUCTURE[[1, 1]]]) if path == "big" else STRUCTURE


def test_structured_types_as_zarr_python_3_1_has_them(tmp_path):
    plan, paths = stored_structures("structured", tmp_path)
    assert plan.not_read_by == "TensorStore, zarrs (structured types of 'c')"
    for path in paths:
        found = readers(tmp_path / path, "zarr3", expected_structures(path))
        assert found == named(tmp_path / path, "zarr3"), path
        assert found == (set() if path in ("shards", "big") else {"zarr-python 3.1"}), path
    array = cm.open_array(tmp_path, "a", mode="r+")
    array.update_attributes({"of": "somebody"})
    array.resize(7)
    found = np.concatenate([STRUCTURE, STRUCTURE[[1, 1]]])
    assert array[...].tobytes() == found.tobytes()
    assert readers(tmp_path / "a", "zarr3", found) == {"zarr-python 3.1"}
    cm.convert((tmp_path, "a"), (tmp_path, "kept"), format="zarr3")
    assert readers(tmp_path / "kept", "zarr3", found) == {"zarr-python 3.1"}


@pytest.mark.parametrize("name", ["struct", "structured"])
def test_the_newest_zarr_python_reads_both_names_of_structured_types(name, tmp_path):
    python = interpreter("zarr3", demanded=False)
    _, paths = stored_structures(name, tmp_path / "s")
    jobs = [{"store": str(tmp_path / "s"), "path": path, "kind": "zarr3"} for path in paths]
    for path, answer in zip(paths, read_all(python, "read_with_zarr_3.py", jobs, tmp_path / "peer"), strict=True):
        assert not isinstance(answer, Exception), (path, answer)
        assert answer.values.tobytes() == expected_structures(path).tobytes(), path
