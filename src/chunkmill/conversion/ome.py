"""Describe the multiscale images of a conversion as OME-Zarr: what N5 says, or another version of OME-Zarr.

Not here: what attributes say (`chunkmill.model.multiscales`), making levels (`chunkmill.pyramids`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from chunkmill.errors import UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.hints import Hint
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.model.multiscales import OF_LEVELS, Level, Multiscale, emit_ome
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.multiscales import MultiscaleImage

__all__ = ["OmeImages", "check_ome"]


def check_ome(documents_format: Format, version: str | None) -> None:
    """Raise `UnsupportedFeature` where the format is not that of the version of OME-Zarr."""
    if version is None or documents_format.level_metadata == version:
        return
    hint = Hint("0.4 is for Zarr v2, 0.5 for Zarr v3: give another {}", ("format", ...))
    raise UnsupportedFeature(format=documents_format.name, feature=f"OME-Zarr {version}", hint=hint)


@dataclass(frozen=True, slots=True)
class OmeImages:
    """The images in a source, and the version of OME-Zarr to describe them by.

    Attributes
    ----------
    images
        Path of the group -> its images.
    axes
        Path of an array that is a level -> names of its axes.
    """

    version: str
    images: Mapping[str, tuple[MultiscaleImage, ...]]
    axes: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, node: Node, version: str) -> OmeImages:
        """Find the images at and below a node.

        Raises
        ------
        ValueError
            There are none.
        """
        groups = [each for each in hierarchy.walk(node) if isinstance(each, Group)]
        images = {group.path: found for group in groups if (found := group.multiscales)}
        if not images:
            msg = f"ome={version!r}: no group of the source describes a multiscale image"
            raise ValueError(f"{msg}; `pyramid` makes the levels of one")
        every = [(image, level) for found in images.values() for image in found for level in image]
        axes = {level.array.path: tuple(axis.name for axis in image.axes) for image, level in every}
        return cls(version, images, axes)

    def array(self, array: Array, metadata: ArrayMetadata) -> ArrayMetadata:
        """Return the target's metadata of an array: of a level with names of its axes, and nested keys in 0.4."""
        names = self.axes.get(array.path)
        if names is None:
            return metadata
        kept = {name: value for name, value in metadata.attributes.items() if name not in OF_LEVELS}
        if self.version == "0.4":
            return replace(metadata, attributes=kept, chunk_keys=replace(metadata.chunk_keys, separator="/"))
        return replace(metadata, attributes=kept, dimension_names=names)

    def group(self, group: Group) -> GroupMetadata:
        """Return the target's metadata of a group: images, labels and plates as the version wants them."""
        images = [_relative(group, image) for image in self.images.get(group.path, ())]
        return GroupMetadata(emit_ome(images, self.version, group.attributes))


def _relative(group: Group, image: MultiscaleImage) -> Multiscale:
    levels = tuple(
        Level(level.array.path[len(group.path) :].strip("/"), level.scale, level.translation) for level in image
    )
    return Multiscale(image.axes, levels, image.version, image.name, image.method)
