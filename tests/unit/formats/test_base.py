import pytest
from support.cases import cases

from chunkmill.errors import MetadataError
from chunkmill.formats.base import emit_json, parse_json


def test_a_value_inside_itself():
    value = []
    value.append(value)
    with pytest.raises(MetadataError, match="JSON can hold"):
        emit_json("zarr.json", {"value": value})


@cases(
    ("value", "met"),
    [(b"", "it is empty"), (bytes(300), "it is empty"), (b"<!doctype html><html>", "a web page.*format=")],
)
def test_what_is_met_in_place_of_a_document(value, met):
    """An empty file was "Expecting value: line 1 column 1"."""
    with pytest.raises(MetadataError, match=met):
        parse_json("zarr.json", value)


def test_what_is_nested_too_deep_is_not_parsed():
    """Workers could not be sent it; brackets in texts are not nested."""
    assert parse_json("zarr.json", b'{"text": "' + b"[" * 300 + b'", "a": ' + b"[" * 100 + b"]" * 100 + b"}")["text"]
    with pytest.raises(MetadataError, match="128 deep"):
        parse_json("zarr.json", b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}")
