"""What every key of a store is: a node's document, a chunk, a job's record, something left behind, or nobody's.

Listings and documents only; no chunk is opened. Not here: whether chunks decode (`chunkmill.checks.check_job`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from chunkmill.checks.consolidated import node_keys, staleness
from chunkmill.errors import ChunkmillError, MetadataError, NodeNotFound, StoreError, UnknownCodec, UnsupportedFeature
from chunkmill.formats.base import Format
from chunkmill.formats.registry import FORMATS
from chunkmill.nodes import hierarchy
from chunkmill.nodes.array import Array
from chunkmill.nodes.group import Group, Node
from chunkmill.runtime.journal import JOB_PREFIX
from chunkmill.runtime.preflight import PROBE_PREFIX
from chunkmill.runtime.unfinished_jobs import UnfinishedJob, unfinished_jobs
from chunkmill.stores.base import Store
from chunkmill.stores.capabilities import sweep_partial_files

__all__ = ["Inventory", "Problem", "take_inventory"]


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

    @property
    def nodes(self) -> list[Node]:
        """Groups and arrays."""
        return [*self.groups, *self.arrays]

    def add(self, node: Node) -> None:
        """Put a node where it belongs."""
        if isinstance(node, Array):
            self.arrays.append(node)
        else:
            self.groups.append(node)


def take_inventory(store: Store, path: str = "") -> Inventory:
    """List a store below `path` and say what its keys are.

    Raises
    ------
    NodeNotFound
        There is nothing at `path`, not even a job that was to write it.
    """
    found = Inventory(store, path.strip("/"))
    try:
        jobs = _unfinished(found)
    except StoreError:  # a web server
        return _without_listing(found)
    top, nothing = _top(found)
    for node in () if top is None else _walk(found, top):
        found.add(node)
    _Keys(found, jobs).sort(_listed(store, found, top))
    if nothing is not None and not (jobs or found.arrays or found.groups):
        raise nothing
    _leftovers(found)
    for group in found.groups:
        key = group.documents.consolidated_key(group.path)
        if key is not None and (reason := staleness(group, key, found.nodes)):
            found.stale.append(group)
            found.problems.append(Problem("stale", group.path, key, reason))
    return found


def _top(found: Inventory) -> tuple[Node | None, NodeNotFound | None]:
    """Open the node; without, return the error when nothing at all is there, or report what is wrong with it."""
    for consolidated in (False, None):  # where only consolidated metadata are left, those
        try:
            return hierarchy.open_node(found.store, found.path, consolidated=consolidated, read_only=False), None
        except NodeNotFound as error:
            nothing = error
        except ChunkmillError as error:
            _report_document(found, found.path, error)
            return None, None
    return None, nothing


def _without_listing(found: Inventory) -> Inventory:
    """Take what the metadata tell of, consolidated ones too, where the store lists nothing."""
    for node in hierarchy.walk(hierarchy.open_node(found.store, found.path)):
        found.add(node)
    for array in found.arrays:
        grid_shape = array.write_layout.grid.grid_shape
        if prod(grid_shape) > _MAX_UNLISTED:
            reason = f"the store lists nothing, and a grid of {grid_shape} store keys is too large to ask for each"
            raise StoreError(url=array.url, key=array.prefix, reason=reason)
        found.chunks.append(np.indices(grid_shape, np.int64).reshape(array.ndim, -1).T)
    return found


_MAX_UNLISTED = 1 << 22


def _walk(found: Inventory, node: Node) -> Iterator[Node]:
    """Yield `node` and what is below it; what cannot be opened is a problem."""
    todo = [node]
    while todo:
        yield (node := todo.pop())
        if isinstance(node, Group):
            todo += reversed(list(_children(found, node)))


def _children(found: Inventory, group: Group) -> Iterable[Node]:
    listed: list[Node] = []
    try:
        for node in group.children().values():
            if isinstance(node, Array):
                node.check_codecs()
            listed.append(node)
    except ChunkmillError:
        pass  # one of them, so one by one
    else:
        return listed
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

    def __init__(self, found: Inventory, jobs: Iterable[UnfinishedJob]) -> None:
        self.found = found
        self.owners: dict[str, int] = {}
        self.chunks: list[list[tuple[int, ...]]] = []
        self.documents: set[str] = set()
        for node in found.nodes:
            self._know(node)
        unreadable = [p.path for p in found.problems if p.kind in {"metadata", "unsupported"}]
        self.documents.update(key for path in unreadable for key in _document_keys(FORMATS, path))
        hidden = [*unreadable, *(job.path for job in jobs)]
        self.hidden = tuple(prefix for path in hidden for prefix in _prefixes(path))

    def _know(self, node: Node) -> None:
        # a node may have documents of two formats, and some formats are configured by their root
        own = hierarchy.format_of_store(node.store, node.format) if isinstance(node, Array) else node.documents
        self.documents.update(_document_keys((own, *FORMATS), node.path))
        if isinstance(node, Array):
            self.owners[node.prefix] = len(self.chunks)
            self.chunks.append([])

    def sort(self, keys: Iterable[str]) -> None:
        """Sort all keys, and take up the nodes that only their documents tell of."""
        unknown = [key for key in keys if not self._sorted(key)]
        if self._discovered(unknown):
            unknown = [key for key in unknown if not self._sorted(key)]
        for key in unknown:
            if not key.startswith(self.hidden):
                self.found.problems.append(Problem("orphan", "", key, "it belongs to no node"))
        self.found.chunks = [
            np.array(sorted(coords), np.int64).reshape(len(coords), array.ndim)
            for array, coords in zip(self.found.arrays, self.chunks, strict=True)
        ]

    def _sorted(self, key: str) -> bool:
        if key in self.documents or key.startswith((JOB_PREFIX, PROBE_PREFIX)):
            return True
        which = self._owner(key)
        if which is not None:
            self._sort_chunk(which, key)
        return which is not None

    def _discovered(self, unknown: Iterable[str]) -> bool:
        """Open nodes below what is no group by its documents: they are there for those who give their path."""
        names = {key.rpartition("/")[2] for each in FORMATS if each.node_keys_known for key in node_keys(each, "a")}
        paths = {key.rpartition("/")[0] for key in unknown if key.rpartition("/")[2] in names}
        n_before = len(self.found.nodes)
        for path in sorted(paths):
            try:
                node = hierarchy.open_node(self.found.store, path, consolidated=False, read_only=False)
            except NodeNotFound:
                continue
            except ChunkmillError as error:
                _report_document(self.found, path, error)
                self.documents.update(_document_keys(FORMATS, path))
                self.hidden = (*self.hidden, *_prefixes(path))
            else:
                self.found.add(node)
                self._know(node)
        return len(self.found.nodes) > n_before

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
        shape = array.metadata.chunk_grid.grid_shape  # not of its layout: its codecs may be unknown here
        if coords is None:
            reason = "it lies below an array and is none of its chunk keys"
            self.found.problems.append(Problem("orphan", array.path, key, reason))
        elif any(i >= n for i, n in zip(coords, shape, strict=True)):
            reason = f"it lies outside the grid of {shape} store keys"
            self.found.problems.append(Problem("orphan", array.path, key, reason, coords))
        else:
            self.chunks[which].append(coords)


def _document_keys(formats: Iterable[Format], path: str) -> Iterator[str]:
    """Yield the keys of a node's documents in each format."""
    for documents_format in formats:
        try:
            path_there = documents_format.normalize_path(path)
        except MetadataError:
            continue
        yield from documents_format.root_keys()
        yield from node_keys(documents_format, path_there)
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


def _unfinished(found: Inventory) -> list[UnfinishedJob]:
    jobs: list[UnfinishedJob] = []
    for job in unfinished_jobs(found.store):
        if not found.path or job.path == found.path or job.path.startswith(f"{found.path}/"):
            jobs.append(job)
            state = "is running" if job.is_running else "was interrupted: run it again to resume it"
            reason = f"{job.job}, begun {job.began}, {state}"
            found.problems.append(Problem("unfinished", job.path, job.key, reason))
    return jobs


def _leftovers(found: Inventory) -> None:
    """Find what nobody will come back for."""
    store, problems = found.store, found.problems
    reason = "a value that was being written when its writer died"
    partial = sweep_partial_files(store, f"{found.path}/" if found.path else "", remove=False)
    problems.extend(Problem("leftover", "", key, reason) for key in partial)
    if found.path:
        return
    for name in store.list_dir(""):
        if name.startswith(PROBE_PREFIX):
            problems.append(Problem("leftover", "", name, "a probe of a job's workers"))
        elif name.startswith(JOB_PREFIX) and store.get(f"{name}plan.json") is None:
            problems.append(Problem("leftover", "", name, "records of a job whose plan is gone"))
