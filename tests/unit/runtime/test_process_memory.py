"""Peak memory of this process."""

import subprocess
import sys

import numpy as np
import pytest

from chunkmill.runtime.process_memory import peak_memory


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system may not tell")
def test_it_grows_with_what_is_held():
    before = peak_memory()
    held = np.ones(64 << 20, np.uint8)
    assert peak_memory() > (1 << 20)
    assert peak_memory() >= before
    del held


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system may not tell")
def test_it_is_this_process_alone():
    """Not the parent's, which a process that is spawned is told by getrusage."""
    held = np.ones(256 << 20, np.uint8)
    script = "from chunkmill.runtime.process_memory import peak_memory as p; print(p())"
    child = int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout)
    assert child > 1 << 20
    before = peak_memory()
    assert before > held.nbytes
    assert child < before
