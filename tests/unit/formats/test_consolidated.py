import json

import pytest
from support.cases import cases

from chunkmill.errors import MetadataError
from chunkmill.formats import consolidated
from chunkmill.formats.zarr_v3 import ZarrV3

GROUP_2 = {"zarr_format": 2}
GROUP_3 = {"zarr_format": 3, "node_type": "group"}
ARRAY_3 = {"zarr_format": 3, "node_type": "array", "shape": []}


def parse_v3(value, key):
    """Return the documents of others that a group's document holds."""
    found = consolidated.split_v3(value, key)
    return None if found is None else {name: document for name, document in found.items() if name != key}


def v2(metadata, **members):
    return json.dumps({"zarr_consolidated_format": 1, "metadata": metadata, **members}).encode()


def v3(inline):
    return json.dumps(GROUP_3 | {"consolidated_metadata": inline}).encode()


def inline(metadata, **members):
    return v3({"kind": "inline", "must_understand": False, "metadata": metadata, **members})


def test_v2_keys_become_full_keys():
    value = v2({".zgroup": GROUP_2, "a/.zattrs": {"n": 1}, "a/b/.zarray": {}})
    assert set(consolidated.parse_v2(value, ".zmetadata")) == {".zgroup", "a/.zattrs", "a/b/.zarray"}
    found = consolidated.parse_v2(value, "x/y/.zmetadata")
    assert set(found) == {"x/y/.zgroup", "x/y/a/.zattrs", "x/y/a/b/.zarray"}
    assert json.loads(found["x/y/a/.zattrs"]) == {"n": 1}


def test_v2_holds_documents_only():
    value = v2({".zgroup": GROUP_2, "a/0.0": {}, "a/zarr.json": {}})
    assert set(consolidated.parse_v2(value, ".zmetadata")) == {".zgroup"}


@cases("version", [0, 2, "1", None, True, 1.0])
def test_v2_another_version_is_refused(version):
    with pytest.raises(MetadataError, match=r"zarr_consolidated_format: got .*consolidated=False"):
        consolidated.parse_v2(v2({}, zarr_consolidated_format=version), ".zmetadata")


def test_v2_another_document_is_none():
    reference_set = b'{"metadata": {}, "record_size": 10}'
    for value in (reference_set, v2({}, record_size=10), b'{"metadata": {}}'):
        assert consolidated.parse_v2(value, ".zmetadata") is None


BAD_PATHS = ["..", "../outside", "a/../../b", "./a", "a//b", "/a", "a/", "a\0b"]


@cases("path", [*BAD_PATHS, "a\\..\\b"])
def test_v2_keys_stay_below_the_group(path):
    with pytest.raises(MetadataError, match=r"'g/.zmetadata', metadata: got .*keys of nodes below the group"):
        consolidated.parse_v2(v2({f"{path}/.zarray": {}}), "g/.zmetadata")


@cases("path", BAD_PATHS)
def test_v3_keys_stay_below_the_group(path):
    with pytest.raises(MetadataError, match=r"'g/zarr.json', metadata: got .*keys of nodes below the group"):
        parse_v3(inline({path: GROUP_3}), "g/zarr.json")


@cases("value", [v2([]), v2(None), v2({".zgroup": "x"}), v2({".zgroup": None}), b"[]", b"", b"\xff", b"[" * 10**5])
def test_v2_malformed(value):
    with pytest.raises(MetadataError, match=r"'.zmetadata', (metadata|metadata\['.zgroup'\]|document): got"):
        consolidated.parse_v2(value, ".zmetadata")


@cases("value", [inline([]), inline(None), inline({"a": 3}), v3([]), v3("inline"), b"[]", b""])
def test_v3_malformed(value):
    with pytest.raises(MetadataError, match=r"'zarr.json', ((consolidated_)?metadata|metadata\['a'\]|document): got"):
        parse_v3(value, "zarr.json")


def test_v3_none():
    assert parse_v3(json.dumps(GROUP_3).encode(), "zarr.json") is None
    assert parse_v3(v3(None), "zarr.json") is None  # zarr-python 3.0
    assert parse_v3(inline({}, kind="elsewhere"), "zarr.json") is None
    assert parse_v3(inline({}), "zarr.json") == {}


def test_v3_emit_wants_the_group():
    for documents, words in (({}, "the group's own"), ({"zarr.json": json.dumps(ARRAY_3).encode()}, "got 'array'")):
        with pytest.raises(MetadataError, match=words):
            consolidated.emit_v3(documents)


def test_emit_takes_what_lies_below():
    documents = {key: json.dumps(GROUP_2).encode() for key in ("g/.zgroup", "g/a/.zgroup", "h/.zgroup", "gg/.zgroup")}
    documents["g/a/0.0"] = b"chunk"
    found = consolidated.parse_v2(consolidated.emit_v2(documents, "g/.zmetadata"), "g/.zmetadata")
    assert set(found) == {"g/.zgroup", "g/a/.zgroup"}
    documents = {f"{path}/zarr.json": json.dumps(GROUP_3).encode() for path in ("g", "g/a", "h", "gg")}
    assert set(parse_v3(consolidated.emit_v3(documents, "g/zarr.json"), "g/zarr.json")) == {"g/a/zarr.json"}


def test_what_others_need_not_understand_says_so():
    """The specification does not know the member: without the flag a reader has to refuse the group."""
    group = b'{"zarr_format": 3, "node_type": "group"}'
    written = json.loads(consolidated.emit_v3({"zarr.json": group, "a/zarr.json": group}))
    for each in (written, written["consolidated_metadata"]["metadata"]["a"]):
        member = each["consolidated_metadata"]
        assert (member["kind"], member["must_understand"]) == ("inline", False)
    below = parse_v3(json.dumps(written).encode(), "zarr.json")["a/zarr.json"]
    assert json.loads(below) == GROUP_3


def test_v3_of_a_group_that_holds_no_others_is_parsed_and_named():
    assert ZarrV3().parse_consolidated("g", json.dumps(GROUP_3).encode()) is None
    with pytest.raises(MetadataError) as caught:
        ZarrV3().parse_consolidated("g", b"{")
    assert caught.value.key == "g/zarr.json"


def test_v3_documents_of_others_are_left_out_of_a_group_s_own_inside_a_call():
    value = inline({"a": ARRAY_3})
    assert consolidated.own_document(value, "zarr.json") == value
    with consolidated.parsed_once():
        own = consolidated.own_document(value, "zarr.json")
        assert json.loads(own) == GROUP_3
        assert ZarrV3().parse_group("", {"zarr.json": value}) == ZarrV3().parse_group("", {"zarr.json": own})
