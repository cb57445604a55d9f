"""Reference sets of whatever shape: fsspec's reference filesystem, zarr-python and numpy are the judges."""

import base64
import json

import dask
import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.arrays import filled

import chunkmill as cm
from chunkmill.nodes.reference_sets import open_reference_store
from chunkmill.references.concat import concat_references
from chunkmill.references.write import to_references
from chunkmill.stores.base import ByteSpan

# fsspec warns of its own wrapper of synchronous filesystems, zarr of numcodecs' filters
pytestmark = pytest.mark.filterwarnings("ignore")

SETTINGS = settings(suppress_health_check=list(HealthCheck))

TARGETS = ("a.bin", "b c.bin", "é%20.bin")
SEGMENT = st.text(st.sampled_from('abc019._- é%{}"\\\n'), min_size=1, max_size=4).filter(lambda s: s not in {".", ".."})
COORDS = st.lists(st.integers(0, 300).map(str), min_size=1, max_size=3)
KEY = st.one_of(
    st.lists(SEGMENT, min_size=1, max_size=3).map("/".join),
    st.builds(
        lambda prefix, coords, separator: prefix + separator.join(coords),
        st.sampled_from(["x/", "y/z/", "", "x/c/", "l/0/", "0/", "01/"]),
        COORDS,
        st.sampled_from("./"),
    ),
)
DATA = st.binary(max_size=12)
RANGE = st.tuples(st.sampled_from(["", "file://"]), st.sampled_from(TARGETS), st.integers(0, 900), st.integers(1, 124))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("targets")
    for name in TARGETS:
        (folder / name).write_bytes(bytes(range(256)) * 4)
    return folder


@given(
    st.dictionaries(KEY, st.one_of(DATA, RANGE, RANGE.map(lambda r: r[:2])), max_size=40),
    st.dictionaries(KEY, st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), max_size=3),
    st.sampled_from([0, 1]),
)
@SETTINGS
def test_sets_in_json(folder, entries, objects, version):
    refs = {}
    for key, value in entries.items():
        if isinstance(value, bytes):
            refs[key] = "base64:" + base64.b64encode(value).decode()
        else:
            refs[key] = [f"{value[0]}{folder}/{value[1]}", *value[2:]]
    refs |= objects
    document = {"version": 1, "refs": refs} if version else refs
    store = open_reference_store("reference://", {"fo": document})
    peer = fsspec.filesystem("reference", fo=document, remote_protocol="file", skip_instance_cache=True)
    for key, value in refs.items():
        got = store.get(key)
        if isinstance(value, dict):
            assert json.loads(got) == value
        else:
            assert got == peer.cat_file(key)
        assert store.size(key) == len(got)
    assert sorted(store.list_prefix("")) == sorted(refs)
    for prefix in {""} | {key[: i + 1] for key in refs for i, letter in enumerate(key) if letter == "/"}:
        below = {key[len(prefix) :].partition("/") for key in refs if key.startswith(prefix)}
        assert store.list_dir(prefix) == sorted({head + slash for head, slash, _ in below})
    assert list(store.get_many(ByteSpan(key) for key in refs)) == [store.get(key) for key in refs]


@given(st.integers(1, 4), st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(0, 3), st.data())
@SETTINGS
def test_joined_sets(tmp_path_factory, chunk, lengths, rest, data):
    """Along either axis, what numpy joins: all but the last set end with a chunk."""
    axis = data.draw(st.integers(0, 1))
    kind = data.draw(st.sampled_from([{"format": "zarr2"}, {"format": "zarr3", "shards": (2 * chunk, 4)}]))
    folder = tmp_path_factory.mktemp("sets")
    parts, sets = [], []
    with dask.config.set(scheduler="sync"):
        for i, n in enumerate(lengths):
            length = n * chunk + (rest % chunk if i == len(lengths) - 1 else 0)
            part = np.random.default_rng(i).integers(0, 3, (length, 5)).astype("i2")
            part, chunks = (part, (chunk, 2)) if axis == 0 else (part.T, (2, chunk))
            shards = {"shards": kind["shards"][:: 1 if axis == 0 else -1]} if "shards" in kind else {}
            cm.create_group(folder / f"{i}", format=kind["format"])
            filled(part, folder / f"{i}", "a", chunks=chunks, dimension_names=["y", "x"], **kind | shards)
            suffix = data.draw(st.sampled_from([".json", ""]))
            to_references(folder / f"{i}", folder / f"refs{i}{suffix}", zarr_format=2)
            parts.append(part)
            sets.append(folder / f"refs{i}{suffix}")
        joined = concat_references(
            sets, dim="yx"[axis], target=folder / data.draw(st.sampled_from(["all.json", "all"]))
        )
        np.testing.assert_array_equal(joined["a"][...], np.concatenate(parts, axis))
