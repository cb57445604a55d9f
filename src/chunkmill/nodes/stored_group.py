"""A stored group, and its children, which are opened when asked for.

Not here: opening by path (`chunkmill.nodes.opening`), the public face, which creates nodes too
(`chunkmill.nodes.group`), drawings (`chunkmill.display.group`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from copy import copy
from functools import partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from chunkmill.array.stored_array import ReadMissing, check_read_missing
from chunkmill.errors import ChunkmillError, MetadataError, NodeBeingReplaced, NodeNotFound, StoreError, UnknownCodec
from chunkmill.formats.base import Format
from chunkmill.journal.unfinished import settled
from chunkmill.model.metadata import HIDDEN_ATTRIBUTE, JSON, ArrayMetadata, Attributes, GroupMetadata
from chunkmill.nodes import deferred_imports
from chunkmill.nodes.array import Array
from chunkmill.nodes.changes import Change, ChangesAttributes, changed_group
from chunkmill.nodes.documents import Documents, documents_of_zarr, fetch, first_document, is_torn, node_keys, present
from chunkmill.nodes.keys import child_names, holds_chunks, is_folder, join_path, listed_children
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import limited_to, uncached

if TYPE_CHECKING:
    from chunkmill.nodes.multiscales import MultiscaleImage

__all__ = ["OnError", "StoredGroup", "StoredNode", "is_bare", "parse_node"]


OnError: TypeAlias = Callable[[str, ChunkmillError], None]


def _warn(path: str, error: ChunkmillError) -> None:
    warnings.warn(f"{path!r} cannot be opened, and is left out: {error}", stacklevel=5)


class StoredGroup(ChangesAttributes):
    """A group of arrays and groups, opened when they are asked for; groups below it are of its own class.

    Iterating gives the names of its direct children.
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
        self.is_documented = True
        self.is_implicit = False

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
        """User attributes, read-only: `update_attributes` changes them."""
        return Attributes({name: v for name, v in self.metadata.attributes.items() if name != HIDDEN_ATTRIBUTE})

    @property
    def multiscales(self) -> tuple[MultiscaleImage, ...]:
        """Images whose levels are in this group, by OME-Zarr, N5-viewer, BigDataViewer or COSEM; often none.

        `MetadataError` where their metadata are wrong. See `chunkmill.pyramid`, which makes the levels.
        """
        from chunkmill.nodes.multiscales import multiscales_of  # noqa: PLC0415 - few groups are asked

        return multiscales_of(self.path, self.attributes, self.arrays_named, self.__getitem__)

    def children(self, *, without: Collection[str] = ()) -> dict[str, Array | Self]:
        """Open every direct child but those named: one listing, then all documents at once where the store can."""
        children = self.opened_children(lambda name: name not in without)
        return {name: node for name, node in children.items() if node is not None}

    def members(self, *, without: Collection[str] = (), on_error: OnError | None = None) -> dict[str, Array | Self]:
        """Open every direct child, and as groups the folders without a document that contain nodes further down.

        Such folders are not groups in Zarr v2 and v3, but some writers leave their documents out (TensorStore all,
        zarr-java's OME-Zarr plates those of rows and wells), and others find the arrays below by their paths only. Each
        folder without a document is listed, down to the first document. Children of another Zarr version are members.
        In N5, where every folder is a group, those are arrays, or have attributes, that documents of Zarr describe.

        Parameters
        ----------
        without : collection of str
            Names to leave out.
        on_error : callable, optional
            Called with path and error of each child that cannot be opened; by default the first error is raised.

        Examples
        --------
        >>> import chunkmill as cm
        >>> from chunkmill.stores.memory import MemoryStore
        >>> store = MemoryStore()
        >>> _ = cm.create_array(store, "plate/A1", shape=(4,), dtype="i4", chunks=(2,))
        >>> store.delete("plate/zarr.json")
        >>> list(cm.open_group(store).children()), list(cm.open_group(store).members())
        ([], ['plate'])
        """
        return self.opened_members(without, on_error)

    def opened_members(
        self, without: Collection[str] = (), on_error: OnError | None = None, *, settles: bool = True
    ) -> dict[str, Array | Self]:
        """Return what `members` does; see `opened_children`."""
        try:
            opened = self.opened_children(lambda name: name not in without, settles=settles)
            for node in opened.values() if on_error is not None else ():
                if isinstance(node, Array):
                    node.check_codecs()
        except ChunkmillError as error:
            if on_error is None:
                raise
            names = child_names(self.store, self.documents, self.path) - set(without)
            if isinstance(error, NodeBeingReplaced) and not names:
                on_error(self.path, error)
            opened = self._open_one_by_one(names, on_error)
        for name in [name for name, node in opened.items() if node is None]:
            try:
                opened[name] = self._open_folder(join_path(self.path, name))
            except ChunkmillError as error:
                if on_error is None:
                    raise
                on_error(join_path(self.path, name), error)
        return {name: node for name, node in opened.items() if node is not None}

    def _open_folder(self, path: str) -> Array | Self | None:
        """Return the node of another format at `path`, or the folder as a group if nodes are stored below it."""
        found = first_document(self.store, self.documents, path)
        if found is None:
            return None
        at, documents_format = found
        if at == path:
            documents = fetch(self.store, node_keys(documents_format, path))
            node = parse_node(type(self), self.store, path, documents_format, documents, read_only=self.read_only)
        else:
            node = self._group_at(path)
            node.is_documented = False
        return node if node is None else node.with_read_missing(self.read_missing)

    def opened_children(
        self, accepts: Callable[[str], bool] = lambda _: True, *, settles: bool = True
    ) -> dict[str, Array | Self | None]:
        """Open the listed children whose names are accepted; ``None`` for folders that are not nodes.

        Where it `settles`, those that are being replaced are waited for. Writers look for jobs themselves.

        Raises
        ------
        NodeBeingReplaced
            One of them, or the group itself, is being replaced.
        """
        read = partial(self._children_now, accepts, settles=settles)
        return settled(uncached(self.store), read) if settles else read()[0]

    def _children_now(
        self, accepts: Callable[[str], bool], *, settles: bool
    ) -> tuple[dict[str, Array | Self | None], list[str] | None]:
        """Return also the paths where documents are missed (`settled`)."""
        names, shows_own = listed_children(self.store, self.documents, self.path)
        opened, documents = self._open_listed(filter(accepts, names))
        paths = [join_path(self.path, name) for name in opened]
        if settles and is_torn(self.store, self.documents, paths, documents):
            return opened, None
        missing = [join_path(self.path, name) for name, node in opened.items() if is_bare(node)]
        has_own = shows_own or any(fetch(self.store, self.documents.group_keys(self.path)[:1]).values())
        return opened, missing if has_own else [*missing, self.path]

    def _open_listed(self, names: Iterable[str]) -> tuple[dict[str, Array | Self | None], Documents]:
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
        folders = {paths[name]: node for name, node in opened.items() if not isinstance(node, Array)}
        described = self._described_by_zarr(folders)
        return {name: described.get(paths[name], node) for name, node in opened.items()}, documents

    def _described_by_zarr(self, folders: Mapping[str, Self | None]) -> dict[str, Array | Self]:
        """Return the arrays, and groups with attributes, that Zarr's documents make of folders of an N5 tree, by path.

        Groups stay N5's, so that arrays of both formats are found below them.
        """
        if not self.documents.empty_groups:  # elsewhere a folder without a document is looked into
            return {}
        described: dict[str, Array | Self] = {}
        for path, (documents_format, documents) in documents_of_zarr(self.store, folders).items():
            node = parse_node(type(self), self.store, path, documents_format, documents, read_only=self.read_only)
            if isinstance(node, StoredGroup):
                group = folders[path]
                group = self._group_at(path) if group is None else group  # an empty one is false, and to be opened
                if not group.metadata.attributes:
                    group.metadata = node.metadata
                node = group
            if node is not None:
                described[path] = node.with_read_missing(self.read_missing)
        return described

    def _open_one_by_one(self, names: Collection[str], on_error: OnError) -> dict[str, Array | Self | None]:
        opened: dict[str, Array | Self | None] = {}
        for name in sorted(names):
            try:
                opened[name] = self[name]
            except NodeBeingReplaced as error:
                on_error(error.path, error)
            except NodeNotFound:
                opened[name] = None
            except ChunkmillError as error:
                on_error(join_path(self.path, name), error)
        return opened

    def parse_child(self, path: str, documents: Documents, *, is_listed: bool = False) -> Array | Self | None:
        """Return the node at `path` below the group that `documents` describe; ``None`` when there is none.

        Parameters
        ----------
        is_listed
            Whether a listing shows `path`: in N5 every folder is a group, empty ones too.
        """
        node = parse_node(type(self), self.store, path, self.documents, documents, read_only=self.read_only)
        if node is None and self.documents.implicit_groups:
            is_group = is_listed and self.documents.empty_groups
            if holds_chunks(self.store, self.documents, path):
                return None
            if is_group or is_folder(self.store, self.documents, path):
                node = self._group_at(path)
        return node if node is None or self.read_missing == "fill" else node.with_read_missing(self.read_missing)

    def _group_at(self, path: str) -> Self:
        """Return a group without a document."""
        group = type(self)(self.store, path, GroupMetadata(), self.documents, read_only=self.read_only)
        group.read_missing = self.read_missing
        group.is_implicit = True
        return group

    def with_read_missing(self, read_missing: ReadMissing) -> Self:
        """Return the group as if opened so: ``"error"`` makes its arrays raise where a chunk is absent."""
        other = copy(self)
        other.read_missing = check_read_missing(read_missing)
        return other

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, path: object) -> bool:
        try:
            self[str(path)]
        except NodeBeingReplaced:
            raise
        except NodeNotFound:
            return False
        except (MetadataError, UnknownCodec):
            return True
        return True

    def __getitem__(self, path: str) -> Array | Self:
        """Open the node at `path` below the group; `NodeNotFound` (a ``KeyError``) when there is none."""
        full = join_path(self.path, self.documents.normalize_path(path))
        node = settled(uncached(self.store), partial(self._node_now, full))
        if node is None:
            hint = f"the group {self.path!r} has {', '.join(map(repr, list(self)[:20])) or 'no children'}"
            raise NodeNotFound(url=self.url, path=full, hint=hint)
        if isinstance(node, Array):
            node.check_codecs()
        return node

    def _node_now(self, path: str) -> tuple[Array | Self | None, list[str] | None]:
        documents = fetch(self.store, node_keys(self.documents, path))
        node = self.parse_child(path, documents)
        if is_torn(self.store, self.documents, [path], documents):
            return node, None
        if not isinstance(node, Array):
            node = self._described_by_zarr({path: node}).get(path, node)
        return node, [path] if is_bare(node) else []

    def arrays(self) -> dict[str, Array]:
        """Return the arrays directly below, by name; a warning names each node that cannot be opened."""
        return {name: node for name, node in self.openable().items() if isinstance(node, Array)}

    def arrays_named(self, accepts: Callable[[str], bool]) -> dict[str, Array]:
        """Return the arrays directly below whose names are accepted, by name: others are not opened."""
        return {name: node for name, node in self.opened_children(accepts).items() if isinstance(node, Array)}

    def groups(self) -> dict[str, Self]:
        """Return the groups directly below, by name; a warning names each node that cannot be opened."""
        return {name: node for name, node in self.openable().items() if isinstance(node, StoredGroup)}

    def keys(self) -> KeysView[str]:
        """Return the names of the nodes directly below, as iterating does: of those that cannot be opened, too."""
        broken: dict[str, None] = {}
        opened = self.openable(lambda path, _: broken.update({path.rpartition("/")[2]: None}))
        return dict.fromkeys(sorted({*opened, *broken})).keys() if broken else opened.keys()

    def values(self) -> ValuesView[Array | Self]:
        """Return the nodes directly below; a warning names each that cannot be opened."""
        return self.openable().values()

    def items(self) -> ItemsView[str, Array | Self]:
        """Return name and node of each node directly below; a warning names each that cannot be opened."""
        return self.openable().items()

    def openable(self, on_error: OnError = _warn) -> dict[str, Array | Self]:
        """Return the nodes directly below that can be opened, by name; `on_error` gets path and error of the others."""
        try:
            return self.children()
        except MetadataError:
            opened = self._open_one_by_one(child_names(self.store, self.documents, self.path), on_error)
            return {name: node for name, node in opened.items() if node is not None}

    def array(self, path: str) -> Array:
        """Open the array at `path` below the group; `NodeNotFound` where there is none, or a group."""
        node = self[path]
        if not isinstance(node, Array):
            raise NodeNotFound(url=self.url, path=node.path, found="group", wanted="array")
        return node

    def group(self, path: str) -> Self:
        """Open the group at `path` below the group; `NodeNotFound` where there is none, or an array."""
        node = self[path]
        if not isinstance(node, StoredGroup):
            raise NodeNotFound(url=self.url, path=node.path, found="array", wanted="group")
        return node

    def _check_writable(self) -> None:
        if self.read_only:
            reason = "opened for reading only; open it with mode='r+' to write"
            raise StoreError(url=self.url, key=self.path, reason=reason)

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
        return deferred_imports.tree_text(self)

    def _change_attributes(self, change: Change) -> Self:
        self._check_writable()
        below = uncached(self.store)
        metadata = changed_group(below, self.path, self.format, change)
        self.metadata = metadata
        return self

    def __repr__(self) -> str:
        return deferred_imports.group_text(self)

    def _repr_html_(self) -> str:
        return deferred_imports.group_html(self)


def is_bare(node: Array | StoredGroup | None) -> bool:
    """Return whether there is no node, or only a folder that is one: no document was found."""
    return node is None or (isinstance(node, StoredGroup) and node.is_implicit)


StoredNode: TypeAlias = Array | StoredGroup
G = TypeVar("G", bound=StoredGroup)


def parse_node(
    kind: type[G], store: Store, path: str, documents_format: Format, documents: Documents, *, read_only: bool
) -> Array | G | None:
    """Return the node that documents describe, a group as one of `kind`; ``None`` when they describe none."""
    found = present(documents)
    array = documents_format.parse_array(path, found)
    if array is not None:
        prefix = documents_format.chunk_prefix(path)
        # chunks are not in consolidated metadata, and every task carries its array
        own = uncached(store)
        opened = Array(_limited(own, array), path, array, documents_format.name, prefix, read_only=read_only)
        opened.last_seen.was_found = own is store
        return opened
    group = documents_format.parse_group(path, found)
    return None if group is None else kind(store, path, group, documents_format, read_only=read_only)


def _limited(store: Store, metadata: ArrayMetadata) -> Store:
    """Return the store, such that a value that no chunk of the array can be long enough for is not decompressed."""
    if metadata.dtype.kind in "OT":  # of any length
        return store
    n_bytes = prod(metadata.chunk_grid.chunk_shape) * max(metadata.dtype.itemsize, _WIDEST_ENCODED)
    return limited_to(store, 2 * n_bytes + _LONGEST_DOCUMENT)


_WIDEST_ENCODED = 16  # bytes of an element after a codec that widens it
_LONGEST_DOCUMENT = 16 * 2**20  # in addition to the array's chunks: its attributes
