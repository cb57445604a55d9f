"""Delete nodes: the document first, then chunks; what belongs to no node stays (P8).

Not here: when the place of a new node is cleared (`chunkmill.nodes.target`).
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import BackgroundCalls
from chunkmill.errors import KeysLeft, NodeNotFound, StoreError
from chunkmill.formats.base import Format, emit_json, parse_json
from chunkmill.formats.registry import FORMATS
from chunkmill.journal.lease import check_no_job, leased
from chunkmill.journal.plans import JOB_PREFIX, LOCK_PREFIX, journal_prefix
from chunkmill.journal.unfinished import jobs_at
from chunkmill.nodes import documents
from chunkmill.nodes.documents import forget_consolidated
from chunkmill.nodes.opening import check_adapter, open_stored, open_target_store, walk
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores.base import REQUESTS_AT_ONCE, Store
from chunkmill.stores.conflicts import PROBE_PREFIX
from chunkmill.stores.memory import MemoryStore
from chunkmill.stores.open import Url
from chunkmill.stores.places import place_of


def delete(url: Url, path: str = "", *, storage_options: Mapping[str, Any] | None = None) -> None:
    """Delete the array or group at `path`, with everything below it.

    Consolidated metadata forget it first, then the document that makes it a node is deleted, then its chunks: a
    reader that misses chunks finds the array deleted, and gets an error. Keys that belong to no node stay; the
    warning `chunkmill.errors.KeysLeft` names them. Where a folder at or below `path` is a symbolic link, the link is
    deleted, and nodes that it leads to stay. After an interruption, the same call deletes the rest. Other writers are
    refused until then.

    Parameters
    ----------
    url, path, storage_options
        As in `open`.

    Returns
    -------
    None
        Nothing: the node is gone.

    Raises
    ------
    NodeNotFound
        There is no node.
    JobError
        A job, or another writer, is at work there or below, or was interrupted.
    StoreError
        The store is for reading only, or an array was replaced since.

    Examples
    --------
    >>> import chunkmill as cm
    >>> _ = cm.create_array("memory://doc-delete", "g/a", shape=(4,), dtype="i4")
    >>> cm.delete("memory://doc-delete", "g/a")
    >>> list(cm.open_group("memory://doc-delete", "g"))
    []
    """
    place = place_of(url, path)
    store = open_target_store(place.url, storage_options)
    if place.adapter is not None:
        check_adapter(place.adapter, open_stored(store, place.path, format=place.format, consolidated=False))
    delete_node(store, place.path, stacklevel=4)


def delete_node(store: Store, path: str, *, stacklevel: int = 3) -> None:
    """Delete the node at `path` of a store (see `delete`); warnings are of the line that called this so far below."""
    path = path.strip("/")
    check_no_job(store, path, below=True)
    if not any(job.path == path for job in jobs_at(store, path)):
        open_stored(store, path, consolidated=False, read_only=False)  # there may be nothing, and nobody to refuse
    job = f"delete {path!r} in {store.url}"
    begun: list[str] = []
    with store.transaction(job), leased(store, path, job, stays=lambda: bool(begun)) as own:
        check_no_job(store, path, own_run=own.run, below=True, waits=True)
        record = f"{journal_prefix(path)}{_RECORD}"
        held = _recorded(store, record) if own.follows_interrupted else {}
        nodes = _found(store, path, held)
        links = _links(store, path, nodes)
        nodes = {each: node for each, node in nodes.items() if not f"{each}/".startswith(links)}
        if own.run:
            held |= _documents(store, nodes.values())
            store.set(record, emit_json(record, {k: base64.b64encode(v).decode() for k, v in held.items()}))
            begun.append(record)  # a failure leaves it: the same call finds the chunks by it
        forget_consolidated(store, path)
        for link in links:
            store.delete_prefix(link)
        for _, node in sorted(nodes.items(), reverse=True):  # what is below first: the group leads to what is left
            further = _delete_documents(store, node)
            if isinstance(node, StoredArray):
                _delete_keys(store, node.with_store(store).stored_keys())
            # last: a client that opens the array without its attributes finds no chunks either
            _delete_keys(store, further)
        forget_consolidated(store, path)  # again: others may have collected documents while these were there
        left = _delete_folders(store, path, nodes.values())
    store.flush()
    if left:
        more = ", …" if len(left) > _MAX_NAMED else ""
        named = ", ".join(map(repr, left[:_MAX_NAMED]))
        msg = f"deleted {path!r} in {store.url}, but for {len(left)} keys that belong to no node: {named}{more}"
        warnings.warn(msg, KeysLeft, stacklevel=stacklevel)


def _found(store: Store, path: str, held: Mapping[str, bytes]) -> dict[str, StoredNode]:
    """Return the nodes at and below `path`, by path: those that are there, and those of an interrupted deletion."""
    nodes = _described(store, path, held)
    try:
        for node in walk(open_stored(store, path, consolidated=False, read_only=False)):
            if isinstance(node, StoredArray) or node.path not in nodes:  # folders of chunks are groups, in some formats
                nodes[node.path] = node
    except NodeNotFound:
        if not nodes:
            raise
    return nodes


_MAX_NAMED = 10
_RECORD = "nodes.json"
"""Name of the documents of what is being deleted, stored with the lease: chunks are found by them."""


def _recorded(store: Store, record: str) -> dict[str, bytes]:
    """Return the documents that an interrupted deletion was to delete."""
    value = store.get(record)
    return {} if value is None else {k: base64.b64decode(text) for k, text in parse_json(record, value).items()}


def _described(store: Store, path: str, held: Mapping[str, bytes]) -> dict[str, StoredNode]:
    """Return the nodes that documents describe, by path."""
    if not held:
        return {}
    nodes = walk(open_stored(MemoryStore(dict(held)), path, consolidated=False))
    return {node.path: node.with_store(store) if isinstance(node, StoredArray) else node for node in nodes}


def _links(store: Store, path: str, nodes: Iterable[str]) -> tuple[str, ...]:
    """Return the folders at or below `path` on the way to nodes that are symbolic links."""
    folders = {path}
    for each in nodes:
        names = each.split("/")
        folders.update(folder for n in range(1, len(names) + 1) if len(folder := "/".join(names[:n])) > len(path))
    return tuple(f"{folder}/" for folder in sorted(folders) if folder and store.is_link(f"{folder}/"))


def _documents(store: Store, nodes: Collection[StoredNode]) -> dict[str, bytes]:
    formats = {_format(store, node) for node in nodes}
    keys = {key for documents_format in formats for key in documents_format.root_keys()}
    for node in nodes:
        keys.update(documents.node_keys(_format(store, node), node.path))
    return documents.present(documents.fetch(store, sorted(keys)))


def _format(store: Store, node: StoredNode) -> Format:
    return documents.format_of_store(store, node.format) if isinstance(node, StoredArray) else node.documents


def _delete_documents(store: Store, node: StoredNode) -> list[str]:
    """Delete the document that makes a node one, while it is of that node; return the keys of its other documents."""
    documents_format, path = _format(store, node), node.path
    own = documents_format.array_keys(path) if isinstance(node, StoredArray) else documents_format.group_keys(path)

    def without_entry(seen: documents.Documents) -> Mapping[str, bytes | None]:
        if isinstance(node, StoredArray) and seen[own[0]] is not None:
            there = documents_format.parse_array(path, documents.present(seen))
            if there is None or there.identity != node.metadata.identity:
                reason = f"{path!r} was replaced by others while it was about to be deleted, and stays"
                raise StoreError(url=store.url, key=own[0], reason=reason)
        return {own[0]: None}

    documents.change(store, documents_format, own, without_entry)
    consolidated = documents_format.consolidated_key(path) if isinstance(node, StoredGroup) else None
    further = [*own[1:], *([] if consolidated is None else [consolidated])]
    return further if path else [*further, *documents_format.root_keys()]


def _delete_keys(store: Store, keys: Iterable[str]) -> None:
    with BackgroundCalls(REQUESTS_AT_ONCE if store.is_remote else 0) as calls:
        for key in list(keys):
            calls.call(store.delete, key)


def _delete_folders(store: Store, path: str, nodes: Collection[StoredNode]) -> list[str]:
    """Delete partial files, empty folders, and chunks that came since; return the keys that are left."""
    left = []
    arrays = [node for node in nodes if isinstance(node, StoredArray)]
    for prefix in sorted({prefix for node in nodes for prefix in documents.node_prefixes(path, _format(store, node))}):
        store.sweep(prefix)
        keys = [key for key in store.list_prefix(prefix) if not key.startswith((JOB_PREFIX, LOCK_PREFIX, PROBE_PREFIX))]
        # chunks of a client that writes in place, and had looked at the array before, unless there is another node
        if prefix and all(any(array.is_chunk(key) for array in arrays) for key in keys):
            store.delete_prefix(prefix)
        else:
            left += keys
            store.remove_empty_folders(prefix)
    return left


# --------------------------------------------------------------------------------------------------------------------
# What is in the way of a new node, or was left by a writer that died


def clear(store: Store, path: str, documents_format: Format) -> None:
    """Delete a node and everything below it, documents first: an interruption leaves no array without its chunks."""
    forget_consolidated(store, path)
    keys = (documents_format.consolidated_key(path), *documents.node_keys(documents_format, path))
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


def delete_stored_chunks(arrays: Iterable[StoredArray]) -> None:
    """Delete all chunks of arrays that are not visible."""
    for array in arrays:
        array.store.delete_many([*array.stored_keys()])


def announce_below(store: Store, documents_format: Format, path: str) -> None:
    """Record in the journal at `path` that nodes below it are published, before that one is visible."""
    store.set(f"{journal_prefix(path)}{_BELOW}", documents_format.name.encode())


def formats_of(store: Store, path: str) -> list[Format]:
    """Return the formats that may have a node at `path`, as the store's root documents configure them."""
    return [documents.format_of_store(store, each.name) for each in FORMATS if documents.may_have(each, path)]


def withdraw_below(store: Store, path: str) -> None:
    """Delete the documents that a writer which died has published below `path`, where no node is visible there (P8)."""
    marker = f"{journal_prefix(path)}{_BELOW}"
    if (written := store.get(marker)) is None:
        return
    for each in formats_of(store, path):
        entries = documents.entry_keys(each, path)
        # of that format alone: the document of a draft's hierarchy has the key of a group of version 3
        if each.name.encode() == written and not documents.present(documents.fetch(store, entries)):
            store.delete_many(documents.documents_below(store, each, path, {*documents.node_prefixes(path, each)}))
    store.delete(marker)


_BELOW = "below"
