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

from chunkmill.array.stored_array import StoredArray
from chunkmill.errors import JobError, MetadataError
from chunkmill.formats.base import Format
from chunkmill.journal.commit import forget_tag, is_in_place, is_tagged, put_in_place
from chunkmill.journal.lease import check_no_job, discard_jobs, leased_to_replace
from chunkmill.journal.names import run_tag, staged_prefix
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes.consolidated import forget_consolidated, refresh_consolidated
from chunkmill.nodes.documents import check_root, create_groups_above, fetch, format_of_store, node_keys, present
from chunkmill.nodes.keys import node_prefix
from chunkmill.nodes.opening import array_at, find_stored
from chunkmill.nodes.placement import add_array, add_group, parent_documents, root_documents
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import create

__all__ = [
    "Replacement",
    "StagedNode",
    "all_keep_old",
    "begin_replacement",
    "check_as_seen",
    "put_all_in_place",
    "put_array",
    "put_group",
    "replacing",
    "seen_documents",
    "seen_of",
    "stage_nodes",
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
                self.store.swap_in(prefix, self.staged)

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
    journal_path, number
        Path of another node that the journal is named after, where the job replaces several, and number of this one.
    """

    store: Store
    path: str
    format: str
    run: str
    above: Mapping[str, bytes] = field(default_factory=dict)
    seen: Mapping[str, str] = field(default_factory=dict)
    journal_path: str = ""
    number: int = 0

    @property
    def old_prefix(self) -> str:
        """Prefix of the keys of the node, of the old one and then of the new one."""
        return node_prefix(format_of_store(self.store, self.format), self.path)

    @property
    def staged(self) -> str:
        """Prefix of the keys of the new node until the commit."""
        return staged_prefix(self.journal_path or self.path, self.run, self.number)

    def array(self, array: StoredArray) -> StoredArray:
        """Return an array of the new node where its chunks are written."""
        prefix = self.staged + array.prefix.removeprefix(self.old_prefix)
        return StoredArray(array.store, array.path, array.metadata, array.format, prefix)

    def is_in_place(self) -> bool:
        """Return whether the new node has taken the place of the old one."""
        return is_in_place(self.store, self.run, self.old_prefix)

    def finish(
        self, documents: Mapping[str, bytes], *, above: Mapping[str, bytes] | None = None, below: Iterable[str] = ()
    ) -> None:
        """Put the new node in place, and bring consolidated metadata up to date (`Replacement`).

        What an earlier run of the job, or another client, has done of it is not done again.

        Raises
        ------
        JobError
            The job has ended, or others have changed the old node.
        """
        documents_format = format_of_store(self.store, self.format)
        if not self.is_in_place() and is_tagged(self.store, self.staged, self.run):
            self.check_old(documents)
            own = {**self.above, **(above or {}), **documents}
            own = create_groups_above(self.store, documents_format, self.path, own)
            for key, value in {**({} if self.path else documents_format.emit_root()), **own}.items():
                self.store.set(self.staged + key.removeprefix(self.old_prefix), value)
        of_journal = self.journal_path or self.path
        with _refreshed(self.store, documents_format, [self.path], below):
            put_in_place(self.store, self._job, of_journal, self.run, old_prefix=self.old_prefix, staged=self.staged)

    def check_old(self, documents: Mapping[str, bytes]) -> None:
        """Raise `JobError` where others have changed the old node, once; `documents` are those of the new one."""
        seen_now = f"{self.staged.rstrip('/')}-changed.json"
        check_as_seen(self.store, self.seen, documents, self._job, raised=seen_now)

    @property
    def _job(self) -> str:
        return f"replace {self.path!r} in {self.store.url}"


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
    old, above, seen = found
    if not _is_below_one_prefix(path, documents_format, node_keys(old, path)):
        return None
    staged = store.stage(node_prefix(documents_format, path))
    return None if staged is None else Replacement(store, path, documents_format.name, staged, above, seen)


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
        found = [_to_replace(store, path, documents_format, run) for path in paths]
        if all(each is None for each in found):
            return None
        for path, each in zip(paths, found, strict=True):
            if each is None:
                discard_jobs(store, check_no_job(store, path, overwrite=True, own_run=run))
            elif not keeps_old(store, path, each[0], documents_format):
                return None
            seen |= seen_documents(store, path, documents_format) if each is None else each[2]
        above = next(each[1] for each in found if each is not None)
    name = documents_format.name
    return [
        StagedNode(store, path, name, run, above, seen_of(seen, path), paths[0] if i else "", i)
        for i, path in enumerate(paths)
    ]


def put_all_in_place(
    nodes: Sequence[StagedNode], documents: Sequence[Mapping[str, bytes]], above: Mapping[str, bytes]
) -> None:
    """Put the nodes of one job in place, one after the other: the first, which the journal is named after, last.

    What an earlier run has done is not done again.

    Raises
    ------
    JobError
        The job has ended, or others have changed one of the old nodes, or are at work there.
    """
    first, *others = nodes
    all_written = f"{first.staged.rstrip('/')}-all.json"  # from then on, what is not tagged was in place already
    is_over = first.is_in_place()
    if others and not is_over and first.store.get(all_written) is None:
        for new in others:
            create(new.store, new.staged + run_tag(new.run), new.run.encode())
        create(first.store, all_written, b"{}")
    with ExitStack() as held:
        for new, own in zip(others, documents[1:], strict=True):
            held.enter_context(leased_to_replace(new.store, new.path, run=new.run))
            if not is_over:
                new.finish(own, above=above)
        first.finish(documents[0], above=above)
    for new in others:
        forget_tag(new.store, new.run, new.old_prefix)


def all_keep_old(store: Store, paths: Iterable[str], format: str) -> bool | None:  # noqa: A002
    """Return whether the nodes at `paths` stay until a job has replaced them; ``None`` where there is none."""
    new = format_of_store(store, format)
    there = {path: old for path in paths if (old := _format_at(store, path, new)) is not None}
    return all(keeps_old(store, path, old, new) for path, old in there.items()) if there else None


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
    store: Store, path: str, documents_format: Format, run: str = ""
) -> tuple[Format, dict[str, bytes], dict[str, str]] | None:
    """Return the format of the node at `path`, documents of parents that it needs, and what was seen of it.

    ``None`` without a node.
    """
    check_root(store, documents_format)
    old = _format_at(store, path, documents_format)
    if old is None:
        return None
    discard_jobs(store, check_no_job(store, path, overwrite=True, own_run=run))
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
