"""How much memory this process has had: what reports say of it.

Not here: what a job may hold (`chunkmill.conversion.chunk_memory`).
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
    """Return the most resident memory that this process has had, in bytes; 0 where the system does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as status:  # noqa: PTH123
        # Linux: getrusage tells of a process that was spawned what its parent had
        return 1024 * int(status.read().partition(b"VmHWM:")[2].split(maxsplit=1)[0])
    if resource is None:
        return 0  # type: ignore[unreachable]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
