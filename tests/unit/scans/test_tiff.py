"""Documents of virtual-tiff, with the codecs of numcodecs."""

from chunkmill.scans.hdf5 import with_known_codecs


def document(*codecs, shape=(64, 96), dtype="uint16"):
    grid = {"name": "regular", "configuration": {"chunk_shape": [min(n, 32) for n in shape]}}
    return {"node_type": "array", "shape": list(shape), "data_type": dtype, "chunk_grid": grid, "codecs": list(codecs)}


def test_differences_of_neighbours_have_the_shape_of_a_chunk():
    of_bytes = {"name": "bytes", "configuration": {"endian": "little"}}
    found = with_known_codecs(document({"name": "HorizontalDeltaCodec"}, of_bytes, {"name": "numcodecs.zlib"}))
    about = {"shape": [32, 32], "dtype": "<u2", "axis": -1}
    delta = {"name": "numcodecs.imagecodecs_delta", "configuration": about}
    assert found["codecs"] == [delta, of_bytes, {"name": "numcodecs.zlib"}]


def test_samples_of_a_pixel_are_a_transpose():
    order = {"name": "transpose", "configuration": {"order": [0, 2, 1]}}
    chunky = {"name": "ChunkyCodec", "configuration": {"endian": "big"}}
    found = with_known_codecs(document(order, chunky, {"name": "imagecodecs_lzw"}, shape=(3, 64, 96)))
    assert found["codecs"] == [
        {"name": "transpose", "configuration": {"order": [1, 2, 0]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        {"name": "numcodecs.imagecodecs_lzw"},
    ]


def test_a_group_and_other_codecs_stay():
    assert with_known_codecs({"node_type": "group"}) == {"node_type": "group"}
    plain = document({"name": "bytes", "configuration": {"endian": "big"}})
    assert with_known_codecs(plain) == plain
