"""Parts of a region, copied into its tiles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chunkmill.conversion.rechunking.intermediate_files import put_in_tiles


@st.composite
def cases(draw):
    ndim = draw(st.integers(0, 4))
    number = draw(st.tuples(*[st.integers(1, 4)] * ndim))
    size = draw(st.tuples(*[st.integers(1, 4)] * ndim))
    shape = [n * s for n, s in zip(number, size, strict=True)]
    cuts = [sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    return number, size, shape, tuple(slice(*cut) for cut in cuts)


@given(cases())
def test_as_numpy_does_it_in_one_block(case):
    number, size, shape, at = case
    block = np.zeros(shape, int)
    tiles = np.zeros((*number, *size), int)
    values = np.arange(1, 1 + block[at].size).reshape(block[at].shape)
    block[at] = values
    put_in_tiles(tiles, at, values)
    for coords in np.ndindex(*number):
        cut = tuple(slice(i * s, (i + 1) * s) for i, s in zip(coords, size, strict=True))
        np.testing.assert_array_equal(tiles[coords], block[cut])


@pytest.mark.parametrize("values", [np.broadcast_to(np.int64(7), (6, 8)), np.full((8, 6), 7).T], ids=["seen", "turned"])
def test_values_that_are_not_contiguous(values):
    tiles = np.zeros((2, 4, 3, 2), int)
    put_in_tiles(tiles, (slice(0, 6), slice(0, 8)), values)
    assert (tiles == 7).all()
