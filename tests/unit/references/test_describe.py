"""Arrays are described as Zarr without what is around their chunks, or refused."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import UnsupportedFeature
from chunkmill.references.describe import describe_referenced, nodes_in_set, strip_containers
from chunkmill.stores.memory import MemoryStore


def make(path="a", **more):
    url = f"memory://describe/{np.random.default_rng().integers(2**60)}"
    return cm.create_array(url, path, **{"shape": (5, 4), "dtype": "f4", "chunks": (2, 2)} | more)


def described(array, zarr_format=None, *, complete=()):
    stripped = strip_containers({"a": array}, inline_ends=True)
    documents_format, metadata = describe_referenced(stripped, zarr_format, complete)
    return documents_format.name, metadata["a"], stripped["a"].container


@pytest.mark.parametrize(
    ("more", "container"),
    [({}, "object"), ({"format": "zarr2"}, "object"), ({"format": "n5"}, "n5_block"), ({"shards": (4, 4)}, "shard")],
)
def test_containers(more, container):
    name, metadata, found = described(make(codecs="gzip", fill_value=0, **more))
    assert (name, found) == ("zarr2", container)
    assert metadata.chunk_grid.chunk_shape == (2, 2)
    assert [codec.name for codec in metadata.codecs if codec.name in {"sharding_indexed", "n5_block"}] == []


def test_v3_where_v2_cannot_hold_it():
    name, _, _ = described(make(dtype="f4", codecs="zstd", dimension_names=["y", None]))
    assert name == "zarr3"
    with pytest.raises(ValueError, match="zarr_format=4"):
        described(make(), 4)


def test_a_codec_that_zarr_has_not():
    with pytest.raises(UnsupportedFeature, match="lz4"):
        described(make(format="n5", codecs=[{"name": "n5_lz4", "configuration": {}}]))


class TestFillValues:
    """Zarr v2's fill value marks missing elements for xarray; that of other formats does not."""

    def test_zero_that_marks_nothing_becomes_undefined(self):
        assert described(make(fill_value=0))[:2][1].fill_value is None

    def test_another_one_needs_v3_where_chunks_are_absent(self):
        array = make(fill_value=5)
        assert described(array)[0] == "zarr3"
        name, metadata, _ = described(array, complete={"a"})
        assert (name, metadata.fill_value) == ("zarr2", None)

    def test_what_the_attribute_marks(self):
        name, metadata, _ = described(make(fill_value=5, attributes={"_FillValue": 5.0}))
        assert (name, metadata.fill_value) == ("zarr2", 5)


def test_stores_without_urls_are_refused():
    array = cm.create_array(MemoryStore(), "a", shape=(5,), dtype="i4", chunks=(2,))
    with pytest.raises(UnsupportedFeature, match="this process's memory"):
        strip_containers({"a": array}, inline_ends=True)


def test_nodes_of_a_set():
    store = MemoryStore()
    cm.create_group(store, "g", attributes={"x": 1})
    cm.create_array(store, "g/a", shape=(5,), dtype="i4", chunks=(2,))
    groups, arrays = nodes_in_set(cm.open_group(store, "g"), "/top/in/")
    assert list(groups) == ["", "top", "top/in"]
    assert groups["top/in"].attributes == {"x": 1}
    assert list(arrays) == ["top/in/a"]
    assert list(nodes_in_set(cm.open_array(store, "g/a"), "b")[1]) == ["b"]
