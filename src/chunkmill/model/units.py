"""Units of axes: one name for each, as UDUNITS and OME-Zarr have it, and the symbol that N5's viewers parse.

Applied where a convention is read (`canonical_unit`) and where one is written (`unit_symbol`); the name needs no change
in OME-Zarr. A unit that the table does not have is kept as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["canonical_unit", "is_known", "kept_units", "length_in", "unit_symbol"]

_PREFIXES = {
    "": "",
    "yotta": "Y",
    "zetta": "Z",
    "exa": "E",
    "peta": "P",
    "tera": "T",
    "giga": "G",
    "mega": "M",
    "kilo": "k",
    "hecto": "h",
    "deci": "d",
    "centi": "c",
    "milli": "m",
    "micro": "u",
    "nano": "n",
    "pico": "p",
    "femto": "f",
    "atto": "a",
    "zepto": "z",
    "yocto": "y",
}
_SYMBOLS = {
    **{
        f"{prefix}{unit}": f"{short}{symbol}"
        for unit, symbol in (("meter", "m"), ("second", "s"))
        for prefix, short in _PREFIXES.items()
    },
    "angstrom": "Å",
    "foot": "ft",
    "inch": "in",
    "mile": "mi",
    "parsec": "pc",
    "yard": "yd",
    "day": "d",
    "hour": "h",
    "minute": "min",
}
"""Name of each unit of length or time that OME-Zarr 0.4 to 0.6 lists -> its symbol."""

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
_NAMES = {symbol: name for name, symbol in _SYMBOLS.items()}


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
    short = text.replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
    if short.replace("\N{ANGSTROM SIGN}", "Å") in _NAMES:  # before the case is lost: Mm is not mm
        return _NAMES[short.replace("\N{ANGSTROM SIGN}", "Å")]
    word = text.lower().replace("metre", "meter")
    for name in (word, word.removesuffix("s")):
        found = name if name in _SYMBOLS else _ALIASES.get(name)
        if found is not None:
            return found
    return text


def unit_symbol(unit: str | None) -> str:
    """Return the symbol of a unit in N5's attributes; an unknown one unchanged, an empty text for ``None``.

    Examples
    --------
    >>> unit_symbol("micrometer"), unit_symbol("millisecond"), unit_symbol("pixel"), unit_symbol(None)
    ('um', 'ms', 'pixel', '')
    """
    name = canonical_unit(unit)
    return "" if name is None else _SYMBOLS.get(name, name)


_EXPONENTS = {"": 0, "h": 2, "d": -1, "c": -2}
_EXPONENTS |= {symbol: 3 * n for n, symbol in zip(range(8, -9, -1), (*"YZEPTGMk", "", *"munpfazy"), strict=True)}
_METERS = {
    **{f"{prefix}meter": float(f"1e{_EXPONENTS[short]}") for prefix, short in _PREFIXES.items()},
    "angstrom": 1e-10,
    "foot": 0.3048,
    "inch": 0.0254,
    "mile": 1609.344,
    "yard": 0.9144,
}


def length_in(unit: str | None, other: str | None) -> float:
    """Return how many of `unit` are one of `other`: 1 where the table lacks one of them.

    Examples
    --------
    >>> length_in("nm", "um"), length_in("um", "pixel")
    (1000.0, 1.0)
    """
    lengths = [_METERS.get(canonical_unit(each) or "") for each in (other, unit)]
    return 1.0 if None in lengths else float(f"{lengths[0] / lengths[1]:.12g}")  # type: ignore[operator]


def is_known(unit: str | None) -> bool:
    """Return whether a unit is one of the table, or none is given."""
    return unit is None or canonical_unit(unit) in _SYMBOLS


def kept_units(units: Iterable[str | None]) -> str:
    """Return what a plan says of units that the table lacks; empty where it has them all.

    Examples
    --------
    >>> kept_units(["um", "pixel", None])
    "; OME-Zarr and N5's viewers do not know the unit 'pixel', which is kept"
    """
    shown = ", ".join(dict.fromkeys(repr(unit) for unit in units if not is_known(unit)))
    return f"; OME-Zarr and N5's viewers do not know the unit {shown}, which is kept" if shown else ""
