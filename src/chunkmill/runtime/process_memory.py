"""Peak resident memory of this process.

Not here: memory that a job may use (`chunkmill.conversion.chunk_memory`).
"""

from __future__ import annotations

import sys
from contextlib import suppress

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["peak_memory"]


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes; 0 where the system does not report it."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as status:  # noqa: PTH123
        # Linux: getrusage reports the parent's peak for a process that was spawned
        return 1024 * int(status.read().partition(b"VmHWM:")[2].split(maxsplit=1)[0])
    if resource is None:
        return 0  # type: ignore[unreachable]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
