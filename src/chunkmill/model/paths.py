"""Paths of nodes: parts and parents."""

from __future__ import annotations

__all__ = ["parents_of"]


def parents_of(path: str) -> list[str]:
    """Return the paths of the groups above a node, the nearest first.

    Examples
    --------
    >>> parents_of("a/b/c")
    ['a/b', 'a', '']
    """
    if not path:
        return []
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(len(parts) - 1, -1, -1)]
