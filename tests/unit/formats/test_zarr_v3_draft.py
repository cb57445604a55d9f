"""Zarr v3, draft of 25 May 2022: documents <-> the model."""

import json
from typing import Any

import numpy as np
import pytest
from contracts.format_contract import array_of_others
from support.cases import cases

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.n5 import N5
from chunkmill.formats.zarr_v3_draft import ZarrV3Draft, chunk_keys
from chunkmill.model.grid import ChunkGrid, RunsAxis
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, GroupMetadata, NamedConfig

CORE = "https://purl.org/zarr/spec/core/3.0"
GZIP = "https://purl.org/zarr/spec/codecs/gzip/1.0"
BLOSC = "https://purl.org/zarr/spec/codecs/blosc/1.0"
ENDIAN = "https://purl.org/zarr/spec/codecs/endian/1.0"
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
    return parse({**EXAMPLE, **changes})


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


@cases("version", [3, 2, None, {}, "https://purl.org/zarr/spec/protocol/core/3.0"])
def test_other_formats_have_a_zarr_json_too(version: Any) -> None:
    assert configured(zarr_format=version) is None


@pytest.mark.parametrize("version", ["http://purl.org/zarr/spec/core/3.0", "https://purl.org/zarr/spec/core/3.1"])
def test_versions_that_are_read(version: str) -> None:
    found = configured(zarr_format=version)
    assert found is not None
    assert found.lenient == version.endswith("1")


@cases(
    ("changes", "reason"),
    {
        "major": ({"zarr_format": "https://purl.org/zarr/spec/core/4.0"}, "core version 4.0"),
        "foreign": ({"zarr_format": "https://example.org/zarr/3.0"}, "zarr_format"),
        "member": ({"more": 1}, "more"),
        "cbor": ({"metadata_encoding": {"type": "cbor", "metadata_key_suffix": ".json"}}, "metadata encoding"),
        "no_suffix": ({"metadata_encoding": {"type": "json"}}, "metadata_key_suffix"),
        "slash": ({"metadata_encoding": {"type": "json", "metadata_key_suffix": "/x"}}, "metadata_key_suffix"),
        "must": ({"extensions": [{"extension": "x", "must_understand": True}]}, "extension 'x'"),
        "unsaid": ({"extensions": [{"extension": "x"}]}, "extension 'x'"),
        "extensions": ({"extensions": {}}, "extensions"),
    }.values(),
)
def test_entry_points_that_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(MetadataError, match=reason):
        configured(**changes)


def test_extension_that_may_be_ignored() -> None:
    extension = {"extension": "http://example.org/zarr/extension/foo", "must_understand": False, "configuration": {}}
    assert configured(extensions=[extension]) == DRAFT
    assert array(extensions=[extension], fill_value=0) == array(fill_value=0)


@cases("suffix", ["", ".meta", ".json"])
def test_suffix(suffix: str) -> None:
    found = configured(metadata_encoding={"type": "json", "metadata_key_suffix": suffix})
    assert found is not None
    assert found.array_keys("foo/baz") == (f"meta/foo/baz.array{suffix}",)
    assert found.group_keys("") == (f"meta/group{suffix}",)
    assert found.child_name("", "meta/", f"x.array{suffix}") == "x"
    assert configured(metadata_encoding=json.loads(found.emit_root()["zarr.json"])["metadata_encoding"]) == found


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
    with pytest.raises(MetadataError):
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


@cases(
    ("data_type", "dtype", "endian"),
    [
        ("bool", "?", "little"), ("int64", "i8", "little"),  # not in the table, by oversight
        ("uint64", "u8", "little"), ("float16", "f2", "little"), ("complex128", "c16", "little"),
        ("<f4", "f4", "little"), (">f4", "f4", "big"), (">c8", "c8", "big"), ("|u1", "u1", "little"),
        ("u1", "u1", "little"), ("|b1", "?", "little"), ("r24", "V3", "little"),
    ],
)  # fmt: skip
def test_data_types(data_type: str, dtype: str, endian: str) -> None:
    metadata = array(data_type=data_type, fill_value={"?": False, "V3": "0x000000"}.get(dtype, 0), codecs=[])
    assert metadata.dtype == np.dtype(dtype)
    assert metadata.codecs == (NamedConfig("bytes", {"endian": endian}),)
    again = parse(emitted(metadata))
    assert (again.dtype, again.codecs, again.fill_value) == (metadata.dtype, metadata.codecs, metadata.fill_value)


@cases(
    "data_type",
    [
        "float128", "r12", "r0", "r", "i4", "|i4", "<i3", "<U4", "|S3", "<M8[ns]", "|O", "i4,i4", "float64 ", "r" * 9,
        "r99999999999999999999", 5, None, [], {},
    ],
)  # fmt: skip
def test_data_types_that_are_refused(data_type: Any) -> None:
    with pytest.raises(MetadataError):
        array(data_type=data_type, fill_value=0)


def test_fallbacks() -> None:
    def of(fallback: Any) -> Any:
        return {"extension": "https://example.org/x", "type": "decimal", "fallback": fallback}

    with pytest.warns(UserWarning, match="'decimal' of extension 'https://example.org/x' is unknown here"):
        assert array(data_type=of("int64"), fill_value=0).dtype == np.dtype("i8")
    with pytest.warns(UserWarning, match="read as 'float32'"):
        assert array(data_type=of(["float128", "float32", "r32"]), fill_value=0).dtype == np.dtype("f4")
    for bad in (None, [], "float128", ["float128"], 5, {}):
        with pytest.raises(UnsupportedFeature, match="without a fallback"):
            array(data_type=of(bad), fill_value=0)
    for wrong in ({"type": "x", "fallback": "int8"}, {"extension": "x", "fallback": "int8"}, {**of("int8"), "more": 1}):
        with pytest.raises(MetadataError):
            array(data_type=wrong, fill_value=0)


NAN_WITH_PAYLOAD = np.array(0x7FF80000DEADBEEF, "u8").view("f8")[()]
FILLS = {  # data type, JSON, value, JSON as written
    "nan": ("float64", "NaN", np.float64("nan"), "NaN"),
    "plus_infinity": ("float32", "+Infinity", np.float32("inf"), "+Infinity"),
    "infinity": ("float32", "Infinity", np.float32("inf"), "+Infinity"),
    "minus_infinity": ("float16", "-Infinity", np.float16("-inf"), "-Infinity"),
    "hex": ("float64", "0x400921fb54442d18", np.float64(np.pi), np.pi),
    "hex_payload": ("float64", "0x7FF80000DEADBEEF", NAN_WITH_PAYLOAD, "0x7ff80000deadbeef"),
    "hex_integer": ("int16", "0xfffe", np.int16(-2), -2),
    "binary": ("float32", "0b01000000000000000000000000000000", np.float32(2), 2.0),
    "binary_integer": ("uint8", "0b00000101", np.uint8(5), 5),
    "minus_zero": ("float64", -0.0, np.float64(-0.0), -0.0),
    "integer_for_float": ("float64", 3, np.float64(3), 3.0),
    "uint64": ("uint64", 2**64 - 1, np.uint64(2**64 - 1), 2**64 - 1),
    "int64": ("int64", -(2**63), np.int64(-(2**63)), -(2**63)),
    "bool": ("bool", True, np.bool_(True), True),
    "complex": ("complex64", [1, "-Infinity"], np.complex64(complex(1, -np.inf)), [1.0, "-Infinity"]),
    "complex_number": ("complex128", 0, np.complex128(0), [0.0, 0.0]),
    "raw": ("r24", "0x01FF00", np.array(b"\x01\xff\x00", "V3")[()], "0x01ff00"),
    "raw_binary": ("r16", "0b0000000111111111", np.array(b"\x01\xff", "V2")[()], "0x01ff"),
}


@cases("name", FILLS)
def test_fill_values(name: str) -> None:
    data_type, written, value, canonical = FILLS[name]
    metadata = array(data_type=data_type, fill_value=written)
    assert np.asarray(metadata.fill_value).tobytes() == np.asarray(value).tobytes()
    assert np.asarray(metadata.fill_value).dtype == metadata.dtype
    again = emitted(metadata)["fill_value"]
    assert repr(again) == repr(canonical)
    assert np.asarray(array(data_type=data_type, fill_value=again).fill_value).tobytes() == np.asarray(value).tobytes()


@cases(
    ("data_type", "fill_value"),
    [
        ("int16", None), ("int16", 1.5), ("int16", 1.0),  # "a number with no fraction or exponent part"
        ("int16", 40000), ("int16", "1"), ("uint8", -1), ("bool", 1), ("bool", "0x01"),
        ("float64", "0x1"),  # not padded
        ("float64", "0x400921fb54442d1g"), ("float64", ""), ("float32", 1e39), ("float64", 10**400),
        ("complex64", [0]), ("complex64", ["x", 0]), ("r24", 0), ("r24", "AAAA"),
    ],
)  # fmt: skip
def test_fill_values_that_are_refused(data_type: str, fill_value: Any) -> None:
    with pytest.raises(MetadataError):
        array(data_type=data_type, fill_value=fill_value)


def test_layout_f_turns_the_axes_round() -> None:
    metadata = array(
        shape=[4, 5, 6], chunk_grid={"type": "regular", "chunk_shape": [3, 3, 2], "separator": "."},
        chunk_memory_layout="F", codecs=[],
    )  # fmt: skip
    assert metadata.codecs[0] == NamedConfig("transpose", {"order": [2, 1, 0]})
    assert metadata.chunk_keys.encode((1, 0, 2)) == "c1.0.2"
    assert emitted(metadata)["chunk_memory_layout"] == "F"
    assert parse(emitted(metadata)) == metadata or np.isnan(metadata.fill_value)


@cases(
    ("codecs", "expected"),
    {
        "empty": ([], []),
        "uri_of_the_codecs_own_page": ([{"type": GZIP.replace("codecs", "codec")}], [("gzip", {"level": 6})]),
        "http": ([{"type": GZIP.replace("https", "http")}], [("gzip", {"level": 6})]),
        "unversioned": ([{"type": GZIP[:-4]}], [("gzip", {"level": 6})]),
        "blosc": (
            [{"type": BLOSC, "configuration": {"cname": "zstd", "clevel": 1, "shuffle": 2, "blocksize": 0}}],
            [("blosc", {"cname": "zstd", "clevel": 1, "shuffle": "bitshuffle", "typesize": 8, "blocksize": 0})],
        ),
        "two": ([{"type": GZIP}, {"type": GZIP, "configuration": {"level": 9}}], [("gzip", {"level": 6}), ("gzip", {"level": 9})]),
    }.values(),
)  # fmt: skip
def test_codecs(codecs: list[Any], expected: list[tuple[str, Any]]) -> None:
    metadata = array(codecs=codecs, fill_value=0)
    assert [(codec.name, codec.configuration) for codec in metadata.codecs[1:]] == expected
    assert parse(emitted(metadata)) == metadata


def test_endian() -> None:
    big, little = ({"type": ENDIAN, "configuration": {"endian": endian}} for endian in ("big", "little"))
    assert array(codecs=[big]).codecs == (NamedConfig("bytes", {"endian": "big"}),)
    assert array(data_type=">f8", codecs=[little]).codecs == (NamedConfig("bytes", {"endian": "little"}),)
    assert emitted(array(codecs=[big, {"type": GZIP}]))["codecs"][0] == big
    assert emitted(array(data_type=">f8", codecs=[]))["codecs"] == [big]
    assert emitted(array(codecs=[little]))["codecs"] == []


@cases(
    "changes",
    {
        "unknown_member": {"more": 1},
        "unknown_member_lenient": {"more": {"must_understand": False}},
        "dimension_names": {"dimension_names": ["y", "x"]},  # final v3's
        "must": {"extensions": [{"extension": "x", "must_understand": True}]},
        "storage_transformers": {"storage_transformers": [{"extension": "x", "type": "y"}]},
        "grid_extension": {
            "chunk_grid": {"extension": "x", "type": "regular", "chunk_shape": [1, 1], "separator": "/"}
        },
        "grid_type": {"chunk_grid": {"type": "rectilinear", "chunk_shape": [1, 1], "separator": "/"}},
        "grid_rank": {"chunk_grid": {"type": "regular", "chunk_shape": [1], "separator": "/"}},
        "grid_zero": {"chunk_grid": {"type": "regular", "chunk_shape": [1, 0], "separator": "/"}},
        "separator": {"chunk_grid": {"type": "regular", "chunk_shape": [1, 1], "separator": "-"}},
        "layout": {"chunk_memory_layout": "Z"},
        "shape": {"shape": [-1, 1]},
        "attributes": {"attributes": []},
        "codec_unknown": {"codecs": [{"type": "https://purl.org/zarr/spec/codecs/zip/1.0"}]},
        "codec_not_purl": {"codecs": [{"type": "https://example.org/codecs/gzip/1.0"}]},
        "codec_final": {"codecs": [{"name": "gzip", "configuration": {"level": 1}}]},
        "codec_configuration": {"codecs": [{"type": GZIP, "configuration": 5}]},
        "endian_last": {"codecs": [{"type": GZIP}, {"type": ENDIAN, "configuration": {"endian": "big"}}]},
        "endian_middle": {"codecs": [{"type": ENDIAN, "configuration": {"endian": "middle"}}]},
        "blosc_shuffle": {"codecs": [{"type": BLOSC, "configuration": {"shuffle": 3}}]},
    }.values(),
)
def test_documents_that_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MetadataError) as caught:
        array(**changes)
    assert caught.value.key == KEY


@cases("missing", ["shape", "data_type", "chunk_grid", "chunk_memory_layout", "fill_value"])
def test_missing_members(missing: str) -> None:
    with pytest.raises(MetadataError):
        parse({name: value for name, value in EXAMPLE.items() if name != missing})


@cases("document", [b"", b"[1]", b"\xff", b"[" * 100_000])
def test_no_json_object(document: bytes) -> None:
    with pytest.raises(MetadataError):
        parse(document)
    with pytest.raises(MetadataError):
        DRAFT.configured({"zarr.json": document})


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


def test_adapt_an_n5_dataset() -> None:
    adapted = DRAFT.adapt(N5().adapt(array_of_others()))
    assert adapted.codecs == (NamedConfig("bytes", {"endian": "big"}), NamedConfig("gzip", {"level": 5}))
    assert adapted.edge_chunks == "padded"
    assert parse(emitted(adapted)) == adapted


@cases(
    ("changes", "lost"),
    {
        "time": ({"dtype": np.dtype("M8[ns]"), "fill_value": np.datetime64("NaT", "ns")}, "dtype datetime64"),
        "text": ({"dtype": np.dtypes.StringDType(), "fill_value": ""}, "dtype StringDType"),
        "bytes": ({"dtype": np.dtype("S4"), "fill_value": b""}, r"dtype \|S4"),
        "struct": ({"dtype": np.dtype([("a", "i4")])}, "dtype"),
        "rectilinear": ({"chunk_grid": ChunkGrid((RunsAxis(3, ((1, 1), (2, 1))),))}, "different declared shapes"),
        "zstd": ({"codecs": (NamedConfig("bytes"), NamedConfig("zstd", {"level": 3}))}, "'zstd'"),
        "crc32c": ({"codecs": (NamedConfig("bytes"), NamedConfig("crc32c"))}, "'crc32c'"),
        "sharding": ({"codecs": (NamedConfig("sharding_indexed", {}),)}, "sharding_indexed"),
        "transpose": (
            {
                "chunk_grid": ChunkGrid.regular((3, 5, 7), (2, 4, 1)),
                "codecs": (NamedConfig("transpose", {"order": [1, 0, 2]}), NamedConfig("bytes")),
            },
            "transpose",
        ),
        "filter": ({"codecs": (NamedConfig("numcodecs.delta", {}), NamedConfig("bytes"))}, "numcodecs.delta"),
        "names": ({"dimension_names": ("y", None)}, "some absent"),
        "names_twice": ({"dimension_names": ("y", "x"), "attributes": {"_ARRAY_DIMENSIONS": ["a", "b"]}}, "otherwise"),
        "complex_payload": ({"dtype": np.dtype("c16"), "fill_value": np.array([NAN_WITH_PAYLOAD, 0]).view("c16")[0]},
         "fill value"),
    }.values(),
)  # fmt: skip
def test_what_would_be_lost(changes: dict[str, Any], lost: str) -> None:
    with pytest.raises(UnsupportedFeature, match=lost):
        DRAFT.adapt(array_of_others(**changes))


def test_emit_wants_the_drafts_own_layout() -> None:
    with pytest.raises(UnsupportedFeature, match="undefined fill value"):
        DRAFT.emit_array("a", array_of_others(chunk_keys=chunk_keys("/")))
    with pytest.raises(UnsupportedFeature, match="chunk keys"):
        DRAFT.emit_array("a", array_of_others(fill_value=0))
    with pytest.raises(UnsupportedFeature, match="cropped"):
        DRAFT.emit_array("a", array_of_others(fill_value=0, chunk_keys=chunk_keys("/"), edge_chunks="truncated"))


def test_groups() -> None:
    documents = DRAFT.emit_group("foo", GroupMetadata({"spam": "ham", "eggs": 42}))
    assert {key: json.loads(value) for key, value in documents.items()} == {
        "meta/foo.group.json": {"attributes": {"spam": "ham", "eggs": 42}}
    }
    assert DRAFT.parse_group("foo", documents) == GroupMetadata({"spam": "ham", "eggs": 42})
    assert DRAFT.parse_group("foo", {}) is None
    assert DRAFT.parse_array("foo", documents) is None
    assert DRAFT.implicit_groups
    with pytest.raises(MetadataError, match="shape"):
        DRAFT.parse_group("foo", {"meta/foo.group.json": b'{"attributes": {}, "shape": [1]}'})
