"""Open and walk the stored arrays and groups of a store.

Formats turn documents into descriptions, stores fetch documents; here the two meet. Not here: chunks
(`chunkmill.array.chunk_io`), the arguments that users give, and the public classes (`chunkmill.nodes.api`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

from chunkmill.array.stored_array import StoredArray
from chunkmill.array.threads import at_once
from chunkmill.errors import ChunkmillError, MetadataError, NodeExists, NodeNotFound, StoreError
from chunkmill.formats.base import Format, parse_json
from chunkmill.formats.references.chunk_numbers import ROOT_KEY, is_reference_root
from chunkmill.formats.registry import FORMATS, get_format
from chunkmill.hints import Hint
from chunkmill.journal.plans import JOB_PREFIX
from chunkmill.journal.unfinished import UnfinishedJob, jobs_at, unfinished_jobs
from chunkmill.model.metadata import ArrayMetadata, GroupMetadata, parents_of
from chunkmill.nodes.documents import (
    READ_ONLY_SET,
    Documents,
    check_free,
    entry_names,
    fetch,
    format_of_store,
    may_have,
    node_keys,
    own_part,
    present,
    without_blank,
    write_consolidated,
)
from chunkmill.nodes.stored_group import OnError, StoredGroup, StoredNode, is_folder, parse_node
from chunkmill.stores.base import Store
from chunkmill.stores.conflicts import is_forbidden
from chunkmill.stores.memory import OverlayStore
from chunkmill.stores.open import BARE_URLS, Url, open_store, without_reference_options
from chunkmill.stores.wrapper import RememberedReads


def open_stored(
    store: Store,
    path: str = "",
    *,
    format: str | Format | None = None,  # noqa: A002
    consolidated: bool | None = None,
    read_only: bool = True,
) -> StoredNode:
    """Open the node at `path`, in the first format that has one there.

    Parameters
    ----------
    format
        The only format to look for; all are tried when ``None``, in the order of `FORMATS`.
    consolidated
        ``None``: use consolidated metadata where there is some; ``True``: demand it; ``False``: ignore it.

    Raises
    ------
    NodeNotFound
        No format knows a node there.
    MetadataError
        There is one and its documents are wrong.
    """
    node = _Search(store, path, format, consolidated, read_only).found()
    if node is not None:
        return node
    looked = tuple(_candidates(format, path))
    is_set = not read_only and is_reference_root(store.get(ROOT_KEY))
    hint = READ_ONLY_SET if is_set else _explain_missing(store, path, looked)
    raise NodeNotFound(url=store.url, path=path, hint=hint)


def _explain_missing(store: Store, path: str, formats: Sequence[Format]) -> str:
    """Return the hint of `NodeNotFound`: what is stored there instead, and the way out."""
    looked = "of a known format" if len(formats) > 1 else f"of format {formats[0].name!r}"
    if (why := store.explain_absence()) is not None:
        return why
    try:
        listed = store.list_dir(f"{path.strip('/')}/" if path.strip("/") else "")
        at_root = store.list_dir("") if path.strip("/") else listed
    except (OSError, ValueError):
        return f"nothing {looked} answers there"
    if any(name.startswith(JOB_PREFIX) for name in at_root):
        jobs = jobs_at(store, path.strip("/"), below=True)  # one of several nodes is named after one of them
        for job in jobs or unfinished_jobs(store):
            return _unfinished(job, "there" if jobs else "to this store")
    if not listed and path.strip("/"):
        text = "the store has no keys there: is the url right, and the path? Without {} its root is opened"
        return Hint(text, ("path", ...))
    if not listed:
        return "the store has no keys there: is the url right?"
    more = ", …" if len(listed) > _MAX_LISTED else ""
    return f"nothing {looked} there, only {', '.join(map(repr, listed[:_MAX_LISTED]))}{more}"


_MAX_LISTED = 8


def _unfinished(job: UnfinishedJob, where: str) -> str:
    state = f"is running: {job}" if job.is_running else f"was interrupted: {job}; run it again to resume it"
    return f"a job that writes {where} {state}"


def check_complete(node: StoredNode) -> None:
    """Raise `NodeNotFound` for a folder that is a group only while a job writes a node there (P6)."""
    if isinstance(node, StoredGroup) and node.is_implicit:
        for job in jobs_at(node.store.uncached, node.path):
            if job.path == node.path:
                raise NodeNotFound(url=node.url, path=node.path, hint=_unfinished(job, "there"))


def find_stored(store: Store, path: str) -> StoredNode | None:
    """Return the node at `path` by its own documents; ``None`` where no format knows one."""
    return _Search(store, path).found()


def check_adapter(adapter: str | None, node: StoredNode) -> None:
    """Raise `NodeNotFound` for a node of another format than the last adapter of its url pipeline names.

    In N5, each folder is a group: that of an array of Zarr is none.
    """
    found: StoredNode | None = node
    if adapter == node.format and isinstance(node, StoredGroup) and node.is_implicit:
        found = find_stored(node.store, node.path)
    if found is None or adapter in {None, found.format} or (adapter, found.format[:4]) == ("zarr", "zarr"):
        return
    hint = f"the {'array' if isinstance(found, StoredArray) else 'group'} there is of format {found.format!r}"
    raise NodeNotFound(url=node.url, path=node.path, wanted=f"node of format {adapter!r}", hint=hint)


@dataclass(slots=True)
class _Search:
    """Look for the node at a path, with the arguments of `open_stored`.

    Attributes
    ----------
    documents
        What was fetched: each document once, whatever formats it belongs to.
    unknown
        Errors of documents of which a service does not say that they are absent.
    """

    store: Store
    path: str
    format: str | Format | None = None
    consolidated: bool | None = False
    read_only: bool = True
    documents: Documents = field(default_factory=dict)
    unknown: dict[str, ChunkmillError] = field(default_factory=dict)

    def found(self) -> StoredNode | None:
        """Return the node.

        Where requests cost latency, the documents of all formats are asked for at once; else format by format.
        """
        if self.path.strip("/") and not self.consolidated and (array := self._array()) is not None:
            return array
        if self.store.is_remote:
            self._fetch({key for each in _candidates(self.format, self.path) for key in self._keys(each)})
        for candidate in _candidates(self.format, self.path):
            self._fetch(candidate.root_keys())
            documents_format = candidate.configured(present(self.documents))
            if documents_format is None:
                continue
            at = documents_format.normalize_path(self.path)
            self._fetch(node_keys(documents_format, at))
            if (node := self._parsed(at, documents_format)) is not None:
                return node
        for error in self.unknown.values():
            raise error
        return None

    def _fetch(self, keys: Iterable[str]) -> None:
        """Fetch documents; buckets that must not be listed answer 403 for absent ones, some web servers send a page."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self.documents]
        try:
            found = fetch(self.store, wanted)
        except StoreError as forbidden:
            if not (self.store.is_remote and is_forbidden(forbidden)):
                raise
            found = dict.fromkeys(wanted)
            for key in wanted:
                try:
                    found[key] = self.store.get(key)
                except StoreError as error:
                    if not is_forbidden(error):
                        raise
                    self.unknown[key] = error
        for key, value in found.items():
            if self.store.is_remote and value is not None and value.lstrip()[:1] == b"<":
                try:
                    parse_json(key, value)
                except MetadataError as error:
                    found[key], self.unknown[key] = None, error
        self.documents |= found

    def _keys(self, documents_format: Format) -> Iterator[str]:
        yield from documents_format.root_keys()
        if documents_format.configured({}) is None:
            return  # the keys of its documents are not known before the root is read
        at = documents_format.normalize_path(self.path)
        yield from node_keys(documents_format, at)
        if self.consolidated is not False:
            yield from _consolidated_keys(documents_format, at)

    def _array(self) -> StoredArray | None:
        """Return the array by its own documents.

        ``None`` for one that takes others to be opened: those at the root may hold the documents of 10^5 nodes.
        """
        known: Iterable[Format] = takewhile(lambda each: not each.root_keys(), _candidates(self.format, self.path))
        if self.store.is_remote:
            known = [*known]
            self._fetch(key for each in known for key in node_keys(each, each.normalize_path(self.path)))
        for documents_format in known:
            at = documents_format.normalize_path(self.path)
            self._fetch(node_keys(documents_format, at))
            node = parse_node(self.store, at, documents_format, self.documents, read_only=self.read_only)
            if isinstance(node, StoredArray):
                self._check(node, documents_format)
            if node is not None:
                return node if isinstance(node, StoredArray) else None
        return None

    def _parsed(self, path: str, documents_format: Format) -> StoredNode | None:
        """Return the node at `path` by its own documents, or by consolidated metadata at it or at the root."""
        view = None
        if self.consolidated is not False:
            self._fetch(_consolidated_keys(documents_format, path))
            view = self._view(path, documents_format)
        if view is not None:
            node = self._by_consolidated(*view, path, documents_format)
        else:
            node = parse_node(self.store, path, documents_format, self.documents, read_only=self.read_only)
        if node is None and not self.unknown and self._is_implicit(path, documents_format):
            metadata = GroupMetadata()
            node = StoredGroup(self.store, path, metadata, documents_format, read_only=self.read_only, is_implicit=True)
        if node is not None and self.consolidated and view is None:
            key = documents_format.consolidated_key("") or documents_format.name
            raise MetadataError(key=key, field="consolidated metadata", got="none", expected="some: consolidated=True")
        if node is not None:
            self._check(node, documents_format, is_seen=view is None)
        return node

    def _check(self, node: StoredNode, documents_format: Format, *, is_seen: bool = True) -> None:
        """Raise what is known to prevent reading: a codec, or a document that is seen, and that the service refuses."""
        keys = documents_format.array_keys if isinstance(node, StoredArray) else documents_format.group_keys
        for key in self.unknown.keys() & {*keys(node.path)} if is_seen else ():
            raise self.unknown[key]
        if isinstance(node, StoredArray):
            node.check_codecs()

    def _view(self, path: str, documents_format: Format) -> tuple[OverlayStore, str] | None:
        """Return the store with the consolidated documents at `path`, else at the root, in front, and their group."""
        store, is_demanded = self.store, bool(self.consolidated)
        for group in dict.fromkeys((path, "")):
            key = documents_format.consolidated_key(group)
            value = None if key is None else self.documents.get(key)
            try:
                found = None if value is None else documents_format.parse_consolidated(group, value)
            except MetadataError:  # Zarr v3: of the node itself, of which those at the root may have a copy
                if not group or key not in documents_format.array_keys(group):
                    raise
                continue
            if found is not None:
                overlay = OverlayStore(
                    found,
                    store,
                    documents_format.document_names,
                    is_demanded=is_demanded,
                    lists_below=not (is_demanded or store.is_remote) and store.can_list,
                    entries=entry_names(documents_format),
                )
                return overlay, group
        return None

    def _by_consolidated(
        self, overlay: OverlayStore, group: str, path: str, documents_format: Format
    ) -> StoredNode | None:
        """Return the node at `path`: a group lists by consolidated metadata, which may know nodes that are gone."""
        keys = tuple(node_keys(documents_format, path))
        if overlay.is_demanded or (group == path and documents_format.consolidated_key(path) in keys):
            self.documents |= fetch(overlay, keys)  # its own, without what it holds of others: that may be long
        node = parse_node(overlay, path, documents_format, self.documents, read_only=self.read_only)
        if node is not None:
            return node
        root = StoredGroup(overlay, "", GroupMetadata(), documents_format, read_only=self.read_only)
        return root.parse_child(path, fetch(overlay, keys))

    def _is_implicit(self, path: str, documents_format: Format) -> bool:
        """Return whether a prefix without documents is a group: only in a store known to be of such a format."""
        if not (documents_format.implicit_groups and is_folder(self.store, documents_format, path)):
            return False
        is_known = any(self.documents.get(key) is not None for key in documents_format.root_keys())
        if is_known or self.format is not None:
            return True
        # tensorstore writes no document at the root: a folder with an array right below it is meant as a group
        group = StoredGroup(self.store, path, GroupMetadata(), documents_format)
        children = group.opened_children().values()
        return any(isinstance(each, StoredArray) and each.format == documents_format.name for each in children)


def open_target_store(url: Url, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Return the store at `url` for writing nodes; `StoreError` when that is the file of a reference set.

    A folder of one is refused where nodes are created (`check_root`), in the same requests.

    Examples
    --------
    >>> open_target_store("/data/x.zarr")
    LocalStore('/data/x.zarr')
    """
    options = without_reference_options(storage_options)
    name = os.fspath(url).rstrip("/") if isinstance(url, (str, os.PathLike)) else ""
    if name in BARE_URLS or ".json" in name.rpartition("/")[2]:
        from chunkmill.nodes.reference_sets import is_reference_file  # noqa: PLC0415 - few urls name one

        if is_reference_file(name, options):
            raise StoreError(url=name, key="", reason=READ_ONLY_SET)
    return open_store(url, options, creates=True)


def _candidates(format: str | Format | None, path: str) -> Iterator[Format]:  # noqa: A002
    """Yield the formats to look for at `path`, in order; where none can have such a path, the first says why."""
    if format is not None:
        yield get_format(format) if isinstance(format, str) or not hasattr(format, "root_keys") else format
        return
    possible = None
    for possible in (each for each in FORMATS if may_have(each, path)):
        yield possible
    if possible is None:
        FORMATS[0].normalize_path(path)


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


def missing_above(store: Store, paths: Iterable[str], documents_format: Format) -> dict[str, dict[str, bytes]]:
    """Return the documents of groups that are missing above nodes, by path, and the root's; an array there is refused.

    Those without content, as a crash of the machine leaves them, are not there.
    """
    paths = list(paths)
    parents = {parent for path in paths for parent in parents_of(path)}
    root = documents_format.emit_root() if parents else {}
    keys = (key for path in sorted(parents) for key in node_keys(documents_format, path))
    found = without_blank(fetch(store, (*root, *keys)))
    groups = {"": missing} if (missing := {key: root[key] for key in root if found[key] is None}) else {}
    for path in parents:
        above = parse_node(store, path, documents_format, found, read_only=True)
        if isinstance(above, StoredArray):
            raise NodeExists(url=store.url, path=path, found="array", hint="an array cannot have nodes below it")
        if above is None:
            group = documents_format.emit_group(path, GroupMetadata())
            check_free(documents_format, group, found)
            groups[path] = {**groups.get(path, {}), **group}
    return groups


def check_nothing_hidden(store: Store, path: str, documents_format: Format) -> None:
    """Raise `NodeExists` where nodes are stored below a folder without a document: an array would hide them (P3)."""
    if documents_format.implicit_groups or not store.can_list:
        return
    group = StoredGroup(store, path, GroupMetadata(), documents_format)
    if hidden := group.members():
        hint = f"nodes are stored below it ({', '.join(map(repr, list(hidden)[:5]))}), in a folder without a document"
        raise NodeExists(url=store.url, path=path, found="group", hint=hint)


def has_no_documents(group: StoredGroup) -> bool:
    """Return whether it is a group only because there is such a folder: no node below it has a document."""
    if not group.documents.implicit_groups:
        return False
    return not any(
        isinstance(node, StoredArray) or present(fetch(group.store, group.documents.group_keys(node.path)))
        for node in walk(group)
    )


def array_at(store: Store, path: str, metadata: ArrayMetadata, format: str | Format) -> StoredArray:  # noqa: A002
    """Return the array with `metadata` at `path`; no request is made."""
    documents_format = format_of_store(store, format) if isinstance(format, str) else format
    path = documents_format.normalize_path(path)
    return StoredArray(store, path, metadata, documents_format.name, documents_format.chunk_prefix(path))


def consolidate(store: Store, group: StoredGroup) -> None:
    """Write the group's consolidated metadata from the documents below it as its store shows them now (`as_stored`)."""

    def collect() -> dict[str, bytes]:
        reads = RememberedReads(group.store)  # what the walk reads is not asked for again
        # zarr-python cannot open it if groups are left out
        paths = [node.path for node in walk(group.with_store(reads), undocumented=False)]
        documents = present(fetch(reads, (key for path in paths for key in node_keys(group.documents, path))))
        for key, value in documents.items():
            with suppress(MetadataError):  # of broken consolidated metadata, which are about to be replaced
                documents[key] = own_part(group.documents, key, value)
        return documents

    write_consolidated(store, group.documents, group.path, collect)


def walk(node: StoredNode, *, undocumented: bool = True, on_error: OnError | None = None) -> Iterator[StoredNode]:
    """Yield `node` and everything below it, parents before children.

    Below a group that was opened by consolidated metadata, those are walked: `as_stored` returns one that was not.

    Parameters
    ----------
    undocumented
        Yield nodes below folders without a document too, and those folders as groups (see `chunkmill.Group.members`).
    on_error
        Called with path and error of each node that cannot be opened; by default the first error is raised.
    """
    todo = [node]  # no recursion: a hierarchy may be deeper than Python's stack
    while todo:
        yield (node := todo.pop())
        if isinstance(node, StoredGroup):
            below = node.members(on_error=on_error) if undocumented else node.children()
            todo += reversed(below.values())


def walk_openable(node: StoredNode) -> Iterator[StoredNode]:
    """Yield what `walk` does, without the nodes that cannot be opened."""
    return walk(node, on_error=lambda path, error: None)  # noqa: ARG005 - of the caller's interest


def as_stored(node: StoredNode) -> StoredNode:
    """Return a group by its documents as they are now, where it was opened by consolidated metadata.

    Those may be stale: a copy or a comparison by them loses arrays. They answer for documents that are not stored, as
    where a local group is opened. They stay in use where the caller demanded them (``consolidated=True``), and where
    the store cannot list.
    """
    below = node.store.uncached
    if isinstance(node, StoredArray) or below is node.store or node.store.is_demanded or not below.can_list:
        return node
    view = node.store.after_stored()
    try:
        stored = open_stored(below, node.path, format=node.documents, consolidated=False, read_only=node.read_only)
    except NodeNotFound:
        if not present(fetch(view, node_keys(node.documents, node.path))):
            raise  # it was deleted since it was opened, and consolidated metadata that came since do not know it
        return node.with_store(view)
    found = stored.with_store(view) if isinstance(stored, StoredGroup) else stored
    return found.with_read_missing(node.read_missing)


def _consolidated_keys(documents_format: Format, path: str) -> Iterator[str]:
    return (key for key in map(documents_format.consolidated_key, (path, "")) if key is not None)
