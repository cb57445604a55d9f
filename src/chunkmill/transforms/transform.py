"""`plan_transform` and `transform`: check the arguments, open the sources, describe the targets.

Shape, chunks and codecs of a target are from the options, or as the first source has them. Not here: blocks and the job
(`chunkmill.transforms.transform_job`), what a task does (`chunkmill.transforms.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Self

import numpy as np

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.options import is_keep
from chunkmill.conversion.region_option import ChunksOption
from chunkmill.conversion.target_metadata import marked
from chunkmill.dask_arrays.sources import check_apart, open_or_compute
from chunkmill.errors import NodeNotFound, UnsupportedFeature
from chunkmill.formats.base import Format, WritableFormatName
from chunkmill.jobs.call import function_fingerprint, with_call
from chunkmill.jobs.plan import Plan, Report, plan_work
from chunkmill.jobs.sources import Source, see_sources
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import ArrayMetadata, inner_layout, is_within
from chunkmill.model.user_values import as_dtype
from chunkmill.nodes.api import NodeLocation, check_storage_options, open_target, with_options_of
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.new_array import (
    checked_dtype,
    checked_lengths,
    checked_names,
    describe_array,
    format_above,
    lengths_by_name,
)
from chunkmill.nodes.opening import array_at
from chunkmill.nodes.target import Target
from chunkmill.runtime.computed import ComputedStore
from chunkmill.runtime.worker_memory import current_worker
from chunkmill.transforms.blocks import ArrayAxes, Halo, Space, joined_space
from chunkmill.transforms.function import BlockFunction
from chunkmill.transforms.tasks import Block, Boundary, SourceRegion, TransformSource, TransformTasks
from chunkmill.transforms.transform_job import Transform


@with_call
def plan_transform(
    function: Callable[..., Any],
    sources: Any,
    target: NodeLocation | Sequence[NodeLocation],
    *,
    halo: int | tuple[Any, ...] | list[Any] | Mapping[Any, Any] = 0,
    boundary: str | complex | Sequence[Any] | Mapping[Any, Any] = "reflect",
    source_region: SourceRegion | None = None,
    params: Mapping[str, Any] | None = None,
    block: int | Sequence[int] | Mapping[str, int] | None = None,
    shape: int | Sequence[Any] | None = None,
    dtype: Any = None,
    chunks: ChunksOption = "keep",
    shards: ChunksOption = "keep",
    codecs: Any = "default",
    format: WritableFormatName | list[WritableFormatName | None] | None = None,  # noqa: A002 - as in to_store
    fill_value: Any = None,
    dimension_names: Sequence[Any] | None = None,
    attributes: Mapping[str, Any] | list[Any] | str | None = None,
    max_mem: int | str | None = None,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Plan:
    """Plan to apply a function to stored arrays, block by block; nothing is written before the plan runs.

    A task owns whole store keys of every target, reads each element of the sources once, with the halo, and holds no
    more than its share of `max_mem`. The job is resumed, guarded, published and cancelled as those of `plan_convert`.

    Parameters
    ----------
    function
        Called with one NumPy block for each source, and `params` as keywords; returns a block, or one for each target.
        Where it has a keyword ``block_info`` (``block_id``), that is given as in ``dask.array.map_blocks``: under 0, 1,
        … for each source, under ``None`` for the target; a list of them for several. Positions include the halo. On a
        cluster it travels by pickle: a function of a script goes by value. A job is resumed with the same function:
        by its code, defaults, what it closes over and the globals that it names; or by what its ``__dask_tokenize__``
        returns, which it needs where it uses what no other process can recognize, such as a lock.
    sources
        A url, ``(url, path)`` or an Array; a list of them. They have equal shapes, or are broadcast along named
        dimensions: blocks then have an axis for each dimension, of length 1 where a source does not have it. Also
        arrays of Dask, numpy or xarray, whose blocks are computed by the tasks that read them.
    target
        A url or ``(url, path)``; a list of them in one store. Of several targets, `shape`, `dtype`, `chunks`,
        `shards`, `codecs`, `fill_value`, `dimension_names` and `attributes` may each be a list
        with a value for each. There must be no node, unless `overwrite`.
    halo
        Elements around a block that the function gets, too, and may return, which are trimmed then: a number, a tuple
        by axis, or a dict by dimension name or axis; each a number or a pair, before and after.
    boundary
        What the halo holds beyond the ends of the array: ``"reflect"`` (d c b a | a b c d | d c b a, as SciPy's),
        ``"nearest"`` (a a a a | a b c d | d d d d), ``"constant"`` (zeros) or a number; ``"none"``: the block ends
        there. By dimension name or axis in a dict. The dtype of the sources must hold a number, NaN in floats alone.
    source_region
        Function of a region of the target (a tuple of slices) that returns the region of the source which its block is
        made from, or a list with one for each source: for what changes shape. Parts beyond the ends of a source are as
        `boundary` says. Blocks are then not broadcast, and there is no `halo`.
    params
        Keyword arguments for `function`; part of its fingerprint.
    block
        Length of a task's block along each axis, a multiple of the targets' store keys: a tuple, or a dict by dimension
        name; -1: all of an axis. Chosen when ``None``.
    shape
        Of the target; that of the sources together when ``None``. A target with `dimension_names` may lack some of
        theirs, along which the blocks are not cut then, and have others, for which the function returns all elements.
    dtype
        Of the target. When ``None``, `function` is called for a small block of ones.
    chunks, shards
        As in `to_store`; ``"keep"``: as the first source has them, shards where the format has them.
    codecs
        As in `to_store`; ``"keep"``: the first source's.
    format
        That of the group above the target when ``None``; ``"zarr3"`` in a new store.
    fill_value
        As in `to_store`; that of the first source when ``None``, where it has the same dtype.
    dimension_names
        Of the target; those of the sources when ``None``.
    attributes
        Of the target; ``"keep"``: those of the first source.
    max_mem
        Largest memory of the tasks of one worker in bytes, all its threads together, or as text (``"2 GiB"``), as in
        `plan_rechunk`. The function is taken to hold as much as it takes and returns.
    overwrite
        Replace what is at the targets: it stays until the new ones are complete.
    storage_options
        For the filesystems of sources and target, as in `plan_convert`.

    Returns
    -------
    Plan
        Prints blocks, the share of the halo, bytes, requests and memory; ``plan.run()`` runs it.

    Raises
    ------
    JobError
        `max_mem` is too little; says how much is needed.
    AlignmentError
        `block` cuts through store keys.
    TransformError
        The function failed for the small block; give `dtype`.
    UnsupportedFeature
        The format cannot hold such an array.
    ValueError, TypeError
        Sources, or options, that do not go together.

    Examples
    --------
    >>> import chunkmill as cm, numpy as np
    >>> a = cm.create_array("memory://doc-transform-plan", "a", shape=(64, 64), dtype="f4", chunks=(16, 16))
    >>> plan = plan_transform(np.sqrt, a, ("memory://doc-transform-plan", "b"))
    >>> plan.strategy, plan.n_keys, plan.read_amplification
    ('numpy.sqrt', 16, 1.0)
    """
    if not callable(function):
        raise TypeError(f"function={function!r}: expected a function of NumPy blocks")
    if source_region is not None and not callable(source_region):
        raise TypeError(f"source_region={source_region!r}: expected a function of a region of the target")
    read, places = _listed(sources, "sources"), _listed(target, "target")
    check_storage_options(storage_options, *read, *places)
    arrays = [_open(each, storage_options) for each in read]
    options = target_options(
        len(places),
        is_list=isinstance(target, list),
        shape=shape,
        dtype=dtype,
        chunks=chunks,
        shards=shards,
        codecs=codecs,
        format=format,
        fill_value=fill_value,
        dimension_names=dimension_names,
        attributes=attributes,
    )
    if source_region is None:
        space = joined_space([(array.dimension_names, array.shape) for array in arrays])
    else:
        space = _target_space(options[0], arrays[0])
    called = BlockFunction(function, dict(params or {}), len(places))
    called.check_call(len(arrays))
    around, by_region = halo_by_axis(halo, space), source_region is not None
    has_halo = any(pair != (0, 0) for pair in around)
    if by_region and has_halo:
        raise ValueError(f"halo={halo!r}: source_region= says all that is read; regions may reach beyond the ends")
    reads_beyond = by_region or has_halo or not around
    described = [DescribedTarget.of(each, space, arrays[0]) for each in options]
    tasks = TransformTasks(
        sources=tuple(_sources(arrays, space, by_region=by_region)),
        targets=(),
        axes=tuple(each.axes for each in described),
        blocks=ChunkGrid.regular(space.shape, [min(n, _TRIAL) for n in space.shape]),
        halo=around,
        boundary=_boundaries(boundary, space, arrays, by_region=by_region, reads_beyond=reads_beyond),
        function=called,
        source_region=source_region,
    )
    dtypes: list[Any] = [each["dtype"] for each in options]
    if None in dtypes:
        found = Block(tasks, (0,) * len(space.shape)).sampled_dtypes()
        dtypes = [own if own is not None else each for own, each in zip(dtypes, found, strict=True)]
    documents_format, made = described_targets(places, described, dtypes, arrays[0], storage_options)
    for new, array in product(made, arrays):
        check_apart(array, new.store, new.path, overwrite=overwrite)
    pairs = zip(made, tasks.axes, strict=True)
    tasks = replace(tasks, axes=tuple(ArrayAxes(new.write_layout.grid, each.axes) for new, each in pairs))
    lengths = None if block is None else tuple(by_axis(block, space, "block", -1))
    if not all(hasattr(n, "__index__") for n in lengths or ()):
        raise TypeError(f"block={block!r}: expected the length of a block, for all axes or each; -1 for all of an axis")
    more = f" and {len(made) - 1} more" if len(made) > 1 else ""
    where = f"{made[0].url}{made[0].path and f'/{made[0].path}'}"
    work = Transform(
        operation="transform",
        name=f"transform to {where}{more}",
        sources=[Source(each.array, each.seen) for each in tasks.sources],
        target=Target(made[0].store, made[0].path, documents_format, made, overwrite=overwrite),
        space=space,
        tasks=tasks,
        block=lengths,
        function=function_fingerprint(tasks.function.function, dict(tasks.function.params), tasks.source_region),
    )
    return plan_work(work, current_worker(max_mem))


_TRIAL = 4
"""Elements along each axis of the block for which the function is called to learn its dtype."""


@with_options_of(plan_transform)
def transform(
    function: Callable[..., Any],
    sources: Any,
    target: NodeLocation | Sequence[NodeLocation],
    **options: Any,
) -> Report:
    """Apply a function to stored arrays, block by block: `plan_transform`, and run.

    Parameters
    ----------
    function, sources, target, halo, boundary, source_region, params, block
        As in `plan_transform`.
    shape, dtype, chunks, shards, codecs, format, fill_value, dimension_names, attributes
        As in `plan_transform`.
    max_mem, overwrite, storage_options
        As in `plan_transform`.

    Returns
    -------
    Report
        Store keys by action, bytes, seconds.

    Raises
    ------
    JobError, AlignmentError, UnsupportedFeature, NodeExists
        As in `plan_transform` and `convert`; `JobError` also where there is an unfinished job of another function.
    TransformError
        The function failed for a block, or returned another shape or kind of values than the target has. Finished tasks
        are kept: the same call resumes from there.
    ChunkError
        A chunk cannot be read or written.

    Examples
    --------
    >>> import chunkmill as cm, numpy as np
    >>> _ = cm.to_store(np.arange(8.0), "memory://doc-transform", "a", chunks=(2,))
    >>> def smoothed(block):
    ...     return (np.roll(block, 1) + block + np.roll(block, -1)) / 3
    >>> report = transform(smoothed, ("memory://doc-transform", "a"), ("memory://doc-transform", "b"), halo=1)
    >>> report.n_keys, cm.open_array("memory://doc-transform", "b")[3:6]
    (4, array([3., 4., 5.]))
    """
    return plan_transform(function, sources, target, **options).run()


def _listed(places: Any, name: str) -> list[Any]:
    """Return the places that an argument names."""
    if isinstance(places, tuple) and not (len(places) == 2 and isinstance(places[1], str)):  # noqa: PLR2004 - url, path
        raise TypeError(f"{name}={places!r}: expected a url, (url, path), or a list of them for several")
    found = places if isinstance(places, list) else [places]
    if not found:
        raise ValueError(f"{name}=[]: expected at least one place")
    return found


def _open(source: Any, storage_options: Mapping[str, Any] | None) -> StoredArray:
    if hasattr(source, "data_vars"):
        raise TypeError("a source is a Dataset: give a variable, ds['name']")
    node = open_or_compute(source, storage_options)
    if isinstance(node, StoredArray):
        return node
    hint = "a transform reads arrays: give (url, path), or a list of arrays of the group"
    raise NodeNotFound(url=node.url, path=node.path, found="group", wanted="array", hint=hint)


def halo_by_axis(halo: Any, space: Space) -> Halo:
    """Return the elements before and after a block along each axis.

    Parameters
    ----------
    halo
        As in `by_axis`; each a number of elements, or a pair of those before and after.

    Raises
    ------
    ValueError
        A negative number, another rank, or a dimension that there is not.

    Examples
    --------
    >>> halo_by_axis({"x": (1, 2)}, Space(("t", "x"), (8, 8))), halo_by_axis(3, Space((0,), (8,)))
    (((0, 0), (1, 2)), ((3, 3),))
    """
    return tuple(_pair(each, halo) for each in by_axis(halo, space, "halo", 0))


def by_axis(option: Any, space: Space, name: str, default: Any) -> list[Any]:
    """Return the value of an option for each axis: values by name or number in a mapping, by axis, or one for all.

    Parameters
    ----------
    name
        Of the option, for errors.
    default
        Value for the axes that a mapping does not name.

    Raises
    ------
    ValueError
        Another rank, or a dimension that there is not.

    Examples
    --------
    >>> by_axis({"x": 1}, Space(("t", "x"), (8, 8)), "halo", 0)
    [0, 1]
    """
    n = len(space.names)
    if isinstance(option, Mapping):
        named = {space.names[key] if key in range(n) else key: value for key, value in option.items()}
        names: Any = space.names
        return list(lengths_by_name(named, names, [default] * n, name))
    if isinstance(option, (tuple, list)) and len(option) != n:
        raise ValueError(f"{name}={option!r}: {len(option)} values, where the blocks have {n} axes")
    return list(option) if isinstance(option, (tuple, list)) else [option] * n


def _pair(value: Any, halo: Any) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or any(isinstance(n, bool) or not hasattr(n, "__index__") or n < 0 for n in pair):  # noqa: PLR2004
        raise ValueError(f"halo={halo!r}: {value!r} is neither a number of elements nor a pair of them")
    return int(pair[0]), int(pair[1])


def _target_space(options: Mapping[str, Any], first: StoredArray) -> Space:
    """Return the space of a target whose blocks name their source regions: its own axes."""
    shape = first.shape if options["shape"] is None else tuple(options["shape"])
    names = options["dimension_names"]
    if names is None and len(shape) == first.ndim:
        names = first.dimension_names
    if names is None or None in names or len(set(names)) < len(names):
        names = range(len(shape))
    return Space(tuple(names), tuple(map(int, shape)))


def _sources(arrays: Sequence[StoredArray], space: Space, *, by_region: bool) -> list[TransformSource]:
    found = []
    for array, seen in see_sources(arrays):
        named = tuple(space.names.index(name) for name in array.dimension_names or () if name in space.names)
        axes = (None,) * array.ndim if by_region else named or tuple(range(array.ndim))
        read = array.with_store(array.store.uncached)
        found.append(TransformSource(read, seen, ArrayAxes(array.read_layout.grid, axes, array.dtype.itemsize)))
    return found


def _boundaries(
    boundary: Any, space: Space, arrays: Sequence[StoredArray], *, by_region: bool, reads_beyond: bool
) -> tuple[Boundary, ...]:
    """Return what is beyond the ends of each axis; `ValueError` for what is not read, or not held."""
    if by_region and isinstance(boundary, (Mapping, tuple, list)):
        raise ValueError(f"boundary={boundary!r}: with source_region= there is one for all axes")
    found = tuple(map(_boundary, by_axis(boundary, space, "boundary", "reflect") or [boundary]))
    for value, array in product(found, arrays):
        try:
            if not isinstance(value, str) and value:  # zero is of every dtype
                as_dtype(value, array.dtype)
        except ValueError as error:
            msg = f"boundary={value!r}: {array.dtype}, the dtype of a source, does not hold it"
            raise ValueError(f"{msg}; give another, or cast in the function with boundary='none'") from error
    if not reads_beyond and any(value != "reflect" for value in found):
        raise ValueError(f"boundary={boundary!r}: without halo= or source_region= nothing beyond the ends is read")
    return found


def _boundary(value: Any) -> Boundary:
    names, numbers = {"reflect", "nearest", "constant", "none"}, (int, float, complex, np.generic)
    if not (value in names if isinstance(value, str) else isinstance(value, numbers)):
        raise ValueError(f"boundary={value!r}: expected 'reflect', 'nearest', 'constant', 'none' or a number")
    return 0 if isinstance(value, str) and value == "constant" else value


def target_options(n_targets: int, *, is_list: bool, **options: Any) -> list[dict[str, Any]]:
    """Return the options of each target: of several, a list has one for each.

    Raises
    ------
    ValueError
        A list of another length.

    Examples
    --------
    >>> target_options(2, is_list=True, dtype=["u1", "f4"], chunks=(8, 8))
    [{'dtype': 'u1', 'chunks': (8, 8)}, {'dtype': 'f4', 'chunks': (8, 8)}]
    """
    lists = {name: value for name, value in options.items() if is_list and isinstance(value, list)}
    for name, value in lists.items():
        if len(value) != n_targets:
            raise ValueError(f"{name}= has {len(value)} values for {n_targets} targets; a tuple is one for all")
    return [options | {name: value[number] for name, value in lists.items()} for number in range(n_targets)]


@dataclass(frozen=True)
class DescribedTarget:
    """A target before its dtype is known.

    Attributes
    ----------
    axes
        How its axes map to those of the space.
    names
        Of its dimensions.
    """

    options: Mapping[str, Any]
    axes: ArrayAxes
    names: tuple[str | None, ...] | None

    @classmethod
    def of(cls, options: Mapping[str, Any], space: Space, first: StoredArray) -> Self:
        """Return the target of some options.

        Raises
        ------
        ValueError
            Its shape does not go with the sources'.
        """
        names, shape = checked_names(options["dimension_names"]), options["shape"]
        known: dict[Any, int] = {name: i for i, name in enumerate(space.names) if isinstance(name, str)}
        if shape is not None:
            shape = checked_lengths(shape, "shape")
        if names is None and (shape is None or len(shape) == len(space.shape)):
            # names that the axes of unnamed blocks have in the first source
            names = tuple(known) if known else first.dimension_names if len(space.shape) == first.ndim else None
        axes: tuple[int | None, ...] = tuple(range(len(space.shape)))
        if names is not None and known:
            axes = tuple(known.get(name) for name in names)
            if shape is None and None in axes:
                new = [name for name in names if name not in known]
                raise ValueError(f"dimension_names={list(names)}: the sources have no {new}; give shape=")
        if shape is None:
            shape = tuple(space.shape[axis] for axis in axes if axis is not None)
        shared = [(axis, n) for axis, n in zip(axes, shape, strict=False) if axis is not None]
        is_once = len(dict(shared)) == len(shared) and len(axes) == len(shape)
        if not is_once or any(space.shape[axis] != n for axis, n in shared):
            msg = f"shape={shape}, where the blocks of the sources divide {space.shape}: give dimension_names=, each "
            raise ValueError(f"{msg}once, where dimensions come or go, or source_region= where the shape changes")
        return cls(options, ArrayAxes(ChunkGrid.regular(shape, shape), axes), names)


def described_targets(
    places: Sequence[Any],
    described: Sequence[DescribedTarget],
    dtypes: Sequence[np.dtype[Any]],
    first: StoredArray,
    storage_options: Mapping[str, Any] | None,
) -> tuple[Format, list[StoredArray]]:
    """Return the format of the targets, and the array of each; `first` is the first source.

    Raises
    ------
    TypeError
        A target is an Array.
    ValueError
        Two targets are at one place, one below the other, or of several stores or formats.
    """
    found: list[StoredArray] = []
    stores: dict[str, Any] = {}
    for place, about, dtype in zip(places, described, dtypes, strict=True):
        if isinstance(place, Array):
            raise TypeError("the target is an Array: give its place, (url, path), with overwrite=True to replace it")
        store, path, named = open_target(place, storage_options, about.options["format"])
        store = stores.setdefault(store.url, store.uncached)
        documents_format = format_of_store(store, named or format_above(store, path.strip("/")))
        path = documents_format.normalize_path(path)
        for other in found:
            if other.store is store and (is_within(path, other.path) or is_within(other.path, path)):
                raise ValueError(f"targets {other.path!r} and {path!r} of {store.url}: one is in the other")
        if found and (found[0].format, found[0].store) != (documents_format.name, store):
            before = f"{found[0].url} ({found[0].format})"
            msg = f"the targets of one transform are of one store and format, not {before} and {store.url} "
            raise ValueError(f"{msg}({documents_format.name}): call it for each")
        metadata = _metadata(documents_format, path, about, checked_dtype(dtype), first)
        found.append(array_at(store, path, metadata, documents_format))
    return documents_format, found


def _metadata(
    documents_format: Format, path: str, about: DescribedTarget, dtype: np.dtype[Any], first: StoredArray
) -> ArrayMetadata:
    layout = inner_layout(first.metadata)
    options = {name: value for name, value in about.options.items() if name != "format"}
    options |= {"shape": about.axes.grid.shape, "dtype": dtype, "dimension_names": about.names}
    if is_keep(options["codecs"]):
        options["codecs"] = [{"name": each.name, "configuration": dict(each.configuration)} for each in layout.codecs]
    is_alike = dtype == first.dtype and not isinstance(first.store, ComputedStore)
    missing = marked(first, documents_format) if is_alike else first.metadata
    if is_keep(options["attributes"]):
        options["attributes"] = dict(missing.attributes)
    if not isinstance(options["attributes"], (Mapping, type(None))):
        raise TypeError(f"attributes={options['attributes']!r}: expected a dict, or 'keep'")
    kept: dict[str, Any] = {}  # as the first source has it, where the format has such
    if options["fill_value"] is None and is_alike:
        kept["fill_value"] = missing.fill_value
    if is_keep(options["shards"]):
        options["shards"] = None
        if layout.sharding is not None and is_keep(options["chunks"]):  # of other chunks they may be no multiples
            kept["shards"] = _kept(about, first, layout.keys)
    if is_keep(options["chunks"]):
        options["chunks"] = _kept(about, first, layout.chunks)
    for left_out in ((), ("shards",), ("fill_value",)):
        with suppress(UnsupportedFeature):
            own = options | {name: value for name, value in kept.items() if name not in left_out}
            return describe_array(documents_format, path, **own, may_be_null=True)
    return describe_array(documents_format, path, **options, may_be_null=True)


def _kept(about: DescribedTarget, first: StoredArray, grid: ChunkGrid) -> tuple[Any, ...]:
    """Return the chunk lengths of the first source along the axes that a target shares with it; else whole axes."""
    by_name = dict(zip(first.dimension_names or (), grid.axes, strict=False))
    shape = about.axes.grid.shape
    by_number = grid.axes if len(shape) == first.ndim else (None,) * len(shape)
    lengths: list[Any] = []
    for name, n, own in zip(about.names or (None,) * len(shape), shape, by_number, strict=True):
        axis = by_name.get(name) if by_name and name is not None else own
        lengths.append(-1 if axis is None else axis if axis.size == n else max(1, axis.widest))
    return tuple(lengths)
