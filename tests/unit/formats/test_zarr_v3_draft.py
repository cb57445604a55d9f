"""Zarr v3, draft of 25 May 2022: documents <-> the model.

Documents that are read, and most of those that are refused, are golden stores (`tests/conformance/test_golden_stores.py`).
"""

import json
from typing import Any

import numpy as np
import pytest
from contracts.format_contract import FormatContract, array_of_others, same_metadata
from support.cases import cases, refusals

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.n5 import N5
from chunkmill.formats.zarr_v3_draft import ZarrV3Draft, chunk_keys
from chunkmill.model.grid import ChunkGrid, RunsAxis
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, NamedConfig

CORE = "https://purl.org/zarr/spec/core/3.0"
GZIP = "https://purl.org/zarr/spec/codecs/gzip/1.0"
BLOSC = "https://purl.org/zarr/spec/codecs/blosc/1.0"
ENDIAN = "https://purl.org/zarr/spec/codecs/endian/1.0"
BIG = {"type": ENDIAN, "configuration": {"endian": "big"}}
KEY = "meta/foo/baz.array.json"
DRAFT = ZarrV3Draft()

ENTRY = {"zarr_format": CORE, "metadata_encoding": {"type": "json", "metadata_key_suffix": ".json"}, "extensions": []}
# the example of "Array metadata"
EXAMPLE = {
    "shape": [10000, 1000], "data_type": "<f8",
    "chunk_grid": {"type": "regular", "chunk_shape": [1000, 100], "separator": "/"}, "chunk_memory_layout": "C",
    "codecs": [{"type": GZIP, "configuration": {"level": 1}}], "fill_value": "NaN", "extensions": [],
    "attributes": {"foo": 42, "bar": "apples", "baz": [1, 2, 3, 4]},
}  # fmt: skip


def parse(document: Any) -> ArrayMetadata:
    value = document if isinstance(document, bytes) else json.dumps(document).encode()
    metadata = DRAFT.parse_array("foo/baz", {KEY: value})
    assert metadata is not None
    return metadata


def array(**changes: Any) -> ArrayMetadata:
    return parse({name: value for name, value in {**EXAMPLE, **changes}.items() if value is not ...})


def grid(*lengths: int, separator: str = "/") -> dict[str, Any]:
    return {"type": "regular", "chunk_shape": lengths, "separator": separator}


def emitted(metadata: ArrayMetadata) -> dict[str, Any]:
    documents = DRAFT.emit_array("foo/baz", metadata)
    assert list(documents) == [KEY]
    return json.loads(documents[KEY])


def configured(**changes: Any) -> ZarrV3Draft | None:
    return DRAFT.configured({"zarr.json": json.dumps({**ENTRY, **changes}).encode()})


# Entry point


def test_entry_point() -> None:
    assert configured() == DRAFT
    assert json.loads(DRAFT.emit_root()["zarr.json"]) == ENTRY
    assert DRAFT.configured({}) is None
    assert ZarrV3Draft(".meta").group_keys("") == ("meta/group.meta",)


@cases("version", [3, 2, None, {}, "https://purl.org/zarr/spec/protocol/core/3.0"])
def test_other_formats_have_a_zarr_json_too(version: Any) -> None:
    assert configured(zarr_format=version) is None


BAD_ENTRIES = [
    ("['more'], expected no members besides ['extensions', 'metadata_encoding', 'zarr_format']", {"more": 1}),
    ("suffix: got 'nothing'", {"metadata_encoding": {"type": "json"}}),
    ("core version 4.0", {"zarr_format": f"{CORE[:-3]}4.0"}),
    ("suffix: got '/x'", {"metadata_encoding": {"type": "json", "metadata_key_suffix": "/x"}}),
    ("a list of objects", {"extensions": {}}), ("a list of objects", {"extensions": [1]}),
    ("got 'x', expected http", {"zarr_format": "x"}), ("extension 'x'", {"extensions": [{"extension": "x"}]}),
    ("metadata encoding", {"metadata_encoding": {"type": "cbor"}}),
    ("metadata encoding", {"metadata_encoding": ENTRY["metadata_encoding"] | {"extension": "x"}}),
]  # fmt: skip


test_entry_points_that_are_refused = refusals(BAD_ENTRIES, lambda changes: configured(**changes), key="zarr.json")


def test_extensions_that_need_not_be_understood() -> None:
    assert configured(extensions=[{"extension": "x", "must_understand": False}]) == DRAFT


# Keys


def test_keys_of_the_specification() -> None:
    """The tables of "Storage keys"."""
    assert (DRAFT.array_keys(""), DRAFT.group_keys("")) == (("meta/array.json",), ("meta/group.json",))
    assert DRAFT.group_keys("foo/bar") == ("meta/foo/bar.group.json",)
    assert DRAFT.array_keys("foo/baz") == ("meta/foo/baz.array.json",)
    assert DRAFT.chunk_prefix("foo/baz") + chunk_keys("/").encode((1, 0)) == "data/foo/baz/c1/0"
    assert DRAFT.chunk_prefix("") + chunk_keys("/").encode((1, 23, 45)) == "data/c1/23/45"
    assert chunk_keys(".").encode((1, 23)) == "c1.23"
    assert chunk_keys("/").encode(()) == "c"
    assert (DRAFT.list_prefixes("foo"), DRAFT.list_prefixes("")) == (("meta/foo/",), ("meta/",))


@cases(
    ("name", "child"),
    [
        ("baz.array.json", "baz"), ("bar.group.json", "bar"), ("implied/", "implied"),
        ("array.json", None),  # the root's own
        ("group.json", None), ("x.array.array.json", "x.array"), ("x.group/", "x.group"),
        ("zarr.json.array.json", "zarr.json"), ("baz.array", None), ("baz.json", None),
        ("\u00e4.array.json", None),  # no legal name
        (".../", None), ("/", None),
    ],
)  # fmt: skip
def test_child_name(name: str, child: str | None) -> None:
    assert DRAFT.child_name("", "meta/", name) == child


@cases("path", ["a b", "\u00e4", "a/...", "a/./b", "../a", "a\\b", "a\n"])
def test_names_that_are_refused(path: str) -> None:
    with pytest.raises(MetadataError, match=r"names of the characters A-Z|'.' and '..' segments"):
        DRAFT.normalize_path(path)


def test_names_that_are_not() -> None:
    assert DRAFT.normalize_path("/foo//A-z_0.9/..a/") == "foo/A-z_0.9/..a"
    assert DRAFT.normalize_path("/") == ""


# Arrays


def test_example_of_the_specification() -> None:
    metadata = array()
    assert (metadata.shape, metadata.chunk_grid.chunk_shape) == ((10000, 1000), (1000, 100))
    assert metadata.dtype == np.dtype("f8")
    assert metadata.codecs == (NamedConfig("bytes", {"endian": "little"}), NamedConfig("gzip", {"level": 1}))
    assert np.isnan(metadata.fill_value)
    assert metadata.attributes == EXAMPLE["attributes"]
    assert emitted(metadata) == {**EXAMPLE, "data_type": "float64"}
    assert array(codecs=[{"type": GZIP}]).codecs[1] == NamedConfig("gzip", {"level": 6})


@cases(
    "data_type",
    [
        "float128", "r12", "r0", "r", "i4", "|i4", "<i3", "<U4", "|S3", "<M8[ns]", "|O", "i4,i4", "float64 ", "r" * 9,
        "r99999999999999999999", 5, None, [], {},
    ],
)  # fmt: skip
def test_data_types_that_are_refused(data_type: Any) -> None:
    words = r"data_type: got .*expected (one of bool|r<bits>, a multiple|an object of ext)"
    with pytest.raises(MetadataError, match=words):
        array(data_type=data_type, fill_value=0)


def test_fallbacks() -> None:
    decimal = {"extension": "https://host/x", "type": "decimal"}
    found = decimal | {"fallback": ["float128", "float32", "r32"]}
    with pytest.warns(UserWarning, match="'decimal' of extension 'https://host/x' is unknown .* read as 'float32'"):
        assert array(data_type=found, fill_value=0).dtype == np.dtype("f4")
    for wrong in ({"type": "x"}, {"extension": "x"}, {**decimal, "more": 1}, {"extension": 5, "type": "x"}):
        with pytest.raises(MetadataError, match="an object of extension, type and, perhaps, fallback"):
            array(data_type={"fallback": "int8", **wrong}, fill_value=0)
    with pytest.raises(UnsupportedFeature, match=r"'decimal' of extension 'https://host/x', without a fallback"):
        array(data_type=decimal | {"fallback": ["float128", 3]}, fill_value=0)


NAN_WITH_PAYLOAD = np.array(0x7FF80000DEADBEEF, "u8").view("f8")[()]


@cases(
    ("data_type", "value", "written"),
    [
        ("float32", "+Infinity", "+Infinity"), ("float16", "Infinity", "+Infinity"),  # zarr-python 2's spelling
        ("float64", "0x7FF80000DEADBEEF", "0x7ff80000deadbeef"), ("int16", "0xfffe", -2), ("uint8", "0b00000101", 5),
        ("complex64", [1, "+Infinity"], [1.0, "+Infinity"]), ("complex128", 0, [0.0, 0.0]), ("r16", "0b0000000111111111", "0x01ff"),
    ],
)  # fmt: skip
def test_fill_values_are_written_as_the_draft_spells_them(data_type: str, value: Any, written: Any) -> None:
    metadata = array(data_type=data_type, fill_value=value)
    assert repr(emitted(metadata)["fill_value"]) == repr(written)
    assert same_metadata(parse(emitted(metadata)), metadata)


@cases(
    ("data_type", "fill_value"),
    [
        ("int16", 1.0),  # "a number with no fraction or exponent part"
        ("int16", "1"), ("uint8", -1), ("bool", 1), ("bool", "0x01"), ("float64", "0x400921fb54442d1g"), ("float64", ""), ("float32", 1e39), ("float64", 10**400),
        ("complex64", [0]), ("complex64", ["x", 0]), ("r24", 0), ("r24", "AAAA"),
    ],
)  # fmt: skip
def test_fill_values_that_are_refused(data_type: str, fill_value: Any) -> None:
    with pytest.raises(MetadataError, match="fill_value: got"):
        array(data_type=data_type, fill_value=fill_value)


REFUSED = [
    ("shape: got [-1, 1]", {"shape": [-1, 1]}), ("attributes: got []", {"attributes": []}),
    ("fill_value: got 'n", {"fill_value": ...}),
    ("got ['more'], expected type", {"chunk_grid": EXAMPLE["chunk_grid"] | {"more": 1}}),
    ("fill_value: got None", {"fill_value": None}),
    ("chunk grid", {"chunk_grid": EXAMPLE["chunk_grid"] | {"extension": "x"}}),
    ("chunk grid", {"chunk_grid": {"type": "x"}}),
    ("separator: got '-'", {"chunk_grid": grid(2, 3, separator="-")}),
    ("storage transformers", {"storage_transformers": [1]}),
    ("an object of type", {"codecs": [{"name": "gzip", "configuration": {"level": 1}}]}),
    ("codecs: got {}", {"codecs": {}}), ("an object of type", {"codecs": [{"type": GZIP, "configuration": 5}]}),
    ("an object of type", {"codecs": [GZIP]}), ("endian/1.0' after another", {"codecs": [{"type": GZIP}, BIG]}),
    ("codec 'x'", {"codecs": [{"type": "x"}]}),
    ("got 'middle', expected endian", {"codecs": [{"type": ENDIAN, "configuration": {"endian": "middle"}}]}),
    ("shuffle: got 3", {"codecs": [{"type": BLOSC, "configuration": {"shuffle": 3}}]}),
    ("layout: got None", {"chunk_memory_layout": ...}), ("memory layout", {"chunk_memory_layout": {"type": "x"}}),
    ("members besides", {"more": 1}), ("shape: got 'nothing'", {"shape": ...}),
    ("data_type: got None", {"data_type": ...}), ("chunk_grid: got 'nothing'", {"chunk_grid": ...}),
]  # fmt: skip


test_documents_that_are_refused = refusals(REFUSED, lambda changes: array(**changes), key=KEY)


def test_later_minor_version_may_have_unknown_members() -> None:
    document = json.dumps({**EXAMPLE, "more": 1}).encode()
    assert ZarrV3Draft(lenient=True).parse_array("foo/baz", {KEY: document}) is not None


def test_dimension_names_are_xarrays_attribute() -> None:
    metadata = array(fill_value=0, attributes={"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m"})
    assert (metadata.dimension_names, metadata.attributes) == (("y", "x"), {"units": "m"})
    assert emitted(metadata)["attributes"] == {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "m"}
    assert parse(emitted(metadata)) == metadata
    assert array(attributes={"_ARRAY_DIMENSIONS": ["x"]}).attributes == {"_ARRAY_DIMENSIONS": ["x"]}


# Writing


def test_adapt() -> None:
    adapted = DRAFT.adapt(array_of_others(dimension_names=("y", "x")))
    assert adapted.chunk_keys == ChunkKeyEncoding("c", "/", "c")
    assert adapted.fill_value == 0
    assert DRAFT.adapt(adapted) == adapted
    assert parse(emitted(adapted)) == adapted
    default = DRAFT.adapt(array_of_others(codecs=(NamedConfig("bytes"), NamedConfig("gzip"))))
    assert emitted(default)["codecs"] == [{"type": GZIP, "configuration": {"level": 6}}]


def test_adapt_an_n5_dataset() -> None:
    adapted = DRAFT.adapt(N5().adapt(array_of_others()))
    assert adapted.codecs == (NamedConfig("bytes", {"endian": "big"}), NamedConfig("gzip", {"level": 5}))
    assert adapted.edge_chunks == "padded"
    assert parse(emitted(adapted)) == adapted


LOST = [
    ("dtype datetime64", {"dtype": np.dtype("M8[ns]"), "fill_value": np.datetime64("NaT", "ns")}),
    ("dtype", {"dtype": np.dtype([("a", "i4")])}),
    ("different declared shapes", {"chunk_grid": ChunkGrid((RunsAxis(3, ((1, 1), (2, 1))),))}),
    ("'zstd'", {"codecs": (NamedConfig("bytes"), NamedConfig("zstd", {"level": 3}))}),
    ("transpose", {"chunk_grid": ChunkGrid.regular((3, 5, 7), (2, 4, 1)),
     "codecs": (NamedConfig("transpose", {"order": [1, 0, 2]}), NamedConfig("bytes"))}),
    ("numcodecs.delta", {"codecs": (NamedConfig("numcodecs.delta", {}), NamedConfig("bytes"))}),
    ("some absent", {"dimension_names": ("y", None)}),
    ("otherwise", {"dimension_names": ("y", "x"), "attributes": {"_ARRAY_DIMENSIONS": ["a", "b"]}}),
    ("fill value", {"dtype": np.dtype("c16"), "fill_value": np.array([NAN_WITH_PAYLOAD, 0]).view("c16")[0]}),
]  # fmt: skip


test_what_would_be_lost = refusals(LOST, lambda lost: DRAFT.adapt(array_of_others(**lost)), error=UnsupportedFeature)


class TestContract(FormatContract):
    format = DRAFT
    arrays = (
        array(),
        array(shape=[], chunk_grid=grid(), fill_value=2.5, codecs=[]),
        array(chunk_grid=grid(3, 2, separator="."), chunk_memory_layout="F", codecs=[BIG]),
        array(data_type="r24", fill_value="0x01FF00", attributes={"_ARRAY_DIMENSIONS": ["y", "x"]}),
    )
    refused = (
        array_of_others(chunk_keys=chunk_keys("/")),  # an undefined fill value
        array_of_others(fill_value=0),
        array_of_others(fill_value=0, chunk_keys=chunk_keys("/"), edge_chunks="truncated"),
    )


def test_groups() -> None:
    assert DRAFT.implicit_groups
    with pytest.raises(MetadataError, match="shape"):
        DRAFT.parse_group("foo", {"meta/foo.group.json": b'{"attributes": {}, "shape": [1]}'})
