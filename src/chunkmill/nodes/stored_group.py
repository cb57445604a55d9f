"""A stored group, and its children, which are opened when asked for.

Not here: opening by path (`chunkmill.nodes.opening`), the public face (`chunkmill.nodes.group`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod
from typing import TypeAlias

from chunkmill.array.stored_array import ReadMissing, StoredArray, check_read_missing
from chunkmill.errors import ChunkmillError, MetadataError, NodeNotFound, StoreError, UnknownCodec
from chunkmill.formats.base import Format, ParsedDocument
from chunkmill.formats.registry import FORMATS
from chunkmill.model.metadata import HIDDEN_ATTRIBUTE, JSON, ArrayMetadata, Attributes, GroupMetadata
from chunkmill.nodes.documents import Documents, fetch, join_path, node_keys, present
from chunkmill.stores.base import Store

OnError: TypeAlias = Callable[[str, ChunkmillError], None]
StoredNode: TypeAlias = "StoredArray | StoredGroup"


@dataclass(eq=False, repr=False)
class StoredGroup:
    """A group of arrays and groups in a store.

    Attributes
    ----------
    store
        The store, perhaps seen through its consolidated metadata.
    path
        Path of the group below the root of `store`, without leading slash.
    documents
        Format of its documents.
    read_only
        Whether nodes below it are opened for reading only.
    read_missing
        Result of reading an absent chunk of an array below it.
    is_documented
        False for a folder that is shown as a group because nodes are stored below it.
    is_implicit
        Whether it is a group without a document.
    """

    store: Store
    path: str
    metadata: GroupMetadata
    documents: Format
    read_only: bool = field(default=True, kw_only=True)
    read_missing: ReadMissing = field(default="fill", kw_only=True)
    is_documented: bool = field(default=True, kw_only=True)
    is_implicit: bool = field(default=False, kw_only=True)

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
        """User attributes, read-only."""
        return Attributes({name: v for name, v in self.metadata.attributes.items() if name != HIDDEN_ATTRIBUTE})

    def check_writable(self) -> None:
        """Raise `StoreError` when the group was opened with ``mode="r"``."""
        if self.read_only:
            reason = "opened for reading only; open it with mode='r+' to write"
            raise StoreError(url=self.url, key=self.path, reason=reason)

    def children(self, *, without: Collection[str] = (), on_error: OnError | None = None) -> dict[str, StoredNode]:
        """Open every direct child but those named: one listing, then all documents at once where the store can."""
        children = self.opened_children(lambda name: name not in without, on_error, MetadataError)
        return {name: node for name, node in children.items() if node is not None}

    def members(self, *, without: Collection[str] = (), on_error: OnError | None = None) -> dict[str, StoredNode]:
        """Open every direct child, and folders above nodes (see `chunkmill.Group.members`, `opened_children`)."""
        opened = self.opened_children(lambda name: name not in without, on_error)
        for name, node in [*opened.items()]:
            try:
                if node is None:
                    opened[name] = self._open_folder(join_path(self.path, name))
                elif on_error is not None and isinstance(node, StoredArray):
                    node.check_codecs()
            except ChunkmillError as error:
                if on_error is None:
                    raise
                on_error(join_path(self.path, name), error)
                opened[name] = None
        return {name: node for name, node in opened.items() if node is not None}

    def _open_folder(self, path: str) -> StoredNode | None:
        """Return the node of another format at `path`, or the folder as a group if nodes are stored below it."""
        found = first_document(self.store, self.documents, path)
        if found is None:
            return None
        at, documents_format = found
        if at == path:
            documents = fetch(self.store, node_keys(documents_format, path))
            node = parse_node(self.store, path, documents_format, documents, read_only=self.read_only)
        else:
            node = self._group_at(path, is_documented=False)
        return node if node is None else node.with_read_missing(self.read_missing)

    def opened_children(
        self,
        accepts: Callable[[str], bool] = lambda _: True,
        on_error: OnError | None = None,
        kind: type[ChunkmillError] = ChunkmillError,
    ) -> dict[str, StoredNode | None]:
        """Open the listed children whose names are accepted; ``None`` for folders that are not nodes.

        `on_error` gets path and error of each that fails with an error of that `kind`.
        """
        names = child_names(self.store, self.documents, self.path)
        if not names:
            self._warn_of_unlisted()
        names = set(filter(accepts, names))
        try:
            return self._open_listed(names)
        except kind:
            if on_error is None:
                raise
        opened: dict[str, StoredNode | None] = {}
        for name in sorted(names):  # one by one: whatever fails is left out
            try:
                opened |= self._open_listed([name])
            except kind as error:
                on_error(join_path(self.path, name), error)
        return opened

    def _warn_of_unlisted(self) -> None:
        """Warn where nothing of the nodes that consolidated metadata name is stored: they are not listed."""
        prefix = self.documents.chunk_prefix(self.path)
        keys = [key.removeprefix(prefix) for key in self.store.remembered(prefix)]
        if below := sorted({key.partition("/")[0] for key in keys if "/" in key}):
            text = (
                f"consolidated metadata name nodes below {self.path or '/'!r} of which nothing is stored, such as "
                f"{below[0]!r} ({len(below):,} in all): they are left out; consolidated=True takes them"
            )
            warnings.warn(text, UserWarning, stacklevel=2)  # one place, whatever lists: it is shown once

    def _open_listed(self, names: Iterable[str]) -> dict[str, StoredNode | None]:
        paths = {name: join_path(self.path, name) for name in sorted(names)}
        keys = {name: self.documents.array_keys(path) for name, path in paths.items()}
        documents = fetch(self.store, chain.from_iterable(keys.values()))
        for name, path in paths.items():  # a group's are asked for where there is no array
            if documents[keys[name][0]] is None:
                keys[name] = tuple(node_keys(self.documents, path))
        documents |= fetch(self.store, (key for key in chain.from_iterable(keys.values()) if key not in documents))
        opened = {
            name: self.parse_child(path, {key: documents[key] for key in keys[name]}, is_listed=True)
            for name, path in paths.items()
        }
        folders = {paths[name]: node for name, node in opened.items() if not isinstance(node, StoredArray)}
        described = self._described_by_zarr(folders)
        return {name: described.get(paths[name], node) for name, node in opened.items()}

    def _described_by_zarr(self, folders: Mapping[str, StoredGroup | None]) -> dict[str, StoredNode]:
        """Return the arrays, and groups with attributes, that Zarr's documents make of folders of an N5 tree, by path.

        Groups stay N5's, so that arrays of both formats are found below them.
        """
        if not self.documents.empty_groups:  # elsewhere a folder without a document is looked into
            return {}
        described: dict[str, StoredNode] = {}
        for path, (documents_format, documents) in documents_of_zarr(self.store, folders).items():
            node = parse_node(self.store, path, documents_format, documents, read_only=self.read_only)
            if isinstance(node, StoredGroup):
                folder = folders[path]
                group = self._group_at(path) if folder is None else folder
                node = group if group.metadata.attributes else replace(group, metadata=node.metadata)
            if node is not None:
                described[path] = node.with_read_missing(self.read_missing)
        return described

    def parse_child(self, path: str, documents: Documents, *, is_listed: bool = False) -> StoredNode | None:
        """Return the node at `path` below the group that `documents` describe; ``None`` when there is none.

        Parameters
        ----------
        is_listed
            Whether a listing shows `path`: in N5 every folder is a group, empty ones too.
        """
        node = parse_node(self.store, path, self.documents, documents, read_only=self.read_only)
        if node is None and self.documents.implicit_groups:
            is_group = is_listed and self.documents.empty_groups
            if holds_chunks(self.store, self.documents, path):
                return None
            if is_group or is_folder(self.store, self.documents, path):
                node = self._group_at(path)
        return node if node is None or self.read_missing == "fill" else node.with_read_missing(self.read_missing)

    def _group_at(self, path: str, *, is_documented: bool = True) -> StoredGroup:
        """Return a group without a document."""
        return replace(self, path=path, metadata=GroupMetadata(), is_documented=is_documented, is_implicit=True)

    def with_store(self, store: Store) -> StoredGroup:
        """Return the group in another store."""
        return replace(self, store=store)

    def with_read_missing(self, read_missing: ReadMissing) -> StoredGroup:
        """Return the group as if opened so: ``"error"`` makes its arrays raise where a chunk is absent."""
        return replace(self, read_missing=check_read_missing(read_missing))

    def __contains__(self, path: object) -> bool:
        try:
            self[str(path)]
        except (NodeNotFound, MetadataError, UnknownCodec) as error:
            return not isinstance(error, NodeNotFound)
        return True

    def __getitem__(self, path: str) -> StoredNode:
        """Open the node at `path` below the group; `NodeNotFound` (a ``KeyError``) when there is none."""
        full = join_path(self.path, self.documents.normalize_path(path))
        documents = fetch(self.store, node_keys(self.documents, full))
        node = self.parse_child(full, documents)
        if not isinstance(node, StoredArray):
            node = self._described_by_zarr({full: node}).get(full, node)
        if node is None:
            hint = f"the group {self.path!r} has {', '.join(map(repr, self.names()[:20])) or 'no children'}"
            raise NodeNotFound(url=self.url, path=full, hint=hint)
        if isinstance(node, StoredArray):
            node.check_codecs()
        return node

    def arrays(self, accepts: Callable[[str], bool] = lambda _: True) -> dict[str, StoredArray]:
        """Return the arrays directly below whose names are accepted, by name: others are not opened."""
        return {name: node for name, node in self.opened_children(accepts).items() if isinstance(node, StoredArray)}

    def names(self) -> list[str]:
        """Return the names of the nodes directly below: of those that cannot be opened, too."""
        broken: list[str] = []
        opened = self.children(on_error=lambda path, _: broken.append(path.rpartition("/")[2]))
        return sorted({*opened, *broken}) if broken else list(opened)


def parse_node(
    store: Store, path: str, documents_format: Format, documents: Documents, *, read_only: bool = True
) -> StoredNode | None:
    """Return the node that documents describe; ``None`` when they describe none."""
    found = present(documents)
    array = documents_format.parse_array(path, found)
    group = documents_format.parse_group(path, found) if array is None else None
    if array is not None:
        prefix = documents_format.chunk_prefix(path)
        # chunks are not in consolidated metadata, and every task carries its array
        own = store.uncached
        opened = StoredArray(_limited(own, array), path, array, documents_format.name, prefix, read_only=read_only)
        entry = documents_format.array_keys(path)[0]
        opened.last_seen.was_found = own is store or not isinstance(found.get(entry), ParsedDocument)
        return opened
    return None if group is None else StoredGroup(store, path, group, documents_format, read_only=read_only)


def _limited(store: Store, metadata: ArrayMetadata) -> Store:
    """Return the store, such that values longer than any chunk of the array are not decompressed (P13)."""
    if metadata.dtype.kind in "OT":  # of any length
        return store
    n_bytes = prod(metadata.chunk_grid.chunk_shape) * max(metadata.dtype.itemsize, _WIDEST_ENCODED)
    return store.limited_to(2 * n_bytes + _LONGEST_DOCUMENT)


_WIDEST_ENCODED = 16  # bytes of an element after a codec that widens it
_LONGEST_DOCUMENT = 16 * 2**20  # in addition to the array's chunks: its attributes


# --------------------------------------------------------------------------------------------------------------------
# Names that listings show below a path


def is_folder(store: Store, documents_format: Format, path: str) -> bool:
    """Return whether a listing shows anything below `path`, or an empty folder where that is a group."""
    try:
        if any(store.list_dir(prefix) for prefix in documents_format.list_prefixes(path)):
            return True
        above, _, name = path.rpartition("/")
        return documents_format.empty_groups and bool(name) and name in child_names(store, documents_format, above)
    except StoreError:  # a server that cannot list
        return False


def holds_chunks(store: Store, documents_format: Format, path: str) -> bool:
    """Return whether a folder is of an array that has no document: of an interrupted write, or a deleted one.

    That is a folder named by a number, with folders named by numbers down to a file named by one.
    """
    while path.rpartition("/")[2].isdigit():
        listed = [name for prefix in documents_format.list_prefixes(path) for name in store.list_dir(prefix)]
        if any(name.isdigit() for name in listed):
            return True
        if not listed or not all(name.endswith("/") for name in listed):
            return False
        path = join_path(path, listed[0].removesuffix("/"))
    return False


# Formats whose documents alone tell that there is a node: N5's `attributes.json` may be anybody's.
_OF_DOCUMENTS = tuple(each for each in FORMATS if each.node_keys_known and not each.implicit_groups)


def documents_of_zarr(store: Store, paths: Collection[str]) -> dict[str, tuple[Format, Documents]]:
    """Return the format and the documents of each of some paths where Zarr has a node, all asked for at once."""
    keys = {(path, each): tuple(node_keys(each, path)) for path in paths for each in _OF_DOCUMENTS}
    documents = fetch(store, chain.from_iterable(keys.values()))
    found: dict[str, tuple[Format, Documents]] = {}
    for (path, each), own in keys.items():
        if path not in found and any(documents[of(path)[0]] is not None for of in (each.array_keys, each.group_keys)):
            found[path] = each, {key: documents[key] for key in own}
    return found


def first_document(store: Store, documents_format: Format, folder: str) -> tuple[str, Format] | None:
    """List a folder that is not a node, down to the first document; return the path and format of its node."""
    todo = [folder]
    while todo:
        path = todo.pop()
        documents = {
            key: each for each in _OF_DOCUMENTS for key in (each.array_keys(path)[0], each.group_keys(path)[0])
        }
        for prefix in documents_format.list_prefixes(path):
            for listed in store.list_dir(prefix):
                key = f"{prefix}{listed}"
                found = documents.get(key) or _folder_format(store, path, key)
                if found is not None:
                    return path, found
                if (name := documents_format.child_name(path, prefix, listed)) is not None:
                    todo.append(join_path(path, name))
    return None


def _folder_format(store: Store, path: str, key: str) -> Format | None:
    """Return the format, of those in which any folder is a group, of which a listed document makes the folder an array.

    Others may have a file of that name, too: it is read.
    """
    for each in FORMATS:
        if each.empty_groups and key == each.array_keys(path)[0] and (value := store.get(key)) is not None:
            with suppress(MetadataError):
                return each if each.parse_array(path, {key: value}) is not None else None
    return None


_OURS = ".chunkmill-"  # journals of unfinished jobs: every folder is a group in N5


def child_names(store: Store, documents_format: Format, path: str) -> set[str]:
    """Return the names of the direct children that listings show."""
    prefixes = documents_format.list_prefixes(path)
    listed = [(prefix, name) for prefix in prefixes for name in store.list_dir(prefix) if not name.startswith(_OURS)]
    found = (documents_format.child_name(path, prefix, name) for prefix, name in listed)
    return {child for child in found if child is not None}
