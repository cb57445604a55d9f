"""Nodes: open, create, list and walk the arrays and groups of a store.

Formats turn documents into descriptions, stores fetch documents; here the two meet. Not here: chunks
(`chunkmill.array.chunk_io`), the arguments that users give (`chunkmill.nodes.api`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import Any

from chunkmill.array.chunk_io import Array, ReadMissing, check_read_missing
from chunkmill.errors import MetadataError, NodeExists, NodeNotFound, StoreError
from chunkmill.formats.base import Format
from chunkmill.formats.registry import FORMATS, get_format
from chunkmill.model.metadata import JSON, ArrayMetadata, GroupMetadata
from chunkmill.nodes.documents import (
    READ_ONLY_SET,
    Documents,
    absence,
    check_free,
    check_root,
    fetch,
    forget_consolidated,
    format_of_store,
    is_reference_folder,
    may_have,
    node_keys,
    parents_of,
    present,
    refresh_consolidated,
    set_all,
)
from chunkmill.stores.base import Store
from chunkmill.stores.overlay import OverlayStore
from chunkmill.stores.zip import ZipStore

__all__ = [
    "Group",
    "Node",
    "appear",
    "array_at",
    "consolidate",
    "create_array",
    "create_group",
    "format_of_store",
    "is_bare",
    "open_node",
    "publish",
    "refresh_consolidated",
    "settle",
    "walk",
    "with_attributes",
]


class Group:
    """A group of arrays and groups, opened when they are asked for.

    Iterating gives the names of its direct children. Made by `chunkmill.open_group` and `chunkmill.create_group`.

    Examples
    --------
    >>> import chunkmill as cm
    >>> g = cm.create_group("memory://doc-group")
    >>> _ = cm.create_array("memory://doc-group", "a/b", shape=(4,), dtype="i4", chunks=(2,))
    >>> list(g), list(g["a"]), g["a/b"].shape
    (['a'], ['b'], (4,))
    """

    def __init__(
        self, store: Store, path: str, metadata: GroupMetadata, documents: Format, *, read_only: bool = True
    ) -> None:
        self.store = store
        self.path = path
        self.metadata = metadata
        self.documents = documents
        self.read_only = read_only
        self.read_missing: ReadMissing = "fill"

    @property
    def format(self) -> str:
        """Name of the format."""
        return self.documents.name

    @property
    def url(self) -> str:
        """Canonical url of the store."""
        return self.store.url

    @property
    def attributes(self) -> Mapping[str, JSON]:
        """The user's attributes."""
        return self.metadata.attributes

    def children(self, *, without: Collection[str] = ()) -> dict[str, Node]:
        """Open every direct child but those named: one listing, then all documents at once where the store can."""
        names = [name for name in _child_names(self.store, self.documents, self.path) if name not in without]
        paths = {name: _join(self.path, name) for name in names}
        keys = {name: self.documents.array_keys(path) for name, path in paths.items()}
        documents = fetch(self.store, chain.from_iterable(keys.values()))
        for name, path in paths.items():  # a group's are asked for where there is no array
            if documents[keys[name][0]] is None:
                keys[name] = tuple(node_keys(self.documents, path))
        documents |= fetch(self.store, (key for key in chain.from_iterable(keys.values()) if key not in documents))
        nodes = {name: self._node(paths[name], {key: documents[key] for key in keys[name]}) for name in names}
        return {name: node for name, node in nodes.items() if node is not None}

    def _node(self, path: str, documents: Documents) -> Node | None:
        node = _parse_node(self.store, path, self.documents, documents, read_only=self.read_only)
        if node is None and self.documents.implicit_groups and _has_keys(self.store, self.documents, path):
            node = Group(self.store, path, GroupMetadata(), self.documents, read_only=self.read_only)
        return node if node is None or self.read_missing == "fill" else node.with_read_missing(self.read_missing)

    def with_read_missing(self, read_missing: ReadMissing) -> Group:
        """Return the group as if opened so: ``"error"`` makes its arrays raise where a chunk is absent."""
        other = copy(self)
        other.read_missing = check_read_missing(read_missing)
        return other

    def __iter__(self) -> Iterator[str]:
        return iter(self.children())

    def __len__(self) -> int:
        return len(self.children())

    def __contains__(self, path: object) -> bool:
        try:
            self[str(path)]
        except NodeNotFound:
            return False
        return True

    def __getitem__(self, path: str) -> Node:
        """Open the node at `path` below the group; `NodeNotFound` (a ``KeyError``) when there is none."""
        full = _join(self.path, self.documents.normalize_path(path))
        node = self._node(full, fetch(self.store, node_keys(self.documents, full)))
        if node is None:
            hint = f"the group {self.path!r} has {', '.join(map(repr, list(self)[:20])) or 'no children'}"
            raise NodeNotFound(url=self.url, path=full, hint=hint)
        if isinstance(node, Array):
            node.check_codecs()
        return node

    def arrays(self) -> dict[str, Array]:
        """Return the arrays directly below, by name."""
        return {name: node for name, node in self.children().items() if isinstance(node, Array)}

    def groups(self) -> dict[str, Group]:
        """Return the groups directly below, by name."""
        return {name: node for name, node in self.children().items() if isinstance(node, Group)}

    def tree(self) -> str:
        """Draw everything below the group, as text.

        Examples
        --------
        >>> import chunkmill as cm
        >>> g = cm.create_group("memory://doc-tree")
        >>> _ = cm.create_array("memory://doc-tree", "a/b", shape=(4,), dtype="i4", chunks=(2,))
        >>> print(g.tree())
        /
        └── a
            └── b (4,) int32
        """
        from chunkmill.display.array import tree_text  # noqa: PLC0415 - as below

        return tree_text(self)

    def __repr__(self) -> str:
        from chunkmill.display.array import group_text  # noqa: PLC0415 - as below

        return group_text(self)

    def _repr_html_(self) -> str:
        from chunkmill.display.array import group_html  # noqa: PLC0415 - drawn only when asked for

        return group_html(self)


Node = Array | Group


def open_node(
    store: Store,
    path: str = "",
    *,
    format: str | Format | None = None,  # noqa: A002
    consolidated: bool | None = None,
    read_only: bool = True,
) -> Node:
    """Open the node at `path`, of whatever format is found there.

    Parameters
    ----------
    format
        The only format to look for; all are tried when ``None``, in the order of `FORMATS`.
    consolidated
        ``None``: use consolidated metadata where there is some; ``True``: demand it; ``False``: ignore it.

    Raises
    ------
    NodeNotFound
        No format knows a node there.
    MetadataError
        There is one and its documents are wrong.
    """
    if format is None:  # where no format can have such a path, the first says why
        formats = tuple(each for each in FORMATS if may_have(each, path)) or FORMATS
    else:
        formats = (get_format(format) if isinstance(format, str) else format,)
    documents = fetch(store, (key for f in formats for key in _opening_keys(f, path, consolidated)))
    for candidate in formats:
        documents_format = candidate.configured(present(documents))
        if documents_format is None:
            continue
        at = documents_format.normalize_path(path)
        keys = tuple(node_keys(documents_format, at))
        documents |= fetch(store, set(keys) - documents.keys())
        overlay, prefix = (None, "") if consolidated is False else _overlay(store, documents_format, at, documents)
        if overlay is not None and prefix == at and documents_format.consolidated_key(at) in keys:
            documents |= fetch(overlay, keys)  # the group's own, without what it holds of others: that may be long
        node = _parse_node(store, at, documents_format, documents, read_only=read_only)
        if overlay is not None:
            node = _behind(overlay, at, documents_format, node, read_only=read_only)
        if node is None and _is_implicit(store, documents_format, at, documents, given=format is not None):
            node = Group(store, at, GroupMetadata(), documents_format, read_only=read_only)
        if node is not None and consolidated and overlay is None:
            key = documents_format.consolidated_key("") or documents_format.name
            raise MetadataError(key=key, field="consolidated metadata", got="none", expected="some: consolidated=True")
        if isinstance(node, Array):
            node.check_codecs()
        if node is not None:
            return node
    hint = absence(store, path, formats) if read_only or not is_reference_folder(store) else READ_ONLY_SET
    raise NodeNotFound(url=store.url, path=path, hint=hint)


def _behind(
    overlay: OverlayStore, path: str, documents_format: Format, node: Node | None, *, read_only: bool
) -> Node | None:
    """Return the node as consolidated metadata know it: a group lists by them, and they may know what else is gone."""
    if isinstance(node, Array):
        return node
    if node is not None:
        return Group(overlay, path, node.metadata, documents_format, read_only=read_only)
    root = Group(overlay, "", GroupMetadata(), documents_format, read_only=read_only)
    return root._node(path, fetch(overlay, node_keys(documents_format, path)))  # noqa: SLF001 - the same module


def create_array(
    store: Store,
    path: str,
    metadata: ArrayMetadata,
    *,
    format: str,  # noqa: A002
    overwrite: bool = False,
) -> tuple[Array, dict[str, bytes]]:
    """Make room for an array; return it, with the documents that make it visible once `publish` writes them.

    What was at `path` is deleted when `overwrite`; chunks can be written before the documents are.

    Raises
    ------
    NodeExists
        There is a node at `path` and not `overwrite`, or an array above it.
    UnsupportedFeature
        The format cannot hold the array. Nothing was changed then.
    """
    documents_format = format_of_store(store, format)
    array = array_at(store, path, metadata, documents_format)
    documents = documents_format.emit_array(array.path, metadata)
    parents = _make_room(store, array.path, documents_format, overwrite=overwrite)
    return array, {**parents, **documents}


def array_at(store: Store, path: str, metadata: ArrayMetadata, format: str | Format) -> Array:  # noqa: A002
    """Return the array that `metadata` describe, at `path`; nothing is looked for there or written."""
    documents_format = format_of_store(store, format) if isinstance(format, str) else format
    path = documents_format.normalize_path(path)
    return Array(store, path, metadata, documents_format.name, documents_format.chunk_prefix(path))


def create_group(
    store: Store,
    path: str,
    metadata: GroupMetadata,
    *,
    format: str,  # noqa: A002
    overwrite: bool = False,
) -> tuple[Group, dict[str, bytes]]:
    """Make room for a group; return it, with the documents that make it visible (see `create_array`)."""
    documents_format = format_of_store(store, format)
    path = documents_format.normalize_path(path)
    documents = documents_format.emit_group(path, metadata)
    parents = _make_room(store, path, documents_format, overwrite=overwrite)
    return Group(store, path, metadata, documents_format, read_only=False), {**parents, **documents}


def publish(store: Store, documents: dict[str, bytes]) -> None:
    """Write documents, in an order in which nothing appears before what it needs: `documents` list that first."""
    for key in reversed(documents):
        store.set(key, documents[key])


def appear(store: Store, documents: dict[str, bytes], format: str) -> None:  # noqa: A002
    """Publish documents, bring consolidated metadata up to date with them, and settle the store."""
    if documents:
        publish(store, documents)
        refresh_consolidated(store, format, documents)
    settle(store)


def settle(store: Store) -> None:
    """Make what was written visible to others now, in stores that gather writes (zip files)."""
    if isinstance(store, ZipStore):
        store.close()


def consolidate(store: Store, group: Group) -> None:
    """Write the group's consolidated metadata from the documents that lie below it now."""
    documents: dict[str, bytes] = {}
    for node in walk(group):
        keys = node_keys(group.documents, node.path)
        documents |= present(fetch(store, keys))
    set_all(store, group.documents.emit_consolidated(group.path, documents))


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and everything below it, parents before children."""
    todo = [node]  # no recursion: a hierarchy may be deeper than Python's stack
    while todo:
        yield (node := todo.pop())
        if isinstance(node, Group):
            todo += reversed(node.children().values())


def _opening_keys(documents_format: Format, path: str, consolidated: bool | None) -> Iterator[str]:
    yield from documents_format.root_keys()
    if documents_format.configured({}) is None:
        return  # where its documents lie is not known before the root is read
    at = documents_format.normalize_path(path)
    yield from node_keys(documents_format, at)
    if consolidated is not False:
        yield from (k for k in map(documents_format.consolidated_key, {at, ""}) if k is not None)


def _parse_node(
    store: Store, path: str, documents_format: Format, documents: Documents, *, read_only: bool
) -> Node | None:
    found = present(documents)
    array = documents_format.parse_array(path, found)
    if array is not None:
        prefix = documents_format.chunk_prefix(path)
        # chunks are not in consolidated metadata, and every task carries its array
        below = store.below if isinstance(store, OverlayStore) else store
        return Array(below, path, array, documents_format.name, prefix, read_only=read_only)
    group = documents_format.parse_group(path, found)
    return None if group is None else Group(store, path, group, documents_format, read_only=read_only)


def _overlay(
    store: Store, documents_format: Format, path: str, documents: Documents
) -> tuple[OverlayStore | None, str]:
    """Return the store with the consolidated metadata at the node, or else at the root, in front; and which of both."""
    for prefix in dict.fromkeys((path, "")):
        key = documents_format.consolidated_key(prefix)
        value = None if key is None else documents.get(key)
        if value is None:
            continue
        found = documents_format.parse_consolidated(prefix, value)
        if found is not None:
            return OverlayStore(found, store, documents_format.document_names), prefix
    return None, ""


def _is_implicit(store: Store, documents_format: Format, path: str, documents: Documents, *, given: bool) -> bool:
    """Whether a prefix without documents is a group: only in a store that is known to be of such a format."""
    if not documents_format.implicit_groups:
        return False
    if not _has_keys(store, documents_format, path):
        return False
    if given or any(documents.get(key) is not None for key in documents_format.root_keys()):
        return True
    # tensorstore marks no root: a folder with an array right below it is meant as a group
    return bool(Group(store, path, GroupMetadata(), documents_format).arrays())


def _has_keys(store: Store, documents_format: Format, path: str) -> bool:
    try:
        return any(store.list_dir(prefix) for prefix in documents_format.list_prefixes(path))
    except StoreError:  # a server that cannot list
        return False


_OURS = ".chunkmill-"  # journals of unfinished jobs: every folder is a group in N5


def _child_names(store: Store, documents_format: Format, path: str) -> list[str]:
    names = {
        name
        for prefix in documents_format.list_prefixes(path)
        for listed in store.list_dir(prefix)
        if not listed.startswith(_OURS) and (name := documents_format.child_name(path, prefix, listed)) is not None
    }
    return sorted(names)


def _make_room(store: Store, path: str, documents_format: Format, *, overwrite: bool) -> dict[str, bytes]:
    """Check and clear `path`; return the documents of the parents that it needs and that are not there yet."""
    check_root(store, documents_format)
    parents = _parent_documents(store, path, documents_format)
    _clear(store, path, documents_format, overwrite=overwrite)
    missing = {k: v for k, v in documents_format.emit_root().items() if store.get(k) is None}
    return {**parents, **missing}


def _parent_documents(store: Store, path: str, documents_format: Format) -> dict[str, bytes]:
    """Return the documents of the groups above `path` that are not there; an array above it is refused."""
    documents: dict[str, bytes] = {}
    parents = parents_of(path)
    fetched = fetch(store, (key for p in parents for key in node_keys(documents_format, p)))
    for parent in parents:
        above = _parse_node(store, parent, documents_format, fetched, read_only=True)
        if isinstance(above, Array):
            raise NodeExists(url=store.url, path=parent, found="array", hint="nothing can lie below an array")
        if above is None:
            group = documents_format.emit_group(parent, GroupMetadata())
            check_free(documents_format, group, fetched)
            documents |= group
    return documents


def _clear(store: Store, path: str, documents_format: Format, *, overwrite: bool) -> None:
    """Delete what is at `path`; `NodeExists` where that is not allowed."""
    try:
        there = open_node(store, path, consolidated=False)
    except NodeNotFound:
        return
    except MetadataError:
        if not overwrite:
            raise
        _delete_node(store, path, documents_format)
        return
    if overwrite:
        _delete_node(store, path, there.documents if isinstance(there, Group) else get_format(there.format))
    elif isinstance(there, Array) or not is_bare(there):
        raise NodeExists(url=store.url, path=path, found="array" if isinstance(there, Array) else "group")


def is_bare(group: Group) -> bool:
    """Whether it is a group for no other reason than that there is such a prefix."""
    documents = present(fetch(group.store, group.documents.group_keys(group.path)))
    return group.documents.implicit_groups and not documents and not len(group)


def _delete_node(store: Store, path: str, documents_format: Format) -> None:
    documents_format = format_of_store(store, documents_format.name)
    for prefix in {documents_format.chunk_prefix(path), *documents_format.list_prefixes(path)}:
        store.delete_prefix(prefix)
    for key in node_keys(documents_format, path):
        store.delete(key)
    forget_consolidated(store, path)


def _join(path: str, name: str) -> str:
    return "/".join(part for part in (path, name) if part)


def with_attributes(node: Node, attributes: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the documents of `node` with other attributes."""
    documents_format = format_of_store(node.store, node.format)
    if isinstance(node, Array):
        return documents_format.emit_array(node.path, replace(node.metadata, attributes=attributes))
    return documents_format.emit_group(node.path, GroupMetadata(attributes))
