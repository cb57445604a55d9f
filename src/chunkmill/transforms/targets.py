"""Describe the targets of a transform: shape, chunks and codecs from the options, or as the first source has them.

Not here: blocks (`chunkmill.transforms.blocks`), the job (`chunkmill.transforms.transform_job`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.options import is_keep
from chunkmill.errors import UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.inner_layout import inner_layout
from chunkmill.nodes.api import open_target
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import format_of_store
from chunkmill.nodes.new_array import describe_array, format_above
from chunkmill.nodes.opening import array_at
from chunkmill.stores.capabilities import uncached
from chunkmill.transforms.blocks import ArrayAxes, Space

__all__ = ["DescribedTarget", "described_targets", "target_options"]


def target_options(n_targets: int, *, is_list: bool, **options: Any) -> list[dict[str, Any]]:
    """Return the options of each target: of several, a list has one for each.

    Raises
    ------
    ValueError
        A list of another length.

    Examples
    --------
    >>> target_options(2, is_list=True, dtype=["u1", "f4"], chunks=(8, 8))
    [{'dtype': 'u1', 'chunks': (8, 8)}, {'dtype': 'f4', 'chunks': (8, 8)}]
    """
    each: list[dict[str, Any]] = [{} for _ in range(n_targets)]
    for name, value in options.items():
        if is_list and isinstance(value, list):
            if len(value) != n_targets:
                raise ValueError(f"{name}= has {len(value)} values for {n_targets} targets; a tuple is one for all")
            for own, its in zip(each, value, strict=True):
                own[name] = its
        else:
            for own in each:
                own[name] = value
    return each


@dataclass(frozen=True)
class DescribedTarget:
    """A target before its dtype is known.

    Attributes
    ----------
    axes
        How its axes map to those of the space.
    names
        Of its dimensions.
    """

    options: Mapping[str, Any]
    axes: ArrayAxes
    names: tuple[str | None, ...] | None

    @property
    def dtype(self) -> Any:
        """As it was asked for; ``None``: as the function returns it."""
        return self.options["dtype"]

    @classmethod
    def of(cls, options: Mapping[str, Any], space: Space, first: StoredArray) -> Self:
        """Return the target of some options.

        Raises
        ------
        ValueError
            Its shape does not go with the sources'.
        """
        names, shape = options["dimension_names"], options["shape"]
        known = {name: i for i, name in enumerate(space.names) if isinstance(name, str)}
        if shape is not None:
            shape = (shape,) if isinstance(shape, int) else tuple(map(int, shape))
        if names is None and (shape is None or len(shape) == len(space.shape)):
            # names that the axes of unnamed blocks have in the first source
            names = tuple(known) if known else first.dimension_names if len(space.shape) == first.ndim else None
        axes: tuple[int | None, ...]
        if names is not None and known:
            axes = tuple(known.get(name) for name in names)
            if shape is None:
                if None in axes:
                    new = [name for name in names if name not in known]
                    raise ValueError(f"dimension_names={list(names)}: the sources have no {new}; give shape=")
                shape = tuple(space.shape[axis] for axis in axes if axis is not None)
        else:
            shape = space.shape if shape is None else shape
            axes = tuple(range(len(shape)))
        expected = tuple(n if axis is None else space.shape[axis] for axis, n in zip(axes, shape, strict=False))
        if len(axes) != len(shape) or len(set(axes) - {None}) < len([a for a in axes if a is not None]):
            raise ValueError(f"shape={shape} with dimension_names={names!r}: expected a name for each axis, once")
        if expected != shape or (not known and len(shape) != len(space.shape)):
            msg = f"shape={shape}, where the blocks of the sources divide {space.shape}: give dimension_names= where "
            raise ValueError(f"{msg}dimensions come or go, or source_region= where the shape changes otherwise")
        return cls(options, ArrayAxes(ChunkGrid.regular(shape, shape), axes), names)


def described_targets(
    places: Sequence[Any],
    described: Sequence[DescribedTarget],
    dtypes: Sequence[np.dtype[Any]],
    first: tuple[StoredArray, Any],
    storage_options: Mapping[str, Any] | None,
) -> list[tuple[Format, StoredArray]]:
    """Return format and array of each target.

    Parameters
    ----------
    first
        The first source, and the fill value that it has.

    Raises
    ------
    TypeError
        A target is an Array.
    ValueError
        Two targets are at one place, one below the other, or of several stores or formats.
    """
    found: list[tuple[Format, StoredArray]] = []
    stores: dict[str, Any] = {}
    for place, about, dtype in zip(places, described, dtypes, strict=True):
        if isinstance(place, Array):
            raise TypeError("the target is an Array: give its place, (url, path), with overwrite=True to replace it")
        store, path, named = open_target(place, storage_options, about.options["format"])
        store = stores.setdefault(store.url, uncached(store))
        documents_format = format_of_store(store, named or format_above(store, path.strip("/")))
        path = documents_format.normalize_path(path)
        for _, other in found:
            if other.store is store and f"{path}/".startswith(f"{other.path}/") | f"{other.path}/".startswith(
                f"{path}/"
            ):
                raise ValueError(f"targets {other.path!r} and {path!r} of {store.url}: one is in the other")
        options = {**about.options, "dtype": np.dtype(dtype)}
        if found and (found[0][0].name, found[0][1].store) != (documents_format.name, store):
            before = f"{found[0][1].store.url} ({found[0][0].name})"
            msg = f"the targets of one transform are of one store and format, not {before} and {store.url} "
            raise ValueError(f"{msg}({documents_format.name}): call it for each")
        found.append((documents_format, _array((store, path, documents_format), about, options, first)))
    return found


def _array(
    where: tuple[Any, str, Format], about: DescribedTarget, options: dict[str, Any], source: tuple[StoredArray, Any]
) -> StoredArray:
    (store, path, documents_format), (first, fill_value) = where, source
    layout, dtype = inner_layout(first.metadata), options["dtype"]
    del options["format"]
    options |= {"shape": about.axes.grid.shape, "dimension_names": about.names}
    if is_keep(options["codecs"]):
        options["codecs"] = [{"name": each.name, "configuration": dict(each.configuration)} for each in layout.codecs]
    if is_keep(options["attributes"]):
        options["attributes"] = dict(first.attributes)
    kept: dict[str, Any] = {}  # as the first source has it, where the format has such
    if options["fill_value"] is None and dtype == first.dtype:
        kept["fill_value"] = fill_value
    if is_keep(options["shards"]):
        options["shards"] = None
        if layout.sharding is not None and is_keep(options["chunks"]):  # of other chunks they may be no multiples
            kept["shards"] = _kept(about, first, layout.keys)
    if is_keep(options["chunks"]):
        options["chunks"] = _kept(about, first, layout.chunks)
    for left_out in ((), ("shards",), ("fill_value",)):
        with suppress(UnsupportedFeature):
            own = options | {name: value for name, value in kept.items() if name not in left_out}
            return array_at(store, path, describe_array(documents_format, path, **own), documents_format)
    return array_at(store, path, describe_array(documents_format, path, **options), documents_format)


def _kept(about: DescribedTarget, first: StoredArray, grid: ChunkGrid) -> tuple[Any, ...]:
    """Return the chunk lengths of the first source along the axes that a target shares with it; else whole axes."""
    of_source = dict(zip(first.dimension_names or (), grid.axes, strict=True)) if first.dimension_names else {}
    lengths: list[Any] = []
    shape = about.axes.grid.shape
    for number, n in enumerate(shape):
        name = about.names[number] if about.names else None
        axis = of_source.get(name) if name is not None and of_source else None
        if axis is None and len(shape) == first.ndim and (name is None or not of_source):
            axis = grid.axes[number]
        if axis is None:
            lengths.append(-1)
        else:
            lengths.append(axis if axis.size == n else max(1, axis.widest))
    return tuple(lengths)
