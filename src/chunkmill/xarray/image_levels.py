"""Datasets of the levels of multiscale images: one variable each, with coordinates in physical units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from xarray import Dataset

from chunkmill.errors import ChunkmillError
from chunkmill.nodes.array import Array
from chunkmill.nodes.multiscales import MultiscaleImage, ScaleLevel, multiscales_of

__all__ = ["level_datasets"]

_VARIABLE = "image"


def level_datasets(
    path: str,
    attributes: Mapping[str, Any],
    arrays: Mapping[str, Array],
    open_dataset: Callable[[Mapping[str, Array]], Dataset],
) -> dict[str, Dataset]:
    """Return a dataset for each level of the images in the group at `path`, by the name of its array; often none.

    Parameters
    ----------
    attributes, arrays
        Of the group.
    open_dataset
        Returns the dataset of some arrays.
    """

    def named(accepts: Callable[[str], bool]) -> Mapping[str, Array]:
        return {name: array for name, array in arrays.items() if accepts(name)}

    try:
        images = multiscales_of(path, attributes, named, arrays.__getitem__)
    except (ChunkmillError, KeyError):  # wrong metadata, or a level further down: its group is opened as any other
        return {}
    return {
        level.array.path.rpartition("/")[2]: _with_coordinates(open_dataset({_VARIABLE: level.array}), image, level)
        for image in images
        for level in image
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
