"""`transform` as users call it: on clusters, from reference sets, started and cancelled."""

import functools
import sys
import threading
import traceback

import numpy as np
import pytest
from support.cases import cases

import chunkmill as cm
from chunkmill.errors import NodeNotFound, TransformError
from chunkmill.stores.memory import MemoryStore
from chunkmill.transforms.blocks import Space
from chunkmill.transforms.transform import halo_by_axis


def noise(shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


def test_a_group_is_no_source(tmp_path):
    cm.create_group(str(tmp_path / "a.zarr"))
    with pytest.raises(NodeNotFound, match="a transform reads arrays"):
        cm.plan_transform(np.exp, str(tmp_path / "a.zarr"), str(tmp_path / "b.zarr"))


def test_a_function_that_fails_for_the_small_block_names_the_way_out():
    a = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4))

    def picky(block):
        if block.max() == 1:
            raise ValueError("all ones")
        return block

    with pytest.raises(TransformError, match="all ones") as caught:
        cm.plan_transform(picky, a, (MemoryStore(), "b"))
    assert "give dtype=" in caught.value.__notes__[0]


def test_what_the_function_returns_for_the_small_block_is_named_without_that_hint():
    a = cm.create_array(MemoryStore(), "a", shape=(8, 8), dtype="f4", chunks=(4, 4))
    with pytest.raises(TransformError, match="2 blocks for 1 targets") as caught:
        cm.plan_transform(lambda block: (block, block), a, (MemoryStore(), "b"))
    assert not hasattr(caught.value, "__notes__")


@cases("function", [
    lambda block, **more: block + len(more), lambda *blocks, block_id: blocks[0] + block_id[0],
    lambda block, block_info=None: block, functools.partial(np.add, 1.0), np.vectorize(abs), np.abs,
])  # fmt: skip
def test_functions_of_every_kind_are_called(function):
    store = MemoryStore()
    cm.to_store(noise((8, 8)), store, "a", chunks=(4, 4))
    assert cm.transform(function, (store, "a"), (store, "b")).n_keys == 4


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first)
        self.lock = threading.Lock()


class Picky(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def raises_odd(block):
    raise Odd("no convergence", 2)


def raises_picky(block):
    raise Picky("no convergence", 2)


def exits(block):
    sys.exit("no convergence")


@pytest.mark.parametrize("function", [raises_odd, raises_picky, exits], ids=lambda each: each.__name__)
def test_what_a_function_raises_arrives_whatever_it_is(function):
    """Of other processes: tests/integration/test_transforms.py."""
    cm.to_store(noise((8, 8)), store := MemoryStore(), "a", chunks=(4, 4))
    with pytest.raises(TransformError, match=rf"no convergence \(line \d+ of {function.__name__}\)") as caught:
        cm.transform(function, (store, "a"), (store, "b"), dtype="f4")
    assert function.__name__ in "".join(traceback.format_exception(caught.value.__cause__ or caught.value))


@cases(
    ("halo", "expected"),
    [
        (2, ((2, 2), (2, 2))),
        ((1, 0), ((1, 1), (0, 0))),
        (((1, 2), 0), ((1, 2), (0, 0))),
        ({"x": 3}, ((0, 0), (3, 3))),
        ({0: (0, 4)}, ((0, 4), (0, 0))),
    ],
)
def test_halos_are_by_axis_or_by_name(halo, expected):
    assert halo_by_axis(halo, Space(("t", "x"), (9, 9))) == expected
