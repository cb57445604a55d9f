"""Stores that lie cost milliseconds and next to no memory: measured in a process in which nothing was allocated before."""

import json
import subprocess
import sys

import pytest
from support import hostile

MAX_SECONDS = 5.0  # of the processor; the longest takes 0.9
MAX_CALLS = 20_000  # most take 2,000
MORE_CALLS = {
    "depth: attributes.json": 300_000,  # comments are looked for, once a brace: linear in the document
    "grid: run of 10^12, converted": 100_000,
    "codec: 500 compressors, one bad": 60_000,
    "grid: run of 10^12, rechunked": 5_000_000,
}
MAX_BYTES = 256 << 20  # of address space, on which an allocation of 1 GiB leaves its mark even if it is never touched


@pytest.mark.slow
def test_cost():
    done = subprocess.run([sys.executable, hostile.__file__], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    alone = json.loads(done.stdout)
    assert set(alone) == {*hostile.CASES, *hostile.FINE}
    assert {name: each["seconds"] for name, each in alone.items() if each["seconds"] > MAX_SECONDS} == {}
    calls = {name: alone[name]["calls"] for name in hostile.CASES}
    assert min(calls.values()) > 100
    assert {name: n for name, n in calls.items() if n > MORE_CALLS.get(name, MAX_CALLS)} == {}
    assert {name: each["bytes"] for name, each in alone.items() if each["bytes"] > MAX_BYTES} == {}
    assert {name: each["warnings"] for name, each in alone.items() if each["warnings"]} == {}
