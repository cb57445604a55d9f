"""Absent, present, failed: three states, told apart where the reader asks for it."""

import json
import pickle

import numpy as np
import pytest
from support.arrays import filled

import chunkmill as cm
from chunkmill.errors import ChunkError

LAYOUTS = {"plain": {"chunks": (2,)}, "sharded": {"chunks": (2,), "shards": (4,)}}


@pytest.fixture(params=LAYOUTS)
def store(request):
    """Eight elements, of which the chunks of [2:4] and [4:8] are absent: half a shard, and a shard."""
    return filled(np.array(EXPECTED, "i4"), path="g/a", **LAYOUTS[request.param]).store


EXPECTED = [5, 5, 0, 0, 0, 0, 0, 0, 6, 6]


def doors(store, **kwargs):
    """Every way to an array that is opened so."""
    yield cm.open_array(store, "g/a", **kwargs)
    yield cm.open(store, **kwargs)["g/a"]
    yield cm.open_group(store, **kwargs).groups()["g"].arrays()["a"]
    yield pickle.loads(pickle.dumps(cm.open_array(store, "g/a", **kwargs)))


def test_fill(store):
    for array in doors(store):
        np.testing.assert_array_equal(array[...], EXPECTED)
        assert array.stored.read_missing == "fill"
    np.testing.assert_array_equal(cm.from_store(store, "g/a").compute(), EXPECTED)


def test_error(store):
    for array in doors(store, read_missing="error"):
        for part in (np.s_[...], np.s_[2:3], np.s_[3], np.s_[1:3], np.s_[4:8], np.s_[5:6]):
            with pytest.raises(ChunkError, match="absent") as caught:
                array[part]
            assert caught.value.step == "get"
            assert caught.value.coords[0] in {1, 2, 3}
            assert caught.value.key.startswith("g/a/")
        np.testing.assert_array_equal(array[0:2], [5, 5])
        np.testing.assert_array_equal(array[8:], [6, 6])


def test_partial_writes_into_absent_chunks(store):
    """What is written need not have been there."""
    array = cm.open_array(store, "g/a", mode="r+", read_missing="error")
    array[4:5] = 9
    array[5:6] = 9
    np.testing.assert_array_equal(array[4:6], [9, 9])


def test_nonsense(store):
    with pytest.raises(ValueError, match="'fill'"):
        cm.open(store, "g/a", read_missing="nan")
    with pytest.raises(ValueError, match="'fill'"):
        cm.open_array(store, "g/a").stored.with_read_missing(None)


def test_chunks_under_keys_that_the_document_does_not_name_are_warned_of(tmp_path):
    """Writers of Zarr v2 that knew no ``dimension_separator`` nested chunks: they were read as fill values."""
    values = np.arange(16).reshape(4, 4)
    cm.to_store(values, tmp_path / "s", "a", chunks=(2, 2), format="zarr2")
    folder = tmp_path / "s/a"
    for i, j in np.ndindex(2, 2):
        (folder / str(i)).mkdir(exist_ok=True)
        (folder / f"{i}.{j}").rename(folder / str(i) / str(j))
    document = json.loads((folder / ".zarray").read_text())
    document.pop("dimension_separator", None)
    (folder / ".zarray").write_text(json.dumps(document))
    array = cm.open_array(tmp_path / "s", "a")
    with pytest.warns(UserWarning, match=r"'a'.*keys such as '0/0'.*dimension_separator"):
        array[...]
    array[...]  # once of an array
    with pytest.warns(UserWarning, match="keys such as '0/0'"):
        cm.convert(tmp_path / "s", tmp_path / "t", format="zarr3")
    np.testing.assert_array_equal(cm.open_array(tmp_path / "s", "a", dimension_separator="/")[...], values)
    (folder / ".zarray").write_text(json.dumps(document | {"dimension_separator": "/"}))
    np.testing.assert_array_equal(cm.open_array(tmp_path / "s", "a")[...], values)
