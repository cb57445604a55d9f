"""Write new arrays of one store and format by a job: room for each, staging where they replace others, their documents.

Not here: groups with everything below them (`chunkmill.conversion.target_writer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from chunkmill.array.stored_array import StoredArray
from chunkmill.formats.base import Format
from chunkmill.journal.names import JOB_PREFIX, TAG_PREFIX
from chunkmill.nodes import placement, replacing
from chunkmill.nodes.consolidated import refreshed
from chunkmill.nodes.documents import check_own, create_groups_above, publish
from chunkmill.nodes.replacing import StagedNode
from chunkmill.stores.base import Store

__all__ = ["ArraysWriter"]


@dataclass(frozen=True, slots=True)
class ArraysWriter:
    """New arrays of one store; can be pickled.

    Attributes
    ----------
    arrays
        The new arrays; the job is named after the path of the first, where it writes no other store.
    overwrite
        Whether nodes at their paths are replaced.
    replacements
        Where the arrays are staged; empty: they replace none.
    """

    store: Store
    format: Format
    arrays: Sequence[StoredArray]
    overwrite: bool
    replacements: Sequence[StagedNode] = field(default=(), kw_only=True)

    @property
    def path(self) -> str:
        """Path of the first array."""
        return self.arrays[0].path

    @property
    def replacement(self) -> StagedNode | None:
        """Replacement of the first array, which the job is named after."""
        return self.replacements[0] if self.replacements else None

    @property
    def replaced(self) -> Mapping[str, str]:
        """Documents seen of the nodes that are replaced."""
        return {key: value for each in self.replacements for key, value in each.seen.items()}

    def staged(self, run: str, replaced: Mapping[str, str] | None) -> Self | None:
        """Return the writer that stages the arrays, in the run of that name (`Job.staged`)."""
        paths = [array.path for array in self.arrays]
        replacements = replacing.stage_nodes(self.store, paths, self.format.name, run, replaced)
        if replacements is None:
            return None
        arrays = [new.array(array) for new, array in zip(replacements, self.arrays, strict=True)]
        return replace(self, arrays=arrays, replacements=replacements)

    def keeps_old(self) -> bool | None:
        """Return whether nodes that are there stay until the new ones are complete; ``None`` where there are none."""
        return replacing.all_keep_old(self.store, [array.path for array in self.arrays], self.format.name)

    def prepare(self, run: str, again: bool) -> Mapping[str, bytes]:
        """Make room for every array; return the documents of groups above them where they are staged."""
        if self.replacement is not None:
            return self.replacement.above
        self._make_room(run, overwrite=self.overwrite, again=again)
        return {}

    def check_free(self, run: str) -> None:
        """Raise `NodeExists` where a node was made at an array's path since `prepare`."""
        if self.replacement is None:
            self._make_room(run, overwrite=False)

    def _make_room(self, run: str, *, overwrite: bool, again: bool = False) -> None:
        options: Any = {"format": self.format.name, "overwrite": overwrite, "run": run, "again": again}
        for array in self.arrays:
            placement.create_array(self.store, array.path, array.metadata, **options)

    def check_targets(self, *, fresh: bool) -> None:
        """Raise `NodeExists` where others have made a node while this job was interrupted, before writing over it."""
        if not fresh and not self.overwrite:
            check_own(self.store, self.format, self.node_documents())

    def is_fresh(self) -> bool:
        """Return whether there is nothing yet where the arrays are written."""
        besides = (JOB_PREFIX, TAG_PREFIX)
        return all(self.store.is_empty(array.prefix, besides=besides) for array in self.arrays)

    def publish(self, documents: Mapping[str, bytes]) -> list[str]:
        """Write the documents of the arrays, and of groups above them that are missing; return their keys.

        Parameters
        ----------
        documents
            Of groups above them, as `prepare` returned them.
        """
        nodes = self.node_documents()
        if self.replacements:
            replacing.put_all_in_place(self.replacements, list(nodes.values()), documents)
        else:
            for path in nodes:
                above = placement.parent_documents(self.store, path, self.format)
                root = placement.root_documents(self.store, self.format)
                left = create_groups_above(self.store, self.format, path, {**above, **root})
                nodes[path] = {**left, **nodes[path]}  # of an array that is the root
            with refreshed(self.store, self.format, nodes):
                publish(self.store, self.format, "", {}, below=nodes, again=True)
        self.store.flush()
        return [key for each in nodes.values() for key in each]

    def node_documents(self) -> dict[str, dict[str, bytes]]:
        """Return the documents of each array by its path."""
        return {array.path: self.format.emit_array(array.path, array.metadata) for array in self.arrays}
