"""The public function where zarr-python is not installed, and the bytes that need no zarr-python."""

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.stores.base import ByteRange
from chunkmill.stores.memory import MemoryStore
from chunkmill.zarr_python.shown import ShownArray


@pytest.mark.parametrize(("format_", "passes"), [("n5", False), ("zarr2", True), ("zarr3", True)])
def test_which_stored_bytes_are_passed_on(format_, passes):
    store = MemoryStore()
    cm.to_store(np.arange(8), store, "a", chunks=4, format=format_, codecs="gzip")
    shown = ShownArray(cm.open_array(store, "a").stored, "a")
    assert shown.is_passed_on == passes
    assert sorted(shown.chunk_keys()) == ["c/0", "c/1"]
    assert shown.value((2,), None) is None
    assert shown.value((0, 0), None) is None
    assert shown.value((0,), ByteRange(0, 2))[:2] == b"\x1f\x8b"
