"""Chunked N-D arrays on Dask: Zarr v2 and v3, N5 and reference sets, each chunk key a task.

>>> import chunkmill as cm, dask.array as da
>>> report = cm.to_store(da.ones((100, 80), chunks=(50, 40)), "memory://doc-first", chunks=(30, 40), mode="w")
>>> float(cm.from_store("memory://doc-first").sum().compute())
8000.0
"""

from importlib import import_module
from inspect import isfunction
from threading import RLock
from typing import TYPE_CHECKING, Any

from chunkmill import errors
from chunkmill.config import when_imported
from chunkmill.xarray import register_accessors

if TYPE_CHECKING:  # for readers of types; at run time each name is imported when it is first used
    from chunkmill.checks.check import check
    from chunkmill.checks.doctor import show_versions
    from chunkmill.checks.verify import verify
    from chunkmill.conversion.convert import convert, plan_convert, plan_rechunk, rechunk
    from chunkmill.conversion.suggest import suggest_chunks
    from chunkmill.dask_arrays.read import from_store
    from chunkmill.dask_arrays.store import store
    from chunkmill.dask_arrays.to_store import to_store
    from chunkmill.errors import ChunkmillError
    from chunkmill.jobs.plan import Plan, Report
    from chunkmill.jobs.resume import resume
    from chunkmill.jobs.stored_jobs import jobs
    from chunkmill.nodes.api import (
        consolidate,
        create_array,
        create_arrays,
        create_group,
        open,  # noqa: A004 - the contract's name, as in zarr
        open_array,
        open_group,
    )
    from chunkmill.nodes.array import Array
    from chunkmill.nodes.delete import delete
    from chunkmill.nodes.group import Group
    from chunkmill.pyramids.pyramid import plan_pyramid, pyramid
    from chunkmill.references.concat import concat_references
    from chunkmill.references.write import to_references
    from chunkmill.scans.scan import plan_scan, scan
    from chunkmill.transforms.transform import plan_transform, transform
    from chunkmill.xarray.write import write_dataset
    from chunkmill.zarr_python.zarr_store import zarr_store

__all__ = [
    "Array",
    "ChunkmillError",
    "Group",
    "Plan",
    "Report",
    "check",
    "concat_references",
    "consolidate",
    "convert",
    "create_array",
    "create_arrays",
    "create_group",
    "delete",
    "errors",
    "from_store",
    "jobs",
    "open",
    "open_array",
    "open_group",
    "plan_convert",
    "plan_pyramid",
    "plan_rechunk",
    "plan_scan",
    "plan_transform",
    "pyramid",
    "rechunk",
    "resume",
    "scan",
    "show_versions",
    "store",
    "suggest_chunks",
    "to_references",
    "to_store",
    "transform",
    "verify",
    "write_dataset",
    "zarr_store",
]

__version__ = "0.1.0"  # the one place where it is written

# Where each public name is defined. They are imported when they are used: what reads an array imports no dask, and
# `chunkmill --help` and shell completion not even numpy.
_DEFINED_IN = {
    "checks.check": ("check",),
    "checks.doctor": ("show_versions",),
    "checks.verify": ("verify",),
    "conversion.convert": ("convert", "plan_convert", "plan_rechunk", "rechunk"),
    "conversion.suggest": ("suggest_chunks",),
    "dask_arrays.read": ("from_store",),
    "dask_arrays.store": ("store",),
    "dask_arrays.to_store": ("to_store",),
    "errors": ("ChunkmillError",),
    "jobs.plan": ("Plan", "Report"),
    "jobs.resume": ("resume",),
    "jobs.stored_jobs": ("jobs",),
    "nodes.api": ("consolidate", "create_array", "create_arrays", "create_group", "open", "open_array", "open_group"),
    "nodes.array": ("Array",),
    "nodes.delete": ("delete",),
    "nodes.group": ("Group",),
    "pyramids.pyramid": ("plan_pyramid", "pyramid"),
    "references.concat": ("concat_references",),
    "references.write": ("to_references",),
    "scans.scan": ("plan_scan", "scan"),
    "transforms.transform": ("plan_transform", "transform"),
    "xarray.write": ("write_dataset",),
    "zarr_python.zarr_store": ("zarr_store",),
}
_MODULES = {name: f"chunkmill.{module}" for module, names in _DEFINED_IN.items() for name in names}


def __dir__() -> list[str]:
    """List the public names alone: modules below are for readers of the source."""
    return [*__all__, "__version__"]


_IMPORTING = RLock()

if not TYPE_CHECKING:  # or type checkers would take any name for one of these

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with _IMPORTING:  # two threads that import modules of a circle at once each find one of them half made
            value = getattr(import_module(_MODULES[name]), name)
            if isfunction(value):  # words of other libraries are taken, or explained
                value = import_module("chunkmill.nodes.api").explained(value)
            globals()[name] = value
        return value


def _register_openers(module: Any) -> None:
    """Open files, netCDF or another, and reference sets in memory, like stores."""
    module.FILE_OPENERS.append(lambda *arguments: import_module("chunkmill.scans.scan").open_files(*arguments))
    sets = "chunkmill.nodes.reference_sets"
    module.KINDS.insert(0, (module.is_set_in_memory, lambda *place: import_module(sets).open_reference_store(*place)))


def _cluster_lock(name: str, contended: bool) -> Any:
    """Return the lock for a store key where a worker of a cluster may run."""
    factory = import_module("chunkmill.runtime.locks").automatic_lock
    import_module("chunkmill.array.threads").use_locks(factory)
    return factory(name, contended)


# the room of that name: once it is imported, nothing sets the attribute again, which is the function's
import_module("chunkmill.jobs")
globals().pop("jobs", None)

# what stands above in the house, registered with the rooms that call it: they name nothing above them
register_accessors()
when_imported("chunkmill.stores.open", _register_openers)
when_imported("distributed.worker", lambda _: import_module("chunkmill.array.threads").use_locks(_cluster_lock))
