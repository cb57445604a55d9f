"""Write a dask array, to a new array or an existing one: the public function `to_store`.

Not here: many at once (`chunkmill.dask_arrays.store`), the graphs (`chunkmill.dask_arrays.write`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

from dask.array import core as da
from dask.delayed import Delayed
from distributed import Client

from chunkmill.array.selection import full_region
from chunkmill.array.staleness import check_after_writing
from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import LockFactory
from chunkmill.dask_arrays.as_dask import as_dask
from chunkmill.dask_arrays.hazards import check_not_read
from chunkmill.dask_arrays.resumable_write import resumable_write
from chunkmill.dask_arrays.store import checked_values, chunks_for_blocks, open_existing, write_region_of
from chunkmill.dask_arrays.write import WriteReport, check_source, report, returning, run, write_graph
from chunkmill.formats.base import WritableFormatName, check_attributes
from chunkmill.formats.registry import get_format
from chunkmill.journal.lease import check_no_job, discard_block_write
from chunkmill.nodes import opening
from chunkmill.nodes.api import NodeLocation, as_node, check_storage_options, open_target
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import entry_keys, format_of_store
from chunkmill.nodes.new_array import check_options, describe_array, format_above
from chunkmill.nodes.target import Target
from chunkmill.runtime.cluster_tasks import sync_other_machines
from chunkmill.runtime.locks import lock_factory
from chunkmill.runtime.preflight import check_writers, writes_to
from chunkmill.runtime.scheduler import Scheduler

Mode = Literal["r", "r+", "a", "w", "w-"]


@returning(WriteReport, da.Array)
def to_store(
    x: Any,
    url: NodeLocation,
    path: str = "",
    *,
    format: WritableFormatName | None = None,  # noqa: A002
    chunks: int | str | Sequence[Any] | Mapping[str, Any] | None = None,
    shards: int | str | Sequence[Any] | Mapping[str, Any] | None = None,
    codecs: Any = "default",
    region: slice | Sequence[Any] | None = None,
    mode: Mode = "w-",
    fill_value: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    chunk_key_encoding: Literal[".", "/"] | Mapping[str, Any] | None = None,
    lock: Any = "auto",
    compute: bool = True,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteReport | Delayed:
    """Write a dask array (or a numpy array) to a store; like ``da.to_zarr``, whose keywords it takes, for every format.

    Every store key is written by exactly one task: blocks that cut through store keys are regrouped first. The array
    appears in the store when all its chunks are written. Chunks that are the fill value bit for bit are left absent.
    Values of a stored array are decoded and encoded again; `convert` copies chunks.

    Parameters
    ----------
    x
        A dask or numpy array, an `Array`, or one of xarray's; its chunk sizes must be known.
    url
        As in `open`; or ``(url, path)``, or a `Group` that `path` starts from. An `Array`, opened with ``mode="r+"``,
        is written into, whatever `mode` is but ``"w"``.
    path
        As in `open`.
    format
        Of a new array; that of the group above it when ``None``, ``"zarr3"`` in a new store.
    chunks
        As in `create_array`. ``None``: the largest block of `x` along each axis; ``"auto"`` when sharded, and where `x`
        has no blocks. Dimensions that lengths by dimension leave out have those of the blocks.
    shards, codecs, fill_value, dimension_names, attributes, chunk_key_encoding, storage_options
        Of a new array, as in `create_array`; an array that is written into has its own, and others are an error. A
        fill value that is not given is null in Zarr v2 with dimension names: xarray takes equal elements for missing.
    region
        Slices of an existing array to write `x` to; store keys that it covers partly are read, changed and written
        back under `lock` and a version check.
    mode
        ``"w-"``: create, fail if there is a node; ``"w"``: replace; ``"r+"``: write into the existing array;
        ``"a"``: that, or create. What is replaced can be read until all is written; in object stores and zip files
        it is deleted first.
    lock
        ``"auto"``: a lock of this process, or of the cluster when run on one; ``None``: none, the version check alone
        guards; else a context manager.
    compute
        ``False``: return a `dask.delayed.Delayed` of the report; the metadata are written by its last task.
    resume
        Keep a record of every block next to the array until all are written, and resume an interrupted write of the
        same `x` (the same name in dask: see ``x.name``). Whole arrays only.

    Returns
    -------
    WriteReport
        Store keys written, of them empty and partial, and bytes. Or a `dask.delayed.Delayed` of it: see `compute`.

    Raises
    ------
    NodeExists
        There is a node, and `mode` does not allow to replace it.
    AlignmentError
        `x` has another shape than the array or region, or chunks of unknown size.
    StoreError
        Partial writes would be unguarded: the store cannot compare versions and there is no common lock. Or the array
        was replaced or resized in the store after it was opened.
    JobError
        An interrupted write at the target is another one; ``mode="w"`` would delete what `x` reads, or a task would
        read what another one overwrites; or a worker lacks a codec, or cannot write.

    Examples
    --------
    >>> import chunkmill as cm, dask.array as da
    >>> report = cm.to_store(da.arange(10, chunks=5), "memory://doc-to")
    >>> report.n_keys
    2
    >>> cm.open_array("memory://doc-to")[3:5]
    array([3, 4])
    """
    url, wanted = as_node(url), format
    check_storage_options(storage_options, url)
    target, path, format = open_target(url, storage_options, format, path)  # noqa: A001
    with target.transaction(f"write {path!r}"):
        has_blocks = getattr(checked_values(x), "chunks", None) is not None and shards is None
        x = as_dask(x)
        factory = lock_factory(lock)
        if isinstance(url, Array) and mode != "w":
            url.stored.check_writable()
            existing: StoredArray | None = url.stored
        else:
            named = format if wanted is None else None
            existing = open_existing(target, path, "r+" if region is not None else mode, StoredArray, named)
        if resume and (region is not None or not compute):
            raise ValueError("resume=True writes whole arrays and now: leave out region= and compute=False")
        if region is not None and mode == "w":
            raise ValueError("mode='w' replaces an array, and region= writes into one: leave out one of them")
        if resume and (target.has_transactions or target.is_archive):
            raise ValueError("resume=True: Icechunk and zip files keep nothing of an interrupted write: write it again")
        about: dict[str, Any] = {"chunks": chunks, "shards": shards, "codecs": codecs, "fill_value": fill_value}
        about |= {"dimension_names": dimension_names, "attributes": attributes}
        about |= {"chunk_key_encoding": chunk_key_encoding}
        if existing is not None:
            array, is_default = existing, isinstance(codecs, str) and codecs == "default"
            about |= {"codecs": None if is_default else codecs, "format": wanted}
            stated = {name: value for name, value in about.items() if value is not None}
            check_options(Array(array), format_of_store(target, array.format), **stated)
            where = write_region_of(array, region)
        else:
            check_source(x, x.shape)
            check_attributes(path, attributes)
            name = format or format_above(target, path)
            about["chunks"] = chunks_for_blocks(x.chunks if has_blocks else None, chunks, dimension_names)
            metadata = describe_array(get_format(name), path, shape=x.shape, dtype=x.dtype, may_be_null=True, **about)
            array = opening.array_at(target, path, metadata, name)
            where = full_region(array.shape)
        check_not_read([x] if mode == "w" else [], target, array.path)
        check_writers([array] if compute else [])
        overwrite = mode == "w" if existing is None else None
        new = Target(target, array.path, format_of_store(target, array.format), [array], overwrite=overwrite)
        if resume:
            return resumable_write(x, new, lock=factory)
        if region is None and (existing is not None or not compute):  # else the reservation takes its place
            discard_block_write(target, array.path)
        if existing is None:
            with new.held(writes_to([array]), continues=not compute) as held:
                return _write_new(x, array, held, lock=factory, compute=compute)
        check_no_job(target, array.path)
        counts, n_regrouped = write_graph(x, array, where, lock=factory, stored=existing, compute=compute)
        finish = partial(_finish, n_regrouped=n_regrouped, array=array)
        return run([counts], finish, compute=compute, arrays=[array], regions=[where])


def _write_new(
    x: da.Array, array: StoredArray, target: Target, *, lock: LockFactory, compute: bool
) -> WriteReport | Delayed:
    """Write the array of a target, which is `array` when it is published: when all is written."""
    (own,), region = target.arrays, full_region(array.shape)
    is_later = not (compute or target.is_staged)
    absent = sorted(entry_keys(target.format, target.path)) if is_later else ()
    counts, n_regrouped = write_graph(x, own, region, lock=lock, absent=absent, compute=compute)
    client = Scheduler().client if compute else None  # a task of its own cannot ask
    options: Any = {"n_regrouped": n_regrouped, "array": array, "client": client, "is_held": compute}
    finish = partial(_finish_new, target=target, **options)
    return run([counts], finish, compute=compute, arrays=[own if compute else array], regions=[region])


def _finish_new(
    counts: Any, *, n_regrouped: int, array: StoredArray, target: Target, client: Client | None, is_held: bool
) -> WriteReport:
    """Publish the new array: the last step of a write, by the client or in a task of its own."""
    job = writes_to([array])
    written = report(array, counts, n_regrouped)
    with nullcontext() if is_held else target.continued(job, written.n_keys - written.n_empty):
        if target.is_staged and client is not None:  # this machine is synced when the two are exchanged
            sync_other_machines([array.store], client, job)
        target.publish(consolidates=False)
    return written


def _finish(counts: Any, *, n_regrouped: int, array: StoredArray) -> WriteReport:
    """Look whether the array that was written into is still there: the last step of a write."""
    check_after_writing([array])
    array.store.flush()
    return report(array, counts, n_regrouped)
