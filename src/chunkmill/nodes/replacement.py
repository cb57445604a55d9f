"""Replace a node by one that is written beside it: the old one stays until the new one is complete.

`Replacement` for a write of one process, `ReplacementOfJob` for a job, whose later runs find what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from chunkmill.errors import JobError, StoreError
from chunkmill.formats.base import Format
from chunkmill.model.metadata import ArrayMetadata
from chunkmill.nodes.array import Array
from chunkmill.nodes.consolidated import forget_consolidated, refresh_consolidated
from chunkmill.nodes.documents import create_groups_above, format_of_store, node_keys
from chunkmill.runtime.journal_names import new_mark, staged_prefix
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import can_replace, flush, replace_prefix, stage, swap_in

__all__ = ["Replacement", "ReplacementOfJob", "can_hold_both", "stage_replacement"]


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
        prefix = _prefix(documents_format, self.path)
        create_groups_above(self.store, documents_format, self.path, self.above)
        for key, value in {**({} if self.path else documents_format.emit_root()), **documents}.items():
            self.staged.set(key.removeprefix(prefix), value)
        with _refreshed(self.store, documents_format, self.path, below):
            swap_in(self.store, prefix, self.staged)

    def discard(self) -> None:
        """Delete what was written; the old node stays."""
        self.staged.delete_prefix("")


@dataclass(frozen=True, slots=True)
class ReplacementOfJob:
    """The node that a run of a job writes beside the one at `path`, in the same store."""

    store: Store
    path: str
    format: str
    run: str

    @property
    def old_prefix(self) -> str:
        """Prefix of the keys of the node, of the old one and then of the new one."""
        return _prefix(format_of_store(self.store, self.format), self.path)

    @property
    def staged(self) -> str:
        """Prefix of the keys of the new node until it takes its place."""
        return staged_prefix(self.path, self.run)

    def array(self, array: Array) -> Array:
        """Return an array of the new node where its chunks are written."""
        prefix = self.staged + array.prefix.removeprefix(self.old_prefix)
        return Array(array.store, array.path, array.metadata, array.format, prefix)

    def is_finished(self) -> bool:
        """Return whether the new node is in its place: only consolidated metadata may be out of date."""
        return self.store.get(self.old_prefix + new_mark(self.run)) is not None

    def finish(self, documents: Mapping[str, bytes], *, above: Mapping[str, bytes], below: Iterable[str] = ()) -> None:
        """Put the new node in the place of the old one, and bring consolidated metadata up to date (`Replacement`).

        What an earlier run of the job, or another client, has done of it is not done again.

        Raises
        ------
        JobError
            The job has ended meanwhile.
        """
        documents_format = format_of_store(self.store, self.format)
        if not self.is_finished():
            if self.old_prefix and not self._is_staged():
                raise self._ended()
            create_groups_above(self.store, documents_format, self.path, above)
            for key, value in {**({} if self.path else documents_format.emit_root()), **documents}.items():
                self.store.set(self.staged + key.removeprefix(self.old_prefix), value)
        with _refreshed(self.store, documents_format, self.path, below):
            try:
                replace_prefix(self.store, self.old_prefix, self.staged, new_mark(self.run))
            except StoreError:
                if self._is_staged():
                    raise
                raise self._ended() from None

    def _is_staged(self) -> bool:
        return self.store.get(self.staged + new_mark(self.run)) is not None

    def _ended(self) -> JobError:
        reason = "the job has ended, or was replaced by another one, while this client was at its end"
        return JobError(job=f"replace {self.path!r} in {self.store.url}", reason=reason)


@contextmanager
def _refreshed(store: Store, documents_format: Format, path: str, below: Iterable[str]) -> Iterator[None]:
    """Replace the node inside, and keep consolidated metadata true."""
    # whoever reads by consolidated metadata must not meet the new chunks with the old codecs
    forget_consolidated(store, path)
    try:
        yield
    finally:  # whatever is there now: others may have replaced the node meanwhile
        refresh_consolidated(store, documents_format, [path, *below])
    flush(store)


def can_hold_both(store: Store, path: str, old: Format, new: Format) -> bool:
    """Return whether a node can be written beside the one at `path` in the same store, and exchanged with it."""
    return _is_below_one_prefix(path, old, new) and can_replace(store, _prefix(new, path))


def _prefix(documents_format: Format, path: str) -> str:
    """Return the prefix below which all of a node is stored, in formats that have one: of the root, all keys."""
    return documents_format.chunk_prefix(path) if path else ""


def _is_below_one_prefix(path: str, old: Format, new: Format) -> bool:
    """Return whether documents and chunks of a node are stored below one prefix, in both formats."""
    prefix = _prefix(new, path)
    return all(key.startswith(prefix) for each in (old, new) for key in node_keys(each, path))


def stage_replacement(
    store: Store, path: str, old: Format, new: Format, above: Mapping[str, bytes]
) -> Replacement | None:
    """Prepare to replace the node at `path`; ``None`` where the store, or one of the formats, cannot hold both."""
    if not _is_below_one_prefix(path, old, new):
        return None
    staged = stage(store, _prefix(new, path))
    return None if staged is None else Replacement(store, path, new.name, staged, above)
