"""Peak memory of this process."""

import io
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from chunkmill.runtime import worker_memory as process_memory
from chunkmill.runtime.worker_memory import peak_memory


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system may not tell")
def test_it_is_this_process_alone():
    """Not the parent's, which a process that is spawned is told by getrusage."""
    held = np.ones(256 << 20, np.uint8)
    script = "from chunkmill.runtime.worker_memory import peak_memory as p; print(p())"
    child = int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout)
    assert child > 1 << 20
    before = peak_memory()
    assert before > held.nbytes
    assert child < before


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system may not tell")
@pytest.mark.parametrize(("told", "n_reads"), [(0, 1), (1 << 20, 3)], ids=["no more", "more, such as the parent's"])
def test_the_status_is_read_where_getrusage_tells_of_more(monkeypatch, told, n_reads):
    """Tasks ask for the peak: reading it each time was a third of an empty task of a stage."""
    peak = peak_memory() >> 10
    usage = SimpleNamespace(ru_maxrss=peak + told)
    monkeypatch.setattr(process_memory, "resource", SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda _: usage))
    monkeypatch.setattr(process_memory, "_found", (0, 1 << 60))  # of another process, which was forked
    reads = []
    status = b"VmHWM: %d kB" % peak
    monkeypatch.setattr(process_memory, "open", lambda *_: reads.append(1) or io.BytesIO(status), raising=False)
    assert {peak_memory() for _ in range(3)} == {peak << 10}
    assert len(reads) == n_reads
