"""Blocks of a transform, and what tasks read, pass to the function, and write: against SciPy, NumPy and Dask."""

import traceback

import dask.array as da
import numpy as np
import pytest
from support.arrays import filled
from support.cases import cases
from support.recording import Meanwhile

import chunkmill as cm
from chunkmill.conversion.coarsen import block_grid
from chunkmill.errors import ChunkError, TransformError
from chunkmill.model.grid import ChunkGrid, RegularAxis
from chunkmill.stores.memory import MemoryStore
from chunkmill.transforms.blocks import (
    ArrayAxes,
    Space,
    grow_blocks,
    joined_space,
    padded_region,
    read_amplification,
    unit_axes,
)
from chunkmill.transforms.function import BlockFunction, checked_result


@pytest.fixture
def source():
    store = MemoryStore()
    values = np.random.default_rng(0).normal(size=(23, 17, 12)).astype("f4")
    cm.to_store(values, store, "a", chunks=(5, 6, 12), dimension_names=("z", "y", "x"))
    return store, values


def test_calls_of_compiled_functions_without_a_signature_are_not_checked():
    BlockFunction(dict, {}, 1).check_call(7)
    with pytest.raises(TypeError, match="cannot be called with 7 blocks"):
        BlockFunction(np.flip, {}, 1).check_call(7)


def read(store, path="b"):
    return cm.open_array(store, path)[...]


@cases(
    ("boundary", "mode", "block"),
    [
        *((mode, mode, (5, 6, 12)) for mode in ("reflect", "nearest", "constant")),
        (3.5, "constant", (10, 17, 12)),
        ("reflect", "reflect", -1),
        ("none", "reflect", (5, 6, 12)),  # SciPy continues the blocks at the ends itself
    ],
)
def test_a_filter_with_halo_is_that_of_the_whole_array(source, boundary, mode, block):
    ndimage = pytest.importorskip("scipy.ndimage")
    (store, values), target = source, MemoryStore()
    more = {"cval": 3.5} if boundary == 3.5 else {}
    params = {"sigma": 1.2, "mode": mode} | more
    halo = int(4 * 1.2 + 0.5)
    report = cm.transform(
        ndimage.gaussian_filter, (store, "a"), (target, "b"), halo=halo, boundary=boundary, params=params, block=block
    )
    np.testing.assert_array_equal(read(target), ndimage.gaussian_filter(values, **params))
    assert report.n_keys == 15


@pytest.mark.parametrize("boundary", [np.nan, (np.nan, float("nan"), np.float32(np.nan))], ids=["one", "each its own"])
def test_missing_values_beyond_the_ends(source, boundary):
    store, values = source
    cm.transform(lambda block: block[2:, 1:, 3:], (store, "a"), (store, "b"), halo=((2, 0), (0, 1), (3, 0)),
                 boundary=boundary, block=(5, 6, 12))  # fmt: skip
    moved = np.pad(values, ((2, 0), (0, 1), (3, 0)), constant_values=np.nan)[2:, 1:, 3:]
    np.testing.assert_array_equal(read(store), moved)


@cases(
    ("values", "beyond"),
    [
        (np.array(["a", "bc", "d"]), ["", ""]),
        (np.array(["2020-01-01", "2020-02-01", "2020-03-01"], "M8[D]"), [np.datetime64(0, "D")] * 2),
        (np.array([True, True, False]), [False, False]),
        (np.array([7, 8, 9], "u1"), [0, 0]),
    ],
)
def test_a_constant_boundary_is_the_zero_of_the_dtype(values, beyond):
    got, options = [], {"halo": 1, "boundary": "constant", "dtype": values.dtype}
    cm.transform(lambda block: got.append(block) or block, filled(values), MemoryStore(), **options)
    assert got[0].tolist() == [beyond[0], *values.tolist(), beyond[1]]


@cases("format_", ["zarr3", "zarr2", "zarr3-draft"])
@cases("options", [{}, {"halo": 2}, {"halo": 2, "boundary": "none"}, {"block": ()}])
def test_arrays_of_no_dimensions(format_, options):
    source, target = filled(np.array(3.0)), MemoryStore()
    report = cm.transform(lambda block: float(block) * 2, source, (target, "b"), format=format_, **options)
    assert (read(target).shape, read(target), report.n_keys) == ((), 6.0, 1)


def test_arrays_of_no_elements():
    source, store, called = filled(np.zeros((0, 5), "f4"), chunks=(2, 2)), MemoryStore(), []
    cm.transform(lambda block: called.append(1) or block, source, (store, "b"), halo=1, dtype="f4")
    assert (read(store).shape, called) == ((0, 5), [])


def test_a_function_may_change_its_block_in_place():
    values = np.arange(8.0)
    absent = cm.create_array(MemoryStore(), shape=(8,), dtype="f8", chunks=(4,), fill_value=2.0)
    for source in (filled(values, chunks=(4,), codecs="raw"), values, da.from_array(values, chunks=4), absent):
        cm.transform(lambda block: np.add(block, 1, out=block), source, store := MemoryStore())
        expected = np.full(8, 2.0) if source is absent else np.arange(8.0)
        np.testing.assert_array_equal(read(store, ""), expected + 1)
        np.testing.assert_array_equal(source, expected)


def test_halos_and_boundaries_by_dimension(source):
    store, values = source

    def following(block):
        return block[2:] if block.shape[0] > 2 else block[:0]

    cm.transform(
        following, (store, "a"), (store, "b"), halo={"z": (0, 2)}, boundary={"z": 0}, block=(5, 6, 12),
        dtype="f4",
    )  # fmt: skip
    np.testing.assert_array_equal(read(store), np.concatenate([values[2:], np.zeros((2, 17, 12), "f4")]))


def test_sources_are_broadcast_along_named_dimensions(source):
    store, values = source
    mean = values.mean(0)
    cm.to_store(mean.T.copy(), store, "mean", chunks=(7, 5), dimension_names=("x", "y"))
    cm.transform(np.subtract, [(store, "a"), (store, "mean")], (store, "b"))
    np.testing.assert_array_equal(read(store), values - mean)
    assert cm.open_array(store, "b").dimension_names == ("z", "y", "x")


def test_targets_may_lack_dimensions_and_have_their_own(source):
    store, values = source

    def statistics(block):
        return block.mean(axis=0), np.quantile(block, [0.1, 0.9], axis=0)

    cm.transform(
        statistics,
        (store, "a"),
        [(store, "mean"), (store, "quantiles")],
        dimension_names=[("y", "x"), ("q", "y", "x")],
        shape=[None, (2, 17, 12)],
        dtype=["f4", "f8"],
    )
    np.testing.assert_array_equal(read(store, "mean"), values.mean(0))
    np.testing.assert_array_equal(read(store, "quantiles"), np.quantile(values, [0.1, 0.9], axis=0))


def test_block_info_is_as_in_dask(source):
    store, values = source

    def noting(infos):
        def function(block, block_info=None, block_id=None):
            infos.append((block_id, block_info[0], block_info[None]))
            return block

        return function

    ours, dasks = [], []
    cm.transform(noting(ours), (store, "a"), (store, "b"), dtype="f4", block=(5, 6, 12))
    x = da.from_array(values, chunks=(5, 6, 12))
    da.map_blocks(noting(dasks), x, dtype="f4", meta=values[:0]).compute(scheduler="sync")
    pairs = zip(*(sorted(infos, key=lambda each: each[0]) for infos in (ours, dasks)), strict=True)
    for (of_ours, first, own), (of_dask, theirs, out) in pairs:
        assert of_ours == of_dask
        assert {name: first[name] for name in theirs} == theirs
        assert {name: own[name] for name in out} == out


def test_regions_of_several_sources_are_joined(source):
    store, values = source

    def parts(region):
        first, *others = region
        return [
            (slice(min(first.start, 23), min(first.stop, 23)), *others),
            (slice(max(first.start - 23, 0), max(first.stop - 23, 0)), *others),
        ]

    def joined(a, b):
        return np.concatenate([a, b])

    cm.transform(
        joined, [(store, "a"), (store, "a")], (store, "b"), source_region=parts, shape=(46, 17, 12), dtype="f4"
    )
    np.testing.assert_array_equal(read(store), np.concatenate([values, values]))


@cases(
    ("region", "said"),
    [
        (lambda region: None, r"returned None for \[0:5, 0:6, 0:12\]: expected a slice for each axis"),
        (lambda region: region[:2], "expected a slice for each axis"),
        (lambda region: [region, region], "expected a slice for each axis"),
        (lambda region: (0, *region[1:]), "returned 0 for an axis: expected a slice of integers"),
        (lambda region: (slice(0.5, 3), *region[1:]), r"returned slice\(0.5, 3, None\) for an axis"),
        (lambda region: (slice(3, 0), *region[1:]), r"returned slice\(3, 0, None\) for an axis"),
        (lambda region: (slice(0, 6, 2), *region[1:]), r"returned slice\(0, 6, 2\) for an axis"),
        (lambda region: 1 // 0, r"source_region= failed for \[0:5, 0:6, 0:12\]: ZeroDivisionError"),
        (lambda region: (slice(30, 40), *region[1:]), r"all beyond a source of shape \(23, 17, 12\).*boundary='const"),
        (lambda region: (slice(-5, 0), *region[1:]), "all beyond a source"),
    ],
)
def test_regions_that_are_none_are_refused_when_planned(source, region, said):
    store, _ = source
    with pytest.raises(ValueError, match=said):
        cm.plan_transform(np.negative, (store, "a"), (store, "b"), source_region=region, dtype="f4")
    planned = cm.plan_transform(np.negative, (store, "a"), (store, "b"), source_region=lambda r: r, dtype="f4")
    assert planned.n_keys == 15


def test_regions_beyond_the_ends_are_as_the_boundary_says(source):
    store, values = source

    def shifted(region):
        return (slice(region[0].start - 4, region[0].stop - 4), *region[1:])

    cm.transform(lambda b: b, (store, "a"), (store, "b"), source_region=shifted, boundary="nearest", dtype="f4")
    np.testing.assert_array_equal(read(store), values[np.maximum(np.arange(23) - 4, 0)])


def test_regions_of_arrays_without_names():
    def turned(region):
        return (slice(10 - region[0].stop, 10 - region[0].start),)

    cm.transform(np.flip, filled(np.arange(10), chunks=(4,)), store := MemoryStore(), source_region=turned)
    np.testing.assert_array_equal(read(store, ""), np.arange(10)[::-1])


class Picky(Exception):
    """One that cannot be read back from its pickle."""

    def __reduce__(self):
        return int, ("x",)


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit, Picky])
def test_a_failure_names_block_region_keys_and_line(source, kind):
    store, _ = source

    def fails(block, block_info=None):
        if block_info[0]["chunk-location"] == (1, 2, 0):
            raise kind("no such thing")
        return block

    with pytest.raises(TransformError) as caught:
        cm.transform(fails, (store, "a"), (store, "b"), dtype="f4", block=(5, 6, 12))
    error = caught.value
    assert error.block == (1, 2, 0)
    assert error.region == "[5:10, 12:17, 0:12]"
    assert error.keys == (f"{store.url}/a/c/1/2/0",)
    assert isinstance(error.__cause__, RuntimeError if kind is Picky else kind)
    assert "in fails" in "".join(traceback.format_exception(error.__cause__))
    assert f"{kind.__name__}: no such thing (line" in str(error)
    assert "of fails)" in str(error)
    with pytest.raises(cm.errors.NodeNotFound):
        read(store)


@cases(
    ("function", "message"),
    [
        (lambda block: block[:1], "of shape"),
        (lambda block: (block, block), "2 blocks for 1 targets: give a list of targets, or return one array"),
        (lambda block: block.sum(axis=0), r"expected \(\d, \d, 12\); give dimension_names= where"),
        (lambda block: None, "the function returned None, expected a NumPy array"),
        (lambda block: (row for row in block), "the function returned a generator"),
        (lambda block: "a", "the function returned a str"),
    ],
)
def test_wrong_results_are_refused(source, function, message):
    store, _ = source
    with pytest.raises(TransformError, match=message):
        cm.transform(function, (store, "a"), MemoryStore(), dtype="f4")


def test_chunks_that_appear_after_they_were_read_are_an_error():
    below = MemoryStore()
    cm.create_array(below, "a", shape=(8,), dtype="i4", chunks=(2,))[:2] = 1
    value = below.get("a/c/0")
    store = Meanwhile(below, ("size", "a/c/3"), lambda store: store.set("a/c/3", value), n=0)
    plan = cm.plan_transform(np.negative, (store, "a"), MemoryStore(), block=(8,), dtype="i4")
    store.left = 1
    with pytest.raises(ChunkError, match="absent when it was read, and is present now"):
        plan.run()


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
    uneven = ArrayAxes(
        cm.create_array(MemoryStore(), shape=(24, 10), dtype="u1", chunks=((5, 19), 3)).stored.chunk_grid, (0, 1)
    )
    assert unit_axes(space, [uneven, uneven]) == uneven.grid.axes
    assert unit_axes(space, [uneven, axes((24, 10), (4, 3))])[0] == RegularAxis(24, 24)
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
    assert (small.chunk_shape, large.chunk_shape) == ((96, 16), (128, 128))
    source = axes((9600, 11), (24, 11))  # three units end where a chunk does
    units, halo = [RegularAxis(9600, 8), RegularAxis(11, 11)], ((0, 0),) * 2
    assert grow_blocks(units, [source], halo, budget=24 * 11, **limits).chunk_shape == (24, 11)
    assert read_amplification(ChunkGrid.regular((9600, 11), (7, 11)), [source], halo) == 4.285  # every block counts


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
