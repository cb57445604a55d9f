"""Names of an array's axes, and the error for dimensions that no array has."""

from __future__ import annotations

from collections.abc import Collection

from chunkmill.nodes.array import Array

__all__ = ["axis_names", "unknown_dimensions"]


def axis_names(array: Array) -> tuple[str | None, ...]:
    """Return the stored name of each axis of `array`; ``None`` for an axis without a name."""
    return array.dimension_names or (None,) * array.ndim


def unknown_dimensions(
    option: str, unknown: Collection[object], known: Collection[str], of: str, way_out: str
) -> ValueError:
    """Return the error for dimensions that arrays do not have.

    Parameters
    ----------
    option
        Name of the argument that names them.
    known
        Dimensions that the arrays have; the first twenty are shown.
    of
        Whose they are: ``"the array"`` or ``"the arrays"``.
    way_out
        Said where no axis has a name.

    Examples
    --------
    >>> unknown_dimensions("chunks", ["tme"], ["time", "x"], "the array", "give a shape")
    ValueError("chunks= names dimensions ['tme'], where those of the array are ['time', 'x']")
    """
    found = f"are {list(known)[:20]}" if known else f"have no names: {way_out}"
    return ValueError(f"{option}= names dimensions {list(unknown)}, where those of {of} {found}")
