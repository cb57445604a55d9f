# ruff: noqa: RUF012 - the class attributes are tables of cases
import numpy as np
import pytest
from contracts.codec_contract import CodecContract, pipeline_of, spec_of

from chunkmill.codecs.base import ChunkSpec
from chunkmill.errors import MetadataError

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
CUBE = np.arange(24, dtype="u1").reshape(2, 3, 4)


def transpose(order):
    return {"name": "transpose", "configuration": {"order": order}}


class TestCycle(CodecContract):
    """(2, 0, 1) is no involution: using `order` twice would not undo it."""

    chain = [transpose([2, 0, 1]), BYTES]
    fixed_size = True
    arrays = [CUBE, np.arange(6.0).reshape(1, 2, 3)]
    # encoded[k, i, j] = chunk[i, j, k]
    frozen = [(np.arange(6, dtype="u1").reshape(1, 3, 2), "00 02 04 01 03 05")]


class TestChain(CodecContract):
    chain = [transpose([1, 2, 0]), transpose([1, 0, 2]), BYTES]
    fixed_size = True
    arrays = [CUBE]
    frozen = [(np.arange(8, dtype="u1").reshape(2, 2, 2), "00 04 02 06 01 05 03 07")]


class TestF(CodecContract):
    chain = [transpose("F"), BYTES]
    fixed_size = True
    arrays = [CUBE, np.array(3)]
    frozen = [(np.array([[1, 2], [3, 4]], "u1"), "01 03 02 04")]


class TestC(CodecContract):
    chain = [transpose("C"), BYTES]
    fixed_size = True
    arrays = [CUBE, np.array(3)]
    frozen = [(np.array([[1, 2], [3, 4]], "u1"), "01 02 03 04")]


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, -1], "G", [0, 1, 2.0], [True, 0, 2], None])
def test_no_permutation(order):
    with pytest.raises(MetadataError):
        pipeline_of([transpose(order), BYTES], ChunkSpec((2, 3, 4), np.dtype("i4"), None))


def test_old_constants_are_written_as_lists():
    pipeline = pipeline_of([transpose("F"), BYTES], spec_of(CUBE))
    assert pipeline.filters[0].config().configuration == {"order": [2, 1, 0]}
