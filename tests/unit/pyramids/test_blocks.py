"""Blocks of levels, against marking every element and every store key."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkmill.pyramids.blocks import block_region, divide, peak_bytes, tasks_of, under
from chunkmill.pyramids.downsample import downsampled_shape


@st.composite
def pyramids(draw):
    """Shapes, factors and keys of some levels."""
    n_axes = draw(st.integers(1, 2))
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=n_axes, max_size=n_axes)))
    shapes, factors = [shape], [(1,) * n_axes]
    for _ in range(draw(st.integers(0, 3))):
        factors.append(tuple(1 if n == 1 else draw(st.integers(1, 3)) for n in shapes[-1]))
        shapes.append(downsampled_shape(shapes[-1], factors[-1]))
    keys = [tuple(draw(st.integers(1, 9)) for _ in range(n_axes)) for _ in shapes]
    return shapes, factors, keys


@given(pyramids(), st.integers(0, 5000), st.integers(1, 8))
@settings(max_examples=100)
def test_every_key_is_written_once_from_whole_cells(levels, budget, n_least):
    shapes, factors, keys = levels
    stages = divide(shapes, factors, keys, itemsize=1, budget=budget, n_least=n_least)
    assert [level.shape for level in stages[0]] + [level.shape for s in stages[1:] for level in s[1:]] == shapes
    number = 0
    for stage in stages:
        for level in stage:
            assert all(b % k == 0 for b, k in zip(level.block, keys[number], strict=True))
            number += 1
        number -= 1
        seen = [np.zeros(level.shape, int) for level in stage]

        def visit(level, coords, stage=stage, seen=seen):
            region = block_region(stage[level], coords)
            seen[level][region] += 1
            if level == 0:
                return
            covered = np.zeros([s.stop - s.start for s in region], int)
            for above, where in under(stage[level], stage[level - 1], coords):
                covered[where] += 1
                of_above = block_region(stage[level - 1], above)
                sizes = [s.stop - s.start for s in of_above]
                assert tuple(s.stop - s.start for s in where) == downsampled_shape(sizes, stage[level].factors)
                assert all(s.start % f == 0 for s, f in zip(of_above, stage[level].factors, strict=True))
                visit(level - 1, above)
            assert (covered == 1).all()

        for coords in product(*map(range, stage[-1].n_blocks)):
            visit(len(stage) - 1, coords)
        assert all((each == 1).all() for each in seen)
        assert tasks_of(stage) == np.prod(stage[-1].n_blocks)


def test_levels_share_a_stage_while_memory_and_tasks_allow():
    shapes, factors, keys = [(1024,), (512,), (256,), (128,)], [(1,), (2,), (2,), (2,)], [(16,)] * 4

    def of(budget, n_least, itemsize=1 << 20):
        return [len(s) for s in divide(shapes, factors, keys, itemsize=itemsize, budget=budget, n_least=n_least)]

    assert of(1 << 62, 1) == [4]
    assert of(1 << 62, 16) == [3, 2]
    assert of(0, 1) == [2, 2, 2]  # each has one level at least
    assert of(1 << 62, 1 << 20, itemsize=1) == [4]  # little is read: few tasks do


def test_memory():
    ((read, written),) = divide([(64,), (32,)], [(1,), (2,)], [(16,), (16,)], itemsize=2, budget=1, n_least=1)
    assert peak_bytes((read, written), 2) == 4 * 16 * 2 + 2 * 16 * 2
