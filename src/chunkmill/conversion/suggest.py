"""Suggest the chunks of an array for the ways in which it is read, by the unit costs of the planner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np

from chunkmill.conversion.rechunking.job import read_costs
from chunkmill.conversion.rechunking.strategies import UnitCosts
from chunkmill.display.report import Facts, ReportMixin, Table, format_bytes, format_seconds
from chunkmill.errors import RegionError
from chunkmill.model.grid import Shape
from chunkmill.nodes.api import open_array
from chunkmill.nodes.array import Array
from chunkmill.nodes.new_array import lengths_by_name, size_in_bytes

Access: TypeAlias = Mapping[str, int] | Sequence[int]


@dataclass(frozen=True, slots=True)
class AccessCost:
    """Cost of one read of a region of some shape, on average over all places that it can have.

    Attributes
    ----------
    region
        Length of the region along each axis.
    n_chunks
        Chunks that it touches, each a request.
    n_bytes
        Decoded bytes of these chunks.
    amplification
        These bytes, in multiples of the region's own.
    seconds
        Of one thread, by the planner's unit costs: comparable among chunks, not a prediction.
    """

    region: Shape
    n_chunks: float
    n_bytes: float
    amplification: float
    seconds: float


@dataclass(frozen=True, repr=False)
class ChunkSuggestion(ReportMixin):
    """Chunks for an array, with what each access costs with them.

    Attributes
    ----------
    chunks
        The chunk shape, as `create_array`, `to_store`, `rechunk` and `convert` take it.
    accesses
        The cost of each access with these chunks, in the order in which they were given.
    present
        The same with the chunks that the array has; empty where it has none, or a rectilinear grid.
    dims
        Name of each axis.
    """

    chunks: Shape
    accesses: tuple[AccessCost, ...]
    present: tuple[AccessCost, ...]
    dims: tuple[str, ...]

    def _title(self) -> str:
        return f"suggested: chunks={self.chunks}"

    def _facts(self) -> Facts:
        return ()

    def _tables(self) -> Iterator[Table]:
        yield [
            ("one read of", "fetches", "decodes", "that is", "in about", *(("now in about",) if self.present else ())),
            *(
                (
                    ", ".join(f"{name}: {n}" for name, n in zip(self.dims, cost.region, strict=True)),
                    f"{cost.n_chunks:.4g} chunk{'s' * (cost.n_chunks != 1)}",
                    format_bytes(int(cost.n_bytes)),
                    f"{cost.amplification:,.1f} times its size",
                    format_seconds(cost.seconds),
                    *((format_seconds(self.present[i].seconds),) if self.present else ()),
                )
                for i, cost in enumerate(self.accesses)
            ),
        ]


def suggest_chunks(
    array: Any,
    path: str = "",
    *,
    access: Access | Sequence[Access],
    size: int | str = "4MiB",
    remote: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ChunkSuggestion:
    """Suggest chunks for the regions that are read at once: of several, none gets much worse than it could be.

    Among all ways to halve the axes until a chunk has at most `size` bytes, the one is taken whose dearest access is
    nearest to what it would cost with chunks made for it alone.

    Parameters
    ----------
    array, path
        A url (as in `open_array`), an `Array`, or anything with a ``shape`` and a ``dtype``: a NumPy or Dask array, a
        DataArray.
    access
        Shape of a region that is read at once: lengths by dimension, ``{"time": 1}``, where the axes that are left out
        are read whole; or a length for each axis, ``(1, -1, -1)``. A list of them: each counts the same.
    size
        Decoded bytes of a chunk at most, and more than half of it where the array is larger.
    remote
        Whether a request costs as in object stores; as the array's store is when ``None``, and where that is unknown.
    storage_options
        Options of the filesystem, as in fsspec.

    Returns
    -------
    ChunkSuggestion
        `chunks`, and what each access costs; it prints as a table.

    Raises
    ------
    RegionError
        An access does not fit the array.
    NodeNotFound
        There is no array.

    Examples
    --------
    >>> import numpy as np
    >>> daily = np.broadcast_to(np.float32(0), (3650, 720, 1440))
    >>> suggest_chunks(daily, access=[(1, -1, -1), (-1, 1, 1)], remote=True)
    suggested: chunks=(58, 360, 45)
      one read of                           fetches    decodes     that is                  in about
      axis 0: 1, axis 1: 720, axis 2: 1440  64 chunks  229.39 MiB  58.0 times its size      2.73 s
      axis 0: 3650, axis 1: 1, axis 2: 1    63 chunks  225.56 MiB  16,200.0 times its size  2.68 s
    """
    if not hasattr(array, "shape"):
        array = open_array(array, path, storage_options=storage_options)
    elif storage_options or path:
        raise ValueError("path= and storage_options= are for urls: the array is given")
    shape, dims = tuple(array.shape), _dims(array)
    itemsize = max(1, np.dtype(array.dtype).itemsize)
    most = size_in_bytes(size) if isinstance(size, str) else size
    is_several = not isinstance(access, Mapping) and any(not isinstance(part, (int, np.integer)) for part in access)
    asked = [_region(each, shape, dims) for each in (access if is_several else (access,))]
    stored = array.stored if isinstance(array, Array) else None
    is_remote = remote if remote is not None else stored is not None and stored.store.is_remote
    costs = read_costs(is_remote=is_remote)

    def cost(region: Shape, chunk: Shape) -> AccessCost:
        return _cost(region, shape, chunk, itemsize, costs)

    n_elements = max(1, most // itemsize)
    ways = list(_ways(shape, n_elements)) or [_last_axes_whole(shape, n_elements)]
    alone = [min(cost(region, chunk).seconds for chunk in ways) for region in asked]

    def dearest(chunk: Shape) -> tuple[float, float]:
        ratios = [cost(region, chunk).seconds / (least or 1.0) for region, least in zip(asked, alone, strict=True)]
        return max(ratios), sum(ratios)

    chunks = min(ways, key=dearest)
    own = None if stored is None or not stored.read_layout.grid.is_regular else stored.chunks
    present = () if own is None else tuple(cost(region, own) for region in asked)
    return ChunkSuggestion(chunks, tuple(cost(region, chunks) for region in asked), present, dims)


def _dims(array: Any) -> tuple[str, ...]:
    names = getattr(array, "dims", None) or getattr(array, "dimension_names", None) or (None,) * len(array.shape)
    return tuple(f"axis {axis}" if name is None else str(name) for axis, name in enumerate(names))


def _region(access: Any, shape: Shape, dims: tuple[str, ...]) -> Shape:
    lengths = tuple(lengths_by_name(access, dims, shape, "access"))
    fits = len(lengths) == len(shape) and all(n == -1 or n >= 1 for n in lengths)
    if not fits:
        reason = f"expected a length of at least 1, or -1, for each of {len(shape)} axes"
        raise RegionError(index=f"access={access!r}", shape=shape, reason=reason)
    return tuple(size if n == -1 else min(n, size) for n, size in zip(lengths, shape, strict=True))


def _ways(shape: Shape, most: int) -> Iterator[Shape]:
    """Yield chunk shapes of at most `most` elements that are got by halving the axes, none of them too often."""
    lengths = [max(n, 1) for n in shape]
    last = max(range(len(lengths)), key=lengths.__getitem__, default=None)
    if last is None or prod(lengths) <= most:
        yield tuple(lengths)
        return
    for step in range(1, max(lengths).bit_length() + 2):
        halved = [[*dict.fromkeys(-(-n // (1 << k)) for k in range(0, n.bit_length() + 1, step))] for n in lengths]
        if prod(len(each) for axis, each in enumerate(halved) if axis != last) <= _MOST_WAYS:
            break
    for others in product(*(halved[axis] if axis != last else [1] for axis in range(len(lengths)))):
        fitting = next((n for n in halved[last] if n * prod(others) <= most), None)
        if fitting is not None and 2 * step * fitting * prod(others) > most:
            yield (*others[:last], fitting, *others[last + 1 :])


def _last_axes_whole(lengths: Sequence[int], most: int) -> Shape:
    """Return a chunk of at most `most` elements in C order: the only way where the axes are too many to be divided."""
    chunk: Shape = ()
    for n in reversed(lengths):
        chunk = (min(max(n, 1), most // prod(chunk)), *chunk)
    return chunk


_MOST_WAYS = 100_000
"""Of dividing all axes but the longest: with more of them, lengths are quartered instead of halved, and so on."""


def _cost(region: Shape, shape: Shape, chunk: Shape, itemsize: int, costs: UnitCosts) -> AccessCost:
    n_chunks, covered = 1.0, 1.0
    for n, size, length in zip(region, shape, chunk, strict=True):
        touched = min((n - 1) / length + 1, -(-size // length)) if n < size else -(-size // length)
        n_chunks *= touched
        covered *= min(touched * length, size)
    seconds = n_chunks * costs.source_request + covered * itemsize * costs.decoded_byte
    return AccessCost(region, n_chunks, covered * itemsize, covered / max(1, prod(region)), seconds)
