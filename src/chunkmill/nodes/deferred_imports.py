"""Names of rooms above this one that nodes use, each imported when it is first used.

Opening, reading and writing a node imports neither dask nor what draws it. Only `Array.to_dask`, appended dask arrays,
the cluster's locks and drawings need the modules named here. This module is small because it breaks that circle.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from chunkmill.array.local_locks import local_lock

if TYPE_CHECKING:
    from chunkmill.dask_arrays.as_dask import as_dask
    from chunkmill.dask_arrays.expressions import read_array
    from chunkmill.dask_arrays.from_array import read_from_arrays_in_runs
    from chunkmill.dask_arrays.to_store import to_store
    from chunkmill.dask_arrays.write import write_appended
    from chunkmill.display.array import array_html, array_info, array_text
    from chunkmill.display.group import group_html, group_text, tree_text
    from chunkmill.display.report import printable, report_html
    from chunkmill.scans.parse import open_file
    from chunkmill.scans.scan import scanned_files
    from chunkmill.transforms.datasets import transform_dataset

__all__ = [
    "array_html",
    "array_info",
    "array_text",
    "as_dask",
    "automatic_lock",
    "group_html",
    "group_text",
    "open_file",
    "printable",
    "read_array",
    "read_from_arrays_in_runs",
    "report_html",
    "scanned_files",
    "to_store",
    "transform_dataset",
    "tree_text",
    "write_appended",
]

_DEFINED_IN = {
    "array_html": "display.array",
    "array_info": "display.array",
    "array_text": "display.array",
    "as_dask": "dask_arrays.as_dask",
    "group_html": "display.group",
    "group_text": "display.group",
    "open_file": "scans.parse",
    "printable": "display.report",
    "read_array": "dask_arrays.expressions",
    "read_from_arrays_in_runs": "dask_arrays.from_array",
    "report_html": "display.report",
    "scanned_files": "scans.scan",
    "to_store": "dask_arrays.to_store",
    "transform_dataset": "transforms.datasets",
    "tree_text": "display.group",
    "write_appended": "dask_arrays.write",
}

if not TYPE_CHECKING:  # or type checkers would take any name for one of these

    def __getattr__(name: str) -> Any:
        """Import a name when it is first used."""
        if name not in _DEFINED_IN:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"chunkmill.{_DEFINED_IN[name]}"), name)
        return value


def automatic_lock(name: str, contended: bool = False) -> AbstractContextManager[Any]:
    """Return the lock for a store key: this process's, or the cluster's where a worker of one runs here.

    A process that has not imported distributed runs no worker.
    """
    if "distributed.worker" not in sys.modules:
        return local_lock(name)
    lock_factory = import_module("chunkmill.runtime.cluster_locks").automatic_lock
    return lock_factory(name, contended)  # type: ignore[no-any-return]
