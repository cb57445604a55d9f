"""Describe the image that a pyramid is made from, the arrays of all its levels, and the attributes of its group.

Not here: shapes of levels (`chunkmill.pyramids.levels`), attributes of each convention
(`chunkmill.model.multiscales`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from numbers import Real
from typing import Any

from chunkmill.array.selection import full_region
from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.ome import check_ome
from chunkmill.conversion.region_option import cropping
from chunkmill.conversion.target_metadata import describe_target, fitted_to
from chunkmill.errors import AlignmentError
from chunkmill.formats.base import Format
from chunkmill.formats.registry import READ_ONLY
from chunkmill.hints import Hint
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata, inner_grid
from chunkmill.model.multiscales import (
    Axis,
    Level,
    Multiscale,
    axis_type,
    canonical_unit,
    default_names,
    emit_n5_levels,
    image_name,
    moved_level,
    reduced_level,
    without_level,
)
from chunkmill.model.ome_zarr import (
    OME_VERSIONS,
    check_coordinate_systems,
    emit_ome,
    ome_version,
    without_levels,
)
from chunkmill.nodes import opening
from chunkmill.nodes.changes import Change, merged
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.group import described_images, image_of_array, level_array
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.pyramids.downsample import Method, Reduction
from chunkmill.pyramids.levels import LevelShape, by_axis, plan_levels
from chunkmill.stores.base import Store


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
        Of the group of the image.
    described
        The image as it is stored, of which other coordinate systems are kept.
    """

    array: StoredArray
    axes: tuple[Axis, ...]
    level: Level
    is_scaled: bool
    name: str | None
    attributes: Mapping[str, Any]
    described: Multiscale | None = None


def describe_base(
    node: StoredNode,
    scale: Any,
    units: Any,
    *,
    region: Any = None,
    translation: Any = None,
    name: str | None = None,
    own: bool = False,
) -> BaseImage:
    """Return the array, or the finest level of the image that a group describes.

    `scale`, `units` and `translation` are by axis, or dicts by dimension name; a single one is that of the axes of
    space; ``None``: what metadata say. A `region` of the array moves the translation. With `own`, the level is placed
    in the levels' own coordinate system, where the image has others.

    Raises
    ------
    ValueError
        The node is a group that describes no image. `scale` or `units` name unknown dimensions, are of another rank,
        or not above 0.
    RegionError
        The array has no such region.
    """
    array, group, image, stored = _found(node)
    if own and image is not None and stored is not None and image.system is not None:
        scales, starts = image.own[image.levels.index(stored)]
        stored, image = replace(stored, scale=scales, translation=starts), replace(image, system=None)
    names = _names(array, image)
    known = {axis.name: axis for axis in image.axes} if image else {}
    axes = [known.get(name) or Axis(name, axis_type(name)) for name in names]
    by_unit = _by_axis(units, axes, "units")
    axes = [
        axis if unit is None else replace(axis, unit=canonical_unit(unit))
        for axis, unit in zip(axes, by_unit, strict=True)
    ]
    is_scaled = scale is not None or stored is not None
    level = stored or Level("", (1.0,) * array.ndim, (0.0,) * array.ndim)
    lengths = _or_stored(_by_axis(scale, axes, "scale"), level.scale)
    if bad := [length for length in lengths if not length > 0]:
        msg = f"scale={scale!r}: {bad[0]} is not a length above 0"
        raise ValueError(msg)
    level = Level("", lengths, level.translation)
    crop = cropping(region, array, [array], lambda _: names)
    if crop is not None:
        array = crop(array)
        level = moved_level(level, [cut.start for cut in array.region or full_region(array.shape)])
    level = replace(level, translation=_or_stored(_by_axis(translation, axes, "translation"), level.translation))
    attributes = {} if group is None else group.attributes
    named = name or (image.name if image else None)
    return BaseImage(array, tuple(axes), level, is_scaled, named, attributes, image)


def _or_stored(wanted: Sequence[Any], stored: Sequence[float]) -> tuple[float, ...]:
    return tuple(known if each is None else float(each) for each, known in zip(wanted, stored, strict=True))


def _found(node: StoredNode) -> tuple[StoredArray, StoredGroup | None, Multiscale | None, Level | None]:
    """Return the array, the group above it if that describes the array, the image and the level that the array is."""
    if isinstance(node, StoredGroup):
        for image in described_images(node.attributes, node.arrays):
            if image.levels:
                first = image.levels[0]
                return level_array(node.path, first, node.__getitem__), node, image, first
        arrays = ", ".join(map(repr, list(node.arrays())[:10])) or "none"
        msg = f"source: the group {node.path!r} of {node.url} describes no multiscale image; give the path of an array "
        raise ValueError(f"{msg}(those directly below it: {arrays})")
    found = image_of_array(node, partial(open_stored, node.store))
    return (node, None, None, None) if found is None else (node, *found)


def _names(array: StoredArray, image: Multiscale | None) -> list[str]:
    """Return a name for each axis: the array's, the image's, or t, c, z, y, x from the last."""
    default = default_names(array.ndim)
    stored = array.dimension_names or (tuple(axis.name for axis in image.axes) if image else default)
    return [name or other for name, other in zip(stored, default, strict=True)]


def _by_axis(option: Any, axes: Sequence[Axis], argument: str) -> list[Any]:
    found = by_axis(option, [axis.name for axis in axes], argument, None, [axis.type == "space" for axis in axes])
    kinds: Any = str if argument == "units" else Real
    for each in found:
        if each is not None and (not isinstance(each, kinds) or (kinds is Real and not isfinite(each))):
            kind = "a unit" if argument == "units" else "a finite number"
            raise ValueError(f"{argument}={option!r:.60}: {each!r:.60} is not {kind}")
    return found


@dataclass(frozen=True, slots=True)
class LevelTarget:
    """The group that the levels are written to.

    Attributes
    ----------
    convention
        By which the levels are described: a version of OME-Zarr, ``"n5-viewer"``, or ``None``.
    stem
        Start of the names of levels, before their numbers.
    exists
        Whether the group exists, with the first level.
    """

    store: Store
    path: str
    format: Format
    convention: str | None
    stem: str
    exists: bool = False

    def group_at(self, path: str) -> StoredGroup:
        """Return a group of the store, whose attributes are to be changed."""
        return StoredGroup(self.store, path, GroupMetadata(), self.format)


def target_next_to(image: BaseImage, name: str | None, ome: str | None) -> LevelTarget:
    """Return the group of an array, for levels next to it."""
    base = image.array
    above, _, last = base.path.rpartition("/")
    if not last.endswith("0") or last[-2:-1].isdigit():
        msg = (
            f"target=None: levels go next to an array whose name ends with 0, its number, as in 's0'; got {base.path!r}"
        )
        raise ValueError(msg)
    if name not in {None, base.format} or base.format in READ_ONLY:
        msg = f"format={name!r}: levels next to an array of {base.format} have its format; give a target"
        raise ValueError(msg)
    documents_format = format_of_store(base.store, base.format)
    convention = level_convention(documents_format, image.described, ome)
    return LevelTarget(base.store.uncached, above, documents_format, convention, last[:-1], exists=True)


@dataclass(frozen=True, slots=True)
class DescribedLevels:
    """Shape and array of each level, the image that they are, and the metadata of a group that is made for it."""

    shapes: tuple[LevelShape, ...]
    arrays: tuple[StoredArray, ...]
    image: Multiscale
    group: GroupMetadata


def describe_levels(
    base: BaseImage,
    target: LevelTarget,
    *,
    factors: Any,
    levels: int | None,
    method: Method | Reduction,
    **layout: Any,
) -> DescribedLevels:
    """Describe all levels; `layout` are ``chunks``, ``shards`` and ``codecs`` of `chunkmill.plan_convert`."""
    first = _describe_first(base, target, layout)
    shapes = plan_levels(
        base.array.shape,
        factors,
        levels,
        chunk_shape=inner_grid(first).chunk_shape,
        names=[axis.name for axis in base.axes],
        spacing=base.level.scale if base.is_scaled else None,
    )
    name = image_name(base.name, target.path, target.store.url)
    averages = method != "stride"
    described = tuple(
        reduced_level(base.level, f"{target.stem}{number}", shape.total, averages=averages)
        for number, shape in enumerate(shapes)
    )
    shown = method if isinstance(method, str) else getattr(method, "__name__", None)
    image = Multiscale(base.axes, described, target.convention or "", name, shown)
    if base.described is not None and target.convention is not None:
        check_coordinate_systems(base.described, target.convention, ())
        image = replace(image, system=base.described.system, stored=without_levels(base.described.stored))
    group, of_levels = emit_levels(image, target.convention, base.attributes)
    arrays = [
        _level_array(target, level.path, shape, first, of_levels.get(level.path, {}))
        for level, shape in zip(described, shapes, strict=True)
    ]
    if target.exists:
        arrays[0] = base.array
    return DescribedLevels(shapes, tuple(arrays), image, GroupMetadata(group))


def level_convention(documents_format: Format, image: Multiscale | None, ome: str | None = "auto") -> str | None:
    """Return the convention that `ome` names; ``"auto"``: the format's, or 0.6 where `image` has it."""
    check_ome(documents_format, None if ome == "auto" else ome)
    if ome != "auto":
        return ome
    own = documents_format.level_metadata
    is_newest = own == "0.5" and image is not None and ome_version(image.version) == "0.6"
    return "0.6" if is_newest else own


def _describe_first(base: BaseImage, target: LevelTarget, layout: Mapping[str, Any]) -> ArrayMetadata:
    """Describe the first level; of OME-Zarr with dimension names, and with keys nested as 0.4 wants them."""
    array = base.array
    metadata = describe_target(array, target.format, target.path, allow=(), **layout)
    fill = array.fill_value if metadata.fill_value is None else metadata.fill_value  # levels keep chunks absent
    metadata = replace(metadata, attributes=without_level(metadata.attributes), fill_value=fill)
    if target.convention == "0.4":
        metadata = replace(metadata, chunk_keys=replace(metadata.chunk_keys, separator="/"))
    elif target.convention in OME_VERSIONS:
        metadata = replace(metadata, dimension_names=tuple(axis.name for axis in base.axes))
    if not metadata.chunk_grid.is_regular:
        fix = Hint("give {}, one length for each axis", ("chunks", array.chunk_grid.chunk_shape))
        raise AlignmentError(expected="chunks of one shape", got=f"chunks {array.chunks}", fix=fix)
    return metadata


def _level_array(
    target: LevelTarget, name: str, level: LevelShape, first: ArrayMetadata, attributes: Mapping[str, Any]
) -> StoredArray:
    """Describe the array of one level: the first level's metadata with another shape."""
    grid = ChunkGrid.regular(level.shape, first.chunk_grid.chunk_shape)
    own = {} if any(factor > 1 for factor in level.total) else dict(first.attributes)
    metadata = replace(first, chunk_grid=grid, attributes={**own, **attributes})
    path = "/".join(each for each in (target.path, name) if each)
    fitted = fitted_to(metadata, target.format, path, near=False)
    return opening.array_at(target.store, path, fitted, target.format)


def emit_levels(
    image: Multiscale,
    convention: str | None,
    attributes: Mapping[str, Any],
    *,
    keeps_others: bool = False,
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the attributes of the group that has `attributes` now, and those of the levels' arrays by name.

    With `keeps_others` other images that the group describes stay; else they are not at the target.
    """
    if convention is None:
        return dict(attributes), {}
    if convention == "n5-viewer":
        of_image, below = emit_n5_levels(image)
        kept = {name: value for name, value in attributes.items() if name not in {"ome", "omero", *of_image}}
        group = {**kept, **of_image}
    else:
        group, below = emit_ome([image], convention, attributes, allow=("coordinate_systems",)), {}
    if keeps_others:
        described = group.get("ome", group)
        described["multiscales"] += _other_images(attributes, {level.path for level in image.levels})
    return group, below


def level_names(base: StoredArray, target: LevelTarget, image: Multiscale) -> list[tuple[StoredNode, Change]]:
    """Return the changes of attributes of an array, in N5, and of its group, that name levels; others' stay (P3)."""

    def named(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**attributes, **emit_levels(image, target.convention, attributes, keeps_others=True)[0]}

    own = emit_levels(image, target.convention, {})[1].get(base.path.rpartition("/")[2], {})
    changes: list[tuple[StoredNode, Change]] = []
    if target.convention is not None:
        changes.append((target.group_at(target.path), named))
    if own:  # last: the array is the source, of whose document a job that is resumed knows the version
        changes.append((base, merged(own)))
    return changes


def _other_images(attributes: Mapping[str, Any], paths: Collection[str]) -> Iterator[Any]:
    """Yield the images that a group describes, as they are stored by any writer, which have none of the levels."""
    ome = attributes.get("ome")
    stored = (ome if isinstance(ome, Mapping) else attributes).get("multiscales")
    for image in stored if isinstance(stored, list) else ():
        datasets = image.get("datasets") if isinstance(image, Mapping) else None
        levels = [each for each in datasets if isinstance(each, Mapping)] if isinstance(datasets, list) else []
        if not any(str(each.get("path")).strip("/") in paths for each in levels):
            yield image
