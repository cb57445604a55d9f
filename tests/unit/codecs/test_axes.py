import numpy as np
import pytest
from contracts.codec_contract import LITTLE, codec, fixed, pipeline_of, spec_of
from support.cases import cases

from chunkmill.codecs.base import ChunkSpec
from chunkmill.errors import MetadataError

CUBE = np.arange(24, dtype="u1").reshape(2, 3, 4)


# (1, 2, 2) -> (2, 2), turned
TestAxes = fixed(
    [codec("reshape", shape=[[0, 1], [2]]), codec("transpose", order=[1, 0]), LITTLE],
    [CUBE, np.arange(24.0).reshape(2, 3, 4)[:, ::-1], np.zeros((0, 3, 4), "i2")],
    [(np.arange(4, dtype="u1").reshape(1, 2, 2), "00 02 01 03")],
)
TestWhatIsLeft = fixed(
    [codec("reshape", shape=[2, -1]), LITTLE], [CUBE, np.asfortranarray(CUBE.astype("f4")), np.array([1, 2])]
)
TestSqueeze = fixed(
    [{"name": "zarrs.squeeze"}, codec("transpose", order=[1, 0]), LITTLE],
    [np.arange(6, dtype="i2").reshape(1, 2, 1, 3), np.arange(6.0).reshape(2, 3)],
    [(np.arange(4, dtype="u1").reshape(1, 2, 1, 2), "00 02 01 03")],
)


@cases(
    "shape",
    [
        [5, -1], [-1, -1], [[1], [0]], [[1, 0], 4], [[2], 6], [25], [0, -1], [-2], [2.0, 12], [True, 24], [[3]], [[-1]], "x", None, [[0, 2], [1]],
        [[0], [0], 12], [6, [1], 2], [12, [0]],
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(shape):
    with pytest.raises(MetadataError):
        pipeline_of([codec("reshape", shape=shape), "bytes"], spec_of(CUBE))


def test_chunks_of_other_shapes():
    pipeline = pipeline_of([codec("reshape", shape=[[0, 1], [2]]), LITTLE], spec_of(CUBE))
    other = np.arange(10, dtype="u1").reshape(1, 5, 2)
    assert np.array_equal(pipeline.decode(bytes(pipeline.encode(other, spec_of(other))), spec_of(other)), other)


@cases("wrong", [codec("zarrs.squeeze", a=1), codec("transpose", order=[0], a=1), codec("bitround", keepbits=1, a=1)])
def test_members_that_a_filter_has_not(wrong):
    with pytest.raises(MetadataError):
        pipeline_of([wrong, "bytes"], ChunkSpec((1,), np.dtype("u1"), None))


def test_one_element_keeps_one_axis():
    spec = ChunkSpec((1, 1), np.dtype("u1"), None)
    assert (
        pipeline_of([{"name": "zarrs.squeeze"}, codec("transpose", order=[0]), "bytes"], spec).decode(b"a", spec) == 97
    )


@cases("order", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, -1], "G", [0, 1, 2.0], [True, 0, 2], None])
def test_no_permutation(order):
    with pytest.raises(MetadataError):
        pipeline_of([codec("transpose", order=order), LITTLE], ChunkSpec((2, 3, 4), np.dtype("i4"), None))


def test_old_constants_are_written_as_lists():
    pipeline = pipeline_of([codec("transpose", order="F"), LITTLE], spec_of(CUBE))
    assert pipeline.filters[0].config().configuration == {"order": [2, 1, 0]}
