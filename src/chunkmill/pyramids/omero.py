"""Describe the channels of an image for viewers: names, colours, and the window of values that is shown (``omero``).

The window is not known before the levels are written: then it is computed from the coarsest one, of which a client that
publishes again reads the same. Not here: axes and levels (`chunkmill.model.multiscales`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill.array.chunk_io import read_region
from chunkmill.array.selection import full_region, region_shape
from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import UnsupportedFeature
from chunkmill.model.grid import Region
from chunkmill.model.metadata import GroupMetadata
from chunkmill.model.multiscales import Multiscale
from chunkmill.model.ome_zarr import OME_VERSIONS
from chunkmill.pyramids.image import DescribedLevels, LevelTarget

__all__ = ["channel_axis", "with_omero", "with_windows"]

_COLOURS = ("FF0000", "00FF00", "0000FF", "FF00FF", "00FFFF", "FFFF00")  # red, green, blue first, as in ome-zarr-py
_GREY = "FFFFFF"
_PERCENTILES = (0.1, 99.9)
_MOST_VALUES = 1 << 24
"""Values of a channel that are looked at for its window."""


def channel_axis(image: Multiscale) -> int | None:
    """Return the number of the axis of channels; ``None`` where there is none."""
    return next((i for i, axis in enumerate(image.axes) if axis.type == "channel"), None)


def with_omero(
    described: DescribedLevels, target: LevelTarget, channels: Sequence[str] | Mapping[str, Any] | bool
) -> DescribedLevels:
    """Return the levels with a group whose attributes have ``omero``; its windows are left to `with_windows`.

    Parameters
    ----------
    channels
        A name for each channel; ``True``: numbers; a mapping: members that take the place of those made here.

    Raises
    ------
    UnsupportedFeature
        The levels are not described as OME-Zarr.
    ValueError
        Another number of names than of channels, or the group exists already.
    """
    if target.convention not in OME_VERSIONS:
        what = f"omero in {target.convention or 'a group without description'}"
        raise UnsupportedFeature(format="OME-Zarr", feature=what, hint="only OME-Zarr describes channels")
    if target.exists:
        msg = "channels= describes a new image: give a target, or set the attribute `omero` of the group"
        raise ValueError(msg)
    axis = channel_axis(described.image)
    n = 1 if axis is None else described.shapes[0].shape[axis]
    members = channels if isinstance(channels, Mapping) else {}
    names = [str(i) for i in range(n)] if channels is True or isinstance(channels, Mapping) else channels
    if isinstance(names, (str, bool)) or len(names) != n:
        msg = f"channels={channels!r}: the image has {n} channel{'' if n == 1 else 's'}, and each needs a name"
        raise ValueError(msg)
    colours = [_GREY] if n == 1 else [_COLOURS[i % len(_COLOURS)] for i in range(n)]
    made = [{"label": str(name), "color": colour, "active": True} for name, colour in zip(names, colours, strict=True)]
    omero = {"channels": made, "rdefs": {"model": "greyscale" if n == 1 else "color"}, **members}
    if target.convention == "0.4":
        omero = {"version": "0.4", **omero}
    attributes = dict(described.group.attributes)
    if target.convention == "0.4":
        attributes["omero"] = omero
    else:
        attributes["ome"] = {**attributes["ome"], "omero": omero}
    return replace(described, group=GroupMetadata(attributes))


def with_windows(group: GroupMetadata, image: Multiscale, coarsest: StoredArray) -> GroupMetadata:
    """Return the group with a window for each channel of ``omero`` that has none, by the values of a level."""
    attributes = dict(group.attributes)
    above = dict(attributes["ome"]) if "ome" in attributes else attributes
    omero: Any = above.get("omero")
    channels = omero.get("channels") if isinstance(omero, Mapping) else None
    if not isinstance(channels, list) or all("window" in each for each in channels):
        return group
    axis = channel_axis(image)
    shown = []
    for i, channel in enumerate(channels):
        region = list(full_region(coarsest.shape))
        if axis is not None and i < coarsest.shape[axis]:
            region[axis] = slice(i, i + 1)
        shown.append({**_window(_values(coarsest, tuple(region))), **channel})
    above["omero"] = {**omero, "channels": shown}
    if "ome" in attributes:
        attributes["ome"] = above
    return GroupMetadata(attributes)


def _values(level: StoredArray, region: Region) -> NDArray[Any]:
    """Return the values of a region; of a large one those of some chunks, evenly spread."""
    step = ceil(prod(region_shape(region)) / _MOST_VALUES)
    if step <= 1:
        return read_region(level, region)
    values = []
    for overlap in islice(level.write_layout.grid.overlaps(region), 0, None, step):
        places = zip(region, overlap.in_region, strict=True)
        block = tuple(slice(whole.start + cut.start, whole.start + cut.stop) for whole, cut in places)
        values.append(read_region(level, block).ravel())
    return np.concatenate(values)


def _window(values: Any) -> dict[str, Any]:
    """Return the member ``window`` of a channel; nothing where no value is finite."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return {}
    start, end = np.percentile(finite, _PERCENTILES)
    low, high = finite.min(), finite.max()
    return {"window": {"min": _number(low), "max": _number(high), "start": _number(start), "end": _number(end)}}


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)
