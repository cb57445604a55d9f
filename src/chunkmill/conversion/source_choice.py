"""Choose the nodes of a source that are converted, and other names of axes and fill values for them.

Not here: chunks and shards (`chunkmill.conversion.layout_options`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from chunkmill.conversion.layout_options import path_below
from chunkmill.errors import RegionError
from chunkmill.model.metadata import ArrayMetadata, parents_of
from chunkmill.model.user_values import scalar_of
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Node
from chunkmill.nodes.hierarchy import walk

__all__ = ["axis_names", "chosen_arrays", "chosen_paths", "with_fill_value", "with_names"]

Patterns = str | Collection[str]


def chosen_paths(node: Node, include: Patterns | None, exclude: Patterns) -> Collection[str] | None:
    """Return the paths below `node` of the nodes to convert; ``None``: all.

    A pattern stands for the nodes that it matches and all below them; groups above what is chosen are chosen. ``*``
    matches any characters, slashes too.

    Examples
    --------
    >>> import chunkmill as cm
    >>> g = cm.create_group("memory://doc-chosen")
    >>> _ = [g.create_array(path, shape=(), dtype="i4") for path in ("a/b", "a/c", "d")]
    >>> sorted(chosen_paths(g, "a/*", ["*/c"]))
    ['', 'a', 'a/b']
    """
    included = None if include is None else _patterns(include)
    excluded = _patterns(exclude)
    if included is None and not excluded:
        return None
    if isinstance(node, Array):
        raise TypeError(f"include= and exclude= choose nodes of a group, and the source is the array {node.path!r}")
    paths = [path_below(node, each) for each in walk(node)]
    for pattern in (*(included or ()), *excluded):
        if not any(fnmatchcase(path, pattern) for path in paths):
            raise ValueError(f"{pattern!r} matches none of the nodes {sorted(set(paths) - {''})[:20]}")
    found = {
        path for path in paths if (included is None or _is_matched(path, included)) and not _is_matched(path, excluded)
    }
    return found | {above for path in found for above in parents_of(path)} | {""}


def chosen_arrays(node: Node, chosen: Collection[str] | None) -> list[Array]:
    """Return the arrays at and below `node`, those that are chosen."""
    arrays = (each for each in walk(node) if isinstance(each, Array))
    return [each for each in arrays if chosen is None or path_below(node, each) in chosen]


def _patterns(patterns: Patterns) -> list[str]:
    return [each.strip("/") for each in ([patterns] if isinstance(patterns, str) else patterns)]


def _is_matched(path: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(each, pattern) for each in (path, *parents_of(path)) if each for pattern in patterns)


def axis_names(option: Any, node: Node) -> Callable[[Array], tuple[str | None, ...] | None]:
    """Return the function of an array that returns the names of its axes.

    Parameters
    ----------
    option
        ``None``: as stored; names, for the arrays of that rank; names by path below `node`.
    """
    if option is None:
        return lambda array: array.dimension_names
    by_path = _by_path(option, node, "dimension_names")
    arrays = [each for each in walk(node) if isinstance(each, Array)]
    if by_path is None and all(array.ndim != len(option) for array in arrays):
        reason = f"{len(option)} names, where the arrays have {sorted({array.ndim for array in arrays})} axes"
        raise RegionError(index=f"dimension_names={option!r}", shape=(), reason=reason)

    def names(array: Array) -> tuple[str | None, ...] | None:
        chosen: Sequence[str | None] | None = option if by_path is None else by_path.get(path_below(node, array))
        if chosen is None or (by_path is None and len(chosen) != array.ndim):
            return array.dimension_names
        if isinstance(chosen, str) or len(chosen) != array.ndim:
            reason = f"names {chosen!r} for {array.ndim} axes"
            raise RegionError(index=f"{array.path!r}: dimension_names=", shape=array.shape, reason=reason)
        return tuple(chosen)

    return names


def with_names(metadata: ArrayMetadata, names: tuple[str | None, ...] | None) -> ArrayMetadata:
    """Return the metadata with other names of the axes."""
    return metadata if names == metadata.dimension_names else replace(metadata, dimension_names=names)


def with_fill_value(option: Any, node: Node) -> Callable[[Array, ArrayMetadata], ArrayMetadata]:
    """Return the function of an array and its metadata that sets the fill value.

    Parameters
    ----------
    option
        ``None``: as stored; a value for all arrays; values by path below `node`.
    """
    by_path = _by_path(option, node, "fill_value")

    def changed(array: Array, metadata: ArrayMetadata) -> ArrayMetadata:
        value = option if by_path is None else by_path.get(path_below(node, array))
        return metadata if value is None else replace(metadata, fill_value=scalar_of(value, metadata.dtype))

    return changed


def _by_path(option: Any, node: Node, name: str) -> dict[str, Any] | None:
    if not isinstance(option, Mapping):
        return None
    by_path = {str(path).strip("/"): value for path, value in option.items()}
    known = {path_below(node, each) for each in walk(node) if isinstance(each, Array)}
    if unknown := sorted(by_path.keys() - known):
        raise ValueError(f"{name}= names {unknown}, where the arrays are {sorted(known)[:20]}")
    return by_path
