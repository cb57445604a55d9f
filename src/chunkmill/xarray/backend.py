"""Xarray backend ``engine="chunkmill"``: open a group of any format as labelled, lazy variables.

Selections of a lazy variable, and the tasks of dask, read only the chunks around them. Each level of a multiscale
image is a dataset with coordinates in physical units.

Dimensions are those that the format names: ``dimension_names``, ``_ARRAY_DIMENSIONS``, NCZarr's references, N5's
``axes``. An axis without a name is called ``<array>_dim_<axis>``: names by length, as in h5netcdf, would identify axes
that happen to be equally long. Not here: CF decoding (`chunkmill.xarray.decode`).
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xarray import Dataset, DataTree, Variable, conventions
from xarray.backends import list_engines
from xarray.backends.common import BackendArray, BackendEntrypoint
from xarray.core import indexing

from chunkmill.array.scattered import read_outer, read_points
from chunkmill.array.stored_array import StoredArray
from chunkmill.config import setting
from chunkmill.dask_arrays.from_array import ArrayInside, find_array_inside, read_from_arrays_in_runs
from chunkmill.errors import ChunkmillError, DatasetError, MetadataError, UnknownCodec
from chunkmill.formats.registry import get_format
from chunkmill.model.grid import Region
from chunkmill.nodes import api
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import join_path
from chunkmill.nodes.group import MultiscaleImage, ScaleLevel, multiscales_of
from chunkmill.nodes.new_array import axis_names
from chunkmill.nodes.reference_sets import is_reference_set
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores.base import REQUESTS_AT_ONCE
from chunkmill.stores.open import is_store
from chunkmill.stores.places import parse_url_pipeline
from chunkmill.xarray.decode import array_encoding, decode, decoded_attributes
from chunkmill.xarray.publication import UnfinishedAppend

_N5_SUFFIXES, _ZARR_SUFFIXES = (".n5", ".n5.zip"), (".zarr", ".zarr.zip")
_ROOT_ARRAY = "data"  # name of the variable of a store that is a single array
_DECODERS = tuple(signature(conventions.decode_cf_variables).parameters)[2:]


_SMALL_COORDINATE = 1 << 20  # bytes
Together: TypeAlias = Callable[[], Mapping[str, NDArray[Any] | None]]
"""Function that reads several arrays when it is first called, and returns their values by path."""


def group_variables(arrays: Mapping[str, StoredArray], masked: bool | None = None) -> dict[str, Variable]:
    """Return the variables of a group, undecoded; `DatasetError` where a dimension has different lengths in two."""
    indexes = {
        name: array
        for name, array in arrays.items()
        if array.ndim == 1 and array.store.is_remote and array.nbytes <= _SMALL_COORDINATE
        if dimension_names(name, array) == (name,)
    }
    # one after the other, as xarray reads them, each costs the store's latency
    together = functools.cache(partial(_read_together, [*indexes.values()]))
    variables = {
        name: open_variable(name, array, masked, together if name in indexes else None)
        for name, array in arrays.items()
    }
    first: dict[Any, tuple[int, str]] = {}
    for name, variable in variables.items():
        for dim, size in zip(variable.dims, variable.shape, strict=True):
            length, other = first.setdefault(dim, (size, name))
            if length != size:
                reason = f"dimension {dim!r} has length {size}, but {length} in {other!r}"
                hint = f"open a single one with group={arrays[name].path!r}, or drop_variables=[{name!r}]"
                raise DatasetError(variable=name, url=arrays[name].url, reason=reason, hint=hint)
    return variables


def _read_together(arrays: Sequence[StoredArray]) -> dict[str, NDArray[Any] | None]:
    """Return the values of arrays by path, read concurrently; ``None`` where reading fails: read alone, it says why."""
    with ThreadPoolExecutor(min(len(arrays), REQUESTS_AT_ONCE)) as pool:
        return dict(zip((array.path for array in arrays), pool.map(_values, arrays), strict=True))


def _values(array: StoredArray) -> NDArray[Any] | None:
    try:
        return Array(array)[...]
    except (ChunkmillError, OSError):
        return None


def open_variable(
    name: str, array: StoredArray, masked: bool | None = None, together: Together | None = None
) -> Variable:
    """Return `array` as a lazy variable, undecoded.

    Parameters
    ----------
    masked
        Whether the fill value stands for missing elements; ``None``: the convention of the format.
    together
        Function that reads it with others.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-variable", shape=(8, 6), dtype="f4", chunks=(2, 3), shards=(4, 6))
    >>> variable = open_variable("a", a.stored)
    >>> variable.dims, variable.encoding["preferred_chunks"]
    (('a_dim_0', 'a_dim_1'), {'a_dim_0': 4, 'a_dim_1': 6})
    """
    if masked is None:
        masked = get_format(array.format).masks_fill_value
    dims = dimension_names(name, array)
    data = indexing.LazilyIndexedArray(LazyArray(array, together))
    attributes = decoded_attributes(array, masked=masked)
    encoding = array_encoding(array, dims, masked=masked)
    return Variable(dims, data, attributes, encoding, fastpath=True)


def dimension_names(name: str, array: StoredArray) -> tuple[str, ...]:
    """Return the name of each axis of `array`, derived from the name of the variable where the axis has none."""
    names = axis_names(array)
    if None not in names:
        return names  # type: ignore[return-value]
    return tuple(f"{name}_dim_{axis}" if dim is None else dim for axis, dim in enumerate(names))


class ChunkmillBackendEntrypoint(BackendEntrypoint):
    """Xarray backend for Zarr v2 and v3, N5 and reference sets.

    Parameters of ``xr.open_dataset(url, engine="chunkmill", …)`` besides xarray's own and those of `chunkmill.open`:

    group : str
        Path of the group below the root; the path of an array opens a dataset of that variable.
    storage_options : dict
        For the filesystem, as in fsspec.
    consolidated : bool
        ``None``: use consolidated metadata where there are some; ``True``: require them; ``False``: ignore them.
    format : str
        As in `chunkmill.open`; guessed when ``None``.
    base : str
        Folder that relative targets of a reference set are relative to, as in `chunkmill.open`.
    use_zarr_fill_value_as_mask : bool
        Whether the fill value of the arrays stands for missing elements. ``None``: in Zarr v2 the fill value does,
        elsewhere the attribute ``_FillValue`` does, as with ``engine="zarr"``.

    Chunks: ``chunks={}`` makes each store key (each shard, when sharded) one task.

    Examples
    --------
    >>> import chunkmill as cm, xarray as xr
    >>> a = cm.create_array("memory://doc-engine", "t", shape=(4,), dtype="i4", chunks=(2,), dimension_names=["x"])
    >>> xr.open_dataset("memory://doc-engine", engine=ChunkmillBackendEntrypoint).t.sizes
    Frozen({'x': 4})
    """

    description: ClassVar[str] = "Zarr v2 and v3, N5 and reference sets, each chunk key a task"
    url: ClassVar[str] = "https://github.com/chunkmill/chunkmill"
    supports_groups: ClassVar[bool] = True
    open_dataset_parameters: ClassVar[tuple[str, ...]] = _DECODERS

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return whether it is N5, a draft of Zarr v3 or a reference set; or Zarr, where no other engine opens that.

        The setting ``chunkmill.guess-zarr`` takes Zarr always, or never. Remote urls are judged by their suffix alone.
        """
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return is_store(filename_or_obj)
        name = os.fspath(filename_or_obj)
        try:
            if "|" in name:
                return parse_url_pipeline(name) is not None
            path = Path(name).expanduser()
            is_file = path.is_file() and (".json" in path.name or path.suffix in {".zip", ".ozx"})
            if not path.is_dir() and not is_file:
                suffix = name.rstrip("/").lower()
                return suffix.endswith(_N5_SUFFIXES) or (suffix.endswith(_ZARR_SUFFIXES) and _takes_zarr())
            if is_reference_set(path):
                return True
            return not get_format(api.open(path).format).has_xarray_engine or _takes_zarr()
        except (ChunkmillError, OSError):
            return False

    def open_dataset(  # noqa: D102 - the class says it
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        **options: Any,
    ) -> Dataset:
        node, decoders = _open(filename_or_obj, group, **options)
        attributes: Mapping[str, Any] = {}
        if isinstance(node, StoredArray):
            arrays = {node.path.rpartition("/")[2] or _ROOT_ARRAY: node}
        else:
            arrays, _ = _children(node, drop_variables, deep=False)
            arrays, attributes = UnfinishedAppend.of(node.metadata.attributes).arrays_before(arrays), node.attributes
        return decode(group_variables(arrays, use_zarr_fill_value_as_mask), attributes, decoders)

    def open_datatree(  # noqa: D102 - as open_dataset
        self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None, **kwargs: Any
    ) -> DataTree:
        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, drop_variables=drop_variables, **kwargs))

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        use_zarr_fill_value_as_mask: bool | None = None,
        **options: Any,
    ) -> dict[str, Dataset]:
        """Open the group and all below it; the arguments are those of `open_dataset`.

        Each level of a multiscale image is a node, with a variable ``image`` and coordinates.

        Names are paths from the root, ``/a/b``; with `group`, relative to that group: ``.`` and ``b``, as in xarray.
        """
        root, decoders = _open(filename_or_obj, group, **options)
        if isinstance(root, StoredArray):
            hint = f"open_dataset(…, group={root.path!r}) opens it"
            raise DatasetError(variable=root.path, url=root.url, reason="expected a group, got an array", hint=hint)
        datasets: dict[str, Dataset] = {}
        top = "" if (group or "").strip("/") else "/"
        todo = [("", root, UnfinishedAppend("", {}))]

        def open_level(arrays: Mapping[str, StoredArray]) -> Dataset:
            # elements of an image that equal the fill value are not missing
            return decode(group_variables(arrays, bool(use_zarr_fill_value_as_mask)), {}, decoders)

        while todo:
            path, node, unfinished = todo.pop(0)
            arrays, groups = _children(node, drop_variables, deep=True)
            unfinished = unfinished.joined(UnfinishedAppend.of(node.metadata.attributes))
            arrays = unfinished.arrays_before(arrays)

            levels = level_datasets(node, arrays, open_level)
            others = {name: array for name, array in arrays.items() if name not in levels}
            datasets[f"{top}{path}" or "."] = decode(
                group_variables(others, use_zarr_fill_value_as_mask), node.attributes, decoders
            )
            for name, dataset in levels.items():
                datasets[f"{top}{join_path(path, name)}"] = dataset
            todo[:0] = [(join_path(path, name), child, unfinished.below(name)) for name, child in groups.items()]
        return datasets


def _takes_zarr() -> bool:
    """Return whether Zarr is opened by this engine where users name none."""
    wanted = setting("guess-zarr")
    return "zarr" not in list_engines() if wanted == "auto" else bool(wanted)


def _open(url: Any, group: str | None, **options: Any) -> tuple[StoredNode, dict[str, Any]]:
    """Return a node, opened by the options of `chunkmill.open`, and the others, of decoding."""
    decoders = {name: options.pop(name) for name in _DECODERS if name in options}
    if isinstance(url, str) and "|" in url:  # xarray, which takes it for a path, has made one slash of two
        url = re.sub(r"\|(icechunk|ic):/(?=branch\.|tag\.|[0-9A-HJKMNP-TV-Z]{20}(?:/|\||$))", r"|\1://", url)
    return api.open(url, (group or "").strip("/"), **options).stored, decoders


def _children(
    node: StoredGroup, dropped: str | Iterable[str] | None, *, deep: bool
) -> tuple[dict[str, StoredArray], dict[str, StoredGroup]]:
    """Return the arrays and the groups in a group, without those to drop."""
    without = frozenset([dropped] if isinstance(dropped, str) else dropped or ())
    try:
        children = node.members(without=without) if deep else node.children(without=without)
    except (MetadataError, UnknownCodec) as error:
        error.add_note("drop_variables=[…], with the name of the variable, leaves it out")
        raise
    arrays = {name: child for name, child in children.items() if isinstance(child, StoredArray)}
    return arrays, {name: child for name, child in children.items() if isinstance(child, StoredGroup)}


class LazyArray(BackendArray):
    """An `Array` that xarray indexes lazily: only the chunks around a selection are read, when it is loaded."""

    __slots__ = ("array", "dtype", "shape", "together")

    def __init__(self, array: StoredArray, together: Together | None = None) -> None:
        read_from_arrays_in_runs()
        self.array = array
        self.together = together
        self.shape = array.shape
        self.dtype = array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        read = partial(read_points, self.array) if isinstance(key, indexing.VectorizedIndexer) else self._outer
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.VECTORIZED, read)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read in a thread, so that ``Dataset.load_async`` reads variables concurrently."""
        return await asyncio.to_thread(self.__getitem__, key)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyArray, (self.array,)

    def _outer(self, key: tuple[Any, ...]) -> NDArray[Any]:
        values = None if self.together is None else self.together()[self.array.path]
        return read_outer(self.array, key) if values is None else values[key].copy()


class _LazyView:
    """Wrappers that xarray put around a `LazyArray`, the innermost first: they make the values of blocks."""

    def __init__(self, wrappers: Sequence[Any], region: Region) -> None:
        self.wrappers = []
        for wrapper in wrappers:  # without what they hold, which would be sent with each task
            self.wrappers.append(copy(wrapper))
            self.wrappers[-1].array = None
        self.start = tuple(cut.start for cut in region)

    def __call__(self, array: StoredArray, region: Region) -> NDArray[Any]:
        inner: Any = LazyArray(array)
        for wrapper in map(copy, self.wrappers):
            wrapper.array = inner
            inner = wrapper
        cuts = zip(region, self.start, strict=True)
        return np.asarray(inner[tuple(slice(cut.start - start, cut.stop - start) for cut, start in cuts)])


@find_array_inside
def _lazy_array(source: Any) -> ArrayInside | None:
    """Return the array inside what xarray gives to dask, with the region of it that a selection before has left.

    ``None`` where elements have other places than in the array but for the region's start: transposed, selected by
    steps or positions, characters that are joined.
    """
    if type(source) is not indexing.ImplicitToExplicitIndexingAdapter:
        return None
    wrappers: list[Any] = []
    start = (0,) * source.ndim
    while not isinstance(source, LazyArray):
        below = getattr(source, "array", None)
        if isinstance(source, indexing.LazilyIndexedArray):
            key = source.key.tuple
            if not all(isinstance(cut, slice) and cut.step in {None, 1} for cut in key):
                return None
            starts = [cut.indices(n)[0] for cut, n in zip(key, source.array.shape, strict=True)]
            start = tuple(map(sum, zip(start, starts, strict=True)))
        elif below is None or below.shape != source.shape:
            return None
        wrappers.append(source)
        source = below
    shape = wrappers[0].shape
    region = tuple(slice(first, first + n) for first, n in zip(start, shape, strict=True))
    return ArrayInside(source.array, region, _LazyView(wrappers[::-1], region))


_VARIABLE = "image"


def level_datasets(
    node: StoredGroup, arrays: Mapping[str, StoredArray], open_dataset: Callable[[Mapping[str, StoredArray]], Dataset]
) -> dict[str, Dataset]:
    """Return the dataset of each level of the images in a group with some arrays, by the name of its array."""

    def named(accepts: Callable[[str], bool]) -> Mapping[str, StoredArray]:
        return {name: array for name, array in arrays.items() if accepts(name)}

    try:
        images = multiscales_of(node.path, node.attributes, named, arrays.__getitem__)
    except (ChunkmillError, KeyError):  # wrong metadata, or a level further down: its group is opened as any other
        return {}
    levels = {level.array.path.rpartition("/")[2]: (image, level) for image in images for level in image}
    return {
        name: _with_coordinates(open_dataset({_VARIABLE: level.array.stored}), image, level)
        for name, (image, level) in levels.items()
    }


def _with_coordinates(dataset: Dataset, image: MultiscaleImage, level: ScaleLevel) -> Dataset:
    """Name the dimensions after the axes, and give those of space and time the position of each voxel's centre."""
    names = [axis.name for axis in image.axes]
    dataset = dataset.rename(dict(zip(dataset[_VARIABLE].dims, names, strict=True)))
    coordinates = {}
    for axis, scale, start, n in zip(image.axes, level.scale, level.translation, level.array.shape, strict=True):
        if axis.type != "channel":
            units = {} if axis.unit is None else {"units": axis.unit}
            coordinates[axis.name] = (axis.name, start + scale * np.arange(n), units)
    return dataset.assign_coords(coordinates)
