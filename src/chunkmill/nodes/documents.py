"""Fetch and write the documents (metadata keys) of nodes; no other module writes one (P3, P5).

Bytes by key, and which keys a format has for a node. Not here: what documents say (`chunkmill.formats`), nodes
(`chunkmill.nodes.opening`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import BackgroundCalls, at_once
from chunkmill.errors import MetadataError, NodeExists, StoreError, UnsupportedFeature
from chunkmill.formats.base import Format, is_blank, parse_json
from chunkmill.formats.references.chunk_numbers import ROOT_KEY, is_reference_root
from chunkmill.formats.registry import FORMATS, get_format
from chunkmill.hints import Hint
from chunkmill.journal.plans import JOB_PREFIX
from chunkmill.model.metadata import is_within, parents_of, same_json
from chunkmill.stores import conflicts
from chunkmill.stores.base import REQUESTS_AT_ONCE, ByteSpan, Store

Documents = dict[str, bytes | None]


def format_of_store(store: Store, name: str) -> Format:
    """Return the format as the store's root documents configure it; fresh when there are none.

    Raises
    ------
    UnsupportedFeature
        The store is an ``.ozx`` file, which holds Zarr v3 (OME-Zarr's RFC-9), and has nothing of that format.
    """
    fresh = get_format(name)
    if store.url.lower().endswith(".ozx") and name != "zarr3":
        roots = {*fresh.array_keys(""), *fresh.group_keys("")} if may_have(fresh, "") else set(fresh.root_keys())
        if not present(fetch(store, roots)):
            hint = Hint("give {}, or a target that ends with .zip", ("format", "zarr3"))
            raise UnsupportedFeature(format=name, feature=f"{store.url}: an .ozx file holds Zarr v3 alone", hint=hint)
    if not (keys := fresh.root_keys()):
        return fresh
    found = fresh.configured(present(without_blank(fetch(store, keys))))
    return fresh if found is None else found


def entry_names(documents_format: Format) -> frozenset[str]:
    """Return the last segments of the documents that make a node an array, or a group."""
    return frozenset(key.rpartition("/")[2] for key in entry_keys(documents_format, "a"))


def may_have(documents_format: Format, path: str) -> bool:
    """Return whether the format allows a node at `path`."""
    try:
        documents_format.normalize_path(path)
    except MetadataError:
        return False
    return True


def node_keys(documents_format: Format, path: str) -> Iterator[str]:
    """Yield the keys of every document that an array or a group at `path` may have."""
    yield from documents_format.array_keys(path)
    yield from documents_format.group_keys(path)


def entry_keys(documents_format: Format, path: str) -> set[str]:
    """Return the keys of the documents that make an array, or a group, of what is at `path`."""
    return {documents_format.array_keys(path)[0], documents_format.group_keys(path)[0]}


def fetch(store: Store, keys: Iterable[str]) -> Documents:
    """Fetch documents, concurrently where requests cost latency; ``None`` for absent ones."""
    wanted = list(dict.fromkeys(keys))
    return dict(zip(wanted, store.get_many(ByteSpan(key) for key in wanted), strict=True))


def present(documents: Documents) -> dict[str, bytes]:
    """Return the documents that exist."""
    return {key: value for key, value in documents.items() if value is not None}


def without_blank(documents: Documents) -> Documents:
    """Return documents, absent where they are without content: a crash of the machine left those."""
    return {key: None if value is None or is_blank(value) else value for key, value in documents.items()}


def create_nodes(
    store: Store, documents_format: Format, nodes: Mapping[str, Mapping[str, bytes]], *, again: bool = False
) -> None:
    """Write the documents of nodes by path, many at once where requests cost latency (see `create_node`)."""
    with BackgroundCalls(REQUESTS_AT_ONCE if store.is_remote else 0) as calls:
        for path, documents in nodes.items():
            calls.call(partial(create_node, again=again), store, documents_format, path, documents)


def create_node(
    store: Store,
    documents_format: Format,
    path: str,
    documents: Mapping[str, bytes],
    *,
    again: bool = False,
    is_above: bool = False,
) -> None:
    """Write the documents of one node, unless there is a node (P3, P5).

    The document that makes it a node is written only while there is none: its writer owns the node. Its other documents
    come before it, and are the owner's in the end.

    Parameters
    ----------
    again
        Whether an earlier run of the same write may have written some of these: equal ones are accepted then, and those
        that a crash of the machine has left without content are replaced.
    is_above
        Whether it is a group above a new node, which others may make as well.

    Raises
    ------
    NodeExists
        Another node was made at `path` since room was made.
    """
    again |= is_above
    entries = entry_keys(documents_format, path)
    others = {key: documents.get(key) for key in node_keys(documents_format, path) if key not in entries}
    entry = next((key for key in documents if key in entries), None)
    further = {key: value for key, value in documents.items() if key not in entries | others.keys()}
    for key in further.keys() & set(documents_format.root_keys()):
        conflicts.create(store, key, further.pop(key))  # refused: the store is configured already
    seen: dict[str, tuple[bytes | None, str | None]] = {}
    if entry is not None:
        # what is written on a condition needs no look before, unless others of the node come before it
        looked_for = entries if others else entries - {entry}
        is_taken = bool(present(fetch(store, sorted(looked_for))))
        replaced = {} if is_taken else _write_first(store, sorted(entries), others)
        if is_taken or not conflicts.create(store, entry, documents[entry]):
            put_back(store, others, replaced)
            found = present(fetch(store, [*entries, *others]))
            if again and is_blank(blank := found.get(entry, b"{}")):
                put_back(store, {entry: blank}, {entry: None})
                create_node(store, documents_format, path, documents, again=True, is_above=is_above)
                return
            is_array = documents_format.parse_array(path, found) is not None
            if is_above and found and not is_array:
                return
            if not (again and entry in found and _same(documents_format, entry, found[entry], documents[entry])):
                hint = "an array cannot have nodes below it" if is_above else _MADE_SINCE
                raise NodeExists(url=store.url, path=path, found="array" if is_array else "group", hint=hint)
        looks: list[Any] = [partial(store.get_versioned, key) for key in others]
        found, *versions = at_once(store, partial(fetch, store, sorted(entries - {entry})), *looks)
        seen = dict(zip(others, versions, strict=True))
        if not is_taken and _stays(store, found, yields=entry in documents_format.group_keys(path)):
            # array and group have entries of their own in some formats, and others wrote theirs
            put_back(store, {**documents, **others}, {entry: None, **replaced})
            raise NodeExists(url=store.url, path=path, found="node", hint=_MADE_SINCE)
    for key, value in {**others, **further}.items():
        # again, also where it is equal: a writer that saw no node may be about to replace what it saw then
        conflicts.update(store, key, lambda _, value=value: value, seen=seen.get(key), rewrites=key in others)  # type: ignore[misc]


def _stays(store: Store, found: Documents, *, yields: bool) -> bool:
    """Return whether another node is there: a group's writer gives way to an array's, which waits for that (P4).

    Each wrote its own entry before it looked for the other's. If both gave way, neither node would exist.
    """
    for seconds in () if yields else conflicts.PAUSES:
        if not present(found):
            return False
        conflicts.pause(seconds)
        found = fetch(store, found)
    return bool(present(found))


def declare_arrays(arrays: Iterable[StoredArray]) -> None:
    """Tell stores that must know arrays before their chunks (`Store.declare`) of new, and longer ones.

    Readers find them when their documents are published.
    """
    for array in arrays:
        if array.store.has_transactions:
            documents_format = format_of_store(array.store, array.format)
            documents = documents_format.emit_array(array.path, array.metadata)
            there = documents_format.parse_array(array.path, present(fetch(array.store, documents)))
            if there is None or there.chunk_grid != array.metadata.chunk_grid:
                array.store.declare(documents, array.write_layout.locator.key((0,) * array.ndim))


def check_own(store: Store, documents_format: Format, nodes: Mapping[str, Mapping[str, bytes]]) -> None:
    """Raise `NodeExists` where there is another node at a path than the one of these documents (P4).

    The document that makes a node is the last that its writer writes: all of them are there when it is.
    """
    keys = {path: entry_keys(documents_format, path) | documents.keys() for path, documents in nodes.items()}
    there = without_blank(fetch(store, (key for own in keys.values() for key in own)))
    for path, documents in nodes.items():
        found = {key: there[key] for key in keys[path]}
        is_own = all(_same(documents_format, key, value, documents.get(key)) for key, value in found.items())
        if not is_own and any(found[key] is not None for key in entry_keys(documents_format, path)):
            kind = "group" if documents_format.parse_array(path, present(found)) is None else "array"
            raise NodeExists(url=store.url, path=path, found=kind, hint=_MADE_SINCE)


def _write_first(store: Store, entries: Collection[str], documents: Documents) -> Documents:
    """Write documents of a node that does not exist yet; return what they replaced (P3).

    What is there without a node is of one that was half written.
    """
    replaced: Documents = {}
    for key, new in documents.items():

        def written(there: bytes | None, key: str = key, new: bytes | None = new) -> bytes | None:
            is_of_others = key in replaced and present(fetch(store, entries))  # after a conflict
            replaced[key] = there
            return there if is_of_others else new

        # where it is written, it is absent as a rule: the first try finds out
        conflicts.update(store, key, written, seen=None if new is None else (None, None))
    return replaced


def unpublish(store: Store, documents_format: Format, path: str, documents: Mapping[str, bytes]) -> None:
    """Delete the documents of a node that was just published, its entry document first (P8)."""
    entries = entry_keys(documents_format, path)
    put_back(store, documents, dict.fromkeys(sorted(documents, key=lambda key: key not in entries)))


def put_back(store: Store, written: Mapping[str, bytes | None], before: Documents) -> None:
    """Undo writes, unless others have written since (P3, P8)."""
    for key, value in before.items():
        conflicts.update(store, key, lambda there, new=written[key], old=value: old if there == new else there)  # type: ignore[misc]


_MADE_SINCE = "it was made by others after this write began, and stays; give another path, or mode='w'"


class _Changed(Exception):
    """Others have changed a document since it was seen."""


def _replaced(
    documents_format: Format, key: str, seen: bytes | None, new: bytes | None, there: bytes | None
) -> bytes | None:
    if _same(documents_format, key, there, new):
        return there
    if not _same(documents_format, key, there, seen):
        raise _Changed
    return new if there is None or new is None else _with_consolidated(documents_format, key, there, new)


def change(
    store: Store,
    documents_format: Format,
    keys: Collection[str],
    change: Callable[[Documents], Mapping[str, bytes | None]],
) -> Documents:
    """Replace documents by what `change` makes of them, as often as others change them first; return what it was given.

    Each changes only while it is what was seen; consolidated metadata that a group's own document holds are kept.

    Parameters
    ----------
    keys
        Of the documents of one node.
    change
        Called with the documents (``None`` for absent ones), and again after a conflict; returns the new ones, and
        ``None`` for those to delete. Others stay. It may raise.

    Raises
    ------
    StoreError
        Others change the documents again and again, or the store refuses each change.
    """
    for n_conflicts in range(_MOST_CONFLICTS):
        seen = fetch(store, keys)
        new = {k: v for k, v in change(seen).items() if not _same(documents_format, k, seen[k], v)}
        try:
            for key, value in new.items():
                conflicts.update(store, key, partial(_replaced, documents_format, key, seen[key], value))
        except _Changed:
            if n_conflicts > _FEW_CONFLICTS:
                conflicts.pause(conflicts.PAUSES[0])
        else:
            return seen
    reason = f"others changed it {_MOST_CONFLICTS} times while it was to be changed"
    raise StoreError(url=store.url, key=next(iter(keys)), reason=reason)


_MOST_CONFLICTS = 1000
_FEW_CONFLICTS = 3


def _same(documents_format: Format, key: str, a: bytes | None, b: bytes | None) -> bool:
    """Compare two documents as JSON, without the consolidated metadata in them."""
    if a is None or b is None or a == b:
        return a == b
    return same_json(*(parse_json(key, own_part(documents_format, key, value)) for value in (a, b)))


def own_part(documents_format: Format, key: str, value: bytes) -> bytes:
    """Return a document without the consolidated metadata that it may hold."""
    known = _consolidated_in(documents_format, key, value)
    return value if known is None else known.get(key, value)


def _with_consolidated(documents_format: Format, key: str, there: bytes, new: bytes) -> bytes:
    """Return `new` with the consolidated metadata that the document `there` holds."""
    known = _consolidated_in(documents_format, key, there)
    if known is None or key not in known or _consolidated_in(documents_format, key, new) is not None:
        return new
    return documents_format.emit_consolidated(_folder(key), {**known, key: new})[key]


def _consolidated_in(documents_format: Format, key: str, value: bytes) -> dict[str, bytes] | None:
    """Return the documents consolidated in the document at `key`, its own included; ``None`` without any."""
    if documents_format.consolidated_key(_folder(key)) != key:
        return None
    return documents_format.parse_consolidated(_folder(key), value)


def _folder(key: str) -> str:
    return key.rpartition("/")[0]


READ_ONLY_SET = (
    "there is a reference set, and those are read-only: give another url, "
    "or convert the set to a store of its own and write there"
)
_ENTRY_POINT = "zarr.json"  # of a group in Zarr v3, of a whole store in its draft: what one writes would hide the other


def check_root(store: Store, documents_format: Format) -> None:
    """Refuse a store whose root another format configures in the same documents, and a reference set (P1)."""
    root = present(fetch(store, {ROOT_KEY: None, **dict.fromkeys(documents_format.root_keys())}))
    if ROOT_KEY in root and is_reference_root(root.pop(ROOT_KEY)):
        raise StoreError(url=store.url, key=ROOT_KEY, reason=READ_ONLY_SET)
    if root and documents_format.configured(root) is None:
        raise _of_another_format(documents_format, next(iter(root)))


def check_free(documents_format: Format, new: Iterable[str], there: Documents) -> None:
    """Raise `UnsupportedFeature` where documents to write exist and belong to another format (P1)."""
    for key in new:
        if key.endswith(_ENTRY_POINT) and there.get(key) is not None:
            raise _of_another_format(documents_format, key)


def _of_another_format(documents_format: Format, key: str) -> UnsupportedFeature:
    feature = "nodes in a store of another format, of which both need one document"
    return UnsupportedFeature(format=documents_format.name, feature=feature, key=key, hint="give another url")


# --------------------------------------------------------------------------------------------------------------------
# Which keys a node has


def node_prefixes(path: str, documents_format: Format) -> tuple[str, ...]:
    """Return the prefixes below which nodes at and below `path` are stored."""
    return (documents_format.chunk_prefix(path), *documents_format.list_prefixes(path)) if path else ("",)


def documents_below(store: Store, documents_format: Format, path: str, prefixes: Iterable[str]) -> list[str]:
    """Return the keys of all documents below some prefixes, whatever their format."""
    known = [each for each in FORMATS if each.node_keys_known]
    keys = {key for each in known for key in (each.consolidated_key("a"), *node_keys(each, "a")) if key is not None}
    names = {key.removeprefix("a/") for key in keys}
    apart = tuple({*documents_format.list_prefixes(path)} - {documents_format.chunk_prefix(path)})
    return [
        key
        for prefix in prefixes
        for key in store.list_prefix(prefix)
        if (key.rpartition("/")[2] in names or key.startswith(apart)) and not key.startswith(JOB_PREFIX)
    ]


def node_prefix(documents_format: Format, path: str) -> str:
    """Return the prefix below which all of a node is stored, in formats that have one: of the root, all keys."""
    return documents_format.chunk_prefix(path) if path else ""


def join_path(path: str, name: str) -> str:
    """Return the path of a child."""
    return "/".join(part for part in (path, name) if part)


# --------------------------------------------------------------------------------------------------------------------
# Consolidated metadata of groups, kept up to date, also while others change them


def refresh_consolidated(
    store: Store,
    documents_format: Format,
    paths: Iterable[str],
    *,
    forget: bool = False,
    own: bool = True,
    edit: Callable[[str, bytes], bytes] = lambda _, document: document,
) -> None:
    """Update the consolidated metadata of the groups above some nodes, where there are any (P5).

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
    below = tuple(f"{path}/" for path in paths)
    above = {
        group: key
        for group in {group for path in paths for group in (*([path] if own and not forget else ()), *parents_of(path))}
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
            kept = {k: v for k, v in known.items() if k not in keys and not (forget and k.startswith(below))}
            after = kept | {k: v for k, v in there.items() if k not in left_out}
            return value if _alike(after, known) else documents_format.emit_consolidated(group, after)[above[group]]

        conflicts.update(store, above[group], changed)


def _alike(a: Mapping[str, bytes], b: Mapping[str, bytes]) -> bool:
    """Compare documents as JSON: inside consolidated metadata they are formatted differently."""
    return a.keys() == b.keys() and all(a[k] == b[k] or same_json(parse_json(k, a[k]), parse_json(k, b[k])) for k in a)


def forget_consolidated(store: Store, path: str) -> None:
    """Remove a node, and all nodes below it, from the consolidated metadata above it, in every format."""
    for documents_format in FORMATS:
        if documents_format.consolidated_key("") is not None and may_have(documents_format, path):
            refresh_consolidated(store, documents_format, [path], forget=True)


def write_consolidated(store: Store, documents_format: Format, path: str, collect: Collect) -> None:
    """Write the consolidated metadata of the group at `path` from what `collect` finds below it.

    They are collected again after writing: a node that was made in between is not left out.
    """
    key: Any = documents_format.consolidated_key(path)
    if key is None:
        documents_format.emit_consolidated(path, {})  # UnsupportedFeature
    is_done = False

    def collected(there: bytes | None) -> bytes | None:
        nonlocal is_done
        documents, known = collect(), None
        with suppress(MetadataError):
            known = None if there is None else documents_format.parse_consolidated(path, there)
        is_done = known is not None and _alike(documents, known)
        return there if is_done else documents_format.emit_consolidated(path, documents)[key]

    for _ in range(_MOST_CONFLICTS):
        conflicts.update(store, key, collected)
        if is_done:
            return
    raise StoreError(url=store.url, key=key, reason=f"nodes were made and deleted below it {_MOST_CONFLICTS} times")


Collect = Callable[[], dict[str, bytes]]
