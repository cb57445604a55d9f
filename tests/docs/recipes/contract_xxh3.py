"""The contract of codecs for `xxh3`, and the codec in use."""

from typing import ClassVar

import numpy as np
import pytest
from contracts.codec_contract import CodecContract

import chunkmill as cm


class TestXxh3(CodecContract):
    chain: ClassVar = [{"name": "bytes", "configuration": {"endian": "little"}}, "xxh3"]
    fixed_size = True


def test_it_guards_what_is_stored(tmp_path):
    cm.to_store(np.arange(10), tmp_path / "a", chunks=(5,), codecs=["zstd", "xxh3"])
    assert [codec.name for codec in cm.open_array(tmp_path / "a").codecs] == ["bytes", "zstd", "xxh3"]
    np.testing.assert_array_equal(cm.open_array(tmp_path / "a")[...], np.arange(10))
    path = tmp_path / "a" / "c" / "1"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(cm.errors.ChunkError, match="xxh3"):
        cm.open_array(tmp_path / "a")[7]
