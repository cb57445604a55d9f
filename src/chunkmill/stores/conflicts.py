"""Change a value only while it is what was read: the one compare-and-swap (P3).

Many clients change one document, plan or record. Each reads it with its version and writes what it makes of it while
the version still is that one; after a conflict it reads again. Only this module knows two more things:

- A client of a service repeats a request whose response was lost, and is refused because of its own write. So a value
  that is found as it was to become is taken for written.
- Some endpoints never accept a version that they gave out: proxies that weaken ETags. `update` asks a few times, with
  pauses, and then raises.

Not here: what `Store.set_if` promises (`chunkmill.stores.base`), chunks (`chunkmill.array.chunk_io`).
"""

from __future__ import annotations

import contextlib
import random
import re
import time
import warnings
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from chunkmill.errors import StoreError
from chunkmill.log import LOG
from chunkmill.stores.base import Store, fork_safe_lock

PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Seconds between looks whether another writer gives up or ends; one whose requests take longer is refused as well."""

LOOK_SECONDS = 1.0
"""Seconds between looks whether another client of the same run, which does the same, has ended."""

_MOST_REFUSALS = 10
"""Refusals of one version that the store still gives out, after which no further try would be accepted."""

_MOST_CONFLICTS = 1000
"""Conflicts with other writers. Each of them has written once, so that somebody makes progress."""

_FEW_CONFLICTS = 3
"""Conflicts after which a writer pauses before it tries again: many others are at work on the same key."""


def update(
    store: Store,
    key: str,
    change: Callable[[bytes | None], bytes | None],
    *,
    seen: tuple[bytes | None, str | None] | None = None,
    rewrites: bool = False,
) -> bytes | None:
    """Replace a value by what `change` makes of it, as often as others change it first; return what is stored then.

    Parameters
    ----------
    change
        Called with the value (``None``: absent), and again after a conflict; returns the new value (``None``: delete).
        What it returns unchanged is not written. It may raise.
    seen
        Value and version that were just read, or are expected: the first try needs no request then.
    rewrites
        Whether a value that is stored already is written once more, as a new version.

    Raises
    ------
    StoreError
        The store refuses a version that it gives out, or others change the value again and again.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> update(store, "n", lambda value: b"%d" % (int(value or 0) + 1)), update(store, "n", lambda _: None)
    (b'1', None)
    """
    value, version = store.get_versioned(key) if seen is None else seen
    n_refused = n_conflicts = 0
    while True:
        new = change(value)
        if (new == value and not (rewrites and new is not None)) or store.set_if(key, new, version):
            return new
        found, found_version = store.get_versioned(key)
        if found == new and store.is_remote:
            LOG.info("%s/%s is stored already: by a try whose response was lost", store.url, key)
            return new
        n_conflicts, n_refused = n_conflicts + 1, n_refused + 1 if found_version == version else 0
        if n_refused >= _MOST_REFUSALS or n_conflicts >= _MOST_CONFLICTS:
            raise _refused(store, key, n_refused, n_conflicts)
        if n_refused:
            pause(PAUSES[min(n_refused, len(PAUSES)) - 1])
        elif n_conflicts > _FEW_CONFLICTS:
            pause(random.random() * PAUSES[0])  # noqa: S311 - so that two writers do not meet again
        value, version = found, found_version


def _refused(store: Store, key: str, n_refused: int, n_conflicts: int) -> StoreError:
    reason = f"others changed it {n_conflicts} times while it was to be changed"
    if n_refused:
        reason = f"the store refused {n_refused} times to replace the version that it gave out; "
        reason += "an endpoint or a proxy that changes ETags does so, and cannot be written to safely"
    return StoreError(url=store.url, key=key, reason=reason)


def swap(store: Store, key: str, value: bytes | None, version: str | None) -> bool:
    """Store a value (``None``: delete) while the key has a version, with one try; return whether it is stored then.

    Examples
    --------
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> swap(store, "a", b"1", None), swap(store, "a", b"2", None)
    (True, False)
    """
    if store.set_if(key, value, version):
        return True
    is_own = store.is_remote and store.get(key) == value
    if is_own:
        LOG.info("%s/%s is stored already: by a try whose response was lost", store.url, key)
    return is_own


def create(store: Store, key: str, value: bytes) -> bool:
    """Store a value where there is none; return whether it is stored then and, as far as can be known, by this call."""
    return swap(store, key, value, None)


def pause(seconds: float) -> None:
    """Wait before the next look or try."""
    time.sleep(seconds)


# --- Find out whether a service compares versions, before two writers rely on it; write by lock alone where it does not

PROBE_PREFIX = ".chunkmill-probe-"
"""Start of the names of keys that are written to find something out, and deleted again."""


_answers: dict[str, bool] = {}
_lock = fork_safe_lock()


def compares_versions(store: Any, root: str) -> bool:
    """Return whether conditional writes do what they should, by a scratch key; asked once a process and root.

    They should be refused where the version differs, and accepted where it is the one that was read. Where the
    credentials do not allow writing, nothing can be lost, and the answer is yes.

    Parameters
    ----------
    store
        With `set_by_condition`, which writes in one request, of which no failure is repeated.
    root
        What the answer holds for: the server and the bucket.
    """
    if root not in _answers:
        with _lock:
            if root not in _answers:
                _answers[root] = _probed(store)
    return _answers[root]


def _probed(store: Any) -> bool:
    key = f"{PROBE_PREFIX}{uuid4().hex}"
    try:
        fault = _fault(store, key)
    except StoreError as error:
        if is_forbidden(error) or type(error.__cause__).__name__ == "UnauthenticatedError":
            return True
        raise
    if fault is not None:
        _warn(store, fault)
    return fault is None


def warn_unguarded(store: Store, root: str) -> None:
    """Warn, once a process and root, of the first write of documents or parts to a store that compares no versions."""
    if root not in _answers:
        _answers[root] = False
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
    return is_403 and _NO_CREDENTIALS.search(str(error)) is None


_NO_CREDENTIALS = re.compile(
    "ExpiredToken|has expired|RequestExpired|TokenRefreshRequired|RequestTimeTooSkewed|InvalidToken|InvalidAccessKeyId|"
    "Access Key Id you provided does not exist|SignatureDoesNotMatch|signature we calculated"
)


def _fault(store: Any, key: str) -> str | None:
    """Return what is wrong with the conditions of a service; ``None`` where they hold."""
    try:
        try:
            store.set_by_condition(key, b"1", None)
        except StoreError as error:
            if not is_unsupported(error):
                raise
            return "does not support the conditions of conditional writes"
        if store.set_by_condition(key, b"2", None):
            return _IGNORED
        _, version = store.get_versioned(key)
        # after a lost response the client asks again, and is refused because of its own write
        if not store.set_by_condition(key, b"3", version) and store.get(key) != b"3":
            return "refuses writes whose condition holds, as proxies that change versions (ETags) do"
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
