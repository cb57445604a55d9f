"""Any array to any format, with any chunks: the values and what is absent come over, and nothing else is left."""

import json

import dask
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import lengths

import chunkmill as cm
from chunkmill.array.chunk_io import write_chunk
from chunkmill.errors import UnsupportedFeature
from chunkmill.stores.memory import MemoryStore

FORMATS = ["zarr2", "zarr3", "zarr3-draft", "n5"]
CODECS = ["raw", "gzip", "blosc", [{"name": "gzip", "configuration": {"level": 2}}, {"name": "crc32c"}]]


@st.composite
def chunk_shapes(draw, shape):
    return tuple(draw(st.integers(1, n + 2)) for n in shape)


@st.composite
def layouts(draw, shape):
    """Format, chunks, shards and codecs of an array."""
    name = draw(st.sampled_from(FORMATS))
    chunks = draw(chunk_shapes(shape))
    options = {"format": name, "chunks": chunks, "codecs": draw(st.sampled_from(CODECS))}
    if name == "zarr3" and draw(st.booleans()):
        options["shards"] = tuple(n * draw(st.integers(1, 3)) for n in chunks)
    return options


@st.composite
def conversions(draw):
    shape = tuple(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)))
    old, new = draw(layouts(shape)), draw(layouts(shape))
    if old["format"] == "zarr3" and "shards" not in old and draw(st.booleans()):
        old["chunks"] = tuple(draw(lengths(n)) or n + 1 for n in shape)
    if draw(st.booleans()):
        new["chunks"] = "keep"
        new.pop("shards", None)
    else:
        new.setdefault("shards")  # the source's may be no multiples of the chunks
    if draw(st.booleans()):
        new["codecs"] = "keep"
    return shape, old, new, draw(st.randoms(use_true_random=False))


def present(array):
    layout = array.read_layout
    coords = list(layout.grid.all_coords())
    found = array.store.get_many(layout.locator.locate(array.store, coords))
    return {c for c, data in zip(coords, found, strict=True) if data is not None}


def contents(store):
    values = {key: store.get(key) for key in store.list_prefix("")}
    return {key: json.loads(value) if value.startswith(b"{") else value for key, value in values.items()}


@given(conversions(), st.sampled_from([">i2", "<f8", "u1"]))
def test_values_and_presence(conversion, dtype):
    shape, old, new, random = conversion
    source, target = MemoryStore(), MemoryStore()
    try:
        cm.create_array(source, shape=shape, dtype=dtype, **old)
    except UnsupportedFeature:
        return
    a = cm.open_array(source, mode="r+")
    values = np.zeros(shape, a.dtype)
    for coords in a.write_layout.grid.all_coords():
        if random.random() < 0.6:
            region = a.write_layout.grid.region(coords)
            kind = random.choice(["zero", "other"])
            values[region] = 0 if kind == "zero" else random.randrange(1, 99)
            write_chunk(a.stored, coords, values[region], write_empty=True)
    with dask.config.set(scheduler="sync"):
        try:
            plan = cm.plan_convert(source, target, **new)
        except UnsupportedFeature:
            return
        report = plan.run()
        assert report.n_requests <= plan.n_requests
        b = cm.open_array(target)
        np.testing.assert_array_equal(b[...], values)
        assert cm.verify(source, target).equal
    assert not [key for key in target.list_prefix("") if "chunkmill" in key]
    assert report.n_keys == b.write_layout.grid.n_chunks == plan.n_keys
    if a.chunks == b.chunks:
        assert present(b) == present(a)
    if new["chunks"] != "keep":
        assert b.chunks == new["chunks"]
    if new["chunks"] == new["codecs"] == "keep" and old["format"] == new["format"]:
        assert set(report.actions) <= {"copy", "absent"}
        assert contents(source) == contents(target)
