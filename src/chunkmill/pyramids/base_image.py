"""The array that a pyramid is made from: its axes, the size of its voxels, and what else describes the image.

Not here: what attributes say (`chunkmill.model.multiscales`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chunkmill.errors import NodeNotFound
from chunkmill.model.multiscales import Axis, Level, Multiscale, axis_type
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.nodes.multiscales import described_images, level_array

__all__ = ["BaseImage", "describe_base"]

_DEFAULT_NAMES = ("t", "c", "z", "y", "x")


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The finest level of an image.

    Attributes
    ----------
    axes
        One for each axis of the array.
    level
        Length of a voxel, and position of the first.
    is_scaled
        Whether anything says the length of a voxel; 1 otherwise.
    name
        As stored.
    attributes
        Of the group that the image stands in.
    """

    array: Array
    axes: tuple[Axis, ...]
    level: Level
    is_scaled: bool
    name: str | None
    attributes: Mapping[str, Any]


def describe_base(node: Node, scale: Any, units: Any) -> BaseImage:
    """Return the array, or the finest level of the image that a group describes.

    `scale` and `units` are by axis, or dicts by dimension name; ``None``: what metadata say.

    Raises
    ------
    ValueError
        The node is a group that describes no image. `scale` or `units` name unknown dimensions, are of another rank,
        or not above 0.
    """
    array, group, image = _found(node)
    names = _names(array, image)
    known = {axis.name: axis for axis in image.axes} if image else {}
    axes = [known.get(name) or Axis(name, axis_type(name)) for name in names]
    by_unit = _by_axis(units, names, "units")
    axes = [replace(axis, unit=unit) if unit is not None else axis for axis, unit in zip(axes, by_unit, strict=True)]
    stored = image.levels[0] if image else None
    before = stored.scale if stored else (1.0,) * array.ndim
    wanted = _by_axis(scale, names, "scale")
    lengths = [known if length is None else float(length) for length, known in zip(wanted, before, strict=True)]
    if bad := [length for length in lengths if not length > 0]:
        msg = f"scale={scale!r}: {bad[0]} is not a length above 0"
        raise ValueError(msg)
    translation = stored.translation if stored else (0.0,) * array.ndim
    level = Level("", tuple(lengths), translation)
    is_scaled = scale is not None or stored is not None
    attributes = {} if group is None or image is None else group.attributes
    return BaseImage(array, tuple(axes), level, is_scaled, image.name if image else None, attributes)


def _found(node: Node) -> tuple[Array, Group | None, Multiscale | None]:
    """Return the array, the group above it, and the image whose finest level it is, where metadata describe one.

    Other levels may be missing, or be something else by now: they are not opened.
    """
    if isinstance(node, Group):
        if images := _images(node):
            return level_array(node.path, images[0].levels[0], node.__getitem__), node, images[0]
        arrays = ", ".join(map(repr, list(node.arrays())[:10])) or "none"
        msg = f"source: the group {node.path!r} of {node.url} describes no multiscale image; give the path of an array "
        raise ValueError(f"{msg}(those directly below it: {arrays})")
    above, _, name = node.path.rpartition("/")
    if not name:
        return node, None, None
    try:
        group = hierarchy.open_node(node.store, above)
    except NodeNotFound:
        return node, None, None
    if not isinstance(group, Group):
        return node, None, None
    return node, group, next((each for each in _images(group) if each.levels[0].path.strip("/") == name), None)


def _images(group: Group) -> list[Multiscale]:
    return [image for image in described_images(group.attributes, group.arrays_named) if image.levels]


def _names(array: Array, image: Multiscale | None) -> list[str]:
    """Return a name for each axis: the array's, the image's, or t, c, z, y, x from the last."""
    n = array.ndim
    default = _DEFAULT_NAMES[5 - n :] if n <= len(_DEFAULT_NAMES) else tuple(f"d{i}" for i in range(n))
    stored = array.dimension_names or (tuple(axis.name for axis in image.axes) if image else default)
    return [name or other for name, other in zip(stored, default, strict=True)]


def _by_axis(option: Any, names: Sequence[str], argument: str) -> list[Any]:
    if option is None or isinstance(option, (str, int, float)):
        return [option] * len(names)
    if isinstance(option, Mapping):
        if unknown := sorted(set(option) - set(names)):
            msg = f"{argument}={dict(option)!r}: unknown dimensions {unknown}; the array has {list(names)}"
            raise ValueError(msg)
        return [option.get(name) for name in names]
    if len(option) != len(names):
        msg = f"{argument}={option!r}: expected {len(names)}, one for each of the axes {list(names)}"
        raise ValueError(msg)
    return list(option)
