"""Replace nodes by new ones: what is there stays until the new one is complete, where the store can hold both (P6).

A node is staged in the store's own scratch space, by a write of one process. Not here: staging prefixes of jobs, which
later runs find (`chunkmill.nodes.target`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import MetadataError
from chunkmill.formats.base import Format
from chunkmill.journal.lease import check_no_job, discard_jobs, leased_to_replace
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes.consolidated import forget_consolidated, refresh_consolidated
from chunkmill.nodes.documents import check_root, create_groups_above, format_of_store, node_keys, node_prefix
from chunkmill.nodes.opening import array_at, find_stored
from chunkmill.nodes.placement import add_array, add_group, parent_documents, root_documents
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import Store

__all__ = [
    "Replacement",
    "begin_replacement",
    "format_at",
    "keeps_old",
    "put_array",
    "put_group",
    "refreshed_by_replacing",
    "replacing",
]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node that is written in the store's scratch space, and replaces the one at `path`.

    Attributes
    ----------
    staged
        Store that holds the new node at its root until then.
    above
        Documents of groups above `path` that do not exist yet.
    """

    store: Store
    path: str
    format: str
    staged: Store
    above: Mapping[str, bytes]

    def array(self, array: StoredArray) -> StoredArray:
        """Return the new array, or one below the new group, where its chunks are written."""
        path = array.path.removeprefix(self.path).strip("/")
        prefix = format_of_store(self.store, self.format).chunk_prefix(path)
        return StoredArray(self.staged, path, array.metadata, self.format, prefix)

    def finish(self, documents: Mapping[str, bytes], *, below: Iterable[str] = ()) -> None:
        """Commit the new node, and bring consolidated metadata up to date.

        Parameters
        ----------
        documents
            Of the new node and all below it, by the store keys that they have then; and of groups above it that were
            missing, which are made now.
        below
            Paths of the nodes below it.

        Raises
        ------
        JobError
            Others are at work there.
        """
        documents_format = format_of_store(self.store, self.format)
        prefix = node_prefix(documents_format, self.path)
        # a job that began since would publish its documents in the new node, without its chunks
        with leased_to_replace(self.store, self.path):
            own = create_groups_above(self.store, documents_format, self.path, {**self.above, **documents})
            for key, value in {**({} if self.path else documents_format.emit_root()), **own}.items():
                self.staged.set(key.removeprefix(prefix), value)
            with refreshed_by_replacing(self.store, documents_format, self.path, below):
                self.store.swap_in(prefix, self.staged)

    def discard(self) -> None:
        """Delete what was written; the old node stays."""
        self.staged.delete_prefix("")


@contextmanager
def refreshed_by_replacing(store: Store, documents_format: Format, path: str, below: Iterable[str]) -> Iterator[None]:
    """Replace the node at `path` inside, with those below it, and keep consolidated metadata true."""
    # a reader by consolidated metadata must not meet the new chunks with the old codecs
    forget_consolidated(store, path)
    try:
        yield
    finally:  # whatever is stored then: others may have replaced the node as well
        refresh_consolidated(store, documents_format, [path, *below])
    store.flush()


@contextmanager
def replacing(
    store: Store,
    path: str,
    format: str,  # noqa: A002
) -> Iterator[Replacement | None]:
    """Write the node that is to replace the one at `path`, and call its `finish`, inside; a failure keeps the old one.

    ``None`` where there is no node, or it must be deleted first.

    Raises
    ------
    NodeExists
        There is an array above `path`.
    JobError
        A job, or another writer, is at work there.
    """
    replacement = begin_replacement(store, path, format)
    try:
        yield replacement
    except BaseException:
        if replacement is not None:
            with suppress(OSError):  # the first error is raised, not that of the roll back
                replacement.discard()
        raise


def begin_replacement(store: Store, path: str, format: str) -> Replacement | None:  # noqa: A002
    """Prepare to replace the node at `path`; ``None`` where there is none, or it must be deleted first.

    Raises
    ------
    NodeExists
        There is an array above `path`.
    """
    documents_format = format_of_store(store, format)
    path = documents_format.normalize_path(path)
    found = _to_replace(store, path, documents_format)
    if found is None:
        return None
    old, above = found
    if not _is_below_one_prefix(path, documents_format, node_keys(old, path)):
        return None
    staged = store.stage(node_prefix(documents_format, path))
    return None if staged is None else Replacement(store, path, documents_format.name, staged, above)


def format_at(store: Store, path: str, new: Format) -> Format | None:
    """Return the format of the node at `path`, that of the `new` one where it does not open; ``None`` without one."""
    try:
        there = find_stored(store, path)
    except MetadataError:
        return new
    if there is None:
        return None
    return there.documents if isinstance(there, StoredGroup) else format_of_store(store, there.format)


def _to_replace(store: Store, path: str, documents_format: Format) -> tuple[Format, dict[str, bytes]] | None:
    """Return the format of the node at `path`, and documents of parents that it needs; ``None`` without a node."""
    check_root(store, documents_format)
    old = format_at(store, path, documents_format)
    if old is None:
        return None
    discard_jobs(store, check_no_job(store, path, overwrite=True))
    above = parent_documents(store, path, documents_format)
    return old, {**above, **root_documents(store, documents_format)}


def put_array(
    store: Store,
    path: str,
    metadata: ArrayMetadata,
    *,
    format: str,  # noqa: A002
    overwrite: bool,
) -> StoredArray:
    """Create an array without chunks; with `overwrite`, the node that is there stays until the commit.

    Raises
    ------
    NodeExists, UnsupportedFeature, JobError
        See `add_array`.
    """
    with store.transaction(f"create the array {path!r}"):
        if overwrite:
            with replacing(store, path, format) as replacement:
                if replacement is not None:
                    array = array_at(store, path, metadata, format)
                    replacement.finish(format_of_store(store, format).emit_array(array.path, metadata))
                    return array
        return add_array(store, path, metadata, format=format, overwrite=overwrite)


def put_group(
    store: Store,
    path: str,
    metadata: GroupMetadata,
    *,
    format: str,  # noqa: A002
    overwrite: bool,
) -> StoredGroup:
    """Create a group (see `put_array`)."""
    with store.transaction(f"create the group {path!r}"):
        if overwrite:
            with replacing(store, path, format) as replacement:
                if replacement is not None:
                    documents_format = format_of_store(store, format)
                    replacement.finish(documents_format.emit_group(replacement.path, metadata))
                    return StoredGroup(store, replacement.path, metadata, documents_format, read_only=False)
        return add_group(store, path, metadata, format=format, overwrite=overwrite)


def keeps_old(store: Store, path: str, old: Format, new: Format) -> bool:
    """Return whether the node at `path` stays until a job has replaced it: the store renames it (P6)."""
    is_below = _is_below_one_prefix(path, new, node_keys(old, path))
    prefix = node_prefix(new, path)
    return is_below and store.can_rename(prefix) and store.can_replace(prefix)


def _is_below_one_prefix(path: str, new: Format, old_documents: Iterable[str]) -> bool:
    """Return whether documents and chunks of both nodes are stored below one prefix."""
    prefix = node_prefix(new, path)
    return all(key.startswith(prefix) for key in (*node_keys(new, path), *old_documents))
