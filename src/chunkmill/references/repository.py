"""Write a reference set into a repository of Icechunk, as virtual chunks of its arrays: one commit.

It stands where a file of references does (`chunkmill.references.files.SetFile`), so that whatever builds a set whose
documents are of Zarr v3 can write it here. Not here: how chunks are located (`chunkmill.references.locate`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from chunkmill.errors import NodeExists, StoreError, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.registry import get_format
from chunkmill.hints import Hint
from chunkmill.model.metadata import ArrayMetadata, ChunkKeyEncoding, GroupMetadata
from chunkmill.model.references import Reference, ReferenceSet
from chunkmill.nodes import documents
from chunkmill.nodes.api import url_and_path
from chunkmill.nodes.delete import delete_node
from chunkmill.nodes.opening import find_stored, open_target_store
from chunkmill.nodes.stored_group import StoredGroup, StoredNode
from chunkmill.stores.base import Store
from chunkmill.stores.open import is_store, open_plain_store
from chunkmill.stores.reference import split_url

__all__ = ["Repository"]

_AT_ONCE = 10_000  # references that are passed on together
_OVERWRITE = Hint("give another path, or {} to replace it", ("overwrite", True))


@dataclass(frozen=True, slots=True)
class Repository:
    """Repository of Icechunk as the target of a reference set.

    Attributes
    ----------
    store
        Of the repository.
    path
        Of the topmost node; groups above it may be there.
    overwrite
        Whether a node that is there is deleted in the same commit.
    """

    store: Store
    path: str
    overwrite: bool
    kind = "icechunk"

    @classmethod
    def at(cls, target: Any, storage_options: Mapping[str, Any] | None, *, overwrite: bool) -> Self | None:
        """Return the repository that is the target; ``None`` where that is a file or a folder."""
        url, path = url_and_path(target, "target")
        if not is_store(url):
            if not isinstance(url, (str, os.PathLike)):
                raise TypeError(f"a reference set is written to a url, not to {type(url).__name__}")
            if "|" not in os.fspath(url):
                return None
        store = open_target_store(url, storage_options)
        return cls(store, path, overwrite) if store.can_refer else None

    @property
    def url(self) -> str:
        """Url of the repository."""
        return self.store.url

    def check_free(self) -> None:
        """Raise `NodeExists` where there is a node that is not to be overwritten; an empty group may be at the root."""
        there = None if self.overwrite else find_stored(self.store, self.path)
        if there is not None and (self.path or not _is_empty(there)):
            raise NodeExists(url=self.url, path=self.path, found=_kind(there), hint=_OVERWRITE)

    def write(self, references: ReferenceSet, *, replaces: str | None = None) -> None:  # noqa: ARG002 - as of `SetFile`
        """Write documents and inline chunks as they are, and the other chunks as virtual ones.

        Raises
        ------
        NodeExists
            There is a node, and it is not to be overwritten.
        StoreError
            No virtual chunk container of the repository has the url of a chunk.
        UnsupportedFeature
            This version of Icechunk holds no rectilinear grid.
        """
        if not self.store.can_refer:
            raise StoreError(url=self.url, key="", reason="virtual chunks are for repositories of Icechunk")
        with self.store.transaction(f"virtual chunks of {self.path!r}"):
            arrays = self._publish(references)
            for path, metadata in arrays.items():
                self._write_chunks(references, path, metadata)

    def _publish(self, references: ReferenceSet) -> dict[str, ArrayMetadata]:
        """Write the documents of all nodes, and return the arrays, with the chunk keys of the set."""
        documents_format = get_format("zarr3")
        there = find_stored(self.store, self.path)
        if there is not None and (self.overwrite or (not self.path and _is_empty(there))):
            delete_node(self.store, self.path)
        arrays: dict[str, ArrayMetadata] = {}
        nodes: dict[str, dict[str, bytes]] = {}
        for key in references.keys():  # noqa: SIM118 - not a dict
            if key.rpartition("/")[2] != "zarr.json":
                continue
            path = key.rpartition("/")[0]
            value = _data(references, key)
            metadata = documents_format.parse_array(path, {key: value})
            there = find_stored(self.store, path)
            if metadata is not None:
                # equal documents would pass below for a write that is repeated, and chunks of both arrays be mixed
                if there is not None:
                    raise NodeExists(url=self.url, path=path, found=_kind(there), hint=_OVERWRITE)
                arrays[path] = metadata
                nodes[path] = documents_format.emit_array(path, replace(metadata, chunk_keys=_KEYS))
            elif there is None:
                nodes[path] = {key: value}
            elif not self._adds_to(there, documents_format.parse_group(path, {key: value})):
                raise NodeExists(url=self.url, path=path, found=_kind(there), hint=_OVERWRITE)
        try:
            documents.publish(self.store, documents_format, "", {}, below=dict(sorted(nodes.items())))
        except StoreError as error:
            uneven = next((path for path, metadata in arrays.items() if not metadata.chunk_grid.is_regular), None)
            if uneven is None:
                raise
            # Icechunk 1 knows no other grid than the regular one, Icechunk 2 does
            hint = "write a set in JSON, which holds it, or convert"
            format, feature = "this version of Icechunk", "a rectilinear grid"  # noqa: A001
            raise UnsupportedFeature(format=format, feature=feature, key=uneven, hint=hint) from error
        return arrays

    def _adds_to(self, there: StoredNode, new: GroupMetadata | None) -> bool:
        """Return whether nodes may be added to the group `there`, whose attributes stay: none are lost."""
        if not isinstance(there, StoredGroup) or (there.path == self.path and self.path):
            return False
        return new is None or not new.attributes or new.attributes == there.metadata.attributes

    def _write_chunks(self, references: ReferenceSet, path: str, metadata: ArrayMetadata) -> None:
        documents_format = get_format("zarr3")
        seen = datetime.now(UTC) + timedelta(seconds=1)  # Icechunk keeps whole seconds
        waiting: list[tuple[tuple[int, ...], str, int, int]] = []
        for coords, key in _chunks(references, documents_format, path, metadata):
            reference = references.locate(key)
            if reference is None:
                continue
            if reference.url is None:
                self.store.set(documents_format.chunk_prefix(path) + _KEYS.encode(coords), _data(references, key))
                continue
            waiting.append((coords, reference.url, reference.offset, _length(reference)))
            if len(waiting) == _AT_ONCE:
                self.store.refer(path, waiting, seen)
                waiting = []
        if waiting:
            self.store.refer(path, waiting, seen)


_KEYS = ChunkKeyEncoding("c/", "/", "c")


def _kind(node: StoredNode) -> str:
    return "group" if isinstance(node, StoredGroup) else "array"


def _is_empty(node: StoredNode) -> bool:
    return isinstance(node, StoredGroup) and not (node.metadata.attributes or node.children())


def _chunks(
    references: ReferenceSet, documents_format: Format, path: str, metadata: ArrayMetadata
) -> Iterator[tuple[tuple[int, ...], str]]:
    prefix = documents_format.chunk_prefix(path)
    for key in references.keys(prefix):
        coords = metadata.chunk_keys.decode(key[len(prefix) :], len(metadata.shape))
        if coords is not None:
            yield coords, key


def _data(references: ReferenceSet, key: str) -> bytes:
    reference = references.locate(key)
    return b"" if reference is None or reference.data is None else reference.data


def _length(reference: Reference) -> int:
    """Return the bytes of a chunk; of a whole object, its store says how many."""
    if reference.length is not None:
        return reference.length
    root, key = split_url(str(reference.url))
    size = open_plain_store(root).size(key)
    if size is None:
        raise StoreError(url=root, key=key, reason="the object of a reference is not there")
    return size
