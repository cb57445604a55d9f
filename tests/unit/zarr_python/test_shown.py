"""The public function where zarr-python is not installed, and the bytes that need no zarr-python."""

import json

import numpy as np
import pytest

import chunkmill as cm

pytest.importorskip("zarr")
from support.cases import cases

from chunkmill.zarr_python.view import ShownArray


@cases("shards", [None, (4,)])
@cases(
    ("encoding", "key"),
    [
        ({"name": "default", "configuration": {"separator": "/"}}, "c/1"),
        ({"name": "default", "configuration": {"separator": "."}}, "c.1"),
        ({"name": "v2", "configuration": {"separator": "/"}}, "1"),
        ({"name": "v2", "configuration": {"separator": "."}}, "1"),
    ],
)
def test_chunks_are_shown_by_the_keys_that_the_document_says(store, encoding, key, shards):
    cm.create_array(store, "a", shape=(8,), chunks=(2,), shards=shards, dtype="i4")
    document = json.loads(bytes(store.get("a/zarr.json")))
    store.set("a/zarr.json", json.dumps({**document, "chunk_key_encoding": encoding}).encode())
    array = cm.open_array(store, "a", mode="r+")
    array[...] = np.arange(1, 9)
    shown = ShownArray(array.stored, "a")
    assert store.get(f"a/{key}") is not None
    assert json.loads(shown.document())["chunk_key_encoding"] == {
        "name": "default",
        "configuration": {"separator": "/"},
    }
    assert list(shown.chunk_keys())[:2] == ["c/0", "c/1"]
    assert shown.value((1,), None) == bytes(store.get(f"a/{key}"))
