"""Write a pyramid of labels below the image that they belong to, as OME-Zarr's ``labels``.

The image's group has a group ``labels``, which lists the label images in it; each names its image and has the length
and place of the voxels of the level that it covers. Not here: levels and their documents (`chunkmill.pyramids.image`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from chunkmill.errors import UnsupportedFeature
from chunkmill.model.multiscales import Level, image_name
from chunkmill.model.ome_zarr import OME_VERSIONS
from chunkmill.nodes.api import open_source
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.group import Group, as_node
from chunkmill.nodes.multiscales import MultiscaleImage
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.pyramids.image import BaseImage, LevelTarget, level_convention
from chunkmill.runtime.computed import ComputedStore
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import uncached

__all__ = ["LabelList", "labels_of"]


@dataclass(frozen=True, slots=True)
class LabelList:
    """The list of label images in the group at `path`, and the name that a job adds to it; can be pickled."""

    store: Store
    path: str
    name: str
    version: str

    def add(self) -> None:
        """Add the name to the list, where it is not listed; names that other jobs add at the same time stay."""
        group = open_stored(self.store, self.path, read_only=False, consolidated=False)
        while self.name not in (listed := self._listed(group.attributes)):
            names = [*listed, self.name]
            ome = group.attributes.get("ome") or {}
            added = (
                {"labels": names}
                if self.version == "0.4"
                else {"ome": {**ome, "version": self.version, "labels": names}}
            )
            as_node(group).update_attributes(added)
            group = open_stored(self.store, self.path, read_only=False, consolidated=False)

    def _listed(self, attributes: Mapping[str, Any]) -> list[Any]:
        members = attributes if self.version == "0.4" else attributes.get("ome") or {}
        listed = members.get("labels")
        return listed if isinstance(listed, list) else []


def labels_of(
    image: Any, base: BaseImage, storage_options: Mapping[str, Any] | None
) -> tuple[BaseImage, LevelTarget, LabelList, list[tuple[int, ...]]]:
    """Return labels with the voxels of their image, where they are written, the list of them, and the image's factors.

    Raises
    ------
    ValueError
        `image` describes no image, or none of its levels has the shape of the labels and no scale is given.
    UnsupportedFeature
        The image is not OME-Zarr.
    """
    group = open_source(image, storage_options)
    images = Group(group).multiscales if isinstance(group, StoredGroup) else ()
    if not isinstance(group, StoredGroup) or not images:
        msg = f"label_of: {group.path!r} of {group.url} describes no multiscale image; give the group of one"
        raise ValueError(msg)
    documents_format = format_of_store(group.store, group.format)
    version = level_convention(documents_format, images[0])
    if version not in OME_VERSIONS:
        raise UnsupportedFeature(format=group.format, feature="labels", hint="OME-Zarr has them: convert the image")
    computed = isinstance(base.array.store, ComputedStore)
    own = "labels" if computed and not base.name else image_name(base.name, base.array.path, base.array.url)
    base = replace(base, name=own, attributes={"image-label": {"source": {"image": "../../"}}}, described=None)
    if not base.is_scaled:
        base = _with_voxels_of(images[0], base)
    folder = f"{group.path}/labels".lstrip("/")
    store = uncached(group.store)
    target = LevelTarget(store, f"{folder}/{own}", documents_format, version, "")
    return base, target, LabelList(store, folder, own, version), _factors(images[0], base)


def _factors(image: MultiscaleImage, base: BaseImage) -> list[tuple[int, ...]]:
    """Return the factors of the image's levels below that which has the voxels of the labels, if any."""
    places = {axis.name: i for i, axis in enumerate(image.axes)}
    if any(axis.name not in places for axis in base.axes):
        return []
    scales = [tuple(level.scale[places[axis.name]] for axis in base.axes) for level in image]
    if base.level.scale not in scales:
        return []
    below = scales[scales.index(base.level.scale) :]
    return [tuple(max(round(b / a), 1) for a, b in zip(above, scale, strict=True)) for above, scale in pairwise(below)]


def _with_voxels_of(image: MultiscaleImage, base: BaseImage) -> BaseImage:
    """Return the labels with scale, translation and units of the level that has their shape."""
    places = {axis.name: i for i, axis in enumerate(image.axes)}
    known = [places.get(axis.name) for axis in base.axes]
    for level in image:
        pairs = zip(known, base.array.shape, strict=True)
        if all(i is not None and n in {1, level.array.shape[i]} for i, n in pairs):
            scale, start = (tuple(each[i or 0] for i in known) for each in (level.scale, level.translation))
            axes = tuple(
                replace(axis, unit=axis.unit or image.axes[i or 0].unit)
                for axis, i in zip(base.axes, known, strict=True)
            )
            return replace(base, level=Level("", scale, start), axes=axes, is_scaled=True)
    names = ", ".join(axis.name for axis in base.axes)
    msg = f"no level of the image has the shape {base.array.shape} of the labels along {names}: give scale="
    raise ValueError(msg)
