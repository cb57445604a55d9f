"""Forks: a child has the locks and pools that its parent's threads use, but not the threads.

Loaded with the package; nothing here is called. Not here: what stores and local locks do about it themselves.
"""

from __future__ import annotations

import os
import threading

import dask.threaded

__all__: list[str] = []


def _forget_pools() -> None:
    """Let dask make new pools: those of the parent would take tasks and never run them, and the child hang."""
    if getattr(dask.threaded, "default_pool", None) is not None:
        dask.threaded.default_pool = None
    if hasattr(dask.threaded, "pools_lock"):
        dask.threaded.pools_lock = threading.Lock()
    for pools in getattr(dask.threaded, "pools", {}).values():
        pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
