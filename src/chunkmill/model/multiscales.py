"""Multiscale images: which arrays are levels of one image, their axes, and the size of their voxels; N5's attributes.

Read: N5-viewer, BigDataViewer, COSEM (OpenOrganelle). Written: N5-viewer with COSEM. Everything here is in the order of
numpy's axes; N5's own attributes are fastest axis first. Pure functions of attributes. Not here: OME-Zarr
(`chunkmill.model.ome_zarr`), opening the levels (`chunkmill.nodes.multiscales`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from chunkmill.errors import MetadataError
from chunkmill.model.units import canonical_unit, length_in, unit_symbol

__all__ = [
    "Affine",
    "Axis",
    "Children",
    "Level",
    "Multiscale",
    "Placement",
    "axis_type",
    "bad_attribute",
    "emit_n5_levels",
    "emit_transform",
    "is_number",
    "listed",
    "moved_level",
    "parse_cosem",
    "parse_level",
    "parse_n5",
    "reduced_level",
    "without_level",
]

_OF_LEVELS = frozenset({"downsamplingFactors", "pixelResolution", "resolution", "transform"})

_TYPES = {"t": "time", "time": "time", "c": "channel", "channel": "channel"}
_SPATIAL = ("z", "y", "x")


Placement: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
"""Scale and translation of a level."""

Affine: TypeAlias = tuple[tuple[float, ...], ...]
"""Transformation of points: for each axis that results a row of factors, and an offset."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes
    ----------
    type
        ``"space"``, ``"time"``, ``"channel"``, or ``None``.
    unit
        Name of the unit as in OME-Zarr (``"micrometer"``, also where N5 has ``"um"``), or ``None``.
    """

    name: str
    type: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """One level: path of its array below the group; length of a voxel, and position of the first voxel's centre."""

    path: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Multiscale:
    """One image in several resolutions, the finest first.

    Attributes
    ----------
    version
        Of OME-Zarr, or the convention: ``"0.5"``, ``"n5-viewer"``, ``"bdv"``, ``"cosem"``.
    method
        How levels were made, as stored (``type`` in OME-Zarr); ``None`` where nothing says.
    system
        Name of the coordinate system of the levels' placement, where there are several; ``None``: the levels' own.
    systems
        Placement of each level in each coordinate system that scale and translation reach.
    affines
        Transformation from the levels' own coordinate system to each that a matrix reaches.
    own
        Placement of each level in the levels' own coordinate system.
    stored
        The image as OME-Zarr stores it: what else it says is written again.
    """

    axes: tuple[Axis, ...]
    levels: tuple[Level, ...]
    version: str
    name: str | None = None
    method: str | None = None
    system: str | None = None
    systems: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)
    affines: Mapping[str, Affine] = field(default_factory=dict)
    own: tuple[Placement, ...] = ()
    stored: Mapping[str, Any] = field(default_factory=dict)


Children: TypeAlias = Callable[[Callable[[str], bool]], Mapping[str, tuple[int, Mapping[str, Any]]]]
"""Function that returns rank and attributes of the arrays directly below a group whose names are accepted."""


def axis_type(name: str) -> str:
    """Return the type of an axis that only its name describes."""
    return _TYPES.get(name.lower(), "space")


def reduced_level(level: Level, path: str, total: Sequence[int], *, averages: bool) -> Level:
    """Return a level reduced by `total` along each axis; where cells are averaged, its voxels' centres are theirs.

    Examples
    --------
    >>> reduced_level(Level("0", (1.0, 4.0), (0.0, 0.0)), "1", (2, 1), averages=True)
    Level(path='1', scale=(2.0, 4.0), translation=(0.5, 0.0))
    """
    scale = tuple(length * factor for length, factor in zip(level.scale, total, strict=True))
    if not averages:
        return Level(path, scale, level.translation)
    shifted = zip(level.translation, level.scale, total, strict=True)
    return Level(path, scale, tuple(start + length * (factor - 1) / 2 for start, length, factor in shifted))


def moved_level(level: Level, start: Sequence[int]) -> Level:
    """Return the level of a crop that begins at the voxel `start`.

    Examples
    --------
    >>> moved_level(Level("0", (1.0, 4.0), (0.0, 2.0)), (3, 10))
    Level(path='0', scale=(1.0, 4.0), translation=(3.0, 42.0))
    """
    axes = zip(level.translation, level.scale, start, strict=True)
    return replace(level, translation=tuple(before + length * n for before, length, n in axes))


def listed(attributes: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return an attribute that is a list of objects; `MetadataError` for any other."""
    value = attributes[name]
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise bad_attribute(name, value, "a list of objects")
    return value


def bad_attribute(field: str, got: Any, expected: str) -> MetadataError:
    """Return the error of an attribute that contradicts its specification."""
    return MetadataError(key="attributes", field=field, got=got, expected=expected)


def is_number(value: Any) -> bool:
    """Return whether a value of JSON is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --------------------------------------------------------------------------------------------------------------------
# N5


def emit_n5_levels(image: Multiscale) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the attributes of the group and of each level's array, as N5-viewer and COSEM's readers take them."""
    first = image.levels[0]
    unit = unit_symbol(next((axis.unit for axis in reversed(image.axes) if axis.type == "space"), None))
    in_unit = [length_in(unit, axis.unit) if axis.type == "space" else 1.0 for axis in image.axes]
    lengths = [length * factor for length, factor in zip(first.scale, in_unit, strict=True)]
    below: dict[str, dict[str, Any]] = {}
    datasets = []
    for level in image.levels:
        transform = emit_transform(image.axes, level)
        factors = [round(a / b) for a, b in zip(level.scale, first.scale, strict=True)]
        below[level.path] = {
            "downsamplingFactors": factors[::-1],
            "pixelResolution": {"dimensions": lengths[::-1], "unit": unit},
            "transform": transform,
        }
        datasets.append({"path": level.path, "transform": transform})
    group = {
        "multiscales": [{"name": image.name or "", "datasets": datasets}],
        "scales": [each["downsamplingFactors"] for each in below.values()],
        "pixelResolution": below[first.path]["pixelResolution"],
    }
    units = {axis.unit for axis in image.axes}
    if len(units) > 1 or any(axis.type != "space" for axis in image.axes):  # Neuroglancer: else one unit for all axes
        group["axes"] = [axis.name for axis in reversed(image.axes)]
        group["units"] = [unit_symbol(axis.unit) for axis in reversed(image.axes)]
        group["resolution"] = list(first.scale)[::-1]
    return group, below


def without_level(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of an array but those that place it among levels, for one that is described again."""
    left_out = {*_OF_LEVELS, "units"} if isinstance(attributes.get("units"), list) else _OF_LEVELS
    return {name: value for name, value in attributes.items() if name not in left_out}


def emit_transform(axes: Sequence[Axis], level: Level) -> dict[str, Any]:
    """Return the attribute ``transform`` of an array that is a level, as COSEM has it."""
    return {
        "axes": [axis.name for axis in axes],
        "units": [unit_symbol(axis.unit) for axis in axes],
        "scale": list(level.scale),
        "translate": list(level.translation),
    }


def parse_level(
    attributes: Mapping[str, Any], n_axes: int, names: Sequence[str | None] | None = None
) -> Multiscale | None:
    """Return the image of one level that the attributes of an array describe; ``None`` where they describe none.

    Examples
    --------
    >>> parse_level({"pixelResolution": {"dimensions": [1, 4], "unit": "nm"}}, 2).levels
    (Level(path='', scale=(4.0, 1.0), translation=(0.0, 0.0)),)
    """
    transform = attributes.get("transform")
    if isinstance(transform, Mapping) and "scale" in transform:
        image = parse_cosem({"datasets": [{"path": "", "transform": transform}]})
        return image if len(image.axes) == n_axes else None
    if "pixelResolution" not in attributes:
        return _tensorstore(attributes, n_axes, names)
    spacing, unit = _resolution({}, attributes, n_axes)
    return Multiscale(_n5_axes(n_axes, unit), (Level("", spacing, (0.0,) * n_axes),), "n5-viewer")


def _tensorstore(attributes: Mapping[str, Any], n_axes: int, names: Sequence[str | None] | None) -> Multiscale | None:
    """Read TensorStore's ``resolution`` and ``units``: a number and a unit for each axis, the fastest first."""
    scale, units = attributes.get("resolution"), attributes.get("units")
    if not (isinstance(scale, list) and isinstance(units, list) and n_axes == len(scale) == len(units)):
        return None
    if not all(is_number(n) and n > 0 for n in scale) or not all(isinstance(unit, str) for unit in units):
        return None
    called = [name or other for name, other in zip(names or _names(n_axes), _names(n_axes), strict=True)]
    axes = (Axis(name, axis_type(name), canonical_unit(u)) for name, u in zip(called, units[::-1], strict=True))
    level = Level("", tuple(map(float, scale[::-1])), (0.0,) * n_axes)
    return Multiscale(tuple(axes), (level,), "tensorstore")


def parse_cosem(stored: Mapping[str, Any]) -> Multiscale:
    """Read the draft that COSEM wrote before OME-Zarr 0.4: a transform for each level, C order unless it says F."""
    levels = []
    axes: tuple[Axis, ...] = ()
    for dataset in listed(stored, "datasets"):
        transform, path = dataset.get("transform"), dataset.get("path")
        if not isinstance(transform, Mapping) or not isinstance(path, str):
            raise bad_attribute("multiscales", dataset, "path and transform")
        step = -1 if transform.get("order") == "F" else 1
        scale = _numbers(transform, "scale")[::step]
        names = list(transform.get("axes") or _names(len(scale)))[::step]
        units = list(transform.get("units") or [None] * len(scale))[::step]
        axes = axes or tuple(
            Axis(str(n), axis_type(str(n)), canonical_unit(None if u is None else str(u)))
            for n, u in zip(names, units, strict=False)
        )
        levels.append(Level(path, scale, _numbers(transform, "translate", len(scale))[::step]))
    return Multiscale(axes, tuple(levels), "cosem", stored.get("name"))


def parse_n5(attributes: Mapping[str, Any], children: Children) -> Multiscale | None:
    """Read N5-viewer's and BigDataViewer's attributes: factors of all levels in the group, or of each in its array."""
    listed = attributes.get("downsamplingFactors", attributes.get("scales"))
    by_level = listed if isinstance(listed, list) and all(isinstance(each, list) for each in listed) else []
    hints = by_level or "pixelResolution" in attributes or "multiScale" in attributes
    below = children(_is_level)
    described = hints or attributes.keys() & {"resolution", "dataType"}
    if not described and (
        "s0" not in below or not any(a.keys() & {"downsamplingFactors", "transform"} for _, a in below.values())
    ):
        return None
    names = sorted(below, key=lambda name: int(name[1:]))
    if not names or (len(names) == 1 and not hints):
        return None
    n_axes, first = below[names[0]]
    if "transform" in first:
        datasets = [{"path": n, "transform": below[n][1]["transform"]} for n in names if "transform" in below[n][1]]
        return parse_cosem({"datasets": datasets})
    spacing, unit = _resolution(attributes, first, n_axes)
    factors = []
    for number, name in enumerate(names):
        own = below[name][1].get("downsamplingFactors")
        if own is None and number < len(by_level):
            own = by_level[number]
        factors.append(_numbers({"downsamplingFactors": own or [1] * n_axes}, "downsamplingFactors", n_axes)[::-1])
    axes = _n5_axes(n_axes, unit)
    base = Level(names[0], spacing, (0.0,) * n_axes)
    levels = []
    for name, total in zip(names, factors, strict=True):
        scale = tuple(a * b for a, b in zip(spacing, total, strict=True))
        shift = tuple(a * (b - 1) / 2 for a, b in zip(spacing, total, strict=True))
        levels.append(replace(base, path=name, scale=scale, translation=shift))
    return Multiscale(axes, tuple(levels), "bdv" if "dataType" in attributes else "n5-viewer")


def _n5_axes(n: int, unit: str | None) -> tuple[Axis, ...]:
    typed = [(name, axis_type(name)) for name in _names(n)]
    return tuple(Axis(name, kind, canonical_unit(unit) if kind == "space" else None) for name, kind in typed)


def _is_level(name: str) -> bool:
    return name[:1] == "s" and name[1:].isdecimal()


def _names(n: int) -> tuple[str, ...]:
    return ("t", "c", *_SPATIAL)[5 - n :] if n <= 5 else tuple(f"d{i}" for i in range(n))  # noqa: PLR2004


def _resolution(
    group: Mapping[str, Any], first: Mapping[str, Any], n_axes: int
) -> tuple[tuple[float, ...], str | None]:
    """Return the length of a voxel of the first level, and its unit."""
    for attributes in (first, group):
        found: Any = attributes.get("pixelResolution", attributes.get("resolution"))
        unit: Any = None
        if isinstance(found, Mapping):
            found, unit = found.get("dimensions"), found.get("unit")
        if isinstance(found, list):
            # N5-viewer gives those of space alone where there are more axes
            spacing = _numbers({"pixelResolution": found}, "pixelResolution")[:n_axes]
            return (*spacing, *(1.0,) * (n_axes - len(spacing)))[::-1], unit if isinstance(unit, str) else None
    return (1.0,) * n_axes, None


def _numbers(stored: Mapping[str, Any], name: str, n: int | None = None) -> tuple[float, ...]:
    value = stored.get(name)
    if value is None and n is not None:
        return (0.0,) * n
    if not isinstance(value, list) or not all(map(is_number, value)) or (n is not None and len(value) != n):
        wanted = "numbers" if n is None else f"{n} numbers"
        raise bad_attribute(name, value, f"a list of {wanted}")
    return tuple(float(each) for each in value)
