"""Replace a node by one that is written beside it: the old one stays until the new one is complete.

`Replacement` for a write of one process, `ReplacementOfJob` for a job, whose later runs find what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby
from typing import Literal

from chunkmill.errors import JobError, StoreError
from chunkmill.formats.base import Format
from chunkmill.formats.registry import FORMATS
from chunkmill.journal.exchange import (
    Exchange,
    complete_exchange,
    is_decided,
    is_to_be_put_in_place,
    note_exchange,
)
from chunkmill.journal.exchange_together import Other
from chunkmill.journal.journal_names import (
    JOB_PREFIX,
    exchange_sign,
    new_mark,
    staged_documents,
    staged_prefix,
)
from chunkmill.journal.unfinished_jobs import reserved_to_replace
from chunkmill.nodes.array import Array
from chunkmill.nodes.consolidated import forget_consolidated, refresh_consolidated
from chunkmill.nodes.documents import create_groups_above, format_of_store, node_keys
from chunkmill.nodes.replaced import check_as_seen
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import (
    can_list,
    can_rename,
    can_replace,
    flush,
    replace_prefix,
    scratch_store,
    stage,
    swap_in,
)

__all__ = ["Replacement", "ReplacementOfJob", "Way", "stage_replacement", "way_to_replace"]

Way = Literal["rename", "copy"]
"""By which a new node is put in the place of the old one: by its name, or by copies, one a value."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node that is being written beside the one at `path`, and takes its place.

    Attributes
    ----------
    staged
        Store that holds the new node at its root until then.
    above
        Documents of groups above `path` that do not exist yet.
    seen
        What was seen of the node at `path` (`seen_documents`).
    """

    store: Store
    path: str
    format: str
    staged: Store
    above: Mapping[str, bytes]
    seen: Mapping[str, str]

    def array(self, array: Array) -> Array:
        """Return the new array, or one below the new group, where its chunks are written."""
        path = array.path.removeprefix(self.path).strip("/")
        prefix = format_of_store(self.store, self.format).chunk_prefix(path)
        return Array(self.staged, path, array.metadata, self.format, prefix)

    def finish(self, documents: Mapping[str, bytes], *, below: Iterable[str] = ()) -> None:
        """Put the new node in the place of the old one, and bring consolidated metadata up to date.

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
            Others have changed the old node meanwhile, or are at work there.
        """
        documents_format = format_of_store(self.store, self.format)
        prefix = _prefix(documents_format, self.path)
        # a job that began meanwhile would publish its documents in the new node, and its chunks go with the old one
        with reserved_to_replace(self.store, self.path):
            check_as_seen(self.store, self.seen, documents, f"replace {self.path!r} in {self.store.url}")
            own = create_groups_above(self.store, documents_format, self.path, {**self.above, **documents})
            for key, value in {**({} if self.path else documents_format.emit_root()), **own}.items():
                self.staged.set(key.removeprefix(prefix), value)
            with _refreshed(self.store, documents_format, self.path, below):
                swap_in(self.store, prefix, self.staged)

    def discard(self) -> None:
        """Delete what was written; the old node stays."""
        self.staged.delete_prefix("")


@dataclass(frozen=True, slots=True)
class ReplacementOfJob:
    """The node that a run of a job writes beside the one at `path`, in the same store.

    Attributes
    ----------
    run
        Name of the run; of a reservation, where a write keeps no records.
    above
        Documents of groups above `path` that do not exist yet, where `finish` is not told.
    seen
        What was seen of the node at `path` (`seen_documents`).
    apart
        Prefix below which it is written, where the job is that of another node, and replaces several.
    """

    store: Store
    path: str
    format: str
    run: str
    above: Mapping[str, bytes] = field(default_factory=dict)
    seen: Mapping[str, str] = field(default_factory=dict)
    apart: str = ""

    @property
    def old_prefix(self) -> str:
        """Prefix of the keys of the node, of the old one and then of the new one."""
        return _prefix(format_of_store(self.store, self.format), self.path)

    @property
    def staged(self) -> str:
        """Prefix of the keys of the new node until it takes its place."""
        return self.apart or staged_prefix(self.path, self.run)

    @property
    def staged_documents(self) -> str:
        """Prefix of the documents where the store cannot rename; in the journal that decides when they are deleted."""
        return f"{self.apart.rstrip('/')}-documents/" if self.apart else staged_documents(self.path, self.run)

    def array(self, array: Array) -> Array:
        """Return an array of the new node where its chunks are written."""
        prefix = self.staged + array.prefix.removeprefix(self.old_prefix)
        return Array(array.store, array.path, array.metadata, array.format, prefix)

    def is_decided(self) -> bool:
        """Return whether the new node is in its place, or is being put there by copies: the old one is given up."""
        return is_decided(self.store, self.path, self.run, self.old_prefix)

    def finish(
        self, documents: Mapping[str, bytes], *, above: Mapping[str, bytes] | None = None, below: Iterable[str] = ()
    ) -> None:
        """Put the new node in the place of the old one, and bring consolidated metadata up to date (`Replacement`).

        What an earlier run of the job, or another client, has done of it is not done again.

        Raises
        ------
        JobError
            The job has ended meanwhile, or others have changed the old node.
        """
        documents_format = format_of_store(self.store, self.format)
        renames = _renames(self.store, self.path, documents_format, self.seen)
        if not self.is_decided() and not self._was_decided(renames=renames):
            self.check_old(documents)
            exchange = self.stage(documents, above=above)
            if exchange is not None:
                note_exchange(self.store, self.path, self.run, exchange)
        with _refreshed(self.store, documents_format, self.path, below):
            if not renames:
                complete_exchange(self.store, self.path, self.run, self._job, self.old_prefix)
                return
            try:
                replace_prefix(self.store, self.old_prefix, self.staged, new_mark(self.run))
            except StoreError:
                if self.is_staged():
                    raise
                raise self._ended() from None

    def _was_decided(self, *, renames: bool) -> bool:
        """Return whether another client has decided it since one look; `JobError` where the job has ended since."""
        is_whole = self.is_staged() or (renames and not self.old_prefix)
        if is_whole and is_to_be_put_in_place(self.store, self.path, self.run):
            return False
        if not self.is_decided():
            raise self._ended()
        return True

    def stage(self, documents: Mapping[str, bytes], *, above: Mapping[str, bytes] | None = None) -> Exchange | None:
        """Store the documents beside the old node; return how both are exchanged where the store cannot rename."""
        documents_format = format_of_store(self.store, self.format)
        renames = _renames(self.store, self.path, documents_format, self.seen)
        above = {**self.above, **(above or {}), **documents}
        own = create_groups_above(self.store, documents_format, self.path, above)
        own = {**({} if self.path else documents_format.emit_root()), **own}
        prefix = self.staged_documents
        for key, value in own.items():
            self.store.set(self.staged + key.removeprefix(self.old_prefix) if renames else prefix + key, value)
        return None if renames else self._exchange(documents_format, own)

    def other(self, documents: Mapping[str, bytes], *, above: Mapping[str, bytes]) -> Other:
        """Mark and store the new node as one that is replaced together with that of the job, and return its record."""
        self.mark_staged()
        exchange = self.stage(documents, above=above)
        new = {key: sha256(value).hexdigest() for key, value in documents.items()}
        return Other(self.path, self.old_prefix, self.staged, dict(self.seen), new, exchange)

    def _exchange(self, documents_format: Format, documents: Iterable[str]) -> Exchange:
        """Return what is to be copied where, and what of the old node is to be deleted before."""
        formats = [documents_format, *_formats_of(self.store, self.path, self.seen)]
        prefixes = tuple(dict.fromkeys(prefix for each in formats for prefix in _prefixes(self.path, each)))
        old = {key for each in formats for key in node_keys(each, self.path)}
        old |= {*_documents_below(self.store, documents_format, self.path, prefixes)}
        consolidated = documents_format.consolidated_key(self.path)
        return Exchange(
            job=self._job,
            prefix=self.old_prefix,
            staged=self.staged,
            mark=new_mark(self.run),
            documents=self.staged_documents,
            new_documents=tuple(reversed(_waves(documents, formats))),
            old_prefixes=prefixes,
            old_documents=tuple(_waves(old, formats)),
            sign=documents_format.list_prefixes(self.path)[0] + exchange_sign(self.run),
            derived=tuple(
                key for key in documents if key == consolidated and key not in documents_format.group_keys(self.path)
            ),
        )

    def check_old(self, documents: Mapping[str, bytes]) -> None:
        """Raise `JobError` where others have changed the old node, once; `documents` are those of the new one."""
        check_as_seen(self.store, self.seen, documents, self._job, note=f"{self.staged.rstrip('/')}-changed.json")

    def is_staged(self) -> bool:
        """Return whether the new node is there, and has not been put in its place yet."""
        return self.store.get(self.staged + new_mark(self.run)) == self.run.encode()

    def mark_staged(self) -> None:
        """Mark what is written as this run's, as a journal does with the node that it is named after."""
        self.store.set_if(self.staged + new_mark(self.run), self.run.encode(), None)

    def _ended(self) -> JobError:
        reason = "the job has ended, or was replaced by another one, while this client was at its end"
        return JobError(job=self._job, reason=reason)

    @property
    def _job(self) -> str:
        return f"replace {self.path!r} in {self.store.url}"


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


def way_to_replace(store: Store, path: str, old: Format, new: Format) -> Way | None:
    """Return how a node that is written beside the one at `path` takes its place; ``None``: both cannot be there."""
    if _renames(store, path, new, node_keys(old, path)):
        return "rename" if can_replace(store, _prefix(new, path)) else None
    # copies in a zip file would leave their bytes in it; and what is copied is found by listing
    return "copy" if scratch_store(store) is None and can_list(store) else None


def _renames(store: Store, path: str, new: Format, old_documents: Iterable[str]) -> bool:
    return _is_below_one_prefix(path, new, old_documents) and can_rename(store, _prefix(new, path))


def _is_below_one_prefix(path: str, new: Format, old_documents: Iterable[str]) -> bool:
    """Return whether documents and chunks of both nodes are stored below one prefix."""
    prefix = _prefix(new, path)
    return all(key.startswith(prefix) for key in (*node_keys(new, path), *old_documents))


def _prefixes(path: str, documents_format: Format) -> tuple[str, ...]:
    """Return the prefixes below which nodes at and below `path` are stored."""
    return (documents_format.chunk_prefix(path), *documents_format.list_prefixes(path)) if path else ("",)


def _formats_of(store: Store, path: str, seen: Iterable[str]) -> list[Format]:
    """Return the formats whose nodes at `path` have documents under some keys."""
    keys = set(seen)
    found = [each for each in FORMATS if each.node_keys_known and keys.issuperset(node_keys(each, path))]
    if found or not keys:
        return found
    others = (format_of_store(store, each.name) for each in FORMATS if not each.node_keys_known)
    return [each for each in others if keys.issuperset(node_keys(each, path))]


def _documents_below(store: Store, documents_format: Format, path: str, prefixes: Iterable[str]) -> list[str]:
    """Return the keys of all documents below some prefixes, whatever their format."""
    names = {name for each in _document_names() for name in each}
    apart = tuple({*documents_format.list_prefixes(path)} - {documents_format.chunk_prefix(path)})
    return [
        key
        for prefix in prefixes
        for key in store.list_prefix(prefix)
        if (key.rpartition("/")[2] in names or key.startswith(apart)) and not key.startswith(JOB_PREFIX)
    ]


def _document_names() -> tuple[set[str], set[str], set[str]]:
    """Return the names of consolidated metadata apart, of documents that make nodes, and of others."""
    known = [each for each in FORMATS if each.node_keys_known]
    entries = {key for each in known for key in (each.array_keys("a")[0], each.group_keys("a")[0])}
    consolidated = {key for each in known if (key := each.consolidated_key("a")) is not None} - entries
    others = {key for each in known for key in node_keys(each, "a")} - entries
    return tuple({key.removeprefix("a/") for key in keys} for keys in (consolidated, entries, others))  # type: ignore[return-value]


def _waves(documents: Iterable[str], formats: Iterable[Format]) -> list[tuple[str, ...]]:
    """Return keys of documents in the order of deletion: nobody meets a part of a node, or a node without one above."""
    consolidated, _, others = _document_names()
    of_root = {key for each in formats for key in node_keys(each, "")}  # in the draft beside those of its children

    def wave(key: str) -> tuple[int, int, int]:
        name, depth = key.rpartition("/")[2], key.count("/")
        return 0 if key in of_root else depth, 0 if name in consolidated else 2 if name in others else 1, depth

    return [tuple(keys) for _, keys in groupby(sorted(documents, key=lambda key: (*wave(key), key)), wave)]


def _prefix(documents_format: Format, path: str) -> str:
    """Return the prefix below which all of a node is stored, in formats that have one: of the root, all keys."""
    return documents_format.chunk_prefix(path) if path else ""


def stage_replacement(
    store: Store, path: str, old: Format, new: Format, *, above: Mapping[str, bytes], seen: Mapping[str, str]
) -> Replacement | None:
    """Prepare to replace the node at `path`; ``None`` where the store, or one of the formats, cannot hold both."""
    if not _is_below_one_prefix(path, new, node_keys(old, path)):
        return None
    staged = stage(store, _prefix(new, path))
    return None if staged is None else Replacement(store, path, new.name, staged, above, seen)
