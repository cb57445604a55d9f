"""Blocks of a transform: whole store keys of all targets, halos, what is read twice; checks of what functions return."""

import numpy as np
import pytest
from support.cases import cases

from chunkmill.conversion.coarsen import block_grid
from chunkmill.model.grid import ChunkGrid, RegularAxis
from chunkmill.transforms.blocks import (
    ArrayAxes,
    Space,
    grow_blocks,
    joined_space,
    padded_region,
    read_amplification,
    unit_axes,
)
from chunkmill.transforms.function import checked_result


def axes(shape, chunks, where=None):
    return ArrayAxes(ChunkGrid.regular(shape, chunks), tuple(range(len(shape))) if where is None else where)


def test_dimensions_are_joined_in_the_order_in_which_they_come():
    space = joined_space([(("y", "x"), (3, 4)), (("time", "x"), (5, 4))])
    assert space == Space(("y", "x", "time"), (3, 4, 5))


@cases(
    ("arrays", "message"),
    [
        ([(("x",), (3,)), (("x",), (4,))], r"dimension 'x' has 3 elements in one, and 4 in another"),
        ([(None, (3, 4)), (None, (4,))], "several ranks are broadcast by the names"),
        ([(None, (3, 4)), (None, (3, 5))], "dimension 1 has 4 elements in one, and 5"),
    ],
)
def test_arrays_that_do_not_go_together_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        joined_space(arrays)


def test_units_are_whole_store_keys_of_every_target():
    space = Space(("t", "x"), (24, 10))
    assert unit_axes(space, [axes((24, 10), (4, 3)), axes((24, 10), (6, 3))]) == (
        RegularAxis(24, 12),
        RegularAxis(10, 3),
    )
    assert unit_axes(space, [axes((24, 10), (5, 3)), axes((24, 10), (7, 3))])[0] == RegularAxis(24, 24)  # 35 > 24
    # a target without an axis: all of it is in every block
    assert unit_axes(space, [axes((10,), (3,), (1,))]) == (RegularAxis(24, 24), RegularAxis(10, 3))


@cases("seed", range(20))
def test_amplification_counts_what_is_decoded(seed):
    """Against a count of every chunk of every block."""
    rng = np.random.default_rng(seed)
    shape = tuple(map(int, rng.integers(1, 40, 2)))
    blocks = ChunkGrid.regular(shape, tuple(map(int, rng.integers(1, 20, 2))))
    source = axes(shape, tuple(map(int, rng.integers(1, 20, 2))))
    halo = tuple((int(a), int(b)) for a, b in rng.integers(0, 5, (2, 2)))
    decoded = 0
    for coords in blocks.all_coords():
        _, inside, _ = padded_region(blocks.region(coords), shape, halo)
        for overlap in source.grid.overlaps(inside):
            decoded += np.prod([cut.stop - cut.start for cut in source.grid.region(overlap.coords)])
    assert read_amplification(blocks, [source], halo) == pytest.approx(decoded / np.prod(shape))


def test_blocks_grow_until_little_is_read_twice():
    source = axes((256, 256), (32, 32))
    units = unit_axes(Space((0, 1), (256, 256)), [axes((256, 256), (8, 8))])
    halo = ((2, 2), (2, 2))
    limits = {"n_bytes": lambda shape: shape[0] * shape[1], "n_least": 4, "fine_bytes": 0}
    small = grow_blocks(units, [source], halo, budget=40 * 40, **limits)
    large = grow_blocks(units, [source], halo, budget=128 * 128, **limits)
    found = [read_amplification(each, [source], halo) for each in (block_grid(units, [1, 1]), small, large)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < 2.6 < found[0]
    assert np.prod(small.chunk_shape) <= 40 * 40
    assert np.prod(large.chunk_shape) <= 128 * 128
    assert large.n_chunks >= 4


def test_blocks_end_where_chunks_of_the_source_do():
    source = axes((60,), (15,))
    grown = grow_blocks(
        [RegularAxis(60, 5)], [source], ((0, 0),), n_bytes=lambda s: s[0], budget=99, n_least=1, fine_bytes=0
    )
    assert grown.chunk_shape == (15,)


def test_results_are_cast_within_their_kind_alone():
    assert checked_result(np.ones(3), (3,), np.dtype("f4")).dtype == np.float32
    assert checked_result(np.ones(3, "u1"), (3,), np.dtype("i8")).dtype == np.int64
    with pytest.raises(TypeError, match=r"float64, which uint8 does not hold: cast it, or give dtype="):
        checked_result(np.ones(3), (3,), np.dtype("u1"))
    with pytest.raises(ValueError, match=r"of shape \(4,\), expected \(5,\), or \(3,\) without its halo"):
        checked_result(np.ones(4), (3,), np.dtype("f8"), with_halo=(5,))
    assert checked_result(np.array([1e300, np.inf]), (2,), np.dtype("f8"))[1] == np.inf
    assert checked_result(np.array([0.1, np.inf, np.nan]), (3,), np.dtype("f4"))[0] == np.float32(0.1)
    with pytest.raises(TypeError, match="masked"):
        checked_result(np.ma.masked_array(np.ones(3), [0, 1, 0]), (3,), np.dtype("f8"))


@cases(
    ("values", "dtype", "said"),
    [
        (np.array([1, 70000]), "i2", "70000 does not fit int16"),
        (np.array([2**63], "u8"), "i8", "9223372036854775808 does not fit int64"),
        (np.array([1.0, 1e300]), "f4", "1e\\+300 does not fit float32"),
        (np.array(["a", "long"]), "U2", "4 characters, as 'long' has, in elements of <U2"),
    ],
)
def test_values_that_the_dtype_does_not_hold_are_refused(values, dtype, said):
    with pytest.raises(ValueError, match=said + r".*: give a wider dtype="):
        checked_result(values, values.shape, np.dtype(dtype))
    assert checked_result(values[:0], (0,), np.dtype(dtype)).dtype == np.dtype(dtype)
