"""Check a store: the public function.

Not here: the work (`chunkmill.checks.check_job`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chunkmill.checks.check_job import CheckReport, check_store
from chunkmill.errors import ChunkmillError
from chunkmill.nodes.api import open as open_node
from chunkmill.nodes.arguments import StoreLocation
from chunkmill.nodes.array import Array
from chunkmill.nodes.folders import join_path
from chunkmill.nodes.group import Group
from chunkmill.nodes.open_store import open_plain_store
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import uncached

__all__ = ["check"]


def check(
    url: StoreLocation | Array | Group,
    path: str = "",
    *,
    repair: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> CheckReport:
    """Decode everything at and below a node, in parallel on the current dask scheduler, and report all problems.

    Finds torn, short and corrupt chunks; orphans (keys outside an array's grid, or of no node); partial files of
    writers that died; stale consolidated metadata; jobs that are running or were interrupted. Damage to a chunk
    without a checksum that still decodes cannot be detected.

    Parameters
    ----------
    url : str, path, store, Array or Group
        What to check.
    path : str
        Path below `url`.
    repair : bool
        Remove leftovers, and write stale consolidated metadata again. Chunks, orphans and unfinished jobs are never
        changed.
    storage_options : dict, optional
        Options for the filesystem, as in fsspec.
    progress : bool or str, optional
        Show a bar; ``None``: the setting ``chunkmill.progress`` of dask's config.

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
        path = join_path(url.path, path.strip("/"))
        store = url.store
    else:
        store = _store_of(url, storage_options)
    return check_store(uncached(store), path, repair=repair, progress=progress)


def _store_of(url: StoreLocation, storage_options: Mapping[str, Any] | None) -> Store:
    """Return the store, or that of a reference set; a root that does not open is a problem for the report."""
    try:
        return open_node(url, storage_options=storage_options, consolidated=False).store
    except ChunkmillError:
        return open_plain_store(url, storage_options)
