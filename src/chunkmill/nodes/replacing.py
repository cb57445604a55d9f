"""Replace nodes by new ones: what is there stays until the new one is complete, where the store can hold both.

Not here: how the two are exchanged (`chunkmill.nodes.replacement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType

from chunkmill.errors import JobError, MetadataError
from chunkmill.formats.base import Format
from chunkmill.journal.exchange import complete_exchange, delete_note
from chunkmill.journal.exchange_together import note_others
from chunkmill.journal.journal_names import new_mark, new_run, staged_prefix
from chunkmill.journal.unfinished_jobs import check_no_job, discard_jobs, reserved_to_replace
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata
from chunkmill.nodes.array import Array
from chunkmill.nodes.documents import check_root, format_of_store
from chunkmill.nodes.opening import array_at, find_stored
from chunkmill.nodes.placement import add_array, add_group, parent_documents, root_documents
from chunkmill.nodes.replaced import seen_documents, seen_of
from chunkmill.nodes.replacement import (
    Replacement,
    ReplacementOfJob,
    Way,
    stage_replacement,
    way_to_replace,
)
from chunkmill.nodes.stored_group import StoredGroup
from chunkmill.stores.base import Store

__all__ = [
    "LaterReplacement",
    "beside",
    "put_array",
    "put_group",
    "replacing",
    "replacing_later",
    "way_to_keep",
]


@dataclass(frozen=True, slots=True)
class LaterReplacement:
    """A node that tasks write beside another one, whose place is reserved when they are done; can be pickled."""

    new: ReplacementOfJob

    def array(self, array: Array) -> Array:
        """Return an array of the new node where its chunks are written."""
        return self.new.array(array)

    def finish(self, documents: Mapping[str, bytes], *, n_stored: int) -> None:
        """Reserve the place, and put the new node there, of which so many chunks are stored.

        Raises
        ------
        JobError
            A job, or another writer, is at work there; or others have deleted what was stored, or changed the old node.
        """
        store, path, new = self.new.store, self.new.path, self.new
        with reserved_to_replace(store, path, old_prefix=new.old_prefix, run=new.run):
            n_there = sum(1 for key in store.list_prefix(new.staged) if key != new.staged + new_mark(new.run))
            if n_there != n_stored or not new.is_staged():  # another writer of the node deletes what it finds beside it
                reason = f"of {n_stored} chunks that were stored beside the node, {n_there} are there: others have "
                job = f"replace {path!r} in {store.url}"
                raise JobError(job=job, reason=f"{reason}replaced it meanwhile, or repaired the store", hint=_AGAIN)
            new.finish(documents)


_AGAIN = "what is there is left as it is; write it again"


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
    return stage_replacement(store, path, old, documents_format, above=above, seen=seen)


@contextmanager
def replacing(
    store: Store,
    path: str,
    format: str,  # noqa: A002
) -> Iterator[Replacement | ReplacementOfJob | None]:
    """Write what is to replace the node at `path`, and call its `finish`, inside; what fails leaves the old node.

    ``None`` where there is no node, or it must be deleted first. Where the new node is put in its place by copies, the
    place is reserved.

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
            with suppress(OSError):  # what failed is told, not what tidying up met
                replacement.discard()
            raise
        return
    documents_format = format_of_store(store, format)
    path = documents_format.normalize_path(path)
    if way_to_keep(store, [path], format) != "copy":
        yield None
        return
    prefix = ReplacementOfJob(store, path, documents_format.name, "").old_prefix
    with reserved_to_replace(store, path, old_prefix=prefix) as own:
        yield _of_run(store, path, documents_format, own.run)


def replacing_later(store: Store, path: str, format: str) -> Replacement | LaterReplacement | None:  # noqa: A002
    """Return what tasks that are computed later are to write and to `finish`; see `replacing`."""
    replacement = _begun(store, path, format)
    if replacement is not None:
        return replacement
    documents_format = format_of_store(store, format)
    path = documents_format.normalize_path(path)
    if way_to_keep(store, [path], format) != "copy":
        return None
    return LaterReplacement(_of_run(store, path, documents_format, new_run()))


def _of_run(store: Store, path: str, documents_format: Format, run: str) -> ReplacementOfJob:
    old, above = _format_at(store, path, documents_format), _above(store, path, documents_format)
    seen = {} if old is None else seen_documents(store, path, old)
    return ReplacementOfJob(store, path, documents_format.name, run, above, seen)


def beside(
    store: Store,
    paths: Sequence[str],
    format: str,  # noqa: A002
    run: str,
    replaced: Mapping[str, str] | None,
) -> list[ReplacementOfJob] | None:
    """Prepare to replace the nodes at `paths` by those that a run of the job at the first of them writes beside them.

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
    if replaced is not None:
        return _beside(store, paths, documents_format, run, replaced)
    found = [_to_replace(store, path, documents_format) for path in paths]
    if all(each is None for each in found):
        return None
    seen: dict[str, str] = {}
    for path, each in zip(paths, found, strict=True):
        if each is None:
            discard_jobs(store, check_no_job(store, path, overwrite=True))
        elif way_to_replace(store, path, each[0], documents_format) is None:
            return None
        seen |= seen_documents(store, path, documents_format) if each is None else each[2]
    above = next(each[1] for each in found if each is not None)
    return _beside(store, paths, documents_format, run, seen, above=above)


def _beside(
    store: Store,
    paths: Sequence[str],
    documents_format: Format,
    run: str,
    seen: Mapping[str, str],
    *,
    above: Mapping[str, bytes] = MappingProxyType({}),
) -> list[ReplacementOfJob]:
    name = documents_format.name
    return [
        ReplacementOfJob(
            store, path, name, run, above, seen_of(seen, path), staged_prefix(paths[0], run, i) if i else ""
        )
        for i, path in enumerate(paths)
    ]


def finish_all(
    replacements: Sequence[ReplacementOfJob], documents: Sequence[Mapping[str, bytes]], above: Mapping[str, bytes]
) -> None:
    """Put the nodes of one job in their places: that the first is there decides for all, whoever completes them.

    The places of the others are reserved before, so that either all are replaced or none. What an earlier run has done
    is not done again.

    Raises
    ------
    JobError
        The job has ended meanwhile, or others have changed one of the old nodes, or are at work there.
    """
    first, *others = replacements
    with ExitStack() as held:
        for new in others:
            held.enter_context(reserved_to_replace(new.store, new.path, old_prefix=new.old_prefix, run=new.run))
        if others and not first.is_decided():
            for new, own in zip(replacements, documents, strict=True):
                new.check_old(own)
            told = [new.other(own, above=above) for new, own in zip(others, documents[1:], strict=True)]
            note_others(first.store, first.path, first.run, told)
        first.finish(documents[0], above=above)
        for new, own in zip(others, documents[1:], strict=True):
            if new.is_staged():
                new.finish(own)
                delete_note(new.store, new.path, new.run, new.old_prefix)
            else:  # an earlier run may have died before its sign was deleted
                complete_exchange(new.store, new.path, new.run)


def way_to_keep(store: Store, paths: Iterable[str], format: str) -> Way | None:  # noqa: A002
    """Return how those that a job writes take the places of the nodes at `paths`, which stay until then.

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
) -> Array:
    """Create an array without chunks; with `overwrite`, what is there stays until the new one takes its place.

    Raises
    ------
    NodeExists, UnsupportedFeature, JobError
        See `add_array`.
    """
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
    if overwrite:
        with replacing(store, path, format) as replacement:
            if replacement is not None:
                documents_format = format_of_store(store, format)
                replacement.finish(documents_format.emit_group(replacement.path, metadata))
                return StoredGroup(store, replacement.path, metadata, documents_format, read_only=False)
    return add_group(store, path, metadata, format=format, overwrite=overwrite)
