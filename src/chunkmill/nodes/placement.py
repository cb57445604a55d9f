"""Make room for new nodes, and publish them (P4, P5).

Not here: what replaces a node that stays until the new one is complete (`chunkmill.nodes.target`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import at_once
from chunkmill.errors import MetadataError, NodeExists
from chunkmill.formats.base import Format
from chunkmill.formats.references.chunk_numbers import ROOT_KEY
from chunkmill.formats.registry import FORMATS, get_format
from chunkmill.journal.lease import Lease, check_no_job, discard_jobs, leased, leased_briefly
from chunkmill.journal.plans import JOB_PREFIX, journal_prefix
from chunkmill.journal.unfinished import jobs_at
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata, parents_of
from chunkmill.nodes.documents import (
    check_free,
    check_root,
    create_groups_above,
    documents_below,
    fetch,
    forget_consolidated,
    format_of_store,
    join_path,
    may_have,
    node_keys,
    node_prefixes,
    present,
    publish,
    refresh_consolidated,
    refreshed,
    unpublish,
    without_blank,
)
from chunkmill.nodes.opening import array_at, find_stored, walk
from chunkmill.nodes.stored_group import StoredGroup, parse_node
from chunkmill.stores.base import Store
from chunkmill.stores.memory import RememberedReads


def add_array(
    store: Store,
    path: str,
    metadata: ArrayMetadata,
    *,
    format: str,  # noqa: A002
    overwrite: bool = False,
) -> StoredArray:
    """Create an array without chunks, and publish it.

    Raises
    ------
    NodeExists, UnsupportedFeature
        See `create_array`.
    JobError
        A job, or another writer, is at work there.
    """
    documents_format = format_of_store(store, format)
    array = array_at(store, path, metadata, documents_format)
    documents = documents_format.emit_array(array.path, metadata)  # what it cannot hold is refused before all else
    with _leased(store, array.path, format, overwrite=overwrite) as (own, delete_interrupted):
        options: Any = {"overwrite": overwrite, "run": own.run, "again": own.follows_interrupted}
        above = make_room(store, array.path, documents_format, **options)
        documents = {**above, **documents}
        delete_interrupted()
        delete_stored_chunks(array)  # of a write that was interrupted
        own.check()
        publish_and_refresh(store, documents, format, array.path)
    return array


def add_group(
    store: Store,
    path: str,
    metadata: GroupMetadata,
    *,
    format: str,  # noqa: A002
    overwrite: bool = False,
) -> StoredGroup:
    """Create a group, and publish it (see `add_array`)."""
    documents_format = format_of_store(store, format)
    path = documents_format.normalize_path(path)
    documents = documents_format.emit_group(path, metadata)
    with _leased(store, path, format, overwrite=overwrite) as (own, delete_interrupted):
        options: Any = {"overwrite": overwrite, "run": own.run, "again": own.follows_interrupted}
        above = make_room(store, path, documents_format, hides=False, **options)
        documents = {**above, **documents}
        delete_interrupted()
        own.check()
        publish_and_refresh(store, documents, format, path)
    return StoredGroup(store, path, metadata, documents_format, read_only=False)


@contextmanager
def _leased(
    store: Store,
    path: str,
    format: str,  # noqa: A002
    *,
    overwrite: bool,
) -> Iterator[tuple[Lease, Callable[[], None]]]:
    """Lease the path of a new node; yield also a function that deletes what an interrupted job has written there."""
    interrupted = check_no_job(store, path, overwrite=True) if overwrite else []
    discard_jobs(store, interrupted)

    def delete_interrupted() -> None:
        if interrupted:
            _delete_node(store, path, get_format(format))

    lease = leased if overwrite else leased_briefly
    with (
        lease(store, path, f"create {path!r} in {store.url}") as own,
        consolidating_interrupted(store, [path], format, own),
    ):
        yield own, delete_interrupted


@contextmanager
def consolidating_interrupted(
    store: Store,
    paths: Iterable[str],
    format: str,  # noqa: A002
    own: Lease,
) -> Iterator[None]:
    """Bring consolidated metadata up to date where nodes are met inside whose writer died before it did so."""
    try:
        yield
    except NodeExists:
        if own.follows_interrupted:
            refresh_consolidated(store, format_of_store(store, format), paths)
        raise


def announce_below(store: Store, path: str) -> None:
    """Record in the journal at `path` that nodes below it are published, before that one is visible."""
    store.set(f"{journal_prefix(path)}{_BELOW}", b"{}")


def withdraw_below(store: Store, path: str) -> None:
    """Delete the documents that a writer which died has published below `path`, where no node is visible there (P8)."""
    marker = f"{journal_prefix(path)}{_BELOW}"
    if store.size(marker) is None:
        return
    formats = [format_of_store(store, each.name) for each in FORMATS if may_have(each, path)]
    entries = (key for each in formats for key in (each.array_keys(path)[0], each.group_keys(path)[0]))
    if not present(fetch(store, entries)):
        for each in formats:
            store.delete_many(documents_below(store, each, path, {*node_prefixes(path, each)}))
    store.delete(marker)


_BELOW = "below"


def delete_stored_chunks(array: StoredArray) -> None:
    """Delete all chunks of an array that is not visible."""
    for key in list(array.stored_keys()):
        array.store.delete(key)


def publish_and_refresh(
    store: Store,
    documents: Mapping[str, bytes],
    format: str,  # noqa: A002
    path: str,
    *,
    again: bool = False,
) -> None:
    """Publish the node at `path`, bring consolidated metadata up to date, and flush the store (see `publish`)."""
    if documents:
        documents_format = format_of_store(store, format)
        path = documents_format.normalize_path(path)
        with refreshed(store, documents_format, [path], own=False):
            publish(store, documents_format, path, documents, again=again)
    store.flush()


def make_room(
    store: Store,
    path: str,
    documents_format: Format,
    *,
    overwrite: bool = False,
    run: str = "",
    below: bool = False,
    hides: bool = True,
    is_free_of_jobs: bool = False,
    again: bool = False,
) -> dict[str, bytes]:
    """Check and clear `path`; return the documents of the parents that it needs and that are not there yet.

    Parameters
    ----------
    overwrite
        Whether what is there is deleted.
    run
        Name of the run that has the lease (see `chunkmill.journal.lease.leased`).
    below
        Refuse where jobs write nodes below it, too, which make a group of the place.
    hides
        Refuse where nodes are stored below `path`, in a folder without a document: an array hides them, and a job
        takes them for its own.
    is_free_of_jobs
        Whether the caller has looked for jobs that write there.
    again
        Whether a writer was interrupted there, which may have deleted or written half of a node.

    Raises
    ------
    NodeExists
        There is a node at `path` and not `overwrite`, or an array above it.
    """
    if again:
        withdraw_below(store, path)
    jobs = partial(check_no_job, store, path, overwrite=overwrite, own_run=run, below=below, waits=bool(run))
    around = partial(seen_at_once, store, path, documents_format, is_new=not overwrite)
    if is_free_of_jobs:
        interrupted, seen = [], around()
    elif run or overwrite:  # in this order: the nodes of a job that ends in between are seen
        interrupted, seen = jobs(), around()
    else:
        interrupted, seen = at_once(store, jobs, around)
    if not (overwrite or path) and seen.has_folders and all(n.startswith(JOB_PREFIX) for n in seen.list_dir("")):
        # no format has documents there
        return root_documents(seen, documents_format)
    check_root(seen, documents_format)
    parents = parent_documents(seen, path, documents_format)
    if overwrite:
        discard_jobs(store, interrupted)
    _clear(store, seen, path, documents_format, overwrite=overwrite)
    if (interrupted or again) and overwrite:  # their chunks, which no document makes a node of, of whatever format
        for each in (format_of_store(store, each.name) for each in FORMATS if may_have(each, path)):
            _delete_node(store, path, each)
    if hides and not overwrite:
        check_nothing_hidden(seen, path, documents_format)
    return {**parents, **root_documents(store if overwrite else seen, documents_format)}


def seen_at_once(store: Store, path: str, documents_format: Format, *, is_new: bool = True) -> Store:
    """List parents, siblings and hidden files of a path, and read documents there, in one batch of requests.

    In a local store the folder is listed: the documents that it does not name need no look each. Unless `is_new`, it
    is not, since the chunks of an array may stand in it.
    """
    if not store.is_remote:
        if not (is_new and store.has_folders):
            return store
        seen = RememberedReads(store, listings_answer=True)
        seen.list_dir(f"{path}/" if path else "")
        return seen
    seen = RememberedReads(store)
    keys = [ROOT_KEY, *documents_format.root_keys()]
    keys += [key for place in (path, *parents_of(path)) for key in node_keys(documents_format, place)]
    prefixes = list(documents_format.list_prefixes(path))
    for each in FORMATS:  # a node of any is in the way
        if may_have(each, path) and each.configured({}) is not None:
            keys += [*each.root_keys(), *node_keys(each, path)]
            places = (path, path.rpartition("/")[0]) if each.empty_groups else ()
            prefixes += [prefix for place in places for prefix in each.list_prefixes(place)]
    listings = [partial(seen.list_dir, prefix) for prefix in dict.fromkeys(prefixes)]
    at_once(store, lambda: fetch(seen, keys), *(listings if store.can_list else ()))
    return seen


def check_nothing_hidden(store: Store, path: str, documents_format: Format) -> None:
    """Raise `NodeExists` where nodes are stored below a folder without a document."""
    if documents_format.implicit_groups or not store.can_list:
        return
    group = StoredGroup(store, path, GroupMetadata(), documents_format)
    hidden = group.members()
    if hidden:
        hint = f"nodes are stored below it ({', '.join(map(repr, list(hidden)[:5]))}), in a folder without a document"
        raise NodeExists(url=store.url, path=path, found="group", hint=hint)


def root_documents(store: Store, documents_format: Format) -> dict[str, bytes]:
    """Return the documents that configure a store of the format and are not there."""
    own = documents_format.emit_root()
    return {key: own[key] for key, value in without_blank(fetch(store, own)).items() if value is None}


def parent_documents(store: Store, path: str, documents_format: Format, *, again: bool = False) -> dict[str, bytes]:
    """Return the documents of the groups above `path` that are not there; an array above it is refused.

    With `again`, those without content, as a crash of the machine leaves them, are not there.
    """
    documents: dict[str, bytes] = {}
    parents = parents_of(path)
    fetched = fetch(store, (key for p in parents for key in node_keys(documents_format, p)))
    fetched = without_blank(fetched) if again else fetched
    for parent in parents:
        above = parse_node(store, parent, documents_format, fetched, read_only=True)
        if isinstance(above, StoredArray):
            raise NodeExists(url=store.url, path=parent, found="array", hint="an array cannot have nodes below it")
        if above is None:
            group = documents_format.emit_group(parent, GroupMetadata())
            check_free(documents_format, group, fetched)
            documents |= group
    return documents


def _clear(store: Store, seen: Store, path: str, documents_format: Format, *, overwrite: bool) -> None:
    """Delete what is at `path`, as `seen`; `NodeExists` where that is not allowed."""
    try:
        there = find_stored(seen, path)
    except MetadataError:
        if not overwrite:
            raise
        _delete_node(store, path, documents_format)
        return
    if there is None:
        return
    if overwrite:
        _delete_node(store, path, there.documents if isinstance(there, StoredGroup) else get_format(there.format))
    elif isinstance(there, StoredArray) or not has_no_documents(there):
        raise NodeExists(url=store.url, path=path, found="array" if isinstance(there, StoredArray) else "group")


def has_no_documents(group: StoredGroup) -> bool:
    """Return whether it is a group only because there is such a folder: no node below it has a document."""
    if not group.documents.implicit_groups:
        return False
    return not any(
        isinstance(node, StoredArray) or present(fetch(group.store, group.documents.group_keys(node.path)))
        for node in walk(group)
    )


def _delete_node(store: Store, path: str, documents_format: Format) -> None:
    """Delete a node and everything below it, documents first: an interruption leaves no array without its chunks."""
    documents_format = format_of_store(store, documents_format.name)
    forget_consolidated(store, path)
    if (consolidated := documents_format.consolidated_key(path)) is not None:
        store.delete(consolidated)
    for key in node_keys(documents_format, path):
        store.delete(key)
    for prefix in {documents_format.chunk_prefix(path), *documents_format.list_prefixes(path)}:
        if prefix and (store.can_replace(prefix) or not store.has_folders):
            store.delete_prefix(prefix)
            continue
        # the root, where the journal of the writer is, and what else has no new name: a link, or a mount point, stays
        names = [name for name in store.list_dir(prefix) if prefix or not name.startswith(JOB_PREFIX)]
        store.delete_many([prefix + name for name in names if not name.endswith("/")])
        for name in names:
            if name.endswith("/"):
                store.delete_prefix(prefix + name)


# --------------------------------------------------------------------------------------------------------------------
# Many at once


def add_arrays(store: Store, arrays: Mapping[str, ArrayMetadata], *, format: str) -> dict[str, StoredArray]:  # noqa: A002
    """Create arrays without chunks, and the groups above them; return them by path.

    Raises
    ------
    NodeExists
        There is a node at one of the paths, or an array above one; nothing is created, unless it came during the call.
    UnsupportedFeature
        The format cannot hold one of them. Nothing is created then.
    JobError
        A job, or another writer, is at work there.
    """
    documents_format = format_of_store(store, format)
    made = [array_at(store, path, metadata, documents_format) for path, metadata in arrays.items()]
    documents = {each.path: documents_format.emit_array(each.path, each.metadata) for each in made}
    if not documents:
        return {}
    with store.transaction(f"create {len(made):,} arrays"):
        # one reservation for all: a client that begins there, or at a group above, waits for its end
        try:
            with leased_briefly(store, made[0].path, f"create {len(made):,} arrays in {store.url}") as own:
                if own.follows_interrupted:
                    raise _InterruptedBefore  # noqa: TRY301 - out of the reservation, which puts the record back
                suspected = _add_free(store, documents_format, made, documents, own)
        except _InterruptedBefore:  # what that writer left is cleared where its place is reserved
            suspected = made[:1]
            refresh_consolidated(store, documents_format, documents, own=False)  # it may have died before it did so
            add_arrays(store, {each.path: each.metadata for each in made[1:]}, format=format)
        for each in suspected:
            add_array(store, each.path, each.metadata, format=format)
    store.flush()
    return dict(zip(arrays, made, strict=True))


class _InterruptedBefore(Exception):
    """A writer had reserved the place of the first array, and died: raised so that its record stays."""


def _add_free(
    store: Store,
    documents_format: Format,
    made: Sequence[StoredArray],
    documents: Mapping[str, Mapping[str, bytes]],
    own: Lease,
) -> list[StoredArray]:
    """Create the arrays where nothing is; return the others, of interrupted writers or of those at work there."""
    check_no_job(store, *documents, below=True, own_run=own.run, waits=True)
    check_root(store, documents_format)
    groups = _groups_to_make(store, documents_format, documents)
    # nodes, and what an interrupted write left, are looked for by the names in the folders above; the latter is
    # cleared one by one
    folders = _folders(store, documents_format, {path.rpartition("/")[0] for path in documents if path})
    suspected = [each for each in made if each.path in folders or not each.path]
    _check_absent(store, documents_format, [each.path for each in suspected], len(made))
    free = {path: documents[path] for path in documents.keys() - {each.path for each in suspected}}
    for path in sorted(groups, key=lambda path: (path.count("/"), path)):
        create_groups_above(store, documents_format, join_path(path, "below"), groups[path])
    publish(store, documents_format, "", {}, below=free)
    refresh_consolidated(store, documents_format, free, own=False)
    own.check()
    # others that reserved a place, or a group above, before the documents were there write chunks: `add_array` waits
    # its turn, or is refused
    waiting = {made[0].path, *parents_of(made[0].path)}
    places = {job.path for job in jobs_at(store, *free, below=True) if not job.ends_soon} - waiting
    for path in [path for path in free if places and not places.isdisjoint((path, *parents_of(path)))]:
        unpublish(store, documents_format, path, free[path])
        refresh_consolidated(store, documents_format, [path])
        suspected += [each for each in made if each.path == path]
    return suspected


def _groups_to_make(
    store: Store, documents_format: Format, documents: Mapping[str, Mapping[str, bytes]]
) -> dict[str, dict[str, bytes]]:
    """Return the documents of groups that are missing above the arrays, by path; an array above one is refused."""
    parents = {parent for path in documents for parent in parents_of(path)}
    if nested := sorted(parents & documents.keys()):
        raise NodeExists(url=store.url, path=nested[0], found="array", hint="an array cannot have nodes below it")
    found = fetch(store, (key for path in sorted(parents) for key in node_keys(documents_format, path)))
    groups = {}
    for path in parents:
        above = parse_node(store, path, documents_format, found, read_only=True)
        if isinstance(above, StoredArray):
            raise NodeExists(url=store.url, path=path, found="array", hint="an array cannot have nodes below it")
        if above is None:
            groups[path] = documents_format.emit_group(path, GroupMetadata())
            check_free(documents_format, groups[path], found)
    root = documents_format.emit_root()
    missing = {key: value for key, value in root.items() if store.get(key) is None}
    return {**groups, "": {**missing, **groups.get("", {})}} if missing else groups


def _check_absent(store: Store, documents_format: Format, paths: Sequence[str], n_wanted: int) -> None:
    # attributes alone are of a node that was half written: it is written again with those that are cleared
    entries = ((path, (documents_format.array_keys(path), documents_format.group_keys(path))) for path in paths)
    keys = {key: path for path, known in entries for key, *_ in known}
    if there := present(fetch(store, keys)):
        path = min(keys[key] for key in there)
        hint = f"{len({keys[key] for key in there}):,} of {n_wanted:,} arrays exist; nothing was created"
        raise NodeExists(url=store.url, path=path, found="node", hint=hint)


def _folders(store: Store, documents_format: Format, groups: set[str]) -> set[str]:
    """Return the paths below groups where something is stored."""
    return {
        join_path(group, name)
        for group in groups
        for prefix in documents_format.list_prefixes(group)
        for listed in store.list_dir(prefix)
        if (name := documents_format.child_name(group, prefix, listed)) is not None
    }
