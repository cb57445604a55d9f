"""Change a value only while it is what was read: the one compare-and-swap.

Many clients change one document, plan or record. Each reads it with its version and writes what it makes of it while
the version still is that one; after a conflict it reads again. Only this module knows two more things:

- A client of a service repeats a request whose response was lost, and is refused because of its own write. So a value
  that is found as it was to become is taken for written.
- Some endpoints never accept a version that they gave out: proxies that weaken ETags. `update` asks a few times, with
  pauses, and then raises.

Not here: what `Store.set_if` promises (`chunkmill.stores.base`), chunks (`chunkmill.array.chunk_io`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from chunkmill.errors import StoreError
from chunkmill.log import LOG
from chunkmill.stores.base import Store

__all__ = ["LOOK_SECONDS", "PAUSES", "create", "pause", "swap", "update"]

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
            pause(random.uniform(0, PAUSES[0]))  # noqa: S311 - so that two writers do not meet again
        value, version = found, found_version


def _refused(store: Store, key: str, n_refused: int, n_conflicts: int) -> StoreError:
    if n_refused:
        reason = f"the store refused {n_refused} times to replace the version that it gave out"
        hint = "; an endpoint or a proxy that changes ETags does so, and cannot be written to safely"
        return StoreError(url=store.url, key=key, reason=reason + hint)
    reason = f"others changed it {n_conflicts} times while it was to be changed"
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
