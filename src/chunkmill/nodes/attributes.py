"""Change the attributes of a node in its store, also while others change them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Self, TypeVar

from chunkmill.errors import NodeNotFound
from chunkmill.formats.base import Format
from chunkmill.journal.lease import check_no_job, leased_briefly
from chunkmill.model.metadata import JSON, ArrayMetadata, GroupMetadata
from chunkmill.nodes import documents
from chunkmill.nodes.consolidated import refresh_consolidated
from chunkmill.nodes.folders import is_folder
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush

__all__ = ["Change", "ChangesAttributes", "changed_array", "changed_group", "merged", "without"]

Change = Callable[[Mapping[str, JSON]], Mapping[str, JSON]]
"""Attributes as they are stored -> as they are to be."""

_Metadata = TypeVar("_Metadata", ArrayMetadata, GroupMetadata)


def merged(attributes: Mapping[str, JSON]) -> Change:
    """Return the change that sets `attributes` and keeps the others.

    Examples
    --------
    >>> merged({"b": 2})({"a": 1, "b": 1})
    {'a': 1, 'b': 2}
    """
    return lambda stored: {**stored, **attributes}


def without(*names: str) -> Change:
    """Return the change that deletes attributes; ``KeyError`` for one that is not stored."""

    def change(stored: Mapping[str, JSON]) -> Mapping[str, JSON]:
        if missing := sorted(set(names) - stored.keys()):
            raise KeyError(f"no attributes {missing}; there are {sorted(stored)[:20]}")
        return {name: value for name, value in stored.items() if name not in names}

    return change


def changed_array(store: Store, path: str, format: str, change: Change) -> ArrayMetadata:  # noqa: A002
    """Change the attributes of the array at `path`, and return its metadata (see `changed_group`)."""
    documents_format = documents.format_of_store(store, format)
    keys = documents_format.array_keys(path)

    def emit(metadata: ArrayMetadata, attributes: Mapping[str, JSON]) -> tuple[ArrayMetadata, dict[str, bytes]]:
        changed = replace(metadata, attributes=attributes)
        return changed, documents_format.emit_array(path, changed)

    return _changed(store, path, documents_format, keys, documents_format.parse_array, emit, change)


def changed_group(store: Store, path: str, format: str, change: Change) -> GroupMetadata:  # noqa: A002
    """Change the attributes of the group at `path`, and return its metadata.

    Where others change them meanwhile, theirs are read and `change` is called again. Consolidated metadata follow. A
    group that is only a folder gets a document, and its place is reserved for that: others may be deleting it.

    Raises
    ------
    NodeNotFound
        The node is gone, or another one is there.
    JobError
        The group is only a folder, and a job writes it or a group above it.
    """
    documents_format = documents.format_of_store(store, format)
    keys = documents_format.group_keys(path)

    def parse_folder(path: str, found: Mapping[str, bytes]) -> GroupMetadata | None:
        is_folder_alone = not found and is_folder(store, documents_format, path)
        return GroupMetadata() if is_folder_alone else documents_format.parse_group(path, found)

    def emit(_: GroupMetadata, attributes: Mapping[str, JSON]) -> tuple[GroupMetadata, dict[str, bytes]]:
        return GroupMetadata(attributes), documents_format.emit_group(path, GroupMetadata(attributes))

    try:
        return _changed(store, path, documents_format, keys, documents_format.parse_group, emit, change)
    except NodeNotFound:
        if not documents_format.implicit_groups:
            raise
    with leased_briefly(store, path, f"change the attributes of {path!r} in {store.url}") as own:
        check_no_job(store, path, own_run=own.run, waits=True)
        return _changed(store, path, documents_format, keys, parse_folder, emit, change)


def _changed(  # noqa: PLR0917 - of this module alone
    store: Store,
    path: str,
    documents_format: Format,
    keys: tuple[str, ...],
    parse: Callable[[str, Mapping[str, bytes]], _Metadata | None],
    emit: Callable[[_Metadata, Mapping[str, JSON]], tuple[_Metadata, dict[str, bytes]]],
    change: Change,
) -> _Metadata:
    changed: _Metadata | None = None

    def emitted(seen: documents.Documents) -> Mapping[str, bytes | None]:
        nonlocal changed
        metadata = parse(path, documents.present(seen))
        if metadata is None:
            hint = "it was deleted or replaced after it was opened"
            raise NodeNotFound(url=store.url, path=path, hint=hint)
        changed, new = emit(metadata, dict(change(metadata.attributes)))
        return {key: new.get(key) for key in keys}

    documents.change(store, documents_format, keys, emitted)
    refresh_consolidated(store, documents_format, [path])
    flush(store)
    assert changed is not None  # noqa: S101 - `emitted` was called
    return changed


class ChangesAttributes(ABC):
    """Methods of nodes that change user attributes in the store."""

    def update_attributes(self, attributes: Mapping[str, JSON]) -> Self:
        """Set user attributes in the store and here; others are kept, also those that somebody else sets meanwhile.

        Parameters
        ----------
        attributes
            Names and values; JSON-serialisable.

        Returns
        -------
        Self
            The node itself.

        Raises
        ------
        StoreError
            The node was opened with ``mode="r"``, or the store cannot be written.
        NodeNotFound
            The node was deleted or replaced after it was opened.

        Examples
        --------
        >>> import chunkmill as cm
        >>> node = cm.create_array("memory://doc-attributes-array", shape=(4,), dtype="i4", chunks=(2,))
        >>> node.update_attributes({"units": "K"}).attributes, cm.open("memory://doc-attributes-array").attributes
        ({'units': 'K'}, {'units': 'K'})
        """
        return self._change_attributes(merged(attributes))

    def del_attributes(self, *names: str) -> Self:
        """Delete user attributes in the store and here; ``KeyError`` for one that is not there."""
        return self._change_attributes(without(*names))

    @property
    def attrs(self) -> Mapping[str, JSON]:
        """Alias of `attributes`, read-only as they are."""
        return self.attributes

    @property
    @abstractmethod
    def attributes(self) -> Mapping[str, JSON]:
        """User attributes."""

    @abstractmethod
    def _change_attributes(self, change: Change) -> Self:
        """Apply a change in the store and here."""
