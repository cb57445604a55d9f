"""Add levels to the group of an array: their documents, then the attributes that name them.

Not here: room for them (`chunkmill.conversion.arrays_writer`), levels in a new group
(`chunkmill.conversion.target_writer`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.arrays_writer import ArraysWriter
from chunkmill.jobs.sources import SeenSource, check_sources
from chunkmill.model.metadata import same_json
from chunkmill.model.multiscales import Multiscale
from chunkmill.nodes.group import as_node
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.pyramids.image import emit_levels

__all__ = ["AddedLevelsWriter"]


@dataclass(frozen=True, slots=True)
class AddedLevelsWriter(ArraysWriter):
    """The documents of new levels in a group that exists; can be pickled.

    Attributes
    ----------
    job
        Name of the job, for messages.
    base, seen
        The array that exists, and its documents when the job was planned.
    image, convention
        What the attributes of the group, and in N5 of the base, tell of the levels; see `LevelTarget.convention`.
    """

    job: str
    base: StoredArray
    seen: SeenSource
    image: Multiscale
    convention: str | None

    @property
    def path(self) -> str:
        """Path of the first new level; of the group, where there is none."""
        return self.arrays[0].path if self.arrays else self.base.path.rpartition("/")[0]

    def check_result(self) -> None:
        """Raise `JobError` where the base was deleted or replaced since the job was planned; nothing is published."""
        if self.replacement is None or not self.replacement.is_in_place():
            check_sources(self.job, [self.base], [self.seen])

    def publish(self, documents: Mapping[str, bytes]) -> list[str]:
        """Write the documents of the levels, then the attributes that name them."""
        written = ArraysWriter.publish(self, documents)
        self._describe()
        self.store.flush()
        return written

    def _describe(self) -> None:
        """Set the attributes that name the levels; what others have set stays."""
        above, _, name = self.base.path.rpartition("/")
        group = open_stored(self.store, above, read_only=False, consolidated=False)
        of_group, of_levels = emit_levels(self.image, self.convention, group.attributes, keeps_others=True)
        _update(group, of_group)
        if name in of_levels:
            _update(open_stored(self.store, self.base.path, read_only=False, consolidated=False), of_levels[name])


def _update(node: StoredNode, wanted: Mapping[str, Any]) -> None:
    changed = {n: v for n, v in wanted.items() if not same_json(node.attributes.get(n, ...), v)}
    if changed:
        as_node(node).update_attributes(changed)
