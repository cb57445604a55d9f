"""Describe the arrays of all levels of a pyramid, and the attributes of its group.

Not here: shapes of levels (`chunkmill.pyramids.levels`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from chunkmill.conversion.target_metadata import describe_target, fitted_to
from chunkmill.errors import AlignmentError
from chunkmill.formats.base import Format
from chunkmill.hints import Hint
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.inner_layout import inner_grid
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.model.multiscales import OF_LEVELS, Multiscale, emit_n5_levels, emit_ome, reduced_level
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.pyramids.base_image import BaseImage
from chunkmill.pyramids.downsample import Method, Reduction
from chunkmill.pyramids.levels import LevelShape, plan_levels
from chunkmill.stores.base import Store

__all__ = ["DescribedLevels", "LevelTarget", "describe_levels", "emit_levels"]


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


@dataclass(frozen=True, slots=True)
class DescribedLevels:
    """Shape and array of each level, the image that they are, and the metadata of a group that is made for it."""

    shapes: tuple[LevelShape, ...]
    arrays: tuple[Array, ...]
    image: Multiscale
    group: GroupMetadata


def describe_levels(
    base: BaseImage,
    target: LevelTarget,
    *,
    factors: Any,
    levels: int | None,
    method: Method | Reduction,
    allow: Collection[str],
    **layout: Any,
) -> DescribedLevels:
    """Describe all levels; `layout` are ``chunks``, ``shards`` and ``codecs`` of `chunkmill.plan_convert`."""
    first = _describe_first(base, target, allow, layout)
    shapes = plan_levels(
        base.array.shape,
        factors,
        levels,
        chunk_shape=inner_grid(first).chunk_shape,
        names=[axis.name for axis in base.axes],
        spacing=base.level.scale if base.is_scaled else None,
    )
    averages = method != "stride"
    described = tuple(
        reduced_level(base.level, f"{target.stem}{number}", shape.total, averages=averages)
        for number, shape in enumerate(shapes)
    )
    shown = method if isinstance(method, str) else getattr(method, "__name__", None)
    image = Multiscale(base.axes, described, target.convention or "", base.name, shown)
    group, of_levels = emit_levels(image, target.convention, base.attributes)
    arrays = [
        _level_array(target, level.path, shape, first, of_levels.get(level.path, {}))
        for level, shape in zip(described, shapes, strict=True)
    ]
    if target.exists:
        arrays[0] = base.array
    return DescribedLevels(shapes, tuple(arrays), image, GroupMetadata(group))


def _describe_first(
    base: BaseImage, target: LevelTarget, allow: Collection[str], layout: Mapping[str, Any]
) -> ArrayMetadata:
    """Describe the first level; of OME-Zarr with dimension names, and with keys nested as 0.4 wants them."""
    array = base.array
    metadata = describe_target(array, target.format, target.path, allow=allow, **layout)
    kept = {name: value for name, value in metadata.attributes.items() if name not in OF_LEVELS}
    metadata = replace(metadata, attributes=kept)
    if target.convention == "0.4":
        metadata = replace(metadata, chunk_keys=replace(metadata.chunk_keys, separator="/"))
    elif target.convention == "0.5":
        metadata = replace(metadata, dimension_names=tuple(axis.name for axis in base.axes))
    if not metadata.chunk_grid.is_regular:
        fix = Hint("give {}, one length for each axis", ("chunks", array.chunk_grid.chunk_shape))
        raise AlignmentError(expected="chunks of one shape", got=f"chunks {array.chunks}", fix=fix)
    return metadata


def _level_array(
    target: LevelTarget, name: str, level: LevelShape, first: ArrayMetadata, attributes: Mapping[str, Any]
) -> Array:
    """Describe the array of one level: the first level's metadata with another shape."""
    grid = ChunkGrid.regular(level.shape, first.chunk_grid.chunk_shape)
    own = {} if any(factor > 1 for factor in level.total) else dict(first.attributes)
    metadata = replace(first, chunk_grid=grid, attributes={**own, **attributes})
    path = "/".join(each for each in (target.path, name) if each)
    fitted = fitted_to(metadata, target.format, path, near=False)
    return hierarchy.array_at(target.store, path, fitted, target.format)


def emit_levels(
    image: Multiscale, convention: str | None, attributes: Mapping[str, Any], *, keeps_others: bool = False
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
        group, below = emit_ome([image], convention, attributes), {}
    if keeps_others:
        paths = {level.path for level in image.levels}
        _described(group)["multiscales"] += [each for each in _images(attributes) if paths.isdisjoint(_paths(each))]
    return group, below


def _described(attributes: Mapping[str, Any]) -> Any:
    """Return what has the member ``multiscales``: ``ome`` where there is one (OME-Zarr 0.5)."""
    return attributes["ome"] if isinstance(attributes.get("ome"), Mapping) else attributes


def _images(attributes: Mapping[str, Any]) -> list[Any]:
    stored = _described(attributes).get("multiscales")
    return stored if isinstance(stored, list) else []


def _paths(image: Any) -> set[Any]:
    """Return the paths of the levels of an image as it is stored, by whoever."""
    datasets = image.get("datasets") if isinstance(image, Mapping) else None
    levels = datasets if isinstance(datasets, list) else []
    return {str(each.get("path")).strip("/") for each in levels if isinstance(each, Mapping)}
