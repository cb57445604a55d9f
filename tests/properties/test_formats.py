"""parse(emit(x)) is x, and no document, however broken, raises anything but chunkmill's own errors."""

import json
import random
from pathlib import Path

import pytest
from contracts.format_contract import same_fill, same_metadata
from hypothesis import given
from support.mutations import mutate_json
from support.strategies import attributes, dtypes, fills, fixed_dtypes, v2_metadata, v3_metadata

from chunkmill.errors import MetadataError, UnknownCodec
from chunkmill.formats import consolidated
from chunkmill.formats.n5 import N5
from chunkmill.formats.zarr_v2 import ZarrV2
from chunkmill.formats.zarr_v3 import ZarrV3
from chunkmill.formats.zarr_v3_draft import ZarrV3Draft
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


@pytest.mark.parametrize("fmt", [ZarrV2(), ZarrV3(), ZarrV3Draft(), N5()], ids=lambda fmt: fmt.name)
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

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(pattern, *, has=b""):
    """Return documents of the golden stores, each once."""
    found = {file.read_bytes() for file in GOLDEN.glob(pattern)}
    return sorted(value for value in found if has in value and b"[" * 50 not in value)


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
    "v2": (golden("zarr_v2/**/.zarray"), parse_v2),
    "v2-group": (golden("zarr_v2/**/.zgroup"), lambda value: ZarrV2().parse_group("", {".zgroup": value})),
    "v2-consolidated": (golden("**/.zmetadata"), lambda value: consolidated.parse_v2(value, ".zmetadata")),
    "v3": (golden("zarr_v3/**/zarr.json", has=b'"codecs"'), parse_v3),
    "v3-group": (golden("zarr_v3/**/zarr.json", has=b'"group"'), lambda value: ZarrV3().parse_group("", {"zarr.json": value})),
    "v3-consolidated": (
        golden("zarr_v3/**/zarr.json", has=b'"consolidated_metadata"'),
        lambda value: consolidated.split_v3(value, "zarr.json"),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_raise_nothing_else(name):
    documents, parse = HOSTILE[name]
    choose = random.Random(name)
    refused = 0
    for _ in range(1500):
        message = refusal(parse, mutate_json(choose.choice(documents), choose))
        assert message is None or 0 < len(message) < 2000
        refused += message is not None
    assert 50 < refused < 1500  # the mutations do reach what is checked
