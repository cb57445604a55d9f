"""Arrays of xarray, and lists of arrays, as sources of a pyramid: axes, voxels and channels of what is computed.

Not here: the store that computes chunks (`chunkmill.runtime.computed`), images that are stored
(`chunkmill.pyramids.image`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.stored_array import StoredArray
from chunkmill.dask_arrays.sources import computed_array, is_data_array, open_or_compute
from chunkmill.model.multiscales import Axis, Level, axis_type, canonical_unit, default_names, emit_transform
from chunkmill.nodes.group import image_of_array
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredNode

_STACK = "c"
"""Name of the axis that joins a list of arrays."""


def open_image_source(source: Any, storage_options: Mapping[str, Any] | None) -> StoredNode:
    """Return the node of a source; of arrays in a list one that joins them along a new axis of channels.

    The axis of a stack is the first, or follows one of time. Names, lengths of voxels and units are the first array's;
    of xarray's, coordinates give them.

    Raises
    ------
    ValueError
        The list is empty, or its arrays have different shapes or dtypes.
    """
    if isinstance(source, list):
        return _stacked(source, storage_options)
    return open_or_compute(source, storage_options, _transform_of(source) if is_data_array(source) else {})


def channel_names(source: Any) -> list[str] | None:
    """Return the names of the channels that coordinates of xarray hold; ``None`` without any."""
    coordinates = getattr(source, "coords", {}) if hasattr(source, "dims") else {}
    for name in map(str, getattr(source, "dims", ()) if coordinates else ()):
        if axis_type(name) == "channel" and name in coordinates and coordinates[name].dtype.kind in "UOT":
            return list(map(str, coordinates[name].to_numpy()))
    return None


def _transform_of(source: Any) -> dict[str, Any]:
    """Return the attribute that says what coordinates of xarray do: length of a voxel, place of the first, unit.

    Coordinates that are not evenly spaced, or descend, cannot be said: a warning names them (P1).
    """
    axes, scale, starts = [], [], []
    for name in map(str, source.dims):
        kind = axis_type(name)
        place: tuple[float, float, str | None] = (1.0, 0.0, None)
        if kind != "channel" and name in getattr(source, "coords", {}):
            coordinate = source.coords[name]
            place = _place(name, coordinate.to_numpy(), str(coordinate.attrs.get("units", "")))
        axes.append(Axis(name, kind, canonical_unit(place[2])))
        scale.append(place[0])
        starts.append(place[1])
    if all(axis.unit is None for axis in axes) and (set(scale), set(starts)) == ({1.0}, {0.0}):
        return {}
    return {"transform": emit_transform(axes, Level("", tuple(scale), tuple(starts)))}


def _place(name: str, values: NDArray[Any], unit: str) -> tuple[float, float, str | None]:
    """Return step, start and unit of a coordinate; times of the calendar have a step alone, in seconds."""
    unit, is_calendar, _ = unit.partition(" since ")
    if values.dtype.kind in "mM":
        lengths = values if values.dtype.kind == "m" else values - values[:1]
        values, is_calendar, unit = lengths / np.timedelta64(1, "s"), "", "second"
    elif values.dtype.kind not in "iuf":
        return 1.0, 0.0, None
    if len(values) < 2:  # noqa: PLR2004 - a step needs two
        return 1.0, float(values[0]) if len(values) and not is_calendar else 0.0, unit
    numbers = values.astype("f8")
    step = float(numbers[-1] - numbers[0]) / (len(numbers) - 1)
    precise = np.finfo(values.dtype if values.dtype.kind == "f" else "f8").eps * float(np.abs(numbers).max())
    is_even = np.abs(numbers - np.linspace(numbers[0], numbers[-1], len(numbers))).max() <= 1e-3 * abs(step) + precise
    if not is_even or not step > 0:
        what = "are not evenly spaced" if not is_even else "do not ascend"
        warnings.warn(f"the coordinates {name!r} {what}: no length of a voxel is taken from them", stacklevel=4)
        return 1.0, 0.0, unit
    return _rounded(step, precise / len(numbers)), 0.0 if is_calendar else _rounded(float(numbers[0]), precise), unit


def _rounded(number: float, precise: float) -> float:
    """Return the shortest number that is as near as the coordinates are precise: 0.1, not 0.1000000014.

    Examples
    --------
    >>> _rounded(float(np.float32(0.1)), 1e-8)
    0.1
    """
    return next(each for n in range(1, 18) if abs((each := float(f"{number:.{n}g}")) - number) <= max(precise, 0.0))


def _stacked(sources: Sequence[Any], storage_options: Mapping[str, Any] | None) -> StoredNode:
    from dask.array import core as da  # noqa: PLC0415 - slow to import

    from chunkmill.dask_arrays.read import read_graph  # noqa: PLC0415 - slow to import

    nodes = [open_image_source(each, storage_options) for each in sources]
    arrays = [node for node in nodes if isinstance(node, StoredArray)]
    if not nodes or len(arrays) < len(nodes) or len({(array.shape, array.dtype) for array in arrays}) > 1:
        kinds = ", ".join(f"{array.path or array.url}: {array.shape} {array.dtype}" for array in arrays)
        msg = f"a list of {len(nodes)} sources, of which {len(arrays)} are arrays: give arrays of one shape and dtype; "
        raise ValueError(f"{msg}others differ, and cannot be the parts of one image: {kinds}")
    first = arrays[0]
    found = image_of_array(first, partial(open_stored, first.store))
    names = [axis.name for axis in found[1].axes] if found else [name or "" for name in first.dimension_names or ()]
    if len(names) != first.ndim or not all(names):
        names = list(default_names(first.ndim))
        if _STACK in names:
            names = [f"d{i}" for i in range(first.ndim)]
    at = 1 if names[:1] and axis_type(names[0]) == "time" else 0
    values = da.stack([read_graph(array) for array in arrays], axis=at)
    attributes: dict[str, Any] = {}
    if found:
        _, image, level = found
        axes = [*image.axes[:at], Axis(_STACK, axis_type(_STACK)), *image.axes[at:]]
        scale = (*level.scale[:at], 1.0, *level.scale[at:])
        start = (*level.translation[:at], 0.0, *level.translation[at:])
        attributes = {"transform": emit_transform(axes, Level("", scale, start))}
    return computed_array(values, (*names[:at], _STACK, *names[at:]), attributes)
