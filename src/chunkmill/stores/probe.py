"""Find out whether a service compares versions, as it says, before two writers rely on it."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from uuid import uuid4

from chunkmill.errors import StoreError
from chunkmill.stores.base import Store

__all__ = ["PROBE_PREFIX", "compares_versions"]

PROBE_PREFIX = ".chunkmill-probe-"
"""Start of the names of keys that are written to find something out, and deleted again."""

_answers: dict[tuple[int, str], bool] = {}
_lock = threading.Lock()


def compares_versions(store: Store, root: str) -> bool:
    """Return whether `set_if` of the store refuses what it should, by a scratch key; asked once a process and root.

    Servers that ignore conditions (older ones of MinIO, Ceph, and proxies) answer 200 to all of them: one of two
    writers would be lost, without a trace. Where the credentials do not allow writing, nothing can be lost.

    Parameters
    ----------
    root
        What the answer holds for: the server and the bucket.
    """
    token = os.getpid(), root
    if token not in _answers:
        with _lock:
            if token not in _answers:
                _answers[token] = _probed(store)
    return _answers[token]


def _probed(store: Store) -> bool:
    key = f"{PROBE_PREFIX}{uuid4().hex}"
    try:
        compares = _refuses(store, key)
    except PermissionError:
        return True
    except StoreError as error:
        if isinstance(error.__cause__, PermissionError) or type(error.__cause__).__name__ in _REFUSED:
            return True
        raise
    if not compares:
        warnings.warn(
            f"{store.url} ignores the conditions of conditional writes: partial writes of chunks, and what jobs and "
            "writers do to one document, are guarded by a lock alone, which other programs do not hold",
            UserWarning,
            stacklevel=2,
        )
    return compares


_REFUSED = {"PermissionDeniedError", "UnauthenticatedError"}


def _refuses(store: Store, key: str) -> bool:
    try:
        if not store.set_if(key, b"1", None) or store.set_if(key, b"2", None):
            return False
        _, version = store.get_versioned(key)
        return store.set_if(key, b"3", version) and not store.set_if(key, b"4", version)
    finally:
        with contextlib.suppress(StoreError):  # credentials that may write, and not delete
            store.delete(key)


def _new_lock() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
