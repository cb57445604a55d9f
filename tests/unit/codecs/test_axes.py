import numpy as np
from contracts.codec_contract import LITTLE, codec, fixed, pipeline_of, spec_of
from support.cases import cases
from support.codecs import chunks_of, not_built

CUBE = np.arange(24, dtype="u1").reshape(2, 3, 4)


# (1, 2, 2) -> (2, 2), turned
TestAxes = fixed(
    [codec("reshape", shape=[[0, 1], [2]]), codec("transpose", order=[1, 0]), LITTLE],
    [CUBE, np.arange(24.0).reshape(2, 3, 4)[:, ::-1], np.zeros((0, 3, 4), "i2")],
    [(np.arange(4, dtype="u1").reshape(1, 2, 2), "00 02 01 03")],
)
TestWhatIsLeft = fixed(
    [codec("reshape", shape=[2, -1]), codec("reshape", shape=[-1]), LITTLE],
    [CUBE, np.asfortranarray(CUBE.astype("f4")), np.array([1, 2])],
)
TestSqueeze = fixed(
    [{"name": "zarrs.squeeze"}, codec("transpose", order=[1, 0]), LITTLE],
    [np.arange(6, dtype="i2").reshape(1, 2, 1, 3), np.arange(6.0).reshape(2, 3)],
    [(np.arange(4, dtype="u1").reshape(1, 2, 1, 2), "00 02 01 03")],
)


@cases(
    ("shape", "reason"),
    [
        ([5, -1], "shape .5, 4. has not as many elements as .2, 3, 4."), ([25], "shape .25. has not as many"),
        ([6, [1], 2], "shape .6, 3, 2. has not"), ([-1, -1], "-1 stands for more"),
        ([[1], [0]], "axes .1, 0. are not in increasing order"), ([[1, 0], 4], "not in increasing"),
        ([[0, 2], [1]], "not in increasing"), ([[0], [0], 12], "not in increasing"),
        ([0, -1], "0 in shape, expected a length"), ([-2], "-2 in shape"), ([2.0, 12], "2.0 in shape"),
        ([True, 24], "True in shape"), ([[-1]], ".-1. in shape"), ([[3]], "axes .3. of a chunk that has 3"),
        ([[2], 6], "axis 0 of shape .4, 6. does not run along .2."),
        ([12, [0]], "axis 1 of shape .12, 2. does not run"), ([[0, 2], 3], "axis 0 of shape .8, 3. does not run"),
        ("x", "'shape', a list"), (None, "'shape', a list"),
    ],
)  # fmt: skip
def test_shapes_that_do_not_fit(shape, reason):
    not_built([codec("reshape", shape=shape), "bytes"], spec_of(CUBE), f"another one: .*{reason}")


def test_chunks_of_other_shapes():
    pipeline = pipeline_of([codec("reshape", shape=[[0, 1], [2]]), LITTLE], spec_of(CUBE))
    other = np.arange(10, dtype="u1").reshape(1, 5, 2)
    assert np.array_equal(pipeline.decode(bytes(pipeline.encode(other, spec_of(other))), spec_of(other)), other)


@cases(
    ("name", "known"),
    [("zarrs.squeeze", {}), ("transpose", {"order": [0]}), ("bitround", {"keepbits": 1}), ("reshape", {"shape": [1]})],
)
def test_members_that_a_filter_has_not(name, known):
    not_built([codec(name, a=1, **known), "bytes"], chunks_of("u1", 1), r"another one: .*'a'")


def test_one_element_keeps_one_axis():
    pipeline = pipeline_of([{"name": "zarrs.squeeze"}, codec("transpose", order=[0]), "bytes"], chunks_of("u1", 1, 1))
    assert pipeline.decode(b"a", chunks_of("u1", 1, 1)) == 97


@cases("order", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, -1], "G", [0, 1, 2.0], [True, 0, 2], None])
def test_no_permutation(order):
    is_of_axes = isinstance(order, list) and set(map(type, order)) == {int}
    reason = "a permutation of the 3" if is_of_axes else "expected a list of axes"
    not_built([codec("transpose", order=order), LITTLE], chunks_of("i4", 2, 3, 4), reason)


def test_old_constants_are_written_as_lists():
    for name, order in (("F", [2, 1, 0]), ("C", [0, 1, 2])):
        pipeline = pipeline_of([codec("transpose", order=name), LITTLE], spec_of(CUBE))
        assert pipeline.filters[0].config().configuration == {"order": order}
