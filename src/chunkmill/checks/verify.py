"""Compare two arrays or groups: the public function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chunkmill.checks.verify_job import VerifyReport, compare
from chunkmill.nodes.arguments import open_source

__all__ = ["verify"]


def verify(
    a: Any,
    b: Any,
    *,
    sample: float | None = None,
    seed: int = 0,
    storage_options: Mapping[str, Any] | None = None,
    storage_options_b: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> VerifyReport:
    """Compare two arrays or groups, chunk by chunk, in parallel on the current dask scheduler.

    Values are compared bit for bit (NaN payloads, ``-0.0``), whatever chunks and codecs hold them; so are shapes,
    dtypes, attributes, dimension names and the nodes of groups.

    Parameters
    ----------
    a, b
        A url, ``(url, path)``, an Array or a Group.
    sample, seed
        Share of the blocks to compare, chosen by `seed`: ``0.01`` for one in a hundred. ``None``: all.
    storage_options, storage_options_b
        For the filesystems of `a` and of `b`, as in fsspec; those of `b` are those of `a` where they are not given.
    progress
        As in `Plan.run`.

    Returns
    -------
    VerifyReport
        ``.equal``, and in ``.differences`` where and how they differ. An absent chunk equals one of fill values.

    Raises
    ------
    NodeNotFound, MetadataError, StoreError
        One of both cannot be opened; what cannot be decoded is a difference.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-verify-a", shape=(4,), dtype="i4", chunks=(2,))
    >>> b = cm.create_array("memory://doc-verify-b", shape=(4,), dtype="i4", chunks=(4,), format="n5")
    >>> verify(a, b).equal
    True
    >>> b[3] = 5
    >>> print(verify(a, b).differences[0])
    /: values differ: 1 of 4 elements in [0:4], first at (3,): 0 and 5
    """
    first = open_source(a, storage_options)
    second = open_source(b, storage_options_b if storage_options_b is not None else storage_options)
    return compare(first, second, sample=sample, seed=seed, progress=progress)
