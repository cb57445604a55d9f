"""Compare two arrays or groups: the public function.

Not here: the comparison (`chunkmill.checks.verify_job`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chunkmill.checks.verify_job import VerifyReport, compare
from chunkmill.nodes.arguments import NodeLocation, open_source
from chunkmill.nodes.array import Array
from chunkmill.nodes.hierarchy import walk
from chunkmill.nodes.region_option import RegionOption, cropping

__all__ = ["verify"]


def verify(
    a: NodeLocation,
    b: NodeLocation,
    *,
    region: RegionOption = None,
    sample: float | None = None,
    seed: int = 0,
    storage_options: Mapping[str, Any] | None = None,
    storage_options_b: Mapping[str, Any] | None = None,
    progress: bool | str | None = None,
) -> VerifyReport:
    """Compare two arrays or groups, chunk by chunk, in parallel on the current dask scheduler.

    Values are compared bit for bit (NaN payloads, ``-0.0``), whatever the chunks and codecs; so are shapes, dtypes,
    attributes, dimension names and the nodes of groups, those below folders without a group document included.
    Consolidated metadata are not trusted, unless a group was opened with ``consolidated=True``.

    Parameters
    ----------
    a, b : str, path, store, tuple, Array or Group
        A url, ``(url, path)``, an Array or a Group.
    region : optional
        Compare `b` with this region of `a`, as in `plan_convert`.
    sample : float, optional
        Share of the blocks to compare: ``0.01`` for one in a hundred. ``None``: all.
    seed : int
        Seed of the random choice of the sample.
    storage_options, storage_options_b : dict, optional
        Options for the filesystems of `a` and of `b`, as in fsspec; `b` uses those of `a` by default.
    progress : bool or str, optional
        Show a bar, as in `Plan.run`.

    Returns
    -------
    VerifyReport
        ``.equal``, and in ``.differences`` where and how they differ. An absent chunk equals one of fill values. Two
        groups without any array are not equal: no value was compared, and an empty copy must not pass for a whole one.

    Raises
    ------
    NodeNotFound, MetadataError, StoreError
        `a` or `b` cannot be opened; a chunk that cannot be decoded is a difference.

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
    arrays = [] if region is None else [each for each in walk(first) if isinstance(each, Array)]
    crop = cropping(region, first, arrays)
    return compare(first, second, crop=crop, sample=sample, seed=seed, progress=progress)
