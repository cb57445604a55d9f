"""Compare consolidated metadata with the documents that they copy.

Not here: writing them (`chunkmill.nodes.hierarchy.consolidate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chunkmill.errors import MetadataError
from chunkmill.formats.base import parse_json
from chunkmill.model.metadata import same_json
from chunkmill.nodes.documents import fetch, node_keys, present
from chunkmill.nodes.group import Group, Node

__all__ = ["staleness"]

_MAX_NAMED = 5  # of what differs, in one reason


def staleness(group: Group, key: str, nodes: Iterable[Node]) -> str | None:
    """Describe how the consolidated metadata under `key` differ from the documents of `nodes`.

    ``None`` when they do not, or when the group has none.
    """
    value = group.store.get(key)
    if value is None:
        return None
    try:
        known = group.documents.parse_consolidated(group.path, value)
    except MetadataError as error:
        return str(error)
    if known is None:
        return None
    actual = _actual(group, nodes, known)
    differing = [name for name in sorted(known.keys() | actual.keys()) if not _same(known, actual, name)]
    if not differing:
        return None
    more = f" and {len(differing) - _MAX_NAMED} more" if len(differing) > _MAX_NAMED else ""
    return f"differs from the documents at {', '.join(map(repr, differing[:_MAX_NAMED]))}{more}"


def _actual(group: Group, nodes: Iterable[Node], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the current documents that consolidated metadata of the group should hold."""
    prefix = f"{group.path}/" if group.path else ""
    wanted = set(known)
    for node in nodes:
        if node.path.startswith(prefix) and node.path != group.path:
            wanted.update(node_keys(group.documents, node.path))
    return present(fetch(group.store, sorted(wanted)))


def _same(known: Mapping[str, bytes], actual: Mapping[str, bytes], key: str) -> bool:
    if key not in known or key not in actual:
        return False
    try:
        one, other = parse_json(key, known[key]), parse_json(key, actual[key])
    except MetadataError:
        return False
    for document in (one, other):
        document.pop("consolidated_metadata", None)  # of groups below, which have their own
    return same_json(one, other)
