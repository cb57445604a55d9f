"""Calls of jobs as plans store them: any process repeats them from plain JSON."""

import json

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.jobs.call import _storable, argument


def test_arguments_come_back_from_json(tmp_path):
    cm.to_store(np.arange(6), tmp_path / "s", "g/a")
    places = {
        "array": cm.open_array(tmp_path / "s", "g/a"),
        "group": cm.open_group(tmp_path / "s", "g"),
        "path": tmp_path,
    }
    given = {**places, "region": (slice(1, 5, None), ...), "options": {"chunks": [2, None], "shards": True}}
    stored = json.loads(json.dumps(_storable(given)))
    found = {name: argument(value) for name, value in stored["dict"].items()}
    url = (tmp_path / "s").as_uri()
    assert found["array"] == (url, "g/a")
    assert found["group"] == (url, "g")
    assert found["path"] == str(tmp_path)
    assert found["region"] == (slice(1, 5, None), ...)
    assert found["options"] == {"chunks": [2, None], "shards": True}


def test_what_json_cannot_hold_is_named():
    with pytest.raises(TypeError, match=r"array\(\[1\]\) \(ndarray\)"):
        _storable({"values": [np.array([1])]})
