"""Specs of the tasks of many arrays: arithmetic, never a list."""

import pickle

import numpy as np
import pytest

from chunkmill.runtime.stage import TaskSpecs


def test_specs_are_counted_array_by_array():
    specs = TaskSpecs.counted([2, 0, 3])
    expected = [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    assert list(specs) == expected
    assert [specs[i] for i in range(len(specs))] == expected
    assert specs[-1] == (2, 2)
    assert list(specs.runs()) == [range(2), range(2, 5)]
    for start in range(6):
        for stop in range(6):
            assert list(specs[start:stop]) == expected[start:stop]
    with pytest.raises(IndexError):
        specs[5]
    with pytest.raises(ValueError, match="step of 1"):
        specs[::2]
    assert list(TaskSpecs.counted([])) == []


def test_specs_are_never_listed():
    specs = TaskSpecs.counted([10**12, 10**12])
    assert len(specs) == 2 * 10**12
    assert specs[10**12] == (1, 0)
    assert next(iter(specs)) == (0, 0)
    some = specs[10**12 - 5 : 10**12 + 10**9]
    assert (len(some), some[5]) == (10**9 + 5, (1, 0))
    assert len(pickle.dumps(some)) < 400


def test_a_slice_pickles_to_what_it_names():
    specs = TaskSpecs(enumerate([range(10), [(7, np.arange(3)), (9, np.arange(10**6))], range(10**6)]))
    some = pickle.loads(pickle.dumps(specs[9:11]))
    assert [spec[:2] for spec in some] == [(0, 9), (1, 7)]
    assert len(pickle.dumps(specs[9:11])) < 1000
