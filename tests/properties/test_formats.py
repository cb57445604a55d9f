"""parse(emit(x)) is x, and no document, however broken, raises anything but chunkmill's own errors."""

import json
import random
from itertools import product

import pytest
from contracts.format_contract import same_fill, same_metadata
from hypothesis import given
from support.strategies import (
    attributes,
    dtypes,
    fills,
    fixed_dtypes,
    v2_metadata,
    v3_metadata,
)

from chunkmill.errors import MetadataError, UnknownCodec
from chunkmill.formats import consolidated
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.formats.zarr_v3 import ZarrV3
from chunkmill.model import dtypes as names
from chunkmill.model import fill_values
from chunkmill.model.metadata import GroupMetadata


@given(v2_metadata())
def test_zarr_v2_arrays_come_back(metadata):
    assert same_metadata(ZarrV2().parse_array("a/b", ZarrV2().emit_array("a/b", metadata)), metadata)


@pytest.mark.filterwarnings("ignore:a dimension name occurs twice:UserWarning")
@given(v3_metadata())
def test_zarr_v3_arrays_come_back(metadata):
    assert same_metadata(ZarrV3().parse_array("a/b", ZarrV3().emit_array("a/b", metadata)), metadata)


@pytest.mark.parametrize("fmt", [ZarrV2(), ZarrV3()], ids=lambda fmt: fmt.name)
@given(attributes=attributes)
def test_groups_come_back(fmt, attributes):
    metadata = GroupMetadata(attributes)
    assert fmt.parse_group("g", fmt.emit_group("g", metadata)) == metadata


@given(fixed_dtypes)
def test_dtypes_come_back(dtype):
    through_json = json.loads(json.dumps([names.emit_v2(dtype), names.emit_v3(dtype)]))
    assert names.parse_v2(through_json[0], key="") == dtype
    assert names.parse_v3(through_json[1], key="") == dtype
    big = names.with_byte_order(dtype, "big")
    assert names.parse_v2(names.emit_v2(big), key="") == big
    assert names.to_native(big) == dtype


@given(dtypes.flatmap(lambda d: fills(d).map(lambda value: (d, value))))
def test_every_bit_of_a_v3_fill_value_comes_back(case):
    dtype, value = case
    document = json.loads(json.dumps(fill_values.emit_v3(value, dtype)))
    assert same_fill(fill_values.parse_v3(document, dtype, key=""), value, dtype)


@given(dtypes.flatmap(lambda d: fills(d, payloads=False).map(lambda value: (d, value))))
def test_v2_fill_values_come_back_in_both_byte_orders(case):
    dtype, value = case
    for order in ("little", "big"):
        stored = names.with_byte_order(dtype, order)
        document = json.loads(json.dumps(fill_values.emit_v2(value, stored)))
        assert same_fill(fill_values.parse_v2(document, stored, key=""), value, dtype)


# --------------------------------------------------------------------------------------------------------------------
# Hostile documents

V2_ARRAY = {
    "zarr_format": 2,
    "shape": [7, 5],
    "chunks": [3, 2],
    "dtype": [["x", "<f4"], ["m", ">i2", [2]], ["in", [["k", "|u1"], ["t", "<M8[25us]"]]]],
    "compressor": {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": -1, "blocksize": 0},
    "fill_value": None,
    "order": "F",
    "filters": [{"id": "shuffle", "elementsize": 4}, {"id": "crc32c"}],
    "dimension_separator": "/",
    "_NCZARR_ARRAY": {"dimrefs": ["/y", "/x"]},
}
V2_FILTERED = V2_ARRAY | {
    "dtype": "<i4",
    "fill_value": -1,
    "filters": [{"id": "delta", "dtype": "<i4", "astype": "<i2"}, {"id": "fixedscaleoffset", "dtype": "<i2"}],
}
V2_OBJECTS = V2_ARRAY | {"dtype": "|O", "fill_value": "", "filters": [{"id": "vlen-bytes"}]}
V3_ARRAY = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [12, 8],
    "data_type": {
        "name": "struct",
        "configuration": {
            "fields": [
                {"name": "a", "data_type": "float32"},
                {
                    "name": "t",
                    "data_type": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 2}},
                },
                {"name": "u", "data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}},
            ]
        },
    },
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [6, 4]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": {"a": "0x7fc12345", "t": "NaT", "u": "ab"},
    "codecs": [
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": [2, 3],
                "codecs": [
                    {"name": "bytes", "configuration": {"endian": "big"}},
                    {"name": "gzip", "configuration": {"level": 1}},
                ],
                "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
                "index_location": "end",
            },
        },
    ],
    "dimension_names": ["y", None],
    "attributes": {"n": 1},
    "storage_transformers": [],
}
V3_RECTILINEAR = V3_ARRAY | {
    "data_type": "complex64",
    "fill_value": [1.5, "NaN"],
    "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[[3, 4], 1], 8]}},
    "codecs": ["bytes", {"name": "numcodecs.delta", "configuration": {"dtype": "<c8"}}],
}
V3_REGISTRY = V3_ARRAY | {
    "data_type": "bfloat16",
    "fill_value": "0x7fc0",
    "codecs": [
        {"name": "scale_offset", "configuration": {"offset": 5, "scale": 0.5}},
        {
            "name": "cast_value",
            "configuration": {"data_type": "int4", "rounding": "towards-zero", "out_of_range": "clamp", "scalar_map": {"encode": [["NaN", 0]]}},
        },
        {"name": "reshape", "configuration": {"shape": [[0], 2, -1]}},
        {"name": "bitround", "configuration": {"keepbits": 3}},
        {"name": "packbits", "configuration": {"padding_encoding": "first_byte", "first_bit": 0, "last_bit": 3}},
        {"name": "conditional", "configuration": {"codecs": [{"name": "zstd", "configuration": {"level": 1}}], "header_bits": 8}},
    ],
}  # fmt: skip
V2_CONSOLIDATED = {"zarr_consolidated_format": 1, "metadata": {"a/.zarray": V2_ARRAY, ".zgroup": {"zarr_format": 2}}}
V3_GROUP = {
    "zarr_format": 3,
    "node_type": "group",
    "attributes": {},
    "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {"a": V3_ARRAY}},
}

JUNK = (
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "a", "|O", "<f8", "<i4", ">U3",
    "<U1000000000000", "r8000000000000", "i4,i4", "O", "NaN", "0x7fc00000", "0xzz", "zstd", "bytes", "vlen-utf8", "string", "struct", "\ud800", "../x",
    "C", "F", "/", ".", [], [[]], [0], [1, 0], ["a", "b"], [[1, 10**12]], {}, {"name": "bytes"}, {"name": "int32"}, {"id": "pickle"}, {"a": {}},
    {"must_understand": False}, {"name": "numpy.datetime64", "configuration": {"unit": "ns", "scale_factor": 1}}, [[["x", "<i4"]]],
)  # fmt: skip


def mutate(value, choose):
    """Change, drop, double or rename something somewhere in `value`."""
    if isinstance(value, dict) and value and choose.random() < 0.9:
        return _mutate_dict(value, choose)
    if isinstance(value, list) and value and choose.random() < 0.8:
        return _mutate_list(value, choose)
    return choose.choice(JUNK)


def _mutate_dict(value, choose):
    name = choose.choice(list(value))
    action = choose.random()
    if action < 0.1:
        return {n: v for n, v in value.items() if n != name}
    if action < 0.2:
        return {**value, choose.choice(["x", "configuration", "must_understand", "name", ""]): choose.choice(JUNK)}
    return {**value, name: mutate(value[name], choose)}


def _mutate_list(value, choose):
    at = choose.randrange(len(value))
    action = choose.random()
    if action < 0.15:
        return value[:at] + value[at + 1 :]
    if action < 0.3:
        return [*value, value[at]]
    return [*value[:at], mutate(value[at], choose), *value[at + 1 :]]


def refusal(parse, document):
    """Return the message with which `parse` refuses `document`, or ``None``; any other exception passes through."""
    try:
        parse(document)
    except (MetadataError, UnknownCodec) as error:
        return str(error)
    return None


def parse_v2(value):
    metadata = ZarrV2().parse_array("", {".zarray": value})
    if metadata is not None:
        ZarrV3().emit_array("", metadata)


def parse_v3(value):
    metadata = ZarrV3().parse_array("", {"zarr.json": value})
    if metadata is not None:
        ZarrV2().emit_array("", metadata)


HOSTILE = {
    "v2-struct": (V2_ARRAY, parse_v2),
    "v2-filters": (V2_FILTERED, parse_v2),
    "v2-objects": (V2_OBJECTS, parse_v2),
    "v2-attributes": (
        V2_ARRAY,
        lambda value: ZarrV2().parse_array("", {".zarray": json.dumps(V2_ARRAY).encode(), ".zattrs": value}),
    ),
    "v2-group": ({"zarr_format": 2}, lambda value: ZarrV2().parse_group("", {".zgroup": value})),
    "v2-consolidated": (V2_CONSOLIDATED, lambda value: consolidated.parse_v2(value, ".zmetadata")),
    "v3-struct": (V3_ARRAY, parse_v3),
    "v3-rectilinear": (V3_RECTILINEAR, parse_v3),
    "v3-registry": (V3_REGISTRY, parse_v3),
    "v3-group": (V3_GROUP, lambda value: ZarrV3().parse_group("", {"zarr.json": value})),
    "v3-consolidated": (V3_GROUP, lambda value: consolidated.split_v3(value, "zarr.json")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_raise_nothing_else(name):
    document, parse = HOSTILE[name]
    choose = random.Random(name)
    refused = 0
    for _ in range(600):
        changed = document
        for _ in range(choose.randint(1, 3)):
            changed = mutate(changed, choose)
        message = refusal(parse, json.dumps(changed).encode())
        assert message is None or 0 < len(message) < 2000
        refused += message is not None
    assert refused > 50  # the mutations do reach what is checked


@pytest.mark.parametrize("name", HOSTILE)
def test_deep_documents_raise_nothing_else(name, subtests):
    document, parse = HOSTILE[name]
    for depth, member in product([50, 300, 700, 900, 980, 100_000], document):
        with subtests.test(member, depth=depth):
            value = json.dumps(document | {member: "@"}).replace('"@"', "[" * depth + "]" * depth)
            assert refusal(parse, value.encode()) != ""


def test_random_bytes_raise_nothing_else():
    choose = random.Random(7)
    for _, parse in HOSTILE.values():
        for _ in range(50):
            with pytest.raises(MetadataError):
                parse(choose.randbytes(choose.randrange(40)))
