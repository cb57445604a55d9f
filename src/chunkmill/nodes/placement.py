"""See and clear the places of new nodes (P4, P8).

Not here: when that is done, and what is published then (`chunkmill.nodes.target`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import at_once
from chunkmill.errors import NodeExists
from chunkmill.formats.base import Format
from chunkmill.formats.references.chunk_numbers import ROOT_KEY
from chunkmill.formats.registry import FORMATS
from chunkmill.journal.lease import check_no_job
from chunkmill.journal.plans import JOB_PREFIX, journal_prefix
from chunkmill.model.metadata import GroupMetadata, parents_of
from chunkmill.nodes.documents import (
    check_free,
    check_root,
    documents_below,
    entry_keys,
    fetch,
    forget_consolidated,
    format_of_store,
    join_path,
    may_have,
    node_keys,
    node_prefixes,
    present,
    without_blank,
)
from chunkmill.nodes.opening import walk
from chunkmill.nodes.stored_group import StoredGroup, child_names, parse_node
from chunkmill.stores.base import Store
from chunkmill.stores.wrapper import RememberedReads


def announce_below(store: Store, path: str) -> None:
    """Record in the journal at `path` that nodes below it are published, before that one is visible."""
    store.set(f"{journal_prefix(path)}{_BELOW}", b"{}")


def formats_of(store: Store, path: str) -> list[Format]:
    """Return the formats that may have a node at `path`, as the store's root documents configure them."""
    return [format_of_store(store, each.name) for each in FORMATS if may_have(each, path)]


def withdraw_below(store: Store, path: str) -> None:
    """Delete the documents that a writer which died has published below `path`, where no node is visible there (P8)."""
    marker = f"{journal_prefix(path)}{_BELOW}"
    if store.size(marker) is None:
        return
    formats = formats_of(store, path)
    entries = (key for each in formats for key in (each.array_keys(path)[0], each.group_keys(path)[0]))
    if not present(fetch(store, entries)):
        for each in formats:
            store.delete_many(documents_below(store, each, path, {*node_prefixes(path, each)}))
    store.delete(marker)


_BELOW = "below"


def delete_stored_chunks(arrays: Iterable[StoredArray]) -> None:
    """Delete all chunks of arrays that are not visible."""
    for array in arrays:
        array.store.delete_many([*array.stored_keys()])


def seen_at_once(store: Store, path: str, documents_format: Format, *, is_new: bool = True) -> Store:
    """List parents, siblings and hidden files of a path, and read documents there, in one batch of requests.

    In a local store the folder is listed: the documents that it does not name need no look each. Unless `is_new`, it
    is not, since the chunks of an array may stand in it.
    """
    if not store.is_remote:
        if not (is_new and store.has_folders):
            return store
        seen = RememberedReads(store, listings_answer=True)
        seen.list_dir(f"{path}/" if path else "")
        return seen
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
    at_once(store, lambda: fetch(seen, keys), *(listings if store.can_list else ()))
    return seen


def check_nothing_hidden(store: Store, path: str, documents_format: Format) -> None:
    """Raise `NodeExists` where nodes are stored below a folder without a document."""
    if documents_format.implicit_groups or not store.can_list:
        return
    group = StoredGroup(store, path, GroupMetadata(), documents_format)
    if hidden := group.members():
        hint = f"nodes are stored below it ({', '.join(map(repr, list(hidden)[:5]))}), in a folder without a document"
        raise NodeExists(url=store.url, path=path, found="group", hint=hint)


def missing_above(store: Store, paths: Iterable[str], documents_format: Format) -> dict[str, dict[str, bytes]]:
    """Return the documents of groups that are missing above nodes, by path, and the root's; an array there is refused.

    Those without content, as a crash of the machine leaves them, are not there.
    """
    paths = list(paths)
    parents = {parent for path in paths for parent in parents_of(path)}
    root = documents_format.emit_root() if parents else {}
    keys = (key for path in sorted(parents) for key in node_keys(documents_format, path))
    found = without_blank(fetch(store, (*root, *keys)))
    groups = {"": missing} if (missing := {key: root[key] for key in root if found[key] is None}) else {}
    for path in parents:
        above = parse_node(store, path, documents_format, found, read_only=True)
        if isinstance(above, StoredArray):
            raise NodeExists(url=store.url, path=path, found="array", hint="an array cannot have nodes below it")
        if above is None:
            group = documents_format.emit_group(path, GroupMetadata())
            check_free(documents_format, group, found)
            groups[path] = {**groups.get(path, {}), **group}
    return groups


def has_no_documents(group: StoredGroup) -> bool:
    """Return whether it is a group only because there is such a folder: no node below it has a document."""
    if not group.documents.implicit_groups:
        return False
    return not any(
        isinstance(node, StoredArray) or present(fetch(group.store, group.documents.group_keys(node.path)))
        for node in walk(group)
    )


def delete_node(store: Store, path: str, documents_format: Format) -> None:
    """Delete a node and everything below it, documents first: an interruption leaves no array without its chunks."""
    forget_consolidated(store, path)
    keys = (documents_format.consolidated_key(path), *node_keys(documents_format, path))
    store.delete_many([key for key in keys if key is not None])
    for prefix in {documents_format.chunk_prefix(path), *documents_format.list_prefixes(path)}:
        if prefix and (store.can_replace(prefix) or not store.has_folders):
            store.delete_prefix(prefix)
            continue
        # the root, where the journal of the writer is, and what else has no new name: a link, or a mount point, stays
        names = [name for name in store.list_dir(prefix) if prefix or not name.startswith(JOB_PREFIX)]
        store.delete_many([prefix + name for name in names if not name.endswith("/")])
        for name in names:
            if name.endswith("/"):
                store.delete_prefix(prefix + name)


# --------------------------------------------------------------------------------------------------------------------
# Many at once


def taken(store: Store, documents_format: Format, paths: Sequence[str]) -> set[str]:
    """Return those paths of new arrays at which something is stored, of writers that were interrupted.

    Raises
    ------
    NodeExists
        There is a node at one of the paths, or an array above one.
    JobError
        A job, or another writer, is at work there.
    """
    check_no_job(store, *paths, below=True)
    check_root(store, documents_format)
    missing_above(store, paths, documents_format)
    parents = {parent for path in paths for parent in parents_of(path)}
    if nested := sorted(parents & set(paths)):
        raise NodeExists(url=store.url, path=nested[0], found="array", hint="an array cannot have nodes below it")
    groups = {path.rpartition("/")[0] for path in paths if path}
    folders = {join_path(group, name) for group in groups for name in child_names(store, documents_format, group)}
    found = [path for path in paths if path in folders]
    # attributes alone are of a node that was half written: it is written again
    keys = {key: path for path in found for key in entry_keys(documents_format, path)}
    if there := present(fetch(store, keys)):
        hint = f"{len({keys[key] for key in there}):,} of {len(paths):,} arrays exist; nothing was created"
        raise NodeExists(url=store.url, path=min(keys[key] for key in there), found="node", hint=hint)
    return set(found)
