"""N5: attributes.json <-> the model.

What peers write, and most of what is refused, is golden (`tests/conformance/test_golden_stores.py`).
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from contracts.format_contract import FormatContract, array_of_others
from support.cases import cases, refusals

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.n5 import CHUNK_KEYS, N5, n5_chain, zarr_chain
from chunkmill.model.grid import ChunkGrid, RunsAxis
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NamedConfig

KEY = "volume/s0/attributes.json"
DATASET = {
    "dimensions": [7, 5, 3], "blockSize": [4, 3, 2], "dataType": "uint16",
    "compression": {"type": "gzip", "level": 5, "useZlib": False},
}  # fmt: skip


def parse(document: Any, path: str = "volume/s0") -> ArrayMetadata | None:
    key = f"{path}/attributes.json" if path else "attributes.json"
    return N5().parse_array(path, {key: document if isinstance(document, bytes) else json.dumps(document).encode()})


def dataset(**changes: Any) -> ArrayMetadata:
    metadata = parse({name: value for name, value in {**DATASET, **changes}.items() if value is not ...})
    assert metadata is not None
    return metadata


def emitted(metadata: ArrayMetadata, path: str = "volume/s0") -> dict[str, Any]:
    (value,) = N5().emit_array(path, metadata).values()
    return json.loads(value)


def test_axes_are_turned_round() -> None:
    metadata = dataset()
    assert (metadata.shape, metadata.chunk_grid.chunk_shape) == ((3, 5, 7), (2, 3, 4))
    assert (metadata.chunk_keys.encode((0, 1, 2)), metadata.edge_chunks) == ("2/1/0", "truncated")
    assert metadata.dtype == np.dtype("u2")
    assert (metadata.fill_value, metadata.attributes) == (0, {})
    assert N5().chunk_prefix("volume/s0") == "volume/s0/"
    assert emitted(metadata) == DATASET


# as read -> as written again: z5py fails without `level`; tensorstore refuses `typesize`, `nthreads` and `checksum`
BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
COMPRESSIONS = [
    ("raw", {}, {}), ("gzip", {}, {"level": 6, "useZlib": False}),
    ("gzip", {"level": "high"}, {"level": 6, "useZlib": False}),
    ("gzip", {"level": True}, {"level": 6, "useZlib": False}),
    ("gzip", {"level": 1, "useZlib": True}, {"level": 1, "useZlib": True}),
    ("bzip2", {}, {"blockSize": 9}), ("xz", {"preset": 3}, {"preset": 3}),
    ("lz4", {"blockSize": 6}, {"blockSize": 65536}),  # a level, of z5
    ("lz4", {"acceleration": 1, "id": "lz4"}, {"blockSize": 65536}), ("blosc", {"shuffle": -2}, BLOSC),
    ("blosc", {"shuffle": -1}, BLOSC),
    ("zstd", {"level": 1, "id": "zstd", "checksum": True}, {"level": 1}), ("blosc", {"cname": "lz4"}, BLOSC),
    ("blosc", {"cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 64, "typesize": 1, "nthreads": 8},
     {"cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 64}),
]  # fmt: skip


@cases(("kind", "given", "written"), COMPRESSIONS)
def test_every_parameter_of_compressions_is_written_and_no_other(kind: str, given: Any, written: Any) -> None:
    metadata = dataset(compression={"type": kind, **given})
    assert emitted(metadata)["compression"] == {"type": kind, **written}
    assert parse(emitted(metadata)) == metadata


@cases(
    ("kind", "name", "default", "least", "most"),
    [
        ("gzip", "level", 6, 0, 9), ("bzip2", "blockSize", 9, 1, 9), ("xz", "preset", 6, 0, 9),
        ("zstd", "level", 3, -(1 << 17), 22), ("lz4", "blockSize", 1 << 16, 64, 1 << 25), ("blosc", "clevel", 5, 0, 9),
        ("blosc", "shuffle", 1, 0, 2), ("blosc", "blocksize", 0, 0, (1 << 31) - 1),
    ],
)  # fmt: skip
def test_parameters_that_cannot_be_are_n5_s_defaults(kind: str, name: str, default: int, least: int, most: int) -> None:
    for value, kept in ((None, default), (least - 1, default), (least, least), (most, most), (most + 1, default)):
        assert emitted(dataset(compression={"type": kind, name: value}))["compression"][name] == kept


REFUSED = [
    ("got [4, 2147483648, 2], expected at most 2147483647", {"blockSize": [4, 1 << 31, 2]}),
    ("type: got 'nothing'", {"compression": {}}), ("dimensions: got [7, 5.0, 3]", {"dimensions": [7, 5.0, 3]}),
    ("compression: got None", {"compression": None}), ("dataType: got 'nothing'", {"dataType": ...}),
    ("blockSize: got 'nothing'", {"blockSize": ...}), ("'lzma'", {"compression": {"type": "lzma"}}),
    ("dataType: got 'int3', expected one of int8", {"dataType": "int3"}),
    ("support dataType 'string'", {"dataType": "string"}), ("0 dimensions", {"dimensions": [], "blockSize": []}),
    ("isLabelMultiset", {"isLabelMultiset": True}),
]  # fmt: skip


test_wrong_documents = refusals(REFUSED, lambda changes: dataset(**changes), key=KEY)


def test_the_longest_blocks() -> None:
    assert dataset(blockSize=[4, (1 << 31) - 1, 2]).chunk_grid.chunk_shape == (2, (1 << 31) - 1, 4)


# Attributes and groups


@cases("axes", [["x", "y"], ["x", "y", 3], "xyz", None, [["x"], ["y"], ["z"]]])
def test_axes_that_do_not_fit_are_an_attribute(axes: Any) -> None:
    metadata = dataset(axes=axes)
    assert metadata.dimension_names is None
    assert metadata.attributes == {"axes": axes}
    document = emitted(metadata)
    assert "axes" not in document  # where TensorStore would refuse the dataset
    assert document["_chunkmill_attributes"] == {"axes": axes}
    assert N5().parse_array("", {"attributes.json": json.dumps(document).encode()}) == metadata


CF = {"units": "K", "resolution": "0.25 degrees", "axes": "T", "long_name": "temperature"}


@cases(
    ("attributes", "moved"),
    [
        (CF, {"units", "resolution", "axes"}),
        ({"units": ["nm", "nm", ""], "resolution": [4, 4.0, 40], "axes": ["x", "", ""]}, set()),
        ({"units": ["nm"], "resolution": [1, 2, "3"], "axes": ["x", "y", "x"]}, {"units", "resolution", "axes"}),
        ({"units": None, "resolution": [1, 2, True]}, {"units", "resolution"}),
        ({"unit": "K", "downsamplingFactors": "x"}, set()),
    ],
)
def test_attributes_that_tensorstore_would_refuse_are_moved(attributes: Any, moved: set[str], tmp_path: Any) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    metadata = replace(dataset(), attributes=attributes)
    document = emitted(metadata)
    assert set(document.get("_chunkmill_attributes", {})) == moved
    assert N5().parse_array("", {"attributes.json": json.dumps(document).encode()}).attributes == attributes
    (tmp_path / "attributes.json").write_text(json.dumps(document))
    kvstore = {"driver": "file", "path": f"{tmp_path}/"}
    assert tensorstore.open({"driver": "n5", "kvstore": kvstore}).result().rank == 3


def test_the_key_of_moved_attributes_is_ours() -> None:
    with pytest.raises(UnsupportedFeature, match="_chunkmill_attributes"):
        emitted(replace(dataset(), attributes={"_chunkmill_attributes": {}}))
    with pytest.raises(MetadataError, match="_chunkmill_attributes"):
        dataset(_chunkmill_attributes="x")


def test_adapt() -> None:
    adapted = N5().adapt(array_of_others(dimension_names=("y", "x")))
    assert adapted.chunk_keys == CHUNK_KEYS
    assert (adapted.edge_chunks, adapted.fill_value) == ("truncated", 0)
    expected = {"dimensions": [5, 3], "blockSize": [4, 2], "dataType": "int32", "axes": ["x", "y"]}
    assert emitted(adapted) == expected | {"compression": {"type": "gzip", "level": 5, "useZlib": False}}
    assert N5().adapt(adapted) == adapted


LOST = [
    ("dtype bool", {"dtype": np.dtype("?"), "fill_value": False}),
    ("dtype float16", {"dtype": np.dtype("f2"), "fill_value": 0}),
    ("fill value", {"fill_value": np.int32(-1)}),
    ("fill value", {"dtype": np.dtype("f4"), "fill_value": np.float32(-0.0)}),
    ("0 dimensions", {"chunk_grid": ChunkGrid(())}),
    ("different declared shapes", {"chunk_grid": ChunkGrid((RunsAxis(3, ((1, 1), (2, 1))),))}),
    ("4294967296 bytes", {"chunk_grid": ChunkGrid.regular((1 << 20, 1 << 20), (1 << 16, 1 << 14))}),
    ("absent", {"dimension_names": ("y", None)}),
    ("'axes'", {"dimension_names": ("y", "x"), "attributes": {"axes": ["y", "x"]}}),
    ("['dataType', 'dimensions']", {"attributes": {"dimensions": 1, "dataType": 2}}),
    ("transpose", {"codecs": (NamedConfig("transpose", {"order": [1, 0]}), NamedConfig("bytes"))}),
    ("'crc32c'", {"codecs": (NamedConfig("crc32c"),)}),
    ("checksums", {"codecs": (NamedConfig("zstd", {"level": 1, "checksum": True}),)}),
]  # fmt: skip


test_what_would_be_lost = refusals(LOST, lambda lost: N5().adapt(array_of_others(**lost)), error=UnsupportedFeature)


class TestContract(FormatContract):
    format = N5()
    arrays = (
        dataset(),
        dataset(axes=["x", "y", "z"], compression={"type": "raw"}),
        dataset(resolution=[4.0, 4.0, 40.0], nested={"a": [1, {"b": None}]}, big=2**63 + 1, zarr_format=2),
    )
    refused = (
        replace(dataset(), edge_chunks="padded"),
        replace(dataset(), chunk_keys=ChunkKeyEncoding("", "/", "0")),
        replace(dataset(), dtype=np.dtype("f2")),
    )


@cases(
    ("chain", "compression"),
    [
        ((), {"type": "raw"}),
        ((NamedConfig("bytes"), NamedConfig("numcodecs.gzip")), {"type": "gzip", "level": 6, "useZlib": False}),
        ((NamedConfig("numcodecs.zlib"),), {"type": "gzip", "level": 6, "useZlib": True}),
        ((NamedConfig("zstd"),), {"type": "zstd", "level": 3}),
        ((NamedConfig("numcodecs.blosc", {"shuffle": 0}),), {"type": "blosc", **BLOSC, "shuffle": 0}),
        ((NamedConfig("numcodecs.blosc", {"shuffle": 2}),), {"type": "blosc", **BLOSC, "shuffle": 2}),
        ((NamedConfig("numcodecs.lz4", {"acceleration": 1}),), {"type": "lz4", "blockSize": 65536}),
        ((NamedConfig("n5_lz4"),), {"type": "lz4", "blockSize": 65536}),
        ((NamedConfig("numcodecs.bz2"),), {"type": "bzip2", "blockSize": 9}),
        ((NamedConfig("numcodecs.lzma", {"preset": None}),), {"type": "xz", "preset": 6}),
    ],
)  # fmt: skip
def test_chains_of_others(chain: tuple[NamedConfig, ...], compression: dict[str, Any]) -> None:
    wrapped = n5_chain(chain)
    assert [codec.name for codec in wrapped] == ["n5_block"]
    assert n5_chain(wrapped) == wrapped
    assert emitted(N5().adapt(array_of_others(codecs=chain)))["compression"] == compression


@cases("inner", [3, ["bytes"], [{"configuration": {}}]])
def test_what_is_no_chain_inside_of_a_block(inner: Any) -> None:
    with pytest.raises(MetadataError, match="a list of codecs in n5_block"):
        n5_chain((NamedConfig("n5_block", {"codecs": inner}),))


@cases("more", [{"format": 2}, {"filters": [{"id": 33, "preset": 1}]}, {"check": 15}])
def test_lzma_that_is_no_plain_xz(more: dict[str, Any]) -> None:
    configuration = {"format": 1, "check": -1, "preset": 1, "filters": None} | more
    with pytest.raises(UnsupportedFeature, match="lzma"):
        n5_chain((NamedConfig("numcodecs.lzma", configuration),))


def test_zarr_chain() -> None:
    assert zarr_chain(n5_chain(())) == (NamedConfig("bytes", {"endian": "big"}),)
    (_, lz4) = zarr_chain(dataset(compression={"type": "lz4"}).codecs)
    assert lz4 == NamedConfig("numcodecs.lz4", {"acceleration": 1})
    other = (NamedConfig("transpose", {"order": [1, 0]}), NamedConfig("bytes"))
    assert zarr_chain(other) == other


def test_groups() -> None:
    n5 = N5()
    assert n5.parse_group("volume/s0", {KEY: json.dumps(DATASET).encode()}) is None
    assert parse({"dimensions": [1, 2]}, "a") is None  # a name that groups use for themselves
    attributes = {"pixelResolution": {"dimensions": [4.0, 4.0], "unit": "nm"}, "dimensions": 3}
    assert n5.parse_group("a", n5.emit_group("a", GroupMetadata(attributes))) == GroupMetadata(attributes)
    assert n5.implicit_groups


@pytest.mark.parametrize("attributes", [{"dimensions": 1, "dataType": 2}, {"dimensions": [1], "blockSize": [1]}])
def test_group_that_would_be_a_dataset(attributes: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedFeature, match="make it a dataset"):
        N5().emit_group("a", GroupMetadata(attributes))


# The root and the version


def test_version_at_the_root() -> None:
    n5 = N5()
    assert n5.emit_root() == n5.emit_group("", GroupMetadata())
    assert json.loads(n5.emit_root()["attributes.json"]) == {"n5": "4.0.0"}
    (document,) = n5.emit_array("", dataset(name="root")).values()
    assert json.loads(document) == {**DATASET, "n5": "4.0.0", "name": "root"}
    metadata = n5.parse_array("", {"attributes.json": document})
    assert metadata is not None
    assert metadata.attributes == {"name": "root"}
    assert n5.parse_group("", n5.emit_root()) == GroupMetadata({})


def test_version_is_kept() -> None:
    n5 = N5().configured({"attributes.json": b'{"n5": "2.1.0-SNAPSHOT", "a": 1}'})
    assert json.loads(n5.emit_group("", GroupMetadata({"a": 2}))["attributes.json"]) == {"n5": "2.1.0-SNAPSHOT", "a": 2}


def test_version_elsewhere() -> None:
    """zarr-python 2 writes it to every group; anything else of that name is the user's."""
    n5 = N5()
    assert n5.parse_group("a", {"a/attributes.json": b'{"n5": "2.0.0", "b": 1}'}) == GroupMetadata({"b": 1})
    assert n5.parse_group("a", {"a/attributes.json": b'{"n5": "five"}'}) == GroupMetadata({"n5": "five"})
    for path, value in (("", "five"), ("a", "2.0.0")):
        with pytest.raises(UnsupportedFeature, match="it is the version"):
            n5.emit_group(path, GroupMetadata({"n5": value}))


@cases("version", ["4.0.0", "2.1.0-SNAPSHOT", "4.9.1", "4", "", "four", "-5", None, 4, [5], {}])
def test_versions_that_are_read(version: Any) -> None:
    assert N5().configured({"attributes.json": json.dumps({"n5": version}).encode()}).name == "n5"


@cases("version", ["5.0.0", "5", "10.0.0-SNAPSHOT", 5, 5.1])
def test_versions_that_are_not(version: Any) -> None:
    with pytest.raises(UnsupportedFeature, match="version"):
        N5().configured({"attributes.json": json.dumps({"n5": version}).encode()})


def test_no_consolidated_metadata() -> None:
    assert N5().consolidated_key("") is None
    assert N5().parse_consolidated("", b"{}") is None
    with pytest.raises(UnsupportedFeature, match="consolidated metadata"):
        N5().emit_consolidated("", {})


def test_chunks_have_two_gibibytes_at_most() -> None:
    largest = dataset(dataType="uint16", dimensions=[4, 8, 1 << 28], blockSize=[4, 1, 1 << 28])
    assert parse(emitted(largest)) == largest
    with pytest.raises(UnsupportedFeature, match="chunks of 4294967296 bytes"):
        emitted(replace(largest, dtype=np.dtype("u4")))
