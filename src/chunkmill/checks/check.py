"""The public function that checks a store: arguments in, one call down.

Not here: what is looked at (`chunkmill.checks.check_job`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from chunkmill.checks.check_job import CheckReport, check_store
from chunkmill.errors import ChunkmillError
from chunkmill.nodes.api import open as open_node
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group
from chunkmill.nodes.open_store import open_plain_store
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import uncached

__all__ = ["check"]


def check(
    url: str | os.PathLike[str] | Store | Array | Group,
    path: str = "",
    *,
    repair: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> CheckReport:
    """Open everything at and below a node, in parallel on the current dask scheduler, and report what is wrong.

    Torn, short and corrupt chunks; orphans: keys outside an array's grid, or of no node; values that killed writers
    left; consolidated metadata that are stale; jobs that were cut off. What carries no checksum and decodes cannot be
    known to be damaged.

    Parameters
    ----------
    url, path
        A url, a store, an Array or a Group, and where to begin below it.
    repair
        Put right what follows from what is there: remove leftovers, write stale consolidated metadata anew. Chunks,
        orphans and unfinished jobs are never touched.
    storage_options
        For the filesystem, as in fsspec.
    progress
        Show a bar; ``None``: as ``chunkmill.progress`` in dask's config says.

    Returns
    -------
    CheckReport
        ``.ok``, and ``.problems``: kind, key, coords and reason of each.

    Raises
    ------
    NodeNotFound
        There is nothing to check.

    Examples
    --------
    >>> import chunkmill as cm
    >>> from chunkmill.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> a = cm.create_array(store, "a", shape=(4,), dtype="i4", chunks=(2,))
    >>> a[...] = 7
    >>> check(store).ok
    True
    >>> store.set("a/c/1", b"torn")
    >>> [(problem.kind, problem.key, problem.coords) for problem in check(store).problems]
    [('corrupt', 'a/c/1', (1,))]
    """
    if isinstance(url, (Array, Group)):
        path = "/".join(part for part in (url.path, path.strip("/")) if part)
        store = url.store
    else:
        store = _store_of(url, storage_options)
    return check_store(uncached(store), path, repair=repair, progress=progress)


def _store_of(url: str | os.PathLike[str] | Store, storage_options: Mapping[str, Any] | None) -> Store:
    """Return the store, or the one behind a reference set; that its root does not open is for the check to find."""
    try:
        return open_node(url, storage_options=storage_options, consolidated=False).store
    except ChunkmillError:
        return open_plain_store(url, storage_options)
