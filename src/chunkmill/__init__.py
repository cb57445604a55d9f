"""Chunked N-D arrays on Dask: Zarr v2 and v3, N5 and reference sets, each chunk key a task.

>>> import chunkmill as cm, dask.array as da
>>> report = cm.to_store(da.ones((100, 80), chunks=(50, 40)), "memory://doc-first", chunks=(30, 40), mode="w")
>>> float(cm.from_store("memory://doc-first").sum().compute())
8000.0
"""

from importlib.metadata import version as _version

from chunkmill import config, errors  # noqa: F401 - config puts the defaults of the settings into dask's
from chunkmill.checks.check import check
from chunkmill.checks.check_job import CheckReport
from chunkmill.checks.inventory import Problem
from chunkmill.checks.verify import verify
from chunkmill.checks.verify_job import Difference, VerifyReport
from chunkmill.conversion.convert import convert, plan_convert
from chunkmill.conversion.plan import JobCounts, Plan, PlannedStage, Report
from chunkmill.conversion.rechunk import plan_rechunk, rechunk
from chunkmill.dask_arrays.write import WriteReport
from chunkmill.errors import ChunkmillError
from chunkmill.nodes.api import (
    consolidate,
    from_store,
    open,  # noqa: A004 - the contract's name, as in zarr
    open_array,
    open_group,
)
from chunkmill.nodes.array import Array
from chunkmill.nodes.create import create_array, create_group
from chunkmill.nodes.group import Group
from chunkmill.nodes.writing import store, to_store
from chunkmill.references.concat import concat_references
from chunkmill.references.write import ReferencesReport, to_references
from chunkmill.xarray.write import DatasetReport, write_dataset

__all__ = [
    "Array",
    "CheckReport",
    "ChunkmillError",
    "DatasetReport",
    "Difference",
    "Group",
    "JobCounts",
    "Plan",
    "PlannedStage",
    "Problem",
    "ReferencesReport",
    "Report",
    "VerifyReport",
    "WriteReport",
    "check",
    "concat_references",
    "consolidate",
    "convert",
    "create_array",
    "create_group",
    "errors",
    "from_store",
    "open",
    "open_array",
    "open_group",
    "plan_convert",
    "plan_rechunk",
    "rechunk",
    "store",
    "to_references",
    "to_store",
    "verify",
    "write_dataset",
]

__version__ = _version("chunkmill")


def __dir__() -> list[str]:
    """List the public names alone: modules below are for those who read the source."""
    return [*__all__, "__version__"]
