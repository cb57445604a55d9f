"""The store around a path, as whoever makes room for a node sees it: looked at in one go.

Not here: what is decided by it (`chunkmill.nodes.placement`).
"""

from __future__ import annotations

from functools import partial

from chunkmill.array.threads import at_once
from chunkmill.errors import NodeExists
from chunkmill.formats.base import Format
from chunkmill.formats.references.chunk_numbers import ROOT_KEY
from chunkmill.formats.registry import FORMATS
from chunkmill.model.metadata import GroupMetadata, parents_of
from chunkmill.nodes.documents import fetch, may_have, node_keys
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import can_list
from chunkmill.stores.remembered import RememberedReads

__all__ = ["check_nothing_hidden", "seen_at_once"]


def seen_at_once(store: Store, path: str, documents_format: Format) -> Store:
    """Return the store as it is now around `path`: where requests cost latency, all that is looked at in one go."""
    if not store.is_remote:
        return store
    seen = RememberedReads(store)
    keys = [ROOT_KEY, *documents_format.root_keys()]
    keys += [key for place in (path, *parents_of(path)) for key in node_keys(documents_format, place)]
    prefixes = list(documents_format.list_prefixes(path))
    for each in FORMATS:  # a node of any is in the way
        if may_have(each, path) and each.configured({}) is not None:
            keys += [*each.root_keys(), *node_keys(each, path)]
            places = (path, path.rpartition("/")[0]) if each.empty_groups else ()
            prefixes += [prefix for place in places for prefix in each.list_prefixes(place)]
    listings = [partial(seen.list_dir, prefix) for prefix in dict.fromkeys(prefixes)]
    at_once(store, lambda: fetch(seen, keys), *(listings if can_list(store) else ()))
    return seen


def check_nothing_hidden(store: Store, path: str, documents_format: Format) -> None:
    """Raise `NodeExists` where nodes are stored below a folder without a document: an array there would hide them."""
    if documents_format.implicit_groups or not can_list(store):
        return
    group = StoredGroup(store, path, GroupMetadata(), documents_format)
    hidden = group.opened_members(settles=False)
    if hidden:
        hint = f"nodes are stored below it ({', '.join(map(repr, list(hidden)[:5]))}), in a folder without a document"
        raise NodeExists(url=store.url, path=path, found="group", hint=hint)
