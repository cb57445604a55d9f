import math
from functools import reduce

import numpy as np
import pytest
from support.cases import cases

from chunkmill.errors import MetadataError
from chunkmill.formats import base
from chunkmill.formats.base import check_attributes, emit_json, normalize_path, parse_json
from chunkmill.formats.cf_fill_value import decode_fill_value, encode_fill_value


def test_a_value_inside_itself():
    value = []
    value.append(value)
    with pytest.raises(MetadataError, match="JSON can hold"):
        emit_json("zarr.json", {"value": value})


def test_what_json_has_not_is_spelled_out():
    value = {"é": [math.nan, {"b": (-math.inf, 1.5)}], "c": math.inf}
    with pytest.warns(UserWarning, match="NaN or infinities"):
        text = emit_json("zarr.json", value, indent=None).decode()
    assert text == '{"é": ["NaN", {"b": ["-Infinity", 1.5]}], "c": "Infinity"}'
    assert emit_json("zarr.json", {"é": 1}) == '{\n  "é": 1\n}'.encode()


@cases("wrap", [lambda value: [value], lambda value: {"a": value}])
def test_attributes_are_at_most_100_deep(wrap):
    value = reduce(lambda value, _: wrap(value), range(100), 1)
    check_attributes("a", {"a": value})
    with pytest.raises(MetadataError, match="at most 100 deep"):
        check_attributes("a", {"a": wrap(value)})


def test_few_descriptions_are_kept(monkeypatch):
    monkeypatch.setattr(base, "_DESCRIBED", {})
    monkeypatch.setattr(base, "_MAX_DESCRIBED", 2)
    for n in range(3):
        base.described_once(n, lambda: -n)  # noqa: B023
    assert base._DESCRIBED == {2: -2}


def test_attributes_and_paths_of_another_type():
    with pytest.raises(TypeError, match="attributes are a dict, not list"):
        check_attributes("a", [])
    with pytest.raises(TypeError, match="3 is not a path"):
        normalize_path(3)


@cases(
    ("dtype", "value", "stored"),
    [
        ("c8", 1 + 2j, ["AAAAAAAA8D8=", "AAAAAAAAAEA="]), ("?", np.True_, True), ("S2", b"ab", "YWI="), (object, b"ab", "YWI="),
        (np.dtypes.StringDType(), "ab", "ab"), ("f4", -np.inf, "AAAAAAAA8P8="), ("M8[s]", np.datetime64(5, "s"), 5),
    ],
)  # fmt: skip
def test_fill_values_of_cf(dtype, value, stored):
    """As xarray 2025 writes them."""
    assert encode_fill_value(value, np.dtype(dtype)) == stored
    assert decode_fill_value(stored, np.dtype(dtype)) == (5 if stored == 5 else value)


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
