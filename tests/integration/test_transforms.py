"""Transforms in other processes: what a function raises comes back, and a function of a script is sent.

They need a cluster, or a process that unpickles what another has sent.
"""

import sys
import threading
import traceback

import numpy as np
import pytest

import chunkmill as cm
from chunkmill.errors import TransformError

pytestmark = pytest.mark.slow

VALUES = np.random.default_rng(0).normal(size=(40, 30)).astype("f4")


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first)
        self.lock = threading.Lock()


def raises_odd(block):
    raise Odd("no convergence", 2)


def exits(block):
    sys.exit("no convergence")


@pytest.mark.usefixtures("other_process")
@pytest.mark.parametrize("function", [raises_odd, exits], ids=lambda each: each.__name__)
def test_what_a_function_raises_in_another_process_arrives_whatever_it_is(function, tmp_path):
    cm.to_store(VALUES, tmp_path / "a", chunks=(20, 30))
    with pytest.raises(TransformError, match=rf"no convergence \(line \d+ of {function.__name__}\)") as caught:
        cm.transform(function, tmp_path / "a", tmp_path / "b", dtype="f4")
    assert function.__name__ in "".join(traceback.format_exception(caught.value.__cause__ or caught.value))


@pytest.mark.usefixtures("client")
def test_workers_of_a_cluster_run_a_function_of_a_script(tmp_path):
    cm.to_store(VALUES, tmp_path / "a.zarr", "v", chunks=(8, 30))
    weight = 3.0

    def scaled(block, offset):
        if offset < 0:
            raise ValueError("on a worker")
        return weight * block + offset

    source, options = (tmp_path / "a.zarr", "v"), {"block": (8, 30), "dtype": "f4"}
    assert cm.transform(scaled, source, tmp_path / "b.n5", format="n5", params={"offset": 2}, **options).n_tasks == 5
    np.testing.assert_array_equal(cm.open_array(tmp_path / "b.n5")[...], 3 * VALUES + 2)
    with pytest.raises(TransformError, match="on a worker") as caught:
        cm.transform(scaled, source, tmp_path / "c.zarr", params={"offset": -1}, **options)
    assert caught.value.keys
