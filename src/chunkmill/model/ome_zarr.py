"""Metadata of multiscale images in OME-Zarr: read in versions 0.1 to 0.6, written in 0.4, 0.5 and 0.6.

Version 0.6 is that of the specification's text 0.6rc0 of July 2026, whose schemas are those of the release. Pure
functions of attributes. Not here: conventions of N5 (`chunkmill.model.multiscales`).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chunkmill.errors import MetadataError, UnsupportedFeature
from chunkmill.model.multiscales import (
    Axis,
    Children,
    Level,
    Multiscale,
    Placement,
    axis_type,
    bad_attribute,
    canonical_unit,
    is_number,
    listed,
    parse_cosem,
    parse_n5,
)

OME_VERSIONS = ("0.4", "0.5", "0.6")
"""Versions that are written."""


def ome_version(stored: str) -> str | None:
    """Return the version to write what is stored in another one; ``None`` where it is not OME-Zarr.

    Examples
    --------
    >>> [ome_version(each) for each in ("0.2", "0.5-dev-spatialdata", "0.6rc0", "n5-viewer")]
    ['0.4', '0.5', '0.6', None]
    """
    if not stored.startswith("0."):
        return None
    return next((each for each in OME_VERSIONS[1:] if stored.startswith(each)), "0.4")


def parse_multiscales(attributes: Mapping[str, Any], children: Children) -> tuple[Multiscale, ...]:
    """Return the images that a group's attributes describe, in OME-Zarr or N5; none where they describe none.

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
        return tuple(
            _parse_image(each, str(ome.get("version", "0.5")), children) for each in listed(ome, "multiscales")
        )
    if "multiscales" in attributes:
        images = listed(attributes, "multiscales")
        if any("transform" in dataset for each in images for dataset in each.get("datasets", ())):
            return tuple(parse_cosem(each) for each in images)
        return tuple(_parse_image(each, str(each.get("version", "0.4")), children) for each in images)
    found = parse_n5(attributes, children)
    return () if found is None else (found,)


# --------------------------------------------------------------------------------------------------------------------
# Written


def emit_ome(
    images: Sequence[Multiscale], version: str, attributes: Mapping[str, Any], *, allow: Collection[str] = ()
) -> dict[str, Any]:
    """Return the attributes of a group with its images in a version of OME-Zarr.

    Other attributes are kept; those of OME-Zarr (``omero``, labels, plates, wells) move to where the version has them.

    Parameters
    ----------
    allow
        With ``"coordinate_systems"`` those are left out that the version cannot describe.

    Raises
    ------
    UnsupportedFeature
        OME-Zarr cannot say it: more than five axes, other than two or three of type space, or axes out of order;
        before 0.6 several coordinate systems.

    Examples
    --------
    >>> emit_ome([], "0.5", {"labels": ["cells"], "mine": 1})
    {'mine': 1, 'ome': {'version': '0.5', 'labels': ['cells']}}
    """
    before = attributes.get("ome")
    own = {name: attributes[name] for name in _OME if name in attributes}
    own |= {name: value for name, value in before.items() if name != "version"} if isinstance(before, Mapping) else {}
    replaced = {*_OME, "ome", *(_replaced(attributes) if images else ())}
    kept = {name: value for name, value in attributes.items() if name not in replaced}
    for image in images:
        check_coordinate_systems(image, version, allow)
    if version != "0.6" and own.pop("scene", None) is not None and "coordinate_systems" not in allow:
        raise _unsupported(version, "a scene, which places images in coordinate systems")
    if images:
        described = [_emit_image(image, version) for image in images]
        own = {"multiscales": described} | {name: value for name, value in own.items() if name != "multiscales"}
    if not own:
        return kept
    versioned = {name: _versioned(name, value, version) for name, value in own.items()}
    return kept | versioned if version == "0.4" else kept | {"ome": {"version": version} | versioned}


def _replaced(attributes: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of N5's attributes of images; with them, lists of axes and units, in N5's order of axes."""
    if _REPLACED.isdisjoint(attributes):
        return _REPLACED
    return _REPLACED | {name for name in ("axes", "units") if isinstance(attributes.get(name), list)}


def check_coordinate_systems(image: Multiscale, convention: str, allow: Collection[str]) -> None:
    """Raise `UnsupportedFeature` where the convention has one coordinate system, and the image more."""
    if "coordinate_systems" in allow or convention == "0.6":
        return
    if lost := [name for name in _other_systems(image) if name != image.system]:
        raise _unsupported(convention, f"the coordinate systems {', '.join(map(repr, lost))} of an image")


def _unsupported(convention: str, feature: str) -> UnsupportedFeature:
    hint = "OME-Zarr 0.6 describes them: give ome='0.6', or allow=['coordinate_systems'] to leave them out"
    return UnsupportedFeature(format=f"OME-Zarr {convention}".replace("OME-Zarr n5", "n5"), feature=feature, hint=hint)


def _emit_image(image: Multiscale, version: str) -> dict[str, Any]:
    _check_axes(image.axes)
    of_axes = {each["name"]: each for each in _own_axes(image.stored) if isinstance(each, Mapping) and "name" in each}
    axes = []
    for axis in image.axes:
        said = (("name", axis.name), ("type", axis.type), ("unit", canonical_unit(axis.unit)))
        axes.append({**of_axes.get(axis.name, {}), **{name: value for name, value in said if value is not None}})
    of_levels = {each.get("path"): each for each in image.stored.get("datasets", ()) if isinstance(each, Mapping)}
    name = _own_name(image.stored)
    datasets = []
    for level in image.levels:
        steps: list[dict[str, Any]] = [
            {"type": "scale", "scale": list(level.scale)},
            {"type": "translation", "translation": list(level.translation)},
        ]
        if version == "0.6":
            one = {"type": "sequence", "transformations": steps} if any(level.translation) else steps[0]
            steps = [{**one, "input": {"path": level.path}, "output": {"name": name}}]
        datasets.append({**of_levels.get(level.path, {}), "path": level.path, "coordinateTransformations": steps})
    kept = {each: value for each, value in image.stored.items() if each not in _OF_IMAGE}
    stored = {**kept, "datasets": datasets, **({"name": image.name} if image.name else {})}
    stored |= {} if image.method is None else {"type": image.method}
    if version != "0.6":
        return {"axes": axes, **stored}
    others = _other_systems(image)
    systems = {each: {"name": each, "axes": axes} if each == name else others[each] for each in (name, *others)}
    order = [each.get("name") for each in image.stored.get("coordinateSystems", ())] or list(systems)
    transformations = [_emit_transformation(each) for each in _alternatives(image.stored)]
    stored |= {"coordinateTransformations": transformations} if transformations else {}
    return {"coordinateSystems": [systems[each] for each in order], **stored}


def _emit_transformation(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a transformation between coordinate systems, which it names as 0.6 does."""
    ends = {name: stored[name] for name in ("input", "output") if name in stored}
    named = {
        name: {"name": end} if isinstance(end, str) else {each: end[each] for each in ("name", "path") if each in end}
        for name, end in ends.items()
    }
    nested = stored.get("transformations")
    steps = [{n: v for n, v in each.items() if n not in {"input", "output"}} for each in nested or ()]
    return {**stored, **named, **({"transformations": steps} if nested else {})}


def _versioned(name: str, value: Any, version: str) -> Any:
    """Return a member with its version; images have one of their own in 0.4 only."""
    if isinstance(value, list) and name == "multiscales":
        return [{"version": version, **each} for each in value] if version == "0.4" else value
    if name not in {"image-label", "plate", "well"} or not isinstance(value, Mapping):
        return value
    return {**value, "version": version}


_OME = ("multiscales", "omero", "labels", "image-label", "plate", "well", "bioformats2raw.layout", "series", "scene")
"""Members of OME-Zarr: attributes in 0.4, members of ``ome`` later."""

_OF_IMAGE = frozenset({"axes", "datasets", "name", "type", "version", "coordinateSystems", "coordinateTransformations"})

_REPLACED = frozenset({"downsamplingFactors", "scales", "pixelResolution", "resolution"})

_ORDER = {"time": 0, "channel": 1, None: 1, "space": 2}


def _check_axes(axes: Sequence[Axis]) -> None:
    n_space = sum(axis.type == "space" for axis in axes)
    rank = [_ORDER.get(axis.type, 1) for axis in axes]
    n_others = sum(each == 1 for each in rank)
    if 2 <= n_space <= 3 and n_others <= 1 and rank == sorted(rank) and sum(a.type == "time" for a in axes) <= 1:  # noqa: PLR2004
        return
    shown = ", ".join(f"{axis.name} ({axis.type})" for axis in axes)
    hint = (
        "it has at most one axis of time, then one of channels, then two or three of space; transpose the array, "
        "or give ome=None to write none"
    )
    raise UnsupportedFeature(format="OME-Zarr", feature=f"axes {shown}" if axes else "0-d arrays", hint=hint)


# --------------------------------------------------------------------------------------------------------------------
# Read


def _parse_image(stored: Mapping[str, Any], version: str, children: Children) -> Multiscale:
    datasets = [_with_path(each) for each in (listed(stored, "datasets") if "datasets" in stored else [])]
    if not datasets or not all(isinstance(each.get("path"), str) for each in datasets):
        raise bad_attribute("multiscales", datasets, "datasets, each with a path")
    axes = _axes(stored, datasets, children)
    n, alternatives = len(axes), _alternatives(stored)
    own_name = _own_name(stored)
    own = tuple(_placement(_to_own_system(dataset), n) for dataset in datasets)
    matrices: dict[str, Matrix] = {}
    system = None
    for each in alternatives:
        with suppress(MetadataError):
            matrices |= _reached(each, own_name, n)
    # what names no coordinate system is of all levels
    whole = _placement([each for each in _listed_transformations(stored) if each not in alternatives], n)
    own = tuple(_within(level, whole) for level in own)
    diagonal = {name: found for name, each in matrices.items() if (found := _diagonal(each, n))}
    systems = {name: tuple(_within(level, outer) for level in own) for name, outer in diagonal.items()}
    if alternatives and "coordinateSystems" not in stored:  # else the levels have a named system of their own
        system = _chosen_system([_system(each.get("output")) for each in alternatives], systems)
    placed = zip(datasets, own if system is None else systems[system], strict=True)
    levels = tuple(Level(dataset["path"], *each) for dataset, each in placed)
    named = stored.get("name") if isinstance(stored.get("name"), str) else None
    affines = {name: tuple(map(tuple, matrix[:-1].tolist())) for name, matrix in matrices.items()}
    return Multiscale(axes, levels, version, named, stored.get("type"), system, systems, affines, own, stored)


def _with_path(dataset: Mapping[str, Any]) -> Mapping[str, Any]:
    if type(path := dataset.get("path")) is not int:
        return dataset
    warnings.warn("the path of a level is a number, read as text", UserWarning, stacklevel=2)  # ez_zarr
    return {**dataset, "path": str(path)}


def _axes(stored: Mapping[str, Any], datasets: Sequence[Mapping[str, Any]], children: Children) -> tuple[Axis, ...]:
    if "axes" in stored or "coordinateSystems" in stored:
        return tuple(_axis(each) for each in _own_axes(stored))
    # 0.1 and 0.2: always all five, of which readers take the last where there are fewer
    first = datasets[0]["path"]
    n, _ = children(lambda name: name == first).get(first, (5, {}))
    return tuple(_axis(name) for name in "tczyx"[5 - n :])


def _own_axes(stored: Mapping[str, Any]) -> Sequence[Any]:
    """Return the axes of the levels' own coordinate system."""
    if "coordinateSystems" not in stored:
        return stored.get("axes") or ()
    name, systems = _own_name(stored), listed(stored, "coordinateSystems")
    found = next((each for each in systems if each.get("name") == name), systems[0] if systems else {})
    return listed({"axes": [], **found}, "axes")


def without_levels(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an image as it is stored says of coordinate systems and axes, for other levels."""
    kept = {name: stored[name] for name in ("axes", "coordinateSystems", "coordinateTransformations") if name in stored}
    own = {"coordinateTransformations": [{"output": {"name": _own_name(stored)}}]}
    return {**kept, "datasets": [own]} if "coordinateSystems" in stored else kept


def _own_name(stored: Mapping[str, Any]) -> str:
    """Return the name of the levels' own coordinate system, where their transformations lead."""
    if "coordinateSystems" in stored:
        first = next((each for each in stored.get("datasets", ()) if isinstance(each, Mapping)), {})
        known = [each for each in (first, *_listed_transformations(first)) if isinstance(each, Mapping)]
        names = [_system(each.get("output")) for each in known]
    else:
        names = [_system(each.get("input")) for each in _alternatives(stored)]
    return next(filter(None, names), "physical")


def _listed_transformations(stored: Mapping[str, Any]) -> Sequence[Any]:
    found = stored.get("coordinateTransformations") or ()
    return found if isinstance(found, list) else ()


def _alternatives(stored: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the transformations to other coordinate systems, as OME-Zarr 0.6 and SpatialData have them."""
    found = _listed_transformations(stored)
    return [each for each in found if isinstance(each, Mapping) and _system(each.get("output"))]


def _to_own_system(dataset: Mapping[str, Any]) -> Sequence[Any]:
    """Return the transformations of a level, which lead to one coordinate system; `MetadataError` for several."""
    if len({_system(each["output"]) for each in _alternatives(dataset)}) > 1:
        raise bad_attribute("datasets", dataset, "transformations of a level to one coordinate system")
    return _listed_transformations(dataset)


def _other_systems(image: Multiscale) -> dict[str, Mapping[str, Any]]:
    """Return the coordinate systems of an image but the levels' own, by name."""
    stored, own = image.stored, _own_name(image.stored)
    if "coordinateSystems" in stored:
        systems = {str(each.get("name")): each for each in stored["coordinateSystems"]}
    else:  # of SpatialData, which describes them where they are named
        ends = [each["output"] for each in _alternatives(stored)]
        axes = _own_axes(stored)
        systems = {_system(end): {"name": _system(end), "axes": dict(end).get("axes", axes)} for end in ends}
    return {name: each for name, each in systems.items() if name != own}


def _system(end: Any) -> str:
    """Return the name of a coordinate system that a transformation begins or ends at; "" where it does not say."""
    name = end.get("name") if isinstance(end, Mapping) else end
    return name if isinstance(name, str) else ""


def _chosen_system(outputs: Sequence[str], systems: Mapping[str, Any]) -> str | None:
    """Return ``"global"``, or the only coordinate system; ``None`` for the voxels of the first level."""
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
        raise bad_attribute("axes", stored, "an axis with a name")
    unit = stored.get("unit")
    return Axis(stored["name"], stored.get("type"), canonical_unit(unit if isinstance(unit, str) else None))


def _reached(stored: Mapping[str, Any], own: str, n: int) -> dict[str, Matrix]:
    """Return the system that a transformation connects with the levels' own, and the matrix to it, if there is one."""
    ends = stored.get("input"), stored.get("output")
    if any(isinstance(end, Mapping) and end.get("path") for end in ends):  # a system of labels
        return {}
    matrix: Any = _matrix(stored, n)
    start, end = map(_system, ends)
    if matrix is not None and end == own and start != own:
        end = start
        try:
            matrix = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            return {}
    return {} if matrix is None else {end: matrix}


Matrix: TypeAlias = NDArray[np.float64]
"""Transformation of points in homogeneous coordinates: the last row is of zeros and a one."""


def _matrix(stored: Mapping[str, Any], n: int) -> Matrix | None:
    """Return the matrix of a transformation of points of `n` axes; ``None`` where it is none, or in an array."""
    kind, matrix = stored.get("type"), np.eye(n + 1)
    values = stored.get(kind) if isinstance(kind, str) else None
    rows = values if isinstance(values, list) else []
    if kind in {"identity", "sequence"}:
        for each in listed({"transformations": [], **stored}, "transformations"):
            if (step := _matrix(each, len(matrix) - 1)) is None:
                return None
            matrix = (step[:, :, None] * matrix).sum(axis=1)  # as `@`, but rounded alike by every processor
    elif kind in {"scale", "translation"}:
        if len(rows) != n or not all(map(is_number, rows)):
            raise bad_attribute("coordinateTransformations", stored, f"scale or translation by {n} numbers")
        matrix[range(n), range(n) if kind == "scale" else n] = rows
    elif kind == "mapAxis" and sorted(rows) == list(range(n)):
        matrix = matrix[[*rows, n]]
    else:
        width = n + (kind == "affine")
        is_table = all(isinstance(row, list) and len(row) == width and all(map(is_number, row)) for row in rows)
        if kind not in {"affine", "rotation"} or not rows or not is_table:
            return None
        matrix = np.zeros((len(rows) + 1, n + 1))
        matrix[:-1, :width], matrix[-1, -1] = rows, 1
    return matrix


def _diagonal(matrix: Matrix | None, n: int) -> Placement | None:
    """Return a matrix as scale and translation; ``None`` where it is more than that."""
    if matrix is None or matrix.shape != (n + 1, n + 1):
        return None
    scale, offset = matrix.diagonal()[:n], matrix[:n, n]
    if (matrix[:n, :n] != np.diag(scale)).any():
        return None
    return tuple(scale.tolist()), tuple(offset.tolist())


def _placement(transformations: Sequence[Any], n: int) -> Placement:
    """Return scale and translation of transformations that follow each other."""
    found = _diagonal(_matrix({"type": "sequence", "transformations": list(transformations)}, n), n)
    if found is None:
        raise bad_attribute("coordinateTransformations", transformations, f"scale or translation by {n} numbers")
    return found


def _within(inner: Placement, outer: Placement) -> Placement:
    """Return where a level is after the transformation `outer`."""
    scale = tuple(a * b for a, b in zip(inner[0], outer[0], strict=True))
    return scale, tuple(a * b + c for a, b, c in zip(inner[1], outer[0], outer[1], strict=True))
