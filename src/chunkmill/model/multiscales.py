"""Metadata of multiscale images: which arrays are levels of one image, their axes, and the size of their voxels.

Read: OME-Zarr 0.1 to 0.6, N5-viewer, BigDataViewer, COSEM (OpenOrganelle). Written: OME-Zarr 0.4 and 0.5, N5-viewer
with COSEM. Everything here is in the order of numpy's axes; N5's own attributes are fastest axis first. Pure functions
of attributes. Not here: opening the levels (`chunkmill.nodes.multiscales`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.units import canonical_unit, unit_symbol

__all__ = [
    "OF_LEVELS",
    "Axis",
    "Level",
    "Multiscale",
    "axis_type",
    "emit_n5_levels",
    "emit_ome",
    "emit_transform",
    "moved_level",
    "parse_level",
    "parse_multiscales",
    "reduced_level",
]

_TYPES = {"t": "time", "time": "time", "c": "channel", "channel": "channel"}
_SPATIAL = ("z", "y", "x")


Placement: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
"""Scale and translation of a level."""


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
    """

    axes: tuple[Axis, ...]
    levels: tuple[Level, ...]
    version: str
    name: str | None = None
    method: str | None = None
    system: str | None = None
    systems: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)


Children: TypeAlias = Callable[[Callable[[str], bool]], Mapping[str, tuple[int, Mapping[str, Any]]]]
"""Function that returns rank and attributes of the arrays directly below a group whose names are accepted."""


def axis_type(name: str) -> str:
    """Return the type of an axis that only its name describes."""
    return _TYPES.get(name.lower(), "space")


def parse_multiscales(attributes: Mapping[str, Any], children: Children) -> tuple[Multiscale, ...]:
    """Return the images that a group's attributes describe; none where they describe none.

    Parameters
    ----------
    attributes
        Of the group.
    children
        Called where the group's attributes do not suffice, for arrays with the names of levels.

    `MetadataError` says which attribute contradicts its specification, and how.

    Examples
    --------
    >>> ome = {"version": "0.5", "multiscales": [{
    ...     "axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
    ...     "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [0.5, 0.25]}]}],
    ... }]}
    >>> (image,) = parse_multiscales({"ome": ome}, lambda accepts: {})
    >>> image.levels[0].scale, image.version
    ((0.5, 0.25), '0.5')
    """
    ome = attributes.get("ome")
    if isinstance(ome, Mapping) and "multiscales" in ome:
        return tuple(_ome(each, str(ome.get("version", "0.5")), children) for each in _listed(ome, "multiscales"))
    if "multiscales" in attributes:
        listed = _listed(attributes, "multiscales")
        if any("transform" in dataset for each in listed for dataset in each.get("datasets", ())):
            return tuple(_cosem(each) for each in listed)
        return tuple(_ome(each, str(each.get("version", "0.4")), children) for each in listed)
    found = _n5(attributes, children)
    return () if found is None else (found,)


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


# --------------------------------------------------------------------------------------------------------------------
# OME-Zarr


def emit_ome(images: Sequence[Multiscale], version: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a group with its images in OME-Zarr 0.4 or 0.5.

    Other attributes are kept; those of OME-Zarr (``omero``, labels, plates, wells) move to where the version has them.

    Raises
    ------
    UnsupportedFeature
        OME-Zarr cannot say it: more than five axes, other than two or three of type space, or axes out of order.

    Examples
    --------
    >>> emit_ome([], "0.5", {"labels": ["cells"], "mine": 1})
    {'mine': 1, 'ome': {'version': '0.5', 'labels': ['cells']}}
    """
    before = attributes.get("ome")
    own = {name: attributes[name] for name in _OME if name in attributes}
    own |= {name: value for name, value in before.items() if name != "version"} if isinstance(before, Mapping) else {}
    replaced = {*_OME, "ome", *(_REPLACED if images else ())}
    kept = {name: value for name, value in attributes.items() if name not in replaced}
    if images:
        own = {"multiscales": [_emit_image(image) for image in images]} | {
            name: value for name, value in own.items() if name != "multiscales"
        }
    if not own:
        return kept
    versioned = {name: _versioned(name, value, version) for name, value in own.items()}
    return kept | versioned if version == "0.4" else kept | {"ome": {"version": version} | versioned}


def _emit_image(image: Multiscale) -> dict[str, Any]:
    _check_ome_axes(image.axes)
    axes = [
        {
            name: value
            for name, value in (("name", a.name), ("type", a.type), ("unit", canonical_unit(a.unit)))
            if value is not None
        }
        for a in image.axes
    ]
    datasets = [
        {
            "path": level.path,
            "coordinateTransformations": [
                {"type": "scale", "scale": list(level.scale)},
                {"type": "translation", "translation": list(level.translation)},
            ],
        }
        for level in image.levels
    ]
    stored: dict[str, Any] = {"axes": axes, "datasets": datasets, "name": image.name or "/"}
    return stored if image.method is None else stored | {"type": image.method}


def _versioned(name: str, value: Any, version: str) -> Any:
    """Return a member with its version; images have one of their own in 0.4 only."""
    if name == "multiscales" and isinstance(value, list):
        plain = [{n: v for n, v in each.items() if n != "version"} for each in value]
        return [{"version": version, **each} for each in plain] if version == "0.4" else plain
    if name not in {"image-label", "plate", "well"} or not isinstance(value, Mapping):
        return value
    return {**value, "version": version}


_OME = ("multiscales", "omero", "labels", "image-label", "plate", "well", "bioformats2raw.layout", "series")
"""Members of OME-Zarr: attributes in 0.4, members of ``ome`` in 0.5."""

_REPLACED = frozenset({"downsamplingFactors", "scales", "pixelResolution", "resolution"})

OF_LEVELS = frozenset({"downsamplingFactors", "pixelResolution", "resolution", "transform"})
"""Attributes of an array that say where its level stands: where the level is described again, they are left out."""

_ORDER = {"time": 0, "channel": 1, None: 1, "space": 2}


def _check_ome_axes(axes: Sequence[Axis]) -> None:
    n_space = sum(axis.type == "space" for axis in axes)
    rank = [_ORDER.get(axis.type, 1) for axis in axes]
    n_others = sum(each == 1 for each in rank)
    if 2 <= n_space <= 3 and n_others <= 1 and rank == sorted(rank) and sum(a.type == "time" for a in axes) <= 1:  # noqa: PLR2004
        return
    shown = ", ".join(f"{axis.name} ({axis.type})" for axis in axes)
    hint = (
        "it has at most one axis of time, then one of channels, then two or three of space; give ome=None to write none"
    )
    raise UnsupportedFeature(format="OME-Zarr", feature=f"axes {shown}" if axes else "0-d arrays", hint=hint)


def _listed(attributes: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = attributes[name]
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise _bad(name, value, "a list of objects")
    return value


def _ome(stored: Mapping[str, Any], version: str, children: Children) -> Multiscale:
    datasets = [_with_path(each) for each in (_listed(stored, "datasets") if "datasets" in stored else [])]
    if not datasets or not all(isinstance(each.get("path"), str) for each in datasets):
        raise _bad("multiscales", datasets, "datasets, each with a path")
    axes = _ome_axes(stored, datasets, children)
    unit = (1.0,) * len(axes), (0.0,) * len(axes)
    own = [_transformed(dataset.get("coordinateTransformations") or (), unit) for dataset in datasets]
    systems: dict[str, tuple[Placement, ...]] = {}
    others, whole, system = stored.get("coordinateTransformations") or (), unit, None
    outputs = [_output(each) for each in others]
    if any(outputs):  # alternatives, as SpatialData and OME-Zarr 0.6 have them
        for each, output in zip(others, outputs, strict=True):
            with suppress(MetadataError):
                found = _transformed([each], unit)
                systems[output] = tuple(_within(level, found) for level in own)
        system = _chosen_system(outputs, systems, stored)
    else:
        whole = _transformed(others, unit)
    placed = systems[system] if system is not None else [_within(level, whole) for level in own]
    levels = tuple(Level(dataset["path"], *each) for dataset, each in zip(datasets, placed, strict=True))
    name = stored.get("name")
    named = name if isinstance(name, str) else None
    return Multiscale(axes, levels, version, named, stored.get("type"), system, systems)


def _with_path(dataset: Mapping[str, Any]) -> Mapping[str, Any]:
    if type(path := dataset.get("path")) is not int:
        return dataset
    warnings.warn("the path of a level is a number, read as text", UserWarning, stacklevel=2)  # ez_zarr
    return {**dataset, "path": str(path)}


def _ome_axes(stored: Mapping[str, Any], datasets: Sequence[Mapping[str, Any]], children: Children) -> tuple[Axis, ...]:
    if "axes" in stored:
        return tuple(_axis(each) for each in stored["axes"])
    if "coordinateSystems" in stored:  # 0.6: the axes are those of the system that the levels are placed in
        systems = _listed(stored, "coordinateSystems")
        wanted = [_output(each) for each in datasets[0].get("coordinateTransformations") or ()]
        found = next((each for each in systems if each.get("name") in wanted), systems[0] if systems else {})
        return tuple(_axis(each) for each in _listed({"axes": [], **found}, "axes"))
    # 0.1 and 0.2: always all five, of which readers take the last where there are fewer
    first = datasets[0]["path"]
    n, _ = children(lambda name: name == first).get(first, (5, {}))
    return tuple(_axis(name) for name in "tczyx"[5 - n :])


def _output(transformation: Any) -> str:
    """Return the name of the coordinate system that a transformation leads to; "" where it does not say."""
    output = transformation.get("output") if isinstance(transformation, Mapping) else None
    name = output.get("name") if isinstance(output, Mapping) else output
    return name if isinstance(name, str) else ""


def _chosen_system(outputs: Sequence[str], systems: Mapping[str, Any], stored: Mapping[str, Any]) -> str | None:
    """Return ``"global"``, or the only coordinate system; ``None`` for the voxels of the first level."""
    if "coordinateSystems" in stored:  # where the levels have a system of their own
        return None
    wanted = "global" if "global" in outputs else outputs[0]
    if wanted in systems and (wanted == "global" or len(outputs) == 1):
        return wanted
    text = (
        f"the coordinate systems of an image are {', '.join(outputs)[:200]}, those that scale and translation reach: "
        f"{', '.join(systems)[:200] or 'none'}; its levels are in voxels of the first, `within(name)` chooses another"
    )
    warnings.warn(text, UserWarning, stacklevel=2)
    return None


def _axis(stored: Any) -> Axis:
    if isinstance(stored, str):
        return Axis(stored, axis_type(stored))
    if not isinstance(stored, Mapping) or not isinstance(stored.get("name"), str):
        raise _bad("axes", stored, "an axis with a name")
    unit = stored.get("unit")
    return Axis(stored["name"], stored.get("type"), canonical_unit(unit if isinstance(unit, str) else None))


def _transformed(transformations: Sequence[Any], start: Placement) -> Placement:
    """Apply coordinate transformations in their order."""
    scale, translation = start
    for each in transformations:
        kind = each.get("type") if isinstance(each, Mapping) else None
        if kind == "identity":
            continue
        if kind == "sequence":
            scale, translation = _transformed(
                _listed({"transformations": [], **each}, "transformations"), (scale, translation)
            )
            continue
        values = each.get(kind) if kind in {"scale", "translation"} else None
        if not isinstance(values, list) or len(values) != len(scale) or not all(map(_is_number, values)):
            raise _bad("coordinateTransformations", each, f"scale or translation by {len(scale)} numbers")
        if kind == "scale":
            scale = tuple(a * b for a, b in zip(scale, values, strict=True))
            translation = tuple(a * b for a, b in zip(translation, values, strict=True))
        else:
            translation = tuple(a + b for a, b in zip(translation, values, strict=True))
    return scale, translation


def _within(inner: Placement, outer: Placement) -> Placement:
    """Return where a level is after the transformation `outer`."""
    scale = tuple(a * b for a, b in zip(inner[0], outer[0], strict=True))
    return scale, tuple(a * b + c for a, b, c in zip(inner[1], outer[0], outer[1], strict=True))


def _bad(field: str, got: Any, expected: str) -> MetadataError:
    return MetadataError(key="attributes", field=field, got=got, expected=expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --------------------------------------------------------------------------------------------------------------------
# N5


def emit_n5_levels(image: Multiscale) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the attributes of the group and of each level's array, as N5-viewer and COSEM's readers take them."""
    first = image.levels[0]
    unit = unit_symbol(next((axis.unit for axis in reversed(image.axes) if axis.type == "space"), None))
    below: dict[str, dict[str, Any]] = {}
    datasets = []
    for level in image.levels:
        transform = emit_transform(image.axes, level)
        factors = [round(a / b) for a, b in zip(level.scale, first.scale, strict=True)]
        below[level.path] = {
            "downsamplingFactors": factors[::-1],
            "pixelResolution": {"dimensions": list(first.scale)[::-1], "unit": unit},
            "transform": transform,
        }
        datasets.append({"path": level.path, "transform": transform})
    group = {
        "multiscales": [{"name": image.name or "", "datasets": datasets}],
        "scales": [each["downsamplingFactors"] for each in below.values()],
        "pixelResolution": below[first.path]["pixelResolution"],
    }
    return group, below


def emit_transform(axes: Sequence[Axis], level: Level) -> dict[str, Any]:
    """Return the attribute ``transform`` of an array that is a level, as COSEM has it."""
    return {
        "axes": [axis.name for axis in axes],
        "units": [unit_symbol(axis.unit) for axis in axes],
        "scale": list(level.scale),
        "translate": list(level.translation),
    }


def parse_level(attributes: Mapping[str, Any], n_axes: int) -> Multiscale | None:
    """Return the image of one level that the attributes of an array describe; ``None`` where they describe none.

    Examples
    --------
    >>> parse_level({"pixelResolution": {"dimensions": [1, 4], "unit": "nm"}}, 2).levels
    (Level(path='', scale=(4.0, 1.0), translation=(0.0, 0.0)),)
    """
    transform = attributes.get("transform")
    if isinstance(transform, Mapping) and "scale" in transform:
        image = _cosem({"datasets": [{"path": "", "transform": transform}]})
        return image if len(image.axes) == n_axes else None
    if "pixelResolution" not in attributes:
        return None
    spacing, unit = _resolution({}, attributes, n_axes)
    return Multiscale(_n5_axes(n_axes, unit), (Level("", spacing, (0.0,) * n_axes),), "n5-viewer")


def _cosem(stored: Mapping[str, Any]) -> Multiscale:
    """Read the draft that COSEM wrote before OME-Zarr 0.4: a transform for each level, C order unless it says F."""
    levels = []
    axes: tuple[Axis, ...] = ()
    for dataset in _listed(stored, "datasets"):
        transform, path = dataset.get("transform"), dataset.get("path")
        if not isinstance(transform, Mapping) or not isinstance(path, str):
            raise _bad("multiscales", dataset, "path and transform")
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


def _n5(attributes: Mapping[str, Any], children: Children) -> Multiscale | None:
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
        return _cosem({"datasets": datasets})
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
    if not isinstance(value, list) or not all(map(_is_number, value)) or (n is not None and len(value) != n):
        wanted = "numbers" if n is None else f"{n} numbers"
        raise _bad(name, value, f"a list of {wanted}")
    return tuple(float(each) for each in value)
