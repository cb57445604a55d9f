"""Reference sets of whatever shape: fsspec's reference filesystem, zarr-python and numpy are the judges."""

import base64
import itertools
import json
import math

import dask
import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@st.composite
def arrays(draw):
    """What `create_array` takes, and values some of whose chunks are fill value."""
    ndim = draw(st.integers(0, 3))
    chunks = tuple(draw(st.lists(st.integers(1, 4), min_size=ndim, max_size=ndim)))
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=ndim, max_size=ndim)))
    options = {"format": draw(st.sampled_from(["zarr2", "zarr3", "zarr3", "zarr3-draft", "n5"]))}
    if options["format"] == "n5":  # which has neither axes of length 0 nor arrays without axes
        shape = tuple(max(n, 1) for n in shape) or (3,)
        chunks = chunks or (2,)
    dtypes = ["u1", "<i2", "<f4"] if options["format"] == "n5" else ["u1", ">i2", "<f4", "bool", "<i8"]
    options["codecs"] = draw(st.sampled_from(["raw", "gzip", "blosc"]))
    if options["format"] == "zarr3" and draw(st.booleans()):
        options["shards"] = tuple(n * draw(st.integers(1, 3)) for n in chunks) or None
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    values = np.arange(1, math.prod(shape) + 1).reshape(shape).astype(dtype)
    for chunk in itertools.product(*(range(-(-n // c)) for n, c in zip(shape, chunks, strict=True))):
        if draw(st.booleans()):
            values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(chunk, chunks, strict=True))] = 0
    return options | {"shape": shape, "chunks": chunks, "dtype": dtype}, values


def write(url, path, options, values):
    cm.create_group(url, format=options["format"])
    cm.create_array(url, path, **options)[...] = values


@given(arrays(), st.integers(1, 9), st.sampled_from(["a", "g/0", "1/c/2"]))
@SETTINGS
def test_sets_over_arrays(tmp_path_factory, array, record_size, path):
    zarr = pytest.importorskip("zarr")
    pytest.importorskip("pyarrow")
    options, values = array
    folder = tmp_path_factory.mktemp("set")
    with dask.config.set(scheduler="sync"):
        write(folder / "source", path, options, values)
        report = to_references(folder / "source", folder / "refs.json")
        n_chunks = math.prod(-(-n // c) for n, c in zip(values.shape, options["chunks"], strict=True))
        assert report.n_references + report.n_inline + report.n_absent == n_chunks
        to_references(folder / "refs.json", folder / "refs", record_size=record_size)
        again = to_references(folder / "refs", folder / "again.json.gz")
        assert (again.n_references, again.n_inline) == (report.n_references, report.n_inline)
        for name in ("refs.json", "refs", "again.json.gz"):
            np.testing.assert_array_equal(cm.open_array(folder / name, path)[...], values)
    loaded = open_reference_store(folder / "refs").references.load()
    documents = {".zgroup", ".zarray", ".zattrs", "zarr.json"}
    expected = {k: r for k, r in open_reference_store(folder / "refs.json").references.items() if k[-1].isdigit()}
    assert {k: r for k, r in loaded.items() if k.rpartition("/")[2] not in documents} == expected
    fs = fsspec.filesystem("reference", fo=str(folder / "refs.json"), remote_protocol="file", asynchronous=True)
    store = zarr.storage.FsspecStore(fs, path="", read_only=True)
    format_version = {"zarr2": 2, "zarr3": 3}[report.node_format]
    peer = zarr.open_group(store, mode="r", zarr_format=format_version, use_consolidated=False)[path]
    np.testing.assert_array_equal(peer[...], values)


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
            options = {**kind, **shards, "shape": part.shape, "chunks": chunks, "dtype": part.dtype}
            write(folder / f"{i}", "a", options | {"dimension_names": ["y", "x"]}, part)
            suffix = data.draw(st.sampled_from([".json", ""]))
            to_references(folder / f"{i}", folder / f"refs{i}{suffix}", zarr_format=2)
            parts.append(part)
            sets.append(folder / f"refs{i}{suffix}")
        joined = concat_references(
            sets, dim="yx"[axis], target=folder / data.draw(st.sampled_from(["all.json", "all"]))
        )
        np.testing.assert_array_equal(joined["a"][...], np.concatenate(parts, axis))
