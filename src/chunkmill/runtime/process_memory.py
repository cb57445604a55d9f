"""Peak resident memory of this process.

Not here: memory that a job may use (`chunkmill.conversion.chunk_memory`).
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["peak_memory"]

_found = (0, 0)  # process id, and the peak that its status had last


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes; 0 where the system does not report it."""
    global _found  # noqa: PLW0603 - one for the process
    most = 0
    if resource is not None:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    process, peak = _found
    if 0 < most <= peak and process == os.getpid():
        return peak  # the status, which takes 25 µs to read, has no more than getrusage
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as status:  # noqa: PTH123
        # Linux: getrusage reports the parent's peak for a process that was spawned
        peak = 1024 * int(status.read().partition(b"VmHWM:")[2].split(maxsplit=1)[0])
        _found = os.getpid(), peak
        return peak
    return most
