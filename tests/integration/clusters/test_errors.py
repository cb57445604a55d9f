"""Errors of chunks that workers meet: they cross processes, with all that they say, which pickling alone does not show."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import ChunkError

pytestmark = pytest.mark.slow


@pytest.fixture
def array(tmp_path):
    array = cm.create_array(tmp_path, "a", shape=(8, 8), dtype="i4", chunks=(2, 4), codecs="raw")
    array[...] = np.arange(1, 65).reshape(8, 8)
    return array


@pytest.mark.parametrize("scheduler", ["cluster", "processes"])
def test_reading(array, tmp_path, request, scheduler):
    (tmp_path / "a" / "c" / "3" / "1").write_bytes(b"x" * 31)
    if scheduler == "cluster":
        request.getfixturevalue("client")
    options = {"scheduler": "processes", "num_workers": 1} if scheduler == "processes" else {}
    with pytest.raises(ChunkError, match="31 bytes, expected 32") as caught:
        (array.to_dask() + 1).compute(**options)
    error = caught.value
    assert (error.url, error.key, error.coords, error.step) == (array.url, "a/c/3/1", (3, 1), "bytes")
