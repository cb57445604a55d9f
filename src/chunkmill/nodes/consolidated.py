"""Keep consolidated metadata of groups up to date, also while others change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from chunkmill.errors import NodeBeingReplaced, NodeExists
from chunkmill.formats.base import Format, parse_json
from chunkmill.formats.registry import FORMATS
from chunkmill.model.metadata import is_within, parents_of, same_json
from chunkmill.nodes.documents import fetch, may_have, node_keys, own_part, present, put_back
from chunkmill.stores.base import Store

__all__ = ["forget_consolidated", "refresh_consolidated", "refreshed", "write_consolidated"]


def refresh_consolidated(
    store: Store,
    documents_format: Format,
    paths: Iterable[str],
    *,
    forget: bool = False,
    own: bool = True,
    edit: Callable[[str, bytes], bytes] = lambda _, document: document,
) -> None:
    """Update the consolidated metadata of the groups above some nodes, where there are any.

    Each is read, changed and written back until nobody else changed it in between. The groups above the nodes are
    brought up to date as well: whoever made them may have died before doing so.

    Parameters
    ----------
    paths
        Nodes that were written or changed.
    forget
        Take the nodes, and all below them, out instead: they are about to be deleted.
    own
        Whether the nodes may be groups with consolidated metadata of their own: not where they are new.
    edit
        Called with key and document; returns the document as consolidated metadata hold it.
    """
    paths = list(paths)
    above = {
        group: key
        for group in _groups(paths, own=own and not forget)
        if (key := documents_format.consolidated_key(group)) is not None
    }
    found = fetch(store, above.values())
    for group in sorted(above, reverse=True):
        document = found[above[group]]
        if document is None or documents_format.parse_consolidated(group, document) is None:
            continue
        nodes = {node for path in paths for node in (path, *parents_of(path)) if is_within(node, group)}
        keys = [key for node in sorted(nodes) for key in node_keys(documents_format, node)]
        changed = set(keys)
        while True:
            value, version = store.get_versioned(above[group])
            known = None if value is None else documents_format.parse_consolidated(group, value)
            if known is None:
                break
            found_now = present(fetch(store, keys))
            there = {k: edit(k, own_part(documents_format, k, v)) for k, v in found_now.items()}
            left_out = {key for path in paths for key in node_keys(documents_format, path)} if forget else set()
            kept = {k: v for k, v in known.items() if k not in changed and not (forget and _is_below_any(k, paths))}
            after = kept | {k: v for k, v in there.items() if k not in left_out}
            if _alike(after, known):
                break
            emitted = documents_format.emit_consolidated(group, after)[above[group]]
            if store.set_if(above[group], emitted, version):
                break


@contextmanager
def refreshed(store: Store, documents_format: Format, paths: Iterable[str], *, own: bool = True) -> Iterator[None]:
    """Publish nodes inside, then bring consolidated metadata up to date (`refresh_consolidated`).

    Also where that is refused: others may have consolidated a document since that was withdrawn.
    """
    try:
        yield
    except NodeExists:
        refresh_consolidated(store, documents_format, paths, own=own)
        raise
    refresh_consolidated(store, documents_format, paths, own=own)


def _groups(paths: Iterable[str], *, own: bool) -> set[str]:
    """Return the paths of the groups whose consolidated metadata may hold the nodes at `paths`."""
    return {group for path in paths for group in (*([path] if own else []), *parents_of(path))}


def _is_below_any(key: str, paths: Iterable[str]) -> bool:
    return any(key.startswith(f"{path}/") for path in paths)


def _alike(a: Mapping[str, bytes], b: Mapping[str, bytes]) -> bool:
    """Compare documents as JSON: inside consolidated metadata they are formatted differently."""
    return a.keys() == b.keys() and all(a[k] == b[k] or same_json(parse_json(k, a[k]), parse_json(k, b[k])) for k in a)


def forget_consolidated(store: Store, path: str) -> None:
    """Remove a node, and all nodes below it, from the consolidated metadata above it, in every format."""
    for documents_format in FORMATS:
        if may_have(documents_format, path):
            refresh_consolidated(store, documents_format, [path], forget=True)


def write_consolidated(store: Store, documents_format: Format, path: str, collect: Collect) -> None:
    """Write the consolidated metadata of the group at `path` from what `collect` finds below it.

    What is found is collected again after writing: a node that was made in between is not left out. Where one is being
    replaced, which `collect` raises, the metadata are again what they were: they may hold documents of both nodes.
    """
    key = documents_format.consolidated_key(path)
    written: dict[str, bytes] | None = None
    before: bytes | None = None
    value: bytes | None = None
    while True:
        there, version = (None, None) if key is None else store.get_versioned(key)
        try:
            documents = collect()
        except NodeBeingReplaced:
            if key is not None and written is not None:
                put_back(store, key, value, before)
            raise
        if written is not None and _alike(documents, written):
            return
        emitted = documents_format.emit_consolidated(path, documents)  # or UnsupportedFeature
        ((key, value),) = emitted.items()
        if store.set_if(key, value, version):
            before, written = there if written is None else before, documents


Collect = Callable[[], dict[str, bytes]]
