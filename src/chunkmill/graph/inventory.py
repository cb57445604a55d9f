"""What every key of a store is: a node's document, a chunk, a job's record, something left behind, or nobody's.

Listings and documents only; no chunk is opened. Not here: whether chunks decode (`chunkmill.graph.check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chunkmill import hierarchy
from chunkmill.array import Array
from chunkmill.errors import ChunkmillError, MetadataError, NodeNotFound, UnknownCodec, UnsupportedFeature
from chunkmill.formats.base import Format, parse_json
from chunkmill.formats.registry import FORMATS
from chunkmill.graph.journal import JOB_PREFIX, unfinished_jobs
from chunkmill.graph.preflight import PROBE_PREFIX
from chunkmill.hierarchy import Group, Node
from chunkmill.retarget import same_json
from chunkmill.stores.base import ByteSpan, Store
from chunkmill.stores.local import LocalStore

__all__ = ["Inventory", "Problem", "take_inventory"]

_MAX_NAMED = 5  # of what differs, in one reason


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a store.

    Attributes
    ----------
    kind
        ``"torn"``: a shard whose index does not fit it; ``"short"``: a value that ends too early; ``"corrupt"``: one
        that does not decode for another reason; ``"failed"``: one that the store could not deliver.
        ``"orphan"``: a key that is no chunk in its array's grid, or that belongs to no node.
        ``"leftover"``: a value that was being written when its writer died, or what a job forgot.
        ``"unfinished"``: a job that was cut off. ``"stale"``: consolidated metadata that are not what they stand for.
        ``"metadata"``: a document that is wrong; ``"unsupported"``: one that asks for what chunkmill cannot do.
    path
        Of the node.
    key
        The store key.
    coords
        Of the chunk: in the array's chunk grid, or for a shard as a whole in the grid of shards.
    reason
        What is wrong with it.
    repaired
        Whether `chunkmill.check` has put it right.
    """

    kind: str
    path: str
    key: str
    reason: str
    coords: tuple[int, ...] | None = None
    repaired: bool = False

    def __str__(self) -> str:
        where = f" chunk {self.coords}" if self.coords is not None else ""
        done = " (repaired)" if self.repaired else ""
        return f"{self.kind}: {self.key}{where}: {self.reason}{done}"


@dataclass(slots=True)
class Inventory:
    """What lies at and below a node.

    Attributes
    ----------
    arrays, groups
        The nodes.
    chunks
        For each array the coords of the store keys that are there, one row each.
    stale
        Groups whose consolidated metadata are stale.
    """

    store: Store
    path: str
    arrays: list[Array] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    chunks: list[NDArray[np.int64]] = field(default_factory=list)
    stale: list[Group] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def take_inventory(store: Store, path: str = "") -> Inventory:
    """List a store below `path` and say what its keys are.

    Raises
    ------
    NodeNotFound
        There is nothing at `path`, not even a job that was to write it.
    """
    found = Inventory(store, path.strip("/"))
    jobs = _unfinished(found)
    try:
        top = hierarchy.open_node(store, path, consolidated=False, read_only=False)
    except NodeNotFound:
        if not jobs:
            raise
        top = None
    except MetadataError as error:
        _report_document(found, found.path, error)
        top = None
    for node in () if top is None else _walk(found, top):
        (found.arrays if isinstance(node, Array) else found.groups).append(node)  # type: ignore[arg-type]
    _Keys(found, jobs).sort(_listed(store, found, top))
    _leftovers(found)
    for group in found.groups:
        if reason := _staleness(group, [*found.groups, *found.arrays]):
            found.stale.append(group)
            found.problems.append(Problem("stale", group.path, _consolidated_key(group) or "", reason))
    return found


def _walk(found: Inventory, node: Node) -> Iterator[Node]:
    """Yield `node` and what is below it; what cannot be opened is a problem."""
    yield node
    if isinstance(node, Group):
        for child in _children(found, node):
            yield from _walk(found, child)


def _children(found: Inventory, group: Group) -> Iterable[Node]:
    try:
        return list(group.children().values())
    except ChunkmillError:
        pass  # one of them, so one by one
    nodes = []
    for path in _child_paths(group):
        try:
            nodes.append(group[path[len(group.path) :].strip("/")])
        except NodeNotFound:
            continue
        except ChunkmillError as error:
            _report_document(found, path, error)
    return nodes


def _child_paths(group: Group) -> list[str]:
    names = {
        name
        for prefix in group.documents.list_prefixes(group.path)
        for listed in group.store.list_dir(prefix)
        if (name := group.documents.child_name(group.path, prefix, listed)) is not None
    }
    return sorted(f"{group.path}/{name}".strip("/") for name in names)


def _report_document(found: Inventory, path: str, error: ChunkmillError) -> None:
    cannot = isinstance(error, (UnsupportedFeature, UnknownCodec))
    key = str(getattr(error, "key", "")) or path
    found.problems.append(Problem("unsupported" if cannot else "metadata", path, key, str(error)))


def _listed(store: Store, found: Inventory, top: Node | None) -> Iterator[str]:
    """Yield every key at and below the path, whatever the format."""
    if not found.path:
        yield from store.list_prefix("")
        return
    prefixes = {f"{found.path}/"}
    formats = FORMATS if top is None else [hierarchy.format_of_store(store, top.format)]
    for documents_format in formats:
        prefixes |= {documents_format.chunk_prefix(found.path), *documents_format.list_prefixes(found.path)} - {""}
    seen: list[str] = []
    for prefix in sorted(prefixes):
        if not any(prefix.startswith(other) for other in seen):
            seen.append(prefix)
            yield from store.list_prefix(prefix)


class _Keys:
    """Sorts keys: into chunks of arrays, what is known, and problems."""

    def __init__(self, found: Inventory, jobs: Iterable[Mapping[str, Any]]) -> None:
        self.found = found
        self.owners = {array.prefix: i for i, array in enumerate(found.arrays)}
        self.documents: set[str] = set()
        for node in (*found.groups, *found.arrays):
            self.documents.update(_document_keys(node.path))
        unreadable = [p.path for p in found.problems if p.kind in {"metadata", "unsupported"}]
        hidden = [*unreadable, *(str(job["path"]) for job in jobs)]
        self.documents.update(key for path in unreadable for key in _document_keys(path))
        self.hidden = tuple(prefix for path in hidden for prefix in _prefixes(path))
        self.chunks: list[list[tuple[int, ...]]] = [[] for _ in found.arrays]

    def sort(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key in self.documents or key.startswith((JOB_PREFIX, PROBE_PREFIX)):
                continue
            which = self._owner(key)
            if which is None:
                if not key.startswith(self.hidden):
                    self.found.problems.append(Problem("orphan", "", key, "it belongs to no node"))
            else:
                self._sort_chunk(which, key)
        ranks = [array.ndim for array in self.found.arrays]
        self.found.chunks = [
            np.array(sorted(coords), np.int64).reshape(-1, ndim) if ndim else np.zeros((len(coords), 0), np.int64)
            for coords, ndim in zip(self.chunks, ranks, strict=True)
        ]

    def _owner(self, key: str) -> int | None:
        """Return the number of the array below whose prefix the key lies."""
        end = len(key)
        while (end := key.rfind("/", 0, end)) >= 0:
            if (which := self.owners.get(key[: end + 1])) is not None:
                return which
        return self.owners.get("")

    def _sort_chunk(self, which: int, key: str) -> None:
        array = self.found.arrays[which]
        coords = array.metadata.chunk_keys.decode(key[len(array.prefix) :], array.ndim)
        shape = array.writing.grid.grid_shape
        if coords is None:
            reason = "it lies below an array and is none of its chunk keys"
            self.found.problems.append(Problem("orphan", array.path, key, reason))
        elif any(i >= n for i, n in zip(coords, shape, strict=True)):
            reason = f"it lies outside the grid of {shape} store keys"
            self.found.problems.append(Problem("orphan", array.path, key, reason, coords))
        else:
            self.chunks[which].append(coords)


def _document_keys(path: str) -> Iterator[str]:
    """Yield the keys of a node's documents in every format: one node may have those of two."""
    for documents_format in FORMATS:
        try:
            path_there = documents_format.normalize_path(path)
            yield from documents_format.array_keys(path_there)
            yield from documents_format.group_keys(path_there)
        except MetadataError:
            continue
        yield from documents_format.root_keys()
        if (key := documents_format.consolidated_key(path_there)) is not None:
            yield key


def _prefixes(path: str) -> Iterator[str]:
    """Yield what the chunks of an array at `path` begin with, in every format."""
    for documents_format in FORMATS:
        try:
            yield documents_format.chunk_prefix(documents_format.normalize_path(path))
        except MetadataError:
            continue


# --------------------------------------------------------------------------------------------------------------------
# What jobs and writers left


def _unfinished(found: Inventory) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = []
    for job in unfinished_jobs(found.store):
        path = str(job["path"])
        if not found.path or path == found.path or path.startswith(f"{found.path}/"):
            jobs.append(job)
            reason = f"{job['job']}, begun {job['began']}, was cut off: run it again to go on"
            found.problems.append(Problem("unfinished", path, str(job["key"]), reason))
    return jobs


def _leftovers(found: Inventory) -> None:
    """Find what nobody will come back for."""
    store, problems = found.store, found.problems
    if isinstance(store, LocalStore):
        reason = "a value that was being written when its writer died"
        prefix = f"{found.path}/" if found.path else ""
        problems.extend(Problem("leftover", "", key, reason) for key in store.sweep(prefix, remove=False))
    if found.path:
        return
    for name in store.list_dir(""):
        if name.startswith(PROBE_PREFIX):
            problems.append(Problem("leftover", "", name, "a probe of a job's workers"))
        elif name.startswith(JOB_PREFIX) and store.get(f"{name}plan.json") is None:
            problems.append(Problem("leftover", "", name, "records of a job whose plan is gone"))


# --------------------------------------------------------------------------------------------------------------------
# Consolidated metadata


def _consolidated_key(group: Group) -> str | None:
    return group.documents.consolidated_key(group.path)


def _staleness(group: Group, nodes: Iterable[Node]) -> str | None:
    """Say how the group's consolidated metadata differ from the documents; ``None`` when there are none, or they do not."""
    key = _consolidated_key(group)
    value = None if key is None else group.store.get(key)
    if key is None or value is None:
        return None
    try:
        known = group.documents.parse_consolidated(group.path, value)
    except MetadataError as error:
        return str(error)
    if known is None:
        return None
    actual = _actual(group, nodes, known)
    differing = [name for name in sorted(known.keys() | actual.keys()) if not _same(known, actual, name)]
    if not differing:
        return None
    more = f" and {len(differing) - _MAX_NAMED} more" if len(differing) > _MAX_NAMED else ""
    return f"differs from what is there in {', '.join(map(repr, differing[:_MAX_NAMED]))}{more}"


def _actual(group: Group, nodes: Iterable[Node], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the documents that consolidated metadata of the group should hold, as they are now."""
    prefix = f"{group.path}/" if group.path else ""
    wanted = set(known)
    for node in nodes:
        if node.path.startswith(prefix) and node.path != group.path:
            wanted.update(_node_keys(group.documents, node.path))
    found = group.store.get_many([ByteSpan(key) for key in sorted(wanted)])
    return {key: value for key, value in zip(sorted(wanted), found, strict=True) if value is not None}


def _node_keys(documents_format: Format, path: str) -> Iterator[str]:
    yield from documents_format.array_keys(path)
    yield from documents_format.group_keys(path)


def _same(known: Mapping[str, bytes], actual: Mapping[str, bytes], key: str) -> bool:
    if key not in known or key not in actual:
        return False
    try:
        one, other = parse_json(key, known[key]), parse_json(key, actual[key])
    except MetadataError:
        return False
    for document in (one, other):
        document.pop("consolidated_metadata", None)  # of groups below, which have their own
    return same_json(one, other)
