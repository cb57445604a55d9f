"""Keep dask working after a fork: a child inherits its parent's locks and thread pools, but not the threads.

Loaded with the package; nothing here is called. Stores and local locks have hooks of their own.
"""

from __future__ import annotations

import os
import threading

import dask.threaded

__all__: list[str] = []


def _forget_pools() -> None:
    """Make dask create new pools: the parent's would accept tasks and never run them, and the child would hang."""
    if getattr(dask.threaded, "default_pool", None) is not None:
        dask.threaded.default_pool = None
    if hasattr(dask.threaded, "pools_lock"):
        dask.threaded.pools_lock = threading.Lock()
    for pools in getattr(dask.threaded, "pools", {}).values():
        pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
