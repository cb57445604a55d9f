"""Replace nodes by new ones: what is there stays until the new one is complete, where the store can hold both (P6).

A node is staged in one of two ways: in the store's own scratch space (`Replacement`), by a write of one process; or
below a staging prefix of the journal (`StagedNode`), where the later runs of a job find it. Not here: the states of a
commit, and what a client does after a crash (`chunkmill.journal.commit`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Literal

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import JobError, MetadataError
from chunkmill.formats.base import Format
from chunkmill.journal.commit import (
    ByCopies,
    ByRename,
    Intent,
    decide,
    is_decided,
    is_tagged,
    is_undecided,
    roll_forward,
)
from chunkmill.journal.lease import check_no_job, discard_jobs, leased_to_replace
from chunkmill.journal.names import new_run, placeholder_key, run_tag, staged_documents, staged_prefix
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes.consolidated import forget_consolidated, refresh_consolidated
from chunkmill.nodes.documents import check_root, create_groups_above, fetch, format_of_store, node_keys, present
from chunkmill.nodes.keys import documents_below, formats_of, in_order_of_deletion, node_prefix, node_prefixes
from chunkmill.nodes.opening import array_at, find_stored
from chunkmill.nodes.placement import add_array, add_group, parent_documents, root_documents
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import can_list, can_rename, can_replace, flush, is_archive, stage, swap_in
from chunkmill.stores.conflicts import create
from chunkmill.stores.transactions import has_transactions, one_commit

__all__ = [
    "LaterReplacement",
    "Replacement",
    "StagedNode",
    "Way",
    "check_as_seen",
    "commit_all",
    "put_array",
    "put_group",
    "replacing",
    "replacing_later",
    "seen_documents",
    "seen_of",
    "stage_nodes",
    "way_to_keep",
]

Way = Literal["rename", "copy"]
"""By which a commit is applied: by one rename, or by copies, one a value."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node that is written in the store's scratch space, and replaces the one at `path`.

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
            Others have changed the old node since, or are at work there.
        """
        documents_format = format_of_store(self.store, self.format)
        prefix = node_prefix(documents_format, self.path)
        # a job that began since would publish its documents in the new node, without its chunks
        with leased_to_replace(self.store, self.path):
            check_as_seen(self.store, self.seen, documents, f"replace {self.path!r} in {self.store.url}")
            own = create_groups_above(self.store, documents_format, self.path, {**self.above, **documents})
            for key, value in {**({} if self.path else documents_format.emit_root()), **own}.items():
                self.staged.set(key.removeprefix(prefix), value)
            with _refreshed(self.store, documents_format, [self.path], below):
                swap_in(self.store, prefix, self.staged)

    def discard(self) -> None:
        """Delete what was written; the old node stays."""
        self.staged.delete_prefix("")


@dataclass(frozen=True, slots=True)
class StagedNode:
    """A node that a run writes below a staging prefix, in the store of the one at `path` that it replaces.

    Attributes
    ----------
    run
        Name of the run; of a lease, where a write keeps no records.
    above
        Documents of groups above `path` that do not exist yet, where `finish` is given none.
    seen
        What was seen of the node at `path` (`seen_documents`).
    apart
        Staging prefix, where the job is that of another node, and replaces several.
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
        return node_prefix(format_of_store(self.store, self.format), self.path)

    @property
    def staged(self) -> str:
        """Prefix of the keys of the new node until the commit."""
        return self.apart or staged_prefix(self.path, self.run)

    @property
    def staged_documents(self) -> str:
        """Prefix of the documents where the store cannot rename; in the journal that decides when they are deleted."""
        return f"{self.apart.rstrip('/')}-documents/" if self.apart else staged_documents(self.path, self.run)

    def array(self, array: StoredArray) -> StoredArray:
        """Return an array of the new node where its chunks are written."""
        prefix = self.staged + array.prefix.removeprefix(self.old_prefix)
        return StoredArray(array.store, array.path, array.metadata, array.format, prefix)

    def is_decided(self) -> bool:
        """Return whether the commit is decided: the old node is given up."""
        return is_decided(self.store, self.path, self.run, self.old_prefix)

    def is_staged(self) -> bool:
        """Return whether the new node is staged, and the commit not applied."""
        return is_tagged(self.store, self.staged, self.run)

    def finish(
        self,
        documents: Mapping[str, bytes],
        *,
        above: Mapping[str, bytes] | None = None,
        below: Iterable[str] = (),
        further: Sequence[tuple[StagedNode, Mapping[str, bytes]]] = (),
    ) -> None:
        """Commit the new node, and bring consolidated metadata up to date (`Replacement`).

        What an earlier run of the job, or another client, has done of it is not done again.

        Parameters
        ----------
        further
            Nodes that are committed with this one, and their documents.

        Raises
        ------
        JobError
            The job has ended, or others have changed the old node.
        """
        documents_format = format_of_store(self.store, self.format)
        intent = Intent(self._job, self.path, self.run, self.old_prefix, self.staged, ByRename())
        if not self.is_decided() and not self._was_decided():
            for new, own in ((self, documents), *further):
                new.check_old(own)
            intent = self.intent(documents, above=above, further=[new.tagged(own, above) for new, own in further])
            if intent.is_recorded:
                decide(self.store, intent)
        with _refreshed(self.store, documents_format, [self.path, *(new.path for new, _ in further)], below):
            unrecorded = intent if self._renames(documents_format) else None
            roll_forward(self.store, self.path, self.run, intent=unrecorded, job=self._job, old_prefix=self.old_prefix)

    def _was_decided(self) -> bool:
        """Return whether another client has decided it since one look; `JobError` where the job has ended since."""
        renames = self._renames(format_of_store(self.store, self.format))
        is_whole = self.is_staged() or (renames and not self.old_prefix)
        if is_whole and is_undecided(self.store, self.path, self.run):
            return False
        if not self.is_decided():
            reason = "the job has ended, or was replaced by another one, while this client was at its end"
            raise JobError(job=self._job, reason=reason)
        return True

    def tagged(self, documents: Mapping[str, bytes], above: Mapping[str, bytes] | None) -> Intent:
        """Tag a node that is committed with that of the job, as a journal tags the latter; return its intent."""
        create(self.store, self.staged + run_tag(self.run), self.run.encode())
        return self.intent(documents, above=above)

    def intent(
        self,
        documents: Mapping[str, bytes],
        *,
        above: Mapping[str, bytes] | None = None,
        further: Iterable[Intent] = (),
    ) -> Intent:
        """Stage the documents; return what a commit of the new node does."""
        documents_format = format_of_store(self.store, self.format)
        renames = self._renames(documents_format)
        own = {**self.above, **(above or {}), **documents}
        own = create_groups_above(self.store, documents_format, self.path, own)
        own = {**({} if self.path else documents_format.emit_root()), **own}
        for key, value in own.items():
            at = self.staged + key.removeprefix(self.old_prefix) if renames else self.staged_documents + key
            self.store.set(at, value)
        return Intent(
            job=self._job,
            path=self.path,
            run=self.run,
            prefix=self.old_prefix,
            staged=self.staged,
            way=ByRename() if renames else self._by_copies(documents_format, own),
            seen=dict(self.seen),
            new={key: sha256(value).hexdigest() for key, value in documents.items()},
            further=tuple(further),
        )

    def _by_copies(self, documents_format: Format, documents: Iterable[str]) -> ByCopies:
        """Return what is to be copied where, and what of the old node is to be deleted before."""
        formats = [documents_format, *formats_of(self.store, self.path, self.seen)]
        prefixes = tuple(dict.fromkeys(prefix for each in formats for prefix in node_prefixes(self.path, each)))
        old = {key for each in formats for key in node_keys(each, self.path)}
        old |= {*documents_below(self.store, documents_format, self.path, prefixes)}
        consolidated = documents_format.consolidated_key(self.path)
        is_apart = consolidated not in documents_format.group_keys(self.path)
        return ByCopies(
            documents=self.staged_documents,
            new_documents=tuple(reversed(in_order_of_deletion(documents, formats))),
            old_prefixes=prefixes,
            old_documents=tuple(in_order_of_deletion(old, formats)),
            placeholder=documents_format.list_prefixes(self.path)[0] + placeholder_key(self.run),
            derived=tuple(key for key in documents if key == consolidated and is_apart),
        )

    def check_old(self, documents: Mapping[str, bytes]) -> None:
        """Raise `JobError` where others have changed the old node, once; `documents` are those of the new one."""
        seen_now = f"{self.staged.rstrip('/')}-changed.json"
        check_as_seen(self.store, self.seen, documents, self._job, raised=seen_now)

    def _renames(self, documents_format: Format) -> bool:
        return _renames(self.store, self.path, documents_format, self.seen)

    @property
    def _job(self) -> str:
        return f"replace {self.path!r} in {self.store.url}"


@dataclass(frozen=True, slots=True)
class LaterReplacement:
    """A node that tasks stage, whose path is leased when they are done; can be pickled."""

    new: StagedNode

    def array(self, array: StoredArray) -> StoredArray:
        """Return an array of the new node where its chunks are written."""
        return self.new.array(array)

    def finish(self, documents: Mapping[str, bytes], *, n_stored: int) -> None:
        """Lease the path, and commit the new node, of which so many chunks are stored.

        Raises
        ------
        JobError
            A job, or another writer, is at work there; or others have deleted what was staged, or changed the old node.
        """
        store, path, new = self.new.store, self.new.path, self.new
        with leased_to_replace(store, path, old_prefix=new.old_prefix, run=new.run):
            n_there = sum(1 for key in store.list_prefix(new.staged) if key != new.staged + run_tag(new.run))
            if n_there != n_stored or not new.is_staged():  # another writer deletes what it finds
                reason = f"of {n_stored} chunks that were staged, {n_there} are there: others have "
                hint = "what is stored there stays; write it again"
                job = f"replace {path!r} in {store.url}"
                raise JobError(job=job, reason=f"{reason}replaced the node since, or repaired the store", hint=hint)
            new.finish(documents)


@contextmanager
def _refreshed(store: Store, documents_format: Format, paths: Sequence[str], below: Iterable[str]) -> Iterator[None]:
    """Replace the nodes at some paths inside, with those below them, and keep consolidated metadata true."""
    # a reader by consolidated metadata must not meet the new chunks with the old codecs
    for path in paths:
        forget_consolidated(store, path)
    try:
        yield
    finally:  # whatever is stored then: others may have replaced the node as well
        refresh_consolidated(store, documents_format, [*paths, *below])
    flush(store)


@contextmanager
def replacing(
    store: Store,
    path: str,
    format: str,  # noqa: A002
) -> Iterator[Replacement | StagedNode | None]:
    """Write the node that is to replace the one at `path`, and call its `finish`, inside; a failure keeps the old one.

    ``None`` where there is no node, or it must be deleted first. Where the commit is applied by copies, the path is
    leased.

    Raises
    ------
    NodeExists
        There is an array above `path`.
    JobError
        A job, or another writer, is at work there.
    """
    replacement = _begun(store, path, format)
    if replacement is not None:
        try:
            yield replacement
        except BaseException:
            with suppress(OSError):  # the first error is raised, not that of the roll back
                replacement.discard()
            raise
        return
    documents_format = format_of_store(store, format)
    path = documents_format.normalize_path(path)
    if way_to_keep(store, [path], format) != "copy":
        yield None
        return
    prefix = StagedNode(store, path, documents_format.name, "").old_prefix
    with leased_to_replace(store, path, old_prefix=prefix) as own:
        yield _of_run(store, path, documents_format, own.run)


def replacing_later(store: Store, path: str, format: str) -> Replacement | LaterReplacement | None:  # noqa: A002
    """Return the replacement that tasks write and `finish` when they are computed; see `replacing`."""
    replacement = _begun(store, path, format)
    if replacement is not None:
        return replacement
    documents_format = format_of_store(store, format)
    path = documents_format.normalize_path(path)
    if way_to_keep(store, [path], format) != "copy":
        return None
    return LaterReplacement(_of_run(store, path, documents_format, new_run()))


def _begun(store: Store, path: str, format: str) -> Replacement | None:  # noqa: A002
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
    old, above, seen = found
    if not _is_below_one_prefix(path, documents_format, node_keys(old, path)):
        return None
    staged = stage(store, node_prefix(documents_format, path))
    return None if staged is None else Replacement(store, path, documents_format.name, staged, above, seen)


def _of_run(store: Store, path: str, documents_format: Format, run: str) -> StagedNode:
    old, above = _format_at(store, path, documents_format), _above(store, path, documents_format)
    seen = {} if old is None else seen_documents(store, path, old)
    return StagedNode(store, path, documents_format.name, run, above, seen)


def stage_nodes(
    store: Store,
    paths: Sequence[str],
    format: str,  # noqa: A002
    run: str,
    replaced: Mapping[str, str] | None,
) -> list[StagedNode] | None:
    """Prepare to replace the nodes at `paths` by those that a run of the job at the first of them stages.

    Some may not be there yet. ``None`` where there is none, or one must be deleted first.

    Parameters
    ----------
    replaced
        What the plan of a run that is resumed says was seen of the nodes; ``None`` for a run that begins.

    Raises
    ------
    NodeExists
        There is an array above one of `paths`.
    """
    documents_format = format_of_store(store, format)
    seen: dict[str, str] = dict(replaced or {})
    above: Mapping[str, bytes] = MappingProxyType({})
    if replaced is None:
        found = [_to_replace(store, path, documents_format) for path in paths]
        if all(each is None for each in found):
            return None
        for path, each in zip(paths, found, strict=True):
            if each is None:
                discard_jobs(store, check_no_job(store, path, overwrite=True))
            elif way_to_replace(store, path, each[0], documents_format) is None:
                return None
            seen |= seen_documents(store, path, documents_format) if each is None else each[2]
        above = next(each[1] for each in found if each is not None)
    name = documents_format.name
    return [
        StagedNode(store, path, name, run, above, seen_of(seen, path), staged_prefix(paths[0], run, i) if i else "")
        for i, path in enumerate(paths)
    ]


def commit_all(
    nodes: Sequence[StagedNode], documents: Sequence[Mapping[str, bytes]], above: Mapping[str, bytes]
) -> None:
    """Commit the nodes of one job together: the intent record of the first one decides for all.

    The paths of the others are leased before, so that either all are replaced or none. What an earlier run has done is
    not done again.

    Raises
    ------
    JobError
        The job has ended, or others have changed one of the old nodes, or are at work there.
    """
    first, *others = nodes
    with ExitStack() as held:
        for new in others:
            held.enter_context(leased_to_replace(new.store, new.path, old_prefix=new.old_prefix, run=new.run))
        first.finish(documents[0], above=above, further=list(zip(others, documents[1:], strict=True)))


def way_to_keep(store: Store, paths: Iterable[str], format: str) -> Way | None:  # noqa: A002
    """Return how a job replaces the nodes at `paths`, which stay until its commit.

    ``None`` where there is no node, or one must be deleted first.
    """
    new = format_of_store(store, format)
    there = {path: old for path in paths if (old := _format_at(store, path, new)) is not None}
    ways = [way_to_replace(store, path, old, new) for path, old in there.items()]
    if not ways or None in ways:
        return None
    return "copy" if "copy" in ways else "rename"


def _format_at(store: Store, path: str, new: Format) -> Format | None:
    """Return the format of the node at `path`, that of the `new` one where it does not open; ``None`` without one."""
    try:
        there = find_stored(store, path)
    except MetadataError:
        return new
    if there is None:
        return None
    return there.documents if isinstance(there, StoredGroup) else format_of_store(store, there.format)


def _to_replace(
    store: Store, path: str, documents_format: Format
) -> tuple[Format, dict[str, bytes], dict[str, str]] | None:
    """Return the format of the node at `path`, documents of parents that it needs, and what was seen of it.

    ``None`` without a node.
    """
    check_root(store, documents_format)
    old = _format_at(store, path, documents_format)
    if old is None:
        return None
    discard_jobs(store, check_no_job(store, path, overwrite=True))
    return old, _above(store, path, documents_format), seen_documents(store, path, old)


def _above(store: Store, path: str, documents_format: Format) -> dict[str, bytes]:
    return {**parent_documents(store, path, documents_format), **root_documents(store, documents_format)}


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
    with one_commit(store, f"create the array {path!r}"):
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
    with one_commit(store, f"create the group {path!r}"):
        if overwrite:
            with replacing(store, path, format) as replacement:
                if replacement is not None:
                    documents_format = format_of_store(store, format)
                    replacement.finish(documents_format.emit_group(replacement.path, metadata))
                    return StoredGroup(store, replacement.path, metadata, documents_format, read_only=False)
        return add_group(store, path, metadata, format=format, overwrite=overwrite)


def way_to_replace(store: Store, path: str, old: Format, new: Format) -> Way | None:
    """Return how a commit of a node at `path` is applied; ``None``: the store cannot hold both nodes."""
    if _renames(store, path, new, node_keys(old, path)):
        return "rename" if can_replace(store, node_prefix(new, path)) else None
    # the values to copy are found by listing; in a transaction others see the old node until its commit
    return "copy" if not is_archive(store) and can_list(store) and not has_transactions(store) else None


def _renames(store: Store, path: str, new: Format, old_documents: Iterable[str]) -> bool:
    return _is_below_one_prefix(path, new, old_documents) and can_rename(store, node_prefix(new, path))


def _is_below_one_prefix(path: str, new: Format, old_documents: Iterable[str]) -> bool:
    """Return whether documents and chunks of both nodes are stored below one prefix."""
    prefix = node_prefix(new, path)
    return all(key.startswith(prefix) for key in (*node_keys(new, path), *old_documents))


def seen_documents(store: Store, path: str, documents_format: Format) -> dict[str, str]:
    """Return hashes of the documents of the node at `path`, consolidated metadata included."""
    keys = {*node_keys(documents_format, path), documents_format.consolidated_key(path)} - {None}
    found = fetch(store, sorted(key for key in keys if key is not None))
    return {key: _hash(value) for key, value in found.items()}


def seen_of(seen: Mapping[str, str], path: str) -> dict[str, str]:
    """Return, of the hashes of several nodes, none below another one, those of the node at `path`."""
    own = (f"{path}/", f"{path}.")  # as in a/zarr.json, meta/a.array.json
    return {key: value for key, value in seen.items() if not path or any(f"/{each}" in f"/{key}" for each in own)}


def check_as_seen(
    store: Store, seen: Mapping[str, str], new: Mapping[str, bytes], job: str, *, raised: str = ""
) -> None:
    """Raise `JobError` where a document is another one than `seen_documents` saw.

    Deleted ones are not lost here, and those that are as in the `new` node already are of an earlier run. With
    `raised`, a key at which the error is recorded, it is raised once: a run that resumes replaces what was there then.
    """
    found = present(fetch(store, seen))
    there = {key: _hash(value) for key, value in found.items()}
    changed = sorted(key for key in there if there[key] != seen[key] and found[key] != new.get(key))
    if not changed:
        return
    now = json.dumps(there).encode()
    if raised and store.get(raised) == now:
        return
    if raised:
        store.set(raised, now)
    reason = f"others have changed {', '.join(map(repr, changed))} since this began to replace the node, "
    reason += "which is left as they made it"
    raise JobError(job=job, reason=reason, hint="look at it; the same call again replaces it")


def _hash(value: bytes | None) -> str:
    return "" if value is None else sha256(value).hexdigest()
