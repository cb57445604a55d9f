"""Paths of nodes: parts and parents."""

from __future__ import annotations

__all__ = ["is_within", "parents_of"]


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


def is_within(path: str, group: str) -> bool:
    """Return whether `path` is `group` or below it.

    Examples
    --------
    >>> is_within("a/b", "a"), is_within("a", "a"), is_within("ab", "a"), is_within("a", "")
    (True, True, False, True)
    """
    return not group or path == group or path.startswith(f"{group}/")
