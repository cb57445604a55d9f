"""Consolidated metadata against the documents that they stand for.

Not here: writing them (`chunkmill.nodes.hierarchy.consolidate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from chunkmill.errors import MetadataError
from chunkmill.formats.base import Format, parse_json
from chunkmill.model.json_values import same_json
from chunkmill.nodes.group import Group, Node
from chunkmill.stores.base import ByteSpan

__all__ = ["node_keys", "staleness"]

_MAX_NAMED = 5  # of what differs, in one reason


def staleness(group: Group, key: str, nodes: Iterable[Node]) -> str | None:
    """Say how the consolidated metadata under `key` differ from the documents of `nodes`; ``None`` when they do not.

    ``None`` too when the group has none.
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
    return f"differs from what is there in {', '.join(map(repr, differing[:_MAX_NAMED]))}{more}"


def node_keys(documents_format: Format, path: str) -> Iterator[str]:
    """Yield the keys of the documents that a node at `path` may have."""
    yield from documents_format.array_keys(path)
    yield from documents_format.group_keys(path)


def _actual(group: Group, nodes: Iterable[Node], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the documents that consolidated metadata of the group should hold, as they are now."""
    prefix = f"{group.path}/" if group.path else ""
    wanted = set(known)
    for node in nodes:
        if node.path.startswith(prefix) and node.path != group.path:
            wanted.update(node_keys(group.documents, node.path))
    keys = sorted(wanted)
    values = group.store.get_many([ByteSpan(key) for key in keys])
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


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
