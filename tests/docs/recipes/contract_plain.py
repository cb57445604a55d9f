"""The contract of formats for `plain`, and the format in use."""

import numpy as np
from chunkmill.formats.plain import Plain
from contracts.format_contract import FormatContract

import chunkmill as cm
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, NamedConfig


def described(dtype="f4", fill_value=0, codecs=("bytes",), chunks=(2, 4)):
    chain = tuple(NamedConfig(name, {"endian": "little"} if name == "bytes" else {}) for name in codecs)
    grid = ChunkGrid.regular((5, 6), chunks)
    dtype = np.dtype(dtype)
    return ArrayMetadata(
        dtype, grid, ChunkKeyEncoding("", ".", "0"), chain, dtype.type(fill_value), attributes={"a": 1}
    )


class TestPlain(FormatContract):
    format = Plain()
    arrays = (described(), described("i4", chunks=(5, 1)))
    refused = (described("u1"), described(fill_value=7), described(codecs=("bytes", "zstd")))


def test_it_is_written_found_and_converted(tmp_path):
    x = np.arange(30, dtype="f4").reshape(5, 6)
    cm.to_store(x, tmp_path / "a", "x", format="plain", chunks=(2, 4))
    assert sorted(path.name for path in (tmp_path / "a" / "x").iterdir())[:2] == ["0.0", "0.1"]
    assert cm.open(tmp_path / "a")["x"].format == "plain"
    cm.convert(tmp_path / "a", tmp_path / "b", format="zarr3")
    assert cm.verify(tmp_path / "a", tmp_path / "b").equal
    assert cm.check(tmp_path / "a").ok
    np.testing.assert_array_equal(cm.from_store(tmp_path / "a", "x").compute(), x)
