"""Write a labelled dataset, or a tree of them, to a store of any format: `write_dataset` and its report.

The write is planned first (`chunkmill.xarray.write_plan`); then the data are written, those of dask in one computation;
the documents that make new arrays and appended elements visible are published last (`chunkmill.xarray.publication`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, Literal

from dask.array import core as da
from dask.delayed import Delayed
from xarray import DataArray, Dataset, DataTree

from chunkmill.array.staleness import check_after_writing, written_to
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import LockFactory
from chunkmill.dask_arrays.hazards import check_not_read
from chunkmill.dask_arrays.store import open_existing
from chunkmill.dask_arrays.write import WriteReport, report, run, write_graph
from chunkmill.dask_arrays.write_task import write_keys
from chunkmill.display.report import ReportMixin, format_bytes
from chunkmill.formats.base import WritableFormatName
from chunkmill.journal.lease import check_no_job, leased
from chunkmill.model.user_values import as_dtype
from chunkmill.nodes.documents import declare_arrays, format_of_store, refresh_consolidated
from chunkmill.nodes.new_array import format_above
from chunkmill.nodes.opening import open_target_store
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.runtime.cluster_tasks import sync_other_machines
from chunkmill.runtime.locks import check_guarded, lock_factory
from chunkmill.runtime.preflight import check_writers
from chunkmill.runtime.scheduler import Scheduler
from chunkmill.stores.base import Store
from chunkmill.stores.places import place_of
from chunkmill.xarray.publication import Publication
from chunkmill.xarray.write_plan import DatasetPlan, VariablePlan, labelled_groups, plan_write

Mode = Literal["w-", "w", "a", "a-", "r+"]


@dataclass(frozen=True, slots=True, repr=False)
class DatasetReport(ReportMixin):
    """Result of `write_dataset`.

    Attributes
    ----------
    variables
        A `WriteReport` for each variable written, by its path in the store.
    unchanged
        Paths of variables that equal what is stored, so that they were not written.
    """

    variables: Mapping[str, WriteReport] = field(default_factory=dict)
    unchanged: tuple[str, ...] = ()

    def _sum(self, name: str) -> int:
        return sum(getattr(each, name) for each in self.variables.values())

    @property
    def n_keys(self) -> int:
        """Store keys written, or deleted because their chunks hold the fill value only."""
        return self._sum("n_keys")

    @property
    def n_partial(self) -> int:
        """Of these, store keys covered partly: read, changed and written back under a lock."""
        return self._sum("n_partial")

    @property
    def bytes_written(self) -> int:
        """Encoded bytes stored."""
        return self._sum("bytes_written")

    def _title(self) -> str:
        return "write_dataset: done"

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("store keys", f"{self.n_keys:,}, {self.n_partial:,} of them changed in part (read and written back)"),
            ("written", format_bytes(self.bytes_written)),
            ("unchanged", ", ".join(self.unchanged) or "none"),
        ]

    def _tables(self) -> list[list[tuple[str, ...]]]:
        rows = [
            (path, f"{one.n_keys:,}", f"{one.n_partial:,}", format_bytes(one.bytes_written))
            for path, one in self.variables.items()
        ]
        return [[("variable", "store keys", "changed in part", "written"), *rows]]


def write_dataset(
    ds: Dataset | DataTree | DataArray,
    url: Any,
    path: str = "",
    *,
    format: WritableFormatName | None = None,  # noqa: A002
    mode: Mode = "w-",
    region: Mapping[Hashable, Any] | Literal["auto"] | None = None,
    append_dim: Hashable | None = None,
    encoding: Mapping[str, Any] | None = None,
    consolidated: bool | None = None,
    lock: Any = "auto",
    compute: bool = True,
    write_empty_chunks: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> DatasetReport | Delayed:
    """Write a dataset, or a tree of them, to the group at `path` of the store at `url`.

    Like ``Dataset.to_zarr``, for every format, and readable with ``engine="zarr"``. Times, packed numbers and missing
    values are encoded by xarray's CF coders.

    Parameters
    ----------
    ds
        In memory or on dask; a tree becomes a group of groups, an array a group that ``xarray.open_dataarray`` opens.
    url, path, storage_options
        As in `chunkmill.open`.
    format
        Of a new group: ``None`` takes that of the group above it, and Zarr v3 for a new store. An existing group keeps
        its own.
    mode
        ``"w-"``: create a group, or fail if there is a node. ``"w"``: replace the node, which stays until the new group
        is complete (object stores then copy each value to its place): with ``compute=False`` that is before its values.
        ``"a"``: write into the existing group, or create it: existing variables are overwritten in place, others added.
        ``"r+"``: overwrite existing variables only. `append_dim` implies ``"a"``, `region` implies ``"r+"``. ``"a-"``,
        with `append_dim`: as ``"a"``, but stored variables without that dimension are left unchanged, and only index
        coordinates among them are compared.
    region
        Slices by dimension, of existing arrays; ``"auto"`` (for one dimension, or all) finds the slices by coordinates.
        The region need not be aligned to chunks: store keys covered partly are read, changed and written back under
        `lock` and a version check. Coordinates and variables outside the region are compared with those stored.
    append_dim
        Dimension along which to append. Values are encoded as the stored ones are (units, dtype, packing, fill value).
        An error is raised, before anything is written, for labels that are stored already, for values that the stored
        encoding cannot represent exactly and for variables without `append_dim`, also in groups of a tree that lack
        it, that differ from the store. The longer arrays become visible when all data are written. After an
        interruption they are as long as before (to other libraries some may be longer while their documents are changed
        one by one), and the same call completes the append. One append at a time: another one is refused before it
        writes anything (with ``compute=False``, when it is about to publish).
    encoding
        By variable (for a tree: by group path, then variable): the keys of CF encoding, and ``chunks``, ``shards``,
        ``codecs`` or ``compressors``, ``filters`` and ``serializer``, ``fill_value``, ``chunk_key_encoding``,
        ``write_empty_chunks``. Chunks and shards may be given by dimension, ``{"time": 12}``. A key that is unknown or
        does not apply is an error.
        The variable's own encoding holds for the rest: packing and dtype stay where no key of CF encoding is given,
        codecs where none are, chunks and shards where neither is.
    consolidated
        ``None``: consolidated metadata (Zarr v2 and v3) are written for new stores and updated where they exist;
        ``True``: written in any case; ``False``: only updated.
    lock, write_empty_chunks
        As in `chunkmill.to_store`.
    compute
        ``False``: write metadata and variables in memory now, and return a `dask.delayed.Delayed` that writes those of
        dask, so that other writers can write regions of the new arrays. Appended elements become visible when it has
        been computed.

    Returns
    -------
    DatasetReport
        Store keys, bytes and partial writes of each variable.

    Raises
    ------
    NodeExists
        There is a node already, and the mode is ``"w-"``.
    NodeNotFound
        There is no group, and `mode`, `region` or `append_dim` needs one.
    DatasetError
        The dataset does not match what is stored; or values would read as others: out of the range of an encoding,
        fractions among integers, missing without a marker or among texts, in other units than those stored, or not
        decoded from another packing.
    UnsupportedFeature
        The format cannot hold some of the variables: all of them are named.
    JobError
        ``mode="w"`` would delete stored arrays that `ds` is read from; or another writer is at work: on a new group or
        array at the same path, or appending to the same group.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> ds = xr.Dataset({"t": ("x", np.arange(6.0))}, coords={"x": np.arange(6)})
    >>> write_dataset(ds, "memory://doc-write-dataset", format="zarr2").n_keys
    2
    >>> later = ds.assign_coords(x=ds.x + 6)
    >>> write_dataset(later, "memory://doc-write-dataset", append_dim="x").n_keys
    2
    >>> xr.open_dataset("memory://doc-write-dataset", engine="chunkmill").t.size
    12
    """
    ds = _as_dataset(ds)
    keeps = mode == "a-"
    mode = _mode(mode, region, append_dim)
    url, path, format, adapter = place_of(url, path, format)  # noqa: A001
    store = open_target_store(url, storage_options)
    with ExitStack() as held:
        held.enter_context(store.transaction(f"write a dataset to {path!r}"))
        groups = labelled_groups(ds, path.strip("/"), encoding, store.url)
        must_exist = region is not None or append_dim is not None
        root = open_existing(store, groups[0].path, "r+" if must_exist else mode, StoredGroup, adapter)
        path = groups[0].path
        plan = DatasetPlan(
            store,
            path,
            root.documents if root is not None else format_of_store(store, format or format_above(store, path)),
            region=region,
            append_dim=append_dim,
            adds=root is None or mode == "a",
            keeps=keeps,
            write_empty=write_empty_chunks,
        )
        plan_write(plan, groups, root)
        _check_others(plan, root, mode)
        check_writers([planned.array for planned in plan.variables if compute and _is_lazy(planned)])
        publication = Publication(store, plan.documents_format, plan.path, consolidated)
        factory = lock_factory(lock)
        new = plan.target(overwrite=mode == "w", exists=root is not None)
        if new is not None:
            job = f"write a dataset to {path!r}" if root is None else f"add {new.path!r} to a dataset"
            new = held.enter_context(new.held(f"{job} in {store.url}"))
        if new is not None and new.is_staged:  # what is computed later is written after publishing
            plan.variables = [
                replace(each, array=array) if compute or not _is_lazy(each) else each
                for each, array in zip(plan.variables, new.arrays, strict=True)
            ]
        lazy = [planned for planned in plan.variables if _is_lazy(planned)]
        arrays = [planned.array for planned in lazy]
        if plan.growth:
            own = held.enter_context(leased(store, path, f"append to {path!r} in {store.url}", scope="append"))
            # a client that replaces such an array may have died since the plan was made
            check_no_job(store, path, *(each.path for each in plan.growth), own_run=own.run, waits=True)
            publication.check_unchanged(plan.growth, plan.pending)
        publish = partial(publication.publish, new, plan.attributes)
        if not compute:  # they are published when they are written to: compared, as those that exist are
            lazy = [replace(each, stored=each.stored or each.array) for each in lazy]
        reports = _write_in_memory(plan.variables, factory)
        written = [_write_lazily(planned, factory, compute=compute) for planned in lazy]
        if not compute:
            publish()
        stored = {each.array.path: each.stored for each in (*plan.variables, *lazy) if each.stored is not None}
        grown = {growth.path for growth in plan.growth}  # compared when they are published
        finish = partial(
            _finish,
            publish=[
                partial(check_after_writing, [each for path, each in stored.items() if path not in grown]),
                *([publish] if compute else []),
                *([partial(_sync, store, compute=compute)] if plan.growth else []),
                partial(publication.append, str(append_dim), plan.growth, plan.pending),
            ],
            reports=reports,
            arrays={planned.array.path: planned.array for planned in lazy},
            n_regrouped=[n for _, n in written],
            unchanged=tuple(plan.unchanged),
        )
        return run(
            [counts for counts, _ in written],
            finish,
            compute=compute,
            arrays=arrays,
            regions=[planned.region for planned in lazy],
        )


class Accessor:
    """`Dataset.chunkmill` and `DataTree.chunkmill`: write and append as methods of the data."""

    def __init__(self, data: Dataset | DataTree) -> None:
        self._data = data

    @wraps(write_dataset, assigned=())
    def write(self, url: Any, path: str = "", **options: Any) -> DatasetReport | Delayed:
        """Write the data to the group at `path` of the store at `url`, with the options of `chunkmill.write_dataset`.

        Examples
        --------
        >>> import chunkmill, numpy as np, xarray as xr
        >>> ds = xr.Dataset({"t": ("x", np.arange(6.0))}, coords={"x": np.arange(6)})
        >>> ds.chunkmill.write("memory://doc-accessor").n_keys
        2
        """
        return write_dataset(self._data, url, path, **options)

    def append(self, url: Any, dim: Hashable, path: str = "", **options: Any) -> DatasetReport | Delayed:
        """Append the data along `dim` to the group at `path` of the store at `url`, as `chunkmill.write_dataset`.

        Examples
        --------
        >>> import chunkmill, numpy as np, xarray as xr
        >>> ds = xr.Dataset({"t": ("x", np.arange(6.0))}, coords={"x": np.arange(6)})
        >>> _ = ds.chunkmill.write("memory://doc-accessor-append")
        >>> ds.assign_coords(x=ds.x + 6).chunkmill.append("memory://doc-accessor-append", "x").n_keys
        2
        """
        return write_dataset(self._data, url, path, append_dim=dim, **options)


def _check_others(plan: DatasetPlan, root: StoredGroup | None, mode: Mode) -> None:
    """Raise `JobError` where jobs write to what is planned, or its data are read from what would be deleted."""
    store = plan.store
    if mode == "w":
        check_not_read([planned.data for planned in plan.variables], store, plan.path)
    if root is not None:
        paths = [planned.array.path for planned in plan.variables]
        dead = check_no_job(store, plan.path, *paths, *(path.rpartition("/")[0] for path in paths))
        if dead or (plan.adds and plan.append_dim is None):  # a client that published some may have died before it did
            known = (each.path for each in (planned.stored for planned in plan.variables) if each is not None)
            refresh_consolidated(store, plan.documents_format, known)


def _sync(store: Store, *, compute: bool) -> None:
    """Sync the chunks that are appended: the documents that make them visible replace others, and are synced (P11)."""
    client = Scheduler().client if compute else None  # a task of its own cannot ask
    sync_other_machines([store], client, f"append to {store.url}")
    store.sync()


def _finish(
    *counts: Any,
    publish: Sequence[Callable[[], None]],
    reports: dict[str, WriteReport],
    arrays: Mapping[str, StoredArray],
    n_regrouped: Sequence[int],
    unchanged: tuple[str, ...],
) -> DatasetReport:
    """Publish the documents, and return the report: the last task of a write."""
    for step in publish:
        step()
    lazy = {path: report(arrays[path], c, n) for path, c, n in zip(arrays, counts, n_regrouped, strict=True)}
    return DatasetReport({**reports, **lazy}, unchanged)


# --------------------------------------------------------------------------------------------------------------------
# Preparation


def _as_dataset(data: Dataset | DataTree | DataArray) -> Dataset | DataTree:
    """Return a dataset for an array, as ``DataArray.to_zarr`` makes it: without a usable name it has xarray's own."""
    if not isinstance(data, DataArray):
        return data
    if data.name is not None and data.name not in data.coords and data.name not in data.dims:
        return data.to_dataset()
    dataset = data.to_dataset(name="__xarray_dataarray_variable__")
    return dataset if data.name is None else dataset.assign_attrs(__xarray_dataarray_name__=data.name)


def _mode(mode: Mode, region: Any, append_dim: Hashable | None) -> Mode:
    """Return the mode that the arguments imply; `ValueError` for a contradiction."""
    if mode not in {"w-", "w", "a", "a-", "r+"}:
        raise ValueError(f"mode={mode!r} does not write datasets; the modes are 'w-', 'w', 'a', 'a-' and 'r+'")
    if mode == "a-" and append_dim is None:
        raise ValueError("mode='a-' appends to the variables that have a dimension: say which with append_dim=")
    if region is not None and append_dim is not None:
        # Dataset.to_zarr takes both where they name different dimensions, writes no index then, and so leaves the
        # coordinate along append_dim shorter than the variables: such a store does not open
        msg = "region= overwrites stored elements, append_dim= adds new ones: append the whole extent first, with NaN"
        raise ValueError(f"{msg} where values are not known yet, then write them with region=")
    if (region is not None or append_dim is not None) and mode == "w":
        raise ValueError("mode='w' replaces the group: leave it out to write a region or to append")
    if append_dim is not None:
        if mode == "r+":
            raise ValueError("mode='r+' does not resize arrays: leave it out to append")
        return "a"
    return "r+" if region is not None and mode == "w-" else mode


# --------------------------------------------------------------------------------------------------------------------
# Data


def _is_lazy(planned: VariablePlan) -> bool:
    return isinstance(planned.data, da.Array)


def _write_lazily(planned: VariablePlan, lock: LockFactory, *, compute: bool) -> tuple[da.Array, int]:
    options: Any = {"write_empty": planned.write_empty, "stored": planned.stored, "compute": compute}
    return write_graph(planned.data, planned.array, planned.region, lock=lock, **options)


def _write_in_memory(variables: Iterable[VariablePlan], lock: LockFactory) -> dict[str, WriteReport]:
    """Write what is in memory from this process: sent through a cluster, it would only take longer."""
    reports = {}
    for planned in variables:
        if _is_lazy(planned):
            continue
        array, region = planned.array, planned.region
        if not array.write_layout.grid.aligned(region):
            check_guarded(array.store, array.path, lock)
        if planned.stored is not array:
            declare_arrays([array])
        data = as_dtype(planned.data, array.dtype)
        with written_to(array, planned.stored) as there:
            counts = write_keys(there, data, region, lock=lock, write_empty=planned.write_empty)
        reports[array.path] = report(array, counts, 0)
    return reports
