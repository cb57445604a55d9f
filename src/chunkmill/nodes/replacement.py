"""Replace a node by one that is written beside it: the old one stays until the new one is complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chunkmill.formats.base import Format
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.nodes.array import Array
from chunkmill.nodes.consolidated import forget_consolidated, refresh_consolidated
from chunkmill.nodes.documents import create_groups_above, format_of_store, node_keys
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush, stage, swap_in

__all__ = ["Replacement", "stage_replacement"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node that is being written beside the one at `path`, and takes its place.

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

    def array(self, metadata: ArrayMetadata, path: str = "") -> Array:
        """Return the new array, or one at `path` below the new group, where its chunks are written."""
        prefix = format_of_store(self.store, self.format).chunk_prefix(path)
        return Array(self.staged, path, metadata, self.format, prefix)

    def finish(self, documents: Mapping[str, bytes], *, below: Iterable[str] = ()) -> None:
        """Put the new node in the place of the old one, and bring consolidated metadata up to date.

        Parameters
        ----------
        documents
            Of the new node and all below it, by the store keys that they have then.
        below
            Paths of the nodes below it.
        """
        documents_format = format_of_store(self.store, self.format)
        prefix = documents_format.chunk_prefix(self.path)
        create_groups_above(self.store, documents_format, self.path, self.above)
        for key, value in documents.items():
            self.staged.set(key.removeprefix(prefix), value)
        # whoever reads by consolidated metadata must not meet the new chunks with the old codecs
        forget_consolidated(self.store, self.path)
        swap_in(self.store, prefix, self.staged)
        refresh_consolidated(self.store, documents_format, [self.path, *below])
        flush(self.store)

    def discard(self) -> None:
        """Delete what was written; the old node stays."""
        self.staged.delete_prefix("")


def stage_replacement(
    store: Store, path: str, old: Format, new: Format, above: Mapping[str, bytes]
) -> Replacement | None:
    """Prepare to replace the node at `path`; ``None`` where the store, or one of the formats, cannot hold both.

    A format can where documents and chunks of a node are stored below one prefix.
    """
    prefix = new.chunk_prefix(path)
    if not all(key.startswith(prefix) for each in (old, new) for key in node_keys(each, path)):
        return None
    staged = stage(store, prefix)
    return None if staged is None else Replacement(store, path, new.name, staged, above)
