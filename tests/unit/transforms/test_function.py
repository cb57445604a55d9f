"""Fingerprints of functions, and the checks of what they return."""

import functools
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from scipy import ndimage

from chunkmill.transforms.function import checked_result, function_fingerprint, shown_function

FACTOR = 2


def scaled(block):
    return FACTOR * block


def closing(n):
    return lambda block: block + n


def calls(function):
    return lambda block: function(block) + 1


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, block):
        return self.factor * block

    def method(self, block):
        return self.factor + block


def test_what_would_compute_other_values_has_another_fingerprint():
    def one(block, size=3):
        return ndimage.uniform_filter(block, size)

    def two(block, size=4):
        return ndimage.uniform_filter(block, size)

    def three(block, size=3):
        return ndimage.median_filter(block, size)

    functions = [one, two, three, closing(1), closing(2), closing(1.0), calls(one), calls(two), scaled, np.sqrt, np.abs]
    functions += [functools.partial(one, size=n) for n in (1, 2)]
    functions += [Scale(1), Scale(2), Scale(1).method, Scale(2).method, ndimage.gaussian_filter]
    functions += [closing(np.arange(3)), closing(np.arange(4))]
    found = [function_fingerprint(function) for function in functions]
    assert len(set(found)) == len(found)


def test_the_same_function_has_the_same_fingerprint():
    assert function_fingerprint(closing(1)) == function_fingerprint(closing(1))
    assert function_fingerprint(Scale(3)) == function_fingerprint(Scale(3))
    assert function_fingerprint(closing({"b", "a", "c"})) == function_fingerprint(closing({"c", "b", "a"}))


def test_a_global_that_the_code_names_counts(monkeypatch):
    before = function_fingerprint(scaled)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3)
    assert function_fingerprint(scaled) != before


def test_functions_that_call_themselves_end():
    def factorial(n):
        return n * factorial(n - 1) if n else 1

    assert function_fingerprint(factorial)


def test_a_fingerprint_is_the_same_in_another_process_and_place(tmp_path):
    source = textwrap.dedent("""
        {}
        import numpy as np
        from chunkmill.transforms.function import function_fingerprint
        NAMES = {{"b", "a", "long name"}}
        def f(block, k=(1, 2)):
            "Documented."
            return [x for x in NAMES if x in {{"u", "v"}}] or np.sqrt(block) + k[0]
        print(function_fingerprint(f, {{"p": np.arange(4)}}))
    """)
    found = set()
    for i, more in enumerate(["", "# a comment\n\n"]):
        path = tmp_path / f"script{i}.py"
        path.write_text(source.format(more))
        found.add(subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_names_are_shown():
    assert shown_function(closing(1)).endswith("closing.<locals>.<lambda>")
    assert shown_function(Scale(1)) == f"{__name__}.Scale"


def test_results_are_cast_within_their_kind_alone():
    assert checked_result(np.ones(3), (3,), np.dtype("f4")).dtype == np.float32
    assert checked_result(np.ones(3, "u1"), (3,), np.dtype("i8")).dtype == np.int64
    with pytest.raises(TypeError, match=r"float64, which uint8 does not hold: cast it, or give dtype="):
        checked_result(np.ones(3), (3,), np.dtype("u1"))
    with pytest.raises(ValueError, match=r"of shape \(3,\), expected \(5,\); give trim=False"):
        checked_result(np.ones(3), (5,), np.dtype("f8"), without_halo=(3,))
    with pytest.raises(TypeError, match="masked"):
        checked_result(np.ma.masked_array(np.ones(3), [0, 1, 0]), (3,), np.dtype("f8"))
