"""Resolve the arguments of a conversion for each array of its source: choice, chunks, shards, names, fill values.

Not here: the metadata of the target (`chunkmill.conversion.target_metadata`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import ChunkmillError, RegionError
from chunkmill.hints import Hint
from chunkmill.model.grid import ChunkGrid
from chunkmill.model.metadata import InnerLayout, parents_of
from chunkmill.nodes.array import Array
from chunkmill.nodes.new_array import axis_names, make_grids, unknown_dimensions
from chunkmill.nodes.opening import walk, walk_openable
from chunkmill.nodes.stored_group import StoredNode


@dataclass(frozen=True, slots=True)
class ByDimension:
    """Lengths by name, or number, of a dimension; arrays keep those of their other axes.

    Attributes
    ----------
    lengths
        Name (number) -> length; ``-1``: all of the axis; ``None``: as it is; ``"auto"``: chosen by bytes.
    names
        Array -> name of each axis.
    whole
        Paths of coordinates and their bounds, which have one chunk, not crumbs of some bytes.
    """

    lengths: Mapping[str | int | None, int | str | None]
    names: Callable[[StoredArray], tuple[str | None, ...]]
    whole: Collection[str] = ()

    def is_whole(self, array: StoredArray) -> bool:
        """Return whether the array is a coordinate, or the bounds of one, that has one chunk."""
        return array.path in self.whole and array.nbytes <= _MOST_WHOLE

    def shape(self, array: StoredArray, base: Sequence[Any]) -> list[Any] | str:
        """Return a length or an axis of `base` for each axis; ``"keep"`` where the array has none of the dimensions.

        Parameters
        ----------
        base
            Axes, of those that keep theirs.
        """
        wanted = [self.lengths.get(name, self.lengths.get(number)) for number, name in enumerate(self.names(array))]
        if all(length is None for length in wanted):
            return "keep"
        if self.is_whole(array):
            return [-1] * array.ndim
        return [axis if length is None else length for length, axis in zip(wanted, base, strict=True)]


def by_array(option: Any, node: StoredNode, name: str, names: Callable[[StoredArray], Any] | None = None) -> Any:
    """Return the option such that `chosen` resolves it for each array; raise for names and ranks that fit no array.

    A mapping whose values are integers is by dimension, for every array that has the dimension; one whose values are
    shapes, mappings or ``"keep"`` is by path below `node`.

    Parameters
    ----------
    name
        Of the option: ``"chunks"`` or ``"shards"``.
    names
        Array -> name of each axis; as stored by default.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-by-array", shape=(8, 6), dtype="i4", dimension_names=("t", "x")).stored
    >>> by_array({"t": -1, "x": 2}, a, "chunks").shape(a, a.chunk_grid.axes)
    [-1, 2]
    """
    check_rank(node, option, name)
    if not isinstance(option, Mapping):
        return option
    names = names or axis_names
    arrays = chosen_arrays(node, None)
    paths = {path_below(node, array) for array in arrays} - {""}
    if _is_by_dimension(option, name, arrays, paths, names):
        lengths = _by_dimension(option, name, arrays, names)
        if isinstance(node, StoredArray):
            return lengths
        return replace(lengths, whole=_coordinates(arrays, names))
    if isinstance(node, StoredArray):
        msg = f"{name}={option!r}: a mapping to shapes is for the arrays of a group, and the source is the array "
        raise TypeError(msg + f"{node.path!r}; give a shape, or lengths by dimension")
    by_path = _by_path(option, node, name)
    for array in arrays:
        value = by_path.get(path_below(node, array))
        if isinstance(value, Mapping):
            by_path[path_below(node, array)] = _by_dimension(value, name, [array], names)
    return lambda array: by_path.get(path_below(node, array), "keep")


def _is_by_dimension(
    option: Mapping[Any, Any],
    name: str,
    arrays: Collection[StoredArray],
    paths: Collection[str],
    names: Callable[[StoredArray], Any],
) -> bool:
    has_integers = any(isinstance(value, (int, np.integer)) for value in option.values())
    are_lengths = bool(option) and all(map(_is_length, option.values()))
    if has_integers and not are_lengths:
        msg = f"{name}={dict(option)!r} mixes integers, lengths of dimensions, with shapes, which are of arrays"
        raise ValueError(f"{msg}; give one kind, such as {{'path': {{'dimension': 10}}}}")
    if has_integers or not are_lengths:
        return are_lengths
    known = {each for array in arrays for each in names(array)}
    return any(str(key).strip("/") not in paths for key in option) or (name == "chunks" and known.issuperset(option))


def _is_length(value: Any) -> bool:
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return is_integer or value is None or (isinstance(value, str) and value == "auto")


def _by_dimension(
    lengths: Mapping[Any, Any], name: str, arrays: Collection[StoredArray], names: Callable[[StoredArray], Any]
) -> ByDimension:
    known = {each for array in arrays for each in names(array) if each is not None}
    ndim = {array.ndim for array in arrays}
    numbers = range(min(ndim)) if len(ndim) == 1 else ()  # an axis's number means one thing in arrays of one rank alone
    unknown = [key for key in lengths if key not in known and not (isinstance(key, int) and key in numbers)]
    if unknown:
        raise unknown_dimensions(name, unknown, sorted(known), "the arrays", "give a shape")
    if wrong := {key: value for key, value in lengths.items() if not _is_length(value)}:
        msg = f"{name}={wrong!r}: expected a length, -1 (the whole axis), None (as it is) or 'auto' for a dimension"
        raise ValueError(msg)
    return ByDimension(dict(lengths), names)


_MOST_WHOLE = 16 << 20  # bytes


def _coordinates(arrays: Collection[StoredArray], names: Callable[[StoredArray], Any]) -> Collection[str]:
    """Return the paths of the arrays that are named as their one dimension, and of their bounds."""
    found = set()
    for array in arrays:
        above, _, name = array.path.rpartition("/")
        if names(array) == (name,):
            bounds = (array.attributes.get(attribute) for attribute in ("bounds", "climatology"))
            found |= {array.path, *(f"{above}/{each}".strip("/") for each in bounds if isinstance(each, str))}
    return found


def path_below(top: StoredNode, node: StoredNode) -> str:
    """Return the path of `node` below `top`."""
    return node.path[len(top.path) :].strip("/")


def check_rank(node: StoredNode, option: Any, name: str) -> None:
    """Raise `RegionError` for a shape of option `name` whose rank no array at or below `node` has.

    Examples
    --------
    >>> import chunkmill as cm
    >>> a = cm.create_array("memory://doc-rank", shape=(8, 6), dtype="i4")
    >>> check_rank(a.stored, (4,), "chunks")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    chunkmill.errors.RegionError: ...: 1 lengths for 2 axes
    """
    if not isinstance(option, (tuple, list)):
        return
    arrays = chosen_arrays(node, None)
    if arrays and all(len(option) != array.ndim for array in arrays):
        ranks = " or ".join(str(rank) for rank in sorted({array.ndim for array in arrays}))
        reason = f"{len(option)} lengths for {ranks} axes"
        raise RegionError(index=Hint("{}", (name, option)), shape=arrays[0].shape, reason=reason)


def chosen(option: Any, source: StoredArray, name: str) -> Any:
    """Return the value of an option for one array."""
    if callable(option):
        option = option(Array(source))
    elif isinstance(option, (tuple, list)) and len(option) != source.ndim:
        return "keep"
    if isinstance(option, Mapping):  # of a callable
        option = _by_dimension(option, name, [source], axis_names)
    if option is None and name == "chunks":
        return "keep"
    return option


def is_keep(option: Any) -> bool:
    """Return whether an option is ``"keep"``."""
    return isinstance(option, str) and option == "keep"


def grids_of(source: StoredArray, chunks: Any, shards: Any, layout: InnerLayout) -> tuple[ChunkGrid, ChunkGrid | None]:
    """Return the grids of chunks and shards that the options ask for; `layout`, of the source, is what they keep.

    Raises
    ------
    RegionError, AlignmentError
        Says of which array, and which option.
    """
    kept = (None,) * source.ndim if layout.sharding is None else layout.keys.axes
    inner = chunks.shape(source, layout.chunks.axes) if isinstance(chunks, ByDimension) else chunks
    outer = shards.shape(source, kept) if isinstance(shards, ByDimension) else shards
    inner = layout.chunks.axes if is_keep(inner) else inner
    if is_keep(outer):
        outer = None if layout.sharding is None else kept
    try:
        return make_grids(source.shape, inner, outer, source.dtype)
    except RegionError as error:
        where = f"{source.path!r}: " if source.path else ""
        name = error.index.partition("=")[0]
        asked = chunks if name == "chunks" else shards
        asked = dict(asked.lengths) if isinstance(asked, ByDimension) else asked
        raise RegionError(index=f"{where}{name}={asked!r}", shape=source.shape, reason=error.reason) from None


Patterns = str | Collection[str]


def chosen_paths(node: StoredNode, include: Patterns | None) -> Collection[str] | None:
    """Return the paths below `node` of the nodes to convert; ``None``: all.

    A pattern stands for the nodes that it matches and all below them; groups above what is chosen are chosen. ``*``
    matches any characters, slashes too.

    Examples
    --------
    >>> import chunkmill as cm
    >>> g = cm.create_group("memory://doc-chosen")
    >>> _ = [g.create_array(path, shape=(), dtype="i4") for path in ("a/b", "a/c", "d")]
    >>> sorted(chosen_paths(g.stored, "*/b"))
    ['', 'a', 'a/b']
    """
    if include is None:
        return None
    patterns = [each.strip("/") for each in ([include] if isinstance(include, str) else include)]
    if isinstance(node, StoredArray):
        raise TypeError(f"include= chooses nodes of a group, and the source is the array {node.path!r}")
    broken: list[str] = []  # that no pattern may match
    nodes = walk(node, on_error=lambda path, error: broken.append(path))  # noqa: ARG005 - raised when it is chosen
    paths = [path_below(node, each) for each in nodes]
    paths += [path[len(node.path) :].strip("/") for path in broken]
    for pattern in patterns:
        if not any(fnmatchcase(path, pattern) for path in paths):
            raise ValueError(f"{pattern!r} matches none of the nodes {sorted(set(paths) - {''})[:20]}")
    found = {path for path in paths if _is_matched(path, patterns)}
    return found | {above for path in found for above in parents_of(path)} | {""}


def refuse_chosen(node: StoredNode, chosen: Collection[str] | None, path: str, error: ChunkmillError) -> None:
    """Raise the error of a node at `path` that cannot be opened, unless it is not among those chosen below `node`."""
    below = path[len(node.path) :].strip("/")
    if chosen is None or below in chosen:
        error.add_note(f"it is at {path!r} in the source; include= of the others leaves {below!r} out")
        raise error


def chosen_arrays(node: StoredNode, chosen: Collection[str] | None) -> list[StoredArray]:
    """Return the arrays at and below `node`, those that are chosen."""
    arrays = (each for each in walk_openable(node) if isinstance(each, StoredArray))
    return [each for each in arrays if chosen is None or path_below(node, each) in chosen]


def _is_matched(path: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(each, pattern) for each in (path, *parents_of(path)) if each for pattern in patterns)


def names_by_array(option: Any, node: StoredNode) -> Callable[[StoredArray], tuple[str | None, ...] | None]:
    """Return the function of an array that returns the names of its axes.

    Parameters
    ----------
    option
        ``None``: as stored; names, for the arrays of that rank; names by path below `node`.
    """
    if option is None:
        return lambda array: array.dimension_names
    by_path = _by_path(option, node, "dimension_names") if isinstance(option, Mapping) else None
    arrays = chosen_arrays(node, None)
    if by_path is None and all(array.ndim != len(option) for array in arrays):
        reason = f"{len(option)} names, where the arrays have {sorted({array.ndim for array in arrays})} axes"
        raise RegionError(index=f"dimension_names={option!r}", shape=(), reason=reason)

    def names(array: StoredArray) -> tuple[str | None, ...] | None:
        chosen: Sequence[str | None] | None = option if by_path is None else by_path.get(path_below(node, array))
        if chosen is None or (by_path is None and len(chosen) != array.ndim):
            return array.dimension_names
        if isinstance(chosen, str) or len(chosen) != array.ndim:
            reason = f"names {chosen!r} for {array.ndim} axes"
            raise RegionError(index=f"{array.path!r}: dimension_names=", shape=array.shape, reason=reason)
        return tuple(chosen)

    return names


def _by_path(option: Mapping[Any, Any], node: StoredNode, name: str) -> dict[str, Any]:
    by_path = {str(path).strip("/"): value for path, value in option.items()}
    known = {path_below(node, each) for each in chosen_arrays(node, None)}
    if unknown := sorted(by_path.keys() - known):
        raise ValueError(f"{name}= names {unknown}, where the arrays are {sorted(known)[:20]}")
    return by_path
