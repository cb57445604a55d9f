"""Errors: what they tell of nodes that are not there, and that they survive processes, terminals and odd paths."""

import pickle

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import (
    AlignmentError,
    ChunkError,
    ChunkmillError,
    CodecError,
    JobError,
    MetadataError,
    NodeExists,
    NodeNotFound,
    RegionError,
    StoreError,
    UnknownCodec,
    UnsupportedFeature,
)
from chunkmill.hints import Hint
from chunkmill.stores.memory import MemoryStore

ERRORS = [
    NodeNotFound(url="u", path="p", found="group", wanted="array", hint="h"),
    NodeExists(url="u", path="p", found="array"), MetadataError(key="k", field="f", got={"a": [1]}, expected="e"),
    UnsupportedFeature(format="n5", feature="f", key="k", hint="h"),
    UnknownCodec(name="n", known=("a", "b"), reason="r"), CodecError(codec="c", reason="r", direction="encode"),
    ChunkError(url="u", key="k", coords=(1, 2), step="get", reason="r"), StoreError(url="u", key="k", reason="r"),
    RegionError(index="i", shape=(1, 2), reason="r"), AlignmentError(expected="e", got="g", fix="f"),
    JobError(job="j", reason="r", hint="h"),
    JobError(job="j", reason="r", hint=Hint("give {} or more", ("max_mem", 3)).also("or {}", ("allow", {"b", "a"}))),
]  # fmt: skip


def test_every_error_pickles():
    assert str(ChunkmillError(url="u", n=1)) == "url='u', n=1"
    """With its fields, its text, and as what it is."""
    for error in ERRORS:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)
        assert isinstance(error, cm.ChunkmillError)
        assert again.rendered(lambda name, value: f"{name}!") == error.rendered(lambda name, value: f"{name}!")


NOT_FOUND = {
    "nothing": (lambda store: cm.open(MemoryStore(), "a/b"), "no keys there: is the url right", None),
    "a misspelt child": (lambda store: cm.open_group(store, "g")["temprature"], "'temperature'", None),
    "a group where an array is wanted": (lambda s: cm.open_array(s, "g"), r"there is a group.*'temperature'", "group"),
    "an array where a group is wanted": (lambda s: cm.open_group(s, "g/temperature"), "there is an? array", "array"),
    "below an array": (lambda store: cm.open(store, "g/temperature/more"), "temperature", None),
    "of another format": (lambda store: cm.open(store, "g", format="zarr2"), "format 'zarr2'", None),
}  # fmt: skip


@cases("what", NOT_FOUND)
def test_a_node_that_is_not_there(what):
    store = MemoryStore()
    cm.create_array(store, "g/temperature", shape=(4,), dtype="i4", chunks=(2,))
    look, message, found = NOT_FOUND[what]
    with pytest.raises(NodeNotFound, match=message) as caught:
        look(store)
    assert isinstance(caught.value, KeyError)  # which users of mappings catch
    if found is not None:
        assert (caught.value.found, caught.value.wanted) == (found, {"group": "array", "array": "group"}[found])
    assert "nothing" not in cm.open_group(store)


@cases("text", ["x\ud800", "\udfff/y"])
def test_a_lone_surrogate_is_a_wrong_argument(text, tmp_path):
    for call in (
        lambda: cm.to_store(np.arange(3), tmp_path / "u", text),
        lambda: cm.to_store(np.arange(3), str(tmp_path / text)),
        lambda: cm.create_array(tmp_path / "u", text, shape=3, dtype="i4"),
        lambda: cm.open_array(tmp_path / "u", text),
        lambda: cm.open(str(tmp_path / text)),
    ):
        with pytest.raises(ValueError, match="lone surrogate") as caught:
            call()
        assert not isinstance(caught.value, UnicodeError)


def test_errors_obey_no_codes_of_what_users_give(tmp_path):
    with pytest.raises(cm.ChunkmillError) as caught:
        cm.open_array(tmp_path / "a\x1b[31m\x07b", "\x9bp")
    assert str(caught.value).isprintable()
    assert "\\x1b[31m\\x07b" in str(caught.value)
