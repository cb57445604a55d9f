"""The experimental version 3 of zarr-python 2.13 to 2.18; what that wrote is in the golden stores ``experimental_*``."""

import json
from typing import Any

import pytest
from contracts.format_contract import array_of_others
from support.cases import refusals

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.formats.zarr_v3_draft import ZarrV3Draft
from chunkmill.formats.zarr_v3_experimental import ZarrV3Experimental
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata

PROTOCOL = "https://purl.org/zarr/spec/protocol/core/3.0"
# as zarr-python 2.18.7 writes them
ENTRY = {"zarr_format": PROTOCOL, "metadata_encoding": PROTOCOL, "metadata_key_suffix": ".json", "extensions": []}
ARRAY = {
    "attributes": {}, "chunk_grid": {"chunk_shape": [3, 2], "separator": "/", "type": "regular"},
    "chunk_memory_layout": "C",
    "compressor": {"codec": "https://purl.org/zarr/spec/codec/zlib/1.0", "configuration": {"level": 5}},
    "data_type": "<i4", "dimension_separator": "/", "extensions": [], "fill_value": 0, "shape": [7, 5],
}  # fmt: skip
EXPERIMENTAL = ZarrV3Experimental()


def array(**changes: Any) -> ArrayMetadata:
    document = {name: value for name, value in {**ARRAY, **changes}.items() if value is not ...}
    metadata = EXPERIMENTAL.parse_array("a/b", {"meta/root/a/b.array.json": json.dumps(document).encode()})
    assert metadata is not None
    return metadata


def configured(document: dict[str, Any]) -> ZarrV3Experimental | None:
    return EXPERIMENTAL.configured({"zarr.json": json.dumps(document).encode()})


def test_entry_point() -> None:
    assert configured(ENTRY) == EXPERIMENTAL
    assert configured({**ENTRY, "metadata_key_suffix": ""}) == ZarrV3Experimental("")
    assert EXPERIMENTAL.configured({}) is None
    assert configured({"zarr_format": 3}) is None
    assert configured(json.loads(ZarrV3Draft().emit_root()["zarr.json"])) is None
    with pytest.raises(UnsupportedFeature, match="extension 'x' "):
        configured({**ENTRY, "extensions": [{"extension": "x"}]})
    for suffix in ("/x", "\0"):
        with pytest.raises(MetadataError, match="expected a suffix"):
            configured({**ENTRY, "metadata_key_suffix": suffix})


def test_keys() -> None:
    assert EXPERIMENTAL.array_keys("") == ("meta/root.array.json",)
    assert EXPERIMENTAL.group_keys("a/b") == ("meta/root/a/b.group.json",)
    assert EXPERIMENTAL.chunk_prefix("") == "data/root/"
    assert EXPERIMENTAL.chunk_prefix("a/b") + array().chunk_keys.encode((0, 1)) == "data/root/a/b/c0/1"
    assert array().chunk_keys.encode(()) == "c0"
    assert EXPERIMENTAL.list_prefixes("") == ("meta/root/",)
    names = ["x.array.json", "x.group.json", "x/", "x", ".zmetadata", "consolidated/", "consolidated.group.json"]
    found = [EXPERIMENTAL.child_name("", "meta/root/", name) for name in names]
    assert found == ["x", "x", "x", None, None, None, "consolidated"]
    assert EXPERIMENTAL.child_name("a", "meta/root/a/", "consolidated/") == "consolidated"


def test_filters_that_are_no_list_of_codecs_are_an_attribute() -> None:
    for filters in ("mine", ["mine"], [{"name": "mine"}]):
        assert array(attributes={"filters": filters}).attributes == {"filters": filters}


SHARDING = "https://purl.org/zarr/spec/storage_transformers/sharding/1.0"


def transformer(chunks_per_shard: Any, extension: str = SHARDING, kind: str = "indexed") -> list[dict[str, Any]]:
    return [{"extension": extension, "type": kind, "configuration": {"chunks_per_shard": chunks_per_shard}}]


def test_shards_of_the_storage_transformer() -> None:
    metadata = array(storage_transformers=transformer([2]), chunk_memory_layout="F")
    plain = array(chunk_memory_layout="F")
    lengths = plain.chunk_grid.chunk_shape
    assert metadata.chunk_grid.chunk_shape == (2 * lengths[0], *lengths[1:])  # axes that are not named are not sharded
    (sharding,) = metadata.codecs
    assert sharding.configuration["chunk_shape"] == list(lengths)
    assert [codec["name"] for codec in sharding.configuration["codecs"]] == [codec.name for codec in plain.codecs]
    assert [codec["name"] for codec in sharding.configuration["index_codecs"]] == ["bytes"]
    scalar = {"shape": [], "chunk_grid": ARRAY["chunk_grid"] | {"chunk_shape": []}}
    assert array(storage_transformers=transformer([1]), **scalar).chunk_grid.chunk_shape == ()


def test_drafts_before_october_2020_are_named() -> None:
    with pytest.raises(UnsupportedFeature, match=r"draft of Zarr v3 before October 2020.*zarrita"):
        configured({"zarr_format": PROTOCOL, "metadata_encoding": "application/json", "extensions": []})


REFUSED = [
    ("shard: got 'nothing'", {"storage_transformers": [{"extension": SHARDING, "type": "indexed", "configuration": {}}]}),
    ("['…/sharding/1.0']", {"storage_transformers": transformer([2, 2], extension="…/sharding/1.0")}),
    (f"['{SHARDING}']", {"storage_transformers": transformer([2, 2], kind="padded")}),
    ("rs ['x']", {"storage_transformers": ["x"]}),
    (f"{SHARDING}', '", {"storage_transformers": transformer([2, 2]) * 2}),
    ("got [0, 2]", {"storage_transformers": transformer([0, 2])}),
    ("got [2, 2, 2]", {"storage_transformers": transformer([2, 2, 2])}),
    ("2**63-1", {"storage_transformers": transformer([2**62, 2])}),
    ("extension 'x'", {"extensions": [{"extension": "x", "must_understand": True}]}),
    ("compressor: got 'gzip'", {"compressor": "gzip"}),
    ("codec 'https://example.org/gzip'", {"compressor": {"codec": "https://example.org/gzip", "configuration": {}}}),
    ("'pickle' filter", {"compressor": {"codec": "https://purl.org/zarr/spec/codec/pickle/1.0", "configuration": {}}}),
    ("order: got 'Z'", {"chunk_memory_layout": "Z"}), ("layout: got 'nothing'", {"chunk_memory_layout": ...}),
    ("got 'i4,i4', expected a type string", {"data_type": "i4,i4"}),
    ("data_type: got 'nothing'", {"data_type": ...}), ("fill_value: got 'nothing'", {"fill_value": ...}),
    ("to 2147483647", {"fill_value": 2**40}), ("got []", {"attributes": []}),
]  # fmt: skip


test_documents_that_are_refused = refusals(REFUSED, lambda changes: array(**changes), key="meta/root/a/b.array.json")


def test_nothing_is_written() -> None:
    metadata = array_of_others()
    for write in (
        lambda: EXPERIMENTAL.emit_array("a", metadata),
        lambda: EXPERIMENTAL.emit_group("a", GroupMetadata()),
        EXPERIMENTAL.emit_root,
        lambda: EXPERIMENTAL.adapt(metadata),
        lambda: EXPERIMENTAL.emit_consolidated("", {}),
    ):
        with pytest.raises(UnsupportedFeature, match=r"does not support (writing|consolidated metadata)"):
            write()
