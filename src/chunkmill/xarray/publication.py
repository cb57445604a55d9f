"""Publish the documents of a dataset: arrays first, then groups, consolidated metadata last.

Consolidated metadata are built from those stored and from the documents that were written. Nodes are listed only where
consolidated metadata are created for a store that had none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chunkmill.errors import UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.nodes import hierarchy
from chunkmill.nodes.documents import set_all
from chunkmill.nodes.group import Group
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush

__all__ = ["Publication"]


@dataclass(frozen=True, slots=True)
class Publication:
    """Where the documents of a write are published, and which consolidated metadata they belong to.

    Attributes
    ----------
    groups
        Paths of the written groups, parents first.
    replaces
        Whether everything that was below the first of them has been deleted.
    """

    store: Store
    documents_format: Format
    groups: tuple[str, ...]
    consolidated: bool | None
    replaces: bool

    def __post_init__(self) -> None:
        if self.consolidated and self.documents_format.consolidated_key("") is None:
            raise UnsupportedFeature(format=self.documents_format.name, feature="consolidated metadata")

    def publish(self, group_documents: dict[str, bytes], array_documents: dict[str, bytes]) -> None:
        """Write the documents of nodes, and update consolidated metadata."""
        documents = {**group_documents, **array_documents}
        if documents:
            consolidated = self._consolidated(documents)
            set_all(self.store, {k: v for k, v in array_documents.items() if k not in consolidated})
            top = {**consolidated, **{k: consolidated.get(k, v) for k, v in group_documents.items()}}
            for key in reversed(top):
                self.store.set(key, top[key])
            if self.consolidated and not consolidated:
                root = hierarchy.open_node(self.store, "", consolidated=False)
                if isinstance(root, Group):
                    hierarchy.consolidate(self.store, root)
        flush(self.store)

    def _consolidated(self, documents: dict[str, bytes]) -> dict[str, bytes]:
        """Return the updated consolidated metadata of groups that have some, and those of a new store."""
        found: dict[str, bytes] = {}
        for prefix in self._prefixes():
            key = self.documents_format.consolidated_key(prefix)
            if key is None:
                break
            known = self._known(prefix, key)
            if known is None and not prefix and self.consolidated is not False and self._is_new(prefix, documents):
                known = {}
            if known is not None:
                found |= self.documents_format.emit_consolidated(prefix, {**known, **documents})
        return found

    def _prefixes(self) -> list[str]:
        """Return the paths of the groups and of all their parents, the root first."""
        paths = {""}
        for group in self.groups:
            parts = group.split("/") if group else []
            paths |= {"/".join(parts[:n]) for n in range(1, len(parts) + 1)}
        return sorted(paths, key=lambda path: (path.count("/") + bool(path), path))

    def _known(self, prefix: str, key: str) -> dict[str, bytes] | None:
        value = self.store.get(key)
        known = None if value is None else self.documents_format.parse_consolidated(prefix, value)
        if known is None or not self.replaces:
            return known
        gone = self.documents_format.chunk_prefix(self.groups[0])
        return {name: document for name, document in known.items() if not name.startswith(gone)}

    def _is_new(self, prefix: str, documents: Mapping[str, bytes]) -> bool:
        return self.replaces and self.documents_format.group_keys(prefix)[0] in documents
