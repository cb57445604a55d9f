import enum
import json
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkmill.errors import MetadataError
from chunkmill.formats.base import _indented as indented
from chunkmill.formats.base import parse_json


class Level(enum.IntEnum):
    LOW = 1


def by_json(value):
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: (
        st.lists(below)
        | st.lists(below).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.booleans() | st.none() | st.floats(-9, 9), below)
    ),
)


@given(values)
def test_is_as_json_writes_it(value):
    assert indented(value) == by_json(value)


@pytest.mark.parametrize(
    "value",
    [OrderedDict(a=1, b=[]), {"a": Level.LOW}, [np.float64(0.1)], np.str_("é"), {Level.LOW: 1, 2.5: 2}, {"\ud800": 1}],
    ids=["a subclass of dict", "an enumeration", "a scalar", "text", "other names", "half a character"],
)
def test_subclasses(value):
    assert indented(value) == by_json(value)


@pytest.mark.parametrize(
    "value", [{"a": [float("nan")]}, {float("inf"): 1}, {(1,): 2}, [{1}], [np.int64(1)], {b"a": 1}]
)
def test_errors_are_those_of_json(value):
    with pytest.raises((TypeError, ValueError)) as expected:
        by_json(value)
    with pytest.raises(expected.type, match=str(expected.value).split(":", maxsplit=1)[0][:20].replace("(", r"\(")):
        indented(value)


def test_a_value_inside_itself():
    value = []
    value.append(value)
    with pytest.raises((ValueError, RecursionError)):
        indented(value)


@pytest.mark.parametrize(
    ("value", "met"),
    [(b"", "it is empty"), (bytes(300), "it is empty"), (b"<!doctype html><html>", "a web page.*format=")],
)
def test_what_is_met_in_place_of_a_document(value, met):
    """An empty file was "Expecting value: line 1 column 1"."""
    with pytest.raises(MetadataError, match=met):
        parse_json("zarr.json", value)
