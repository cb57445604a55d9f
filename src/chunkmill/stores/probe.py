"""Find out whether a service compares versions, before two writers rely on it; write by lock alone where it does not.

Some servers ignore conditions (older MinIO and Ceph, proxies), some refuse all of them (501), and proxies that weaken
ETags (compression does) satisfy no If-Match: a writer would read and write again for ever.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from collections.abc import Callable
from typing import Protocol
from uuid import uuid4

from chunkmill.errors import StoreError
from chunkmill.stores.base import Store

__all__ = [
    "PROBE_PREFIX",
    "WritesByCondition",
    "compares_versions",
    "create_again",
    "is_forbidden",
    "is_unsupported",
    "set_unguarded",
    "warn_unguarded",
]

PROBE_PREFIX = ".chunkmill-probe-"
"""Start of the names of keys that are written to find something out, and deleted again."""


class WritesByCondition(Store, Protocol):
    """A store that can be asked to write by the service's conditions, whatever the answer of the probe."""

    def set_by_condition(self, key: str, value: bytes, version: str | None) -> bool:
        """Store `value` if the key still has `version`: in one request, of which no failure is repeated."""


_answers: dict[tuple[int, str], bool] = {}
_lock = threading.Lock()


def compares_versions(store: WritesByCondition, root: str) -> bool:
    """Return whether conditional writes do what they should, by a scratch key; asked once a process and root.

    They should be refused where the version differs, and accepted where it is the one that was read. Where the
    credentials do not allow writing, nothing can be lost, and the answer is yes.

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


def _probed(store: WritesByCondition) -> bool:
    key = f"{PROBE_PREFIX}{uuid4().hex}"
    try:
        fault = _fault(store, key)
    except PermissionError:
        return True
    except StoreError as error:
        if is_forbidden(error) or type(error.__cause__).__name__ == "UnauthenticatedError":
            return True
        raise
    if fault is not None:
        _warn(store, fault)
    return fault is None


def warn_unguarded(store: Store, root: str) -> None:
    """Warn, once a process and root, of the first write of documents or parts to a store that compares no versions."""
    token = os.getpid(), root
    if token not in _answers:
        _answers[token] = False
        _warn(store, "compares no versions")


def _warn(store: Store, fault: str) -> None:
    torn = "" if store.replaces_atomically else "; a reader may get half of a value that is being replaced"
    warnings.warn(
        f"{store.url} {fault}: partial writes of chunks, and what jobs and writers do to one document, are guarded "
        f"by a lock alone, which other programs do not hold{torn}",
        UserWarning,
        stacklevel=2,
    )


def is_forbidden(error: StoreError) -> bool:
    """Return whether a service has answered 403: buckets that must not be listed do so for absent keys, too.

    Not where it says that the credentials have expired, or are none that it knows: then nothing is known of the key.
    """
    is_403 = isinstance(error.__cause__, PermissionError) or type(error.__cause__).__name__ == "PermissionDeniedError"
    return is_403 and not any(words in str(error) for words in _NO_CREDENTIALS)


_NO_CREDENTIALS = (
    "ExpiredToken",
    "has expired",
    "RequestExpired",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "InvalidToken",
    "InvalidAccessKeyId",
    "Access Key Id you provided does not exist",
    "SignatureDoesNotMatch",
    "signature we calculated",
)


def _fault(store: WritesByCondition, key: str) -> str | None:
    """Return what is wrong with the conditions of a service; ``None`` where they hold."""
    try:
        try:
            if not store.set_by_condition(key, b"1", None) and store.get_versioned(key)[1] is None:
                return "refuses to create a key that is absent"
        except StoreError as error:
            if not is_unsupported(error):
                raise
            return "does not support the conditions of conditional writes"
        if store.set_by_condition(key, b"2", None):
            return _IGNORED
        _, version = store.get_versioned(key)
        # after a lost response the client asks again, and is refused because of its own write
        if not store.set_by_condition(key, b"3", version) and store.get(key) != b"3":
            return "refuses to replace a value of the version (ETag) that it has just given, as some proxies do"
        return _IGNORED if store.set_by_condition(key, b"4", version) else None
    finally:
        with contextlib.suppress(StoreError):  # credentials that may write, and not delete
            store.delete(key)


_IGNORED = "ignores the conditions of conditional writes"


def is_unsupported(error: BaseException) -> bool:
    """Return whether a service says that it does not know conditional writes (HTTP 501).

    Examples
    --------
    >>> is_unsupported(OSError("501 Not Implemented")), is_unsupported(OSError("503 Slow Down"))
    (True, False)
    """
    return any(words in str(error) for words in ("501 Not Implemented", "NotImplemented", "NotSupportedError"))


def set_unguarded(store: Store, key: str, value: bytes | bytearray | memoryview | None, version: str | None) -> bool:
    """Store (or delete) if the key has `version`, compared before: for services without conditions, under a lock."""
    if store.get_versioned(key)[1] != version:
        return False
    if value is not None:
        store.set(key, value)
    elif version is not None:
        store.delete(key)
    return True


def create_again(store: Store, key: str, create: Callable[[], bool], seconds: float) -> bool:
    """Repeat a conditional write that was refused without a reason: the key is absent, and was to be created.

    A service answers so while another conditional write is under way (409 ConditionalRequestConflict).

    Returns
    -------
    bool
        False where others have created the key.

    Raises
    ------
    StoreError
        The service still refuses after `seconds`.
    """
    begun, pause = time.monotonic(), _FIRST_PAUSE
    while store.get_versioned(key)[1] is None:
        if time.monotonic() - begun > seconds:
            reason = f"the service refused for {seconds:.0f} s to create this key, and there is no such key"
            raise StoreError(url=store.url, key=key, reason=reason)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
        if create():
            return True
    return False


_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds


def _new_lock() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
