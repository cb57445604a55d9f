"""Multiscale images: which arrays are levels of one image, their axes, units, and voxels; N5's attributes.

Read: N5-viewer, BigDataViewer, COSEM (OpenOrganelle), Paintera, TensorStore. Written: N5-viewer with COSEM. All is in
the order of numpy's axes; N5's own attributes are fastest axis first. Units have one name each, as UDUNITS and OME-Zarr
have it, and the symbol that N5's viewers parse; one that the table does not have is kept as it is stored. Pure
functions of attributes. Not here: OME-Zarr (`chunkmill.model.ome_zarr`), opening the levels
(`chunkmill.nodes.group`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from chunkmill.errors import MetadataError

_OF_LEVELS = frozenset({"downsamplingFactors", "pixelResolution", "resolution", "transform"})

_TYPES = {"t": "time", "time": "time", "c": "channel", "channel": "channel"}


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


def image_name(name: str | None, path: str, url: str) -> str:
    """Return the name of an image; of one that has none, of the last part of its path or url that numbers no level.

    Examples
    --------
    >>> image_name("/", "em/cells/s0", ""), image_name(None, "0", "memory://lab/brain.ome.zarr")
    ('cells', 'brain')
    >>> image_name(None, "0", "memory://s0")
    'image'
    """
    if name not in {None, "", "/"}:
        return str(name)
    for part in reversed([*url.rpartition("://")[2].rstrip("/").split("/"), *path.split("/")]):
        for suffix in (".ozx", ".zip", ".zarr", ".n5", ".ome"):
            part = part.removesuffix(suffix)  # noqa: PLW2901
        if part and not (part.isdecimal() or _is_level(part)):
            return part
    return "image"


def reduced_level(level: Level, path: str, total: Sequence[float], *, averages: bool) -> Level:
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
    lists = {name for name in ("units", "offset") if isinstance(attributes.get(name), list)}
    unit = {"unit"} if isinstance(attributes.get("resolution"), list) else set()
    return {name: value for name, value in attributes.items() if name not in _OF_LEVELS | lists | unit}


def emit_transform(axes: Sequence[Axis], level: Level) -> dict[str, Any]:
    """Return the attribute ``transform`` of an array that is a level, as COSEM has it."""
    return {
        "axes": [axis.name for axis in axes],
        "units": [unit_symbol(axis.unit) for axis in axes],
        "scale": list(level.scale),
        "translate": list(level.translation),
    }


class _Voxels(NamedTuple):
    """Voxels as attributes describe them, slowest axis first: not yet reduced; no `offset` where none is stored."""

    axes: tuple[Axis, ...]
    lengths: tuple[float, ...]
    offset: tuple[float, ...] | None
    version: str


def parse_level(
    attributes: Mapping[str, Any],
    n_axes: int,
    names: Sequence[str | None] | None = None,
    *,
    path: str = "",
    is_n5: bool = True,
    warns: bool = True,
) -> Multiscale | None:
    """Return the image of one level that the attributes of an array describe; ``None`` where they describe none.

    An attribute that has the form of a place, and is not understood, is named by a warning.

    Parameters
    ----------
    path
        Of the array: the name of a level tells its factors where nothing else does.
    is_n5
        Whether the array is of N5; in other formats nothing tells the order of axes of ``resolution`` and ``offset``.
    warns
        ``False`` where all attributes are kept as they are, whatever they mean.

    Examples
    --------
    >>> parse_level({"resolution": [1, 4], "offset": [7, 8], "unit": "nm"}, 2).levels
    (Level(path='', scale=(4.0, 1.0), translation=(8.0, 7.0)),)
    """
    known = attributes if is_n5 else self_described(attributes)
    voxels = _voxels(known, n_axes, names)
    if voxels is None and is_n5 and _factors(attributes, n_axes) is not None:
        voxels = _Voxels(_n5_axes(n_axes, None, names), (1.0,) * n_axes, None, "n5")
    if warns:
        _warn_of_unread(attributes, None if voxels is None else voxels.version, path)
    if voxels is None:
        return None
    level = _placed("", voxels, voxels.offset, _factors_of(attributes, voxels, path.rpartition("/")[2], None))
    return Multiscale(voxels.axes, (level,), voxels.version)


def self_described(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without those of N5 that other formats have in another order of axes."""
    return {name: value for name, value in attributes.items() if name not in {"resolution", "offset"}}


def _voxels(
    attributes: Mapping[str, Any], n: int, names: Sequence[str | None] | None = None, *, shared: bool = False
) -> _Voxels | None:
    """Read the voxels of a dataset, in the order of n5-universe's readers; `shared`: of the group of the levels."""
    transform = attributes.get("transform")
    if isinstance(transform, Mapping) and "scale" in transform:
        image = parse_cosem({"datasets": [{"path": "", "transform": transform}]})
        first = image.levels[0]
        return _Voxels(image.axes, first.scale, first.translation, "cosem") if len(image.axes) == n else None
    found = attributes.get("pixelResolution")
    if found is not None:
        unit = found.get("unit") if isinstance(found, Mapping) else None
        found = found.get("dimensions") if isinstance(found, Mapping) else found
        # N5-viewer gives those of space alone where there are more axes
        lengths = _padded(_numbers({"pixelResolution": found}, "pixelResolution")[:n], n)
        return _Voxels(_n5_axes(n, unit, names), lengths, None, "n5-viewer")
    steps = _each(attributes, "resolution", n, shared=shared)
    offset = _each(attributes, "offset", n, shared=shared)
    if steps is not None and min(steps) <= 0:
        steps = None
    if steps is None and (offset is None or "resolution" in attributes):
        return None
    units = attributes.get("units")
    if not isinstance(units, list) or len(units) != n or not all(isinstance(unit, str) for unit in units):
        units = attributes.get("unit")
    return _Voxels(_n5_axes(n, units, names), steps or (1.0,) * n, offset, "n5")


def _each(attributes: Mapping[str, Any], name: str, n: int, *, shared: bool) -> tuple[float, ...] | None:
    """Return an attribute of a number for each axis, slowest first; of a group those of space are enough."""
    value = attributes.get(name)
    if not isinstance(value, list) or not value or not all(map(is_number, value)) or (len(value) != n and not shared):
        return None
    return _padded(list(map(float, value)), n, 0.0 if name == "offset" else 1.0)


def _padded(numbers: Sequence[float], n: int, others: float = 1.0) -> tuple[float, ...]:
    """Return numbers of N5, of all axes or the fastest ones, slowest first, with those of the other axes before."""
    return (*(others,) * (n - len(numbers)), *tuple(numbers)[:n][::-1])


def _factors(attributes: Mapping[str, Any], n: int) -> tuple[float, ...] | None:
    """Return the factors of one level; ``None`` where there are none."""
    value = attributes.get("downsamplingFactors")
    if value is None or (isinstance(value, list) and any(isinstance(each, list) for each in value)):
        return None
    is_of_space = isinstance(value, list) and len(value) == 3 < n  # noqa: PLR2004 - of z, y and x
    return _padded(_numbers(attributes, "downsamplingFactors", None if is_of_space else n), n)


def _factors_of(
    attributes: Mapping[str, Any], voxels: _Voxels, name: str, listed: Sequence[Any] | None
) -> tuple[float, ...]:
    """Return the factors of a level: its own, those that its group lists, or as N5-viewer takes them from its name."""
    n = len(voxels.axes)
    if voxels.version == "cosem" and attributes.get("transform"):
        return (1.0,) * n
    found = _factors(attributes if listed is None else {"downsamplingFactors": listed, **attributes}, n)
    if found is None and voxels.version == "n5-viewer" and _is_level(name) and len(name) < 4:  # noqa: PLR2004 - s99
        found = tuple(float(2 ** int(name[1:])) if axis.type == "space" else 1.0 for axis in voxels.axes)
    return found or (1.0,) * n


def _placed(path: str, voxels: _Voxels, own: Sequence[float] | None, factors: Sequence[float]) -> Level:
    """Return a level by its factors: an offset of its `own` is its place, else cells are averaged from the first."""
    first = Level("", voxels.lengths, voxels.offset or (0.0,) * len(voxels.lengths))
    level = reduced_level(first, path, factors, averages=True)
    return level if own is None else replace(level, translation=tuple(own))


_PLACES = (
    *("resolution", "offset", "pixelResolution", "downsamplingFactors", "transform", "affineTransform"),
    *("spatialTransform", "voxel_size", "voxelSize", "translation", "translate"),
)

_READ = {
    "cosem": frozenset(_PLACES),
    "n5-viewer": frozenset({"pixelResolution", "resolution", "downsamplingFactors"}),
    "n5": frozenset({"resolution", "offset", "downsamplingFactors"}),
}
"""Names of attributes that say no more than what is read, by dialect."""


def _warn_of_unread(attributes: Mapping[str, Any], version: str | None, path: str) -> None:
    names = [each for each in _PLACES if each not in _READ.get(version or "", ()) and _has_form(attributes.get(each))]
    if names:
        shown = ", ".join(map(repr, names))
        text = f"the attributes {shown} of {path or '/'!r} may give the place of an image, and are not understood: "
        warnings.warn(f"{text}scale= and translation= of pyramid say it", UserWarning, stacklevel=3)


def _has_form(value: Any) -> bool:
    """Return whether a value holds a list of numbers, as lengths, places and matrices do; not one that changes nothing.

    Examples
    --------
    >>> [_has_form(each) for each in ([4, 4], {"scale": [1.5]}, 3, ["x"], [[1, 0, 0], [0, 1, 0]])]
    [True, True, False, False, False]
    """
    if isinstance(value, Mapping):
        return any(map(_has_form, value.values()))
    if not isinstance(value, list) or not value:
        return False
    if all(isinstance(row, list) and row for row in value):
        identity = [[float(i == j) for j in range(len(value[0]))] for i in range(len(value))]
        return value != identity and all(map(is_number, value[0]))
    return all(map(is_number, value))


def parse_cosem(stored: Mapping[str, Any]) -> Multiscale:
    """Read the draft that COSEM wrote before OME-Zarr 0.4: a transform for each level, C order unless it says F."""
    levels = []
    axes: tuple[Axis, ...] = ()
    for dataset in listed(stored, "datasets"):
        transform, path = dataset.get("transform"), dataset.get("path")
        if not isinstance(transform, Mapping) or not isinstance(path, str):
            raise bad_attribute("multiscales", dataset, "path and transform")
        step = -1 if "F" in (transform.get("order"), transform.get("ordering")) else 1
        scale = _numbers(transform, "scale")[::step]
        names = list(transform.get("axes") or default_names(len(scale)))[::step]
        units = list(transform.get("units") or [None] * len(scale))[::step]
        axes = axes or tuple(
            Axis(str(n), axis_type(str(n)), canonical_unit(None if u is None else str(u)))
            for n, u in zip(names, units, strict=False)
        )
        levels.append(Level(path, scale, _numbers(transform, "translate", len(scale))[::step]))
    return Multiscale(axes, tuple(levels), "cosem", stored.get("name"))


def parse_n5(attributes: Mapping[str, Any], children: Children) -> Multiscale | None:
    """Read the levels below a group: N5-viewer's, BigDataViewer's, COSEM's, Paintera's.

    Each level says where it is, as an array by itself does; what it does not say, its group does, or the first level.
    """
    listed = attributes.get("downsamplingFactors", attributes.get("scales"))
    by_level = listed if isinstance(listed, list) and all(isinstance(each, list) for each in listed) else []
    hints = by_level or "pixelResolution" in attributes or "multiScale" in attributes
    below = children(_is_level)
    described = hints or attributes.keys() & {"resolution", "dataType"}
    if not described and ("s0" not in below or not any(a.keys() & _OF_LEVELS for _, a in below.values())):
        return None
    names = sorted(below, key=lambda name: int(name[1:]))
    if not names or (len(names) == 1 and not hints):
        return None
    n_axes, first = below[names[0]]
    of_group = _voxels(attributes, n_axes, shared=True)
    by_group = of_group is not None and attributes.get("multiScale") is True  # Paintera: those of levels do not count
    base = of_group if by_group else _voxels(first, n_axes) or of_group
    base = base or _Voxels(_n5_axes(n_axes, None), (1.0,) * n_axes, None, "n5-viewer" if hints else "n5")
    _warn_of_unread(attributes, "n5" if base is of_group and base.version != "n5-viewer" else "n5-viewer", "")
    levels = []
    for number, name in enumerate(names):
        n, stored = below[name]
        said = None if by_group else _voxels(stored, n)
        factors = _factors_of(stored, said or base, name, by_level[number] if number < len(by_level) else None)
        own_offset = said.offset if said else None
        if said is not None and said.offset is None:
            said = said._replace(offset=base.offset)
        levels.append(_placed(name, said or base, own_offset, factors))
        if not by_group:
            _warn_of_unread(stored, (said or base).version, name)
    dialect = "bdv" if "dataType" in attributes else "cosem" if base.version == "cosem" else "n5-viewer"
    return Multiscale(base.axes, tuple(levels), dialect)


def _n5_axes(n: int, units: Any, names: Sequence[str | None] | None = None) -> tuple[Axis, ...]:
    """Return axes with one unit for those of space, or with one for each, the fastest first."""
    called = [name or other for name, other in zip(names or default_names(n), default_names(n), strict=True)]
    each = units[::-1] if isinstance(units, list) else [None] * n
    one = canonical_unit(units) if isinstance(units, str) else None
    typed = zip(called, map(axis_type, called), map(canonical_unit, each), strict=True)
    return tuple(Axis(name, kind, unit or (one if kind == "space" else None)) for name, kind, unit in typed)


def _is_level(name: str) -> bool:
    return name[:1] == "s" and name[1:].isdecimal()


def default_names(n: int) -> tuple[str, ...]:
    """Return the names of axes that have none: t, c, z, y, x from the last."""
    return tuple("tczyx"[5 - n :]) if n <= 5 else tuple(f"d{i}" for i in range(n))  # noqa: PLR2004


def _numbers(stored: Mapping[str, Any], name: str, n: int | None = None) -> tuple[float, ...]:
    value = stored.get(name)
    if value is None and n is not None:
        return (0.0,) * n
    if not isinstance(value, list) or not all(map(is_number, value)) or (n is not None and len(value) != n):
        wanted = "numbers" if n is None else f"{n} numbers"
        raise bad_attribute(name, value, f"a list of {wanted}")
    return tuple(float(each) for each in value)


_PREFIXED = "yotta zetta exa peta tera giga mega kilo hecto deci centi milli micro nano pico femto atto zepto yocto"
_EXPONENTS = (24, 21, 18, 15, 12, 9, 6, 3, 2, -1, -2, -3, -6, -9, -12, -15, -18, -21, -24)
_PREFIXES = {"": ("", 0)} | dict(
    zip(_PREFIXED.split(), zip("YZEPTGMkhdcmunpfazy", _EXPONENTS, strict=True), strict=True)
)
"""Name of each decimal prefix -> its symbol and exponent."""

_UNITS: dict[str, tuple[str, float | None]] = {
    **{f"{prefix}meter": (f"{short}m", float(f"1e{exponent}")) for prefix, (short, exponent) in _PREFIXES.items()},
    **{f"{prefix}second": (f"{short}s", None) for prefix, (short, _) in _PREFIXES.items()},
    "angstrom": ("Å", 1e-10),
    "foot": ("ft", 0.3048),
    "inch": ("in", 0.0254),
    "mile": ("mi", 1609.344),
    "parsec": ("pc", None),
    "yard": ("yd", 0.9144),
    "day": ("d", None),
    "hour": ("h", None),
    "minute": ("min", None),
}
"""Name of each unit of length or time that OME-Zarr 0.4 to 0.6 lists -> its symbol; its meters where converted."""

_ALIASES = {
    "micron": "micrometer",
    "ångström": "angstrom",
    "ang": "angstrom",
    "feet": "foot",
    "inches": "inch",
    "sec": "second",
    "msec": "millisecond",
    "usec": "microsecond",
    "nsec": "nanosecond",
    "hr": "hour",
    "h": "hour",
    "mins": "minute",
    '"': "inch",
}
_NAMES = {symbol: name for name, (symbol, _) in _UNITS.items()}
_SPELT = str.maketrans({"\N{MICRO SIGN}": "u", "\N{GREEK SMALL LETTER MU}": "u", "\N{ANGSTROM SIGN}": "Å"})


def canonical_unit(unit: str | None) -> str | None:
    """Return the name of a unit; an unknown one unchanged, an empty one as ``None``.

    Examples
    --------
    >>> [canonical_unit(each) for each in ("um", "µm", "Microns", "nanometre", "ms", "pixel", "")]
    ['micrometer', 'micrometer', 'micrometer', 'nanometer', 'millisecond', 'pixel', None]
    """
    text = (unit or "").strip()
    if not text:
        return None
    if (short := text.translate(_SPELT)) in _NAMES:  # before the case is lost: Mm is not mm
        return _NAMES[short]
    word = text.lower().replace("metre", "meter")
    names = (_ALIASES.get(name, name) for name in (word, word.removesuffix("s")))
    return next((name for name in names if name in _UNITS), text)


def unit_symbol(unit: str | None) -> str:
    """Return the symbol of a unit in N5's attributes; an unknown one unchanged, an empty text for ``None``.

    Examples
    --------
    >>> unit_symbol("micrometer"), unit_symbol("millisecond"), unit_symbol("pixel"), unit_symbol(None)
    ('um', 'ms', 'pixel', '')
    """
    name = canonical_unit(unit)
    return "" if name is None else _UNITS.get(name, (name,))[0]


def length_in(unit: str | None, other: str | None) -> float:
    """Return how many of `unit` are one of `other`: 1 where the table lacks one of them.

    Examples
    --------
    >>> length_in("nm", "um"), length_in("um", "pixel")
    (1000.0, 1.0)
    """
    length, of_unit = (_UNITS.get(canonical_unit(each) or "", ("", None))[1] for each in (other, unit))
    return 1.0 if length is None or of_unit is None else float(f"{length / of_unit:.12g}")
