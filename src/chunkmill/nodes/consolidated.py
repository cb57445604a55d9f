"""Keep consolidated metadata of groups up to date, also while others change them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from chunkmill.errors import NodeExists, StoreError
from chunkmill.formats.base import Format, parse_json
from chunkmill.formats.registry import FORMATS
from chunkmill.model.metadata import is_within, parents_of, same_json
from chunkmill.nodes.documents import fetch, may_have, node_keys, own_part, present
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import update


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
    brought up to date as well: the client that made them may have died before it did so.

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
    found = fetch(store, above.values()) if store.is_remote else {}  # most groups have none
    for group in sorted(above, reverse=True):
        document = found.get(above[group], b"") if found else b""
        if document is None or (document and documents_format.parse_consolidated(group, document) is None):
            continue
        nodes = {node for path in paths for node in (path, *parents_of(path)) if is_within(node, group)}
        keys = [key for node in sorted(nodes) for key in node_keys(documents_format, node)]
        left_out = {key for path in paths for key in node_keys(documents_format, path)} if forget else set()

        def changed(
            value: bytes | None,
            group: str = group,
            keys: Collection[str] = keys,
            left_out: Collection[str] = left_out,
        ) -> bytes | None:
            known = None if value is None else documents_format.parse_consolidated(group, value)
            if known is None:
                return value
            stored = present(fetch(store, (key for key in keys if key not in known or key != above[group])))
            there = {k: edit(k, own_part(documents_format, k, v)) for k, v in stored.items()}
            if above[group] in known:  # the document of the group itself, as it was just read
                there[above[group]] = edit(above[group], known[above[group]])
            kept = {k: v for k, v in known.items() if k not in keys and not (forget and _is_below_any(k, paths))}
            after = kept | {k: v for k, v in there.items() if k not in left_out}
            return value if _alike(after, known) else documents_format.emit_consolidated(group, after)[above[group]]

        update(store, above[group], changed)


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

    They are collected again after writing: a node that was made in between is not left out.
    """
    key = documents_format.consolidated_key(path)
    if key is None:
        documents_format.emit_consolidated(path, collect())  # UnsupportedFeature
        return
    written: bytes | None = None
    documents: Mapping[str, bytes] | None = None

    def collected(there: bytes | None) -> bytes | None:
        nonlocal documents
        found = collect()
        if documents is not None and written is not None and _alike(found, documents):
            return there
        documents = found
        (value,) = documents_format.emit_consolidated(path, found).values()
        return value

    for _ in range(_MOST_COLLECTED):
        known = documents
        written = update(store, key, collected)
        if known is not None and documents is known:
            return
    raise StoreError(url=store.url, key=key, reason=f"nodes were made and deleted below it {_MOST_COLLECTED} times")


_MOST_COLLECTED = 1000


Collect = Callable[[], dict[str, bytes]]
