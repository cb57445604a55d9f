"""What is compressed in expert mode is what the other modes make, where they are the same in other words."""

import numpy as np
import pytest

from chunkmill.codecs.zfp_expert import compress

zfpy = pytest.importorskip("zfpy")
TYPES = {"i4": 1, "i8": 2, "f4": 3, "f8": 4}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(9,), (8, 5), (3, 4, 6), (2, 5, 3, 4)])
def test_precision_in_other_words(dtype, shape):
    values = (np.arange(np.prod(shape)).reshape(shape) * 37 % 101).astype(dtype)
    parameters = {"minbits": 1, "maxbits": 16658, "maxprec": 17, "minexp": -1074}
    expected = zfpy.compress_numpy(values, precision=17, write_header=False)
    assert compress(zfpy.__file__, values, TYPES[dtype], parameters) == expected


def test_fewer_bits_make_shorter_streams_and_larger_errors():
    values = np.random.default_rng(0).normal(size=(16, 16)).astype("f4")
    sizes, errors = [], []
    for maxbits in (500, 200, 60):
        parameters = {"minbits": 20, "maxbits": maxbits, "maxprec": 30, "minexp": -20}
        stream = compress(zfpy.__file__, values, TYPES["f4"], parameters)
        sizes.append(len(stream))
        header = {"minbits": 20, "maxbits": maxbits, "maxprec": 30, "minexp": -20}
        errors.append(np.abs(_read(stream, values, header) - values).max())
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert errors[0] < 1e-5 < errors[-1] < 3


def _read(stream, values, parameters):
    from chunkmill.codecs.base import ChunkSpec
    from chunkmill.codecs.zfp import Zfp

    return Zfp("expert", parameters).decode(stream, ChunkSpec(values.shape, values.dtype, None))


def test_without_the_library(tmp_path):
    with pytest.raises(ValueError, match="its library is not found here"):
        compress(str(tmp_path / "nothing.so"), np.zeros(4), 4, {})


def test_parameters_that_zfp_does_not_take():
    parameters = {"minbits": 900, "maxbits": 20, "maxprec": 30, "minexp": -20}
    with pytest.raises(ValueError, match="zfp does not take"):
        compress(zfpy.__file__, np.zeros(4), 4, parameters)
