"""Stores that lie cost one `ChunkmillError`, milliseconds, and next to no memory: see `hostile` for what each of them says."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from integration import hostile

import chunkmill as cm

HERE = Path(__file__).parent
MAX_SECONDS = 5.0  # of the processor; the longest takes 0.9
MAX_CALLS = 20_000  # most take 2,000
MORE_CALLS = {
    "depth: attributes.json": 300_000,  # comments are looked for, once a brace: linear in the document
    "grid: run of 10^12, converted": 100_000,
    "codec: 10,000 compressors, one bad": 1_200_000,
    "grid: run of 10^12, rechunked": 5_000_000,
}
MAX_BYTES = 256 << 20  # of address space, on which an allocation of 1 GiB leaves its mark even if it is never touched


@pytest.mark.parametrize("name", hostile.CASES)
def test_one_error(name):
    with pytest.raises(cm.ChunkmillError) as caught:
        hostile.run(*hostile.CASES[name])
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("name", hostile.FINE)
def test_no_error(name):
    hostile.run(*hostile.FINE[name])


@pytest.fixture(scope="module")
def alone():
    """What all of them did in a process of their own, in which nothing was allocated before."""
    done = subprocess.run(
        [sys.executable, HERE / "hostile.py"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_cost(alone):
    assert set(alone) == {*hostile.CASES, *hostile.FINE}
    assert {name: each["seconds"] for name, each in alone.items() if each["seconds"] > MAX_SECONDS} == {}
    calls = {name: alone[name]["calls"] for name in hostile.CASES}
    assert min(calls.values()) > 100
    assert {name: n for name, n in calls.items() if n > MORE_CALLS.get(name, MAX_CALLS)} == {}
    assert {name: each["bytes"] for name, each in alone.items() if each["bytes"] > MAX_BYTES} == {}


def test_no_warning_leaks(alone):
    assert {name: each["warnings"] for name, each in alone.items() if each["warnings"]} == {}


def test_what_is_fine_reads_as_it_should():
    assert hostile.run(*hostile.FINE["shape 10^18, one element"]) == 0
    assert hostile.run(*hostile.FINE["run of 10^12, one element"]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(hostile.run(*hostile.FINE["delta that overflows"])[:2], [0x7FFF7FFF, -0x00010002])
