"""Add levels to the group of an array: room for each, and their documents, then the attributes that name them.

Not here: levels in a new group (`chunkmill.conversion.target_writer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.conversion.array_plan import SeenSource, check_sources
from chunkmill.conversion.target_writer import what_is_kept
from chunkmill.formats.base import Format
from chunkmill.journal.names import JOB_PREFIX, TAG_PREFIX
from chunkmill.model.metadata import same_json
from chunkmill.model.multiscales import Multiscale
from chunkmill.nodes import placement, replacing
from chunkmill.nodes.consolidated import refresh_consolidated
from chunkmill.nodes.documents import check_own, publish
from chunkmill.nodes.group import as_node
from chunkmill.nodes.opening import open_stored
from chunkmill.nodes.replacing import StagedNode
from chunkmill.nodes.stored_group import StoredNode
from chunkmill.pyramids.image import emit_levels
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import flush, is_empty

__all__ = ["AddedLevelsWriter"]


@dataclass(frozen=True, slots=True)
class AddedLevelsWriter:
    """The documents of new levels in a group that exists; can be pickled.

    Attributes
    ----------
    path
        Path of the first new level, after which the job is named.
    levels
        The new arrays.
    base, seen
        The array that exists, and its documents when the job was planned.
    image, convention
        What the attributes of the group, and in N5 of the base, tell of the levels; see `LevelTarget.convention`.
    overwrite
        Whether nodes at the new levels' paths are replaced.
    replacements
        Where the levels are staged; empty: they replace none.
    """

    job: str
    store: Store
    path: str
    format: Format
    levels: Sequence[StoredArray]
    base: StoredArray
    seen: SeenSource
    image: Multiscale
    convention: str | None
    overwrite: bool
    replacements: Sequence[StagedNode] = ()

    @property
    def replacement(self) -> StagedNode | None:
        """Replacement of the first level, which the job is named after."""
        return self.replacements[0] if self.replacements else None

    @property
    def replaced(self) -> Mapping[str, str]:
        """Documents seen of the levels that are replaced."""
        return {key: value for each in self.replacements for key, value in each.seen.items()}

    def staged(self, run: str, replaced: Mapping[str, str] | None) -> AddedLevelsWriter | None:
        """Return the writer that stages the levels, in the run of that name (`Job.staged`)."""
        paths = [level.path for level in self.levels]
        replacements = replacing.stage_nodes(self.store, paths, self.format.name, run, replaced)
        if replacements is None:
            return None
        levels = [new.array(level) for new, level in zip(replacements, self.levels, strict=True)]
        return replace(self, levels=levels, replacements=replacements)

    def keeps_old(self) -> str | None:
        """Return what to say of levels that stay until the new ones are complete; ``None`` where they cannot."""
        return what_is_kept(self.store, [level.path for level in self.levels], self.format.name)

    def prepare(self) -> Mapping[str, bytes]:
        """Make room for every level; the group is there."""
        if self.replacement is not None:
            return self.replacement.above
        self._make_room("", overwrite=self.overwrite)
        return {}

    def check_free(self, run: str) -> None:
        """Raise `NodeExists` where a node was made at a level's path since `prepare`."""
        if self.replacement is None:
            self._make_room(run, overwrite=False)

    def _make_room(self, run: str, *, overwrite: bool) -> None:
        for level in self.levels:
            name = self.format.name
            placement.create_array(self.store, level.path, level.metadata, format=name, overwrite=overwrite, run=run)

    def check_targets(self, *, fresh: bool) -> None:
        """Raise `NodeExists` where others have made a node while this job was interrupted, before writing over it."""
        if not fresh and not self.overwrite:
            check_own(self.store, self.format, self._node_documents())

    def is_fresh(self) -> bool:
        """Return whether there is nothing yet where the levels are written."""
        besides = (JOB_PREFIX, TAG_PREFIX)
        return all(is_empty(self.store, level.prefix, besides=besides) for level in self.levels)

    def check_result(self) -> None:
        """Raise `JobError` where the base was deleted or replaced since the job was planned; nothing is published."""
        if self.replacement is None or not self.replacement.is_decided():
            check_sources(self.job, [self.base], [self.seen])

    def publish(self, documents: Mapping[str, bytes]) -> list[str]:
        """Write the documents of the levels, then the attributes that name them."""
        nodes = self._node_documents()
        if self.replacements:
            replacing.commit_all(self.replacements, list(nodes.values()), documents)
        else:
            publish(self.store, self.format, self.path.rpartition("/")[0], {}, below=nodes, again=True)
            refresh_consolidated(self.store, self.format, nodes)
        self._describe()
        flush(self.store)
        return [key for each in nodes.values() for key in each]

    def _describe(self) -> None:
        """Set the attributes that name the levels; what others have set stays."""
        above, _, name = self.base.path.rpartition("/")
        group = open_stored(self.store, above, read_only=False, consolidated=False)
        of_group, of_levels = emit_levels(self.image, self.convention, group.attributes, keeps_others=True)
        _update(group, of_group)
        if name in of_levels:
            _update(open_stored(self.store, self.base.path, read_only=False, consolidated=False), of_levels[name])

    def _node_documents(self) -> dict[str, dict[str, bytes]]:
        return {level.path: self.format.emit_array(level.path, level.metadata) for level in self.levels}


def _update(node: StoredNode, wanted: Mapping[str, Any]) -> None:
    changed = {n: v for n, v in wanted.items() if not same_json(node.attributes.get(n, ...), v)}
    if changed:
        as_node(node).update_attributes(changed)
